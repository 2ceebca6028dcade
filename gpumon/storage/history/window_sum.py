"""Sums a metric over a window from the cells of all tiers, using the finest cells with complete data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import ceil, floor, inf
from typing import NamedTuple

from gpumon.storage.history.metric_series import Line

_COMPLETE = 0.999
"""Finer cells count as complete if their values are known for at least this fraction of the time in which the coarse
cell's value is known. The fraction is below 1 because seconds are stored with seven digits.
"""
_CLOSE = 1e-6
"""A time that differs from the end of a cell by at most this many seconds counts as equal to it."""


class WindowSum(NamedTuple):
    """The sum of a metric over a window of time, and its lowest and highest value."""

    total: float = 0.0
    """Sum of value times seconds; for a counter, its growth."""
    known: float = 0.0
    """Seconds of the window in which the value is known."""
    shared: float = 0.0
    """Seconds of `known` in cells that lie only partly within the window. Such a cell counts by the fraction that lies
    within."""
    high: float = -inf
    """Highest value. A cell that lies partly within the window counts with the highest value of the whole cell."""
    low: float = inf
    """Lowest value. A cell that lies partly within the window counts with the lowest value of the whole cell."""


_NONE = WindowSum()


def window_sum(lines: Sequence[Line], begin: float, end: float) -> WindowSum:
    """Return the sum of a metric from `begin` to `end` (s since 1970).

    `lines`: the cells of the metric in each tier, from the finest to the coarsest. Time that is missing in one tier is
    taken from the next. A cell that lies only partly in the window counts by the fraction that lies within.
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
    """Yield the sums of whole coarse cells from number `first` to `last` (not included).

    If finer cells are complete, they are used instead.
    """
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
    """Return the ranges of the cells of `step` seconds in which these lines have data, as first and end number."""
    spans = {
        (cells.start * line.step // step, -(-cells.stop * line.step // step))
        for line in lines
        for cells in line.ranges()
    }
    return sorted(spans)


def _partial_cell(lines: Sequence[Line], number: int, begin: float, end: float) -> WindowSum:
    """Return the sum of a coarse cell from `begin` to `end` (s since 1970).

    Data that is missing in finer cells is assumed to be spread evenly over the rest of the cell.
    """
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
    """Return the sum of whole cells from number `first` to `last` (not included)."""
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
