"""Strip of the last minutes of a metric in one row: one glyph per column of time."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import ceil, floor, isfinite

from rich.segment import Segment

from gpumon.storage.history.buckets import Grid
from gpumon.storage.history.query import History
from gpumon_tui import palette
from gpumon_tui.render.text_width import Line
from gpumon_tui.render.time_columns import read, step_of

LEVELS = "▁▂▃▄▅▆▇"
"""No full block, so that rows do not touch."""
_MOST = len(LEVELS)
GAP = "·"
QUIET = 0.42
"""Share of the color in all cells except the current one."""
NOTHING = 0.005
"""Value below which a cell is drawn as zero."""
_LATE = 2.0
"""Number of intervals and columns by which a sample may be late; a column is queried again until then."""


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
    gap, nothing, quiet = palette.ink("faint"), palette.ink("rule"), palette.tinted(role, QUIET)
    line: Line = []
    letters, before, last = "", gap, len(shares) - 1
    # Inlined, because this runs for every GPU and second; a call per cell would dominate the cost.
    for at, share in enumerate(shares):
        if not isfinite(share):
            letter, style = gap_letter, gap
        elif share < NOTHING:
            letter, style = LEVELS[0], nothing
        else:
            letter = LEVELS[min(_MOST, max(1, round(share * _MOST))) - 1]
            style = quiet if at != last else palette.ink(role)
        if style is not before:
            if letters:
                line.append(Segment(letters, before))
            letters, before = "", style
        letters += letter
    return [*line, Segment(letters, before)] if letters else line


class StripHistory:
    """Cache of strip columns; a complete column is queried once."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, tuple[object, Grid, list[float]]] = {}

    def shares(
        self, history: History, subject: str, metric: str, *, grid: Grid, interval: float, known: object
    ) -> list[float]:
        """Return the mean of a metric in each column; pass a different `known` when the past has changed."""
        place = subject, metric
        kept = self._kept.get(place)
        values: list[float] = []
        if kept is not None:
            before, of, old = kept
            passed = grid.first - of.first
            if before == known and (of.step, of.buckets) == (grid.step, grid.buckets) and 0 <= passed < grid.buckets:
                values = old[passed : -ceil(max(_LATE, _LATE * interval / grid.step))]
        rest = Grid(grid.first + len(values), grid.step, grid.buckets - len(values))
        values = values + list(read(history, subject, metric, rest, interval).mean)
        self._kept[place] = known, grid, values
        return values

    def keep(self, subjects: set[str]) -> None:
        """Drop all other subjects."""
        self._kept = {place: kept for place, kept in self._kept.items() if place[0] in subjects}  # type: ignore[index]
