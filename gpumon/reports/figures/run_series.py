"""The lines of a run on one device over time, as a report draws them.

`run_series` is the one place that says where such lines come from: today the traces of the ledger.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import inf, nan
from statistics import median
from typing import NamedTuple, Protocol

from gpumon.common.numbers import NAN, is_known
from gpumon.storage.history.buckets import Grid, aligned
from gpumon.storage.history.downsample import Envelope, downsample
from gpumon.storage.history.query import MOST, Query, Series, Tier
from gpumon.storage.history.recent import RecentHistory
from gpumon.storage.ledger.records import Record, RunTrace

BRIDGED = 2
"""Missing points in a row that are no gap."""


class RunSeries(NamedTuple):
    """Lines on one time axis."""

    begun: float
    """Seconds since 1970 at the first point."""
    step: float
    """Seconds between points."""
    columns: Mapping[str, Envelope]
    """By metric name; all of the same length."""

    @property
    def points(self) -> int:
        """Number of points of each line."""
        return len(next(iter(self.columns.values())).mean) if self.columns else 0


def run_series(record: Record, traces: Sequence[RunTrace], uuid: str) -> RunSeries:
    """Return the lines of a run on a device, or (`uuid` empty) of what it logged; without columns where none is kept.

    Of several ranks on one device the longest trace counts; of what was logged that of the lowest rank that logged.
    """
    order = {rank.key: i for i, rank in enumerate(record.ranks)}
    found = [trace for trace in traces if trace.uuid == uuid and trace.columns]
    if not found:
        return RunSeries(record.run.started, 1.0, {})
    if uuid:
        best = max(found, key=lambda trace: trace.points * trace.step)
    else:
        best = min(found, key=lambda trace: order.get(trace.rank, len(order)))
    every = -(-best.points // MOST)
    columns = {
        name: Envelope(*(bridged(line) for line in thinned(course, every, keeps_last=not uuid)))
        for name, course in best.columns.items()
    }
    return RunSeries(best.begun, best.step * every, columns)


def diverged_points(logged: RunSeries) -> dict[str, list[tuple[float, float]]]:
    """By metric, when what was logged was no number (s since 1970), and which: NaN or infinite.

    A ledger's trace has such a point as an infinite extreme; one that is infinite to both sides was NaN.
    """
    found: dict[str, list[tuple[float, float]]] = {}
    for name, course in logged.columns.items():
        for place, (low, high) in enumerate(zip(course.low, course.high, strict=True)):
            if low == -math.inf or high == math.inf:
                value = NAN if low == -high else low if low == -math.inf else high
                found.setdefault(name, []).append((logged.begun + (place + 0.5) * logged.step, value))
    return found


def thinned(course: Envelope, every: int, *, keeps_last: bool = False) -> Envelope:
    """Each `every` points as one, with the lowest and the highest of them: a spike stays.

    `keeps_last`: the last known value in place of the mean, for what was logged: nobody logged the mean of two epochs.
    """
    if every <= 1:
        return course
    places = range(len(course.mean))
    (found,) = downsample(places, [course], Grid(0, float(every), -(-len(places) // every)), hold=0.0)
    return Envelope(found.low, _last(course.mean, every) if keeps_last else found.mean, found.high)


def _last(line: Sequence[float], every: int) -> list[float]:
    parts = (line[place : place + every] for place in range(0, len(line), every))
    return [next((value for value in reversed(part) if math.isfinite(value)), NAN) for part in parts]


def bridged(values: Sequence[float]) -> Sequence[float]:
    """`values` with gaps of a point or two closed: ticks and points do not beat together."""
    found = list(values)
    last = -1
    for i, value in enumerate(values):
        # NaN != NaN; no call of is_known, because a call would cost more than the rest of the loop.
        if value == value:
            if 0 <= last < i - 1 <= last + BRIDGED:
                found[last + 1 : i] = [values[last]] * (i - 1 - last)
            last = i
    return found


POINTS = 6000
"""Points of a line at most: a GPU takes half a megabyte in a report then."""


class FineHistory(Protocol):
    """A history that kept something in cells."""

    def finer(self, step: float) -> Sequence[Tier]:
        """Return what there is in cells shorter than `step` seconds, the finest first."""


def refined(series: RunSeries, history: FineHistory, uuid: str, points: int = POINTS) -> RunSeries:
    """Return the lines of a run on a device with finer points, or as they are where nothing is kept that is finer.

    Finer ones stand only where the run's own trace has a value: a run may have a GPU for a part of its time.
    """
    begin, end = series.begun, series.begun + series.points * series.step
    tiers = [tier for tier in history.finer(series.step) if tier.begin < end and begin < tier.end] if uuid else []
    if not tiers or not series.points:
        return series
    grid = aligned(begin, end, points, [tier.step for tier in tiers])
    if grid.step >= series.step:
        return series
    found: list[Mapping[str, Series]] = []
    for tier in tiers:
        span = max(begin, tier.begin), min(end, tier.end)
        found.append(tier.query(Query(uuid, tuple(series.columns), *span, grid=grid)))
    if not any(is_known(value) for lines in found for one in lines.values() for value in one.mean):
        return series
    return RunSeries(grid.begin, grid.step, {name: _join_finest(series, name, grid, found) for name in series.columns})


def _join_finest(series: RunSeries, name: str, grid: Grid, found: Sequence[Mapping[str, Series]]) -> Envelope:
    """One line: of each point the finest that is known."""
    trace = series.columns[name]
    low, mean, high = [], [], []
    lines = [lines[name] for lines in found]
    for place, middle in enumerate(grid.middles()):
        # The first bucket and the last one may reach over the ends of the run.
        at = min(max(0, int((middle - series.begun) // series.step)), series.points - 1)
        value = trace.low[at], trace.mean[at], trace.high[at]
        if is_known(trace.mean[at]):
            fine = next((line for line in lines if is_known(line.mean[place])), None)
            if fine is not None:
                value = fine.low[place], fine.mean[place], fine.high[place]
        low.append(value[0])
        mean.append(value[1])
        high.append(value[2])
    return Envelope(low, mean, high)


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
        name: _join_zoomed(series, name, found, sampled if history.has(uuid, name) else inf) for name in series.columns
    }
    return RunSeries(times[0] - step / 2, step, columns)


def _of_samples(history: RecentHistory, begin: float, end: float, points: int) -> Grid | None:
    """Buckets of about one sample each; None where there are no samples."""
    times = history.sampled()
    if len(times) < 2 or not (times[0] < end and begin < times[-1]):
        return None
    spacing = median(later - earlier for earlier, later in pairwise(times))
    return aligned(begin, end, min(points, int((end - begin) / spacing) + _ENDS))


def _join_zoomed(series: RunSeries, name: str, found: Mapping[str, Series], sampled: float) -> Envelope:
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
