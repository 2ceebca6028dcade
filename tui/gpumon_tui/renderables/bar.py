"""Bars: half blocks on a thin line, so that they read without color too, and rows of them stay apart."""

from __future__ import annotations

from math import isfinite

from rich.segment import Segment
from rich.style import Style

from gpumon_tui import theme
from gpumon_tui.renderables.text_width import Line

FULL, HALF, TRACK = "▄", "▃", "▁"
"""Half a cell is a lower one, not a narrower one: between that and the track would be a hole."""
SEEN = 0.005
"""The least share that has something of a bar: a smaller one reads as 0 in the number beside it."""


def bar(share: float, cells: int, style: Style) -> Line:
    """`share` of `cells` filled, to half a cell; a missing share, or an infinite one, is a dotted track."""
    if cells <= 0:
        return []
    if not isfinite(share):
        return [Segment("┈" * cells, theme.TRACK)]
    filled = bar_text(share, cells).rstrip(TRACK)
    return [Segment(filled, style), Segment(TRACK * (cells - len(filled)), theme.TRACK)]


def bar_text(share: float, cells: int) -> str:
    """The same as bare text."""
    if not isfinite(share):
        return "┈" * cells
    halves = round(min(max(share, 0.0), 1.0) * 2 * cells)
    if share >= SEEN:
        halves = max(1, halves)
    full, half = divmod(halves, 2)
    return (FULL * full + HALF * half).ljust(cells, TRACK)
