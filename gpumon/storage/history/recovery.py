"""The last ticks of a daemon that was killed: no block has them yet, but the ring of this boot still does."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

from gpumon.model.frame import Frame
from gpumon.storage.history.aggregator import Block, Collector, TickValues, columns_of, values_of_frame
from gpumon.storage.history.cell import HistoryCell, fold, weights
from gpumon.storage.history.tiers import SHAPES, TierShape
from gpumon.storage.history.write import put, seal, stored_cells
from gpumon.storage.sqlite.write import transaction

EarlierFrames = Callable[[int], Iterator[Frame]]
"""Frames of the ring in their order, from one that was taken before a time (ns, CLOCK_MONOTONIC) on."""
_AT_ONCE = 16
"""Frames between two rests: some milliseconds of work."""


def collect_earlier(
    frames: Iterator[Frame], since_ns: int, until_ns: int, write: Callable[[Block], object], rest: Callable[[], object]
) -> None:
    """Collect the frames from `since_ns` to before `until_ns` (CLOCK_MONOTONIC), and hand over all that there is.

    `rest` is called now and then, so that a thread that samples is not held up.
    """
    collector = Collector(write)
    before: TickValues | None = None
    count = 0
    for frame in frames:
        if frame.monotonic_ns >= until_ns:
            break
        values = values_of_frame(frame)
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
"""The share of known seconds from which the finer cells of a time know more of it."""


class CellKey(NamedTuple):
    """A cell of a tier."""

    subject: str
    number: int
    """Since 1970."""


class _Stretch(NamedTuple):
    """A stored block without its cells: numbers of its first and last one since 1970."""

    subject: str
    first: int
    last: int


def recover(connection: sqlite3.Connection, boot: str) -> None:
    """Make the cells of each coarser tier that are missing, or know less, from those of the finer one."""
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
    """The cells of the coarse tier that it lacks, and its newest ones, of which a part may be missing."""
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
    """Seconds that are known of the metric of which most are."""
    return max(weights(cell, ()))


def _stretches(connection: sqlite3.Connection, shape: TierShape) -> list[_Stretch]:
    rows = connection.execute(
        "SELECT subject, number * ?1 + first, number * ?1 + last FROM block WHERE tier = ?2"
        " AND typeof(number) = 'integer' AND min(first, last) >= 0 AND max(first, last) < ?1",  # else it is damaged
        (shape.cells, shape.number),
    )
    return [_Stretch(*row) for row in rows]


def _block_of(key: CellKey, fine: TierShape, coarse: TierShape, end: int) -> tuple[str, int]:
    """The block of the fine tier in which a cell of the coarse one begins (`end` 0) or ends (1)."""
    return key.subject, ((key.number + end) * coarse.step // fine.step - end) // fine.cells


def _cells(
    connection: sqlite3.Connection, shape: TierShape, blocks: Iterable[tuple[str, int]]
) -> Iterable[tuple[CellKey, HistoryCell]]:
    """The cells of some blocks, in the order of time."""
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
