"""`FoldedFrames` keeps the older frames of a view without a history file, reduced to cells.

A cell has the lowest value, the mean and the highest value. `FoldedFrames` is used, for example, when a recording is
played. Cells get longer as time passes, so that all data stays visible at any frame rate and needs only a few megabytes
of memory.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from math import inf, nan
from statistics import median

from gpumon.storage.history.buckets import Grid
from gpumon.storage.history.envelope import held_samples
from gpumon.storage.history.metric_series import Line
from gpumon.storage.history.query import Query, Series, unknown
from gpumon.storage.history.time_slices import cell_numbers

STEPS = (1, 2, 10, 20, 60, 120, 600, 1200, 3600, 7200, 86400)
"""Possible lengths of cells in seconds, each a multiple of the previous one."""

MAX_CELLS = 1500
"""If there are more cells than this, longer cells are used."""

_MIN_FRAMES = 2.5
"""Minimum length of a cell, as a multiple of the usual time between frames. A shorter cell might not contain any
frame."""

Columns = Mapping[str, Mapping[str, Sequence[float]]]
"""Columns of values, by subject and metric."""


class FoldedFrames:
    """A tier of about `max_cells` cells in memory.

    Rows must be added in chronological order, after their cell has ended.
    """

    def __init__(self, max_cells: int = MAX_CELLS) -> None:
        self._max_cells = max_cells
        self.step = 0.0
        """Length of a cell in seconds."""
        self._first = self._end = 0
        """Number of the first cell, and number of the cell after the last one."""
        self._lines: dict[tuple[str, str], Line] = {}
        """Lines by subject and metric. Only metrics that had a value have a line."""

    @property
    def begin(self) -> float:
        """Start of the first cell (s since 1970); NaN if there is none."""
        return self._first * self.step if self._end > self._first else nan

    @property
    def end(self) -> float:
        """End of the last cell (s since 1970); NaN if there is none."""
        return self._end * self.step if self._end > self._first else nan

    def has(self, subject: str, metric: str) -> bool:
        """Return whether there is any value of this metric."""
        return (subject, metric) in self._lines

    def query(self, query: Query) -> Mapping[str, Series]:
        """Return a series for each metric of the query, on the query's grid. Missing values are NaN."""
        assert query.grid is not None, "tiers need a grid"
        gap = unknown(query.grid)
        lines = ((name, self._lines.get((query.subject, name))) for name in query.metrics)
        return {name: line.buckets(query.grid, query.begin, query.end) if line else gap for name, line in lines}

    def seconds(self, query: Query, begin: float, end: float) -> Sequence[float]:
        """Return, for each cell between two times (s since 1970), the number of seconds that have data.

        Cells that lie only partly between the two times are included.
        """
        lines = list(self._lines.values())
        return [
            max((line.seconds(number) for line in lines), default=0.0) for number in cell_numbers(begin, end, self.step)
        ]

    def add(self, times: Sequence[float], columns: Columns, pauses: Collection[float]) -> int:
        """Add the rows whose cells have ended, and return their number, counted from the start of `times`.

        `times`: time of each row (s since 1970). `columns`: at least one value for each time, NaN if missing. A cell
        without a row gets the values of the row before it, unless one of `pauses` (s since 1970) lies in between.
        """
        step = int(self.step)
        if not step:
            usual = median(later - earlier for earlier, later in pairwise(times))
            step = next((length for length in STEPS if length >= _MIN_FRAMES * usual), STEPS[-1])
            self.step, self._first = float(step), Grid(0, step, 1).at(times[0])
            self._end = self._first
        step = self._lengthen_until(times[-1])
        next_step = next((length for length in STEPS if length > step), step)
        is_full = Grid(0, step, 1).at(times[-1]) - self._first > self._max_cells
        whole = next_step if is_full else step  # if cells are lengthened below, stop at the end of a longer cell
        end = Grid(0, whole, 1).at(times[-1]) * whole // step
        if end <= self._end:
            return bisect_left(times, Grid(self._end, step, 0).edges()[0])
        grid = Grid(self._end, step, end - self._end)
        rows = [bisect_left(times, edge) for edge in grid.edges()]
        held = held_samples(times, rows, pauses)
        for subject, metrics in columns.items():
            for name, values in metrics.items():
                self._append((subject, name), values, rows, held)
        self._end = end
        if is_full and next_step > step:
            self._lengthen(next_step)
        return rows[-1]

    def _lengthen_until(self, time: float) -> int:
        """Lengthen cells until the cells up to `time` fit, and return the new length in seconds.

        This is needed, for example, after a pause of days. Rows after the last complete cell are lost.
        """
        step = int(self.step)
        longer = [length for length in STEPS if length > step]
        wanted = next(
            (
                length
                for length in longer
                if Grid(0, length, 1).at(time) - self._first * step // length <= self._max_cells
            ),
            STEPS[-1],
        )
        if longer and wanted > longer[0]:
            self._lengthen(wanted)
        return int(self.step)

    def _append(
        self, key: tuple[str, str], values: Sequence[float], rows: Sequence[int], held: Mapping[int, int]
    ) -> None:
        """Append the cells of a metric.

        `rows`: index of the first row of each cell. `held`: for cells without a row, the row to use.
        """
        line = self._lines.get(key)
        if line is None:
            # NaN != NaN; no call of is_known, because a call would cost more than the rest of the loop.
            if not any(value == value for value in values[: rows[-1]]):
                return
            line = self._lines[key] = Line(int(self.step), self._first, self._end)
        for cell, (begin, end) in enumerate(pairwise(rows)):
            first, last = (held[cell], held[cell] + 1) if cell in held else (begin, end)
            known = values[first:last]
            total = sum(known)
            if total != total:
                known = [value for value in known if value == value]
                total = sum(known)
            seconds = line.step / max(1, last - first)
            line.low.append(min(known, default=inf))
            line.high.append(max(known, default=-inf))
            line.total.append(seconds * total)
            line.weight.append(seconds * len(known))

    def _lengthen(self, step: int) -> None:
        """Merge cells into cells of `step` seconds."""
        factor = step // int(self.step)
        missing = self._first % factor
        self._lines = {key: _merge_cells(line, step, factor, missing) for key, line in self._lines.items()}
        self.step = float(step)
        self._first, self._end = self._first // factor, -(-self._end // factor)


def _merge_cells(line: Line, step: int, factor: int, missing: int) -> Line:
    """Return a line with cells of `step` seconds, each merged from `factor` cells.

    `missing`: number of cells that are missing at the start of the first merged cell.
    """
    merged = Line(step, line.first // factor, line.first // factor)
    ranges = [(max(0, begin), begin + factor) for begin in range(-missing, len(line), factor)]
    for begin, end in ranges:
        merged.low.append(min(line.low[begin:end]))
        merged.high.append(max(line.high[begin:end]))
        merged.total.append(sum(line.total[begin:end]))
        merged.weight.append(sum(line.weight[begin:end]))
    return merged
