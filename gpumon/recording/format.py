"""Layout of a recording (a header, blocks of frames, an end block), and packing of numbers.

See docs/inside/recording-format.md.

    0     header: magic, major, minor, length and CRC32 (`HEAD`), then that many bytes of JSON, the schema
    then  blocks: `BLOCK` with its CRC32, then the body, compressed with zlib
    last  a block of kind END; without it, the file was cut or its recorder was killed

Each block of frames is independent, so a reader can start at any block, and damage to a block does not affect the
blocks before it. All lengths are checked against limits before anything is read or allocated, and nothing is
decompressed beyond the length given by its block.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from gpumon.common.errors import SourceError
from gpumon.common.numbers import NAN, is_known
from gpumon.common.text import clean

MAGIC = b"\x89GPUMREC"
MAJOR, MINOR = 1, 0
"""Version of the format. A reader can read all minor versions of its major version, because minor versions only add
metrics and kinds of blocks."""

HEAD = struct.Struct("<8sHHII")
"""Struct format of the head: magic, major, minor, length of the JSON that follows, CRC32 of the four bytes of the
versions and of the JSON."""
BLOCK = struct.Struct("<4sB3xIIIIQqq")
"""Struct format of the marker and the fields of `BlockHead`. In the file, a CRC32 of them follows."""
BLOCK_SIZE = BLOCK.size + 4
MARKER = b"GPMB"
FRAMES, END = 1, 2
"""Kinds of blocks. A reader skips blocks of an unknown kind."""

MAX_JSON = 1 << 22
"""Maximum bytes of the schema, and of the JSON in a block."""
MAX_STORED = 1 << 25
"""Maximum bytes of the body of a block as stored."""
MAX_RAW = 1 << 25
"""Maximum bytes of the decompressed body of a block."""
MAX_FRAMES = 4096
"""Maximum frames in a block."""
MAX_NUMBERS = 1 << 21
"""Maximum numbers in a block. The limit is needed because a constant column takes almost no space in the file, but
needs memory when it is decoded."""


class DamagedRecording(ValueError):
    """Raised if a recording is damaged. The message describes the damage without the name of the file."""


class BlockHead(NamedTuple):
    """The head of a block. It describes the body and contains its length and checksum."""

    kind: int
    stored: int
    """Bytes of the body as stored."""
    raw: int
    """Bytes of the decompressed body."""
    crc: int
    """CRC32 of the body as stored."""
    frames: int
    number: int
    """Number of the block in the file, counted from 1."""
    first_ns: int
    """Time of the first frame: ns since 1970."""
    last_ns: int
    """Time of the last frame: ns since 1970."""


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a file, after its checksum was verified."""

    schema: dict[str, Any]
    size: int
    """Bytes before the first block."""


def pack_header(schema: dict[str, Any]) -> bytes:
    """Return the header of a file."""
    body = json.dumps(schema, separators=(",", ":")).encode()
    return HEAD.pack(MAGIC, MAJOR, MINOR, len(body), _header_crc(MAJOR, MINOR, body)) + body


def unpack_header(raw: bytes) -> Header:
    """Return the header at the start of `raw`.

    Raises DamagedRecording if it is damaged, or SourceError if this version cannot read the format.
    """
    if len(raw) < HEAD.size:
        raise DamagedRecording("cut short within its header")
    magic, major, minor, length, crc = HEAD.unpack_from(raw)
    if magic != MAGIC:
        raise DamagedRecording("not a recording")
    body = raw[HEAD.size : HEAD.size + length]
    if length > MAX_JSON or len(body) < length:
        raise DamagedRecording("cut short within its header, or the header is damaged")
    if crc != _header_crc(major, minor, body):
        raise DamagedRecording("the header is damaged")
    if major != MAJOR:
        to_do = "play it with the version of gpumon that wrote it"
        raise SourceError(f"written in format {major}, but this gpumon reads format {MAJOR}: {to_do}")
    schema = parse_json(body)
    if not isinstance(schema, dict):
        raise DamagedRecording("the header is invalid")
    return Header(schema, HEAD.size + length)


def _header_crc(major: int, minor: int, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(struct.pack("<HH", major, minor)))


def pack_block(kind: int, body: bytes, *, frames: int, number: int, first_ns: int, last_ns: int) -> bytes:
    """Compress `body`, and return the complete block.

    `first_ns`, `last_ns`: times of the first and the last frame, ns since 1970.
    """
    stored = zlib.compress(body, 9)
    head = BLOCK.pack(
        MARKER, kind, len(stored), len(body), zlib.crc32(stored), frames, number, first_ns, last_ns
    )  # fmt: skip
    return head + zlib.crc32(head).to_bytes(4, "little") + stored


