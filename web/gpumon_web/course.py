"""The course of a run up to now, from the ring's frames: those are newer than what the ledger keeps."""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import median

from gpumon.epochs import Stretch
from gpumon.frame import NAN, Frame
from gpumon.history.recent import History
from gpumon.runs import joined
from gpumon.runs.report_timeline import Timeline, bridged
from gpumon.runs.rows import Course
from gpumon_web.series import MOST

COURSE = (
    "gpu.utilization", "gpu.memory_used", "gpu.memory_reserved", "gpu.run_allocated", "gpu.run_reserved",
    "gpu.run_used", "gpu.power", "gpu.temperature",
)  # fmt: skip
"""Metrics of a run's course, as the ledger's traces have them."""
RUNS = 64
"""Runs of which logged values are kept."""
KEPT = 3600
"""Values kept of each."""
_SAME = 0.5
"""Seconds by which the begin of an epoch may differ between two that tell of it."""


class Logged:
    """What trainings logged, as far as the last frames have it."""

    def __init__(self) -> None:
        self._runs: OrderedDict[str, deque[tuple[float, Mapping[str, float]]]] = OrderedDict()
        self._last: dict[str, str] = {}

    def add(self, frame: Frame) -> None:
        """Take in a frame; they come in order."""
        for run in frame.runs:
            said = repr(run.metrics)  # a NaN equals nothing, and its text equals itself
            if not run.metrics or self._last.get(run.key) == said:
                continue
            self._last[run.key] = said
            self._runs.setdefault(run.key, deque(maxlen=KEPT)).append((frame.time, run.metrics))
            if len(self._runs) > RUNS:
                self._last.pop(self._runs.popitem(last=False)[0], None)

    def clear(self) -> None:
        """Forget everything."""
        self._runs.clear()
        self._last.clear()

    def timeline(self, keys: Iterable[str], begun: float, step: float, count: int) -> Timeline:
        """The last value that was logged in each of `count` times of `step` seconds, of the first rank that logged."""
        columns: dict[str, list[float]] = {}
        for time, metrics in self._of(keys):
            place = int((time - begun) / step) if step > 0 else 0
            if 0 <= place < count:
                for name, value in metrics.items():
                    columns.setdefault(name, [NAN] * count)[place] = value if math.isfinite(value) else NAN
        return Timeline(begun, step, {name: Course(line, line, line) for name, line in columns.items()})

    def diverged(self, keys: Iterable[str]) -> dict[str, list[tuple[float, float]]]:
        """By metric, the times and values of what was logged and is NaN or infinite."""
        found: dict[str, list[tuple[float, float]]] = {}
        for time, metrics in self._of(keys):
            for name, value in metrics.items():
                if not math.isfinite(value):
                    found.setdefault(name, []).append((time, value))
        return found

    def _of(self, keys: Iterable[str]) -> Sequence[tuple[float, Mapping[str, float]]]:
        return next((list(self._runs[key]) for key in keys if key in self._runs), [])


def recent_course(history: History, uuid: str, begun: float, points: int = MOST) -> Timeline | None:
    """The course on a device since `begun` (s since 1970) from the last frames; None where these begin later.

    Points are equally far apart, as a `Timeline` has them: what was not sampled keeps its length.
    """
    if not history.times or history.begin > begun:
        return None
    first = next((place for place, time in enumerate(history.times) if time >= begun), len(history.times))
    times = history.times[first:]
    if len(times) < 2:
        return None
    length = times[-1] - times[0]
    step = max(median(later - earlier for earlier, later in pairwise(times)), length / max(1, min(points, MOST) - 1))
    places = [round((time - times[0]) / step) for time in times]
    columns = {
        name: _cells(history.values(uuid, name)[first:], places)
        for name in COURSE
        if len(history.values(uuid, name)) == len(history.times)
    }
    return Timeline(times[0] - step / 2, step, columns) if columns else None


def _cells(values: Sequence[float], places: Sequence[int]) -> Course:
    count = places[-1] + 1
    low, sums, high, counts = [math.inf] * count, [0.0] * count, [-math.inf] * count, [0] * count
    for value, place in zip(values, places, strict=True):
        if math.isfinite(value):
            low[place], high[place] = min(low[place], value), max(high[place], value)
            sums[place] += value
            counts[place] += 1
    lines = (
        [value if number else NAN for value, number in zip(low, counts, strict=True)],
        [total / number if number else NAN for total, number in zip(sums, counts, strict=True)],
        [value if number else NAN for value, number in zip(high, counts, strict=True)],
    )
    return Course(*(bridged(line) for line in lines))


def with_newest(epochs: Sequence[joined.Stretch], newest: Iterable[Stretch]) -> list[joined.Stretch]:
    """`epochs` of the ledger, the last ones as long as the ring knows them, and those that only the ring knows yet."""
    found = list(epochs)
    since = found[-1].begun - _SAME if found else -math.inf
    for stretch in newest:
        if not stretch.begin >= since:
            continue
        seconds = stretch.end - stretch.begin
        if found and stretch.begin < found[-1].begun + _SAME:
            if math.isnan(found[-1].ended):
                found[-1] = found[-1]._replace(seconds=seconds)
        else:
            found.append(
                joined.Stretch(len(found), stretch.epoch, "", stretch.begin, NAN, seconds, 1, 0, NAN, {}, 1, "")
            )
    return found
