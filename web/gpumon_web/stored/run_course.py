"""The metrics of a run up to now: the ledger's traces and epochs, extended by the newer frames of the ring."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median

from gpumon.analysis.run_epochs import EpochSpan
from gpumon.common.numbers import NAN, is_known
from gpumon.model.frame import Frame
from gpumon.reports.figures.run_series import RunSeries
from gpumon.storage.history.buckets import Grid, aligned
from gpumon.storage.history.envelope import Envelope
from gpumon.storage.history.query import MAX_POINTS, Query
from gpumon.storage.history.recent import RecentHistory
from gpumon.storage.ledger.summary import EpochSummary

COURSE = (
    "gpu.utilization", "gpu.memory_used", "gpu.memory_reserved", "gpu.run_allocated", "gpu.run_reserved",
    "gpu.run_used", "gpu.power", "gpu.temperature",
)  # fmt: skip
"""Metrics of a run's course, the same as in the ledger's traces."""
MAX_RUNS = 64
"""Most runs whose logged values are kept."""
MAX_VALUES = 3600
"""Most values kept per run, and number of frames without a run after which its values are dropped."""
_CHECK_EVERY = 240
"""Number of frames between checks for such runs."""
_START_TOLERANCE = 0.5
"""Seconds by which the start of an epoch may differ between the ledger and the ring."""


class LoggedValues:
    """Logged metrics in recent frames. A value is valid until the next one, or until a frame without data of runs."""

    def __init__(self) -> None:
        self.since = math.inf
        """Time (s since 1970) since which every frame has the logged values."""
        self._runs: OrderedDict[str, deque[tuple[float, Mapping[str, float]]]] = OrderedDict()
        self._last: dict[str, str] = {}
        self._frames = 0
        self._seen: dict[str, int] = {}
        """Number of the last frame with a run, by its key."""

    def add(self, frame: Frame) -> None:
        """Add the next frame."""
        if not frame.is_full:
            self._interrupt(frame.time)
            return
        self.since = min(self.since, frame.time)
        self._frames += 1
        for run in frame.runs:
            if run.key in self._runs:
                self._seen[run.key] = self._frames
            metrics_text = repr(run.metrics)  # as text, because NaN != NaN
            if not run.metrics or self._last.get(run.key) == metrics_text:
                continue
            self._last[run.key] = metrics_text
            self._runs.setdefault(run.key, deque(maxlen=MAX_VALUES)).append((frame.time, run.metrics))
            self._seen[run.key] = self._frames
            if len(self._runs) > MAX_RUNS:
                self._forget(next(iter(self._runs)))
        if self._frames % _CHECK_EVERY == 0:  # the values of finished runs come from the ledger
            for key in [key for key, seen in self._seen.items() if self._frames - seen >= MAX_VALUES]:
                self._forget(key)

    def clear(self) -> None:
        """Forget everything."""
        self.since = math.inf
        self._runs.clear()
        self._last.clear()
        self._seen.clear()

    def copy_for(self, keys: Iterable[str]) -> LoggedValues:
        """Copy the values of some ranks, so that they can be read while frames are added."""
        copy = LoggedValues()
        copy.since = self.since
        copy._runs = OrderedDict((key, self._runs[key].copy()) for key in keys if key in self._runs)
        return copy

    def _forget(self, key: str) -> None:
        for values in (self._runs, self._last, self._seen):
            values.pop(key, None)

    def _interrupt(self, time: float) -> None:
        """End the validity of all earlier values at `time`."""
        if self.since < time:
            for changes in self._runs.values():
                if changes[-1][1]:
                    changes.append((time, {}))
            self._last.clear()
        self.since = math.inf

    def timeline(self, keys: Iterable[str], begun: float, step: float, times: Sequence[float]) -> RunSeries:
        """Return the values of the first rank that logged, at frames' `times`, in cells of `step` seconds."""
        cells = sorted({int((time - begun) / step) for time in times if time >= begun})
        if not cells or cells[-1] > 2 * MAX_POINTS:
            return RunSeries(begun, step, {})
        count = cells[-1] + 1
        columns: dict[str, list[float]] = {}
        changes = self._of(keys)
        for index, (time, metrics) in enumerate(changes):
            end = changes[index + 1][0] if index + 1 < len(changes) else math.inf
            first = bisect_left(cells, int((time - begun) / step))
            last = bisect_left(cells, (end - begun) / step)
            for name, value in metrics.items():
                column = columns.setdefault(name, [NAN] * count)
                for cell in cells[first : max(last, first + 1)]:
                    column[cell] = value if math.isfinite(value) else NAN
        return RunSeries(begun, step, {name: Envelope(line, line, line) for name, line in columns.items()})

    def extend(self, stored: RunSeries, keys: Iterable[str], times: Sequence[float]) -> RunSeries:
        """Return the ledger's logged metrics, extended by later frames."""
        since = stored.begun + stored.points * stored.step
        later = times[bisect_left(times, since) :]
        tail = self.timeline(keys, since, stored.step, later) if stored.points and len(later) else None
        if tail is None or not 0 < tail.points <= MAX_POINTS:
            return stored
        columns = {
            name: _join(course, tail.columns.get(name, _unknown(tail.points)))
            for name, course in stored.columns.items()
        }
        return RunSeries(stored.begun, stored.step, columns)

    def diverged(self, keys: Iterable[str]) -> dict[str, list[tuple[float, float]]]:
        """Return the times and values of logged NaN and infinity, by metric."""
        points: dict[str, list[tuple[float, float]]] = {}
        for time, metrics in self._of(keys):
            for name, value in metrics.items():
                if not math.isfinite(value):
                    points.setdefault(name, []).append((time, value))
        return points

    def _of(self, keys: Iterable[str]) -> Sequence[tuple[float, Mapping[str, float]]]:
        return next((list(self._runs[key]) for key in keys if key in self._runs), [])


