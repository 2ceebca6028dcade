"""The bytes of a block of the finer tier: what looks have seen, compressed.

Layout, little-endian, behind zlib: `u16` processes, `u16` looks, `u32` rows; `i64` id of each process; of each look
`i64` begin (ns since 1970), `f4` seconds and `u16` rows; `u16` process of each row, by its place; then a column of `f4`
for each measure. Of numbers, all first bytes come first, then the second ones.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

from gpumon.common.clock import SECOND
from gpumon.common.errors import GpumonError
from gpumon.storage.history.block import little, shuffled, unshuffled
from gpumon.storage.history.cell import singles
from gpumon.storage.processes.measures import MEASURES

_HEAD = struct.Struct("<HHI")
_LEVEL, _WINDOW = 1, 13
MOST_ROWS = 60_000
"""Processes of all looks of a block, so that a `u16` counts them: a block that says more is none."""
_MOST = 4 * 2**20


class BadProcessBlock(GpumonError):
    """A stored block of processes is damaged."""


class SeenStretch(NamedTuple):
    """The processes and values of a look."""

    begin_ns: int
    """ns since 1970."""
    seconds: float
    numbers: Sequence[int]
    """Of its processes."""
    columns: Sequence[Sequence[float]]
    """Of each measure, a value for each of them; NaN is not known."""

    @property
    def middle_ns(self) -> int:
        """ns since 1970."""
        return self.begin_ns + round(self.seconds * SECOND / 2)


def pack_spans(stretches: Sequence[SeenStretch]) -> bytes:
    """Return the bytes of stretches."""
    numbers = list(dict.fromkeys(chain.from_iterable(stretch.numbers for stretch in stretches)))
    places = {number: place for place, number in enumerate(numbers)}
    rows = array("H", map(places.__getitem__, chain.from_iterable(stretch.numbers for stretch in stretches)))
    parts = [
        _HEAD.pack(len(numbers), len(stretches), len(rows)),
        shuffled(array("q", numbers)),
        shuffled(array("q", [stretch.begin_ns for stretch in stretches])),
        shuffled(array("f", [stretch.seconds for stretch in stretches])),
        shuffled(array("H", [len(stretch.numbers) for stretch in stretches])),
        shuffled(rows),
    ]
    for place in range(len(MEASURES)):
        values = list(chain.from_iterable(stretch.columns[place] for stretch in stretches))
        parts.append(shuffled(singles(values)))
    return zlib.compress(b"".join(parts), _LEVEL, _WINDOW)


def unpack_spans(data: bytes, crc: int) -> list[SeenStretch]:
    """Return the stretches of a block. Raises BadProcessBlock."""
    try:
        return list(_stretches(inflated(data, crc)))
    except (ValueError, TypeError, IndexError, struct.error, zlib.error) as error:
        raise BadProcessBlock(f"a block of processes is damaged: {error}") from error


def inflated(data: bytes, crc: int) -> bytes:
    """Return what a block has behind its compression. Raises zlib.error or ValueError."""
    if zlib.crc32(data) != crc:
        raise ValueError("it has a wrong checksum")
    return zlib.decompressobj().decompress(data, _MOST)


def _stretches(raw: bytes) -> Iterator[SeenStretch]:
    processes, looks, rows = _HEAD.unpack_from(raw)
    at = _HEAD.size

    def column(kind: str, length: int) -> array[Any]:
        nonlocal at
        found = numbers_of(kind, raw[at : at + length * array(kind).itemsize])
        if len(found) != length or rows > MOST_ROWS:
            raise ValueError("it is of another length")
        at += length * found.itemsize
        return found

    numbers, begins, seconds = column("q", processes), column("q", looks), column("f", looks)
    counts, places = column("H", looks), column("H", rows)
    columns = [column("f", rows) for _ in MEASURES]
    first = 0
    for begin_ns, length, count in zip(begins, seconds, counts, strict=True):
        here = slice(first, first + count)
        first += count
        if first > rows or not 0 <= length < 2**32:
            raise ValueError("its looks are not those of its rows")
        mine = [numbers[place] for place in places[here]]
        yield SeenStretch(begin_ns, length, mine, [column[here] for column in columns])


def numbers_of(kind: str, data: bytes) -> array[Any]:
    """Return the numbers of a column of an `array` type."""
    found: array[Any] = array(kind)
    found.frombytes(unshuffled(data, found.itemsize))
    return little(found)
