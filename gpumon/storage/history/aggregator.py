"""`Aggregator`: combines ticks into cells, cells into the cells of coarser tiers, and passes full blocks to the writer.

A tick belongs to the cell that contains its wall-clock time. Cells are created in chronological order. If the clock is
set back a little, ticks are ignored until it has caught up. If it is set back further, the aggregator starts again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from math import nan
from operator import itemgetter
from typing import NamedTuple

from gpumon.common.clock import SECOND
from gpumon.model.energy import FOLLOWS, most_power
from gpumon.model.frame import Frame, Tick
from gpumon.model.metrics import GPU_INDEX, Availability
from gpumon.storage.history.buckets import is_gap
from gpumon.storage.history.cell import HistoryCell, cell_from_samples
from gpumon.storage.history.coarser_tiers import Block as Block
from gpumon.storage.history.coarser_tiers import FinestTier
from gpumon.storage.history.counters import PAUSE, SHORTEST_INTERVAL, GrowthMeter
from gpumon.storage.history.query import HOST
from gpumon.storage.history.sample_cells import EvenCells
from gpumon.storage.history.tiers import SHAPES, TierColumns
from gpumon.storage.history.tiers import columns_of as columns_of

_ENERGY, _LIMIT = GPU_INDEX["gpu.energy"], GPU_INDEX["gpu.power_limit"]
SET_BACK = 60.0
"""If the clock is set back by at least this many seconds, the aggregator starts again."""


class SubjectValues(NamedTuple):
    """Values of one subject (a GPU or the machine) at a tick."""

    subject: str
    values: Sequence[float]
    read_ns: int
    """Time at which the counters were read: ns, CLOCK_MONOTONIC."""


class TickValues(NamedTuple):
    """The data of a tick that the history stores."""

    time_ns: int
    monotonic_ns: int
    interval_ns: int
    rows: Sequence[SubjectValues]


def values_from_tick(tick: Tick) -> TickValues:
    """Return the values of a tick for the history. Devices that did not return current values are left out."""
    return TickValues(tick.time_ns, tick.monotonic_ns, tick.interval_ns, _rows(tick))


def values_from_frame(frame: Frame) -> TickValues:
    """Return the values of a ring frame for the history. Devices without current values are left out."""
    return TickValues(round(frame.time * SECOND), frame.monotonic_ns, round(frame.interval * SECOND), _rows(frame))


def _rows(tick: Tick | Frame) -> list[SubjectValues]:
    rows = {HOST: SubjectValues(HOST, tick.host, tick.monotonic_ns)}
    for sample in tick.samples:
        uuid = sample.device.uuid
        if sample.state is Availability.OK and uuid not in rows:  # ignore a second device with the same UUID
            read_ns = sample.counters_monotonic_ns or sample.monotonic_ns or tick.monotonic_ns
            rows[uuid] = SubjectValues(uuid, sample.values, read_ns)
    return list(rows.values())


class Aggregator:
    """Combines ticks, which must be in order, into cells, and passes full blocks to `write`."""

    def __init__(self, write: Callable[[Block], object]) -> None:
        self._finest = FinestTier(write)
        self._step = SHAPES[0].step
        self.done_ns = 0
        """Ticks before this time (ns, CLOCK_MONOTONIC) are in written blocks; 0 before the first."""
        self._block = -1
        """Number of the open block of the finest tier."""
        self._border_ns = 0
        """Time of the first tick in the open block: ns, CLOCK_MONOTONIC."""
        self._last_ns = 0
        """Time of the last tick: ns, CLOCK_MONOTONIC."""
        self._last_written_cell = 0
        """Number of the last cell that an earlier daemon has written."""
        self._subjects: dict[str, _Subject] = {}
        self._time = self._monotonic = nan
        self._cell = 0
        """The open cell, by its number since 1970; 0 before the first tick."""

    def add_all(self, ticks: Sequence[TickValues]) -> None:
        """Add several ticks in order.

        Ticks that are one second apart, the usual case, are added together, which is faster.
        """
        done = 0
        while done < len(ticks):
            times = self._even_times(ticks, done)
            count = len(times)
            # If one tick is irregular, the ticks before it can still be added together.
            while count > 1 and not self._add_even(ticks[done : done + count], times[:count]):
                count //= 2
            if count < 2:
                count = 1
                self.add(ticks[done])
            done += count

    def _even_times(self, ticks: Sequence[TickValues], first: int) -> list[float]:
        """Return the times (s since 1970) of the ticks that can be added together, starting with index `first`.

        Each of these ticks fills one cell of the open block.
        """
        names, times = [row.subject for row in ticks[first].rows], list[float]()
        present = [self._subjects.get(name) for name in names]
        others = self._subjects.keys() - set(names)
        if not all(subject is not None and subject.is_even(self._cell) for subject in present):
            return times
        if any(self._subjects[name].is_open for name in others):
            return times
        time, monotonic, cell = self._time, self._monotonic, self._cell
        for tick in islice(ticks, first, None):
            now, steady = tick.time_ns / SECOND, tick.monotonic_ns / SECOND
            cell += 1
            if (
                tick.interval_ns != SECOND
                or int(now) != cell
                or cell // SHAPES[0].cells != self._block
                or [row.subject for row in tick.rows] != names
                or is_gap(steady - monotonic, now - time, 1.0)
            ):
                break
            times.append(now)
            time, monotonic = now, steady
        return times

    def _add_even(self, ticks: Sequence[TickValues], times: Sequence[float]) -> bool:
        """Add several ticks together, and return True.

        Return False, and add nothing, if a counter was not read in its own cell or decreased.
        """
        updates, cells, count = [], {}, len(ticks)
        for number, (name, *_) in enumerate(ticks[0].rows):
            subject, rows = self._subjects[name], [tick.rows[number] for tick in ticks]
            read = [
                time - (tick.monotonic_ns - row.read_ns) / SECOND
                for time, tick, row in zip(times, ticks, rows, strict=True)
            ]
            counters = [subject.counters(row.values) for row in rows]
            max_power = min(map(most_power, {subject.power_limit(row.values) for row in rows}))
            growth = subject.meter.even_growth(self._cell, read, counters, max_power)
            if growth is None:
                return False
            advance = partial(subject.meter.advance, self._cell + count, read[-1], counters[-1], growth)
            updates.append((subject, rows[-1].values, advance))
            cells[name] = EvenCells([subject.rows[0], *(row.values for row in rows[:-1])], growth.rates, growth.raw)
        for subject, values, advance in updates:
            advance()
            subject.rows, subject.held = [values], values
        self._finest.add_even(self._cell, cells)
        self._cell += count
        self._time, self._last_ns = times[-1], ticks[-1].monotonic_ns
        self._monotonic = self._last_ns / SECOND
        self._finest.advance(self._first_open_cell(self._cell, self._time))
        self._update_done()
        return True

    def add(self, tick: TickValues) -> None:
        """Add the next tick."""
        time, monotonic = tick.time_ns / SECOND, tick.monotonic_ns / SECOND
        if time <= self._time:
            if time > self._time - SET_BACK:
                return
            self.finish()
        planned, cell = tick.interval_ns / SECOND, int(time // self._step)
        interval = max(planned, SHORTEST_INTERVAL)
        passed, longest = monotonic - self._monotonic, PAUSE * interval
        if is_gap(passed, time - self._time, interval):
            self._handle_gap(cell)
        for row in tick.rows:
            self._add_counters(row, time - (tick.monotonic_ns - row.read_ns) / SECOND, cell, longest)
        if cell > self._cell:
            self._close(cell)
            self._finest.advance(self._first_open_cell(cell, time))
        for row in tick.rows:
            self._subjects[row.subject].add(row.values, time, min(planned, self._step))
        answered = {row.subject for row in tick.rows}
        for name, subject in self._subjects.items():
            if name not in answered:
                subject.expire(self._step)
        self._time, self._monotonic, self._last_ns = time, monotonic, tick.monotonic_ns
        if cell // SHAPES[0].cells != self._block:
            self._block, self._border_ns = cell // SHAPES[0].cells, tick.monotonic_ns
            since = time - 2 * SHAPES[0].block  # a subject without samples for this long starts again if it returns
            self._subjects = {
                name: subject for name, subject in self._subjects.items() if subject.has_sample_since(since)
            }
        self._update_done()

    def _add_counters(self, row: SubjectValues, read: float, cell: int, longest: float) -> None:
        """Add the counters of a row, which were read at `read` (s since 1970).

        Growth that belongs to closed cells is added to these. `cell`: cell of the tick. `longest`: if more seconds than
        this have passed since the last reading, there is a gap.
        """
        subject = self._subjects.get(row.subject)
        if subject is None:
            subject = self._subjects[row.subject] = _Subject(columns_of(row.subject), row.subject != HOST)
        limit = subject.power_limit(row.values)
        subject.meter.add(read, subject.counters(row.values), self._step, max(longest, FOLLOWS), limit)
        end = self._cell if subject.rows or self._cell == self._last_written_cell else cell
        for number, growth in subject.meter.pop_late(end):
            if number > self._last_written_cell:
                self._finest.add_growth(number, row.subject, growth)

    def _update_done(self) -> None:
        if self._border_ns > self.done_ns and self._finest.first_open == self._block:
            self.done_ns = self._border_ns

    def _first_open_cell(self, cell: int, time: float) -> int:
        """Return the number of the first cell, at most `cell`, that readings after `time` (s since 1970) may change."""
        for subject in self._subjects.values():
            read = subject.meter.time
            if time - FOLLOWS < read < cell * self._step:
                cell = int(read // self._step)
        return cell

    def add_predecessor(self, tick: TickValues) -> None:
        """Add the last tick that an earlier daemon has written. Growth of counters is counted from its values."""
        self.add(tick)
        self._last_written_cell = self._cell
        for subject in self._subjects.values():
            subject.drop_sample()

    def finish(self) -> None:
        """Write all open blocks, even if they are not full."""
        if self._subjects:
            for subject in self._subjects.values():
                subject.expire(self._step)
            self._close(self._cell + 1)
        self._finest.finish()
        self._subjects.clear()
        self._time = self._monotonic = nan
        self._cell, self._block, self.done_ns = 0, -1, self._last_ns + 1
        self._border_ns = 0

    def _handle_gap(self, cell: int) -> None:
        """Handle a gap before a tick in `cell`: values are not valid during the gap, and counter growth is unknown."""
        for subject in self._subjects.values():
            subject.expire(self._step)
        if cell > self._cell:
            self._close(cell)
        for subject in self._subjects.values():
            subject.meter.reset()
        self._finest.advance(cell)

    def _close(self, until: int) -> None:
        """Close the open cell. Fill the cells from it to `until` (not included) if the last values are still valid."""
        if not self._cell:
            self._cell = until
            return
        cells = {
            name: subject.close(self._cell, self._step) for name, subject in self._subjects.items() if subject.rows
        }
        if self._cell == self._last_written_cell:
            for name in self._subjects.keys() - cells.keys():
                self._subjects[name].meter.pop_cell(self._cell)
        self._finest.add(self._cell, cells)
        for cell in range(self._cell + 1, until):
            repeated = {
                name: subject.repeat(cell, self._step) for name, subject in self._subjects.items() if subject.held
            }
            if not repeated:
                break
            self._finest.add(cell, repeated)
        self._cell = until


class _Subject:
    """The open cell of one subject."""

    def __init__(self, columns: TierColumns, is_gpu: bool) -> None:
        self.rows: list[Sequence[float]] = []
        self.held: Sequence[float] | None = None
        """Values that are valid until the next tick."""
        self.interval = 0.0
        """Planned seconds for which a sample is valid."""
        self._since = self._time = nan
        """End of the last gap, and time of the last sample: s since 1970."""
        self._seconds_before_gap = 0.0
        """Seconds of the open cell with valid values before a gap in it."""
        self._is_gpu = is_gpu
        self.meter = GrowthMeter(len(columns.counters), columns.counters.index(_ENERGY) if is_gpu else -1)
        self.counters: Callable[[Sequence[float]], Sequence[float]] = itemgetter(*columns.counters)
        """Function that returns the counters in a row of values."""
        self._counters = columns.counters

    @property
    def is_open(self) -> bool:
        """Whether the subject has values in the open cell, or values that are still valid."""
        return bool(self.rows) or self.held is not None

    def has_sample_since(self, time: float) -> bool:
        """Return whether the subject had a sample at or after `time` (s since 1970)."""
        return self._time >= time

    def power_limit(self, values: Sequence[float]) -> float:
        """Return the enforced power limit of a GPU in W. It is NaN for the machine, or if unknown."""
        return values[_LIMIT] if self._is_gpu else nan

    def is_even(self, cell: int) -> bool:
        """Return whether the open cell is `cell` and has one sample that is valid for the whole cell."""
        is_whole = len(self.rows) == 1 and self.interval == 1.0 and self.held is not None
        return is_whole and self.meter.is_whole(cell)

    def add(self, values: Sequence[float], time: float, interval: float) -> None:
        """Add a sample taken at `time` (s since 1970), valid until the next one, or for `interval` s before a gap."""
        if self.held is None:
            self._since = time
        self.rows.append(values)
        self.held, self._time, self.interval = values, time, interval

    def drop_sample(self) -> None:
        """Remove the last sample and its planned time, because another daemon has written them."""
        self.rows = []
        self._since = self._time + self.interval

    def close(self, cell: int, step: int) -> HistoryCell:
        """Close the open cell, and return it. `cell`: its number. `step`: its length in seconds."""
        if self.interval < step:  # if a tick was skipped, the previous one is still valid
            end = float((cell + 1) * step)
            held = end - max(self._since, end - step) if self.held is not None else 0.0
            known = max(0.0, min(self._seconds_before_gap + held, float(step)))
        else:
            known = float(step)
        closed = self._build(cell, self.rows, known)
        self.rows, self._seconds_before_gap = [], 0.0
        return closed

    def expire(self, step: int) -> None:
        """End the validity of the last values after their planned time, at most at the end of their cell.

        Called before a gap and at the end.
        """
        if self.held is not None and self.rows:
            begin = float(self._time // step * step)
            self._seconds_before_gap += min(self._time + self.interval, begin + step) - max(self._since, begin)
        self.held = None

    def repeat(self, cell: int, step: int) -> HistoryCell:
        """Return a cell that has no sample of its own and is filled with the last values."""
        assert self.held is not None
        return self._build(cell, [self.held], float(step))

    def _build(self, cell: int, rows: Sequence[Sequence[float]], seconds: float) -> HistoryCell:
        growth = self.meter.pop_cell(cell)
        return cell_from_samples(rows, self._counters, growth.rates, growth.raw, (seconds, growth.seconds))