def recent_course(history: RecentHistory, uuid: str, begun: float, points: int = MAX_POINTS) -> RunSeries | None:
    """Return the course on a device since `begun` (s since 1970) from recent frames; None if they begin later.

    Points are evenly spaced, so unsampled time keeps its length.
    """
    times = history.sampled(begun)
    if len(times) < 2 or history.first_frame > begun:
        return None
    spacing = median(later - earlier for earlier, later in pairwise(times))
    # Center the first sample in its point, so that no point gets two samples while its neighbor gets none.
    step = max(spacing, aligned(times[0], times[-1], points - 1).step)
    columns = _course(history, uuid, COURSE, Grid(0, step, points, phase=times[0] - step / 2), times[-1])
    return RunSeries(times[0] - step / 2, step, columns) if columns else None


def extend_course(stored: RunSeries, history: RecentHistory, uuid: str) -> RunSeries:
    """Extend the ledger's course by the frames after its end."""
    since, end = stored.begun + stored.points * stored.step, history.end
    if not stored.points or not since <= end < since + MAX_POINTS * stored.step:
        return stored
    grid = Grid(stored.points, stored.step, MAX_POINTS, phase=stored.begun)
    tails = _course(history, uuid, list(stored.columns), grid, end)
    count = grid.at(end) + 1
    columns = {name: _join(course, tails.get(name, _unknown(count))) for name, course in stored.columns.items()}
    return RunSeries(stored.begun, stored.step, columns)


def _course(history: RecentHistory, uuid: str, metrics: Sequence[str], grid: Grid, end: float) -> dict[str, Envelope]:
    """Return the metrics that recent frames have, in the buckets of `grid` up to the one with `end`."""
    grid = grid._replace(buckets=min(grid.buckets, grid.at(end) + 1))
    names = [name for name in metrics if history.has(uuid, name)]
    series = history.query(Query(uuid, names, grid.begin, end, grid=grid))
    return {name: Envelope(line.low, line.mean, line.high) for name, line in series.items()}


def _join(course: Envelope, tail: Envelope) -> Envelope:
    return Envelope(*([*earlier, *later] for earlier, later in zip(course, tail, strict=True)))


def _unknown(count: int) -> Envelope:
    return Envelope([NAN] * count, [NAN] * count, [NAN] * count)


def update_epochs(epochs: Sequence[EpochSummary], newest: Iterable[EpochSpan]) -> list[EpochSummary]:
    """Update the ledger's newest epoch from the ring, and append epochs that are only in the ring."""
    updated = list(epochs)
    since = updated[-1].begun - _START_TOLERANCE if updated else -math.inf
    for span in newest:
        if not span.begin >= since:
            continue
        seconds, ended = span.end - span.begin, span.end if span.finished else NAN
        last = updated[-1] if updated else None
        # Epochs may be shorter than `_SAME`, so the number must match too.
        if last is not None and span.begin < last.begun + _START_TOLERANCE and span.epoch == last.epoch:
            if not is_known(last.ended):
                updated[-1] = replace(last, seconds=seconds, ended=ended, is_open=not span.finished, is_settled=False)
        elif last is None or span.begin > last.begun:
            updated.append(
                EpochSummary(
                    ordinal=last.ordinal + 1 if last is not None else 0,
                    epoch=span.epoch,
                    phase="",
                    begun=span.begin,
                    ended=ended,
                    seconds=seconds,
                    times=1,
                    steps=None,
                    wait=NAN,
                    metrics={},
                    ranks=1,
                    utilization_from="",
                    is_open=not span.finished,
                    is_settled=False,
                )
            )
    return updated
