"""A tier of kept history that answers queries."""

from __future__ import annotations

from collections.abc import Mapping
from math import nan

from gpumon.history.kept_file import KeptFile
from gpumon.history.query import Query, Series
from gpumon.history.tiers import TierShape


class KeptTier:
    """The cells of one length in a file."""

    def __init__(self, file: KeptFile, shape: TierShape) -> None:
        self._file = file
        self._shape = shape

    @property
    def step(self) -> float:
        """Seconds in each cell."""
        return float(self._shape.step)

    @property
    def begin(self) -> float:
        """The oldest time there is (s since 1970), or NaN."""
        return self._file.reach(self._shape).begin

    @property
    def end(self) -> float:
        """The newest time there is (s since 1970), or NaN."""
        return self._file.reach(self._shape).end

    def has(self, subject: str, metric: str) -> bool:
        """Whether the newest cells have a value."""
        return metric in self._file.metrics(self._shape, subject)

    def query(self, query: Query) -> Mapping[str, Series]:
        """Return a series for each metric of the query, on its grid; one that is unknown is a gap."""
        assert query.grid is not None, "tiers are asked for buckets"
        lines = self._file.lines(self._shape, query.subject, query.metrics)
        gap = [nan] * query.grid.buckets
        nothing = Series(query.grid.middles(), gap, gap, gap, query.grid.step, [0.0] * query.grid.buckets)
        return {
            name: lines[name].buckets(query.grid, query.begin, query.end) if name in lines else nothing
            for name in query.metrics
        }
