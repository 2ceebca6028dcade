"""Processes of a window: who was on which GPU, from when to when, and what they used."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping, Sequence
from math import inf, nan
from typing import NamedTuple

from gpumon.common.errors import GpumonError
from gpumon.common.numbers import is_known
from gpumon.history.read import reading
from gpumon.history.span import WindowSpan
from gpumon.history.tiers import PROCESS_SHAPES
from gpumon.model.device import Device
from gpumon.model.frame import Frame
from gpumon.process_history.cell import PER_MEASURE, Cell, empty, fold, share
from gpumon.process_history.kept import KnownProcess, Piece, known, newest, reach
from gpumon.process_history.measures import NAMES
from gpumon.process_history.recent import RecentProcesses
from gpumon.process_history.sources import kept_pieces, spans


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
                if file.has_processes:
                    found = _read(file.connection, span, wanted, sums)
                elif file.version:
                    problem = f"{path} is of an older gpumon, which keeps no processes: restart the daemon"
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
    parts = spans(found, span.begin, span.end, inf)
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
