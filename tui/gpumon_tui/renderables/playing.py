"""Place in a recording that plays, for the foot of the screen."""

from __future__ import annotations

from math import floor
from typing import TYPE_CHECKING, NamedTuple

from rich.segment import Segment

from gpumon.common.numbers import is_known
from gpumon.model import units
from gpumon.model.origin import Capability
from gpumon_tui import palette, theme
from gpumon_tui.freshness import END
from gpumon_tui.renderables.text_width import Line

if TYPE_CHECKING:  # a view draws with renderables
    from gpumon_tui.view import View

BAR_FROM, TEXT_FROM = 100, 60
"""Cells of the screen from which there is a bar, and from which there is anything."""
_WIDE, _BAR, _WIDE_BAR = 160, 8, 24
_DONE, _REST = palette.ink("key", "panel"), palette.ink("track", "panel")


class Playing(NamedTuple):
    """A place in a recording."""

    at: float
    """Seconds since its begin: whole ones, but at its end."""
    whole: float
    """Seconds that it lasts; NaN where that is not known."""


def playing(view: View) -> Playing | None:
    """Return the place that is on screen; None where that is no recording."""
    begin, end = view.played
    if view.frame is None or Capability.NOW in view.origin.capabilities or not is_known(begin):
        return None
    whole = end - begin  # the last frame is up to a tick before the end
    is_over = view.freshness.edge == END and is_known(whole)
    return Playing(whole if is_over else floor(max(0.0, view.now - begin)), whole)


def played_line(of: Playing, cells: int) -> Line:
    """Return the place in words, with a bar where the screen has room for one and the end is known."""
    if cells < TEXT_FROM:
        return []
    at, whole = units.duration(of.at), units.duration(of.whole) if is_known(of.whole) else ""
    line: Line = [Segment(f"  {at}", theme.BAR_STRONG)]
    if not whole:
        return [*line, Segment(" played ", theme.BAR_DIM)]
    if cells < BAR_FROM:
        return [*line, Segment(f" of {whole} ", theme.BAR_DIM)]
    room = _WIDE_BAR if cells >= _WIDE else _BAR
    halves = round(2 * room * min(1.0, of.at / of.whole)) if of.whole > 0 else 2 * room
    done = "━" * (halves // 2) + "╸" * (halves % 2)
    bar = [Segment(" ", theme.BAR), Segment(done, _DONE), Segment("━" * (room - len(done)), _REST)]
    return [*line, *bar, Segment(f" {whole} ", theme.BAR_DIM)]
