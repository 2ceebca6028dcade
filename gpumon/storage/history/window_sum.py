"""Sum a metric over a window from cells of all tiers: the finest cells that know as much as the coarse ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import ceil, floor, inf
from typing import NamedTuple

from gpumon.storage.history.metric_series import Line
from gpumon.storage.history.query import CoarseCells
from gpumon.storage.history.time_slices import TimeSlice

_SHORT = 0.1
"""Fraction of a window below which cells do not determine the length of buckets."""
_NEAR = 3.0
"""Maximum length of cells, as a multiple of the requested buckets, that determines buckets if finer cells exist."""


def deciding(spans: Sequence[TimeSlice], wanted: float) -> set[float]:
    """Return the cell lengths that buckets must contain as a whole; `wanted` is the requested bucket length (s)."""
    seconds: dict[float, float] = {}
    for span in spans:
        if span.is_observed:
            seconds[span.step] = seconds.get(span.step, 0.0) + span.end - span.begin
    least = _SHORT * (spans[-1].end - spans[0].begin) if spans else 0.0
    finer, found = 0.0, set[float]()
    for step in sorted(seconds):
        if step and seconds[step] > least and (step <= _NEAR * wanted or finer <= least):
            found.add(step)
        finer += seconds[step]
    return found


def coarse(spans: Sequence[TimeSlice], step: float) -> list[CoarseCells]:
    """Return the parts with cells longer than buckets of `step` seconds, in order of time."""
    found: list[CoarseCells] = []
    for span in spans:
        if span.step <= step:
            continue
        if found and found[-1].end == span.begin and found[-1].step == span.step:
            found[-1] = found[-1]._replace(end=span.end)
        else:
            found.append(CoarseCells(span.begin, span.end, span.step))
    return found


_AS_MUCH = 0.999
"""Fraction of the seconds of a coarse cell from which finer cells count as complete; seconds have seven digits."""
_CLOSE = 1e-6
"""Seconds by which a time may differ from the end of a cell and still equal it."""


class WindowSum(NamedTuple):
    """Sum of a metric over a window."""

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
    """Return the sum of a metric from `begin` to `end` (s since 1970); `lines` go from fine to coarse cells.

    Times missing in a finer line come from the next one; cells cut by an end of the window count in proportion.
    """
    if not lines or not begin < end:
        return _NONE
    return _added(_parts(lines, begin, end))


def _parts(lines: Sequence[Line], begin: float, end: float) -> Iterator[WindowSum]:
    step = lines[-1].step
    first, last = ceil((begin - _CLOSE) / step), floor((end + _CLOSE) / step)
    if first > last:
        yield _cut(lines, last, begin, end)
        return
    if begin < first * step - _CLOSE:
        yield _cut(lines, first - 1, begin, first * step)
    yield from _whole(lines, first, last)
    if last * step < end - _CLOSE:
        yield _cut(lines, last, last * step, end)


def _whole(lines: Sequence[Line], first: int, last: int) -> Iterator[WindowSum]:
    """Yield the sums of whole cells from `first` to before `last`."""
    *finer, line = lines
    for begin, end in _reached(finer, line.step):
        begin, end = max(begin, first), min(end, last)
        if begin < end:
            yield _cells(line, first, begin)
            for number in range(begin, end):
                own = _cells(line, number, number + 1)
                fine = window_sum(finer, number * line.step, (number + 1) * line.step)
                yield fine if fine.known >= _AS_MUCH * own.known else own
            first = end
    yield _cells(line, first, last)


def _reached(lines: Iterable[Line], step: int) -> list[tuple[int, int]]:
    """Return ranges (first, end) of the cells of `step` seconds in which these lines have data."""
    spans = {
        (cells.start * line.step // step, -(-cells.stop * line.step // step))
        for line in lines
        for cells in line.stretches()
    }
    return sorted(spans)


def _cut(lines: Sequence[Line], number: int, begin: float, end: float) -> WindowSum:
    """Return the sum of a cell from `begin` to `end`; what finer cells do not know is spread evenly over the cell."""
    *finer, line = lines
    own = _cells(line, number, number + 1)
    here = window_sum(finer, begin, end)
    whole = window_sum(finer, number * line.step, (number + 1) * line.step)
    if whole.known >= _AS_MUCH * own.known:
        return here
    share = min(max(0.0, end - begin - here.known) / max(line.step - whole.known, _CLOSE), 1.0)
    known = (own.known - whole.known) * share
    total = max(0.0, own.total - whole.total) * share
    high, low = max(here.high, own.high), min(here.low, own.low)
    return WindowSum(here.total + total, here.known + known, here.shared + known, high, low)


def _cells(line: Line, first: int, last: int) -> WindowSum:
    """Return the sum of whole cells from `first` to before `last`."""
    part = line.part(first, last)
    weight = line.weight[part]
    known = sum(weight)
    return WindowSum(sum(line.total[part]), known, 0.0, max(line.high[part]), min(line.low[part])) if known else _NONE


def _added(parts: Iterator[WindowSum]) -> WindowSum:
    total, known, shared, high, low = _NONE
    for part in parts:
        total, known, shared, high, low = (
            total + part.total, known + part.known, shared + part.shared, max(high, part.high), min(low, part.low),
        )  # fmt: skip
    return WindowSum(total, known, shared, high, low)
