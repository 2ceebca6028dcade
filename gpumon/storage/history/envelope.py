"""Reduces samples, or cells computed from samples, to the lowest value, mean and highest value of each bucket."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from math import inf, nan
from typing import NamedTuple

from gpumon.storage.history.buckets import Grid
from gpumon.storage.history.query import Series


class Envelope(NamedTuple):
    """A line with the lowest value, the mean and the highest value at each point.

    For single samples, all three are equal.
    """

    low: Sequence[float]
    mean: Sequence[float]
    high: Sequence[float]


def downsample(
    times: Sequence[float], lines: Sequence[Envelope], grid: Grid, *,
    begin: float = -inf, hold: float = inf, pauses: Collection[float] = (),
) -> list[Series]:  # fmt: skip
    """Return the lowest, mean and highest value of each bucket, for lines with the same sorted `times`.

    A bucket without a sample gets the value of the sample before it. This requires that the next sample follows at most
    `hold` seconds after that sample, and that the time of the next sample is not in `pauses`. Otherwise the bucket is
    NaN. Samples before `begin` are used only to fill such empty buckets.
    """
    row = bisect_left(times, begin)
    edges = [row := bisect_left(times, edge, row) for edge in grid.edges()]
    held = held_samples(times, edges, pauses, hold)
    middles = grid.middles()
    return [Series(middles, *_aggregate(line, edges, held), grid.step) for line in lines]


def held_samples(
    times: Sequence[float], edges: Sequence[int], pauses: Collection[float], hold: float = inf
) -> dict[int, int]:
    """Return the empty buckets that get the value of an earlier sample, each with the index of that sample.

    `edges`: for each bucket, the index of its first sample; the last element is the end of the last bucket.
    """
    return {
        bucket: begin - 1
        for bucket, (begin, end) in enumerate(pairwise(edges))
        if begin == end and 0 < begin < len(times) and times[begin] - times[begin - 1] <= hold
        and times[begin] not in pauses
    }  # fmt: skip


def _aggregate(
    line: Envelope, edges: Sequence[int], held: Mapping[int, int]
) -> tuple[list[float], list[float], list[float]]:
    """Return low, mean and high of the buckets of one line."""
    lows, means, highs = line
    count = len(edges) - 1
    low, mean, high = [nan] * count, [nan] * count, [nan] * count
    for bucket, (begin, end) in enumerate(pairwise(edges)):
        if end > begin:
            low[bucket], mean[bucket], high[bucket] = _merge(lows[begin:end], means[begin:end], highs[begin:end])
    for bucket, row in held.items():
        low[bucket], mean[bucket], high[bucket] = lows[row], means[row], highs[row]
    return low, mean, high


def _merge(lows: Sequence[float], means: Sequence[float], highs: Sequence[float]) -> tuple[float, float, float]:
    """Return the lowest, mean and highest value of these points. Missing values (NaN) are ignored."""
    total, count = sum(means), len(means)
    # NaN != NaN; no call of is_known, because a call would cost more than the rest of the loop.
    if total != total:
        known = [value for value in means if value == value]
        total, count = sum(known), len(known)
    low, high = min(lows), max(highs)
    if low != low:  # min and max return NaN only if it is the first value
        low = min((value for value in lows if value == value), default=nan)
    if high != high:
        high = max((value for value in highs if value == value), default=nan)
    mean = total / count if count else nan
    return low, min(max(mean, low), high) if mean == mean else nan, high  # rounding may move the mean out of the range
