"""The last frames by column, without numpy: what charts ask until there are tiers of longer history."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from math import inf, nan
from statistics import median

from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN
from gpumon.model.frame import Frame
from gpumon.model.metrics import GPU_INDEX, GPU_METRICS, HOST_INDEX, HOST_METRICS, PCIE_LINK, Availability, Kind, Metric
from gpumon.model.panels import PANELS
from gpumon.storage.history.counters import (
    ENERGY,
    PAUSE,
    SHORTEST_INTERVAL,
    counted_at,
    longest_pause,
    power_between,
    rate,
)
from gpumon.storage.history.coverage import cells_of, seconds_seen
from gpumon.storage.history.downsample import Envelope, downsample
from gpumon.storage.history.grid import STEADY, Grid, aligned
from gpumon.storage.history.line import Line
from gpumon.storage.history.query import HOST, Query, Series, unknown

STEPS = (1, 2, 10, 20, 60, 120, 600, 1200, 3600, 7200, 86400)
"""Seconds that cells may last; each is a multiple of the one before."""
MOST = 1500
"""Cells at most; with as many the next length begins."""
_SPACINGS = 2.5
"""Times the usual distance of frames that a cell lasts at least: else some of them would be empty by chance."""

Columns = Mapping[str, Mapping[str, Sequence[float]]]
"""By subject and metric: the values of rows."""


class FoldedFrames:
    """A tier in memory of about `most` cells. Rows are added in the order of time, each when its cell is over."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self.step = 0.0
        self._first = self._next = 0
        """Numbers of the first cell, and of the one behind the last."""
        self._lines: dict[tuple[str, str], Line] = {}
        """By subject and metric, those of which any value is known."""

    @property
    def begin(self) -> float:
        """The oldest time there is (s since 1970), or NaN."""
        return self._first * self.step if self._next > self._first else nan

    @property
    def end(self) -> float:
        """Where the last cell ends (s since 1970), or NaN."""
        return self._next * self.step if self._next > self._first else nan

    def has(self, subject: str, metric: str) -> bool:
        """Return whether any value is known."""
        return (subject, metric) in self._lines

    def query(self, query: Query) -> Mapping[str, Series]:
        """Return a series for each metric of the query, on its grid; one that is unknown is a gap."""
        assert query.grid is not None, "tiers are asked for buckets"
        nothing = unknown(query.grid)
        lines = ((name, self._lines.get((query.subject, name))) for name in query.metrics)
        return {name: line.buckets(query.grid, query.begin, query.end) if line else nothing for name, line in lines}

    def seconds(self, query: Query, begin: float, end: float) -> Sequence[float]:
        """Return the seconds that are known of each cell from `begin` to `end` (s since 1970), whole or in part."""
        lines = list(self._lines.values())
        return [
            max((line.seconds(number) for line in lines), default=0.0) for number in cells_of(begin, end, self.step)
        ]

    def add(self, times: Sequence[float], columns: Columns, pauses: Collection[float]) -> int:
        """Take the rows in that lie in whole cells; return how many these are, with those of cells before.

        `columns` have a value for each of `times` (s since 1970) or more, NaN where it is missing. A cell without a
        row has the value of the row before it, unless one of `pauses` lies between.
        """
        step = int(self.step)
        if not step:
            usual = median(later - earlier for earlier, later in pairwise(times))
            step = next((one for one in STEPS if one >= _SPACINGS * usual), STEPS[-1])
            self.step, self._first = float(step), Grid(0, step, 1).at(times[0])
            self._next = self._first
        step = self._lengthen_for(times[-1])
        later = next((one for one in STEPS if one > step), step)
        due = Grid(0, step, 1).at(times[-1]) - self._first > self._most
        whole = later if due else step  # longer cells begin where one of them does
        end = Grid(0, whole, 1).at(times[-1]) * whole // step
        if end <= self._next:
            return bisect_left(times, Grid(self._next, step, 0).edges()[0])
        grid = Grid(self._next, step, end - self._next)
        places = [bisect_left(times, edge) for edge in grid.edges()]
        held = _held(times, places, pauses)
        for subject, of in columns.items():
            for name, values in of.items():
                self._append((subject, name), values, places, held)
        self._next = end
        if due and later > step:
            self._lengthen(later)
        return places[-1]

    def _lengthen_for(self, time: float) -> int:
        """Lengthen cells at once where the next length is not enough, as after a pause of days; return their length.

        Rows since the last whole cell are lost in it.
        """
        step = int(self.step)
        longer = [one for one in STEPS if one > step]
        wanted = next(
            (one for one in longer if Grid(0, one, 1).at(time) - self._first * step // one <= self._most), STEPS[-1]
        )
        if longer and wanted > longer[0]:
            self._lengthen(wanted)
        return int(self.step)

    def _append(
        self, place: tuple[str, str], values: Sequence[float], rows: Sequence[int], held: Mapping[int, int]
    ) -> None:
        """Append the cells of a metric; `rows`: the place of the first row of each, and `held` that of one before."""
        line = self._lines.get(place)
        if line is None:
            # NaN is not itself; in place, because a call would cost more than the rest of the loop.
            if not any(value == value for value in values[: rows[-1]]):
                return
            line = self._lines[place] = Line(int(self.step), self._first, self._next)
        for cell, (begin, end) in enumerate(pairwise(rows)):
            first, last = (held[cell], held[cell] + 1) if cell in held else (begin, end)
            known = values[first:last]
            total = sum(known)
            if total != total:
                known = [value for value in known if value == value]
                total = sum(known)
            seconds = line.step / max(1, last - first)
            line.low.append(min(known, default=inf))
            line.high.append(max(known, default=-inf))
            line.total.append(seconds * total)
            line.weight.append(seconds * len(known))

    def _lengthen(self, step: int) -> None:
        """Make one cell of several."""
        many = step // int(self.step)
        before = self._first % many
        """Short cells that the first long one lacks."""
        found = {place: _joined(line, step, many, before) for place, line in self._lines.items()}
        self._lines, self.step = found, float(step)
        self._first, self._next = self._first // many, -(-self._next // many)


def _held(times: Sequence[float], places: Sequence[int], pauses: Collection[float]) -> dict[int, int]:
    """Return the place of the row before each cell that has none, as far as it stands for that too."""
    empty = ((cell, begin) for cell, (begin, end) in enumerate(pairwise(places)) if begin == end)
    return {cell: row - 1 for cell, row in empty if 0 < row < len(times) and times[row] not in pauses}


def _joined(line: Line, step: int, many: int, before: int) -> Line:
    """Return a line with `many` cells in each, of which the first lacks `before`."""
    found = Line(step, line.first // many, line.first // many)
    ranges = [(max(0, begin), begin + many) for begin in range(-before, len(line), many)]
    for begin, end in ranges:
        found.low.append(min(line.low[begin:end]))
        found.high.append(max(line.high[begin:end]))
        found.total.append(sum(line.total[begin:end]))
        found.weight.append(sum(line.weight[begin:end]))
    return found


KEEP = 3600
SLACK = 240
"""Old values are cut off this many at a time."""
EMPTY: array[float] = array("d")
_USUAL = 5
"""Jumps from which the distance of frames is estimated: a recording that is played fast has an interval of its own."""

_MEMORY = {"gpu.memory_reserved", *(name for name in GPU_INDEX if name.startswith("gpu.run_"))}
"""Memory breakdown of a device."""
_CHARTED = {panel.metric.name for panel in PANELS}


_Kept = tuple[tuple[str, int, bool], ...]


def _kept(metrics: Sequence[Metric], index: dict[str, int], wanted: Collection[str] | None = None) -> _Kept:
    """Name, place in a sample and whether it is a counter, of what is wanted, or else charts and alarms need."""
    return tuple(
        (metric.name, index[metric.name], metric.kind is Kind.COUNTER)
        for metric in metrics
        if (_is_usual(metric) if wanted is None else metric.name in wanted)
    )


def _is_usual(metric: Metric) -> bool:
    # A finding about a PCIe link goes by how it was under load.
    return metric.name in _CHARTED or metric.warn < float("inf") or metric.name in _MEMORY or metric.name in PCIE_LINK


GPU_KEPT = _kept(GPU_METRICS, GPU_INDEX)
HOST_KEPT = _kept(HOST_METRICS, HOST_INDEX)


class RecentHistory:
    """Columns of numbers that all share one column of times. Counters are kept as rates.

    Where time jumps by more than `PAUSE` intervals a row without values stands in the middle of the jump, so that
    a chart draws a gap there. It has what charts need, or else the `metrics` that are named.
    """

    def __init__(self, keep: int = KEEP, metrics: Collection[str] | None = None) -> None:
        self.keep = keep
        self._of_gpu = GPU_KEPT if metrics is None else _kept(GPU_METRICS, GPU_INDEX, metrics)
        self._of_host = HOST_KEPT if metrics is None else _kept(HOST_METRICS, HOST_INDEX, metrics)
        self.clear()

    def clear(self) -> None:
        """Forget everything, as when time has jumped back."""
        self._times: array[float] = array("d")
        self._offset = NAN
        """Seconds by which the wall clock was ahead of the steady one."""
        self._columns: dict[str, dict[str, array[float]]] = {}
        self._counters: dict[str, tuple[int, Sequence[float]]] = {}
        self._jumps: deque[float] = deque(maxlen=_USUAL)
        self._pauses: set[float] = set()

    def add(self, frame: Frame) -> None:
        """Append a frame; one that is a little older than the last is left out, much older starts afresh."""
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
            if sample.state is Availability.OK:  # else its values are those of an earlier moment, or none
                self._append(sample.device.uuid, sample.values, self._of_gpu, counted_at(sample, frame), longest)
            else:
                # A rate over the time in which it did not answer was not measured.
                self._counters.pop(sample.device.uuid, None)
        self._times.append(frame.time)
        self._level()
        if len(self._times) >= self.keep + SLACK:
            self._trim()

    def only(self, *subjects: str, metrics: Collection[str] | None = None) -> RecentHistory:
        """Copy some subjects, or some metrics of them, for a reader in another thread."""
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
        """Take over the content of `other`, which is not used any more."""
        self._times, self._columns, self._pauses = other._times, other._columns, other._pauses

    def query(self, query: Query) -> Mapping[str, Series]:
        """Return a series for each metric of the query, all on the same times; one that is unknown is a gap."""
        first, last = bisect_left(self._times, query.begin), bisect_right(self._times, query.end)
        columns = [self._values(query.subject, name) for name in query.metrics]
        if query.grid is None and last - first <= query.points:
            alone = list(self._times[first:last])
            lines = [list(column[first:last]) or [NAN] * len(alone) for column in columns]
            return {name: Series(alone, line, line, line) for name, line in zip(query.metrics, lines, strict=True)}
        grid = query.grid or aligned(self._times[first], self._times[last - 1], query.points)
        before = max(0, first - 1)  # may stand for the first buckets
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
                series._replace(seen=seconds_seen(self._times[rows], column[rows], grid, self._pauses))
                for series, column in zip(found, columns, strict=True)
            ]
        return dict(zip(query.metrics, found, strict=True))

    @property
    def begin(self) -> float:
        """The oldest time there is (s since 1970), or NaN."""
        return self._times[0] if self._times else NAN

    @property
    def end(self) -> float:
        """The newest time there is (s since 1970), or NaN."""
        return self._times[-1] if self._times else NAN

    @property
    def first_frame(self) -> float:
        """The time of the oldest frame (s since 1970), or NaN; what was kept longer may begin before."""
        return self._times[0] if self._times else NAN

    @property
    def pause(self) -> float:
        """The middle of the newest pause (s since 1970), or NaN."""
        return max(self._pauses, default=NAN)

    def sampled(self, begin: float = -inf) -> list[float]:
        """The times of frames since `begin`, in seconds since 1970."""
        return [time for time in self._times[bisect_left(self._times, begin) :] if time not in self._pauses]

    def seconds_of_frames(self, begin: float, end: float) -> float:
        """The seconds from `begin` to `end` (s since 1970) in which frames hold, whatever values they have."""
        first, last = bisect_left(self._times, begin), bisect_left(self._times, end)
        times = self._times[max(0, first - 1) : last + 1]
        there = [NAN if time in self._pauses else 0.0 for time in times]
        return sum(seconds_seen(times, there, Grid(0, end - begin, 1, begin), self._pauses))

    def at(self, subject: str, metric: str, times: Iterable[float]) -> list[float]:
        """The values of the frames that came at these times; NaN where none came, or it had no value."""
        column = self._values(subject, metric)
        places = ((bisect_left(self._times, time), time) for time in times)
        return [column[place] if place < len(column) and self._times[place] == time else NAN for place, time in places]

    def subjects(self) -> list[str]:
        """The machine and every device that has values."""
        return list(self._columns)

    def _values(self, subject: str, metric: str) -> array[float]:
        """As long as `_times`, or empty where nothing is known."""
        return self._columns.get(subject, {}).get(metric, EMPTY)

    def last(self, subject: str, metric: str, until: float = inf) -> float:
        """The value of the newest frame that is not later than `until` (s since 1970), or NaN."""
        values = self._values(subject, metric)
        place = bisect_right(self._times, until) - 1
        return values[place] if values and place >= 0 else NAN

    def peak(self, subject: str, metric: str, begin: float, end: float) -> float:
        """The largest value that is known from `begin` to `end` (s since 1970), or NaN."""
        values = self._values(subject, metric)[bisect_left(self._times, begin) : bisect_right(self._times, end)]
        # NaN is not itself; in place, because a call would cost more than the rest of the loop.
        return max((value for value in values if value == value), default=NAN)

    def has(self, subject: str, metric: str) -> bool:
        """Whether any value is known."""
        return any(value == value for value in self._values(subject, metric))

    def _mark_pause(self, frame: Frame) -> None:
        """Append a row without values where a frame comes long after the last one."""
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
        """Whether the machine slept before a frame, or its clock was set: no counter is followed over that."""
        before, self._offset = self._offset, frame.time - frame.monotonic_ns / SECOND
        return abs(self._offset - before) > STEADY

    def _append(self, subject: str, values: Sequence[float], kept: _Kept, when: int, longest: int) -> None:
        """A row of a subject; `when` (ns, CLOCK_MONOTONIC) its counters held their values."""
        columns = self._columns.get(subject)
        if columns is None:
            gap = [NAN] * len(self._times)
            columns = self._columns[subject] = {name: array("d", gap) for name, _, _ in kept}
        before = self._counters.get(subject)
        self._counters[subject] = (when, values)
        # A rate over a pause would draw a value where none was seen.
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
        """A device without values in this frame has a gap there."""
        length = len(self._times)
        for columns in self._columns.values():
            for column in columns.values():
                if len(column) < length:
                    column.append(NAN)

    def _trim(self) -> None:
        self._forget(SLACK)

    def _forget(self, rows: int) -> None:
        """Leave out so many of the oldest rows."""
        self._pauses.difference_update(self._times[:rows])
        del self._times[:rows]
        for columns in self._columns.values():
            for column in columns.values():
                del column[:rows]
        for subject in [key for key, columns in self._columns.items() if key and _is_blank(columns)]:
            del self._columns[subject]


def _is_blank(columns: dict[str, array[float]]) -> bool:
    return not any(value == value for column in columns.values() for value in column)
