"""A cell: a stretch of time of one subject, summed up by metric; and several cells as one."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from math import nan
from operator import eq, mul
from typing import NamedTuple

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
    lasts = list(zip(*(cell.last for cell in cells), strict=True))
    shared = _shared(cells, counters, len(means))
    each = list(zip(*(weights(cell, counters) for cell in cells), strict=True)) if shared is None else shared
    low, mean, high, last, weight = array("d"), array("d"), array("d"), array("d"), array("d")
    # NaN is not itself; in place, because a call would cost more than the rest of the loop.
    for place, column in enumerate(means):
        by = each[place]
        total = sum(map(mul, column, by))
        if total == total:
            known = sum(by)
            low.append(min(lows[place]))
            high.append(max(highs[place]))
            last.append(lasts[place][-1])
        elif not any(map(eq, column, column)):
            low.append(nan)
            high.append(nan)
            last.append(lasts[place][-1])
            known = 0.0
        else:
            pairs = [pair for pair in zip(column, by, strict=True) if pair[0] == pair[0]]
            total, known = sum(value * seconds for value, seconds in pairs), sum(seconds for _, seconds in pairs)
            low.append(min((value for value in lows[place] if value == value), default=nan))
            high.append(max((value for value in highs[place] if value == value), default=nan))
            last.append(next((value for value in reversed(lasts[place]) if value == value), nan))
        mean.append(total / known if known else nan)
        weight.append(known)
    return HistoryCell(low, mean, high, last, (nan, nan), weight)


def _shared(cells: Sequence[HistoryCell], counters: Sequence[int], metrics: int) -> list[tuple[float, ...]] | None:
    """Weights by metric where each cell has one for all its gauges and one for all its counters: the usual case."""
    if any(cell.weight is not None for cell in cells):
        return None
    of_gauges, of_counters = (tuple(cell.seconds[kind] for cell in cells) for kind in (0, 1))
    found = [of_gauges] * metrics
    for place in counters:
        found[place] = of_counters
    return found


def summed(
    rows: Sequence[Numbers], counters: Sequence[int], rates: Numbers, raw: Numbers, seconds: tuple[float, float]
) -> HistoryCell:
    """The cell of some samples: `rows` of gauges, and `rates` and `raw` values at its end for `counters`."""
    if len(rows) == 1:
        mean = array("d", rows[0])
        last = array("d", rows[0])
        low = high = mean
    else:
        columns = list(zip(*rows, strict=True))
        mean, last = array("d"), array("d")
        low, high = array("d"), array("d")
        for column in columns:
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
