"""Summarizes a history file: the times that its tiers and tables cover, and their sizes."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from gpumon.storage.history.read import OpenFile, reading
from gpumon.storage.history.tiers import HOUR, PROCESS_SHAPES, SHAPES, TierShape
from gpumon.storage.sqlite.cells import clean_name, typed_rows
from gpumon.storage.sqlite.write import damaged_copies

_TABLES = (
    ("accounts", "device_hour", "hour", "hour", HOUR, HOUR), ("events", "event", "time", "time", 1e-9, 0.0),
    ("processes", "process", "first", "last", 1e-9, 0.0),
)  # fmt: skip
"""Tables to describe. For each table: title, name, columns with start and end, seconds per unit of these columns, and
seconds that a row covers."""
_SUBJECTS = (
    "SELECT DISTINCT subject FROM block WHERE subject != ''", "SELECT DISTINCT device FROM device_hour",
    "SELECT DISTINCT device FROM event WHERE device != ''",
)  # fmt: skip
"""Queries for the UUIDs of GPUs. A GPU may be in accounts and events before its first block is written."""
_LATEST = 2**32
"""Latest plausible time, in seconds since 1970. Only a damaged file contains later times."""


@dataclass(frozen=True, slots=True)
class TierSize:
    """Time range and size of a tier."""

    shape: TierShape
    begin: float
    """Start of the oldest cell (s since 1970)."""
    end: float
    """End of the newest cell (s since 1970)."""
    bytes: int
    """Total size of the tier's blocks."""


@dataclass(frozen=True, slots=True)
class TableSize:
    """Time range and size of a table that is not a tier."""

    name: str
    begin: float
    """Start of the oldest row (s since 1970)."""
    end: float
    """End of the newest row."""
    rows: int
    bytes: int = 0
    """Total size of the blocks, for a table that consists of blocks; 0 for other tables. For a table of blocks, `rows`
    is 0."""


@dataclass(frozen=True, slots=True)
class Overview:
    """Summary of a history file."""

    path: str
    bytes: int
    """Size of the file and of SQLite's write-ahead log next to it."""
    tiers: list[TierSize]
    """Tiers that have data."""
    subjects: list[str]
    """UUIDs of the GPUs that have data in the history."""
    others: Sequence[TableSize] = ()
    """Tables of accounts, events and processes, if they have data."""
    damaged: Sequence[str] = ()
    """Damaged files that were moved aside, oldest first."""


def overview(path: str) -> Overview:
    """Return the summary of the history file at `path`. Raises GpumonError if it cannot be read."""
    with reading(path) as file:
        if not file.has_tables:
            return Overview(path, _bytes(path), [], [], damaged=damaged_copies(path))
        tiers = [size for shape in SHAPES if (size := _size(file.connection, shape))]
        rows = file.connection.execute(f"{' UNION '.join(_SUBJECTS)} ORDER BY 1")
        subjects = [clean_name(subject) for (subject,) in typed_rows(rows, str)]
        others = _others(file)
    return Overview(path, _bytes(path), tiers, subjects, others, damaged_copies(path))


def _size(connection: sqlite3.Connection, shape: TierShape) -> TierSize | None:
    rows = connection.execute(
        "SELECT min(number * ?1 + first), max(number * ?1 + last), sum(length(data)) FROM block"
        " WHERE tier = ?2 AND number BETWEEN 0 AND ?3 AND first >= 0 AND last < ?1",
        (shape.cells, shape.number, _LATEST // shape.block),
    )
    for begin, end, size in typed_rows(rows, int, int, int):
        return TierSize(shape, begin * shape.step, (end + 1) * shape.step, size)
    return None


def _others(file: OpenFile) -> list[TableSize]:
    sizes = []
    for name, table, first, last, scale, length in _TABLES:
        query = f"SELECT min({first}), max({last}), count(*) FROM {table}"
        for begin, end, rows in typed_rows(file.connection.execute(query), int, int, int):
            sizes.append(TableSize(name, begin * scale, end * scale + length, rows))
    for shape in PROCESS_SHAPES:
        query = "SELECT min(begin), max(end), sum(length(data)) FROM process_block WHERE tier = ?"
        for begin, end, size in typed_rows(file.connection.execute(query, (shape.number,)), int, int, int):
            sizes.append(TableSize(f"processes {shape.step} s", begin * 1e-9, end * 1e-9, 0, size))
    return sizes


def _bytes(path: str) -> int:
    return sum(os.path.getsize(path + suffix) for suffix in ("", "-wal") if os.path.exists(path + suffix))
