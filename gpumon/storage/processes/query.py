"""Processes of a window: who was on which GPU, from when to when, and what they used."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from math import inf, nan
from typing import TYPE_CHECKING, NamedTuple

from gpumon.common.clock import SECOND
from gpumon.common.errors import GpumonError
from gpumon.common.numbers import is_known
from gpumon.common.privacy import current_policy
from gpumon.common.text import clean
from gpumon.model.device import Device
from gpumon.model.frame import Frame
from gpumon.model.process import Process
from gpumon.storage.history.devices import Wanted, chosen, devices_in, devices_of, named
from gpumon.storage.history.grid import WindowSpan, span_of
from gpumon.storage.history.open import kept_devices
from gpumon.storage.history.query import Query
from gpumon.storage.history.read import reading
from gpumon.storage.history.tiers import PROCESS_SHAPES
from gpumon.storage.processes.cells import PER_MEASURE, Cell, empty, fold, share
from gpumon.storage.processes.lines import ProcessLines, key_of, process_lines
from gpumon.storage.processes.measures import NAMES
from gpumon.storage.processes.reader import (
    KnownProcess,
    Piece,
    RecentProcesses,
    kept_pieces,
    known,
    newest,
    reach,
    tier_spans,
)
from gpumon.storage.sqlite.cells import typed_rows

MOST = 20_000
"""Spans of a window, the newest."""
_MOST_TEXT = 100
_LATEST = 2**62


class HeldSpan(NamedTuple):
    """A process on a GPU, as long as it was seen there."""

    begin: float
    """Seconds since 1970, as `end`."""
    end: float
    pid: int
    user: str
    """Empty where that is not known."""


def held_spans(path: str, device: str, begin: float, end: float) -> list[HeldSpan]:
    """Return the processes on a GPU (a UUID) between two times (s since 1970), by when they were first seen.

    One that is still there reaches until what the file has last. Raises GpumonError.
    """
    with reading(path) as file:
        if not file.has_tables:
            return []
        db = file.connection
        db.execute("BEGIN")  # all tables as they are at one moment
        until, present, people = reach(db).until, newest(db), current_policy()
        # The end of one that is still there may be behind in its row.
        rows = db.execute(
            "SELECT id, first, last, pid, user FROM process WHERE device = ? AND first <= ? ORDER BY last DESC LIMIT ?",
            (device, round(min(end * SECOND, _LATEST)), MOST),
        )
        found = [
            HeldSpan(first / SECOND, max(until, last / SECOND) if number in present else last / SECOND, pid,
                     people.name(clean(user, _MOST_TEXT)) if user else "")
            for number, first, last, pid, user in typed_rows(rows, int, int, int, int, str)
        ]  # fmt: skip
    return sorted(span for span in found if span.end >= begin)


class MeasureUse(NamedTuple):
    """The use of one measure by a process in a window."""

    seconds: float
    """For which it is known; of the rest of the time in which the process was there nothing is."""
    mean: float
    """NaN where nothing is known."""
    peak: float


class ProcessUse(NamedTuple):
    """A process on a GPU in a window."""

    process: KnownProcess
    held: float
    """Seconds of the window in which it was seen there."""
    measures: Mapping[str, MeasureUse]
    """By name in `MEASURES`."""


class ProcessFilter(NamedTuple):
    """The requested processes; an empty field leaves none out."""

    devices: Collection[str] = ()
    """UUIDs."""
    user: str = ""
    pid: int = 0


ALL = ProcessFilter()
"""Leaves none out."""


class ProcessWindow(NamedTuple):
    """The processes of a window, by the time when they were first seen."""

    span: WindowSpan
    processes: Sequence[ProcessUse]
    problem: str = ""
    """Why kept history is missing here; empty where it is not."""
    gpus: Sequence[Device] = ()
    """Their GPUs, by index; -1 is not known."""


def read_processes(path: str, frames: Sequence[Frame], span: WindowSpan, wanted: ProcessFilter = ALL) -> ProcessWindow:
    """Return the processes of a window from the file at `path`, or none while that is empty, and the newest frames."""
    found, sums, problem = _InFile([], {}, nan, frozenset()), _Sums(span), ""
    if path:
        try:
            with reading(path) as file:
                if file.has_tables:
                    found = _read(file.connection, span, wanted, sums)
        except GpumonError as error:
            problem = str(error)
    until = found.until if is_known(found.until) else -inf
    recent = RecentProcesses(frames, until, found.known, found.present, until)
    for piece in recent.pieces:
        sums.add(piece)
    there = {one.number: one for one in (*found.known, *recent.new.values()) if _is_wanted(one, wanted)}
    uses = [
        _use(one._replace(last=max(one.last, sums.last.get(number, one.last))), sums.cells[number])
        for number, one in there.items()
        if number in sums.cells
    ]
    return ProcessWindow(span, sorted(uses, key=lambda use: (use.process.first, use.process[1:3])), problem)


class _InFile(NamedTuple):
    known: list[KnownProcess]
    cells: Mapping[int, Cell]
    until: float
    present: Collection[int]


class _Sums:
    """Sums of processes over the pieces within a window."""

    def __init__(self, span: WindowSpan) -> None:
        self.cells: dict[int, Cell] = {}
        self.last: dict[int, float] = {}
        """Until when each was seen, s since 1970."""
        self._span = span

    def add(self, piece: Piece) -> None:
        number, begin, end, cell = piece
        within = min(end, self._span.end) - max(begin, self._span.begin)
        if within < end - begin:  # an end of the window cuts it, or it lies beyond
            if within <= 0:
                return
            cell = share(cell, within / (end - begin))
        known = self.cells.get(number)
        if known is None:
            known = self.cells[number] = empty()
        fold(known, cell)
        # Somewhere in a cell of the coarser tier it may have ended.
        seen = end if end - begin < PROCESS_SHAPES[1].step else begin
        self.last[number] = max(seen, self.last.get(number, seen))


def _read(db: sqlite3.Connection, span: WindowSpan, wanted: ProcessFilter, sums: _Sums) -> _InFile:
    db.execute("BEGIN")  # all tables as they are at one moment
    there = known(db, span.begin, span.end)
    numbers = None if wanted == ALL else {one.number for one in there if _is_wanted(one, wanted)}
    found = reach(db)
    parts = tier_spans(found, span.begin, span.end, inf)
    if parts:  # also what the ends of the window cut
        parts[0] = parts[0]._replace(begin=parts[0].begin - parts[0].shape.step)
        parts[-1] = parts[-1]._replace(end=parts[-1].end + parts[-1].shape.step)
    for piece in kept_pieces(db, parts, numbers):
        sums.add(piece)
    return _InFile(there, sums.cells, found.until, newest(db))


def _is_wanted(one: KnownProcess, wanted: ProcessFilter) -> bool:
    devices, user, pid = wanted
    return (not devices or one.device in devices) and user in ("", one.user) and pid in (0, one.pid)


def _use(process: KnownProcess, cell: Cell) -> ProcessUse:
    measures = {}
    for place, name in enumerate(NAMES):
        seconds, total, low, high = cell[1 + place * PER_MEASURE : 1 + (place + 1) * PER_MEASURE]
        mean = min(max(total / seconds, low), high) if seconds else nan  # a sum of floats may be rounded
        measures[name] = MeasureUse(seconds, mean, high if seconds else nan)
    return ProcessUse(process, cell[0], measures)


if TYPE_CHECKING:
    from gpumon.storage.history.grid import Moment

    Asked = tuple[str | float | None, Moment | None, Moment | None, float]
    """Length, begin, end, and now, of `span_of`."""


def processes_of(
    path: str, frames: Sequence[Frame], asked: Asked, devices: Wanted | Iterable[Wanted] | None, user: str, pid: int
) -> ProcessWindow:
    """Return the processes of a window. Raises UsageError."""
    span, newest = span_of(*asked), devices_of(frames[-1:])
    wanted = chosen(devices, newest, lambda: kept_devices(path, frames))
    found = read_processes(path, frames, span, ProcessFilter(wanted, user, pid))
    uuids = [use.process.device for use in found.processes]
    return found._replace(gpus=named(uuids, newest, lambda: {**devices_in(path), **devices_of(frames)}))


def lines_of(
    path: str, frames: Sequence[Frame], asked: Asked, process: Process | KnownProcess, points: int
) -> ProcessLines:
    """Return the lines of a process. Raises UsageError."""
    key = key_of(process)
    return process_lines(path, frames, key, Query(key.device, NAMES, *span_of(*asked), points))
