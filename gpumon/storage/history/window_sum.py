"""Sums a metric over a window from the cells of all tiers, using the finest cells that have all the data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import ceil, floor, inf
from typing import NamedTuple

from gpumon.storage.history.metric_series import Line

_COMPLETE = 0.999
"""Fraction of the seconds of a coarse cell from which finer cells count as complete; seconds have seven digits."""
_CLOSE = 1e-6
"""Seconds by which a time may differ from the end of a cell and still equal it."""


class WindowSum(NamedTuple):
    """The sum of a metric over a window of time, and its lowest and highest value."""

    total: float = 0.0
    """Value times seconds; for a counter, its growth."""
    known: float = 0.0
    """Known seconds of the window."""
    shared: float = 0.0
    """Part of `known` in cells that an end of the window cuts; these count by their fraction."""
    high: float = -inf
    """Highest value; for a cut cell, the one of the whole cell."""
    low: float = inf
    """Lowest value, likewise."""


_NONE = WindowSum()


def window_sum(lines: Sequence[Line], begin: float, end: float) -> WindowSum:
    """Return the sum of a metric from `begin` to `end` (s since 1970).

    `lines`: the cells of the metric in each tier, from the finest to the coarsest. Time missing in one tier is taken
    from the next. A cell that `begin` or `end` cuts counts in proportion.
    """
    if not lines or not begin < end:
        return _NONE
    return _add_up(_split(lines, begin, end))


def _split(lines: Sequence[Line], begin: float, end: float) -> Iterator[WindowSum]:
    step = lines[-1].step
    first, last = ceil((begin - _CLOSE) / step), floor((end + _CLOSE) / step)
    if first > last:
        yield _partial_cell(lines, last, begin, end)
        return
    if begin < first * step - _CLOSE:
        yield _partial_cell(lines, first - 1, begin, first * step)
    yield from _prefer_finer(lines, first, last)
    if last * step < end - _CLOSE:
        yield _partial_cell(lines, last, last * step, end)


def _prefer_finer(lines: Sequence[Line], first: int, last: int) -> Iterator[WindowSum]:
    """Yield the sums of whole cells from `first` to before `last`."""
    *finer, line = lines
    for begin, end in _covered_ranges(finer, line.step):
        begin, end = max(begin, first), min(end, last)
        if begin < end:
            yield _whole_cells(line, first, begin)
            for number in range(begin, end):
                own = _whole_cells(line, number, number + 1)
                fine = window_sum(finer, number * line.step, (number + 1) * line.step)
                yield fine if fine.known >= _COMPLETE * own.known else own
            first = end
    yield _whole_cells(line, first, last)


def _covered_ranges(lines: Iterable[Line], step: int) -> list[tuple[int, int]]:
    """Return ranges (first, end) of the cells of `step` seconds in which these lines have data."""
    spans = {
        (cells.start * line.step // step, -(-cells.stop * line.step // step))
        for line in lines
        for cells in line.ranges()
    }
    return sorted(spans)


def _partial_cell(lines: Sequence[Line], number: int, begin: float, end: float) -> WindowSum:
    """Return the sum of a cell from `begin` to `end`; the part that finer cells do not know is spread evenly."""
    *finer, line = lines
    own = _whole_cells(line, number, number + 1)
    fine = window_sum(finer, begin, end)
    whole = window_sum(finer, number * line.step, (number + 1) * line.step)
    if whole.known >= _COMPLETE * own.known:
        return fine
    share = min(max(0.0, end - begin - fine.known) / max(line.step - whole.known, _CLOSE), 1.0)
    known = (own.known - whole.known) * share
    total = max(0.0, own.total - whole.total) * share
    high, low = max(fine.high, own.high), min(fine.low, own.low)
    return WindowSum(fine.total + total, fine.known + known, fine.shared + known, high, low)


def _whole_cells(line: Line, first: int, last: int) -> WindowSum:
    """Return the sum of whole cells from `first` to before `last`."""
    part = line.part(first, last)
    weight = line.weight[part]
    known = sum(weight)
    return WindowSum(sum(line.total[part]), known, 0.0, max(line.high[part]), min(line.low[part])) if known else _NONE


def _add_up(parts: Iterator[WindowSum]) -> WindowSum:
    total, known, shared, high, low = _NONE
    for part in parts:
        total, known, shared, high, low = (
            total + part.total, known + part.known, shared + part.shared, max(high, part.high), min(low, part.low),
        )  # fmt: skip
    return WindowSum(total, known, shared, high, low)
