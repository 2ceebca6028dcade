"""One metric of a tier, decoded: a number for each cell, and how buckets are made of them."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from math import ceil, inf, nan

from gpumon.storage.history.block import MetricCells
from gpumon.storage.history.buckets import Grid
from gpumon.storage.history.query import Series


class Line:
    """Cells of `step` seconds from number `first` on. One without a value has weight 0, and infinite extremes."""

    def __init__(self, step: int, first: int, end: int) -> None:
        count = max(0, end - first)
        self.step = step
        self.first = first
        self.filled = first
        """Number of the cell from which on nothing has been filled in."""
        self.low = array("f", [inf]) * count
        self.high = array("f", [-inf]) * count
        self.total = array("d", [0.0]) * count
        """Mean times weight."""
        self.weight = array("f", [0.0]) * count
        """Seconds that are known."""
        self.raw = array("d", [nan]) * count
        """Of a counter, its own value at the end of the cell; of a gauge the last value."""

    def __len__(self) -> int:
        return len(self.low)

    def part(self, first: int, end: int) -> slice:
        """Return the place of the cells from number `first` to before `end`."""
        count = len(self)
        return slice(min(max(0, first - self.first), count), min(max(0, end - self.first), count))

    def stretches(self) -> Sequence[range]:
        """Return the numbers of the cells there are, in their order."""
        return [range(self.first, self.first + len(self))] if len(self) else []

    def moved(self, first: int, end: int, again: int) -> Line:
        """Copy what there is into a line from `first` to `end`; from cell `again` on it is to be filled in anew."""
        found = Line(self.step, first, end)
        begin, until = max(first, self.first), min(end, again, self.first + len(self))
        if begin < until:
            there, here = slice(begin - first, until - first), slice(begin - self.first, until - self.first)
            for name in ("low", "high", "total", "weight", "raw"):
                getattr(found, name)[there] = getattr(self, name)[here]
            found.filled = until
        return found

    def fill(self, number: int, cells: MetricCells) -> None:
        """Put the cells of a block in, of which `number` is the first."""
        skipped, place = max(0, self.first - number), max(0, number - self.first)
        count = min(len(cells.mean) - skipped, len(self) - place)
        if count <= 0:
            return
        there, here = slice(place, place + count), slice(skipped, skipped + count)
        mean, seconds = cells.mean[here], cells.seconds[here]
        # NaN != NaN; no call of is_known, because a call would cost more than the rest of the loop.
        self.low[there] = array("f", [value if value == value else inf for value in cells.low[here]])
        self.high[there] = array("f", [value if value == value else -inf for value in cells.high[here]])
        pairs = zip(mean, seconds, strict=True)
        self.total[there] = array("d", [value * weight if value == value else 0.0 for value, weight in pairs])
        pairs = zip(mean, seconds, strict=True)
        self.weight[there] = array("f", [weight if value == value else 0.0 for value, weight in pairs])
        self.raw[there] = array("d", cells.last[here])
        self.filled = self.first + place + count

    def buckets(self, grid: Grid, begin: float, end: float) -> Series:
        """Low, mean and high of the cells in each bucket, of those whose middle is from `begin` to `end` (s).

        A bucket shorter than a cell has the values of the cell that it lies in.
        """
        first, last = self._place(begin), self._place(end)
        step, shift = self.step, 0.5 + 1e-9 + self.first
        bounds = [ceil(edge / step - shift) for edge in grid.edges()]
        if bounds[0] < first or bounds[-1] > last:
            bounds = [min(max(place, first), last) for place in bounds]
        low, mean, high = [nan] * grid.buckets, [nan] * grid.buckets, [nan] * grid.buckets
        seen = [0.0] * grid.buckets
        lows, highs, totals, weights = self.low, self.high, self.total, self.weight
        one = bounds[0]
        for bucket in range(grid.buckets):
            one, begun = bounds[bucket + 1], one
            if one - begun == 1:
                if weight := weights[begun]:
                    low[bucket], high[bucket], mean[bucket] = lows[begun], highs[begun], totals[begun] / weight
                    seen[bucket] = weight
            elif one > begun and (weight := sum(weights[begun:one])):
                low[bucket], high[bucket] = min(lows[begun:one]), max(highs[begun:one])
                mean[bucket] = sum(totals[begun:one]) / weight
                seen[bucket] = weight
        middles = grid.middles()
        if grid.step < self.step:
            self._spread(bounds, middles, first, last, (low, mean, high, seen))
        for bucket, value in enumerate(mean):
            if value < low[bucket] or value > high[bucket]:  # by rounding
                mean[bucket] = min(max(value, low[bucket]), high[bucket])
        return Series(middles, low, mean, high, grid.step, seen)

    def seconds(self, number: int) -> float:
        """Return the seconds that are known of the cell of this number."""
        return self.weight[number - self.first] if 0 <= number - self.first < len(self) else 0.0

    def _place(self, time: float) -> int:
        """The place of the first cell whose middle is not before `time`."""
        return max(0, min(ceil(time / self.step - 0.5 - 1e-9) - self.first, len(self)))

    def _spread(
        self, bounds: Sequence[int], middles: Sequence[float], first: int, last: int, into: tuple[list[float], ...]
    ) -> None:
        low, mean, high, seen = into
        share = (middles[1] - middles[0]) / self.step if len(middles) > 1 else 1.0
        for bucket, middle in enumerate(middles):
            cell = int(middle // self.step) - self.first
            if bounds[bucket] == bounds[bucket + 1] and first <= cell < last and (weight := self.weight[cell]):
                low[bucket], high[bucket] = self.low[cell], self.high[cell]
                mean[bucket] = self.total[cell] / weight
                seen[bucket] = weight * share
            elif bounds[bucket + 1] > bounds[bucket]:  # the middle of a cell is in it, of which the rest is elsewhere
                seen[bucket] *= share


class SparseLine(Line):
    """Some cells by their `numbers`, in order: of frames whose clock was set, they may lie years apart."""

    def __init__(self, step: int, numbers: Sequence[int], cells: MetricCells) -> None:
        super().__init__(step, 0, len(numbers))
        self.fill(0, cells)
        self._numbers = numbers

    def part(self, first: int, end: int) -> slice:
        return slice(bisect_left(self._numbers, first), bisect_left(self._numbers, end))

    def stretches(self) -> Sequence[range]:
        found: list[range] = []
        for number in self._numbers:
            if found and number == found[-1].stop:
                found[-1] = range(found[-1].start, number + 1)
            else:
                found.append(range(number, number + 1))
        return found
