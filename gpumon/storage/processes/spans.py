"""Encoding of a block in the finer process tier: spans of time with their processes and values.

Layout, little-endian, compressed with zlib: `u16` number of processes, `u16` number of spans, `u32` number of rows;
`i64` id of each process; for each span `i64` start (ns since 1970), `f4` length in seconds and `u16` number of rows;
for each row the `u16` index of its process; then a column of `f4` for each measure. The bytes of each column are
shuffled: all first bytes, then all second bytes, …
"""

from __future__ import annotations

import struct
import zlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from gpumon.common.clock import SECOND
from gpumon.common.errors import GpumonError
from gpumon.storage.history.block import shuffled, swap_on_big_endian, unshuffled
from gpumon.storage.history.cell import singles
from gpumon.storage.processes.measures import MEASURES

_HEAD = struct.Struct("<HHI")
_LEVEL, _WINDOW = 1, 13
MAX_ROWS = 60_000
"""Maximum number of rows in a block, which fits into a `u16`. A block with more rows is damaged."""
_MAX_BYTES = 4 * 2**20


class BadProcessBlock(GpumonError):
    """Raised if a stored block of processes is damaged."""


@dataclass(frozen=True, slots=True)
class ProcessSpan:
    """The processes in a span of time, and a column of values for each measure."""

    begin_ns: int
    """Start of the span, ns since 1970."""
    seconds: float
    """Length of the span in seconds."""
    numbers: Sequence[int]
    """Number of each process, which is its id in the file."""
    columns: Sequence[Sequence[float]]
    """A column for each measure, with the value of each process; NaN if unknown."""

    @property
    def middle_ns(self) -> int:
        """Middle of the span, in ns since 1970."""
        return self.begin_ns + round(self.seconds * SECOND / 2)


def pack_spans(spans: Sequence[ProcessSpan]) -> bytes:
    """Return the encoded block of these spans."""
    numbers = list(dict.fromkeys(chain.from_iterable(span.numbers for span in spans)))
    places = {number: index for index, number in enumerate(numbers)}
    rows = array("H", map(places.__getitem__, chain.from_iterable(span.numbers for span in spans)))
    parts = [
        _HEAD.pack(len(numbers), len(spans), len(rows)),
        shuffled(array("q", numbers)),
        shuffled(array("q", [span.begin_ns for span in spans])),
        shuffled(array("f", [span.seconds for span in spans])),
        shuffled(array("H", [len(span.numbers) for span in spans])),
        shuffled(rows),
    ]
    for index in range(len(MEASURES)):
        values = list(chain.from_iterable(span.columns[index] for span in spans))
        parts.append(shuffled(singles(values)))
    return zlib.compress(b"".join(parts), _LEVEL, _WINDOW)


def unpack_spans(data: bytes, crc: int) -> list[ProcessSpan]:
    """Return the spans in a block. `crc` is its stored checksum. Raises BadProcessBlock if it is damaged."""
    try:
        return list(_unpack(decompress(data, crc)))
    except (ValueError, TypeError, IndexError, struct.error, zlib.error) as error:
        raise BadProcessBlock(f"a block of processes is damaged: {error}") from error


def decompress(data: bytes, crc: int) -> bytes:
    """Check a block against its checksum `crc`, and return its decompressed bytes. Raises zlib.error or ValueError."""
    if zlib.crc32(data) != crc:
        raise ValueError("it has a wrong checksum")
    return zlib.decompressobj().decompress(data, _MAX_BYTES)


def _unpack(raw: bytes) -> Iterator[ProcessSpan]:
    processes, snapshots, rows = _HEAD.unpack_from(raw)
    at = _HEAD.size

    def column(kind: str, length: int) -> array[Any]:
        nonlocal at
        numbers_read = read_array(kind, raw[at : at + length * array(kind).itemsize])
        if len(numbers_read) != length or rows > MAX_ROWS:
            raise ValueError("it has a wrong length")
        at += length * numbers_read.itemsize
        return numbers_read

    numbers, begins, seconds = column("q", processes), column("q", snapshots), column("f", snapshots)
    counts, places = column("H", snapshots), column("H", rows)
    columns = [column("f", rows) for _ in MEASURES]
    first = 0
    for begin_ns, length, count in zip(begins, seconds, counts, strict=True):
        here = slice(first, first + count)
        first += count
        if first > rows or not 0 <= length < 2**32:
            raise ValueError("its spans do not match its rows")
        mine = [numbers[index] for index in places[here]]
        yield ProcessSpan(begin_ns, length, mine, [column[here] for column in columns])


def read_array(kind: str, data: bytes) -> array[Any]:
    """Return the numbers in a shuffled column. `kind` is a type code of `array.array`, such as `f`."""
    numbers_read: array[Any] = array(kind)
    numbers_read.frombytes(unshuffled(data, numbers_read.itemsize))
    return swap_on_big_endian(numbers_read)
