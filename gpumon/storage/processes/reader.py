"""Reads processes and their usage from the history file, and adds data from the newest frames."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import ceil, floor, inf, nan
from typing import Any, NamedTuple

from gpumon.common.clock import SECOND
from gpumon.common.columnar import DamagedBlock
from gpumon.common.numbers import is_known
from gpumon.model.frame import Frame
from gpumon.model.process import Process
from gpumon.storage.history.tiers import HOUR, PROCESS_SHAPES, TierShape
from gpumon.storage.processes.blocks import TEXTS, Cell, add_values, empty_cell, read_values, unpack_cells, unpack_spans
from gpumon.storage.processes.snapshot import MAX_START_DIFFERENCE, NO_NUMBER, ProcessNumbers, Snapshots, TrackedProcess
from gpumon.storage.sqlite.cells import REAL, bounded_ns, clean_name, typed_rows

_FINE, _COARSE = PROCESS_SHAPES
_MAX_LAG = 2 * HOUR
"""Maximum seconds by which the column `last` of a running process may be out of date."""
_SELECT = f"SELECT id, device, pid, started, kind, first, last, {', '.join(TEXTS)} FROM process"


class StoredProcess(NamedTuple):
    """A process on a GPU, read from the history file or from frames."""

    number: int
    """Id in the file. It is negative if the process is only in the newest frames."""
    device: str
    """UUID of the GPU."""
    pid: int
    started: float
    """Start of the process, seconds since 1970; NaN if unknown."""
    kind: str
    """Kind of GPU work: `compute` or `graphics`."""
    first: float
    """Time when it was first seen on the GPU, s since 1970."""
    last: float
    """Time when it was last seen on the GPU, s since 1970."""
    name: str
    user: str
    container: str
    pod: str
    job: str


class Piece(NamedTuple):
    """Usage of one process from `begin` to `end` (s since 1970)."""

    number: int
    begin: float
    end: float
    cell: Cell


@dataclass(frozen=True, slots=True)
class FileRange:
    """The times that the process tables of the file cover, in s since 1970. Missing times are NaN."""

    fine: float = nan
    """Start of the finer tier."""
    coarse: float = nan
    """End of the coarser tier."""
    until: float = -inf
    """End of the newest block; -inf if there is none. Later data is only in frames."""
    present: frozenset[int] = frozenset()
    """Numbers of the processes that were running at this time."""


def file_range(db: sqlite3.Connection) -> FileRange:
    """Return the times that the process tables cover. Raises sqlite3.Error."""
    until = last_end(db) or None
    # Ignore blocks from years ago, which were written with a wrong clock.
    ((fine,),) = db.execute(
        "SELECT min(begin) FROM process_block WHERE tier = ? AND begin >= ? - ?",
        (_FINE.number, until, (_FINE.keep + HOUR) * SECOND),
    )
    ((coarse,),) = db.execute(
        "SELECT max(end) FROM process_block WHERE tier = ? AND end <= ifnull(?, end)", (_COARSE.number, until)
    )
    return FileRange(_seconds(fine), _seconds(coarse), until / SECOND if until else -inf, _present_numbers(db))


def last_end(db: sqlite3.Connection) -> int:
    """Return the end (ns since 1970) of the block written last; 0 if there is none. Raises sqlite3.Error.

    If the clock was set back, an older block may have a later end.
    """
    ends = db.execute("SELECT end FROM process_block WHERE tier = ? ORDER BY rowid DESC", (_FINE.number,))
    return next((end for (end,) in typed_rows(ends, int)), 0)


def processes_between(db: sqlite3.Connection, begin: float, end: float) -> list[StoredProcess]:
    """Return the processes that may have run at some time between `begin` and `end` (s since 1970).

    Raises sqlite3.Error.
    """
    rows = db.execute(f"{_SELECT} WHERE last >= ? AND first <= ?", (bounded_ns(begin - _MAX_LAG), bounded_ns(end)))
    return _processes(rows)


def processes_with_pid(db: sqlite3.Connection, device: str, pid: int) -> list[StoredProcess]:
    """Return the processes that had this pid on a GPU, oldest first.

    `device`: UUID of the GPU. Raises sqlite3.Error.
    """
    rows = db.execute(f"{_SELECT} WHERE pid = ? AND device = ? ORDER BY id", (pid, device))
    return _processes(rows)


def read_tier(
    db: sqlite3.Connection, shape: TierShape, begin: float, end: float, wanted: Collection[int] | None = None
) -> Iterator[Piece]:
    """Yield the pieces of one tier whose middle is between two times (s since 1970).

    `wanted`: numbers of the processes to read, None for all. Raises sqlite3.Error.
    """
    rows = db.execute(
        "SELECT begin, data FROM process_block WHERE tier = ? AND begin < ? AND end > ? ORDER BY begin",
        (shape.number, bounded_ns(end), bounded_ns(begin)),
    )
    for block, data in typed_rows(rows, int, bytes):
        with suppress(DamagedBlock):  # leaves a gap
            read = _fine(data, wanted) if shape is _FINE else _coarse(block, data, wanted)
            yield from (piece for piece in read if begin <= (piece.begin + piece.end) / 2 < end)


def _present_numbers(db: sqlite3.Connection) -> frozenset[int]:
    """Return the numbers of the processes in the last written span. These processes may still be running.

    Raises sqlite3.Error.
    """
    rows = db.execute("SELECT data FROM process_block WHERE tier = ? ORDER BY rowid DESC LIMIT 1", (_FINE.number,))
    with suppress(DamagedBlock):
        for (data,) in typed_rows(rows, bytes):
            spans = unpack_spans(data)
            return frozenset(spans[-1].numbers if spans else ())
    return frozenset()


def _fine(data: bytes, wanted: Collection[int] | None) -> Iterator[Piece]:
    for span in unpack_spans(data):
        begin, end = span.begin_ns / SECOND, span.begin_ns / SECOND + span.seconds
        for index, number in enumerate(span.numbers):
            if wanted is None or number in wanted:
                cell = empty_cell()
                add_values(cell, [column[index] for column in span.columns], span.seconds)
                yield Piece(number, begin, end, cell)


def _coarse(block: int, data: bytes, wanted: Collection[int] | None) -> Iterator[Piece]:
    for number, index, cell in unpack_cells(data, wanted):
        begin = block / SECOND + index * _COARSE.step
        yield Piece(number, begin, begin + _COARSE.step, cell)


def _processes(rows: Iterable[Sequence[Any]]) -> list[StoredProcess]:
    return [
        _process_from_row(*row)
        for row in typed_rows(rows, int, str, int, REAL | None, str, int, int, *[str] * len(TEXTS))
    ]


def _process_from_row(
    number: int, device: str, pid: int, started: float | None, kind: str, first: int, last: int, *texts: str
) -> StoredProcess:
    begun = nan if started is None else float(started)
    kind, *names = map(clean_name, (kind, *texts))
    return StoredProcess(number, device, pid, begun, kind, first / SECOND, last / SECOND, *names)


def _seconds(ns: object) -> float:
    return ns / SECOND if isinstance(ns, int) else nan


_SAME_TIME = 1e-6
"""Maximum seconds by which two times that count as equal may differ."""
_END_TOLERANCE = 0.5
"""Maximum seconds between the end of the file's data, which is computed with CLOCK_MONOTONIC, and the time of the frame
at this end."""
_SNAPSHOT_INTERVAL = PROCESS_SHAPES[0].step
"""Maximum seconds until a new process is in the file."""


class RecentProcesses:
    """The processes in frames, matched with the processes that the file already has.

    `frames`: frames, oldest first; frames before `since` (s since 1970) are ignored. `known`: the processes in the
    file. `covered`: the times that the file covers. `process_key`: UUID and pid of the only process to return, None for
    all.
    """

    def __init__(
        self, frames: Iterable[Frame], since: float, known: Sequence[StoredProcess] = (),
        covered: FileRange = FileRange(), process_key: tuple[str, int] | None = None,
    ) -> None:  # fmt: skip
        self.new: dict[int, StoredProcess] = {}
        """Processes that are not in the file, by number."""
        self.pieces: list[Piece] = []
        self._covered = covered
        self._newest: dict[tuple[str, int], TrackedProcess] = {}
        """The newest new process by UUID and pid."""
        self._known: dict[tuple[str, int], list[StoredProcess]] = {}
        for stored in known:
            self._known.setdefault((stored.device, stored.pid), []).append(stored)
        snapshots, numbers = Snapshots(every=0), ProcessNumbers(self._number)
        for frame in frames:
            if frame.is_full and frame.time >= since - _SAME_TIME:
                time_ns = round(frame.time * SECOND)
                processes: Sequence[Process] = frame.processes
                if process_key is not None:
                    processes = [process for process in processes if (process.uuid, process.pid) == process_key]
                snapshots.add(frame.monotonic_ns, time_ns, frame.interval, processes, frame.samples)
        snapshots.finish()
        self.begin = snapshots.finished[0].begin_ns / SECOND if snapshots.finished else nan
        """Start of the first snapshot, seconds since 1970; NaN if there is none."""
        for snapshot in snapshots.finished:
            begin, seconds = snapshot.begin_ns / SECOND, snapshot.ns / SECOND
            for process, number in zip(snapshot.processes, numbers.assign(snapshot), strict=False):
                if number != NO_NUMBER:
                    cell = empty_cell()
                    add_values(cell, read_values(process), seconds)
                    self.pieces.append(Piece(number, begin, begin + seconds, cell))
        for tracked in (*numbers.changed, *numbers.current()):
            new = self.new.get(tracked.number)
            if new is not None:
                current = _process_from_tracked(tracked)
                self.new[tracked.number] = current._replace(first=min(new.first, current.first))

    def _number(self, tracked: TrackedProcess) -> int:
        first = tracked.first_ns / SECOND
        for process in reversed(self._known.get((tracked.device, tracked.pid), ())):
            if is_known(tracked.started) and is_known(process.started):
                if abs(tracked.started - process.started) <= MAX_START_DIFFERENCE:
                    return process.number
            elif self._continues(process, first):
                return process.number
        new = self._newest.setdefault((tracked.device, tracked.pid), tracked)
        if abs(tracked.started - new.started) <= MAX_START_DIFFERENCE and new is not tracked:
            return new.number  # the process was absent for a while, or its GPU did not answer
        self._newest[tracked.device, tracked.pid] = tracked
        tracked.number = -1 - len(self.new)
        self.new[tracked.number] = _process_from_tracked(tracked)
        return tracked.number

    def _continues(self, process: StoredProcess, first: float) -> bool:
        """Return whether a process in frames, whose start time is unknown, is the same as `process` of the file.

        `first`: time when it was first seen in the frames (s since 1970).
        """
        until = self._covered.until
        if first > until - _END_TOLERANCE:  # it must directly follow the file's data
            return process.number in self._covered.present and first < until + _END_TOLERANCE
        return process.first <= first + _SNAPSHOT_INTERVAL


def _process_from_tracked(tracked: TrackedProcess) -> StoredProcess:
    first, last = tracked.first_ns / SECOND, tracked.last_ns / SECOND
    return StoredProcess(
        tracked.number, tracked.device, tracked.pid, tracked.started, tracked.kind, first, last, *tracked.texts
    )


class TierSpan(NamedTuple):
    """A span of time to read from one tier (s since 1970)."""

    shape: TierShape
    begin: float
    end: float


def tier_spans(covered: FileRange, begin: float, end: float, step: float) -> list[TierSpan]:
    """Return the tiers to read for the time from `begin` to `end` (s since 1970), each with its part of the time.

    The cells are not longer than `step` seconds if a tier has such cells. If a cell of the coarser tier lies only
    partly within the time, the finer tier is read for it if it has data of that time.
    """
    fine = covered.fine if is_known(covered.fine) else inf
    if covered.coarse > fine:  # the coarser tier has the time before a whole cell
        fine = ceil(fine / _COARSE.step) * _COARSE.step
    if step < _COARSE.step or not is_known(covered.coarse):
        first, last = begin, min(max(fine, begin), end)
    else:
        first = ceil(begin / _COARSE.step) * _COARSE.step if begin >= fine else begin
        last = max(floor(end / _COARSE.step) * _COARSE.step if end >= fine else end, first)
        last = min(last, max(covered.coarse, first))
    parts = [TierSpan(_FINE, begin, first), TierSpan(_COARSE, first, last), TierSpan(_FINE, last, end)]
    return [span for span in parts if span.begin < span.end]


def read_pieces(
    db: sqlite3.Connection, parts: Sequence[TierSpan], wanted: Collection[int] | None = None
) -> Iterator[Piece]:
    """Yield the pieces of all spans in `parts`.

    `wanted`: numbers of the processes to read, None for all. Raises sqlite3.Error.
    """
    for shape, begin, end in parts:
        yield from read_tier(db, shape, begin, end, wanted)
