"""Hours of the finer tier into blocks of the coarser one, once they are over: also those that a killed daemon left."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, groupby
from math import inf
from operator import mul

from gpumon.common.clock import SECOND
from gpumon.database.cells import typed_rows
from gpumon.history.tiers import PROCESS_SHAPES
from gpumon.process_history.cell import Cell, PlacedCell, fold
from gpumon.process_history.cells import pack
from gpumon.process_history.measures import MEASURES
from gpumon.process_history.stretches import BadProcessBlock, SeenStretch, unpack

_FINE, _COARSE = PROCESS_SHAPES
_HOUR = _COARSE.block * SECOND
PUT = "INSERT OR REPLACE INTO process_block (tier, begin, end, crc, data) VALUES (?, ?, ?, ?, ?)"
_DUE = (
    "SELECT DISTINCT begin / ?1 FROM process_block WHERE tier = ?2 AND begin < ?4 AND begin >= ?3"
    " UNION SELECT DISTINCT end / ?1 FROM process_block WHERE tier = ?2 AND end < ?4 AND end >= ?3 ORDER BY 1"
)


def coarsen(connection: sqlite3.Connection, until_ns: int) -> None:
    """Write the hours that are over before `until_ns` (ns since 1970) and not written, within an open transaction."""
    (newest,) = connection.execute(
        "SELECT max(end) FROM process_block WHERE tier = ? AND end <= ?", (_COARSE.number, until_ns)
    ).fetchone()
    due = connection.execute(_DUE, (_HOUR, _FINE.number, newest or 0, until_ns // _HOUR * _HOUR)).fetchall()
    for (hour,) in due:
        cells = _cells(_within(connection, hour * _HOUR, (hour + 1) * _HOUR))
        if cells:
            data = pack(cells)
            connection.execute(PUT, (_COARSE.number, hour * _HOUR, (hour + 1) * _HOUR, zlib.crc32(data), data))


def _within(connection: sqlite3.Connection, begin: int, end: int) -> Iterator[SeenStretch]:
    """The stretches of which the middle is within some time, in their order."""
    rows = connection.execute(
        "SELECT data, crc FROM process_block WHERE tier = ? AND begin < ? AND end > ? ORDER BY begin",
        (_FINE.number, end, begin),
    )
    for data, crc in typed_rows(rows, bytes, int):
        with suppress(BadProcessBlock):  # a gap
            yield from (stretch for stretch in unpack(data, crc) if begin <= stretch.middle_ns < end)


def _cells(stretches: Iterable[SeenStretch]) -> list[PlacedCell]:
    found: dict[tuple[int, int], Cell] = {}
    for (place, numbers), run in groupby(stretches, lambda one: (_place(one), one.numbers)):
        for number, cell in zip(numbers, _folded(list(run), len(numbers)), strict=True):
            known = found.get((number, place))
            if known is None:
                found[number, place] = cell
            else:
                fold(known, cell)
    return [PlacedCell(number, place, cell) for (number, place), cell in found.items()]


def _place(stretch: SeenStretch) -> int:
    return stretch.middle_ns // (_COARSE.step * SECOND) % _COARSE.cells


def _folded(run: Sequence[SeenStretch], count: int) -> list[Cell]:
    """The cells of `count` processes over stretches that all have the same ones; by column, which is faster."""
    seconds = [stretch.seconds for stretch in run]
    whole = sum(seconds)
    cells = [[whole] for _ in range(count)]
    for measure in range(len(MEASURES)):
        values = list(chain.from_iterable(stretch.columns[measure] for stretch in run))
        for place, cell in enumerate(cells):
            column = values[place::count]
            total = sum(map(mul, column, seconds))
            # NaN is not itself; in place, because this is done for each process and measure.
            if total == total:
                cell += (whole, total, min(column), max(column))
                continue
            known = [(value, length) for value, length in zip(column, seconds, strict=True) if value == value]
            cell += (
                sum(length for _, length in known), sum(value * length for value, length in known),
                min((value for value, _ in known), default=inf), max((value for value, _ in known), default=-inf),
            )  # fmt: skip
    return cells
