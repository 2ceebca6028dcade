"""Summary of a file of kept history: what it has of each tier, from when, and how large it is."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from typing import NamedTuple

from gpumon.database.read import open_to_read
from gpumon.errors import GpumonError
from gpumon.history.migrations import VERSION
from gpumon.history.tiers import SHAPES, TierShape
from gpumon.text import clean


class TierSize(NamedTuple):
    """The content of a tier."""

    shape: TierShape
    begin: float
    """When its oldest cell begins (s since 1970)."""
    end: float
    """When its newest cell is over."""
    bytes: int
    """Size of its blocks."""


class Overview(NamedTuple):
    """The content of a file."""

    path: str
    bytes: int
    """Size of the file, with what SQLite keeps beside it."""
    tiers: list[TierSize]
    """Those that have anything."""
    subjects: list[str]
    """UUIDs of GPUs."""


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
    except sqlite3.Error as error:
        raise GpumonError(f"cannot read {path}: {error}") from error
    return Overview(path, _bytes(path), tiers, subjects)


def _size(connection: sqlite3.Connection, shape: TierShape) -> TierSize | None:
    begin, end, size = connection.execute(
        "SELECT min(number * ?1 + first), max(number * ?1 + last), sum(length(data)) FROM block WHERE tier = ?2",
        (shape.cells, shape.number),
    ).fetchone()
    return None if begin is None else TierSize(shape, begin * shape.step, (end + 1) * shape.step, size)


def _bytes(path: str) -> int:
    return sum(os.path.getsize(path + suffix) for suffix in ("", "-wal") if os.path.exists(path + suffix))
