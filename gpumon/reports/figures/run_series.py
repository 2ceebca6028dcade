"""Metrics of a run on one device over time, for reports. They are traces from the ledger, refined by the history."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf, nan
from statistics import median
from typing import Protocol, TypeVar

from gpumon.common.numbers import NAN, is_known
from gpumon.storage.history.buckets import Grid, aligned
from gpumon.storage.history.envelope import Envelope, downsample
from gpumon.storage.history.query import MAX_POINTS, Query, Series, Tier
from gpumon.storage.history.recent import RecentHistory
from gpumon.storage.ledger.records import Record, RunTrace

BRIDGED = 2
"""Up to this many consecutive missing points do not count as a gap."""
_Range = TypeVar("_Range", tuple[int, int], tuple[float, float])
GAPS = 50
"""Maximum number of ranges between gaps that are drawn. If there are more, only the longest ones are drawn."""


@dataclass(frozen=True, slots=True)
class RunSeries:
    """Several metrics over time, at the same equally spaced points."""

    begun: float
    """Start time of the first point, in seconds since 1970."""
    step: float
    """Seconds between two points."""
    columns: Mapping[str, Envelope]
    """The values of each metric, by metric name. All metrics have the same number of points."""

    @property
    def points(self) -> int:
        """Number of points of each metric."""
        return len(next(iter(self.columns.values())).mean) if self.columns else 0


def run_series(record: Record, traces: Sequence[RunTrace], uuid: str) -> RunSeries:
    """Return the metrics of a run on the device `uuid`, or its logged metrics if `uuid` is empty.

    If several ranks share the device, the longest trace is used. For logged metrics, the trace of the lowest rank that
    logged any metric is used. If there is no trace, the result has no columns.
    """
    order = {rank.key: i for i, rank in enumerate(record.ranks)}
    matching = [trace for trace in traces if trace.uuid == uuid and trace.columns]
    if not matching:
        return RunSeries(record.run.started, 1.0, {})
    if uuid:
        best = max(matching, key=lambda trace: trace.points * trace.step)
    else:
        best = min(matching, key=lambda trace: order.get(trace.rank, len(order)))
    every = -(-best.points // MAX_POINTS)
    columns = {
        name: Envelope(*(bridge_gaps(line) for line in thin(envelope, every, keeps_last=not uuid)))
        for name, envelope in best.columns.items()
    }
    return RunSeries(best.begun, best.step * every, columns)


def diverged_points(logged: RunSeries) -> dict[str, list[tuple[float, float]]]:
    """Return the NaN and infinite values of each logged metric, with their times (s since 1970).

    In a trace, the low or high of such a point is infinite. For NaN, both are infinite.
    """
    result: dict[str, list[tuple[float, float]]] = {}
    for name, envelope in logged.columns.items():
        for index, (low, high) in enumerate(zip(envelope.low, envelope.high, strict=True)):
            if low == -math.inf or high == math.inf:
                value = NAN if low == -high else low if low == -math.inf else high
                result.setdefault(name, []).append((logged.begun + (index + 0.5) * logged.step, value))
    return result


def thin(envelope: Envelope, every: int, *, keeps_last: bool = False) -> Envelope:
    """Combine every `every` points into one. Lows and highs are kept, so that spikes stay visible.

    `keeps_last`: use the last value that is not NaN instead of the mean. Logged metrics need this, because the mean of
    two epochs was never logged.
    """
    if every <= 1:
        return envelope
    indices = range(len(envelope.mean))
    (thinned,) = downsample(indices, [envelope], Grid(0, float(every), -(-len(indices) // every)), hold=0.0)
    return Envelope(thinned.low, _last(envelope.mean, every) if keeps_last else thinned.mean, thinned.high)


def _last(line: Sequence[float], every: int) -> list[float]:
    parts = (line[index : index + every] for index in range(0, len(line), every))
    return [next((value for value in reversed(part) if math.isfinite(value)), NAN) for part in parts]


def bridge_gaps(values: Sequence[float]) -> Sequence[float]:
    """Fill gaps of at most `BRIDGED` points with the value before the gap.

    Such short gaps occur because ticks and points are not aligned in time.
    """
    filled = list(values)
    last = -1
    for i, value in enumerate(values):
        # NaN != NaN; no call of is_known, because a call would cost more than the rest of the loop.
        if value == value:
            if 0 <= last < i - 1 <= last + BRIDGED:
                filled[last + 1 : i] = [values[last]] * (i - 1 - last)
            last = i
    return filled


POINTS = 6000
"""Maximum number of points of a line. With this number, a GPU takes about half a megabyte of a report."""


class FineHistory(Protocol):
    """A history from which reports take points that are closer together than the points of a trace."""

    def finer(self, step: float) -> Sequence[Tier]:
        """Return the tiers whose cells are shorter than `step` seconds, finest first."""


def refine(series: RunSeries, history: FineHistory, uuid: str, points: int = POINTS) -> RunSeries:
    """Return the series with finer points from the history. If the history has none, return the series unchanged.

    `points`: maximum number of points. Finer points are used only at times for which the run's own trace has a value,
    because a run may use a GPU for only part of its time.
    """
    begin, end = series.begun, series.begun + series.points * series.step
    tiers = [tier for tier in history.finer(series.step) if tier.begin < end and begin < tier.end] if uuid else []
    if not tiers or not series.points:
        return series
    grid = aligned(begin, end, points, [tier.step for tier in tiers])
    if grid.step >= series.step:
        return series
    results: list[Mapping[str, Series]] = []
    for tier in tiers:
        span = max(begin, tier.begin), min(end, tier.end)
        results.append(tier.query(Query(uuid, tuple(series.columns), *span, grid=grid)))
    if not any(is_known(value) for lines in results for line in lines.values() for value in line.mean):
        return series
    columns = {name: _join_finest(series, name, grid, [lines[name] for lines in results]) for name in series.columns}
    return RunSeries(grid.begin, grid.step, columns)


def _join_finest(series: RunSeries, name: str, grid: Grid, lines: Sequence[Series]) -> Envelope:
    """Return a line with the finest available value at each point of `grid`.

    `lines`: the values of the history's tiers at these points, finest tier first. A point without a value in any tier
    gets the value of the trace.
    """
    trace = series.columns[name]
    low, mean, high = [], [], []
    for index, middle in enumerate(grid.middles()):
        # The first and last bucket may extend beyond the run.
        traced = min(max(0, int((middle - series.begun) // series.step)), series.points - 1)
        value = trace.low[traced], trace.mean[traced], trace.high[traced]
        if is_known(trace.mean[traced]):
            fine = next((line for line in lines if is_known(line.mean[index])), None)
            if fine is not None:
                value = fine.low[index], fine.mean[index], fine.high[index]
        low.append(value[0])
        mean.append(value[1])
        high.append(value[2])
    return Envelope(low, mean, high)


_ENDS = 2
"""Number of additional buckets. They are needed because a time window may start and end in the middle of a bucket."""


def zoom(
    series: RunSeries, history: RecentHistory, uuid: str, begin: float, end: float, points: int = MAX_POINTS
) -> RunSeries | None:
    """Return the metrics of a run on a device from `begin` to `end` (s since 1970), from the history.

    None if the history has no data of this time. As in `refine`, there are values only at times for which the run's own
    trace has a value. Values from before the start of the history come from the trace. A gap between two values of the
    history stays a gap.
    """
    begin, end = max(begin, series.begun), min(end, series.begun + series.points * series.step)
    if not begin < end:
        return None
    names = tuple(series.columns)
    query = Query(uuid, names, begin, end, points)
    lines = history.query(query)
    step = lines[names[0]].step
    grid = None if step else _sample_grid(history, begin, end, points)
    if grid is not None:
        lines, step = history.query(query._replace(grid=grid)), grid.step
    times = lines[names[0]].times
    if not step or not len(times):
        return None
    sampled = history.first_frame if uuid in history.subjects() else inf
    if not (sampled <= begin or any(is_known(value) for line in lines.values() for value in line.mean)):
        return None
    columns = {
        name: _join_zoomed(series, name, lines[name], sampled if history.has(uuid, name) else inf)
        for name in series.columns
    }
    return RunSeries(times[0] - step / 2, step, columns)


def _sample_grid(history: RecentHistory, begin: float, end: float, points: int) -> Grid | None:
    """Return buckets with about one sample each, or None if there are no samples in this time."""
    times = history.sampled()
    if len(times) < 2 or not (times[0] < end and begin < times[-1]):
        return None
    spacing = median(later - earlier for earlier, later in pairwise(times))
    return aligned(begin, end, min(points, int((end - begin) / spacing) + _ENDS))


def _join_zoomed(series: RunSeries, name: str, fine: Series, sampled: float) -> Envelope:
    """Return a line of the values in `fine`, with values of the trace for times before `sampled`.

    `fine`: values from the history. `sampled`: start of the history (s since 1970).
    """
    trace = series.columns[name]
    # A bucket may extend beyond the run, and a point of the trace may cover several buckets.
    traced = [min(max(0, int((time - series.begun) // series.step)), series.points - 1) for time in fine.times]
    known = [index for index, value in enumerate(fine.mean) if is_known(value)]
    covered = {traced[index] for index in known}
    low, mean, high = [], [], []
    for index, at in enumerate(traced):
        value = nan, nan, nan
        if is_known(trace.mean[at]):
            if is_known(fine.mean[index]):
                value = fine.low[index], fine.mean[index], fine.high[index]
            elif fine.times[index] < sampled and not (at in covered and known[0] < index < known[-1]):
                value = trace.low[at], trace.mean[at], trace.high[at]
        low.append(value[0])
        mean.append(value[1])
        high.append(value[2])
    return Envelope(low, mean, high)


def unsampled_spans(series: RunSeries) -> list[tuple[float, float]]:
    """Return the start and end (s since 1970) of each interval without samples."""
    used = series.columns.get("gpu.memory_used") or series.columns.get("gpu.utilization")
    missing = [None if is_known(value) else 0.0 for value in used.mean] if used else []
    return [
        (series.begun + begin * series.step, series.begun + end * series.step)
        for begin, end in longest(known_ranges(missing))
    ]


def known_ranges(values: Sequence[float | None]) -> list[tuple[int, int]]:
    """Return the start and end (exclusive) of each range of indexes without missing values."""
    result = []
    begin = -1
    for i, value in enumerate([*values, None]):
        if value is not None:
            begin = i if begin < 0 else begin
        elif begin >= 0:
            result.append((begin, i))
            begin = -1
    return result


def longest(ranges: Sequence[_Range]) -> list[_Range]:
    """Return only the `GAPS` longest of these ranges, in their original order."""
    return sorted(sorted(ranges, key=lambda span: span[0] - span[1])[:GAPS])
