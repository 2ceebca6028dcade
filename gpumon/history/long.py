"""The last frames, and behind them the tiers of what was kept: one history for whoever asks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import nan
from typing import NamedTuple

from gpumon.history.grid import Grid, aligned
from gpumon.history.query import History, Query, Series, Tier
from gpumon.history.recent import KEEP, RecentHistory
from gpumon.missing import is_known


class TimeSlice(NamedTuple):
    """The stretch of a window that one history answers, from `begin` to `end` (s since 1970)."""

    history: History
    step: float
    """Seconds in each of its cells; 0 of frames."""
    begin: float
    end: float


class LongHistory(RecentHistory):
    """The last frames, with older `tiers` behind them, from the finest to the coarsest.

    The frames answer for the time that they know. What lies before comes from the coarsest tier that is fine enough
    for the buckets that are asked for, and where that has nothing, from the next one that has.
    """

    def __init__(self, tiers: Iterable[Tier] = (), keep: int = KEEP) -> None:
        super().__init__(keep)
        self._tiers = tuple(tiers)

    @property
    def begin(self) -> float:
        """The oldest time there is (s since 1970), or NaN."""
        begins = [super().begin, *(tier.begin for tier in self._tiers)]
        return min((begin for begin in begins if is_known(begin)), default=nan)

    def has(self, subject: str, metric: str) -> bool:
        """Whether any value is known."""
        return super().has(subject, metric) or any(tier.has(subject, metric) for tier in self._tiers)

    def only(self, subject: str, metrics: Collection[str] | None = None) -> LongHistory:
        """Copy one subject, or some metrics of it, for somebody who reads it while frames come; tiers are shared."""
        found = LongHistory(self._tiers, self.keep)
        found.take(super().only(subject, metrics))
        return found

    def query(self, query: Query) -> Mapping[str, Series]:
        """Return a series for each metric of the query, all on the same times; one that is unknown is a gap."""
        spans = self._spans(query)
        if all(span.step == 0.0 for span in spans):
            return super().query(query)
        grid = query.grid or aligned(
            spans[0].begin, spans[-1].end, query.points, {span.step for span in spans if span.step}
        )
        parts = []
        for span in spans:
            part = query._replace(begin=span.begin, end=span.end, grid=grid)
            parts.append((span, super().query(part) if span.history is self else span.history.query(part)))
        return {name: _joined(grid, [(span, found[name]) for span, found in parts]) for name in query.metrics}

    def peak(self, subject: str, metric: str, begin: float, end: float) -> float:
        """The largest value that is known from `begin` to `end` (s since 1970), or NaN."""
        if not begin < self.first_frame:
            return super().peak(subject, metric, begin, end)
        highs = self.query(Query(subject, (metric,), begin, end))[metric].high
        return max((high for high in highs if is_known(high)), default=nan)

    def _spans(self, query: Query) -> list[TimeSlice]:
        """The tier that answers each stretch of the window, in the order of time."""
        frames = self.first_frame
        if query.begin >= frames or not self._tiers:
            return []
        wanted = query.grid.step if query.grid else (query.end - query.begin) / max(1, query.points)
        known = [TimeSlice(tier, tier.step, tier.begin, tier.end) for tier in self._tiers if is_known(tier.begin)]
        fine = [span for span in known if span.step <= wanted]
        # Fine enough, the coarsest first: it has the least to read; then those too coarse, the finest first.
        order = [*reversed(fine), *known[len(fine) :]]
        found = [TimeSlice(self, 0.0, frames, query.end)] if is_known(frames) and frames <= query.end else []
        free = [(query.begin, min(query.end, frames) if is_known(frames) else query.end)]
        for span in order:
            left = []
            for begin, end in free:
                first, last = max(begin, span.begin), min(end, span.end)
                if first < last:
                    found.append(span._replace(begin=first, end=last))
                    left += [(begin, first), (last, end)]
                else:
                    left.append((begin, end))
            free = [(begin, end) for begin, end in left if begin < end]
        return sorted(found, key=lambda span: span.begin)


def _joined(grid: Grid, parts: Sequence[tuple[TimeSlice, Series]]) -> Series:
    """One series from those of stretches that follow each other, all on `grid`; two may share a bucket."""
    low, mean, high = [nan] * grid.buckets, [nan] * grid.buckets, [nan] * grid.buckets
    shares = [0.0] * grid.buckets
    for span, series in parts:
        first, last = max(0, grid.at(span.begin)), min(grid.buckets - 1, grid.at(span.end))
        for place in range(first, last + 1):
            value = series.mean[place]
            if not is_known(value):
                continue
            begin = grid.begin + place * grid.step
            share = max(min(begin + grid.step, span.end) - max(begin, span.begin), 1e-9)
            if shares[place]:
                low[place], high[place] = min(low[place], series.low[place]), max(high[place], series.high[place])
                mean[place] += (value - mean[place]) * share / (shares[place] + share)
            else:
                low[place], mean[place], high[place] = series.low[place], value, series.high[place]
            shares[place] += share
    return Series(grid.middles(), low, mean, high, grid.step)