def unpack_block_head(raw: bytes) -> BlockHead:
    """Return the head in the first `BLOCK_SIZE` bytes. Raises DamagedRecording if it is invalid or exceeds a limit."""
    if len(raw) < BLOCK_SIZE:
        raise DamagedRecording("cut short")
    marker, *fields = BLOCK.unpack_from(raw)
    if marker != MARKER or zlib.crc32(raw[: BLOCK.size]) != int.from_bytes(raw[BLOCK.size : BLOCK_SIZE], "little"):
        raise DamagedRecording("damaged")
    head = BlockHead._make(fields)
    if head.stored > MAX_STORED or head.raw > MAX_RAW or head.frames > MAX_FRAMES or head.last_ns < head.first_ns:
        raise DamagedRecording("not written by gpumon")
    return head


def check_body(head: BlockHead, stored: bytes) -> None:
    """Verify the length and checksum of a block's stored body. Raises DamagedRecording if one is wrong."""
    if len(stored) < head.stored:
        raise DamagedRecording("cut short")
    if zlib.crc32(stored) != head.crc:
        raise DamagedRecording("damaged")


def unpack_body(head: BlockHead, stored: bytes) -> bytes:
    """Return the decompressed body of a block.

    Raises DamagedRecording if it is damaged or its length differs from the length in the head.
    """
    check_body(head, stored)
    inflate = zlib.decompressobj()
    try:
        body = inflate.decompress(stored, head.raw + 1)
    except zlib.error:
        raise DamagedRecording("damaged") from None
    if len(body) != head.raw or not inflate.eof:
        raise DamagedRecording("not written by gpumon")
    return body


def parse_json(raw: bytes) -> Any:
    """Parse untrusted JSON. Raises DamagedRecording if it is invalid."""
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        raise DamagedRecording("not written by gpumon") from None


def parse_text(value: Any, limit: int = 256) -> str:
    """Return a string from untrusted JSON, with harmful characters escaped, cut to `limit` characters.

    Raises DamagedRecording if `value` is not a string.
    """
    if not isinstance(value, str):
        raise DamagedRecording("not written by gpumon")
    return clean(value, limit)


def parse_int(value: Any, minimum: int = -(1 << 63), maximum: int = (1 << 63) - 1) -> int:
    """Return an integer from untrusted JSON. Raises DamagedRecording if it is not an integer or out of bounds."""
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
        raise DamagedRecording("not written by gpumon")
    return value


_LINE, _DIFFERENCES, _PLAIN = 0, 1, 15
"""Methods of packing integers. `_LINE` stores the deviations from a line with constant slope, `_DIFFERENCES` stores the
deviations of the differences from a constant, and `_PLAIN` stores the integers themselves."""
_START = struct.Struct("<Bqq")
_MAX_INTEGER = 1 << 62
"""Floats are packed as integers only if all these integers are smaller than this."""

_ALL_MISSING, _CONSTANT, _FLOATS, _BINARY, _DECIMAL = 0, 1, 2, 3, 16
"""Methods of packing floats. `_BINARY` stores multiples of a power of two. `_DECIMAL` + i stores multiples of
1 / `_DIVISORS[i]`. `_FLOATS` stores the floats themselves."""
_GAPS = 0x80
"""Flag that is added to the method if some values are missing. A bit mask of the known values then follows."""
_DIVISORS = (1, 10, 100, 1000, 10**4, 10**6, 10**9)
_MAX_POWER = 90
"""Maximum exponent of the power of two by which floats are multiplied to become integers."""
_DOUBLE = struct.Struct("<d")


