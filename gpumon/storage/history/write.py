"""Sealed blocks into the file."""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import nan
from operator import add
from typing import NamedTuple

from gpumon.storage.history.aggregator import Block, columns_of
from gpumon.storage.history.block import BadBlock, cells_of, pack
from gpumon.storage.history.cell import HistoryCell, fold, weights
from gpumon.storage.history.tiers import TierShape
from gpumon.storage.sqlite.write import transaction

_TWICE = 1.05
"""Two cells of one time that have more than this share of it between them are not two halves of it."""


class Taken(NamedTuple):
    """The ticks that are in blocks, of the daemon in a directory."""

    directory: str
    boot: str
    until_ns: int
    """ns, CLOCK_MONOTONIC: those before."""


class SealedBlock(NamedTuple):
    """A block as bytes."""

    shape: TierShape
    number: int
    subject: str
    first: int
    last: int
    data: bytes


def seal(block: Block) -> SealedBlock:
    """Return a block as bytes."""
    counters = columns_of(block.subject).counters
    data = pack(block.cells, block.shape.cells, counters)
    return SealedBlock(block.shape, block.number, block.subject, min(block.cells), max(block.cells), data)


def taken_until(connection: sqlite3.Connection, directory: str, boot: str) -> int:
    """Return up to when (ns, CLOCK_MONOTONIC) the ticks of a directory's daemons of this boot are in blocks; else 0."""
    row = connection.execute("SELECT until FROM taken WHERE directory = ? AND boot = ?", (directory, boot)).fetchone()
    return int(row[0]) if row is not None else 0


def write(connection: sqlite3.Connection, blocks: Iterable[SealedBlock], boot: str, taken: Taken | None = None) -> None:
    """All blocks, and `taken` with them, or, when sqlite3.Error is raised, none.

    A block that exists gets the cells that it lacks.
    """
    with transaction(connection):
        for block in blocks:
            put(connection, block, boot)
        if taken is not None:
            connection.execute("INSERT OR REPLACE INTO taken VALUES (?, ?, ?)", taken)


def stored_cells(data: bytes, crc: int, metrics: str, subject: str, shape: TierShape) -> dict[int, HistoryCell] | None:
    """Return the cells of a stored block, with the metrics of today; None of one that is damaged."""
    if not isinstance(data, bytes) or zlib.crc32(data) != crc:
        return None
    names = columns_of(subject).names
    try:
        if metrics == _named(names):
            return cells_of(data, len(names), shape.cells)
        order = _order(metrics, names)
        return {place: _ordered(cell, order) for place, cell in cells_of(data, len(order.stored), shape.cells).items()}
    except (BadBlock, TypeError, ValueError):
        return None


def put(connection: sqlite3.Connection, block: SealedBlock, boot: str, *, replaces: bool = False) -> None:
    """Write a block with the cells that are there already; `replaces`: those of its own are right in any case.

    Belongs into a transaction.
    """
    key = (block.shape.number, block.number, block.subject)
    names = _named(columns_of(block.subject).names)
    known = connection.execute(
        "SELECT metrics, crc, data FROM block JOIN schema ON schema.id = block.schema"
        " WHERE tier = ? AND number = ? AND subject = ?", key,
    ).fetchone()  # fmt: skip
    if known is not None:
        metrics, crc, data = known
        before = stored_cells(data, crc, metrics, block.subject, block.shape)
        if before:
            block = _merged(block, before, replaces)
    connection.execute("INSERT OR IGNORE INTO schema (metrics) VALUES (?)", (names,))
    connection.execute(
        "INSERT OR REPLACE INTO block (tier, number, subject, boot, schema, first, last, crc, data)"
        " SELECT ?, ?, ?, ?, id, ?, ?, ?, ? FROM schema WHERE metrics = ?",
        (*key, boot, block.first, block.last, zlib.crc32(block.data), block.data, names),
    )


def _merged(block: SealedBlock, before: Mapping[int, HistoryCell], replaces: bool) -> SealedBlock:
    """With the cells of the stored one; of one time, two parts are one cell, else the new one is right."""
    columns = columns_of(block.subject)
    cells = dict(before)
    for place, cell in cells_of(block.data, len(columns.names), block.shape.cells).items():
        known = None if replaces else cells.get(place)
        if known is not None and max(map(add, weights(known, ()), weights(cell, ()))) <= _TWICE * block.shape.step:
            cell = fold([known, cell], columns.counters)
        cells[place] = cell
    return seal(Block(block.shape, block.number, block.subject, cells))


class _Order(NamedTuple):
    """The places of metrics in a block that has other metrics."""

    stored: tuple[str, ...]
    places: tuple[int, ...]
    """Of each metric of today; -1 of one that the block has not."""


@lru_cache
def _order(metrics: str, names: Sequence[str]) -> _Order:
    """Raises ValueError for what is no list of names."""
    stored = tuple(map(str, json.loads(metrics)))
    return _Order(stored, tuple(stored.index(name) if name in stored else -1 for name in names))


def _ordered(cell: HistoryCell, order: _Order) -> HistoryCell:
    low, mean, high, last = ([*column, nan] for column in cell[:4])
    seconds = [*(cell.weight or ()), 0.0]
    return HistoryCell(
        [low[place] for place in order.places],
        [mean[place] for place in order.places],
        [high[place] for place in order.places],
        [last[place] for place in order.places],
        (nan, nan),
        [seconds[place] for place in order.places],
    )


@lru_cache
def _named(names: Sequence[str]) -> str:
    return json.dumps(names)
