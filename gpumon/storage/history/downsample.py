"""The one downsampler: samples, or what was made of samples before, into buckets of low, mean and high."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from itertools import pairwise
from math import inf, nan
from typing import NamedTuple

from gpumon.storage.history.buckets import Grid
from gpumon.storage.history.query import Series


class Envelope(NamedTuple):
    """A line of summed up values: in each point the smallest, the mean and the largest; a sample is all three."""

    low: Sequence[float]
    mean: Sequence[float]
    high: Sequence[float]


def downsample(
    times: Sequence[float], lines: Sequence[Envelope], grid: Grid, *,
    begin: float = -inf, hold: float = inf, pauses: Collection[float] = (),
) -> list[Series]:  # fmt: skip
    """Return lowest value, mean and highest value of each bucket, for lines on the same sorted `times`.

    A bucket without a value is NaN. Only one that is shorter than the time between two samples has the value of the
    sample before it, at most `hold` seconds; not so before one of `pauses`. What is older than `begin` is in no bucket,
    but may be held.
    """
    place = bisect_left(times, begin)
    edges = [place := bisect_left(times, edge, place) for edge in grid.edges()]
    held = _held(times, edges, hold, pauses)
    middles = grid.middles()
    return [Series(middles, *_folded(line, edges, held), grid.step) for line in lines]


def _held(
    times: Sequence[float], edges: Sequence[int], hold: float, pauses: Collection[float]
) -> list[tuple[int, int]]:
    """Places of buckets between two samples, and the place of the sample that each of them holds."""
    newest = len(times) - 1
    return [
        (bucket, begin - 1)
        for bucket, begin in enumerate(edges[:-1])
        if begin == edges[bucket + 1] and 0 < begin <= newest and times[begin] - times[begin - 1] <= hold
        and times[begin] not in pauses
    ]  # fmt: skip


def _folded(
    line: Envelope, edges: Sequence[int], held: Sequence[tuple[int, int]]
) -> tuple[list[float], list[float], list[float]]:
    """Low, mean and high of one line."""
    lows, means, highs = line
    if lows is means is highs:
        return _folded_samples(means, edges, held)
    count = len(edges) - 1
    low, mean, high = [nan] * count, [nan] * count, [nan] * count
    for bucket, (begin, end) in enumerate(pairwise(edges)):
        if end - begin == 1:
            low[bucket], mean[bucket], high[bucket] = lows[begin], means[begin], highs[begin]
        elif end > begin:
            found = _fold(lows[begin:end], means[begin:end], highs[begin:end])
            low[bucket], mean[bucket], high[bucket] = found
    for bucket, place in held:
        low[bucket], mean[bucket], high[bucket] = lows[place], means[place], highs[place]
    return low, mean, high


def _folded_samples(
    values: Sequence[float], edges: Sequence[int], held: Sequence[tuple[int, int]]
) -> tuple[list[float], list[float], list[float]]:
    """The same for a line of samples, in half the time: a terminal draws some of them each second."""
    low = [nan] * (len(edges) - 1)
    mean, high = low[:], low[:]
    for bucket, (begin, end) in enumerate(pairwise(edges)):
        if end - begin == 1:
            low[bucket] = mean[bucket] = high[bucket] = values[begin]
        elif end > begin:
            part = values[begin:end]
            total = sum(part)
            if total == total:
                low[bucket], high[bucket] = lowest, highest = min(part), max(part)
                mean[bucket] = min(max(total / (end - begin), lowest), highest)
            else:
                low[bucket], mean[bucket], high[bucket] = _fold(part, part, part)
    for bucket, place in held:
        low[bucket] = mean[bucket] = high[bucket] = values[place]
    return low, mean, high


def _fold(lows: Sequence[float], means: Sequence[float], highs: Sequence[float]) -> tuple[float, float, float]:
    """Low, mean and high of some values, without those that are missing."""
    total, many = sum(means), len(means)
    # NaN != NaN; no call of is_known, because a call would cost more than the rest of the loop.
    if total != total:
        known = [value for value in means if value == value]
        total, many = sum(known), len(known)
    low, high = min(lows), max(highs)
    if low != low:  # they mind a NaN where it comes first, and only there
        low = min((value for value in lows if value == value), default=nan)
    if high != high:
        high = max((value for value in highs if value == value), default=nan)
    mean = total / many if many else nan
    return low, min(max(mean, low), high) if mean == mean else nan, high  # a sum of floats may be rounded up
