"""Cache of chart columns: a complete column is queried only once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import floor, nan
from typing import NamedTuple

from gpumon.common.numbers import is_known
from gpumon.storage.history.buckets import Grid
from gpumon.storage.history.query import Query
from gpumon.storage.history.tiered_history import TieredHistory
from gpumon_tui.render.line_plot import PlotCurve
from gpumon_tui.render.time_columns import HOLD, halves

_MARGIN = 1e-3
"""Share of a bucket by which a sample may precede it, as in grids."""


class _CachedBuckets(NamedTuple):
    """Cached buckets of some metrics of a subject."""

    grid: Grid
    complete_until: int
    """Index of the first bucket that may still change."""
    begin: float
    """Start of the history at the time of the query."""
    curves: Mapping[str, PlotCurve]
    arguments: tuple[Grid, float, float, float]
    """Arguments of the last query: columns, end time, and the history's end and start.

    Equal arguments return the cached result.
    """


class Columns:
    """Cached buckets by subject, two per column, up to the last column that has started."""

    def __init__(self) -> None:
        self._buckets: dict[tuple[str, tuple[str, ...]], _CachedBuckets] = {}

    def clear(self) -> None:
        """Clear the cache."""
        self._buckets.clear()

    def get(
        self, history: TieredHistory, subject: str, metrics: Sequence[str], grid: Grid, *, until: float, interval: float
    ) -> Mapping[str, PlotCurve]:
        """Return the metrics of a subject on `grid`, without buckets that start at `until` (s since 1970) or later."""
        cache_key, fine = (subject, tuple(metrics)), halves(grid)
        cached = self._buckets.get(cache_key)
        first, newest = fine.first, (fine, until, history.end, history.begin)
        if cached and str(cached.arguments) == str(newest):
            return cached.curves
        if cached and cached.grid.step == fine.step and cached.grid.first <= first and not history.begin < cached.begin:
            first = min(max(first, cached.complete_until), first + fine.buckets)
        else:
            cached = None
        end_of_started = max(first, min(fine.first + fine.buckets, floor(until / fine.step - _MARGIN) + 1))
        queried = _query(history, subject, metrics, Grid(first, fine.step, end_of_started - first), interval)
        empty = [nan] * (fine.first + fine.buckets - end_of_started)
        # Drop columns the history no longer contains, because the cursor could not read them.
        dropped = min(first - fine.first, max(0, fine.at(history.begin))) if is_known(history.begin) else 0
        dropped_values = [nan] * dropped
        curves = {}
        for name in metrics:
            cached_curve = cached.curves[name] if cached else None
            overlap = slice(fine.first + dropped - cached.grid.first, first - cached.grid.first) if cached else slice(0)
            lines = [
                (*dropped_values, *(cached_curve[line][overlap] if cached_curve else ()), *queried[name][line], *empty)
                for line in range(3)
            ]
            curves[name] = PlotCurve(*lines)
        # A bucket finer than the sampling interval is complete only when the next sample has arrived.
        complete_until = floor((min(until, history.end) - HOLD * interval) / fine.step)
        for cached_key in [
            cached_key for cached_key in self._buckets if cached_key[0] == subject and cached_key != cache_key
        ]:
            del self._buckets[cached_key]
        self._buckets[cache_key] = _CachedBuckets(
            fine, min(complete_until, end_of_started), history.begin, curves, newest
        )
        return curves


def _query(
    history: TieredHistory, subject: str, metrics: Sequence[str], grid: Grid, interval: float, margin: float = 0.0
) -> Mapping[str, PlotCurve]:
    if grid.buckets <= 0:
        return {name: PlotCurve((), (), ()) for name in metrics}
    begin, end = grid.begin - max(margin, _MARGIN * grid.step), grid.end + margin
    series_by_name = history.query(Query(subject, tuple(metrics), begin, end, grid=grid, hold=HOLD * interval))
    return {name: PlotCurve(series.low, series.mean, series.high) for name, series in series_by_name.items()}


def at_column(
    history: TieredHistory, subject: str, metrics: Sequence[str], column: Grid, interval: float
) -> Mapping[str, tuple[float, float, float]]:
    """Return minimum, mean and maximum of a column as stored in the history.

    If columns are shorter than the sampling interval, values are interpolated, like the line in the chart.
    """
    curves = _query(history, subject, metrics, column, interval, HOLD * interval if column.step < interval else 0.0)
    return {name: (curve.low[0], curve.mean[0], curve.high[0]) for name, curve in curves.items()}
