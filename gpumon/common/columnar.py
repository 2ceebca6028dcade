"""Columnar blocks, the one binary format of history, process history, traces and recordings.

A block has parts, which are compressed separately, so a reader decompresses only the part that it needs. A part has
columns of floats and integers. The format is described byte by byte in `docs/inside/architecture.md`. All lengths are
checked before anything is allocated. This module needs only the standard library, because numpy would triple the size
of a base install and saves no noticeable time: a line of a month has some 300 blocks, most of them with 64 numbers per
column.
"""

from __future__ import annotations

import math
import struct
import sys
import zlib
from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Any

from gpumon.common.numbers import NAN, is_known

VERSION = 1
"""Version of the format, the first byte of each block."""
HEAD = struct.Struct("<BxHI")
"""Struct format of a block's head: version, number of parts, CRC32 of all other bytes of the block."""
_CRC_AT = 4
MAX_NUMBERS = 1 << 21
"""Maximum numbers in a part. The limit is needed because a constant column takes almost no space in the file, but needs
memory when it is decoded."""

_MISSING, _CONSTANT, _DOUBLES, _BINARY, _SINGLES, _SAME, _DECIMAL = 0, 1, 2, 3, 4, 5, 16
"""Encodings of floats. `_BINARY` stores multiples of a power of two. `_DECIMAL` + i stores multiples of
1 / `_DIVISORS[i]`. `_SAME` stands for the numbers of the previous column of floats."""
_GAPS = 0x80
"""Flag that is added to the encoding if some values are missing. A bit mask of the known values then follows."""
_DIVISORS = (1, 10, 100, 1000, 10**4, 10**6, 10**9)
_MAX_POWER = 90
"""Maximum exponent of the power of two by which floats are multiplied to become integers."""
_LINE, _DIFFERENCES, _PLAIN = 0, 1, 15
"""Encodings of integers. `_LINE` stores the deviations from a line with constant slope, `_DIFFERENCES` stores the
deviations of the differences from a constant, and `_PLAIN` stores the integers themselves."""
_LINE_HEAD = struct.Struct("<Bqq")
_MAX_INTEGER = 1 << 62
"""Floats are packed as integers only if all these integers are smaller than this."""
_DOUBLE = struct.Struct("<d")
_WINDOW = 13
"""Window size of zlib as power of two: 8 KiB, larger than most parts. With the default of 32 KiB, zlib spends more time
allocating memory than compressing."""


class DamagedBlock(ValueError):
    """Raised if a block is damaged, or was not written by gpumon."""


def pack_block(parts: Sequence[bytes]) -> bytes:
    """Return a block of these parts. A part is the result of `pack_part`, or empty."""
    body = struct.pack(f"<{len(parts)}I", *accumulate(map(len, parts))) + b"".join(parts)
    crc = zlib.crc32(body, zlib.crc32(HEAD.pack(VERSION, len(parts), 0)[:_CRC_AT]))
    return HEAD.pack(VERSION, len(parts), crc) + body


class ColumnarBlock:
    """A block of a file, whose checksum is correct. Raises DamagedBlock for other bytes, and for another version."""

    __slots__ = ("_data", "parts")

    def __init__(self, data: bytes) -> None:
        if len(data) < HEAD.size or data[0] != VERSION:
            raise DamagedBlock("not a block of this version")
        _, self.parts, crc = HEAD.unpack_from(data)
        if len(data) < HEAD.size + 4 * self.parts:
            raise DamagedBlock("cut short")
        if crc != zlib.crc32(memoryview(data)[HEAD.size :], zlib.crc32(data[:_CRC_AT])):
            raise DamagedBlock("wrong checksum")
        self._data = data

    def has(self, part: int) -> bool:
        """Return whether a part is present and not empty."""
        return self._stored(part) != b""

    def open(self, part: int, max_bytes: int) -> PartReader:
        """Decompress a part, of at most `max_bytes`. Raises DamagedBlock."""
        return PartReader(decompress(self._stored(part), max_bytes))

    def _stored(self, part: int) -> bytes:
        if not 0 <= part < self.parts:
            return b""
        begin, end = 0, 0
        if part:
            begin, end = struct.unpack_from("<2I", self._data, HEAD.size + 4 * (part - 1))
        else:
            (end,) = struct.unpack_from("<I", self._data, HEAD.size)
        first = HEAD.size + 4 * self.parts
        return self._data[first + begin : first + end]


