"""Restores the history after a daemon was killed: writes frames that are only in the ring, rebuilds coarse cells."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from gpumon.model.frame import Frame
from gpumon.storage.history.block import stored_blocks
from gpumon.storage.history.cell import HistoryCell, fold
from gpumon.storage.history.tier_aggregator import Aggregator, Block, TickValues, values_from_frame
from gpumon.storage.history.tiers import SHAPES, TierShape, columns_of
from gpumon.storage.history.write import seal, write_block
from gpumon.storage.sqlite.write import transaction

EarlierFrames = Callable[[int], Iterator[Frame]]
"""Function that returns the frames of the ring in order, starting with a frame before the given time (ns,
CLOCK_MONOTONIC)."""
_FRAMES_PER_PAUSE = 16
"""Number of frames to write between two calls of `rest`. Writing them takes some milliseconds."""


def write_earlier(
    frames: Iterator[Frame], since_ns: int, until_ns: int, write: Callable[[Block], object], rest: Callable[[], object]
) -> None:
    """Write the blocks of the frames from `since_ns` up to, but not including, `until_ns` (ns, CLOCK_MONOTONIC).

    `write`: called with each block. `rest`: called regularly; it may sleep, so that the sampling thread is not delayed.
    """
    aggregator = Aggregator(write)
    predecessor: TickValues | None = None
    count = 0
    for frame in frames:
        if frame.monotonic_ns >= until_ns:
            break
        values = values_from_frame(frame)
        if frame.monotonic_ns < since_ns:
            predecessor = values
            continue
        if predecessor is not None:
            aggregator.add_predecessor(predecessor)
            predecessor = None
        aggregator.add(values)
        count += 1
        if count % _FRAMES_PER_PAUSE == 0:
            rest()
    if count:
        aggregator.finish()


_MORE_COMPLETE = 1.001
"""Finer cells count as more complete than a stored coarse cell if their values are known for more seconds by at least
this factor.
"""


@dataclass(frozen=True, slots=True)
class CellKey:
    """Identifies a cell of a tier by subject and number."""

    subject: str
    number: int
    """Number of the cell, counted from 1970 in lengths of a cell."""


class _CellRange(NamedTuple):
    """The cells in a stored block, given by the numbers (since 1970) of the first and the last cell."""

    subject: str
    first: int
    last: int


def recover(connection: sqlite3.Connection, boot: str) -> None:
    """Rebuild cells of the coarser tiers that are missing or less complete than the finer cells within them.

    `boot`: boot id of the machine.
    """
    for fine, coarse in pairwise(SHAPES):
        wanted = _missing_cells(_stored_ranges(connection, fine), _stored_ranges(connection, coarse), fine, coarse)
        if not wanted:
            continue
        parts: dict[CellKey, list[HistoryCell]] = defaultdict(list)
        needed = {_fine_block(key, fine, coarse, end) for key in wanted for end in (0, 1)}
        for key, cell in _cells(connection, fine, needed):
            group = CellKey(key.subject, key.number * fine.step // coarse.step)
            if group in wanted:
                parts[group].append(cell)
        blocks: dict[tuple[str, int], dict[int, HistoryCell]] = defaultdict(dict)
        stored = dict(_cells(connection, coarse, {(key.subject, key.number // coarse.cells) for key in parts}))
        for key, cells in parts.items():
            cell = fold(cells)
            if key not in stored or max(cell.seconds) > _MORE_COMPLETE * max(stored[key].seconds):
                block, index = divmod(key.number, coarse.cells)
                blocks[key.subject, block][index] = cell
        with transaction(connection):
            for (name, block), block_cells in blocks.items():
                write_block(connection, seal(Block(coarse, block, name, block_cells)), boot, replaces=True)


def _missing_cells(
    fine_ranges: Iterable[_CellRange], coarse_ranges: Iterable[_CellRange], fine: TierShape, coarse: TierShape
) -> set[CellKey]:
    """Return the missing cells of the coarse tier, and its newest cells, which may be incomplete."""
    stored: dict[tuple[str, int], _CellRange] = {}
    newest: dict[str, int] = {}
    for cells in coarse_ranges:
        stored[cells.subject, cells.first // coarse.cells] = cells
        newest[cells.subject] = max(newest.get(cells.subject, 0), cells.last)
    missing = set()
    for subject, first, last in fine_ranges:
        for number in range(first * fine.step // coarse.step, last * fine.step // coarse.step + 1):
            block = stored.get((subject, number // coarse.cells))
            if block is None or not block.first <= number <= block.last or number == newest[subject]:
                missing.add(CellKey(subject, number))
    return missing


def _stored_ranges(connection: sqlite3.Connection, shape: TierShape) -> list[_CellRange]:
    rows = connection.execute(
        "SELECT subject, number * ?1 + first, number * ?1 + last FROM block WHERE tier = ?2"
        " AND typeof(number) = 'integer' AND min(first, last) >= 0 AND max(first, last) < ?1",  # not damaged
        (shape.cells, shape.number),
    )
    return [_CellRange(*row) for row in rows]


def _fine_block(key: CellKey, fine: TierShape, coarse: TierShape, end: int) -> tuple[str, int]:
    """Return the block of the fine tier in which a coarse cell starts (`end` 0) or ends (`end` 1)."""
    return key.subject, ((key.number + end) * coarse.step // fine.step - end) // fine.cells


def _cells(
    connection: sqlite3.Connection, shape: TierShape, blocks: Iterable[tuple[str, int]]
) -> Iterable[tuple[CellKey, HistoryCell]]:
    """Yield the cells of the given blocks. `blocks`: pairs of subject and block number."""
    for subject, number in sorted(blocks):
        for block in stored_blocks(connection, shape, number, number, subject):
            for cell_number, cell in sorted(block.cells(columns_of(subject).names).items()):
                yield CellKey(subject, cell_number), cell
