"""Seals blocks of cells, and writes them into the history file, merged with the cells that it already has."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from operator import add
from typing import NamedTuple

from gpumon.common.columnar import ColumnarBlock
from gpumon.storage.history.block import pack, stored_blocks, unpack_cells
from gpumon.storage.history.cell import HistoryCell, fold
from gpumon.storage.history.tier_aggregator import Block
from gpumon.storage.history.tiers import TierShape, columns_of
from gpumon.storage.sqlite.write import transaction

_OVERLAP = 1.05
"""Two cells for the same time overlap, and are not merged, if the times in which their values are known add up to more
than the length of a cell multiplied by this factor.
"""


class WriteProgress(NamedTuple):
    """The time up to which the ticks of a daemon have been written. It is a row of the table `taken`."""

    directory: str
    """Directory of the daemon's ring."""
    boot: str
    until_ns: int
    """Ticks before this time are in blocks: ns, CLOCK_MONOTONIC."""


class SealedBlock(NamedTuple):
    """An encoded block to which no more cells are added."""

    shape: TierShape
    number: int
    subject: str
    first: int
    """Index of the first cell in the block."""
    last: int
    """Index of the last cell in the block."""
    data: bytes


def seal(block: Block) -> SealedBlock:
    """Encode the cells of a block for the history file."""
    counters = columns_of(block.subject).counters
    data = pack(block.cells, block.shape.cells, counters)
    return SealedBlock(block.shape, block.number, block.subject, min(block.cells), max(block.cells), data)


def written_until(connection: sqlite3.Connection, directory: str, boot: str) -> int:
    """Return the time (ns, CLOCK_MONOTONIC) up to which ticks have been written; 0 if none have been written.

    `directory`, `boot`: the ring directory and boot id of the daemons whose ticks count.
    """
    row = connection.execute("SELECT until FROM taken WHERE directory = ? AND boot = ?", (directory, boot)).fetchone()
    return int(row[0]) if row is not None else 0


def write(
    connection: sqlite3.Connection, blocks: Iterable[SealedBlock], boot: str, progress: WriteProgress | None = None
) -> None:
    """Write all blocks and `progress` in one transaction.

    If the file already has a block, the new cells are merged into it. `boot`: boot id of the machine. Raises
    sqlite3.Error if writing fails; in this case nothing has been written.
    """
    with transaction(connection):
        for block in blocks:
            write_block(connection, block, boot)
        if progress is not None:
            connection.execute("INSERT OR REPLACE INTO taken VALUES (?, ?, ?)", progress)


def write_block(connection: sqlite3.Connection, block: SealedBlock, boot: str, *, replaces: bool = False) -> None:
    """Write a block in an open transaction. Merge it with the stored block of the same number, if any.

    `replaces`: whether a new cell replaces the stored cell of the same time.
    """
    key = (block.shape.number, block.number, block.subject)
    columns = columns_of(block.subject)
    for stored in stored_blocks(connection, block.shape, block.number, block.number, block.subject):
        if cells := stored.cells(columns.names):
            block = _merge(block, cells, replaces)
    names = json.dumps(columns.names)
    connection.execute("INSERT OR IGNORE INTO schema (metrics) VALUES (?)", (names,))
    connection.execute(
        "INSERT OR REPLACE INTO block (tier, number, subject, boot, schema, first, last, data)"
        " SELECT ?, ?, ?, ?, id, ?, ?, ? FROM schema WHERE metrics = ?",
        (*key, boot, block.first, block.last, block.data, names),
    )


def _merge(block: SealedBlock, stored: Mapping[int, HistoryCell], replaces: bool) -> SealedBlock:
    """Return the block with the stored cells added, which are given by number since 1970.

    If both have a cell for the same time, the two are merged if they do not overlap and `replaces` is false. Otherwise
    the new cell is used.
    """
    columns, first = columns_of(block.subject), block.number * block.shape.cells
    cells = {number - first: cell for number, cell in stored.items()}
    new = unpack_cells(ColumnarBlock(block.data), range(len(columns.names)), block.shape.cells)
    for index, cell in new.items():
        other = None if replaces else cells.get(index)
        if other is not None and max(map(add, other.seconds, cell.seconds)) <= _OVERLAP * block.shape.step:
            cell = fold([other, cell])
        cells[index] = cell
    return seal(Block(block.shape, block.number, block.subject, cells))
