"""History of a metric in one row: a strip with one glyph per column, or a heat strip with two values per cell."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import floor, isfinite

from rich.color import Color
from rich.segment import Segment
from rich.style import Style

from gpumon.storage.history.buckets import Grid
from gpumon_tui import theme
from gpumon_tui.render.text_width import Line
from gpumon_tui.render.time_axis import step_of

LEVELS = "▁▂▃▄▅▆▇"
"""No full block, so that rows do not touch."""
_LEVEL_COUNT = len(LEVELS)
GAP = "·"
PAST_SHARE = 0.42
"""Share of the color in all cells except the current one."""
MIN_SHARE = 0.005
"""Value below which a cell is drawn as zero."""


def strip_grid(window: float, cells: int, now: float) -> Grid:
    """Return `cells` columns that together cover `window` seconds, as in charts; the last one contains `now`.

    They start at multiples of their length since 1970, so that only the last column changes.
    """
    step = step_of(window, cells)
    return Grid(floor(now / step + 1e-6) - cells + 1, step, cells)


def strip(shares: Sequence[float], role: str = "util", *, is_read: bool = True) -> Line:
    """Draw shares of full scale, oldest first; NaN is a gap, and the last one is the current value.

    Until all history `is_read`, unknown values are blank, not gaps.
    """
    gap_letter = GAP if is_read else " "
    gap_style, zero_style, past_style = theme.ink("faint"), theme.ink("rule"), theme.tint(role, PAST_SHARE)
    line: Line = []
    letters, previous_style, last = "", gap_style, len(shares) - 1
    # Inlined, because this runs for every GPU and second; a call per cell would dominate the cost.
    for index, share in enumerate(shares):
        if not isfinite(share):
            letter, style = gap_letter, gap_style
        elif share < MIN_SHARE:
            letter, style = LEVELS[0], zero_style
        else:
            letter = LEVELS[min(_LEVEL_COUNT, max(1, round(share * _LEVEL_COUNT))) - 1]
            style = past_style if index != last else theme.ink(role)
        if style is not previous_style:
            if letters:
                line.append(Segment(letters, previous_style))
            letters, previous_style = "", style
        letters += letter
    return [*line, Segment(letters, previous_style)] if letters else line


HEAT_LEVELS = 24
"""Number of distinct intensities; more would cause repaints of cells that look the same."""
HEAT_CELL = "▌"


def heat_strip(shares: Sequence[float], *, is_read: bool = True) -> Line:
    """Return a row for shares of 0 to 1, two per cell; NaN is a gap, or blank until history `is_read`."""
    gap = GAP if is_read else " "
    line: Line = []
    text, style, previous_pair = "", None, (-3, -3)
    for index in range(0, len(shares) - 1, 2):
        pair = _heat_level(shares[index]), _heat_level(shares[index + 1])
        if pair != previous_pair:
            if text:
                line.append(Segment(text, style))
            text, previous_pair, style = "", pair, _heat_style(*pair)
        text += gap if pair == (-1, -1) else HEAT_CELL
    if text:
        line.append(Segment(text, style))
    return line


def heat_scale() -> Line:
    """Return the color scale from lowest to highest."""
    return [Segment(HEAT_CELL, _heat_style(level, level)) for level in range(0, HEAT_LEVELS + 1, HEAT_LEVELS // 6)]


def _heat_level(share: float) -> int:
    # NaN != NaN; no call of is_known, because a call would dominate the cost.
    return round(min(1.0, max(0.0, share)) * HEAT_LEVELS) if share == share else -1


@lru_cache(maxsize=1024)
def _heat_style(left: int, right: int) -> Style:
    if left == right:
        return theme.ink("faint") if left < 0 else Style(color=_heat_color(left), bgcolor=_heat_color(left))
    return Style(color=_heat_color(left), bgcolor=_heat_color(right) if right >= 0 else None)


def _heat_color(level: int) -> Color:
    return theme.color("ground") if level < 0 else theme.heat(level / HEAT_LEVELS)
