"""Heat strip: a row with two values per cell, shown by color intensity."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from rich.color import Color
from rich.segment import Segment
from rich.style import Style

from gpumon_tui import palette
from gpumon_tui.render.text_width import Line

LEVELS = 24
"""Number of distinct intensities; more would cause repaints of cells that look the same."""
GAP, CELL = "·", "▌"


def heat(shares: Sequence[float], *, is_read: bool = True) -> Line:
    """Return a row for shares of 0 to 1, two per cell; NaN is a gap, or blank until history `is_read`."""
    gap = GAP if is_read else " "
    line: Line = []
    text, style, previous_pair = "", None, (-3, -3)
    for index in range(0, len(shares) - 1, 2):
        pair = _level(shares[index]), _level(shares[index + 1])
        if pair != previous_pair:
            if text:
                line.append(Segment(text, style))
            text, previous_pair, style = "", pair, _style(*pair)
        text += gap if pair == (-1, -1) else CELL
    if text:
        line.append(Segment(text, style))
    return line


def scale() -> Line:
    """Return the color scale from lowest to highest."""
    return [Segment(CELL, _style(level, level)) for level in range(0, LEVELS + 1, LEVELS // 6)]


def _level(share: float) -> int:
    # NaN != NaN; no call of is_known, because a call would dominate the cost.
    return round(min(1.0, max(0.0, share)) * LEVELS) if share == share else -1


@lru_cache(maxsize=1024)
def _style(left: int, right: int) -> Style:
    if left == right:
        return palette.ink("faint") if left < 0 else Style(color=_color(left), bgcolor=_color(left))
    return Style(color=_color(left), bgcolor=_color(right) if right >= 0 else None)


def _color(level: int) -> Color:
    return palette.color("ground") if level < 0 else palette.heat(level / LEVELS)
