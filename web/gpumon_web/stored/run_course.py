"""The metrics of a run up to now: the ledger's traces and epochs, extended by the newer frames of the ring."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping, Sequence
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
"""Values kept per run, and frames without a run after which its values are dropped."""
_CHECK_EVERY = 240
"""Frames between checks for such runs."""
_START_TOLERANCE = 0.5
"""Seconds by which the start of an epoch may differ between the ledger and the ring."""


class LoggedValues:
    """Logged metrics in recent frames. A value is valid until the next one, or until a frame lacks the data of runs."""

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
            said = repr(run.metrics)  # as text, because NaN != NaN
            if not run.metrics or self._last.get(run.key) == said:
                continue
            self._last[run.key] = said
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

    def only(self, keys: Iterable[str]) -> LoggedValues:
        """Copy the values of some ranks, so that they can be read while frames are added."""
        found = LoggedValues()
        found.since = self.since
        found._runs = OrderedDict((key, self._runs[key].copy()) for key in keys if key in self._runs)
        return found

    def _forget(self, key: str) -> None:
        for known in (self._runs, self._last, self._seen):
            known.pop(key, None)

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
        places = sorted({int((time - begun) / step) for time in times if time >= begun})
        if not places or places[-1] > 2 * MAX_POINTS:
            return RunSeries(begun, step, {})
        count = places[-1] + 1
        columns: dict[str, list[float]] = {}
        changes = self._of(keys)
        for at, (time, metrics) in enumerate(changes):
            end = changes[at + 1][0] if at + 1 < len(changes) else math.inf
            first = bisect_left(places, int((time - begun) / step))
            last = bisect_left(places, (end - begun) / step)
            for name, value in metrics.items():
                column = columns.setdefault(name, [NAN] * count)
                for place in places[first : max(last, first + 1)]:
                    column[place] = value if math.isfinite(value) else NAN
        return RunSeries(begun, step, {name: Envelope(line, line, line) for name, line in columns.items()})

    def extended(self, kept: RunSeries, keys: Iterable[str], times: Sequence[float]) -> RunSeries:
        """Return the ledger's logged metrics, extended by later frames."""
        since = kept.begun + kept.points * kept.step
        later = times[bisect_left(times, since) :]
        tail = self.timeline(keys, since, kept.step, later) if kept.points and len(later) else None
        if tail is None or not 0 < tail.points <= MAX_POINTS:
            return kept
        columns = {
            name: _join(course, tail.columns.get(name, _unknown(tail.points))) for name, course in kept.columns.items()
        }
        return RunSeries(kept.begun, kept.step, columns)

    def diverged(self, keys: Iterable[str]) -> dict[str, list[tuple[float, float]]]:
        """Return the times and values of logged NaN and infinity, by metric."""
        found: dict[str, list[tuple[float, float]]] = {}
        for time, metrics in self._of(keys):
            for name, value in metrics.items():
                if not math.isfinite(value):
                    found.setdefault(name, []).append((time, value))
        return found

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
    found = _course(history, uuid, COURSE, Grid(0, step, points, phase=times[0] - step / 2), times[-1])
    return RunSeries(times[0] - step / 2, step, found) if found else None


def extend_course(kept: RunSeries, history: RecentHistory, uuid: str) -> RunSeries:
    """Extend the ledger's course by the frames after its end."""
    since, end = kept.begun + kept.points * kept.step, history.end
    if not kept.points or not since <= end < since + MAX_POINTS * kept.step:
        return kept
    grid = Grid(kept.points, kept.step, MAX_POINTS, phase=kept.begun)
    tails = _course(history, uuid, list(kept.columns), grid, end)
    count = grid.at(end) + 1
    columns = {name: _join(course, tails.get(name, _unknown(count))) for name, course in kept.columns.items()}
    return RunSeries(kept.begun, kept.step, columns)


def _course(history: RecentHistory, uuid: str, metrics: Sequence[str], grid: Grid, end: float) -> dict[str, Envelope]:
    """Return the metrics that recent frames have, in the buckets of `grid` up to the one with `end`."""
    grid = grid._replace(buckets=min(grid.buckets, grid.at(end) + 1))
    known = [name for name in metrics if history.has(uuid, name)]
    found = history.query(Query(uuid, known, grid.begin, end, grid=grid))
    return {name: Envelope(series.low, series.mean, series.high) for name, series in found.items()}


def _join(course: Envelope, tail: Envelope) -> Envelope:
    return Envelope(*([*before, *after] for before, after in zip(course, tail, strict=True)))


def _unknown(count: int) -> Envelope:
    return Envelope([NAN] * count, [NAN] * count, [NAN] * count)


def update_epochs(epochs: Sequence[EpochSummary], newest: Iterable[EpochSpan]) -> list[EpochSummary]:
    """Update the ledger's newest epoch from the ring, and append epochs that are only in the ring."""
    found = list(epochs)
    since = found[-1].begun - _START_TOLERANCE if found else -math.inf
    for stretch in newest:
        if not stretch.begin >= since:
            continue
        seconds, ended = stretch.end - stretch.begin, stretch.end if stretch.finished else NAN
        last = found[-1] if found else None
        # Epochs may be shorter than `_SAME`, so the number must match too.
        if last is not None and stretch.begin < last.begun + _START_TOLERANCE and stretch.epoch == last.epoch:
            if not is_known(last.ended):
                found[-1] = last._replace(seconds=seconds, ended=ended, is_open=not stretch.finished, is_settled=False)
        elif last is None or stretch.begin > last.begun:
            found.append(
                EpochSummary(
                    ordinal=last.ordinal + 1 if last is not None else 0,
                    epoch=stretch.epoch,
                    phase="",
                    begun=stretch.begin,
                    ended=ended,
                    seconds=seconds,
                    times=1,
                    steps=None,
                    wait=NAN,
                    metrics={},
                    ranks=1,
                    utilization_from="",
                    is_open=not stretch.finished,
                    is_settled=False,
                )
            )
    return found
