"""Measures of one process over time, in buckets at fixed places in absolute time: what a chart of it draws."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from math import inf, nan
from typing import NamedTuple

from gpumon.common.errors import GpumonError, UsageError
from gpumon.common.numbers import is_known
from gpumon.model.frame import Frame
from gpumon.model.process import Process
from gpumon.storage.history.grid import Grid, aligned
from gpumon.storage.history.query import Query, Series
from gpumon.storage.history.read import reading
from gpumon.storage.history.tiers import PROCESS_SHAPES
from gpumon.storage.processes.cells import PER_MEASURE, Cell, empty, fold, share
from gpumon.storage.processes.measures import NAMES
from gpumon.storage.processes.reader import (
    KnownProcess,
    Piece,
    RecentProcesses,
    kept_pieces,
    known_of,
    newest,
    reach,
    tier_spans,
)
from gpumon.storage.processes.rows import RESTARTED

_FINE, _COARSE = PROCESS_SHAPES


class ProcessKey(NamedTuple):
    """A process on a GPU."""

    device: str
    """UUID."""
    pid: int
    started: float = nan
    """Seconds since 1970; where it is not known, the process that was the newest when it was `first` seen is meant."""
    first: float = nan
    """When it was first seen there, s since 1970; NaN for the newest one."""


def key_of(process: Process | KnownProcess) -> ProcessKey:
    """Return the key of a process of a frame, or of a window. Raises UsageError for what is neither."""
    if not isinstance(process, Process | KnownProcess):
        raise UsageError("pass a process of a frame, or the `process` of one that `processes` found")
    if isinstance(process, KnownProcess):
        return ProcessKey(process.device, process.pid, process.started, process.first)
    return ProcessKey(process.uuid, process.pid, process.started)


class ProcessLines(NamedTuple):
    """Lines of a process by measure, all on the same times; what is not known is a gap."""

    series: Mapping[str, Series]
    problem: str = ""
    """Why kept history is missing here; empty where it is not."""


def process_lines(
    path: str, frames: Sequence[Frame], key: ProcessKey, query: Query, earlier: Iterable[Piece] = ()
) -> ProcessLines:
    """Return the lines of a process from the file at `path`, or none while that is empty, and the newest frames.

    `earlier`: where no file has its processes, what is known of this one of the time before these frames.
    The query names measures (`MEASURES`); its `subject` has no meaning. Finer points come where there are any: from
    frames, then from the finer tier. Buckets at the ends of the window are whole.
    """
    kept: list[Piece] = []
    wanted: set[int] = set()
    grid, problem, recent = query.grid, "", None
    if path:
        try:
            with reading(path) as file:
                if file.has_tables:
                    file.connection.execute("BEGIN")
                    grid, recent, wanted, kept = _read(file.connection, frames, key, query)
        except GpumonError as error:
            problem = str(error)
    if recent is None:
        recent = RecentProcesses(frames, -inf, only=key[:2])
        wanted = _numbers(recent.new.values(), key)
        cut = recent.begin if is_known(recent.begin) else inf
        kept = [_until(cut, piece) for piece in earlier if piece.begin < cut]
    grid = grid or _grid(query)
    cells = _buckets([*kept, *(piece for piece in recent.pieces if piece.number in wanted)], grid)
    return ProcessLines({name: _series(cells, grid, NAMES.index(name)) for name in query.metrics}, problem)


def _read(
    db: sqlite3.Connection, frames: Sequence[Frame], key: ProcessKey, query: Query
) -> tuple[Grid, RecentProcesses, set[int], list[Piece]]:
    there, found = known_of(db, key.device, key.pid), reach(db)
    grid = query.grid or _grid(query)
    until = found.until if is_known(found.until) else -inf
    since = -inf if grid.step < _FINE.step else until
    recent = RecentProcesses(frames, since, there, newest(db), until, only=key[:2])
    numbers = _numbers([*there, *recent.new.values()], key)
    cut = recent.begin if is_known(recent.begin) else inf
    # Cells that are longer than buckets go over the ends of the window.
    more = _COARSE.step if grid.step < _COARSE.step else 0
    parts = tier_spans(found, grid.begin - more, min(grid.end, cut) + more, grid.step)
    return grid, recent, numbers, [_until(cut, piece) for piece in kept_pieces(db, parts, numbers) if piece.begin < cut]


def _until(cut: float, piece: Piece) -> Piece:
    """The part of a piece before a time (s since 1970): what follows comes from elsewhere."""
    number, begin, end, cell = piece
    return piece if end <= cut else Piece(number, begin, cut, share(cell, (cut - begin) / (end - begin)))


def _grid(query: Query) -> Grid:
    """Buckets that hold whole cells of the tier that is fine enough for them."""
    step = (query.end - query.begin) / max(1, query.points)
    cells = [shape.step for shape in PROCESS_SHAPES if step >= shape.step]
    return aligned(query.begin, query.end, query.points, cells)


def _numbers(there: Iterable[KnownProcess], key: ProcessKey) -> set[int]:
    """The processes that a key names."""
    mine = [one for one in there if (one.device, one.pid) == key[:2]]
    if is_known(key.started):
        return {one.number for one in mine if abs(one.started - key.started) <= RESTARTED}
    unknown = [one for one in mine if not is_known(one.started)]
    if is_known(key.first):
        return {one.number for one in unknown if abs(one.first - key.first) < 1e-3}
    return {one.number for one in unknown[-1:]}


def _buckets(pieces: Iterable[Piece], grid: Grid) -> dict[int, Cell]:
    """The cell of each bucket that has any, by its place. A piece that is longer stands in all whose middle it has."""
    found: dict[int, Cell] = {}
    for _, begin, end, cell in pieces:
        if end - begin <= grid.step * 1.01:
            places, part = range(grid.at((begin + end) / 2), grid.at((begin + end) / 2) + 1), cell
        else:
            half = grid.step / 2
            places = range(grid.at(begin - half) + 1, grid.at(end - half) + 1)
            part = share(cell, grid.step / (end - begin))
        for place in places:
            if 0 <= place < grid.buckets:
                fold(found.setdefault(place, empty()), part)
    return found


def _series(cells: Mapping[int, Cell], grid: Grid, measure: int) -> Series:
    low, mean, high = [nan] * grid.buckets, [nan] * grid.buckets, [nan] * grid.buckets
    seen = [0.0] * grid.buckets
    at = 1 + measure * PER_MEASURE
    for place, cell in cells.items():
        seconds, total, lowest, highest = cell[at : at + PER_MEASURE]
        if seconds:
            low[place], high[place], seen[place] = lowest, highest, seconds
            mean[place] = min(max(total / seconds, lowest), highest)
    return Series(grid.middles(), low, mean, high, grid.step, seen)
