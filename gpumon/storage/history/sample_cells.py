"""The cells of an open block of the finest tier: those of a sample each in columns, and others as they are."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from math import nan
from operator import eq
from struct import pack_into
from typing import NamedTuple

from gpumon.storage.history.cell import HistoryCell, Numbers, doubles, fold, instead, singles, weights, with_growth
from gpumon.storage.history.counters import Grown

_SAMPLE, _OTHER = 1, 2
_FEW = 8
"""The part of cells that are not of a sample, beyond which they are not put among the columns one by one."""
WHOLE = (1.0, 1.0)
"""Seconds of a cell of the finest tier of which nothing is missing."""


class EvenCells(NamedTuple):
    """Cells that follow each other, each of one sample and with nothing missing."""

    rows: Sequence[Numbers]
    """The values of each sample; those of counters are not used."""
    rates: Sequence[Sequence[float]]
    """By counter, what it grew by in each cell."""
    raw: Sequence[Sequence[float]]
    """By counter, its value at the end of each cell."""


class CellColumns(NamedTuple):
    """By metric, a number for each cell; NaN is missing."""

    low: Sequence[array[float]]
    mean: Sequence[array[float]]
    high: Sequence[array[float]]
    last: Sequence[array[float]]
    seconds: Sequence[Sequence[float]]
    """One number where it is that of all cells that are known."""


class SampleCells(Mapping[int, HistoryCell]):
    """Cells by their places in the block."""

    def __init__(self, count: int, metrics: int, counters: Sequence[int]) -> None:
        self._count, self._metrics, self._counters = count, metrics, tuple(counters)
        self._kinds = bytearray(count)
        """By place: 0 where there is no cell, else `_SAMPLE` or `_OTHER`."""
        self._last = array("d")
        """Row by row; of a gauge it is the mean, too. Empty before the first such cell: at 100 Hz there is none."""
        self._rates: list[array[float]] = []
        self._others: dict[int, HistoryCell] = {}

    def __len__(self) -> int:
        return self._count - self._kinds.count(0)

    def __iter__(self) -> Iterator[int]:
        return (place for place, kind in enumerate(self._kinds) if kind)

    def __getitem__(self, place: int) -> HistoryCell:
        if self._kinds[place] == _SAMPLE:
            last = self._last[place * self._metrics : (place + 1) * self._metrics]
            mean = doubles(instead(len(last), self._counters)([*last, *(column[place] for column in self._rates)]))
            return HistoryCell(mean, mean, mean, last, WHOLE)
        return self._others[place]

    def put(self, place: int, cell: HistoryCell) -> None:
        """Take a cell."""
        if cell.seconds == WHOLE and cell.weight is None and cell.low is cell.mean is cell.high:
            self._make_room()
            self._kinds[place] = _SAMPLE
            self._others.pop(place, None)
            self._last[place * self._metrics : (place + 1) * self._metrics] = doubles(cell.last)
            for column, counter in zip(self._rates, self._counters, strict=True):
                column[place] = cell.mean[counter]
        else:
            self._kinds[place] = _OTHER
            self._others[place] = cell

    def grown(self, place: int, more: Grown) -> HistoryCell:
        """Return the cell at a place with more growth of its counters; without gauges where there is none yet."""
        nothing = doubles([nan] * self._metrics)
        none = HistoryCell(nothing, nothing, nothing, nothing, (0.0, 0.0))
        return with_growth(self[place] if self._kinds[place] else none, self._counters, more)

    def put_even(self, place: int, cells: EvenCells) -> None:
        """Take cells from `place` on."""
        self._make_room()
        metrics, count = self._metrics, len(cells.rows)
        begin, end = place * metrics, (place + count) * metrics
        pack_into(f"{count * metrics}d", self._last, begin * 8, *chain.from_iterable(cells.rows))
        for number, counter in enumerate(self._counters):
            self._last[begin + counter : end : metrics] = doubles(cells.raw[number])
            self._rates[number][place : place + count] = doubles(cells.rates[number])
        self._kinds[place : place + count] = bytes((_SAMPLE,)) * count

    def has_others(self, begin: int, end: int) -> bool:
        """Whether there are cells from place `begin` to `end` that are not of one sample each."""
        return self._kinds.count(_OTHER, begin, end) > 0

    def folded(self, begin: int, end: int, size: int) -> dict[int, HistoryCell]:
        """Each `size` cells from place `begin` to `end` as one, by the place of the first, where there are any."""
        places = range(begin, end, size)
        even = [place for place in places if self._kinds.count(_SAMPLE, place, place + size) == size]
        found = self._folded_evenly(even, size) if even else {}
        for place in places:
            if place not in found and (cell := self._folded(place, place + size)) is not None:
                found[place] = cell
        return found

    def _folded(self, begin: int, end: int) -> HistoryCell | None:
        """The cells from place `begin` to `end` as one; None where there are none."""
        places = [place for place in range(begin, end) if self._kinds[place]]
        found = fold([self[place] for place in places], self._counters) if places else None
        for place in places:
            if place in self._others:
                self._others[place] = _packed(self._others[place])
        return found

    def _folded_evenly(self, places: Sequence[int], size: int) -> dict[int, HistoryCell]:
        """As `folded`, metric by metric; without those in which a metric is missing, but not throughout."""
        metrics, seconds, first, end = self._metrics, float(size), places[0], places[-1] + size
        columns = [self._last[first * metrics + place : end * metrics : metrics] for place in range(metrics)]
        for place, rates in zip(self._counters, self._rates, strict=True):
            columns[place] = rates[first:end]
        low, mean, high = list[Numbers](), list[Numbers](), list[Numbers]()
        uneven: set[int] = set()
        for column in columns:
            if is_constant(column):  # as most limits and totals
                for numbers in (low, mean, high):
                    numbers.append(column[: len(places)])
                continue
            values = column.tolist()
            groups = [values[place - first : place - first + size] for place in places]
            totals = list(map(sum, groups))
            # NaN != NaN; no call of is_known, because it is done for each metric.
            if (whole := sum(totals)) != whole:
                uneven.update(
                    place
                    for place, total, group in zip(places, totals, groups, strict=True)
                    if total != total and any(map(eq, group, group))
                )
            ordered = list(map(sorted, groups))  # in half the time of min and max, which know nothing of floats
            low.append([group[0] for group in ordered])
            mean.append([total / seconds for total in totals])
            high.append([group[-1] for group in ordered])
        rows = zip(zip(*low, strict=True), zip(*mean, strict=True), zip(*high, strict=True), strict=True)
        found = {}
        for place, (lows, means, highs) in zip(places, rows, strict=True):
            if place not in uneven:
                last = self._last[(place + size - 1) * metrics : (place + size) * metrics]
                found[place] = HistoryCell(doubles(lows), doubles(means), doubles(highs), last, (seconds, seconds))
        return found

    def columns(self) -> CellColumns | None:
        """By metric, the numbers of all places, 0 seconds where there is none; None where few cells are of a sample."""
        if len(self._others) > self._count // _FEW:
            return None
        self._make_room()
        last = [self._last[place :: self._metrics] for place in range(self._metrics)]
        mean = list(last)
        for place, rates in zip(self._counters, self._rates, strict=True):
            mean[place] = rates
        if not self._others:
            return CellColumns(mean, mean, mean, last, [WHOLE[:1]] * self._metrics)
        mean = [column[:] for column in mean]
        single = all(cell.low is cell.mean is cell.high for cell in self._others.values())
        low, high = (mean if single else [column[:] for column in mean] for _ in range(2))
        # NaN is not itself: where a number is known, it is of a whole second.
        seconds = [doubles(list(map(eq, column, column))) for column in mean]
        for place, cell in self._others.items():
            numbers = cell.low, cell.mean, cell.high, cell.last, weights(cell, self._counters)
            for columns, values in zip((low, mean, high, last, seconds), numbers, strict=True):
                for column, value in zip(columns, values, strict=True):
                    column[place] = value
        return CellColumns(low, mean, high, last, seconds)

    def _make_room(self) -> None:
        if not self._last:
            self._last = array("d", [nan]) * (self._count * self._metrics)
            self._rates = [array("d", [nan]) * self._count for _ in self._counters]


def is_constant(column: array[float]) -> bool:
    """Whether a column is one number throughout, or missing throughout."""
    data = column.tobytes()
    return data[column.itemsize :] == data[: -column.itemsize]


def _packed(cell: HistoryCell) -> HistoryCell:
    """The same in less memory, as far as a block keeps it."""
    if cell.low is cell.mean:
        return cell
    low, mean, high = map(singles, cell[:3])
    return cell._replace(low=low, mean=mean, high=high, weight=cell.weight and singles(cell.weight))
