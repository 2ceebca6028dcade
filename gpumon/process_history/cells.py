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
from typing import Any

from gpumon.history.cell import singles
from gpumon.history.columns import shuffled
from gpumon.process_history.cell import LENGTH, PER_MEASURE, Cell, PlacedCell
from gpumon.process_history.stretches import BadProcessBlock, inflated, numbers_of

_HEAD = struct.Struct("<HI")
_LEVEL, _WINDOW = 1, 13
_COLUMN = 4
MOST_ROWS = 32_768
"""Cells of a block: 12 of each of 2,700 processes; those of more are left out."""
_UNKNOWN = (0.0, 0.0, inf, -inf)


def pack(cells: Sequence[PlacedCell]) -> bytes:
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


def unpack(data: bytes, crc: int, wanted: Collection[int] | None = None) -> list[PlacedCell]:
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
