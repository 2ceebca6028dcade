"""Returns the processes of a window of time with their usage, from the history file and the newest frames."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, nan
from typing import TYPE_CHECKING, NamedTuple

from gpumon.common.clock import SECOND
from gpumon.common.privacy import current_policy
from gpumon.model.device import Device
from gpumon.model.frame import Frame
from gpumon.model.process import Process
from gpumon.storage.history.buckets import WindowSpan, resolve_window
from gpumon.storage.history.devices import Wanted, devices_of, read_devices, resolve_devices, sort_devices
from gpumon.storage.history.open import stored_devices
from gpumon.storage.history.query import Query
from gpumon.storage.history.read import read_or_explain, read_tables
from gpumon.storage.history.tiers import PROCESS_SHAPES
from gpumon.storage.processes.blocks import NAMES, PER_MEASURE, Cell, empty_cell, merge_cell, scale_cell
from gpumon.storage.processes.reader import (
    FileRange,
    Piece,
    RecentProcesses,
    StoredProcess,
    file_range,
    processes_between,
    read_pieces,
    tier_spans,
)
from gpumon.storage.processes.usage_series import ProcessLines, process_key, process_lines
from gpumon.storage.sqlite.cells import bounded_ns, clean_name, typed_rows

MAX_SPANS = 20_000
"""Maximum number of spans returned for a window. If there are more, only the newest are returned."""


class HeldSpan(NamedTuple):
    """The time during which a process was on a GPU."""

    begin: float
    """Start, seconds since 1970."""
    end: float
    """End, seconds since 1970."""
    pid: int
    user: str
    """Name of the user; empty if unknown."""


def held_spans(path: str, device: str, begin: float, end: float) -> list[HeldSpan]:
    """Return the processes that were on a GPU between two times (s since 1970), sorted by start.

    `device`: UUID of the GPU. The span of a process that is still running ends at the end of the file's data. Raises
    GpumonError if the file cannot be read.
    """

    def read(db: sqlite3.Connection) -> list[HeldSpan]:
        covered, people = file_range(db), current_policy()
        # The column `last` of a running process is not always up to date, so it is not part of the condition.
        rows = db.execute(
            "SELECT id, first, last, pid, user FROM process WHERE device = ? AND first <= ? ORDER BY last DESC LIMIT ?",
            (device, bounded_ns(end), MAX_SPANS),
        )
        spans = []
        for number, first, last, pid, user in typed_rows(rows, int, int, int, int, str):
            end_of_span = max(covered.until, last / SECOND) if number in covered.present else last / SECOND
            name = people.name(clean_name(user)) if user else ""
            spans.append(HeldSpan(first / SECOND, end_of_span, pid, name))
        return spans

    spans: list[HeldSpan] = read_tables(path, read, [])
    return sorted(span for span in spans if span.end >= begin)


@dataclass(frozen=True, slots=True)
class MeasureUse:
    """Mean and peak of one measure of a process in a window of time, and the seconds in which the measure is known."""

    seconds: float
    """Seconds for which the measure is known; it is unknown in the rest of the process's time."""
    mean: float
    """NaN if the measure is never known."""
    peak: float


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """Usage of a GPU by one process in a window of time."""

    process: StoredProcess
    held: float
    """Seconds of the window in which it was seen on the GPU."""
    measures: Mapping[str, MeasureUse]
    """Usage by name of the measure in `MEASURES`."""


class ProcessFilter(NamedTuple):
    """Selects processes by GPU, user and pid. An empty field (or pid 0) selects all."""

    devices: Collection[str] = ()
    """UUIDs of the selected GPUs."""
    user: str = ""
    pid: int = 0


ALL = ProcessFilter()


@dataclass(frozen=True, slots=True)
class ProcessWindow:
    """The processes in a window of time, sorted by the time when they were first seen."""

    span: WindowSpan
    processes: Sequence[ProcessUse]
    problem: str = ""
    """Reason why the history file could not be read; empty if it could be read."""
    gpus: Sequence[Device] = ()
    """GPUs of the processes, sorted by index. An unknown index is -1."""


