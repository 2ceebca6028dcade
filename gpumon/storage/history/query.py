"""History as a question: metrics of a subject from one time to another, as lines of low, mean and high.

Every store of history answers a `Query`: `recent` from the last hour of frames, a tier from coarser cells of an older
past, `long` from all of them. `open` makes what a view asks.
No other code sees how the values are kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, nan
from typing import NamedTuple, Protocol

from gpumon.storage.history.grid import Grid

HOST = ""
"""The subject that is the machine; every other subject is the UUID of a GPU."""
ALWAYS = "host.load"
"""A metric that every sample of a machine has."""
MOST = 2000
"""Points of a line unless a query names another number: more than a screen has columns."""


class CoarseCells(NamedTuple):
    """A stretch of a line, from `begin` to `end` (s since 1970), of which less is known than its buckets would show."""

    begin: float
    end: float
    step: float
    """Seconds in each cell. Each of the buckets in it has the cell's values."""


class Series(NamedTuple):
    """One metric over time: columns of one length, in base units. NaN is a gap, and no line is drawn over it."""

    times: Sequence[float]
    """Seconds since 1970: the middle of each bucket, or the samples' own times where each is by itself."""
    low: Sequence[float]
    mean: Sequence[float]
    high: Sequence[float]
    step: float = 0.0
    """Seconds in each bucket; 0 where each sample is by itself."""
    seen: Sequence[float] = ()
    """Seconds of each bucket that are known; empty where each sample is by itself, or where it was not requested."""
    coarse: Sequence[CoarseCells] = ()
    """The stretches kept in cells longer than the buckets, in the order of time."""


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
    seen: bool = False
    """Whether to say how much of each bucket is known."""


class History(Protocol):
    """A history that answers queries."""

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


class Tier(History, Protocol):
    """History in cells of one length, such as 10 s, aligned to absolute time. Its queries have a `grid`."""

    @property
    def step(self) -> float:
        """Seconds in each cell."""

    def seconds(self, query: Query, begin: float, end: float) -> Sequence[float]:
        """Return the seconds that are known of each cell from `begin` to `end` (s since 1970), whole or in part.

        They are those in which the machine was sampled at all, whatever the query's metrics have there.
        """


def unknown(grid: Grid) -> Series:
    """Return a line of gaps."""
    gap = [nan] * grid.buckets
    return Series(grid.middles(), gap, gap, gap, grid.step, [0.0] * grid.buckets)