def pack_part(columns: bytes, level: int = 1) -> bytes:
    """Compress columns, which are the joined results of `pack_columns`, `pack_integers` and `FloatPacker`.

    `level` is the parameter of zlib.
    """
    return zlib.compress(columns, level, _WINDOW)


def decompress(stored: bytes, max_bytes: int) -> bytes:
    """Decompress the bytes of a part. Raises DamagedBlock if they are damaged or have more than `max_bytes`."""
    inflate = zlib.decompressobj()
    try:
        raw = inflate.decompress(stored, max_bytes + 1)
    except zlib.error:
        raise DamagedBlock("damaged") from None
    if len(raw) > max_bytes or not inflate.eof:
        raise DamagedBlock("larger than any that gpumon writes, or cut short")
    return raw


def singles(values: Sequence[float]) -> array[float]:
    """Return the numbers as an array of float32. A number that is too large for float32 becomes infinite."""
    return array("f", struct.pack(f"{len(values)}f", *values))


def doubles(values: Sequence[float]) -> array[float]:
    """Return the numbers as an array of float64. Conversion through packed bytes is five times as fast as directly."""
    return array("d", struct.pack(f"{len(values)}d", *values))


def pack_columns(columns: Iterable[array[Any]]) -> bytes:
    """Pack columns of floats (`array` of type `f` or `d`) and integers (other types). NaN is a missing float."""
    packed: list[bytes] = []
    previous: array[Any] | None = None
    for column in columns:
        if column.typecode not in "fd":
            packed.append(pack_integers(column.tolist()))
            continue
        if column is previous or (previous is not None and _is_same(column, previous)):
            packed.append(bytes((_SAME,)))
        else:
            packed.append(_pack_floats(column))
        previous = column
    return b"".join(packed)


def _is_same(column: array[float], other: array[float]) -> bool:
    """Return whether two columns have the same bytes. Thus NaN equals itself, and -0.0 differs from 0.0."""
    return column.typecode == other.typecode and column.tobytes() == other.tobytes()


def _pack_floats(column: array[float]) -> bytes:
    data, size = _little_endian(column).tobytes(), column.itemsize
    if data[size:] == data[:-size]:  # all numbers are equal, or there is none
        first = column[0] if column else NAN
        return bytes((_CONSTANT,)) + _DOUBLE.pack(first) if is_known(first) else bytes((_MISSING,))
    return bytes((_SINGLES if size == 4 else _DOUBLES,)) + _to_planes(data, size)


def _little_endian(column: array[Any]) -> array[Any]:
    """Convert a column from the machine's byte order to the little-endian order of the file, or back."""
    if sys.byteorder == "big":
        column = column[:]
        column.byteswap()
    return column


def pack_integers(values: Sequence[int]) -> bytes:
    """Pack signed 64-bit integers. The encoding that results in the smallest numbers is used."""
    if not values:
        return b""
    count, first = len(values), values[0]
    step = (values[-1] - first) // (count - 1) if count > 1 else 0
    level = [value - first for value in values]
    candidates = [(_LINE, 0, level)]
    if any(level):
        candidates.append((_LINE, step, [value - step * i for i, value in enumerate(level)]))
        candidates.append((_DIFFERENCES, step, [0, *(b - a - step for a, b in pairwise(level))]))
    encoding, step, residuals = min(candidates, key=lambda candidate: sum(map(int.bit_length, candidate[2])))
    unsigned = [value << 1 if value >= 0 else (-value << 1) - 1 for value in residuals]  # zigzag
    planes = (max(unsigned).bit_length() + 7) // 8
    if planes > 8 or not -(1 << 63) <= step < 1 << 63:
        return bytes((_PLAIN << 4 | 8,)) + _to_planes(struct.pack(f"<{count}q", *values), 8)
    head = _LINE_HEAD.pack(encoding << 4 | planes, first, step)
    return head + _to_planes(struct.pack(f"<{count}Q", *unsigned), 8, planes)


