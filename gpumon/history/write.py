"""Sealed blocks into the file."""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from gpumon.history.block import BadBlock, cells_of, pack
from gpumon.history.cell import HistoryCell, fold, weights
from gpumon.history.collect import Block, columns_of
from gpumon.history.tiers import SHAPES, TierShape

_TWICE = 1.05
"""Two cells of one time that have more than this share of it between them are not two halves of it."""


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


def write(connection: sqlite3.Connection, blocks: Iterable[SealedBlock], boot: str) -> None:
    """All blocks or, when sqlite3.Error is raised, none. One that is there already gets the cells that it lacks."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        for block in blocks:
            _put(connection, block, boot)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def recover(connection: sqlite3.Connection, boot: str) -> None:
    """Make cells of a coarser tier that a daemon which was killed had not written, from those of the finer one."""
    for fine, coarse in pairwise(SHAPES):
        since = _end(connection, coarse)
        first = max(since // fine.step, _end(connection, fine) // fine.step - coarse.block // fine.step)
        found: dict[tuple[str, int], list[HistoryCell]] = {}
        for number, subject, cells in _stored(connection, fine, first // fine.cells):
            for place, cell in sorted(cells.items()):
                time = (number * fine.cells + place) * fine.step
                if time >= since:
                    found.setdefault((subject, time // coarse.step), []).append(cell)
        blocks: dict[tuple[str, int], dict[int, HistoryCell]] = {}
        for (subject, group), cells_there in found.items():
            block, place = divmod(group, coarse.cells)
            blocks.setdefault((subject, block), {})[place] = fold(cells_there, columns_of(subject).counters)
        write(connection, [seal(Block(coarse, block, name, cells)) for (name, block), cells in blocks.items()], boot)


def _end(connection: sqlite3.Connection, shape: TierShape) -> int:
    """When the newest cell of a tier is over (s since 1970); 0 where there is none."""
    newest = connection.execute(
        "SELECT number, max(last) FROM block"
        " WHERE tier = ?1 AND number = (SELECT max(number) FROM block WHERE tier = ?1)",
        (shape.number,),
    ).fetchone()
    return 0 if newest is None or newest[0] is None else (newest[0] * shape.cells + newest[1] + 1) * shape.step


def _stored(
    connection: sqlite3.Connection, shape: TierShape, since: int
) -> Iterable[tuple[int, str, dict[int, HistoryCell]]]:
    rows = connection.execute(
        "SELECT number, subject, metrics, crc, data FROM block JOIN schema ON schema.id = block.schema"
        " WHERE tier = ? AND number >= ? ORDER BY number",
        (shape.number, since),
    ).fetchall()
    for number, subject, metrics, crc, data in rows:
        cells = _cells(data, crc, metrics, subject, shape)
        if cells is not None:
            yield number, subject, cells


def _cells(data: bytes, crc: int, metrics: str, subject: str, shape: TierShape) -> dict[int, HistoryCell] | None:
    """The cells of a stored block; None of one that is damaged, or of other metrics than today's."""
    if zlib.crc32(data) != crc or metrics != _named(columns_of(subject).names):
        return None
    try:
        return cells_of(data, len(columns_of(subject).names), shape.cells)
    except BadBlock:
        return None


def _put(connection: sqlite3.Connection, block: SealedBlock, boot: str) -> None:
    key = (block.shape.number, block.number, block.subject)
    names = _named(columns_of(block.subject).names)
    known = connection.execute(
        "SELECT metrics, crc, data FROM block JOIN schema ON schema.id = block.schema"
        " WHERE tier = ? AND number = ? AND subject = ?", key,
    ).fetchone()  # fmt: skip
    if known is not None:
        metrics, crc, data = known
        before = _cells(data, crc, metrics, block.subject, block.shape)
        if before:
            block = _merged(block, before)
    connection.execute("INSERT OR IGNORE INTO schema (metrics) VALUES (?)", (names,))
    connection.execute(
        "INSERT OR REPLACE INTO block (tier, number, subject, boot, schema, first, last, crc, data)"
        " SELECT ?, ?, ?, ?, id, ?, ?, ?, ? FROM schema WHERE metrics = ?",
        (*key, boot, block.first, block.last, zlib.crc32(block.data), block.data, names),
    )


def _merged(block: SealedBlock, before: Mapping[int, HistoryCell]) -> SealedBlock:
    """With the cells of the stored one; of one time, two parts are one cell, else the new one is right."""
    columns = columns_of(block.subject)
    cells = dict(before)
    for place, cell in cells_of(block.data, len(columns.names), block.shape.cells).items():
        if place in cells and _most(cells[place]) + _most(cell) <= _TWICE * block.shape.step:
            cell = fold([cells[place], cell], columns.counters)
        cells[place] = cell
    return seal(Block(block.shape, block.number, block.subject, cells))


def _most(cell: HistoryCell) -> float:
    return max(weights(cell, ()))


@lru_cache
def _named(names: Sequence[str]) -> str:
    return json.dumps(names)