def read_processes(path: str, frames: Sequence[Frame], span: WindowSpan, wanted: ProcessFilter = ALL) -> ProcessWindow:
    """Return the processes in a window of time, from the newest frames and the history file.

    `path`: path of the history file, empty if there is none. `wanted`: selects processes.
    """
    sums = _Sums(span)
    nothing: tuple[list[StoredProcess], FileRange] = [], FileRange()
    (known, covered), problem = read_or_explain(path, lambda db: _read(db, span, wanted, sums), nothing)
    recent = RecentProcesses(frames, covered.until, known, covered)
    for piece in recent.pieces:
        sums.add(piece)
    matches = {process.number: process for process in (*known, *recent.new.values()) if _is_wanted(process, wanted)}
    uses = [
        _use(process._replace(last=max(process.last, sums.last.get(number, process.last))), sums.cells[number])
        for number, process in matches.items()
        if number in sums.cells
    ]
    return ProcessWindow(span, sorted(uses, key=lambda use: (use.process.first, use.process[1:3])), problem)


class _Sums:
    """Sums the usage of each process within a window."""

    def __init__(self, span: WindowSpan) -> None:
        self.cells: dict[int, Cell] = {}
        self.last: dict[int, float] = {}
        """Last time at which each process was seen, s since 1970."""
        self._span = span

    def add(self, piece: Piece) -> None:
        number, begin, end, cell = piece
        within = min(end, self._span.end) - max(begin, self._span.begin)
        if within < end - begin:  # partly or completely outside the window
            if within <= 0:
                return
            cell = scale_cell(cell, within / (end - begin))
        total = self.cells.get(number)
        if total is None:
            total = self.cells[number] = empty_cell()
        merge_cell(total, cell)
        # In a cell of the coarser tier, the process may have ended at any time, so only the start is certain.
        seen = end if end - begin < PROCESS_SHAPES[1].step else begin
        self.last[number] = max(seen, self.last.get(number, seen))


def _read(
    db: sqlite3.Connection, span: WindowSpan, wanted: ProcessFilter, sums: _Sums
) -> tuple[list[StoredProcess], FileRange]:
    """Add the usage in the file to `sums`. Return the processes in the window, and the times that the file covers."""
    processes = processes_between(db, span.begin, span.end)
    numbers = None if wanted == ALL else {process.number for process in processes if _is_wanted(process, wanted)}
    covered = file_range(db)
    parts = tier_spans(covered, span.begin, span.end, inf)
    if parts:  # include cells that cross the ends of the window
        parts[0] = parts[0]._replace(begin=parts[0].begin - parts[0].shape.step)
        parts[-1] = parts[-1]._replace(end=parts[-1].end + parts[-1].shape.step)
    for piece in read_pieces(db, parts, numbers):
        sums.add(piece)
    return processes, covered


def _is_wanted(process: StoredProcess, wanted: ProcessFilter) -> bool:
    devices, user, pid = wanted
    return (not devices or process.device in devices) and user in ("", process.user) and pid in (0, process.pid)


def _use(process: StoredProcess, cell: Cell) -> ProcessUse:
    measures = {}
    for index, name in enumerate(NAMES):
        seconds, total, low, high = cell[1 + index * PER_MEASURE : 1 + (index + 1) * PER_MEASURE]
        mean = min(max(total / seconds, low), high) if seconds else nan  # against rounding errors of the sum
        measures[name] = MeasureUse(seconds, mean, high if seconds else nan)
    return ProcessUse(process, cell[0], measures)


if TYPE_CHECKING:
    from gpumon.storage.history.buckets import Moment

    WindowArgs = tuple[str | float | None, Moment | None, Moment | None, float]
    """Arguments of `resolve_window`: length, begin, end, now."""


def query_processes(
    path: str,
    frames: Sequence[Frame],
    window_args: WindowArgs,
    devices: Wanted | Iterable[Wanted] | None,
    user: str,
    pid: int,
) -> ProcessWindow:
    """Return the processes for `Live.processes`, which documents the arguments. Raises UsageError."""
    span, newest = resolve_window(*window_args), devices_of(frames[-1:])
    wanted = resolve_devices(devices, newest, lambda: stored_devices(path, frames))
    window = read_processes(path, frames, span, ProcessFilter(wanted, user, pid))
    uuids = [use.process.device for use in window.processes]
    return replace(window, gpus=sort_devices(uuids, newest, lambda: {**read_devices(path), **devices_of(frames)}))


def query_lines(
    path: str, frames: Sequence[Frame], window_args: WindowArgs, process: Process | StoredProcess, points: int
) -> ProcessLines:
    """Return the time series of a process for `Live.process_lines`, which documents the arguments.

    Raises UsageError.
    """
    key = process_key(process)
    return process_lines(path, frames, key, Query(key.device, NAMES, *resolve_window(*window_args), points))
