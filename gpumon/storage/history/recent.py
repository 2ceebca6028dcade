"""`RecentHistory` keeps the last frames, as one column of numbers per metric. It does not use numpy."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from math import inf
from statistics import median

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
from gpumon.storage.history.envelope import Envelope, downsample
from gpumon.storage.history.query import HOST, Query, Series

KEEP = 3600
"""Default number of frames that are kept."""

SLACK = 240
"""Number of old rows that are removed at once. Removing one row with each frame would be slower."""

EMPTY: array[float] = array("d")

_LAST_INTERVALS = 5
"""The usual time between frames is estimated from this many of the last intervals. The planned interval is not
sufficient, because a recording may be played faster."""

_MEMORY = {"gpu.memory_reserved", *(name for name in GPU_INDEX if name.startswith("gpu.run_"))}
"""Metrics of the memory breakdown of a device."""

_CHARTED = {panel.metric.name for panel in PANELS}

_Columns = tuple[tuple[str, int, bool], ...]
"""Name of each stored metric, its index in a sample, and whether it is a counter."""


def _columns(metrics: Sequence[Metric], index: dict[str, int], wanted: Collection[str] | None = None) -> _Columns:
    """Return the columns of the wanted metrics, by default of the metrics that charts and alarms need."""
    return tuple(
        (metric.name, index[metric.name], metric.kind is Kind.COUNTER)
        for metric in metrics
        if (_is_default(metric) if wanted is None else metric.name in wanted)
    )


def _is_default(metric: Metric) -> bool:
    # PCIE_LINK is needed because a finding about a PCIe link uses the state of the link under load.
    return metric.name in _CHARTED or metric.warn < float("inf") or metric.name in _MEMORY or metric.name in PCIE_LINK


_GPU_COLUMNS = _columns(GPU_METRICS, GPU_INDEX)

_HOST_COLUMNS = _columns(HOST_METRICS, HOST_INDEX)

DEFAULT_METRICS = frozenset(name for name, _, _ in (*_GPU_COLUMNS, *_HOST_COLUMNS))
"""Metrics that are stored by default."""


class RecentHistory:
    """The last frames as columns of numbers, with one common column of times. Counters are stored as rates.

    If more than `PAUSE` intervals pass between two frames, a row of NaN is inserted halfway between them, so that
    charts draw a gap. `keep`: number of frames to keep. `metrics`: metrics to store, by default `DEFAULT_METRICS`.
    """

    def __init__(self, keep: int = KEEP, metrics: Collection[str] | None = None) -> None:
        self.keep = keep
        self._gpu_columns = _GPU_COLUMNS if metrics is None else _columns(GPU_METRICS, GPU_INDEX, metrics)
        self._host_columns = _HOST_COLUMNS if metrics is None else _columns(HOST_METRICS, HOST_INDEX, metrics)
        self.clear()

    def clear(self) -> None:
        """Remove all rows, for example because the clock was set back."""
        self._times: array[float] = array("d")
        self._offset = NAN
        """Seconds by which the wall clock is ahead of CLOCK_MONOTONIC."""
        self._columns: dict[str, dict[str, array[float]]] = {}
        self._counters: dict[str, tuple[int, Sequence[float]]] = {}
        self._intervals: deque[float] = deque(maxlen=_LAST_INTERVALS)
        self._pauses: set[float] = set()

    def add(self, frame: Frame) -> None:
        """Append a frame.

        A frame that is slightly older than the last one is ignored. If it is much older, the history is cleared first.
        """
        if self._times and frame.time <= self._times[-1]:
            if frame.time > self._times[-1] - 60:
                return
            self.clear()
        self._mark_pause(frame)
        if self._is_clock_unsteady(frame):
            self._counters.clear()
        longest = longest_pause(frame)
        self._append(HOST, frame.host, self._host_columns, frame.monotonic_ns, longest)
        for sample in frame.samples:
            if sample.state is Availability.OK:  # otherwise the values are old or missing
                self._append(sample.device.uuid, sample.values, self._gpu_columns, counted_at(sample, frame), longest)
            else:
                # No rate is computed over a period in which the device did not answer.
                self._counters.pop(sample.device.uuid, None)
        self._times.append(frame.time)
        self._level()
        if len(self._times) >= self.keep + SLACK:
            self._trim()

    def only(self, *subjects: str, metrics: Collection[str] | None = None) -> RecentHistory:
        """Return a copy with only these subjects and, if given, only these metrics.

        Another thread may read the copy.
        """
        history = RecentHistory(self.keep)
        history._times = self._times[:]
        history._pauses = set(self._pauses)
        history._columns = {
            subject: {
                name: column[:]
                for name, column in self._columns.get(subject, {}).items()
                if metrics is None or name in metrics
            }
            for subject in subjects
        }
        return history

    def move_from(self, other: RecentHistory) -> None:
        """Take over the content of `other`, which must not be used afterward."""
        self._times, self._columns, self._pauses = other._times, other._columns, other._pauses

    def query(self, query: Query) -> Mapping[str, Series]:
        """Return a series for each metric of the query. All series have the same times. Missing values are NaN."""
        first, last = bisect_left(self._times, query.begin), bisect_right(self._times, query.end)
        columns = [self._values(query.subject, name) for name in query.metrics]
        if query.grid is None and last - first <= query.points:
            times = list(self._times[first:last])
            lines = [list(column[first:last]) or [NAN] * len(times) for column in columns]
            return {name: Series(times, line, line, line) for name, line in zip(query.metrics, lines, strict=True)}
        grid = query.grid or aligned(self._times[first], self._times[last - 1], query.points)
        previous = max(0, first - 1)  # this row may fill the first buckets
        gap = array("d", [NAN]) * (last - previous)
        parts = [column[previous:last] or gap for column in columns]
        results = downsample(
            self._times[previous:last], [Envelope(line, line, line) for line in parts], grid,
            begin=query.begin, hold=query.hold, pauses=self._pauses,
        )  # fmt: skip
        if query.seen:
            rows = slice(first, last)
            results = [
                series._replace(seen=known_seconds(self._times[rows], column[rows], grid, self._pauses))
                for series, column in zip(results, columns, strict=True)
            ]
        return dict(zip(query.metrics, results, strict=True))

    @property
    def begin(self) -> float:
        """Start of the history (s since 1970); NaN if it is empty."""
        return self._times[0] if self._times else NAN

    @property
    def end(self) -> float:
        """End of the history (s since 1970); NaN if it is empty."""
        return self._times[-1] if self._times else NAN

    @property
    def first_frame(self) -> float:
        """Time of the oldest frame (s since 1970), or NaN if there is none. Tiers may have older data."""
        return self._times[0] if self._times else NAN

    @property
    def pause(self) -> float:
        """The middle of the newest gap between frames (s since 1970); NaN if there was none."""
        return max(self._pauses, default=NAN)

    def sampled(self, begin: float = -inf) -> list[float]:
        """Return the times of the frames from `begin` on, in seconds since 1970."""
        return [time for time in self._times[bisect_left(self._times, begin) :] if time not in self._pauses]

    def seconds_of_frames(self, begin: float, end: float) -> float:
        """Return the number of seconds between two times (s since 1970) that frames cover, with or without values."""
        first, last = bisect_left(self._times, begin), bisect_left(self._times, end)
        times = self._times[max(0, first - 1) : last + 1]
        values = [NAN if time in self._pauses else 0.0 for time in times]  # any value that is not NaN
        return sum(known_seconds(times, values, Grid(0, end - begin, 1, begin), self._pauses))

    def at(self, subject: str, metric: str, times: Iterable[float]) -> list[float]:
        """Return the value of a metric at each of these times (s since 1970). NaN if no frame has exactly this time."""
        column = self._values(subject, metric)
        rows = ((bisect_left(self._times, time), time) for time in times)
        return [column[row] if row < len(column) and self._times[row] == time else NAN for row, time in rows]

    def subjects(self) -> list[str]:
        """Return the subjects that have values: UUIDs of GPUs, and `HOST` for the machine."""
        return list(self._columns)

    def _values(self, subject: str, metric: str) -> array[float]:
        """Return the column of a metric. It has the length of `_times`, or is empty if the metric has no values."""
        return self._columns.get(subject, {}).get(metric, EMPTY)

    def last(self, subject: str, metric: str, until: float = inf) -> float:
        """Return the value in the newest frame that is not later than `until` (s since 1970).

        NaN if there is no such frame, or if there is a gap between the frame and `until`, for example while older
        frames are still being read.
        """
        values = self._values(subject, metric)
        row = bisect_right(self._times, until) - 1
        if not values or row < 0:
            return NAN
        usual = max(SHORTEST_INTERVAL, min(self._intervals, default=0.0))
        return NAN if until - self._times[row] > PAUSE * usual and until < inf else values[row]

    def peak(self, subject: str, metric: str, begin: float, end: float) -> float:
        """Return the highest value between two times (s since 1970); NaN if there is no value."""
        values = self._values(subject, metric)[bisect_left(self._times, begin) : bisect_right(self._times, end)]
        # NaN != NaN; no call of is_known, because a call would cost more than the rest of the loop.
        return max((value for value in values if value == value), default=NAN)

    def has(self, subject: str, metric: str) -> bool:
        """Return whether there is any value of this metric."""
        return any(value == value for value in self._values(subject, metric))

    def _mark_pause(self, frame: Frame) -> None:
        """Append a row of NaN if there is a gap between the last frame and this one."""
        if not self._times:
            return
        interval = frame.time - self._times[-1]
        usual = max(frame.interval, SHORTEST_INTERVAL, min(self._intervals, default=0.0))
        self._intervals.append(interval)
        if interval > PAUSE * usual:
            self._times.append(frame.time - interval / 2)
            self._pauses.add(self._times[-1])
            self._level()

    def _is_clock_unsteady(self, frame: Frame) -> bool:
        """Return whether the clock was set or the machine was suspended since the previous frame.

        If so, no rates are computed for this frame.
        """
        previous, self._offset = self._offset, frame.time - frame.monotonic_ns / SECOND
        return abs(self._offset - previous) > STEADY

    def _append(self, subject: str, values: Sequence[float], stored: _Columns, read_ns: int, longest: int) -> None:
        """Append the values of a subject.

        `stored`: columns to append. `read_ns`: time at which the counters were read (CLOCK_MONOTONIC). `longest`:
        maximum ns between two readings for which a rate is computed.
        """
        columns = self._columns.get(subject)
        if columns is None:
            gap = [NAN] * len(self._times)
            columns = self._columns[subject] = {name: array("d", gap) for name, _, _ in stored}
        previous = self._counters.get(subject)
        self._counters[subject] = (read_ns, values)
        # A rate over a pause would show a value for a time without data.
        if previous is not None and not 0 < read_ns - previous[0] <= longest:
            previous = None
        for name, index, is_counter in stored:
            value = values[index]
            if is_counter:
                if previous is None:
                    value = NAN
                elif name == ENERGY:
                    value = power_between(previous[1], values, read_ns - previous[0])
                else:
                    value = rate(previous[1][index], value, read_ns - previous[0])
            columns[name].append(value)

    def _level(self) -> None:
        """Append NaN for devices without values in this frame."""
        length = len(self._times)
        for columns in self._columns.values():
            for column in columns.values():
                if len(column) < length:
                    column.append(NAN)

    def _trim(self) -> None:
        self._drop_oldest(SLACK)

    def _drop_oldest(self, rows: int) -> None:
        """Remove the oldest rows."""
        self._pauses.difference_update(self._times[:rows])
        del self._times[:rows]
        for columns in self._columns.values():
            for column in columns.values():
                del column[:rows]
        for subject in [key for key, columns in self._columns.items() if key and _is_empty(columns)]:
            del self._columns[subject]


def _is_empty(columns: dict[str, array[float]]) -> bool:
    return not any(value == value for column in columns.values() for value in column)


def known_seconds(
    times: Sequence[float], values: Sequence[float], grid: Grid, pauses: Collection[float] = ()
) -> list[float]:
    """Return the number of seconds with a value in each bucket.

    `times`: sorted times of the samples (s since 1970). `values`: values of the samples. A sample is valid until the
    next sample. The last sample, and a sample that is followed by one of `pauses`, is valid for the median time between
    samples.
    """
    known = [0.0] * grid.buckets
    intervals = [after - before for before, after in pairwise(times) if before not in pauses and after not in pauses]
    usual = median(intervals) if intervals else 0.0
    begin = end = NAN  # start and end of a sequence of values without a gap
    for row, (time, value) in enumerate(zip(times, values, strict=False)):
        if value == value:  # no call of is_known, because a call would cost more than the rest of the loop
            if time != end:
                _add_seconds(known, grid, begin, end)
                begin = time
            end = times[row + 1] if row + 1 < len(times) else time + usual
            if end in pauses:
                end = min(end, time + usual)
    _add_seconds(known, grid, begin, end)
    return known


def _add_seconds(known: list[float], grid: Grid, begin: float, end: float) -> None:
    """Add the seconds from `begin` to `end`, which are NaN if there are none, to the buckets that contain them."""
    if not begin < end:
        return
    for bucket in range(max(0, grid.at(begin)), min(grid.buckets, grid.at(end) + 1)):
        edge = grid.begin + bucket * grid.step
        known[bucket] += max(0.0, min(end, edge + grid.step) - max(begin, edge))
