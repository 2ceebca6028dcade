"""The bytes of a block of the coarser tier: an hour of cells of all processes, compressed.

Layout, little-endian, behind zlib: `u16` processes, `u32` rows; `i64` id and `u16` rows of each process; `u8` place of
each row; then columns of `f4`: the seconds of a cell, and of each measure known seconds, lowest, mean and highest
value. Of numbers, all first bytes come first, then the second ones. Rows stand by process, then by place.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from math import inf, nan
from typing import Any, NamedTuple

from gpumon.storage.history.block import shuffled
from gpumon.storage.history.cell import singles
from gpumon.storage.processes.measures import MEASURES
from gpumon.storage.processes.spans import BadProcessBlock, inflated, numbers_of

Cell = list[float]
"""Seconds in which the process was there; then of each measure the seconds that are known, value times seconds, the
lowest and the highest value."""
PER_MEASURE = 4
LENGTH = 1 + PER_MEASURE * len(MEASURES)
"""Numbers in a cell."""
_EMPTY = [0.0, *[0.0, 0.0, inf, -inf] * len(MEASURES)]


class PlacedCell(NamedTuple):
    """A cell of a process at its place in a block."""

    number: int
    """Of the process, in the file."""
    place: int
    cell: Cell


def empty() -> Cell:
    """Return a cell of no time."""
    return _EMPTY[:]


def hold(cell: Cell, values: Sequence[float], seconds: float) -> None:
    """Add `values`, one for each measure, that held for `seconds`; NaN is not known, and adds nothing."""
    cell[0] += seconds
    at = 1
    for value in values:
        # NaN is not itself; in place, because this is done for each process of each look.
        if value == value:
            cell[at] += seconds
            cell[at + 1] += seconds * value
            if value < cell[at + 2]:
                cell[at + 2] = value
            if value > cell[at + 3]:
                cell[at + 3] = value
        at += PER_MEASURE


def fold(into: Cell, other: Cell) -> None:
    """Add a cell of another time to one."""
    into[0] += other[0]
    for at in range(1, LENGTH, PER_MEASURE):
        if other[at]:
            into[at] += other[at]
            into[at + 1] += other[at + 1]
            if other[at + 2] < into[at + 2]:
                into[at + 2] = other[at + 2]
            if other[at + 3] > into[at + 3]:
                into[at + 3] = other[at + 3]


def share(cell: Cell, part: float) -> Cell:
    """Return the cell of a part (0 to 1) of its time."""
    found = cell[:]
    found[0] *= part
    for at in range(1, LENGTH, PER_MEASURE):
        found[at] *= part
        found[at + 1] *= part
    return found


_HEAD = struct.Struct("<HI")
_LEVEL, _WINDOW = 1, 13
_COLUMN = 4
MOST_ROWS = 32_768
"""Cells of a block: 12 of each of 2,700 processes; those of more are left out."""
_UNKNOWN = (0.0, 0.0, inf, -inf)


def pack_cells(cells: Sequence[PlacedCell]) -> bytes:
    """Return the bytes of cells, each of a process and a place of its own."""
    rows = sorted(cells)[:MOST_ROWS]
    counts = Counter(row.number for row in rows)
    parts = [
        _HEAD.pack(len(counts), len(rows)),
        shuffled(array("q", counts)),
        shuffled(array("H", counts.values())),
        bytes(row.place for row in rows),
    ]
    parts += (shuffled(singles(column)) for column in zip(*map(_stored, rows), strict=True))
    return zlib.compress(b"".join(parts), _LEVEL, _WINDOW)


def unpack_cells(data: bytes, crc: int, wanted: Collection[int] | None = None) -> list[PlacedCell]:
    """Return the cells of a block, of the processes with these numbers, else of all. Raises BadProcessBlock."""
    try:
        return list(_rows(inflated(data, crc), wanted))
    except (ValueError, TypeError, IndexError, struct.error, zlib.error) as error:
        raise BadProcessBlock(f"a block of processes is damaged: {error}") from error


def _rows(raw: bytes, wanted: Collection[int] | None) -> Iterator[PlacedCell]:
    processes, rows = _HEAD.unpack_from(raw)
    numbers_at = _HEAD.size
    counts_at = numbers_at + 8 * processes
    places_at = counts_at + 2 * processes
    columns_at = places_at + rows
    if len(raw) != columns_at + _COLUMN * LENGTH * rows:
        raise ValueError("it is of another length")
    numbers = numbers_of("q", raw[numbers_at:counts_at])
    columns: list[array[Any]] = []
    if wanted is None:  # all at once, which is much less work for each
        columns = [
            numbers_of("f", raw[at : at + _COLUMN * rows]) for at in range(columns_at, len(raw), _COLUMN * rows or 1)
        ]
    begin = 0
    for number, count in zip(numbers, numbers_of("H", raw[counts_at:places_at]), strict=True):
        end = begin + count
        if end > rows:
            raise ValueError("it has too few rows")
        if wanted is None:
            mine = [column[begin:end] for column in columns]
        elif number in wanted:
            mine = _part(raw, range(columns_at, len(raw), _COLUMN * rows), slice(begin, end), rows)
        else:
            mine = []
        if mine:
            places = raw[places_at + begin : places_at + end]
            for place, stored in zip(places, zip(*mine, strict=True), strict=True):
                yield PlacedCell(number, place, _loaded(stored))
        begin = end


def _part(raw: bytes, columns: Sequence[int], mine: slice, rows: int) -> list[array[Any]]:
    """Some rows of the columns that begin at these places; of all at once, which is less work than of each."""
    count = mine.stop - mine.start
    numbers = numbers_of(
        "f",
        b"".join(
            raw[at + plane * rows + mine.start : at + plane * rows + mine.stop]
            for plane in range(_COLUMN)
            for at in columns
        ),
    )
    return [numbers[first : first + count] for first in range(0, len(numbers), count or 1)]


def _stored(row: PlacedCell) -> list[float]:
    """The numbers of a cell as the file has them: a mean in place of a total."""
    cell = row.cell
    found = cell[:1]
    for at in range(1, LENGTH, PER_MEASURE):
        seconds, total, low, high = cell[at : at + PER_MEASURE]
        found += (seconds, low, total / seconds, high) if seconds else (0.0, nan, nan, nan)
    return found


def _loaded(stored: Sequence[float]) -> Cell:
    if not 0 <= stored[0] < inf:
        raise ValueError("a cell has no length")
    found = [stored[0]]
    for at in range(1, LENGTH, PER_MEASURE):
        seconds, low, mean, high = stored[at : at + PER_MEASURE]
        found += (seconds, seconds * mean, low, high) if 0 < seconds < inf else _UNKNOWN
    return found
