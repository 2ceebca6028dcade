"""Cells, which sum the usage of a process over some time, and the encoding of blocks in the coarser process tier.

A block has the cells of one hour. Layout, little-endian, compressed with zlib: `u16` number of processes, `u32` number
of rows; `i64` id and `u16` number of rows of each process; `u8` index of each row in the hour; then columns of `f4`:
the seconds of a cell, and for each measure the seconds in which it is known and its lowest, mean and highest value. The
bytes of each column are shuffled: all first bytes, then all second bytes, … Rows are sorted by process, then by index.
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
from gpumon.storage.processes.spans import BadProcessBlock, decompress, read_array

Cell = list[float]
"""A list of numbers: the seconds in which the process was on the GPU; then for each measure the seconds in which it is
known, the sum of value times seconds, the lowest and the highest value.
"""
PER_MEASURE = 4
LENGTH = 1 + PER_MEASURE * len(MEASURES)
"""Number of elements in a cell."""
_EMPTY = [0.0, *[0.0, 0.0, inf, -inf] * len(MEASURES)]


class IndexedCell(NamedTuple):
    """A cell of one process, with its index in the hour."""

    number: int
    """Number of the process, which is its id in the file."""
    offset: int
    """Index of the cell in the hour."""
    cell: Cell


def empty_cell() -> Cell:
    """Return a cell of zero seconds."""
    return _EMPTY[:]


def add_values(cell: Cell, values: Sequence[float], seconds: float) -> None:
    """Add `values`, one per measure, that were valid for `seconds`. A value of NaN is unknown and adds nothing."""
    cell[0] += seconds
    at = 1
    for value in values:
        # NaN != NaN; no call of is_known, because this runs for each process in each snapshot.
        if value == value:
            cell[at] += seconds
            cell[at + 1] += seconds * value
            if value < cell[at + 2]:
                cell[at + 2] = value
            if value > cell[at + 3]:
                cell[at + 3] = value
        at += PER_MEASURE


def merge_cell(into: Cell, other: Cell) -> None:
    """Add `other`, a cell of another time, to the cell `into`."""
    into[0] += other[0]
    for at in range(1, LENGTH, PER_MEASURE):
        if other[at]:
            into[at] += other[at]
            into[at + 1] += other[at + 1]
            if other[at + 2] < into[at + 2]:
                into[at + 2] = other[at + 2]
            if other[at + 3] > into[at + 3]:
                into[at + 3] = other[at + 3]


def scale_cell(cell: Cell, part: float) -> Cell:
    """Return the usage in a fraction `part` (0 to 1) of the cell's time. Seconds and sums are scaled."""
    result = cell[:]
    result[0] *= part
    for at in range(1, LENGTH, PER_MEASURE):
        result[at] *= part
        result[at + 1] *= part
    return result


_HEAD = struct.Struct("<HI")
_LEVEL, _WINDOW = 1, 13
_COLUMN = 4
MAX_ROWS = 32_768
"""Maximum number of cells in a block, enough for 2,700 processes with 12 cells each. Further cells are left out."""
_UNKNOWN = (0.0, 0.0, inf, -inf)


def pack_cells(cells: Sequence[IndexedCell]) -> bytes:
    """Return the encoded block of these cells. No two cells may have the same process and index."""
    rows = sorted(cells)[:MAX_ROWS]
    counts = Counter(row.number for row in rows)
    parts = [
        _HEAD.pack(len(counts), len(rows)),
        shuffled(array("q", counts)),
        shuffled(array("H", counts.values())),
        bytes(row.offset for row in rows),
    ]
    parts += (shuffled(singles(column)) for column in zip(*map(_stored, rows), strict=True))
    return zlib.compress(b"".join(parts), _LEVEL, _WINDOW)


def unpack_cells(data: bytes, crc: int, wanted: Collection[int] | None = None) -> list[IndexedCell]:
    """Return the cells in a block: of all processes, or only of processes whose number is in `wanted`.

    `crc`: stored checksum of `data`. Raises BadProcessBlock.
    """
    try:
        return list(_rows(decompress(data, crc), wanted))
    except (ValueError, TypeError, IndexError, struct.error, zlib.error) as error:
        raise BadProcessBlock(f"a block of processes is damaged: {error}") from error


def _rows(raw: bytes, wanted: Collection[int] | None) -> Iterator[IndexedCell]:
    processes, rows = _HEAD.unpack_from(raw)
    numbers_at = _HEAD.size
    counts_at = numbers_at + 8 * processes
    offsets_at = counts_at + 2 * processes
    columns_at = offsets_at + rows
    if len(raw) != columns_at + _COLUMN * LENGTH * rows:
        raise ValueError("it has a wrong length")
    numbers = read_array("q", raw[numbers_at:counts_at])
    columns: list[array[Any]] = []
    if wanted is None:  # whole columns, which is much faster
        columns = [
            read_array("f", raw[at : at + _COLUMN * rows]) for at in range(columns_at, len(raw), _COLUMN * rows or 1)
        ]
    begin = 0
    for number, count in zip(numbers, read_array("H", raw[counts_at:offsets_at]), strict=True):
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
            offsets = raw[offsets_at + begin : offsets_at + end]
            for offset, stored in zip(offsets, zip(*mine, strict=True), strict=True):
                yield IndexedCell(number, offset, _loaded(stored))
        begin = end


def _part(raw: bytes, columns: Sequence[int], mine: slice, rows: int) -> list[array[Any]]:
    """Return the rows `mine` of the columns at these offsets. All columns are unshuffled together, which is faster."""
    count = mine.stop - mine.start
    numbers = read_array(
        "f",
        b"".join(
            raw[at + plane * rows + mine.start : at + plane * rows + mine.stop]
            for plane in range(_COLUMN)
            for at in columns
        ),
    )
    return [numbers[first : first + count] for first in range(0, len(numbers), count or 1)]


def _stored(row: IndexedCell) -> list[float]:
    """Return the numbers of a cell as stored in the file, which has a mean instead of a sum."""
    cell = row.cell
    result = cell[:1]
    for at in range(1, LENGTH, PER_MEASURE):
        seconds, total, low, high = cell[at : at + PER_MEASURE]
        result += (seconds, low, total / seconds, high) if seconds else (0.0, nan, nan, nan)
    return result


def _loaded(stored: Sequence[float]) -> Cell:
    if not 0 <= stored[0] < inf:
        raise ValueError("a cell has no length")
    result = [stored[0]]
    for at in range(1, LENGTH, PER_MEASURE):
        seconds, low, mean, high = stored[at : at + PER_MEASURE]
        result += (seconds, seconds * mean, low, high) if 0 < seconds < inf else _UNKNOWN
    return result
