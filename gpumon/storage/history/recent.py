"""`RecentHistory`: the last frames as columns by metric, without numpy."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from math import inf

from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN
from gpumon.model.frame import Frame
from gpumon.model.metrics import GPU_INDEX, GPU_METRICS, HOST_INDEX, HOST_METRICS, PCIE_LINK, Availability, Kind, Metric
from gpumon.model.panels import PANELS
from gpumon.storage.history.buckets import STEADY, Grid, aligned
from gpumon.storage.history.counters import (
    ENERGY,
    PAUSE,
    SHORTEST_INTERVAL,
    counted_at,
    longest_pause,
    power_between,
    rate,
)
from gpumon.storage.history.coverage import known_seconds
from gpumon.storage.history.downsample import Envelope, downsample
from gpumon.storage.history.query import HOST, Query, Series

KEEP = 3600

SLACK = 240
"""Old rows are removed this many at a time."""

EMPTY: array[float] = array("d")

_USUAL = 5
"""Number of last intervals that estimate the time between frames; a recording played fast has its own."""

_MEMORY = {"gpu.memory_reserved", *(name for name in GPU_INDEX if name.startswith("gpu.run_"))}
"""Memory breakdown of a device."""

_CHARTED = {panel.metric.name for panel in PANELS}

_Kept = tuple[tuple[str, int, bool], ...]


def _kept(metrics: Sequence[Metric], index: dict[str, int], wanted: Collection[str] | None = None) -> _Kept:
    """Return name, index in a sample and whether it is a counter of wanted metrics (default: for charts, alarms)."""
    return tuple(
        (metric.name, index[metric.name], metric.kind is Kind.COUNTER)
        for metric in metrics
        if (_is_usual(metric) if wanted is None else metric.name in wanted)
    )


def _is_usual(metric: Metric) -> bool:
    # A finding about a PCIe link uses its state under load.
    return metric.name in _CHARTED or metric.warn < float("inf") or metric.name in _MEMORY or metric.name in PCIE_LINK


GPU_KEPT = _kept(GPU_METRICS, GPU_INDEX)

HOST_KEPT = _kept(HOST_METRICS, HOST_INDEX)


class RecentHistory:
    """Columns of numbers with a common column of times; counters are stored as rates.

    If time jumps by more than `PAUSE` intervals, a row without values is inserted in the middle, so that charts draw a
    gap. `metrics` are the stored metrics; default: those that charts need.
    """

    def __init__(self, keep: int = KEEP, metrics: Collection[str] | None = None) -> None:
        self.keep = keep
        self._of_gpu = GPU_KEPT if metrics is None else _kept(GPU_METRICS, GPU_INDEX, metrics)
        self._of_host = HOST_KEPT if metrics is None else _kept(HOST_METRICS, HOST_INDEX, metrics)
        self.clear()

    def clear(self) -> None:
        """Clear all rows, for example after time has jumped back."""
        self._times: array[float] = array("d")
        self._offset = NAN
        """Seconds by which the wall clock is ahead of the monotonic clock."""
        self._columns: dict[str, dict[str, array[float]]] = {}
        self._counters: dict[str, tuple[int, Sequence[float]]] = {}
        self._jumps: deque[float] = deque(maxlen=_USUAL)
        self._pauses: set[float] = set()

    def add(self, frame: Frame) -> None:
        """Append a frame. A slightly older frame than the last is ignored; a much older one clears the history."""
        if self._times and frame.time <= self._times[-1]:
            if frame.time > self._times[-1] - 60:
                return
            self.clear()
        self._mark_pause(frame)
        if self._slept(frame):
            self._counters.clear()
        longest = longest_pause(frame)
        self._append(HOST, frame.host, self._of_host, frame.monotonic_ns, longest)
        for sample in frame.samples:
            if sample.state is Availability.OK:  # otherwise its values are old or missing
                self._append(sample.device.uuid, sample.values, self._of_gpu, counted_at(sample, frame), longest)
            else:
                # No rate is computed over a time without an answer.
                self._counters.pop(sample.device.uuid, None)
        self._times.append(frame.time)
        self._level()
        if len(self._times) >= self.keep + SLACK:
            self._trim()

    def only(self, *subjects: str, metrics: Collection[str] | None = None) -> RecentHistory:
        """Return a copy of some subjects, or some of their metrics, for a reader in another thread."""
        found = RecentHistory(self.keep)
        found._times = self._times[:]
        found._pauses = set(self._pauses)
        found._columns = {
            subject: {
                name: column[:]
                for name, column in self._columns.get(subject, {}).items()
                if metrics is None or name in metrics
            }
            for subject in subjects
        }
        return found

    def take(self, other: RecentHistory) -> None:
        """Move the content of `other` into this history; `other` must not be used again."""
        self._times, self._columns, self._pauses = other._times, other._columns, other._pauses

    def query(self, query: Query) -> Mapping[str, Series]:
        """Return a series for each metric of the query, all with the same times; unknown values are gaps."""
        first, last = bisect_left(self._times, query.begin), bisect_right(self._times, query.end)
        columns = [self._values(query.subject, name) for name in query.metrics]
        if query.grid is None and last - first <= query.points:
            alone = list(self._times[first:last])
            lines = [list(column[first:last]) or [NAN] * len(alone) for column in columns]
            return {name: Series(alone, line, line, line) for name, line in zip(query.metrics, lines, strict=True)}
        grid = query.grid or aligned(self._times[first], self._times[last - 1], query.points)
        before = max(0, first - 1)  # may fill the first buckets
        times = self._times[before:last]
        gap = array("d", [NAN]) * len(times)
        cut = [column[before:last] or gap for column in columns]
        found = downsample(
            times, [Envelope(line, line, line) for line in cut], grid,
            begin=query.begin, hold=query.hold, pauses=self._pauses,
        )  # fmt: skip
        if query.seen:
            rows = slice(first, last)
            found = [
                series._replace(seen=known_seconds(self._times[rows], column[rows], grid, self._pauses))
                for series, column in zip(found, columns, strict=True)
            ]
        return dict(zip(query.metrics, found, strict=True))

    @property
    def begin(self) -> float:
        """Start of the history (s since 1970), or NaN if it is empty."""
        return self._times[0] if self._times else NAN

    @property
    def end(self) -> float:
        """End of the history (s since 1970), or NaN if it is empty."""
        return self._times[-1] if self._times else NAN

    @property
    def first_frame(self) -> float:
        """Time of the oldest frame (s since 1970), or NaN; tiers may begin earlier."""
        return self._times[0] if self._times else NAN

    @property
    def pause(self) -> float:
        """Middle of the newest pause (s since 1970), or NaN."""
        return max(self._pauses, default=NAN)

    def sampled(self, begin: float = -inf) -> list[float]:
        """Return the times of frames since `begin`, in seconds since 1970."""
        return [time for time in self._times[bisect_left(self._times, begin) :] if time not in self._pauses]

    def seconds_of_frames(self, begin: float, end: float) -> float:
        """Return the seconds from `begin` to `end` (s since 1970) that frames cover, even without values."""
        first, last = bisect_left(self._times, begin), bisect_left(self._times, end)
        times = self._times[max(0, first - 1) : last + 1]
        there = [NAN if time in self._pauses else 0.0 for time in times]
        return sum(known_seconds(times, there, Grid(0, end - begin, 1, begin), self._pauses))

    def at(self, subject: str, metric: str, times: Iterable[float]) -> list[float]:
        """Return the values of the frames at exactly these times; NaN without a frame or value."""
        column = self._values(subject, metric)
        places = ((bisect_left(self._times, time), time) for time in times)
        return [column[place] if place < len(column) and self._times[place] == time else NAN for place, time in places]

    def subjects(self) -> list[str]:
        """Return the subjects with values: the machine and devices."""
        return list(self._columns)

    def _values(self, subject: str, metric: str) -> array[float]:
        """Return a column as long as `_times`; empty if there are no values."""
        return self._columns.get(subject, {}).get(metric, EMPTY)

    def last(self, subject: str, metric: str, until: float = inf) -> float:
        """Return the value of the newest frame up to `until` (s since 1970), or NaN.

        NaN also if that frame is more than a pause before `until`, for example while older frames are still being read.
        """
        values = self._values(subject, metric)
        place = bisect_right(self._times, until) - 1
        if not values or place < 0:
            return NAN
        usual = max(SHORTEST_INTERVAL, min(self._jumps, default=0.0))
        return NAN if until - self._times[place] > PAUSE * usual and until < inf else values[place]

    def peak(self, subject: str, metric: str, begin: float, end: float) -> float:
        """Return the largest known value from `begin` to `end` (s since 1970), or NaN."""
        values = self._values(subject, metric)[bisect_left(self._times, begin) : bisect_right(self._times, end)]
        # NaN != NaN; no call of is_known, because a call would cost more than the rest of the loop.
        return max((value for value in values if value == value), default=NAN)

    def has(self, subject: str, metric: str) -> bool:
        """Return whether any value is known."""
        return any(value == value for value in self._values(subject, metric))

    def _mark_pause(self, frame: Frame) -> None:
        """Append a row without values if a frame comes long after the last one."""
        if not self._times:
            return
        jump = frame.time - self._times[-1]
        usual = max(frame.interval, SHORTEST_INTERVAL, min(self._jumps, default=0.0))
        self._jumps.append(jump)
        if jump > PAUSE * usual:
            self._times.append(frame.time - jump / 2)
            self._pauses.add(self._times[-1])
            self._level()

    def _slept(self, frame: Frame) -> bool:
        """Return whether the machine was suspended before a frame or its clock was set; then no rates are computed."""
        before, self._offset = self._offset, frame.time - frame.monotonic_ns / SECOND
        return abs(self._offset - before) > STEADY

    def _append(self, subject: str, values: Sequence[float], kept: _Kept, when: int, longest: int) -> None:
        """Append the values of a subject; its counters were read at `when` (ns, CLOCK_MONOTONIC)."""
        columns = self._columns.get(subject)
        if columns is None:
            gap = [NAN] * len(self._times)
            columns = self._columns[subject] = {name: array("d", gap) for name, _, _ in kept}
        before = self._counters.get(subject)
        self._counters[subject] = (when, values)
        # A rate over a pause would show a value for a time without data.
        if before is not None and not 0 < when - before[0] <= longest:
            before = None
        for name, place, is_counter in kept:
            value = values[place]
            if is_counter:
                if before is None:
                    value = NAN
                elif name == ENERGY:
                    value = power_between(before[1], values, when - before[0])
                else:
                    value = rate(before[1][place], value, when - before[0])
            columns[name].append(value)

    def _level(self) -> None:
        """Append NaN for devices without values in this frame."""
        length = len(self._times)
        for columns in self._columns.values():
            for column in columns.values():
                if len(column) < length:
                    column.append(NAN)

    def _trim(self) -> None:
        self._forget(SLACK)

    def _forget(self, rows: int) -> None:
        """Remove the oldest rows."""
        self._pauses.difference_update(self._times[:rows])
        del self._times[:rows]
        for columns in self._columns.values():
            for column in columns.values():
                del column[:rows]
        for subject in [key for key, columns in self._columns.items() if key and _is_blank(columns)]:
            del self._columns[subject]


def _is_blank(columns: dict[str, array[float]]) -> bool:
    return not any(value == value for column in columns.values() for value in column)
