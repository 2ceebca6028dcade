"""Writes blocks into the history file, and reads stored blocks with their metrics in the order of this version."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import nan
from operator import add
from typing import NamedTuple

from gpumon.common.columnar import ColumnarBlock, DamagedBlock
from gpumon.storage.history.aggregator import Block, columns_of
from gpumon.storage.history.block import pack, unpack_cells
from gpumon.storage.history.cell import HistoryCell, fold, weights
from gpumon.storage.history.tiers import TierShape
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


def stored_cells(data: bytes, metrics: str, subject: str, shape: TierShape) -> dict[int, HistoryCell] | None:
    """Return the cells of a stored block by index, or None if the block is damaged.

    The cells have the metrics of this version. `metrics`: the block's own metrics, as JSON list.
    """
    names = columns_of(subject).names
    try:
        if metrics == _names_json(names):
            return unpack_cells(ColumnarBlock(data), len(names), shape.cells)
        order = _metric_order(metrics, names)
        cells = unpack_cells(ColumnarBlock(data), len(order.stored), shape.cells)
        return {index: _reorder(cell, order) for index, cell in cells.items()}
    except (DamagedBlock, TypeError, ValueError):
        return None


def write_block(connection: sqlite3.Connection, block: SealedBlock, boot: str, *, replaces: bool = False) -> None:
    """Write a block in an open transaction. Merge it with the stored block of the same number, if any.

    `replaces`: whether a new cell replaces the stored cell of the same time.
    """
    key = (block.shape.number, block.number, block.subject)
    names = _names_json(columns_of(block.subject).names)
    row = connection.execute(
        "SELECT metrics, data FROM block JOIN schema ON schema.id = block.schema"
        " WHERE tier = ? AND number = ? AND subject = ?", key,
    ).fetchone()  # fmt: skip
    if row is not None:
        metrics, data = row
        stored = stored_cells(data, metrics, block.subject, block.shape)
        if stored:
            block = _merge(block, stored, replaces)
    connection.execute("INSERT OR IGNORE INTO schema (metrics) VALUES (?)", (names,))
    connection.execute(
        "INSERT OR REPLACE INTO block (tier, number, subject, boot, schema, first, last, data)"
        " SELECT ?, ?, ?, ?, id, ?, ?, ? FROM schema WHERE metrics = ?",
        (*key, boot, block.first, block.last, block.data, names),
    )


def _merge(block: SealedBlock, stored: Mapping[int, HistoryCell], replaces: bool) -> SealedBlock:
    """Return the block with the stored cells added.

    If both have a cell for the same time, the two are merged if they do not overlap and `replaces` is false. Otherwise
    the new cell is used.
    """
    columns = columns_of(block.subject)
    cells = dict(stored)
    for index, cell in unpack_cells(ColumnarBlock(block.data), len(columns.names), block.shape.cells).items():
        other = None if replaces else cells.get(index)
        if other is not None and max(map(add, weights(other, ()), weights(cell, ()))) <= _OVERLAP * block.shape.step:
            cell = fold([other, cell], columns.counters)
        cells[index] = cell
    return seal(Block(block.shape, block.number, block.subject, cells))


@dataclass(frozen=True, slots=True)
class _MetricOrder:
    """The order of metrics in a block that another version has written."""

    stored: tuple[str, ...]
    indexes: tuple[int, ...]
    """Index of each of this version's metrics in the block; -1 if the block lacks the metric."""


@lru_cache
def _metric_order(metrics: str, names: Sequence[str]) -> _MetricOrder:
    """Return the positions of the metrics `names` in a block with the metrics `metrics` (JSON list).

    Raises ValueError for invalid JSON.
    """
    stored = tuple(map(str, json.loads(metrics)))
    return _MetricOrder(stored, tuple(stored.index(name) if name in stored else -1 for name in names))


def _reorder(cell: HistoryCell, order: _MetricOrder) -> HistoryCell:
    """Return the cell with the metrics of this version. Metrics that the block lacks are NaN."""
    low, mean, high, last = ([*column, nan] for column in cell[:4])
    seconds = [*(cell.weight or ()), 0.0]
    return HistoryCell(
        [low[index] for index in order.indexes],
        [mean[index] for index in order.indexes],
        [high[index] for index in order.indexes],
        [last[index] for index in order.indexes],
        (nan, nan),
        [seconds[index] for index in order.indexes],
    )


@lru_cache
def _names_json(names: Sequence[str]) -> str:
    return json.dumps(names)
