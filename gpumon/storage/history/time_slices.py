"""Slices of a window, each answered by one history or tier; limits coarse tiers to the time that they know best.

A coarse tier can cover weeks in which nothing was sampled. Without this limit, all buckets of a window would be as long
as its cells, and a cell in which a daemon started would be drawn over the minutes before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import ceil, floor
from typing import NamedTuple

from gpumon.storage.history.query import History, Query, Series, Tier, unknown

_AS_MUCH = 0.98
"""Fraction of the known seconds of a cell that finer samples must cover to replace it."""


class TimeSlice(NamedTuple):
    """Part of a window that one history answers, from `begin` to `end` (s since 1970)."""

    history: History
    step: float
    """Seconds in each of its cells; 0 for frames, and if nothing was sampled."""
    begin: float
    end: float
    tier: Tier | None = None
    """The history, if it is a tier."""

    @property
    def is_observed(self) -> bool:
        """Whether anything was sampled in this time."""
        return not isinstance(self.history, Unobserved)


class Unobserved:
    """A history for times in which nothing was sampled."""

    begin = end = float("nan")

    def has(self, subject: str, metric: str) -> bool:
        """Return that no value is known."""
        return False

    def query(self, query: Query) -> Mapping[str, Series]:
        """Return a gap for each metric of the query, on its grid."""
        assert query.grid is not None, "it has no samples"
        return dict.fromkeys(query.metrics, unknown(query.grid))


def unobserved(begin: float, end: float) -> TimeSlice:
    """Return a slice in which nothing was sampled."""
    return TimeSlice(Unobserved(), 0.0, begin, end)


def limit_coarse_tiers(
    spans: Sequence[TimeSlice], query: Query, wanted: float, frames: Callable[[float, float], float]
) -> list[TimeSlice]:
    """Return the slices in order of time, with those of tiers coarser than `wanted` (s) cut to what they know.

    `frames` returns the seconds between two times that frames cover.
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
    for place in {0, len(seconds) - 1} if seconds else ():  # finer slices may cover part of the outer cells
        begin = (first + place) * span.step
        finer = sum(_finer(one, query, begin, begin + span.step, frames) for one in spans if one.step < span.step)
        if finer >= _AS_MUCH * seconds[place]:
            seconds[place] = 0.0
    known = [first + place for place, number in enumerate(seconds) if number]
    begin = max(span.begin, known[0] * span.step) if known else span.end
    end = min(span.end, (known[-1] + 1) * span.step) if known else span.end
    if span.begin < begin:
        yield unobserved(span.begin, begin)
    if begin < end:
        yield span._replace(begin=begin, end=end)
    if end < span.end:
        yield unobserved(end, span.end)


def _finer(
    span: TimeSlice, query: Query, begin: float, end: float, frames: Callable[[float, float], float]
) -> float:  # fmt: skip
    """Return the known seconds of a slice from `begin` to `end` (s since 1970)."""
    begin, end = max(begin, span.begin), min(end, span.end)
    if not begin < end:
        return 0.0
    return sum(span.tier.seconds(query, begin, end)) if span.tier else frames(begin, end)


def cells_of(begin: float, end: float, step: float) -> range:
    """Return the numbers (since 1970) of the cells that overlap the time from `begin` to `end`."""
    return range(floor(begin / step), ceil(end / step))
