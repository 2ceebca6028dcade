"""Recover history after a killed daemon: frames in the ring that are in no block, and missing coarser cells."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

from gpumon.model.frame import Frame
from gpumon.storage.history.aggregator import Block, Collector, TickValues, columns_of, values_from_frame
from gpumon.storage.history.cell import HistoryCell, fold, weights
from gpumon.storage.history.tiers import SHAPES, TierShape
from gpumon.storage.history.write import put, seal, stored_cells
from gpumon.storage.sqlite.write import transaction

EarlierFrames = Callable[[int], Iterator[Frame]]
"""Returns the frames of the ring in order, starting with one before the given time (ns, CLOCK_MONOTONIC)."""
_AT_ONCE = 16
"""Frames between two pauses: some milliseconds of work."""


def collect_earlier(
    frames: Iterator[Frame], since_ns: int, until_ns: int, write: Callable[[Block], object], rest: Callable[[], object]
) -> None:
    """Write the blocks of the frames from `since_ns` to before `until_ns` (CLOCK_MONOTONIC).

    `rest` is called regularly, so that it can pause and not delay the sampling thread.
    """
    collector = Collector(write)
    before: TickValues | None = None
    count = 0
    for frame in frames:
        if frame.monotonic_ns >= until_ns:
            break
        values = values_from_frame(frame)
        if frame.monotonic_ns < since_ns:
            before = values
            continue
        if before is not None:
            collector.follow(before)
            before = None
        collector.add(values)
        count += 1
        if count % _AT_ONCE == 0:
            rest()
    if count:
        collector.finish()


_MORE = 1.001
"""Factor of known seconds from which the finer cells count as more complete."""


class CellKey(NamedTuple):
    """Key of a cell in a tier."""

    subject: str
    number: int
    """Number since 1970."""


class _Stretch(NamedTuple):
    """The cells in a stored block: numbers (since 1970) of the first and the last one."""

    subject: str
    first: int
    last: int


def recover(connection: sqlite3.Connection, boot: str) -> None:
    """Rebuild the cells of each coarser tier that are missing or less complete than those of the finer tier."""
    for fine, coarse in pairwise(SHAPES):
        wanted = _wanted(_stretches(connection, fine), _stretches(connection, coarse), fine, coarse)
        if not wanted:
            continue
        parts: dict[CellKey, list[HistoryCell]] = defaultdict(list)
        needed = {_block_of(key, fine, coarse, end) for key in wanted for end in (0, 1)}
        for key, cell in _cells(connection, fine, needed):
            group = CellKey(key.subject, key.number * fine.step // coarse.step)
            if group in wanted:
                parts[group].append(cell)
        blocks: dict[tuple[str, int], dict[int, HistoryCell]] = defaultdict(dict)
        known = dict(_cells(connection, coarse, {(key.subject, key.number // coarse.cells) for key in parts}))
        for key, cells in parts.items():
            cell = fold(cells, columns_of(key.subject).counters)
            if key not in known or _longest(cell) > _MORE * _longest(known[key]):
                block, place = divmod(key.number, coarse.cells)
                blocks[key.subject, block][place] = cell
        with transaction(connection):
            for (name, block), cells_there in blocks.items():
                put(connection, seal(Block(coarse, block, name, cells_there)), boot, replaces=True)


def _wanted(
    fine_has: Iterable[_Stretch], coarse_has: Iterable[_Stretch], fine: TierShape, coarse: TierShape
) -> set[CellKey]:
    """Return the missing cells of the coarse tier, and its newest cells, which may be incomplete."""
    known: dict[tuple[str, int], _Stretch] = {}
    newest: dict[str, int] = {}
    for one in coarse_has:
        known[one.subject, one.first // coarse.cells] = one
        newest[one.subject] = max(newest.get(one.subject, 0), one.last)
    found = set()
    for subject, first, last in fine_has:
        for number in range(first * fine.step // coarse.step, last * fine.step // coarse.step + 1):
            there = known.get((subject, number // coarse.cells))
            if there is None or not there.first <= number <= there.last or number == newest[subject]:
                found.add(CellKey(subject, number))
    return found


def _longest(cell: HistoryCell) -> float:
    """Return the known seconds of the metric with the most."""
    return max(weights(cell, ()))


def _stretches(connection: sqlite3.Connection, shape: TierShape) -> list[_Stretch]:
    rows = connection.execute(
        "SELECT subject, number * ?1 + first, number * ?1 + last FROM block WHERE tier = ?2"
        " AND typeof(number) = 'integer' AND min(first, last) >= 0 AND max(first, last) < ?1",  # not damaged
        (shape.cells, shape.number),
    )
    return [_Stretch(*row) for row in rows]


def _block_of(key: CellKey, fine: TierShape, coarse: TierShape, end: int) -> tuple[str, int]:
    """Return the block of the fine tier in which a coarse cell begins (`end` 0) or ends (1)."""
    return key.subject, ((key.number + end) * coarse.step // fine.step - end) // fine.cells


def _cells(
    connection: sqlite3.Connection, shape: TierShape, blocks: Iterable[tuple[str, int]]
) -> Iterable[tuple[CellKey, HistoryCell]]:
    """Yield the cells of some blocks, in order of time."""
    for subject, number in sorted(blocks):
        row = connection.execute(
            "SELECT metrics, crc, data FROM block JOIN schema ON schema.id = block.schema"
            " WHERE tier = ? AND number = ? AND subject = ?",
            (shape.number, number, subject),
        ).fetchone()
        if row is not None:
            metrics, crc, data = row
            for place, cell in sorted((stored_cells(data, crc, metrics, subject, shape) or {}).items()):
                yield CellKey(subject, number * shape.cells + place), cell
