"""`HistoryCell`, a summary of all metrics of one subject over a span of time, and functions that merge cells."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from math import nan
from operator import mul
from typing import NamedTuple

from gpumon.common.columnar import doubles, singles
from gpumon.storage.history.counters import Growth

Numbers = Sequence[float]


class HistoryCell(NamedTuple):
    """Lowest, mean, highest and last value of each metric over a span of time. Missing values are NaN."""

    low: Numbers
    mean: Numbers
    """Mean of a gauge; for a counter, its growth per second over the seconds in `weight`."""
    high: Numbers
    last: Numbers
    """Last value of a gauge; for a counter, its value at the end of the cell if that is known."""
    seconds: tuple[float, float]
    """Seconds in which the gauges are known, and seconds in which the counters are known. They apply to all metrics
    that have a value. Used if `weight` is None.
    """
    weight: Numbers | None = None
    """For each metric, the seconds in which its value is known. None if these are the same for all gauges and the same
    for all counters.
    """


def weights(cell: HistoryCell, counters: Sequence[int]) -> list[float]:
    """Return, for each metric, the seconds in which its value was known.

    `counters`: indexes of the metrics that are counters.
    """
    if cell.weight is not None:
        return list(cell.weight)
    gauge_seconds, counter_seconds = cell.seconds
    seconds = [gauge_seconds if mean == mean else 0.0 for mean in cell.mean]
    for index in counters:
        seconds[index] = counter_seconds if cell.mean[index] == cell.mean[index] else 0.0
    return seconds


def fold(cells: Sequence[HistoryCell], counters: Sequence[int]) -> HistoryCell:
    """Merge consecutive cells into one. `counters`: indexes of the metrics that are counters."""
    if len(cells) == 1:
        return cells[0]
    means = list(zip(*(cell.mean for cell in cells), strict=True))
    single = all(cell.low is cell.mean is cell.high for cell in cells)
    lows = means if single else list(zip(*(cell.low for cell in cells), strict=True))
    highs = means if single else list(zip(*(cell.high for cell in cells), strict=True))
    weights_by_metric, seconds_by_metric = _collect_weights(cells, counters, len(means))
    # Merge all metrics as if no value were missing. Then merge the metrics with missing values again.
    if all(cell.seconds == (1.0, 1.0) for cell in cells):
        totals = list(map(sum, means))
    else:
        totals = [sum(map(mul, column, by)) for column, by in zip(means, weights_by_metric, strict=True)]
    if single:  # twice as fast as min and max, which compare objects in general
        ordered = list(map(sorted, means))
        low, high = doubles([column[0] for column in ordered]), doubles([column[-1] for column in ordered])
    else:
        low, high = doubles(list(map(min, lows))), doubles(list(map(max, highs)))
    mean = doubles(
        [total / seconds if seconds else nan for total, seconds in zip(totals, seconds_by_metric, strict=True)]
    )
    last, weight = doubles(cells[-1].last), doubles(seconds_by_metric)
    # NaN != NaN; no call of is_known, because a call would cost more than the rest of the loop.
    for index in [index for index, total in enumerate(totals) if total != total]:
        pairs = [pair for pair in zip(means[index], weights_by_metric[index], strict=True) if pair[0] == pair[0]]
        seconds = weight[index] = sum(seconds for _, seconds in pairs)
        mean[index] = sum(value * seconds for value, seconds in pairs) / seconds if seconds else nan
        low[index] = min((value for value in lows[index] if value == value), default=nan) if pairs else nan
        high[index] = max((value for value in highs[index] if value == value), default=nan) if pairs else nan
        if pairs:
            newest_first = (cell.last[index] for cell in reversed(cells))
            last[index] = next((value for value in newest_first if value == value), nan)
    return HistoryCell(low, mean, high, last, (nan, nan), weight)


def _collect_weights(
    cells: Sequence[HistoryCell], counters: Sequence[int], metrics: int
) -> tuple[list[tuple[float, ...]], list[float]]:
    """Return, for each metric, the seconds of each cell in which its value is known, and the sum of these seconds."""
    if any(cell.weight is not None for cell in cells):
        by_metric = list(zip(*(weights(cell, counters) for cell in cells), strict=True))
        return by_metric, list(map(sum, by_metric))
    # The usual case: each cell has one number for all its gauges, and one for all its counters.
    gauge_seconds, counter_seconds = (tuple(cell.seconds[kind] for cell in cells) for kind in (0, 1))
    by_metric, sums = [gauge_seconds] * metrics, [sum(gauge_seconds)] * metrics
    counter_sum = sum(counter_seconds)
    for index in counters:
        by_metric[index], sums[index] = counter_seconds, counter_sum
    return by_metric, sums


def cell_from_samples(
    rows: Sequence[Numbers], counters: Sequence[int], rates: Numbers, raw: Numbers, seconds: tuple[float, float]
) -> HistoryCell:
    """Return the cell of one or more samples.

    `rows`: the values of each sample, one per metric. `counters`: indexes of the metrics that are counters. `rates`:
    growth per second of each counter. `raw`: value of each counter at the end of the cell. `seconds`: seconds of the
    cell in which gauges are known, and in which counters are known.
    """
    if len(rows) == 1:
        mean = doubles(rows[0])
        last = mean[:]
        for index, rate, value in zip(counters, rates, raw, strict=True):
            mean[index], last[index] = rate, value
        return HistoryCell(mean, mean, mean, last, seconds)
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
    for number, index in enumerate(counters):
        mean[index] = low[index] = high[index] = rates[number]
        last[index] = raw[number]
    return HistoryCell(low, mean, high, last, seconds)


def add_growth(cell: HistoryCell, counters: Sequence[int], growth: Growth) -> HistoryCell:
    """Return a closed cell extended by growth of its counters that was measured only after it was closed.

    If the growth of a counter is unknown in one part of the cell, it is unknown in the whole cell. Its last value is
    the later one.
    """
    gauge_seconds, previous = cell.seconds
    seconds = round(previous + growth.seconds, 4)
    single = cell.low is cell.mean is cell.high
    low, mean, high, last = (doubles(column) for column in cell[:4])
    for number, index in enumerate(counters):
        rate = growth.rates[number]
        if previous:
            rate = (mean[index] * previous + rate * growth.seconds) / seconds
        low[index] = mean[index] = high[index] = rate
        last[index] = growth.raw[number]
    if single:
        low = high = mean
    return HistoryCell(low, mean, high, last, (gauge_seconds, seconds))


def to_singles(cell: HistoryCell) -> HistoryCell:
    """Return the cell with numbers in single precision, as in a block, which needs less memory."""
    if cell.low is cell.mean:
        return cell
    low, mean, high = map(singles, cell[:3])
    return cell._replace(low=low, mean=mean, high=high, weight=cell.weight and singles(cell.weight))
