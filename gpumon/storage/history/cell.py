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
    """Lowest, mean, highest and last value of each metric over a span of time. Missing values are NaN.

    Numbers other than `last` have single precision, as in the file.
    """

    low: Numbers
    mean: Numbers
    """Mean of a gauge; for a counter, its growth per second."""
    high: Numbers
    last: Numbers
    """Last value of a gauge; for a counter, its value at the end of the cell if that is known."""
    seconds: Numbers
    """Seconds in which the value is known."""


def unknown_cell(metrics: int) -> HistoryCell:
    """Return a cell without values for this number of metrics."""
    gap = array("f", [nan]) * metrics
    return HistoryCell(gap, gap, gap, array("d", [nan]) * metrics, array("f", [0.0]) * metrics)


def fold(cells: Sequence[HistoryCell]) -> HistoryCell:
    """Merge consecutive cells into one."""
    if len(cells) == 1:
        return cells[0]
    low, mean, high, last, seconds = [], [], [], [], []
    columns = [zip(*column, strict=True) for column in zip(*cells, strict=True)]
    for lows, means, highs, lasts, weights in zip(*columns, strict=True):
        total = sum(map(mul, means, weights))
        if total == total:  # NaN != NaN; no call of is_known, because this runs for each metric of each cell
            low.append(min(lows))
            high.append(max(highs))
        else:
            known = [row for row in zip(lows, means, highs, weights, strict=True) if row[1] == row[1]]
            low.append(min((row[0] for row in known), default=nan))
            high.append(max((row[2] for row in known), default=nan))
            weights = tuple(row[3] for row in known)
            total = sum(row[1] * row[3] for row in known)
        seconds.append(sum(weights))
        mean.append(total / seconds[-1] if seconds[-1] else nan)
        last.append(next((value for value in reversed(lasts) if value == value), nan))
    return HistoryCell(singles(low), singles(mean), singles(high), doubles(last), singles(seconds))


def cell_from_samples(rows: Sequence[Numbers], counters: Sequence[int], growth: Growth, seconds: float) -> HistoryCell:
    """Return the cell of one or more samples.

    `rows`: the values of each sample, one per metric. `counters`: indexes of the metrics that are counters. `growth`:
    their growth in the cell. `seconds`: seconds of the cell in which gauges are known.
    """
    low = mean = high = list(rows[0])
    if len(rows) > 1:
        columns = [[value for value in column if value == value] for column in zip(*rows, strict=True)]
        low, high = ([f(column, default=nan) for column in columns] for f in (min, max))
        means = (sum(column) / len(column) if column else nan for column in columns)
        mean = [min(max(value, a), b) for value, a, b in zip(means, low, high, strict=True)]  # against rounding
    last, known = list(rows[-1]), [seconds if value == value else 0.0 for value in mean]
    for index, rate, raw in zip(counters, growth.rates, growth.raw, strict=True):
        low[index] = mean[index] = high[index] = rate
        last[index], known[index] = raw, growth.seconds if rate == rate else 0.0
    means_packed = singles(mean)
    lows, highs = (means_packed if column is mean else singles(column) for column in (low, high))
    return HistoryCell(lows, means_packed, highs, doubles(last), singles(known))


def add_growth(cell: HistoryCell, counters: Sequence[int], growth: Growth) -> HistoryCell:
    """Return a closed cell extended by growth of its counters that was measured only after it was closed."""
    low, mean, high, last, known = map(list, cell)
    for index, rate, raw in zip(counters, growth.rates, growth.raw, strict=True):
        last[index] = raw
        if rate == rate:
            seconds = round(known[index] + growth.seconds, 4)
            before = mean[index] * known[index] if known[index] else 0.0
            low[index] = mean[index] = high[index] = (before + rate * growth.seconds) / seconds
            known[index] = seconds
    return HistoryCell(singles(low), singles(mean), singles(high), doubles(last), singles(known))
