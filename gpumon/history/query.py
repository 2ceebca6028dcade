"""History as a question: metrics of a subject from one time to another, as lines of low, mean and high.

Whoever keeps history answers a `Query`: `recent` from the last hour of frames; coarser tiers come as new files.
Nobody else sees how the values are kept.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from math import floor, inf, nan
from typing import NamedTuple, Protocol

HOST = ""
"""The subject that is the machine; every other subject is the UUID of a GPU."""
MOST = 2000
"""Points of a line unless a query names another number: more than a screen has columns."""
LENGTHS = tuple(
    float(number * unit)
    for unit, numbers in (
        (0.1, (1, 2, 3, 5)), (1, (1, 1.5, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 30, 40)),
        (60, (1, 1.5, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 30, 40)), (3600, (1, 1.5, 2, 3, 4, 6, 8, 12, 24)),
    )
    for number in numbers
)  # fmt: skip
"""Seconds that a bucket may last. A window that grows keeps its buckets until it needs the next length."""
_LONGEST = tuple(LENGTHS[-1] * 2.0**n for n in range(1, 32))
"""The same for a line of one or two points: no window of time is longer."""
_EARLY = 1e-6
"""The share of a bucket by which a sample may come before it: times are rounded."""


class Grid(NamedTuple):
    """Buckets of equal length. They begin at multiples of it since 1970, so that they stay while time passes.

    `phase` (s since 1970) is where the ledger's buckets of a run are counted from instead.
    """

    first: int
    """Number of the first bucket."""
    step: float
    """Seconds in each."""
    buckets: int
    phase: float = 0.0

    @property
    def begin(self) -> float:
        """Seconds since 1970."""
        return self.phase + self.first * self.step

    @property
    def end(self) -> float:
        """Seconds since 1970 behind the last bucket."""
        return self.phase + (self.first + self.buckets) * self.step

    def at(self, time: float) -> int:
        """The place of the bucket that holds `time`; it may lie outside."""
        return floor((time - self.phase) / self.step + _EARLY) - self.first

    def middles(self) -> list[float]:
        """The time at the middle of each bucket, in seconds since 1970."""
        return [self.phase + (self.first + place + 0.5) * self.step for place in range(self.buckets)]

    def edges(self) -> list[float]:
        """The time from which a sample belongs to each bucket, and the one from which it is behind the last."""
        first = self.first - _EARLY
        return [self.phase + (first + place) * self.step for place in range(self.buckets + 1)]


class Series(NamedTuple):
    """One metric over time: columns of one length, in base units. NaN is a gap, and no line is drawn over it."""

    times: Sequence[float]
    """Seconds since 1970: the middle of each bucket, or the samples' own times where each is by itself."""
    low: Sequence[float]
    mean: Sequence[float]
    high: Sequence[float]
    step: float = 0.0
    """Seconds in each bucket; 0 where each sample is by itself."""


class Query(NamedTuple):
    """Metrics of one subject from `begin` to `end`, both of them included, in seconds since 1970."""

    subject: str
    """The UUID of a GPU, or `HOST`."""
    metrics: Sequence[str]
    begin: float
    end: float
    points: int = MOST
    """Where there are no more samples than this, each stands by itself; else at most so many buckets are answered."""
    grid: Grid | None = None
    """The buckets to answer, for a picture with columns of its own; `points` has no meaning then."""
    hold: float = inf
    """Seconds after a sample in which it also stands for buckets without one. It never does beyond the next one."""


class History(Protocol):
    """Whoever answers queries."""

    @property
    def begin(self) -> float:
        """The oldest time there is (s since 1970), or NaN."""

    @property
    def end(self) -> float:
        """The newest time there is (s since 1970), or NaN."""

    def has(self, subject: str, metric: str) -> bool:
        """Return whether any value is known."""

    def query(self, query: Query) -> Mapping[str, Series]:
        """Return a series for each metric of the query, all on the same times; one that is unknown is a gap."""


def aligned(begin: float, end: float, points: int) -> Grid:
    """Return the shortest buckets, at most `points` of them, that hold all times from `begin` to `end`."""
    grid = Grid(0, LENGTHS[0], 0)
    for length in (*LENGTHS, *_LONGEST):
        if length * points >= end - begin:
            first, last = floor(begin / length + _EARLY), floor(end / length + _EARLY)
            grid = Grid(first, length, last - first + 1)
            if grid.buckets <= points:
                break
    return grid


class Line(NamedTuple):
    """Values over time that may have been summed up before; a line of samples has one column three times."""

    low: Sequence[float]
    mean: Sequence[float]
    high: Sequence[float]


def downsample(
    times: Sequence[float], lines: Sequence[Line], grid: Grid, *,
    begin: float = -inf, hold: float = inf, pauses: Collection[float] = (),
) -> list[Series]:  # fmt: skip
    """Return lowest value, mean and highest value of each bucket, for lines on the same sorted `times`.

    A bucket without a value is NaN. Only one that is shorter than the time between two samples has the value of the
    sample before it, at most `hold` seconds; not so before one of `pauses`. What is older than `begin` is in no bucket,
    but may be held.
    """
    oldest = bisect_left(times, begin)
    edges: list[int] = []
    place = 0
    for edge in grid.edges():
        place = bisect_left(times, edge, place)
        edges.append(max(place, oldest))
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
        for bucket, (begin, end) in enumerate(pairwise(edges))
        if begin == end and 0 < begin <= newest and times[begin] - times[begin - 1] <= hold
        and times[begin] not in pauses
    ]  # fmt: skip


def _folded(
    line: Line, edges: Sequence[int], held: Sequence[tuple[int, int]]
) -> tuple[list[float], list[float], list[float]]:
    """Low, mean and high of one line."""
    lows, means, highs = line
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


def _fold(lows: Sequence[float], means: Sequence[float], highs: Sequence[float]) -> tuple[float, float, float]:
    """Low, mean and high of some values, without those that are missing."""
    total, many = sum(means), len(means)
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
