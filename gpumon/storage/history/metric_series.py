"""`Line` contains the decoded cells of one metric in one tier. They can be combined into buckets."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from math import ceil, inf, nan

from gpumon.storage.history.block import MetricCells
from gpumon.storage.history.buckets import Grid
from gpumon.storage.history.query import Series


class Line:
    """Consecutive cells of `step` seconds, from number `first` (counted since 1970) to `end` (not included).

    A cell without a value has weight 0, and its low and high are infinite.
    """

    def __init__(self, step: int, first: int, end: int) -> None:
        count = max(0, end - first)
        self.step = step
        self.first = first
        self.filled = first
        """Number of the cell that follows the last filled cell."""
        self.low = array("f", [inf]) * count
        self.high = array("f", [-inf]) * count
        self.total = array("d", [0.0]) * count
        """For each cell, the mean multiplied by the weight."""
        self.weight = array("f", [0.0]) * count
        """For each cell, the number of seconds for which there is a value."""
        self.raw = array("d", [nan]) * count
        """Value of a counter at the end of each cell, or last value of a gauge."""

    def __len__(self) -> int:
        return len(self.low)

    def part(self, first: int, end: int) -> slice:
        """Return the slice of the columns for the cells from number `first` up to, but not including, `end`."""
        count = len(self)
        return slice(min(max(0, first - self.first), count), min(max(0, end - self.first), count))

    def ranges(self) -> Sequence[range]:
        """Return the numbers of the cells that exist, as ranges in chronological order."""
        return [range(self.first, self.first + len(self))] if len(self) else []

    def resized(self, first: int, end: int, refill: int) -> Line:
        """Return a line of the cells from number `first` up to, but not including, `end`.

        Cells before number `refill` are copied from this line. The other cells are empty.
        """
        line = Line(self.step, first, end)
        begin, until = max(first, self.first), min(end, refill, self.first + len(self))
        if begin < until:
            target, source = slice(begin - first, until - first), slice(begin - self.first, until - self.first)
            for name in ("low", "high", "total", "weight", "raw"):
                getattr(line, name)[target] = getattr(self, name)[source]
            line.filled = until
        return line

    def fill(self, number: int, cells: MetricCells) -> None:
        """Copy the cells of a block into this line. `number` is the number of the block's first cell."""
        skipped, index = max(0, self.first - number), max(0, number - self.first)
        count = min(len(cells.mean) - skipped, len(self) - index)
        if count <= 0:
            return
        target, source = slice(index, index + count), slice(skipped, skipped + count)
        mean, seconds = cells.mean[source], cells.seconds[source]
        # NaN != NaN; no call of is_known, because a call would cost more than the rest of the loop.
        self.low[target] = array("f", [value if value == value else inf for value in cells.low[source]])
        self.high[target] = array("f", [value if value == value else -inf for value in cells.high[source]])
        pairs = zip(mean, seconds, strict=True)
        self.total[target] = array("d", [value * weight if value == value else 0.0 for value, weight in pairs])
        pairs = zip(mean, seconds, strict=True)
        self.weight[target] = array("f", [weight if value == value else 0.0 for value, weight in pairs])
        self.raw[target] = array("d", cells.last[source])
        self.filled = self.first + index + count

    def buckets(self, grid: Grid, begin: float, end: float) -> Series:
        """Return the lowest, mean and highest value of each bucket of `grid`.

        A cell belongs to the bucket that contains its middle, if the middle is between `begin` and `end` (s since
        1970). A bucket that is shorter than a cell has the values of the cell that contains the bucket.
        """
        first, last = self._index(begin), self._index(end)
        step, shift = self.step, 0.5 + 1e-9 + self.first
        bounds = [min(max(ceil(edge / step - shift), first), last) for edge in grid.edges()]
        low, mean, high = [nan] * grid.buckets, [nan] * grid.buckets, [nan] * grid.buckets
        seen = [0.0] * grid.buckets
        lows, highs, totals, weights = self.low, self.high, self.total, self.weight
        for bucket, (cell, end_cell) in enumerate(pairwise(bounds)):
            if weight := sum(weights[cell:end_cell]):
                low[bucket], high[bucket] = min(lows[cell:end_cell]), max(highs[cell:end_cell])
                mean[bucket] = sum(totals[cell:end_cell]) / weight
                seen[bucket] = weight
        middles = grid.middles()
        if grid.step < self.step:
            self._fill_short_buckets(bounds, middles, first, last, (low, mean, high, seen))
        for bucket, value in enumerate(mean):
            if value < low[bucket] or value > high[bucket]:  # possible because of rounding
                mean[bucket] = min(max(value, low[bucket]), high[bucket])
        return Series(middles, low, mean, high, grid.step, seen)

    def seconds(self, number: int) -> float:
        """Return the number of seconds for which there is a value in the cell with this number."""
        return self.weight[number - self.first] if 0 <= number - self.first < len(self) else 0.0

    def _index(self, time: float) -> int:
        """Return the index of the first cell whose middle is not before `time`."""
        return max(0, min(ceil(time / self.step - 0.5 - 1e-9) - self.first, len(self)))

    def _fill_short_buckets(
        self, bounds: Sequence[int], middles: Sequence[float], first: int, last: int, columns: tuple[list[float], ...]
    ) -> None:
        """Fill the buckets that do not contain the middle of a cell, and divide the seconds of cells between buckets.

        `bounds`: index of the first cell of each bucket. `middles`: middle of each bucket. `first`, `last`: indexes of
        the cells that count. `columns`: low, mean, high and number of seconds with a value. These columns are changed.
        """
        low, mean, high, seen = columns
        share = (middles[1] - middles[0]) / self.step if len(middles) > 1 else 1.0
        for bucket, middle in enumerate(middles):
            cell = int(middle // self.step) - self.first
            if bounds[bucket] == bounds[bucket + 1] and first <= cell < last and (weight := self.weight[cell]):
                low[bucket], high[bucket] = self.low[cell], self.high[cell]
                mean[bucket] = self.total[cell] / weight
                seen[bucket] = weight * share
            elif (
                bounds[bucket + 1] > bounds[bucket]
            ):  # the bucket contains the middle of a cell that extends into other buckets
                seen[bucket] *= share


class SparseLine(Line):
    """Cells that need not be consecutive. `numbers` has the sorted numbers of the cells.

    If the clock was set between two frames, cells may be years apart.
    """

    def __init__(self, step: int, numbers: Sequence[int], cells: MetricCells) -> None:
        super().__init__(step, 0, len(numbers))
        self.fill(0, cells)
        self._numbers = numbers

    def part(self, first: int, end: int) -> slice:
        return slice(bisect_left(self._numbers, first), bisect_left(self._numbers, end))

    def ranges(self) -> Sequence[range]:
        ranges: list[range] = []
        for number in self._numbers:
            if ranges and number == ranges[-1].stop:
                ranges[-1] = range(ranges[-1].start, number + 1)
            else:
                ranges.append(range(number, number + 1))
        return ranges
