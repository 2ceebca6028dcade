"""A cell: a stretch of time of one subject, summed up by metric; and several cells as one."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from functools import lru_cache
from math import nan
from operator import itemgetter, mul
from struct import pack
from typing import NamedTuple

from gpumon.storage.history.counters import Grown

Numbers = Sequence[float]


class HistoryCell(NamedTuple):
    """Columns have one number for each metric; NaN is missing."""

    low: Numbers
    mean: Numbers
    """Of a counter, the rate: what it grew by in the seconds of `weight`, for each of them."""
    high: Numbers
    last: Numbers
    """Of a counter, its own value at the end of the cell, as far as that is known."""
    seconds: tuple[float, float]
    """Seconds that are known, of gauges and of counters, where a metric is known at all..."""
    weight: Numbers | None = None
    """...or, by metric, where these differ."""


def doubles(values: Numbers) -> array[float]:
    """An array of float64; by way of their bytes, because an array takes five times as long for each number."""
    return array("d", pack(f"{len(values)}d", *values))


def singles(values: Numbers) -> array[float]:
    """An array of float32, infinite where a number has no room."""
    return array("f", pack(f"{len(values)}f", *values))


def weights(cell: HistoryCell, counters: Sequence[int]) -> list[float]:
    """Seconds that are known, by metric."""
    if cell.weight is not None:
        return list(cell.weight)
    of_gauges, of_counters = cell.seconds
    found = [of_gauges if mean == mean else 0.0 for mean in cell.mean]
    for place in counters:
        found[place] = of_counters if cell.mean[place] == cell.mean[place] else 0.0
    return found


def fold(cells: Sequence[HistoryCell], counters: Sequence[int]) -> HistoryCell:
    """Several cells that follow each other as one."""
    if len(cells) == 1:
        return cells[0]
    means = list(zip(*(cell.mean for cell in cells), strict=True))
    single = all(cell.low is cell.mean is cell.high for cell in cells)
    lows = means if single else list(zip(*(cell.low for cell in cells), strict=True))
    highs = means if single else list(zip(*(cell.high for cell in cells), strict=True))
    each, known = _weights_of(cells, counters, len(means))
    # All metrics at once as if nothing were missing, then once more those of which something is.
    if all(cell.seconds == (1.0, 1.0) for cell in cells):
        totals = list(map(sum, means))
    else:
        totals = [sum(map(mul, column, by)) for column, by in zip(means, each, strict=True)]
    low, high = doubles(list(map(min, lows))), doubles(list(map(max, highs)))
    mean = doubles([total / seconds if seconds else nan for total, seconds in zip(totals, known, strict=True)])
    last, weight = doubles(cells[-1].last), doubles(known)
    # NaN != NaN; no call of is_known, because a call would cost more than the rest of the loop.
    for place in [place for place, total in enumerate(totals) if total != total]:
        pairs = [pair for pair in zip(means[place], each[place], strict=True) if pair[0] == pair[0]]
        seconds = weight[place] = sum(seconds for _, seconds in pairs)
        mean[place] = sum(value * seconds for value, seconds in pairs) / seconds if seconds else nan
        low[place] = min((value for value in lows[place] if value == value), default=nan) if pairs else nan
        high[place] = max((value for value in highs[place] if value == value), default=nan) if pairs else nan
        if pairs:
            newest_first = (cell.last[place] for cell in reversed(cells))
            last[place] = next((value for value in newest_first if value == value), nan)
    return HistoryCell(low, mean, high, last, (nan, nan), weight)


def _weights_of(
    cells: Sequence[HistoryCell], counters: Sequence[int], metrics: int
) -> tuple[list[tuple[float, ...]], list[float]]:
    """By metric the seconds that each cell knows, and their sum."""
    if any(cell.weight is not None for cell in cells):
        each = list(zip(*(weights(cell, counters) for cell in cells), strict=True))
        return each, list(map(sum, each))
    # The usual case: each cell has one number for all its gauges, and one for all its counters.
    of_gauges, of_counters = (tuple(cell.seconds[kind] for cell in cells) for kind in (0, 1))
    each, known = [of_gauges] * metrics, [sum(of_gauges)] * metrics
    sum_of_counters = sum(of_counters)
    for place in counters:
        each[place], known[place] = of_counters, sum_of_counters
    return each, known


def summed(
    rows: Sequence[Numbers], counters: Sequence[int], rates: Numbers, raw: Numbers, seconds: tuple[float, float]
) -> HistoryCell:
    """The cell of some samples: `rows` of gauges, and `rates` and `raw` values at its end for `counters`."""
    if len(rows) == 1:
        (row,) = rows
        chosen = instead(len(row), tuple(counters))
        mean = doubles(chosen([*row, *rates]))
        return HistoryCell(mean, mean, mean, doubles(chosen([*row, *raw])), seconds)
    mean, last, low, high = array("d"), array("d"), array("d"), array("d")
    for column in zip(*rows, strict=True):
        total = sum(column)
        known: Sequence[float] = column if total == total else [value for value in column if value == value]
        total = total if total == total else sum(known)
        smallest, largest = min(known, default=nan), max(known, default=nan)
        low.append(smallest)
        high.append(largest)
        mean.append(min(max(total / len(known), smallest), largest) if known else nan)
        last.append(column[-1])
    for number, place in enumerate(counters):
        mean[place] = low[place] = high[place] = rates[number]
        last[place] = raw[number]
    return HistoryCell(low, mean, high, last, seconds)


def with_growth(cell: HistoryCell, counters: Sequence[int], more: Grown) -> HistoryCell:
    """The same cell with growth that came to be known later. One part unknown, the whole is; the latest value stays."""
    of_gauges, before = cell.seconds
    seconds = round(before + more.seconds, 4)
    single = cell.low is cell.mean is cell.high
    low, mean, high, last = (doubles(column) for column in cell[:4])
    for number, place in enumerate(counters):
        rate = more.rates[number]
        if before:
            rate = (mean[place] * before + rate * more.seconds) / seconds
        low[place] = mean[place] = high[place] = rate
        last[place] = more.raw[number]
    if single:
        low = high = mean
    return HistoryCell(low, mean, high, last, (of_gauges, seconds))


@lru_cache
def instead(metrics: int, counters: tuple[int, ...]) -> Callable[[Sequence[float]], tuple[float, ...]]:
    """Takes values of all metrics with those of `counters` behind them, and puts these in their places."""
    places = {place: metrics + number for number, place in enumerate(counters)}
    return itemgetter(*(places.get(place, place) for place in range(metrics)))
