"""A tier of kept history that answers queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpumon.history.kept_file import KeptFile
from gpumon.history.query import ALWAYS, HOST, Query, Series, unknown
from gpumon.history.tiers import TierShape
from gpumon.history.watched import cells_of


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
        nothing = unknown(query.grid)
        return {
            name: lines[name].buckets(query.grid, query.begin, query.end) if name in lines else nothing
            for name in query.metrics
        }

    def seconds(self, query: Query, begin: float, end: float) -> Sequence[float]:
        """Return the seconds that are known of each cell from `begin` to `end` (s since 1970), whole or in part."""
        own = self._file.lines(self._shape, query.subject, query.metrics)
        lines = [*own.values(), *self._file.lines(self._shape, HOST, [ALWAYS]).values()]
        return [
            max((line.seconds(number) for line in lines), default=0.0)
            for number in cells_of(begin, end, self._shape.step)
        ]