class FloatPacker:
    """Packs columns of floats so that each is restored exactly and decimal fractions need little space.

    It caches the divisor of each column, because the next block usually needs the same.
    """

    def __init__(self) -> None:
        self._divisors: dict[object, int] = {}

    def pack(self, values: Sequence[float], column: object) -> bytes:
        """Pack the floats of one column. `column` is any key that identifies the column."""
        known = [value for value in values if is_known(value)]
        if len(known) == len(values):
            return self._pack_known(known, column)
        if not known:
            return bytes((_MISSING,))
        bits = sum(is_known(value) << i for i, value in enumerate(values))
        packed = self._pack_known(known, column)
        return bytes((packed[0] | _GAPS,)) + bits.to_bytes((len(values) + 7) // 8, "little") + packed[1:]

    def _pack_known(self, values: Sequence[float], column: object) -> bytes:
        if not values:
            return bytes((_MISSING,))
        first = values[0]
        # 0.0 and -0.0 are equal, but must be stored as different values.
        if values.count(first) == len(values) and (
            first != 0 or len({math.copysign(1, value) for value in values}) < 2
        ):
            return bytes((_CONSTANT,)) + _DOUBLE.pack(first)
        plain = bytes((_DOUBLES,)) + _to_planes(struct.pack(f"<{len(values)}d", *values), 8)
        return self._pack_decimal(values, column) or _pack_binary(values) or plain

    def _pack_decimal(self, values: Sequence[float], column: object) -> bytes:
        """Pack floats as multiples of a decimal fraction. Return empty bytes if this is not possible."""
        last_used = self._divisors.get(column, -1)
        if not -(2.0**53) < min(values) <= max(values) < 2.0**53 or _has_minus_zero(values):
            return b""
        for index in range(last_used if last_used >= 0 else 0, len(_DIVISORS)):
            divisor = _DIVISORS[index]
            multiples = [round(value * divisor) for value in values]
            if [number / divisor for number in multiples] == values and max(map(abs, multiples)) < _MAX_INTEGER:
                self._divisors[column] = index
                return bytes((_DECIMAL + index,)) + pack_integers(multiples)
        self._divisors.pop(column, None)
        return b""


def _pack_binary(values: Sequence[float]) -> bytes:
    """Pack floats as multiples of a common power of two. Return empty bytes if this saves no space."""
    if not -_MAX_INTEGER < min(values) <= max(values) < _MAX_INTEGER or _has_minus_zero(values):
        return b""
    power = max(value.as_integer_ratio()[1].bit_length() for value in values) - 1
    if power > _MAX_POWER:
        return b""
    multiples = [int(math.ldexp(value, power)) for value in values]
    if max(map(abs, multiples)) >= _MAX_INTEGER:
        return b""
    packed = pack_integers(multiples)
    return bytes((_BINARY, power)) + packed if len(packed) < 7 * len(values) + _LINE_HEAD.size else b""


def _has_minus_zero(values: Sequence[float]) -> bool:
    return 0 in values and any(value == 0 and math.copysign(1, value) < 0 for value in values)


def _to_planes(data: bytes, size: int, planes: int = 8) -> bytes:
    """Return the lowest `planes` bytes of numbers of `size` bytes: all first bytes, then all second bytes, …"""
    return b"".join([data[i::size] for i in range(min(size, planes))])


class PartReader:
    """Reads the columns of a decompressed part from start to end. Raises DamagedBlock if too few bytes are left."""

    __slots__ = ("_numbers", "_offset", "_previous", "_raw")

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._offset = 0
        self._numbers = 0
        self._previous: Sequence[float] = ()

    def read(self, count: int) -> bytes:
        """Return the next `count` bytes."""
        data = self._raw[self._offset : self._offset + count]
        if len(data) < count:
            raise DamagedBlock("too short")
        self._offset += count
        return data

    def finish(self) -> None:
        """Raise DamagedBlock if there are bytes behind the last column that was read."""
        if self._offset != len(self._raw):
            raise DamagedBlock("columns of another length")

    def count(self, numbers: int) -> None:
        """Add `numbers` to the count of decoded numbers. Raises DamagedBlock if it exceeds `MAX_NUMBERS`."""
        self._numbers += numbers
        if self._numbers > MAX_NUMBERS:
            raise DamagedBlock("too many numbers")

    def floats(self, count: int) -> Sequence[float]:
        """Return the next column, which has `count` floats."""
        self.count(count)
        encoding = self.read(1)[0]
        if encoding == _SAME:
            if len(self._previous) != count:
                raise DamagedBlock("columns of different lengths")
        elif encoding & _GAPS:
            bits = int.from_bytes(self.read((count + 7) // 8), "little")
            known = iter(self._known(encoding & ~_GAPS, (bits & (1 << count) - 1).bit_count()))
            self._previous = [next(known) if bits >> i & 1 else NAN for i in range(count)]
        else:
            self._previous = self._known(encoding, count)
        return self._previous

    def _known(self, encoding: int, count: int) -> Sequence[float]:
        if encoding == _MISSING or not count:
            return array("d", (NAN,)) * count
        if encoding == _CONSTANT:
            return array("d", _DOUBLE.unpack(self.read(8))) * count
        if encoding in (_SINGLES, _DOUBLES):
            size = 4 if encoding == _SINGLES else 8
            return _little_endian(array("f" if size == 4 else "d", bytes(self._planes(count, size, size))))
        if encoding == _BINARY:
            power = self.read(1)[0]
            if power > _MAX_POWER:
                raise DamagedBlock("unknown encoding")
            return [math.ldexp(number, -power) for number in self._integers(count)]
        if not 0 <= encoding - _DECIMAL < len(_DIVISORS):
            raise DamagedBlock("unknown encoding")
        divisor = _DIVISORS[encoding - _DECIMAL]
        return [number / divisor for number in self._integers(count)]

    def integers(self, count: int) -> list[int]:
        """Return the next column, which has `count` integers."""
        self.count(count)
        return self._integers(count)

    def _integers(self, count: int) -> list[int]:
        if not count:
            return []
        encoding, planes = divmod(self.read(1)[0], 16)
        if planes > 8 or encoding not in (_LINE, _DIFFERENCES, _PLAIN):
            raise DamagedBlock("unknown encoding")
        if encoding == _PLAIN:
            return list(struct.unpack(f"<{count}q", self._planes(count, 8, 8)))
        first, step = struct.unpack("<qq", self.read(16))
        if planes:
            unsigned = struct.unpack(f"<{count}Q", self._planes(count, 8, planes))
            residuals = [value >> 1 if not value & 1 else -(value + 1 >> 1) for value in unsigned]
        else:
            residuals = [0] * count
            if not step:
                return [first] * count
        if encoding == _LINE:
            values = [first + step * i + value for i, value in enumerate(residuals)]
        else:
            steps = [step + value for value in residuals]
            values = list(accumulate([first + residuals[0], *steps[1:]]))
        if max(values) >= 1 << 63 or min(values) < -(1 << 63):
            raise DamagedBlock("integers that are too large")
        return values

    def _planes(self, count: int, size: int, planes: int) -> bytearray:
        """Return the bytes of `count` numbers of `size` bytes that were stored with `_to_planes`."""
        numbers, data = bytearray(size * count), self.read(planes * count)
        for i in range(planes):
            numbers[i::size] = data[i * count : (i + 1) * count]
        return numbers
