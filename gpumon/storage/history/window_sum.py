"""The sum of one metric over a window, from cells of every length: the finest where they know as much as the coarse."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import ceil, floor, inf
from typing import NamedTuple

from gpumon.storage.history.line import Line
from gpumon.storage.history.query import CoarseCells
from gpumon.storage.history.watched import TimeSlice

_SHORT = 0.1
"""The share of a window below which its cells do not decide how long buckets are."""
_NEAR = 3.0
"""Times the buckets that are asked for that cells may last, to decide where there are finer ones, too."""


def deciding(spans: Sequence[TimeSlice], wanted: float) -> set[float]:
    """Return the lengths of cells that buckets hold whole; `wanted` is the length of buckets that are asked for (s)."""
    seconds: dict[float, float] = {}
    for span in spans:
        if span.is_watched:
            seconds[span.step] = seconds.get(span.step, 0.0) + span.end - span.begin
    least = _SHORT * (spans[-1].end - spans[0].begin) if spans else 0.0
    finer, found = 0.0, set[float]()
    for step in sorted(seconds):
        if step and seconds[step] > least and (step <= _NEAR * wanted or finer <= least):
            found.add(step)
        finer += seconds[step]
    return found


def coarse(spans: Sequence[TimeSlice], step: float) -> list[CoarseCells]:
    """Return the stretches with cells longer than buckets of `step` seconds, in the order of time."""
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
"""The share of a coarse cell's seconds from which on finer cells know as much: seconds are kept with seven digits."""
_CLOSE = 1e-6
"""Seconds by which a time may miss the border of a cell."""


class WindowSum(NamedTuple):
    """A metric over a window."""

    total: float = 0.0
    """Value times seconds; of a counter, what it grew by."""
    known: float = 0.0
    """Seconds of the window that are known."""
    shared: float = 0.0
    """Of these, seconds of cells which a border of the window cuts: they count by their share."""
    high: float = -inf
    """The highest value; of a cell that is cut, that of the whole cell."""
    low: float = inf
    """The lowest one, likewise."""


_NONE = WindowSum()


def window_sum(lines: Sequence[Line], begin: float, end: float) -> WindowSum:
    """Sum up from `begin` to `end` (s since 1970); `lines` are one metric's, from the finest cells to the coarsest.

    Whatever a finer line lacks comes from the next one; where that is cut by a border, in proportion.
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
    """Cells from `first` to before `last`, each of them as a whole."""
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
    """Return the first and the last number (not included) of the cells of `step` seconds in which these have any."""
    spans = {
        (cells.start * line.step // step, -(-cells.stop * line.step // step))
        for line in lines
        for cells in line.stretches()
    }
    return sorted(spans)


def _cut(lines: Sequence[Line], number: int, begin: float, end: float) -> WindowSum:
    """The part of a cell from `begin` to `end`; beyond what finer cells know of it, it is taken to be even."""
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
    """The sum of whole cells, by their numbers."""
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
