"""Interface of the history: queries, their results, and the protocols `History` and `Tier`.

`RecentHistory` answers a query from the frames of the last hour, and a `Tier` answers it from cells with older data.
`TieredHistory` combines both. `open_history` creates the history for a view. Code that uses this interface does not
depend on how values are stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, nan
from typing import NamedTuple, Protocol

from gpumon.storage.history.buckets import Grid

HOST = ""
"""Subject that stands for the machine. Every other subject is the UUID of a GPU."""
ALWAYS = "host.load"
"""A metric that is in every sample of the machine. It therefore shows at which times samples were taken."""
MAX_POINTS = 2000
"""Default number of points. It exceeds the number of columns of a screen."""


class CoarseCells(NamedTuple):
    """A period for which only cells are stored that are longer than the buckets of the series.

    `begin` and `end` are in seconds since 1970.
    """

    begin: float
    end: float
    step: float
    """Length of a cell in seconds. All buckets within a cell have the values of the cell."""


class Series(NamedTuple):
    """A metric over time, as columns of equal length. Values are in base units; a missing value is NaN."""

    times: Sequence[float]
    """Times in seconds since 1970: the middle of each bucket, or the time of each sample."""
    low: Sequence[float]
    mean: Sequence[float]
    high: Sequence[float]
    step: float = 0.0
    """Seconds in each bucket; 0 if each point is a sample."""
    seen: Sequence[float] = ()
    """For each bucket, the number of seconds with a value. Empty if each point is a sample, or if not requested.
    """
    coarse: Sequence[CoarseCells] = ()
    """Periods that are stored in cells longer than the buckets, in chronological order."""


class Query(NamedTuple):
    """A request for metrics of one subject from `begin` to `end` (s since 1970, both included)."""

    subject: str
    """The UUID of a GPU, or `HOST`."""
    metrics: Sequence[str]
    begin: float
    end: float
    points: int = MAX_POINTS
    """If there are at most this many samples, each sample is a point. Otherwise the result has at most this many
    buckets."""
    grid: Grid | None = None
    """The buckets of the result, for a chart that has its own columns. If `grid` is set, `points` is ignored."""
    hold: float = inf
    """A bucket without samples gets the value of the previous sample if the next sample follows at most this many
    seconds later.
    """
    seen: bool = False
    """Whether to return the number of seconds with a value for each bucket."""


class History(Protocol):
    """Protocol of objects that answer queries about metrics over time."""

    @property
    def begin(self) -> float:
        """Start of the history (s since 1970); NaN if it is empty."""

    @property
    def end(self) -> float:
        """End of the history (s since 1970); NaN if it is empty."""

    def has(self, subject: str, metric: str) -> bool:
        """Return whether there is any value of this metric."""

    def query(self, query: Query) -> Mapping[str, Series]:
        """Return a series for each metric of the query. All series have the same times. Missing values are NaN."""


class Tier(History, Protocol):
    """History in cells of one length, such as 10 s. Cells start at multiples of this length since 1970.

    Queries must have a `grid`.
    """

    @property
    def step(self) -> float:
        """Length of a cell in seconds."""

    def seconds(self, query: Query, begin: float, end: float) -> Sequence[float]:
        """Return, for each cell between two times (s since 1970), the number of seconds that have data.

        Cells that lie only partly between the two times are included. A second has data if the machine was sampled in
        it, even if the metrics of the query have no value in this second.
        """


def unknown(grid: Grid) -> Series:
    """Return a series on this grid in which every value is NaN."""
    gap = [nan] * grid.buckets
    return Series(grid.middles(), gap, gap, gap, grid.step, [0.0] * grid.buckets)
