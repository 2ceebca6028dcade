"""`SampleCells`: the cells of an open block of the finest tier. Cells with a single sample are stored as columns."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from math import nan
from operator import eq
from struct import pack_into
from typing import NamedTuple

from gpumon.storage.history.cell import (
    HistoryCell,
    Numbers,
    add_growth,
    counter_replacer,
    doubles,
    fold,
    singles,
    weights,
)
from gpumon.storage.history.counters import Growth

_SAMPLE, _OTHER = 1, 2
_MAX_OTHERS_DIVISOR = 8
"""`columns` returns None if more than 1/`_MAX_OTHERS_DIVISOR` of the cells do not consist of a single sample."""
WHOLE = (1.0, 1.0)
"""Seconds in which gauges are known, and in which counters are known, in a complete cell of the finest tier."""


class EvenCells(NamedTuple):
    """Consecutive cells of exactly one sample each, in which no value is missing."""

    rows: Sequence[Numbers]
    """Values of each sample, one per metric. Values of counters are not used."""
    rates: Sequence[Sequence[float]]
    """Growth of each counter in each cell."""
    raw: Sequence[Sequence[float]]
    """Value of each counter at the end of each cell."""


class CellColumns(NamedTuple):
    """The cells of a block as columns. Each field has one column per metric, with a number for each cell.

    Missing values are NaN.
    """

    low: Sequence[array[float]]
    mean: Sequence[array[float]]
    high: Sequence[array[float]]
    last: Sequence[array[float]]
    seconds: Sequence[Sequence[float]]
    """Seconds in which the value is known. A column has only one number if it is the same for all cells with a
    value.
    """


class SampleCells(Mapping[int, HistoryCell]):
    """The cells of a block, by their index in it."""

    def __init__(self, count: int, metrics: int, counters: Sequence[int]) -> None:
        self._count, self._metrics, self._counters = count, metrics, tuple(counters)
        self._kinds = bytearray(count)
        """Kind of each cell by index: `_SAMPLE`, `_OTHER`, or 0 if there is no cell."""
        self._last = array("d")
        """The last values of cells with one sample, row by row; for gauges also their mean. Empty before the first such
        cell, because at 100 Hz there is none."""
        self._rates: list[array[float]] = []
        self._others: dict[int, HistoryCell] = {}

    def __len__(self) -> int:
        return self._count - self._kinds.count(0)

    def __iter__(self) -> Iterator[int]:
        return (index for index, kind in enumerate(self._kinds) if kind)

    def __getitem__(self, index: int) -> HistoryCell:
        if self._kinds[index] == _SAMPLE:
            last = self._last[index * self._metrics : (index + 1) * self._metrics]
            replace = counter_replacer(len(last), self._counters)
            mean = doubles(replace([*last, *(column[index] for column in self._rates)]))
            return HistoryCell(mean, mean, mean, last, WHOLE)
        return self._others[index]

    def put(self, index: int, cell: HistoryCell) -> None:
        """Set the cell at this index."""
        if cell.seconds == WHOLE and cell.weight is None and cell.low is cell.mean is cell.high:
            self._allocate()
            self._kinds[index] = _SAMPLE
            self._others.pop(index, None)
            self._last[index * self._metrics : (index + 1) * self._metrics] = doubles(cell.last)
            for column, counter in zip(self._rates, self._counters, strict=True):
                column[index] = cell.mean[counter]
        else:
            self._kinds[index] = _OTHER
            self._others[index] = cell

    def with_growth(self, index: int, growth: Growth) -> HistoryCell:
        """Return the cell at this index with additional growth of its counters.

        If there is no cell at this index, the result has values only for counters.
        """
        unknown = doubles([nan] * self._metrics)
        empty = HistoryCell(unknown, unknown, unknown, unknown, (0.0, 0.0))
        return add_growth(self[index] if self._kinds[index] else empty, self._counters, growth)

    def put_even(self, index: int, cells: EvenCells) -> None:
        """Set consecutive cells, starting at `index`."""
        self._allocate()
        metrics, count = self._metrics, len(cells.rows)
        begin, end = index * metrics, (index + count) * metrics
        pack_into(f"{count * metrics}d", self._last, begin * 8, *chain.from_iterable(cells.rows))
        for number, counter in enumerate(self._counters):
            self._last[begin + counter : end : metrics] = doubles(cells.raw[number])
            self._rates[number][index : index + count] = doubles(cells.rates[number])
        self._kinds[index : index + count] = bytes((_SAMPLE,)) * count

    def has_others(self, begin: int, end: int) -> bool:
        """Return whether any cell from index `begin` to `end` (not included) does not consist of a single sample."""
        return self._kinds.count(_OTHER, begin, end) > 0

    def fold(self, begin: int, end: int, size: int) -> dict[int, HistoryCell]:
        """Merge the cells from index `begin` to `end` (not included) in groups of `size` cells.

        Returns the merged cells by the index of the first cell of their group.
        """
        indexes = range(begin, end, size)
        even = [index for index in indexes if self._kinds.count(_SAMPLE, index, index + size) == size]
        folded = self._fold_even(even, size) if even else {}
        for index in indexes:
            if index not in folded and (cell := self._fold_group(index, index + size)) is not None:
                folded[index] = cell
        return folded

    def _fold_group(self, begin: int, end: int) -> HistoryCell | None:
        """Return the cells from index `begin` to `end` (not included) merged into one, or None if there are none."""
        indexes = [index for index in range(begin, end) if self._kinds[index]]
        folded = fold([self[index] for index in indexes], self._counters) if indexes else None
        for index in indexes:
            if index in self._others:
                self._others[index] = _to_singles(self._others[index])
        return folded

    def _fold_even(self, indexes: Sequence[int], size: int) -> dict[int, HistoryCell]:
        """Do the same as `fold` for groups of single samples, metric by metric, which is faster.

        `indexes`: index of the first cell of each group. Groups in which a metric is missing in only some cells are
        left out of the result.
        """
        metrics, seconds, first, end = self._metrics, float(size), indexes[0], indexes[-1] + size
        columns = [self._last[first * metrics + metric : end * metrics : metrics] for metric in range(metrics)]
        for counter, rates in zip(self._counters, self._rates, strict=True):
            columns[counter] = rates[first:end]
        low, mean, high = list[Numbers](), list[Numbers](), list[Numbers]()
        uneven: set[int] = set()
        for column in columns:
            if is_constant(column):  # like most limits and totals
                for numbers in (low, mean, high):
                    numbers.append(column[: len(indexes)])
                continue
            values = column.tolist()
            groups = [values[index - first : index - first + size] for index in indexes]
            totals = list(map(sum, groups))
            # NaN != NaN; no call of is_known, because it is done for each metric.
            if (whole := sum(totals)) != whole:
                uneven.update(
                    index
                    for index, total, group in zip(indexes, totals, groups, strict=True)
                    if total != total and any(map(eq, group, group))
                )
            ordered = list(map(sorted, groups))  # twice as fast as min and max, which compare objects in general
            low.append([group[0] for group in ordered])
            mean.append([total / seconds for total in totals])
            high.append([group[-1] for group in ordered])
        rows = zip(zip(*low, strict=True), zip(*mean, strict=True), zip(*high, strict=True), strict=True)
        folded = {}
        for index, (lows, means, highs) in zip(indexes, rows, strict=True):
            if index not in uneven:
                last = self._last[(index + size - 1) * metrics : (index + size) * metrics]
                folded[index] = HistoryCell(doubles(lows), doubles(means), doubles(highs), last, (seconds, seconds))
        return folded

    def columns(self) -> CellColumns | None:
        """Return the cells as columns with a number for every index, or None if too few cells are single samples.

        For an index without a cell, `seconds` is 0.
        """
        if len(self._others) > self._count // _MAX_OTHERS_DIVISOR:
            return None
        self._allocate()
        last = [self._last[metric :: self._metrics] for metric in range(self._metrics)]
        mean = list(last)
        for counter, rates in zip(self._counters, self._rates, strict=True):
            mean[counter] = rates
        if not self._others:
            return CellColumns(mean, mean, mean, last, [WHOLE[:1]] * self._metrics)
        mean = [column[:] for column in mean]
        single = all(cell.low is cell.mean is cell.high for cell in self._others.values())
        low, high = (mean if single else [column[:] for column in mean] for _ in range(2))
        # NaN != NaN, so this gives 1 second for each known number and 0 for NaN.
        seconds = [doubles(list(map(eq, column, column))) for column in mean]
        for index, cell in self._others.items():
            numbers = cell.low, cell.mean, cell.high, cell.last, weights(cell, self._counters)
            for columns, values in zip((low, mean, high, last, seconds), numbers, strict=True):
                for column, value in zip(columns, values, strict=True):
                    column[index] = value
        return CellColumns(low, mean, high, last, seconds)

    def _allocate(self) -> None:
        """Allocate the columns for cells with one sample if they are not allocated yet."""
        if not self._last:
            self._last = array("d", [nan]) * (self._count * self._metrics)
            self._rates = [array("d", [nan]) * self._count for _ in self._counters]


def is_constant(column: array[float]) -> bool:
    """Return whether all numbers of a column are equal, or all are NaN."""
    data = column.tobytes()
    return data[column.itemsize :] == data[: -column.itemsize]


def _to_singles(cell: HistoryCell) -> HistoryCell:
    """Return the cell with numbers in single precision, as in a block, which needs less memory."""
    if cell.low is cell.mean:
        return cell
    low, mean, high = map(singles, cell[:3])
    return cell._replace(low=low, mean=mean, high=high, weight=cell.weight and singles(cell.weight))
