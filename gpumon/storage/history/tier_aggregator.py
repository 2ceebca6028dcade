"""`Aggregator`: combines ticks into cells, cells into the cells of coarser tiers, and passes full blocks to the writer.

A tick belongs to the cell that contains its wall-clock time. Cells are created in chronological order. If the clock is
set back a little, ticks are ignored until it has caught up. If it is set back further, the aggregator starts again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import nan
from operator import itemgetter
from typing import NamedTuple

from gpumon.common.clock import SECOND
from gpumon.model.energy import FOLLOWS
from gpumon.model.frame import Frame, Tick
from gpumon.model.metrics import GPU_INDEX, Availability
from gpumon.storage.history.buckets import is_gap
from gpumon.storage.history.cell import HistoryCell, add_growth, cell_from_samples, fold, unknown_cell
from gpumon.storage.history.counters import PAUSE, SHORTEST_INTERVAL, Growth, GrowthMeter
from gpumon.storage.history.query import HOST
from gpumon.storage.history.tiers import SHAPES, TierColumns, TierShape, columns_of

_ENERGY, _LIMIT = GPU_INDEX["gpu.energy"], GPU_INDEX["gpu.power_limit"]
SET_BACK = 60.0
"""If the clock is set back by at least this many seconds, the aggregator starts again."""


class Block(NamedTuple):
    """Cells of one subject that are stored together, by their index in the block."""

    shape: TierShape
    number: int
    subject: str
    cells: Mapping[int, HistoryCell]


class _OpenTier:
    """The cells of a tier that are not stored yet, or are not merged into the next tier (`coarser`) yet.

    Full blocks are passed to `write`. The cells that together form one cell of the next tier are called a group.
    """

    def __init__(self, shape: TierShape, write: Callable[[Block], object], coarser: _OpenTier | None) -> None:
        self._shape = shape
        self._write = write
        self._coarser = coarser
        self._group_size = coarser._shape.step // shape.step if coarser else shape.cells
        """Number of cells in a group."""
        self._cells: dict[str, dict[int, HistoryCell]] = {}
        """Cells by subject and number (since 1970)."""
        self._first_group = 0
        """Number of the first group that was not merged into the next tier yet."""
        self._groups: set[int] = set()
        """Numbers of the groups with cells that were not merged into the next tier yet."""
        self.first_open = 0
        """Number of the first block that was not passed to `write` yet."""

    def add(self, number: int, cells: Mapping[str, HistoryCell]) -> None:
        """Add the cell with this number of each subject. Calls must be in chronological order."""
        self._groups.add(number // self._group_size)
        for subject, cell in cells.items():
            self._cells.setdefault(subject, {})[number] = cell

    def add_growth(self, number: int, subject: str, growth: Growth) -> None:
        """Add growth of counters to a cell that was added without it.

        Does nothing if the cell has already been merged into the next tier.
        """
        if number < self._first_group * self._group_size:
            return
        cells, columns = self._cells.setdefault(subject, {}), columns_of(subject)
        cell = cells.get(number) or unknown_cell(len(columns.names))
        cells[number] = add_growth(cell, columns.counters, growth)
        self._groups.add(number // self._group_size)

    def advance(self, number: int) -> None:
        """Merge the groups, and write the blocks, that end before the cell with this number.

        After this call, cells before this number must not be added or changed.
        """
        group, block = number // self._group_size, number // self._shape.cells
        if group > self._first_group:
            self._merge_groups(group)
        if block > self.first_open:
            self._write_blocks(block)
            self.first_open = block
        if self._coarser is not None:
            self._coarser.advance(group)

    def finish(self) -> None:
        """Write the open blocks of this tier and of all coarser tiers, even if they are not full."""
        end = max((number for cells in self._cells.values() for number in cells), default=0) + 1
        self._merge_groups(-(-end // self._group_size))
        self._write_blocks(-(-end // self._shape.cells))
        if self._coarser is not None:
            self._coarser.finish()
        self._cells, self._groups = {}, set()
        self._first_group = self.first_open = 0

    def _merge_groups(self, end: int) -> None:
        """Merge the cells of each group before number `end` into a cell of the next tier."""
        self._first_group, size = end, self._group_size
        for group in sorted(group for group in self._groups if group < end):
            self._groups.remove(group)
            merged = {}
            for subject, cells in self._cells.items() if self._coarser else ():
                numbers = [number for number in range(group * size, (group + 1) * size) if number in cells]
                if numbers:
                    merged[subject] = fold([cells[number] for number in numbers])
            if self._coarser is not None:
                self._coarser.add(group, merged)

    def _write_blocks(self, end: int) -> None:
        """Pass the blocks before number `end` to `write`, and remove the cells that are not needed any more."""
        count = self._shape.cells
        needed = end * count if self._coarser is None else min(end * count, self._first_group * self._group_size)
        blocks: dict[int, list[Block]] = {}
        for subject, cells in list(self._cells.items()):
            for block in {number // count for number in cells if self.first_open * count <= number < end * count}:
                numbers = range(block * count, (block + 1) * count)
                own = {number - numbers.start: cells[number] for number in numbers if number in cells}
                blocks.setdefault(block, []).append(Block(self._shape, block, subject, own))
            self._cells[subject] = {number: cell for number, cell in cells.items() if number >= needed}
            if not self._cells[subject]:
                del self._cells[subject]
        for block in sorted(blocks):
            for each in blocks[block]:
                self._write(each)


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
        tier: _OpenTier | None = None
        for shape in reversed(SHAPES):
            tier = _OpenTier(shape, write, tier)
        assert tier is not None
        self._finest = tier
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

    def has_sample_since(self, time: float) -> bool:
        """Return whether the subject had a sample at or after `time` (s since 1970)."""
        return self._time >= time

    def power_limit(self, values: Sequence[float]) -> float:
        """Return the enforced power limit of a GPU in W. It is NaN for the machine, or if unknown."""
        return values[_LIMIT] if self._is_gpu else nan

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
        return cell_from_samples(rows, self._counters, growth, seconds)
