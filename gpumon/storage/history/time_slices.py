"""Divides a window into slices, each answered by one history or tier, and determines the length of buckets.

A coarse tier may cover weeks in which nothing was sampled. Without the limits in this module, all buckets of the window
would become as long as the cells of that tier. The cell in which a daemon started would be drawn over the minutes
before the start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, floor

from gpumon.storage.history.query import CoarseCells, Query, Tier

_COMPLETE = 0.98
"""A cell is replaced with finer cells if these cover at least this fraction of the time for which the cell has
values."""


_SHORT = 0.1
"""Cells do not determine the length of buckets if they cover less than this fraction of the window."""
_NEAR = 3.0
"""If finer cells exist, longer cells determine the length of buckets only if they are at most this multiple of the
requested length."""


@dataclass(frozen=True, slots=True)
class TimeSlice:
    """The time of a window from `begin` to `end` (s since 1970) that is answered by one tier, or by frames."""

    step: float
    """Length of the tier's cells in seconds; 0 for frames, and if nothing was sampled."""
    begin: float
    end: float
    tier: Tier | None = None
    """The tier that answers for this time; None for frames, and if nothing was sampled."""
    is_observed: bool = True
    """Whether anything was sampled in this time."""

    @property
    def has_frames(self) -> bool:
        """Whether frames answer for this time."""
        return self.tier is None and self.is_observed


def unobserved(begin: float, end: float) -> TimeSlice:
    """Return a slice from `begin` to `end` (s since 1970) in which nothing was sampled."""
    return TimeSlice(0.0, begin, end, is_observed=False)


def limit_coarse_tiers(
    spans: Sequence[TimeSlice], query: Query, wanted: float, frames: Callable[[float, float], float]
) -> list[TimeSlice]:
    """Return the slices in chronological order. Slices of coarse tiers are shortened to the time that has data.

    `wanted`: requested bucket length in seconds; tiers with longer cells are coarse. `frames`: function that returns
    the number of seconds between two times that frames cover.
    """
    return [part for span in spans for part in _parts(span, spans, query, wanted, frames)]


def _parts(
    span: TimeSlice, spans: Sequence[TimeSlice], query: Query, wanted: float, frames: Callable[[float, float], float]
) -> Iterator[TimeSlice]:
    if span.tier is None or span.step <= wanted:
        yield span
        return
    seconds = list(span.tier.seconds(query, span.begin, span.end))
    first = floor(span.begin / span.step)
    for index in {0, len(seconds) - 1} if seconds else ():  # finer slices may cover part of the first and the last cell
        begin = (first + index) * span.step
        finer = sum(
            _slice_seconds(other, query, begin, begin + span.step, frames) for other in spans if other.step < span.step
        )
        if finer >= _COMPLETE * seconds[index]:
            seconds[index] = 0.0
    known = [first + index for index, number in enumerate(seconds) if number]
    begin = max(span.begin, known[0] * span.step) if known else span.end
    end = min(span.end, (known[-1] + 1) * span.step) if known else span.end
    if span.begin < begin:
        yield unobserved(span.begin, begin)
    if begin < end:
        yield replace(span, begin=begin, end=end)
    if end < span.end:
        yield unobserved(end, span.end)


def _slice_seconds(
    span: TimeSlice, query: Query, begin: float, end: float, frames: Callable[[float, float], float]
) -> float:  # fmt: skip
    """Return the number of seconds of a slice, from `begin` to `end` (s since 1970), that have data."""
    begin, end = max(begin, span.begin), min(end, span.end)
    if not begin < end:
        return 0.0
    return sum(span.tier.seconds(query, begin, end)) if span.tier else frames(begin, end)


def cell_numbers(begin: float, end: float, step: float) -> range:
    """Return the numbers (since 1970) of the cells of `step` seconds that overlap the time from `begin` to `end`."""
    return range(floor(begin / step), ceil(end / step))


def deciding_steps(spans: Sequence[TimeSlice], wanted: float) -> set[float]:
    """Return the cell lengths in seconds that must divide the bucket length.

    `wanted`: requested bucket length (s).
    """
    seconds: dict[float, float] = {}
    for span in spans:
        if span.is_observed:
            seconds[span.step] = seconds.get(span.step, 0.0) + span.end - span.begin
    least = _SHORT * (spans[-1].end - spans[0].begin) if spans else 0.0
    finer, steps = 0.0, set[float]()
    for step in sorted(seconds):
        if step and seconds[step] > least and (step <= _NEAR * wanted or finer <= least):
            steps.add(step)
        finer += seconds[step]
    return steps


def coarse_parts(spans: Sequence[TimeSlice], step: float) -> list[CoarseCells]:
    """Return the periods whose cells are longer than buckets of `step` seconds, in chronological order."""
    parts: list[CoarseCells] = []
    for span in spans:
        if span.step <= step:
            continue
        if parts and parts[-1].end == span.begin and parts[-1].step == span.step:
            parts[-1] = parts[-1]._replace(end=span.end)
        else:
            parts.append(CoarseCells(span.begin, span.end, span.step))
    return parts
