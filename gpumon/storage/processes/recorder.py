"""`ProcessRecorder`: writes the processes of each tick into the history file, and past hours into a coarse tier."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from gpumon.common.clock import SECOND
from gpumon.common.columnar import DamagedBlock
from gpumon.common.procfs import boot_id
from gpumon.model.frame import Tick
from gpumon.storage.follower import HistoryPlugin
from gpumon.storage.history.tiers import PROCESS_SHAPES
from gpumon.storage.processes.blocks import (
    MAX_SPAN_ROWS,
    MEASURES,
    TEXTS,
    Cell,
    IndexedCell,
    ProcessSpan,
    add_values,
    empty_cell,
    pack_cells,
    pack_spans,
    read_values,
    unpack_spans,
)
from gpumon.storage.processes.reader import last_end
from gpumon.storage.processes.snapshot import (
    MAX_START_DIFFERENCE,
    NO_NUMBER,
    ProcessNumbers,
    Snapshot,
    Snapshots,
    TrackedProcess,
)
from gpumon.storage.sqlite.cells import clean_name, typed_rows
from gpumon.storage.sqlite.write import transaction

_FINE, _COARSE = PROCESS_SHAPES
_HOUR = _COARSE.block * SECOND
_MAX_ID = 2**62
"""Ids above this exist only in a damaged file."""
_IS_EXHAUSTED = (
    "SELECT max(ifnull((SELECT max(id) FROM process), 0),"
    " ifnull((SELECT max(seq) FROM sqlite_sequence WHERE name = 'process'), 0)) >= ?"
)
_RESET_SEQUENCE = "UPDATE sqlite_sequence SET seq = (SELECT ifnull(max(id), 0) FROM process) WHERE name = 'process'"
_PUT_BLOCK = "INSERT OR REPLACE INTO process_block (tier, begin, end, data) VALUES (?, ?, ?, ?)"
_FIND_DUE_HOURS = (
    "SELECT DISTINCT begin / ?1 FROM process_block WHERE tier = ?2 AND begin < ?4 AND begin >= ?3"
    " UNION SELECT DISTINCT end / ?1 FROM process_block WHERE tier = ?2 AND end < ?4 AND end >= ?3 ORDER BY 1"
)


_FIND = (
    "SELECT id FROM process WHERE pid = ? AND device = ? AND boot = ? AND (abs(started - ?) <= ? OR first = ?)"
    " ORDER BY id DESC LIMIT 1"
)
_INSERT = (
    f"INSERT INTO process (device, pid, boot, started, kind, first, last, {', '.join(TEXTS)})"
    f" VALUES (?, ?, ?, ?, ?, ?, ?{', ?' * len(TEXTS)})"
)
_RENAMED = ", ".join(f"{text} = ?" for text in TEXTS)
# `first` becomes earlier if the clock had been ahead. Snapshots are written in order, so the newest one sets `last`.
_UPDATE = f"UPDATE process SET started = ?, first = min(first, ?), last = ?, {_RENAMED} WHERE id = ?"


def _texts(tracked: TrackedProcess) -> list[str]:
    return list(map(clean_name, tracked.texts))


def coarsen(connection: sqlite3.Connection, until_ns: int) -> None:
    """Write the blocks of the coarser tier for all hours before `until_ns` (ns since 1970) that are missing in it.

    Needs an open transaction. Hours that a killed daemon did not write are included.
    """
    (newest,) = connection.execute(
        "SELECT max(end) FROM process_block WHERE tier = ? AND end <= ?", (_COARSE.number, until_ns)
    ).fetchone()
    due = connection.execute(_FIND_DUE_HOURS, (_HOUR, _FINE.number, newest or 0, until_ns // _HOUR * _HOUR)).fetchall()
    for (hour,) in due:
        cells = _merge_spans(_spans_between(connection, hour * _HOUR, (hour + 1) * _HOUR))
        if cells:
            row = (_COARSE.number, hour * _HOUR, (hour + 1) * _HOUR, pack_cells(cells))
            connection.execute(_PUT_BLOCK, row)


def _spans_between(connection: sqlite3.Connection, begin: int, end: int) -> Iterator[ProcessSpan]:
    """Yield the spans whose middle is between two times (ns since 1970), in order."""
    rows = connection.execute(
        "SELECT data FROM process_block WHERE tier = ? AND begin < ? AND end > ? ORDER BY begin",
        (_FINE.number, end, begin),
    )
    for (data,) in typed_rows(rows, bytes):
        with suppress(DamagedBlock):  # leaves a gap
            yield from (span for span in unpack_spans(data) if begin <= span.middle_ns < end)


def _merge_spans(spans: Iterable[ProcessSpan]) -> list[IndexedCell]:
    cells: dict[tuple[int, int], Cell] = {}
    for span in spans:
        offset = span.middle_ns // (_COARSE.step * SECOND) % _COARSE.cells
        for number, *values in zip(span.numbers, *span.columns, strict=True):
            add_values(cells.setdefault((number, offset), empty_cell()), values, span.seconds)
    return [IndexedCell(number, offset, cell) for (number, offset), cell in cells.items()]


_NO_COLUMNS: Sequence[Sequence[float]] = ((),) * len(MEASURES)


def span_from_snapshot(snapshot: Snapshot, numbers: Sequence[int]) -> ProcessSpan:
    """Convert a snapshot to a span. `numbers` has the number of each process; `NO_NUMBER` means that it is left out."""
    values = list(map(read_values, snapshot.processes[: len(numbers)]))
    if NO_NUMBER in numbers:
        values = [row for row, number in zip(values, numbers, strict=True) if number != NO_NUMBER]
        numbers = [number for number in numbers if number != NO_NUMBER]
    return ProcessSpan(
        snapshot.begin_ns, snapshot.ns / SECOND, numbers, tuple(zip(*values, strict=True)) or _NO_COLUMNS
    )


class ProcessRecorder(HistoryPlugin[list[Snapshot]]):
    """Writes processes into the history file of a daemon, as a plugin of `HistoryRecorder`.

    The sampling thread only takes snapshots of the process list. All other work is done when the snapshots are written.
    """

    def __init__(self) -> None:
        self._snapshots = Snapshots()
        self._boot = boot_id().hex()
        self._numbers = ProcessNumbers(self._resolve)
        self._connection: sqlite3.Connection | None = None
        self._hour = -1
        """Hour (since 1970) up to which the coarser tier is written; -1 if unknown."""
        self._is_stopping = False
        self._until_ns = 0
        """End of the last written block, ns since 1970."""

    def add(self, tick: Tick) -> None:
        """Add the next tick."""
        self._snapshots.add(tick.monotonic_ns, tick.time_ns, tick.interval_ns / SECOND, tick.processes, tick.samples)

    def on_open(self, connection: sqlite3.Connection) -> None:
        """Prepare for a newly opened file. With the next write, the numbers of all processes are read from it again."""
        self._numbers.reset()
        self._hour = -1
        self._until_ns = last_end(connection)
        if connection.execute(_IS_EXHAUSTED, (_MAX_ID,)).fetchone()[0]:  # because of a damaged row, no id is free
            with transaction(connection):
                connection.execute("DELETE FROM process WHERE id >= ?", (_MAX_ID,))
                connection.execute(_RESET_SEQUENCE)

    def take(self) -> list[Snapshot] | None:
        """Return the snapshots that are not written yet. They stay in the queue, which drops the oldest if it is full.

        Returns None if there are none.
        """
        return list(self._snapshots.finished) or None

    def end(self, batch: list[Snapshot], *, is_written: bool) -> None:
        """Remove written snapshots from the queue."""
        self._connection = None
        if not is_written:
            self._numbers.reset()
            self._hour = -1
            return
        taken = set(map(id, batch))
        while self._snapshots.finished and id(self._snapshots.finished[0]) in taken:
            self._snapshots.finished.popleft()

    def finish(self) -> None:
        """Finish the open snapshot, because no more ticks follow."""
        self._snapshots.finish()
        self._is_stopping = True

    def store(self, connection: sqlite3.Connection, batch: list[Snapshot]) -> None:
        """Write snapshots in an open transaction. Raises sqlite3.Error."""
        self._connection = connection
        spans, rows = [], 0
        for snapshot in batch:
            span = span_from_snapshot(snapshot, self._numbers.assign(snapshot))
            if span.numbers and rows + len(span.numbers) <= MAX_SPAN_ROWS:
                rows += len(span.numbers)
                spans.append(span)
        until_ns = batch[-1].end_ns
        for group in _split_at_clock_jumps(spans):
            last = group[-1]
            end = last.begin_ns + round(last.seconds * SECOND)
            if group[-1] is spans[-1] and 0 <= until_ns - end < _HOUR:
                end = until_ns
            self._put_block(connection, group, group[0].begin_ns, end)
        if self._until_ns > until_ns + SECOND:
            # The clock was set back, and there have been no processes since then. Write an empty block, because readers
            # use the end of the last block.
            self._put_block(connection, (), batch[-1].begin_ns, until_ns)
        changed, self._numbers.changed = self._numbers.changed, []
        hour = until_ns // _HOUR
        if hour != self._hour or self._is_stopping:
            changed += self._numbers.current()
        fields = [(one.started, one.first_ns, one.last_ns, *_texts(one), one.number) for one in changed]
        connection.executemany(_UPDATE, fields)
        if hour != self._hour:
            coarsen(connection, until_ns)
            self._hour = hour

    def _put_block(
        self, connection: sqlite3.Connection, spans: Sequence[ProcessSpan], begin_ns: int, end_ns: int
    ) -> None:  # fmt: skip
        connection.execute(_PUT_BLOCK, (_FINE.number, begin_ns, end_ns, pack_spans(spans)))
        self._until_ns = end_ns

    def _resolve(self, tracked: TrackedProcess) -> int:
        """Return the id of a process in the file. Insert the process if it is not in the file yet."""
        connection = self._connection
        assert connection is not None
        device, kind = clean_name(tracked.device), clean_name(tracked.kind)
        key = (tracked.pid, device, self._boot, tracked.started, MAX_START_DIFFERENCE, tracked.first_ns)
        if row := connection.execute(_FIND, key).fetchone():
            return int(row[0])
        times = (tracked.first_ns, tracked.last_ns)
        values = (device, tracked.pid, self._boot, tracked.started, kind, *times, *_texts(tracked))
        return connection.execute(_INSERT, values).lastrowid or 0


def _split_at_clock_jumps(spans: Sequence[ProcessSpan]) -> Iterator[list[ProcessSpan]]:
    """Split the list of spans at jumps of the clock, because a block can have only one start and one end."""
    group: list[ProcessSpan] = []
    for span in spans:
        if group and not 0 <= span.begin_ns - group[-1].begin_ns < _HOUR:
            yield group
            group = []
        group.append(span)
    if group:
        yield group
