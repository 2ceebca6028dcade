"""A stretch of a run with all the points that history has of it: samples of the last frames, and cells behind them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from math import inf, nan
from statistics import median

from gpumon.common.numbers import is_known
from gpumon.figures.run_series import RunSeries
from gpumon.storage.history.downsample import Envelope
from gpumon.storage.history.grid import Grid, aligned
from gpumon.storage.history.query import MOST, Query, Series
from gpumon.storage.history.recent import RecentHistory

_ENDS = 2
"""Buckets more than a window has samples, because it begins and ends inside of one."""


def zoomed(
    series: RunSeries, history: RecentHistory, uuid: str, begin: float, end: float, points: int = MOST
) -> RunSeries | None:
    """Return the lines of a run on a device from `begin` to `end` (s since 1970); None where history has none of it.

    Like `refined`, they stand only where the run's own trace has a value. The trace itself stands where history has
    nothing; a gap between two values of history stays one.
    """
    begin, end = max(begin, series.begun), min(end, series.begun + series.points * series.step)
    if not begin < end:
        return None
    names = tuple(series.columns)
    query = Query(uuid, names, begin, end, points)
    found = history.query(query)
    step = found[names[0]].step
    grid = None if step else _of_samples(history, begin, end, points)
    if grid is not None:
        found, step = history.query(query._replace(grid=grid)), grid.step
    times = found[names[0]].times
    if not step or not len(times):
        return None
    sampled = history.first_frame if uuid in history.subjects() else inf
    if not (sampled <= begin or any(is_known(value) for one in found.values() for value in one.mean)):
        return None
    columns = {
        name: _joined(series, name, found, sampled if history.has(uuid, name) else inf) for name in series.columns
    }
    return RunSeries(times[0] - step / 2, step, columns)


def _of_samples(history: RecentHistory, begin: float, end: float, points: int) -> Grid | None:
    """Buckets of about one sample each; None where there are no samples."""
    times = history.sampled()
    if len(times) < 2 or not (times[0] < end and begin < times[-1]):
        return None
    spacing = median(later - earlier for earlier, later in pairwise(times))
    return aligned(begin, end, min(points, int((end - begin) / spacing) + _ENDS))


def _joined(series: RunSeries, name: str, found: Mapping[str, Series], sampled: float) -> Envelope:
    """One line: history's where it has any, from `sampled` (s since 1970) on nothing else."""
    trace, fine = series.columns[name], found[name]
    # A bucket may reach over the ends of the run, and a point of the trace over several buckets.
    places = [min(max(0, int((time - series.begun) // series.step)), series.points - 1) for time in fine.times]
    heard = [place for place, value in enumerate(fine.mean) if is_known(value)]
    told = {places[place] for place in heard}
    low, mean, high = [], [], []
    for place, at in enumerate(places):
        value = nan, nan, nan
        if is_known(trace.mean[at]):
            if is_known(fine.mean[place]):
                value = fine.low[place], fine.mean[place], fine.high[place]
            elif fine.times[place] < sampled and not (at in told and heard[0] < place < heard[-1]):
                value = trace.low[at], trace.mean[at], trace.high[at]
        low.append(value[0])
        mean.append(value[1])
        high.append(value[2])
    return Envelope(low, mean, high)
