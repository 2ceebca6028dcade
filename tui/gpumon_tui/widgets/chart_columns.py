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

_EARLY = 1e-3
"""Share of a bucket by which a sample may precede it, as in grids."""


class _KeptBuckets(NamedTuple):
    """Cached buckets of some metrics of a subject."""

    grid: Grid
    done: int
    """Index of the first bucket that may still change."""
    begin: float
    """Start of the history at the time of the query."""
    curves: Mapping[str, PlotCurve]
    newest: tuple[Grid, float, float, float]
    """Arguments of the last query: columns, end time, and the history's end and start.

    Equal arguments return the cached result.
    """


class Columns:
    """Cached buckets by subject, two per column, up to the last column that has started."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, tuple[str, ...]], _KeptBuckets] = {}

    def forget(self) -> None:
        """Clear the cache."""
        self._kept.clear()

    def get(
        self, history: TieredHistory, subject: str, metrics: Sequence[str], grid: Grid, *, until: float, interval: float
    ) -> Mapping[str, PlotCurve]:
        """Return the metrics of a subject on `grid`, without buckets that start at `until` (s since 1970) or later."""
        place, fine = (subject, tuple(metrics)), halves(grid)
        kept = self._kept.get(place)
        first, newest = fine.first, (fine, until, history.end, history.begin)
        if kept and str(kept.newest) == str(newest):
            return kept.curves
        if kept and kept.grid.step == fine.step and kept.grid.first <= first and not history.begin < kept.begin:
            first = min(max(first, kept.done), first + fine.buckets)
        else:
            kept = None
        begun = max(first, min(fine.first + fine.buckets, floor(until / fine.step - _EARLY) + 1))
        new = _asked(history, subject, metrics, Grid(first, fine.step, begun - first), interval)
        empty = [nan] * (fine.first + fine.buckets - begun)
        # Drop columns the history no longer contains, because the cursor could not read them.
        forgotten = min(first - fine.first, max(0, fine.at(history.begin))) if is_known(history.begin) else 0
        blank = [nan] * forgotten
        curves = {}
        for name in metrics:
            old = kept.curves[name] if kept else None
            parts = slice(fine.first + forgotten - kept.grid.first, first - kept.grid.first) if kept else slice(0)
            lines = [(*blank, *(old[line][parts] if old else ()), *new[name][line], *empty) for line in range(3)]
            curves[name] = PlotCurve(*lines)
        # A bucket finer than the sampling interval is complete only when the next sample has arrived.
        done = floor((min(until, history.end) - HOLD * interval) / fine.step)
        for other in [other for other in self._kept if other[0] == subject and other != place]:
            del self._kept[other]
        self._kept[place] = _KeptBuckets(fine, min(done, begun), history.begin, curves, newest)
        return curves


def _asked(
    history: TieredHistory, subject: str, metrics: Sequence[str], grid: Grid, interval: float, around: float = 0.0
) -> Mapping[str, PlotCurve]:
    if grid.buckets <= 0:
        return {name: PlotCurve((), (), ()) for name in metrics}
    begin, end = grid.begin - max(around, _EARLY * grid.step), grid.end + around
    found = history.query(Query(subject, tuple(metrics), begin, end, grid=grid, hold=HOLD * interval))
    return {name: PlotCurve(series.low, series.mean, series.high) for name, series in found.items()}


def at_column(
    history: TieredHistory, subject: str, metrics: Sequence[str], column: Grid, interval: float
) -> Mapping[str, tuple[float, float, float]]:
    """Return minimum, mean and maximum of a column as stored in the history.

    If columns are shorter than the sampling interval, values are interpolated, like the line in the chart.
    """
    found = _asked(history, subject, metrics, column, interval, HOLD * interval if column.step < interval else 0.0)
    return {name: (curve.low[0], curve.mean[0], curve.high[0]) for name, curve in found.items()}
