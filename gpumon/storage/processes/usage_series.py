"""Usage of one process over time, in buckets for charts. Buckets do not move as time passes."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, nan
from typing import NamedTuple

from gpumon.common.errors import UsageError
from gpumon.common.numbers import is_known
from gpumon.model.frame import Frame
from gpumon.model.process import Process
from gpumon.storage.history.buckets import Grid, aligned
from gpumon.storage.history.query import Query, Series
from gpumon.storage.history.read import read_or_explain
from gpumon.storage.history.tiers import PROCESS_SHAPES
from gpumon.storage.processes.blocks import NAMES, PER_MEASURE, Cell, empty_cell, merge_cell, scale_cell
from gpumon.storage.processes.reader import (
    Piece,
    RecentProcesses,
    StoredProcess,
    file_range,
    processes_with_pid,
    read_pieces,
    tier_spans,
)
from gpumon.storage.processes.snapshot import MAX_START_DIFFERENCE

_FINE, _COARSE = PROCESS_SHAPES


class ProcessKey(NamedTuple):
    """Identifies a process on a GPU by UUID, pid, and the time when it started or was first seen."""

    device: str
    """UUID of the GPU."""
    pid: int
    started: float = nan
    """Start of the process, seconds since 1970. If it is NaN (unknown), `first` identifies the process."""
    first: float = nan
    """Time when it was first seen on the GPU, s since 1970. NaN stands for the newest process with this pid."""


def process_key(process: Process | StoredProcess) -> ProcessKey:
    """Return the key of a process from a frame or a window. Raises UsageError for other objects."""
    if not isinstance(process, Process | StoredProcess):
        raise UsageError("pass a process from a frame, or the `process` of a result of `processes`")
    if isinstance(process, StoredProcess):
        return ProcessKey(process.device, process.pid, process.started, process.first)
    return ProcessKey(process.uuid, process.pid, process.started)


@dataclass(frozen=True, slots=True)
class ProcessLines:
    """The usage of a process over time, as a series for each measure."""

    series: Mapping[str, Series]
    """Series by name of the measure. All have the same times. Unknown values are NaN."""
    problem: str = ""
    """Reason why the history file could not be read; empty if it could be read."""


def process_lines(
    path: str, frames: Sequence[Frame], key: ProcessKey, query: Query, earlier: Iterable[Piece] = ()
) -> ProcessLines:
    """Return the usage of a process over time, from the newest frames and the history file at `path` (empty: no file).

    `query`: its `metrics` are names of measures (`MEASURES`), and its `subject` is ignored. `earlier`: usage before
    these frames, used if there is no file. Each point comes from the finest source that has data: frames, then the
    finer tier, then the coarser tier. The buckets at both ends of the window are complete.
    """
    content, problem = read_or_explain(path, lambda db: _read(db, frames, key, query), None)
    if content is not None:
        grid, recent, wanted, pieces = content
    else:
        grid = query.grid or _grid(query)
        recent = RecentProcesses(frames, -inf, process_key=key[:2])
        wanted = _matching_numbers(recent.new.values(), key)
        cut = recent.begin if is_known(recent.begin) else inf
        pieces = [_cut_at(cut, piece) for piece in earlier if piece.begin < cut]
    cells = _fill_buckets([*pieces, *(piece for piece in recent.pieces if piece.number in wanted)], grid)
    return ProcessLines({name: _series(cells, grid, NAMES.index(name)) for name in query.metrics}, problem)


def _read(
    db: sqlite3.Connection, frames: Sequence[Frame], key: ProcessKey, query: Query
) -> tuple[Grid, RecentProcesses, set[int], list[Piece]]:
    stored, covered = processes_with_pid(db, key.device, key.pid), file_range(db)
    grid = query.grid or _grid(query)
    since = -inf if grid.step < _FINE.step else covered.until
    recent = RecentProcesses(frames, since, stored, covered, key[:2])
    numbers = _matching_numbers([*stored, *recent.new.values()], key)
    cut = recent.begin if is_known(recent.begin) else inf
    # If cells are longer than buckets, read also the cells that extend beyond the ends of the window.
    more = _COARSE.step if grid.step < _COARSE.step else 0
    parts = tier_spans(covered, grid.begin - more, min(grid.end, cut) + more, grid.step)
    return (
        grid,
        recent,
        numbers,
        [_cut_at(cut, piece) for piece in read_pieces(db, parts, numbers) if piece.begin < cut],
    )


def _cut_at(cut: float, piece: Piece) -> Piece:
    """Return the part of a piece before `cut` (s since 1970). Later data comes from another source."""
    number, begin, end, cell = piece
    return piece if end <= cut else Piece(number, begin, cut, scale_cell(cell, (cut - begin) / (end - begin)))


def _grid(query: Query) -> Grid:
    """Return the buckets for a query without a grid. They contain whole cells of each tier that is fine enough."""
    step = (query.end - query.begin) / max(1, query.points)
    cells = [shape.step for shape in PROCESS_SHAPES if step >= shape.step]
    return aligned(query.begin, query.end, query.points, cells)


def _matching_numbers(processes: Iterable[StoredProcess], key: ProcessKey) -> set[int]:
    """Return the numbers of the processes that match a key."""
    candidates = [process for process in processes if (process.device, process.pid) == key[:2]]
    if is_known(key.started):
        return {process.number for process in candidates if abs(process.started - key.started) <= MAX_START_DIFFERENCE}
    unknown = [process for process in candidates if not is_known(process.started)]
    if is_known(key.first):
        return {process.number for process in unknown if abs(process.first - key.first) < 1e-3}
    return {process.number for process in unknown[-1:]}


def _fill_buckets(pieces: Iterable[Piece], grid: Grid) -> dict[int, Cell]:
    """Return the cell of each non-empty bucket, by index of the bucket.

    A piece that is longer than a bucket is divided between all buckets whose middle it covers.
    """
    cells: dict[int, Cell] = {}
    for _, begin, end, cell in pieces:
        if end - begin <= grid.step * 1.01:
            indexes, part = range(grid.at((begin + end) / 2), grid.at((begin + end) / 2) + 1), cell
        else:
            half = grid.step / 2
            indexes = range(grid.at(begin - half) + 1, grid.at(end - half) + 1)
            part = scale_cell(cell, grid.step / (end - begin))
        for index in indexes:
            if 0 <= index < grid.buckets:
                merge_cell(cells.setdefault(index, empty_cell()), part)
    return cells


def _series(cells: Mapping[int, Cell], grid: Grid, measure: int) -> Series:
    low, mean, high = [nan] * grid.buckets, [nan] * grid.buckets, [nan] * grid.buckets
    seen = [0.0] * grid.buckets
    at = 1 + measure * PER_MEASURE
    for index, cell in cells.items():
        seconds, total, lowest, highest = cell[at : at + PER_MEASURE]
        if seconds:
            low[index], high[index], seen[index] = lowest, highest, seconds
            mean[index] = min(max(total / seconds, lowest), highest)
    return Series(grid.middles(), low, mean, high, grid.step, seen)