class Cursor:
    """Reads bytes from start to end, and counts the numbers that are decoded from them."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._offset = 0
        self._numbers = 0

    def read(self, count: int) -> bytes:
        """Return the next `count` bytes. Raises DamagedRecording if fewer bytes are left."""
        data = self._raw[self._offset : self._offset + count]
        if len(data) < count:
            raise DamagedRecording("not written by gpumon")
        self._offset += count
        return data

    def count(self, numbers: int) -> None:
        """Add `numbers` to the count of decoded numbers. Raises DamagedRecording if it exceeds `MAX_NUMBERS`."""
        self._numbers += numbers
        if self._numbers > MAX_NUMBERS:
            raise DamagedRecording("not written by gpumon")


def pack_integers(values: Sequence[int]) -> bytes:
    """Pack signed 64-bit integers. The method that results in the smallest numbers is used."""
    if not values:
        return b""
    count, first = len(values), values[0]
    step = (values[-1] - first) // (count - 1) if count > 1 else 0
    level = [value - first for value in values]
    candidates = [(_LINE, 0, level)]
    if any(level):
        candidates.append((_LINE, step, [value - step * i for i, value in enumerate(level)]))
        candidates.append((_DIFFERENCES, step, [0, *(b - a - step for a, b in pairwise(level))]))
    method, step, residuals = min(candidates, key=lambda candidate: sum(map(int.bit_length, candidate[2])))
    unsigned = [value << 1 if value >= 0 else (-value << 1) - 1 for value in residuals]  # zigzag
    planes = (max(unsigned).bit_length() + 7) // 8
    if planes > 8 or not -(1 << 63) <= step < 1 << 63:
        return bytes((_PLAIN << 4 | 8,)) + _to_planes(struct.pack(f"<{count}q", *values), 8)
    return _START.pack(method << 4 | planes, first, step) + _to_planes(struct.pack(f"<{count}Q", *unsigned), planes)


def unpack_integers(cursor: Cursor, count: int) -> list[int]:
    """Return the `count` integers that were packed with `pack_integers`. Raises DamagedRecording."""
    cursor.count(count)
    if not count:
        return []
    method, planes = divmod(cursor.read(1)[0], 16)
    if planes > 8 or method not in (_LINE, _DIFFERENCES, _PLAIN):
        raise DamagedRecording("not written by gpumon")
    if method == _PLAIN:
        return list(struct.unpack(f"<{count}q", _read_planes(cursor, count, 8)))
    first, step = struct.unpack("<qq", cursor.read(16))
    if planes:
        unsigned = struct.unpack(f"<{count}Q", _read_planes(cursor, count, planes))
        residuals = [value >> 1 if not value & 1 else -(value + 1 >> 1) for value in unsigned]
    else:
        residuals = [0] * count
        if not step:
            return [first] * count
    if method == _LINE:
        values = [first + step * i + value for i, value in enumerate(residuals)]
    else:
        steps = [step + value for value in residuals]
        values = list(accumulate([first + residuals[0], *steps[1:]]))
    if max(values) >= 1 << 63 or min(values) < -(1 << 63):
        raise DamagedRecording("not written by gpumon")
    return values


class FloatPacker:
    """Packs columns of floats. It caches the divisor of each column, because the next block usually needs the same."""

    def __init__(self) -> None:
        self._divisors: dict[object, int] = {}

    def pack(self, values: Sequence[float], column: object) -> bytes:
        """Pack the floats of one column. `column` is any key that identifies the column."""
        known = [value for value in values if is_known(value)]
        if len(known) == len(values):
            return self._pack_known(known, column)
        if not known:
            return bytes((_ALL_MISSING,))
        bits = sum(is_known(value) << i for i, value in enumerate(values))
        packed = self._pack_known(known, column)
        return bytes((packed[0] | _GAPS,)) + bits.to_bytes((len(values) + 7) // 8, "little") + packed[1:]

    def _pack_known(self, values: Sequence[float], column: object) -> bytes:
        if not values:
            return bytes((_ALL_MISSING,))
        first = values[0]
        # 0.0 and -0.0 are equal, but must be stored as different values.
        if values.count(first) == len(values) and (
            first != 0 or len({math.copysign(1, value) for value in values}) < 2
        ):
            return bytes((_CONSTANT,)) + _DOUBLE.pack(first)
        return self._pack_decimal(values, column) or _pack_binary(values) or _pack_plain(values)

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


def unpack_floats(cursor: Cursor, count: int) -> list[float]:
    """Return the `count` floats that were packed with `FloatPacker.pack`. Raises DamagedRecording."""
    if not count:
        cursor.read(1)
        return []
    cursor.count(count)
    method = cursor.read(1)[0]
    if not method & _GAPS:
        return _unpack_known(cursor, count, method)
    bits = int.from_bytes(cursor.read((count + 7) // 8), "little")
    known = iter(_unpack_known(cursor, (bits & (1 << count) - 1).bit_count(), method & ~_GAPS))
    return [next(known) if bits >> i & 1 else NAN for i in range(count)]


def _unpack_known(cursor: Cursor, count: int, method: int) -> list[float]:
    if method == _ALL_MISSING:
        return [NAN] * count
    if method == _CONSTANT:
        (value,) = _DOUBLE.unpack(cursor.read(8))
        return [value] * count
    if method == _FLOATS:
        return list(struct.unpack(f"<{count}d", _read_planes(cursor, count, 8)))
    if method == _BINARY:
        power = cursor.read(1)[0]
        if power > _MAX_POWER:
            raise DamagedRecording("not written by gpumon")
        return [math.ldexp(number, -power) for number in unpack_integers(cursor, count)]
    if not 0 <= method - _DECIMAL < len(_DIVISORS):
        raise DamagedRecording("not written by gpumon")
    divisor = _DIVISORS[method - _DECIMAL]
    return [number / divisor for number in unpack_integers(cursor, count)]


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
    return bytes((_BINARY, power)) + packed if len(packed) < 7 * len(values) + _START.size else b""


def _pack_plain(values: Sequence[float]) -> bytes:
    return bytes((_FLOATS,)) + _to_planes(struct.pack(f"<{len(values)}d", *values), 8)


def _has_minus_zero(values: Sequence[float]) -> bool:
    return 0 in values and any(value == 0 and math.copysign(1, value) < 0 for value in values)


def _to_planes(packed: bytes, planes: int) -> bytes:
    """Return the lowest `planes` bytes of 8-byte numbers: all first bytes, then all second bytes, …"""
    return b"".join([packed[i::8] for i in range(planes)])


def _read_planes(cursor: Cursor, count: int, planes: int) -> bytearray:
    """Return the bytes of `count` 8-byte numbers that were stored with `_to_planes`."""
    numbers = bytearray(8 * count)
    for i in range(planes):
        numbers[i::8] = cursor.read(count)
    return numbers
