"""Summary of a file of kept history: what it has of each tier, from when, and how large it is."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from typing import NamedTuple

from gpumon.database.read import open_to_read
from gpumon.errors import GpumonError
from gpumon.history.migrations import VERSION
from gpumon.history.tiers import SHAPES, TierShape
from gpumon.text import clean

_WITH_OTHERS = 2
"""Version of the file from which it has accounts and events."""
_OTHERS = (("accounts", "device_hour", "hour", 3600.0, 3600.0), ("events", "event", "time", 1e-9, 0.0))
"""Name for people; the table, its time, the seconds in one of that, and the length of a row."""


class TierSize(NamedTuple):
    """The content of a tier."""

    shape: TierShape
    begin: float
    """When its oldest cell begins (s since 1970)."""
    end: float
    """When its newest cell is over."""
    bytes: int
    """Size of its blocks."""


class TableSize(NamedTuple):
    """The content of a table beside the tiers."""

    name: str
    begin: float
    """When its oldest row begins (s since 1970)."""
    end: float
    """When its newest row is over."""
    rows: int


class Overview(NamedTuple):
    """The content of a file."""

    path: str
    bytes: int
    """Size of the file, with what SQLite keeps beside it."""
    tiers: list[TierSize]
    """Those that have anything."""
    subjects: list[str]
    """UUIDs of GPUs."""
    others: Sequence[TableSize] = ()
    """Accounts and events, where there are any."""


def overview(path: str) -> Overview:
    """Return what the file has. Raises GpumonError when it cannot be read."""
    try:
        connection, version = open_to_read(path)
        with closing(connection):
            if version > VERSION:
                raise GpumonError(f"{path} was written by a newer gpumon: upgrade gpumon")
            tiers = [size for shape in SHAPES if (size := _size(connection, shape))] if version else []
            rows = connection.execute("SELECT DISTINCT subject FROM block WHERE subject != '' ORDER BY subject")
            subjects = [clean(str(subject), 100) for (subject,) in rows] if version else []
            others = _others(connection) if version >= _WITH_OTHERS else ()
    except sqlite3.Error as error:
        raise GpumonError(f"cannot read {path}: {error}") from error
    return Overview(path, _bytes(path), tiers, subjects, others)


def _size(connection: sqlite3.Connection, shape: TierShape) -> TierSize | None:
    begin, end, size = connection.execute(
        "SELECT min(number * ?1 + first), max(number * ?1 + last), sum(length(data)) FROM block WHERE tier = ?2",
        (shape.cells, shape.number),
    ).fetchone()
    return None if begin is None else TierSize(shape, begin * shape.step, (end + 1) * shape.step, size)


def _others(connection: sqlite3.Connection) -> list[TableSize]:
    found = []
    for name, table, first, scale, length in _OTHERS:
        asked = f"SELECT min({first}), max({first}), count(*) FROM {table}"
        begin, end, rows = connection.execute(asked).fetchone()
        if rows:
            found.append(TableSize(name, begin * scale, end * scale + length, rows))
    return found


def _bytes(path: str) -> int:
    return sum(os.path.getsize(path + suffix) for suffix in ("", "-wal") if os.path.exists(path + suffix))
