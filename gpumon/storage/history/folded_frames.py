"""Frames that are too old to be kept one by one, in cells of lowest value, mean and highest value.

They are of a reader that has no file of history, such as a recording that is played. Cells get longer as there are more
of them: all that was seen stays in sight at every rate, in memory of a few megabytes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from math import inf, nan
from statistics import median

from gpumon.storage.history.buckets import Grid
from gpumon.storage.history.metric_series import Line
from gpumon.storage.history.query import Query, Series, unknown
from gpumon.storage.history.time_slices import cells_of

STEPS = (1, 2, 10, 20, 60, 120, 600, 1200, 3600, 7200, 86400)
"""Seconds that cells may last; each is a multiple of the one before."""

MOST = 1500
"""Cells at most; with as many the next length begins."""

_SPACINGS = 2.5
"""Times the usual distance of frames that a cell lasts at least: else some of them would be empty by chance."""

Columns = Mapping[str, Mapping[str, Sequence[float]]]
"""By subject and metric: the values of rows."""


class FoldedFrames:
    """A tier in memory of about `most` cells. Rows are added in the order of time, each when its cell is over."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self.step = 0.0
        self._first = self._next = 0
        """Numbers of the first cell, and of the one behind the last."""
        self._lines: dict[tuple[str, str], Line] = {}
        """By subject and metric, those of which any value is known."""

    @property
    def begin(self) -> float:
        """The oldest time there is (s since 1970), or NaN."""
        return self._first * self.step if self._next > self._first else nan

    @property
    def end(self) -> float:
        """Where the last cell ends (s since 1970), or NaN."""
        return self._next * self.step if self._next > self._first else nan

    def has(self, subject: str, metric: str) -> bool:
        """Return whether any value is known."""
        return (subject, metric) in self._lines

    def query(self, query: Query) -> Mapping[str, Series]:
        """Return a series for each metric of the query, on its grid; one that is unknown is a gap."""
        assert query.grid is not None, "tiers are asked for buckets"
        nothing = unknown(query.grid)
        lines = ((name, self._lines.get((query.subject, name))) for name in query.metrics)
        return {name: line.buckets(query.grid, query.begin, query.end) if line else nothing for name, line in lines}

    def seconds(self, query: Query, begin: float, end: float) -> Sequence[float]:
        """Return the seconds that are known of each cell from `begin` to `end` (s since 1970), whole or in part."""
        lines = list(self._lines.values())
        return [
            max((line.seconds(number) for line in lines), default=0.0) for number in cells_of(begin, end, self.step)
        ]

    def add(self, times: Sequence[float], columns: Columns, pauses: Collection[float]) -> int:
        """Take the rows in that lie in whole cells; return how many these are, with those of cells before.

        `columns` have a value for each of `times` (s since 1970) or more, NaN where it is missing. A cell without a
        row has the value of the row before it, unless one of `pauses` lies between.
        """
        step = int(self.step)
        if not step:
            usual = median(later - earlier for earlier, later in pairwise(times))
            step = next((one for one in STEPS if one >= _SPACINGS * usual), STEPS[-1])
            self.step, self._first = float(step), Grid(0, step, 1).at(times[0])
            self._next = self._first
        step = self._lengthen_for(times[-1])
        later = next((one for one in STEPS if one > step), step)
        due = Grid(0, step, 1).at(times[-1]) - self._first > self._most
        whole = later if due else step  # longer cells begin where one of them does
        end = Grid(0, whole, 1).at(times[-1]) * whole // step
        if end <= self._next:
            return bisect_left(times, Grid(self._next, step, 0).edges()[0])
        grid = Grid(self._next, step, end - self._next)
        places = [bisect_left(times, edge) for edge in grid.edges()]
        held = _held(times, places, pauses)
        for subject, of in columns.items():
            for name, values in of.items():
                self._append((subject, name), values, places, held)
        self._next = end
        if due and later > step:
            self._lengthen(later)
        return places[-1]

    def _lengthen_for(self, time: float) -> int:
        """Lengthen cells at once where the next length is not enough, as after a pause of days; return their length.

        Rows since the last whole cell are lost in it.
        """
        step = int(self.step)
        longer = [one for one in STEPS if one > step]
        wanted = next(
            (one for one in longer if Grid(0, one, 1).at(time) - self._first * step // one <= self._most), STEPS[-1]
        )
        if longer and wanted > longer[0]:
            self._lengthen(wanted)
        return int(self.step)

    def _append(
        self, place: tuple[str, str], values: Sequence[float], rows: Sequence[int], held: Mapping[int, int]
    ) -> None:
        """Append the cells of a metric; `rows`: the place of the first row of each, and `held` that of one before."""
        line = self._lines.get(place)
        if line is None:
            # NaN != NaN; no call of is_known, because a call would cost more than the rest of the loop.
            if not any(value == value for value in values[: rows[-1]]):
                return
            line = self._lines[place] = Line(int(self.step), self._first, self._next)
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
        """Make one cell of several."""
        many = step // int(self.step)
        before = self._first % many
        """Short cells that the first long one lacks."""
        found = {place: _joined(line, step, many, before) for place, line in self._lines.items()}
        self._lines, self.step = found, float(step)
        self._first, self._next = self._first // many, -(-self._next // many)


def _held(times: Sequence[float], places: Sequence[int], pauses: Collection[float]) -> dict[int, int]:
    """Return the place of the row before each cell that has none, as far as it stands for that too."""
    empty = ((cell, begin) for cell, (begin, end) in enumerate(pairwise(places)) if begin == end)
    return {cell: row - 1 for cell, row in empty if 0 < row < len(times) and times[row] not in pauses}


def _joined(line: Line, step: int, many: int, before: int) -> Line:
    """Return a line with `many` cells in each, of which the first lacks `before`."""
    found = Line(step, line.first // many, line.first // many)
    ranges = [(max(0, begin), begin + many) for begin in range(-before, len(line), many)]
    for begin, end in ranges:
        found.low.append(min(line.low[begin:end]))
        found.high.append(max(line.high[begin:end]))
        found.total.append(sum(line.total[begin:end]))
        found.weight.append(sum(line.weight[begin:end]))
    return found
