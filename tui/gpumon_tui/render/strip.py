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
_LEVEL_COUNT = len(LEVELS)
GAP = "·"
PAST_SHARE = 0.42
"""Share of the color in all cells except the current one."""
MIN_SHARE = 0.005
"""Value below which a cell is drawn as zero."""
_MAX_DELAY = 2.0
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
    gap_style, zero_style, past_style = palette.ink("faint"), palette.ink("rule"), palette.tinted(role, PAST_SHARE)
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
            style = past_style if index != last else palette.ink(role)
        if style is not previous_style:
            if letters:
                line.append(Segment(letters, previous_style))
            letters, previous_style = "", style
        letters += letter
    return [*line, Segment(letters, previous_style)] if letters else line


class StripHistory:
    """Cache of strip columns; a complete column is queried once."""

    def __init__(self) -> None:
        self._columns: dict[Hashable, tuple[object, Grid, list[float]]] = {}

    def shares(
        self, history: History, subject: str, metric: str, *, grid: Grid, interval: float, version: object
    ) -> list[float]:
        """Return the mean of a metric in each column; pass a different `version` when the past has changed."""
        key = subject, metric
        cached = self._columns.get(key)
        values: list[float] = []
        if cached is not None:
            cached_version, cached_grid, cached_values = cached
            passed = grid.first - cached_grid.first
            if (
                cached_version == version
                and (cached_grid.step, cached_grid.buckets) == (grid.step, grid.buckets)
                and 0 <= passed < grid.buckets
            ):
                values = cached_values[passed : -ceil(max(_MAX_DELAY, _MAX_DELAY * interval / grid.step))]
        missing = Grid(grid.first + len(values), grid.step, grid.buckets - len(values))
        values = values + list(read(history, subject, metric, missing, interval).mean)
        self._columns[key] = version, grid, values
        return values

    def keep(self, subjects: set[str]) -> None:
        """Drop all other subjects."""
        self._columns = {place: kept for place, kept in self._columns.items() if place[0] in subjects}  # type: ignore[index]
