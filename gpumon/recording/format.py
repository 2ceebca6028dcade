"""Layout of a recording: a header, blocks of frames, an end; and packing of numbers. See docs/recording.md.

    0     magic, major, minor, length and CRC32 of what follows: `HEAD`, then that many bytes of JSON (`schema`)
    then  blocks, one behind the other: `BLOCK` with a CRC32 of its own, then its body, compressed by zlib
    last  a block of kind END; a file without one was cut, or its recorder killed

Each block of frames is independent, so a reader may begin at any of them, and damage to one leaves those before it.
Lengths are checked against the limits here before anything is read or allocated, and nothing is decompressed beyond
the length given by its block.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from gpumon.common.errors import SourceError
from gpumon.common.numbers import NAN, is_known
from gpumon.common.text import clean

MAGIC = b"\x89GPUMREC"
MAJOR, MINOR = 1, 0
"""A reader reads every minor version of its major one: those only add metrics and kinds of blocks."""

HEAD = struct.Struct("<8sHHII")
"""magic, major, minor, bytes of JSON behind it, CRC32 of the four bytes of versions and of the JSON"""
BLOCK = struct.Struct("<4sB3xIIIIQqq")
"""The fields of `BlockHead`, its marker first; then a CRC32 of all before it."""
BLOCK_SIZE = BLOCK.size + 4
MARKER = b"GPMB"
FRAMES, END = 1, 2
"""Kinds of blocks; a reader passes over one that it does not know."""

MOST_JSON = 1 << 22
"""Bytes of the schema, and of the texts in a block."""
MOST_STORED = 1 << 25
MOST_RAW = 1 << 25
MOST_FRAMES = 4096
"""In a block."""
MOST_CELLS = 1 << 21
"""Numbers in a block: what is constant takes no room in the file, but in memory."""


class Damaged(ValueError):
    """The recording is damaged from here on; the message says how, without the file's name."""


class BlockHead(NamedTuple):
    """The beginning of a block."""

    kind: int
    stored: int
    """Bytes of the body, as stored."""
    raw: int
    """Bytes of the body, decompressed."""
    crc: int
    """CRC32 of the body, as stored."""
    frames: int
    number: int
    """Counts the blocks of a file from 1."""
    first_ns: int
    last_ns: int
    """ns since 1970, of the first frame and of the last."""


class Header(NamedTuple):
    """The beginning of a file, checked."""

    schema: dict[str, Any]
    size: int
    """Bytes until the first block."""


def pack_header(schema: dict[str, Any]) -> bytes:
    """The first bytes of a file."""
    body = json.dumps(schema, separators=(",", ":")).encode()
    return HEAD.pack(MAGIC, MAJOR, MINOR, len(body), _header_crc(MAJOR, MINOR, body)) + body


def unpack_header(raw: bytes) -> Header:
    """The header at the beginning of `raw`, which may be longer. Raises Damaged, or SourceError for another format."""
    if len(raw) < HEAD.size:
        raise Damaged("cut short within its header")
    magic, major, minor, length, crc = HEAD.unpack_from(raw)
    if magic != MAGIC:
        raise Damaged("not a recording")
    body = raw[HEAD.size : HEAD.size + length]
    if length > MOST_JSON or len(body) < length:
        raise Damaged("cut short within its header, or the header is damaged")
    if crc != _header_crc(major, minor, body):
        raise Damaged("the header is damaged")
    if major != MAJOR:
        to_do = "play it with the version of gpumon that wrote it"
        raise SourceError(f"written in format {major}, and this gpumon reads format {MAJOR}: {to_do}")
    schema = parse_json(body)
    if not isinstance(schema, dict):
        raise Damaged("the header makes no sense")
    return Header(schema, HEAD.size + length)


def _header_crc(major: int, minor: int, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(struct.pack("<HH", major, minor)))


def pack_block(kind: int, body: bytes, *, frames: int, number: int, first_ns: int, last_ns: int) -> bytes:
    """A whole block, compressed."""
    stored = zlib.compress(body, 9)
    head = BLOCK.pack(
        MARKER, kind, len(stored), len(body), zlib.crc32(stored), frames, number, first_ns, last_ns
    )  # fmt: skip
    return head + zlib.crc32(head).to_bytes(4, "little") + stored


def unpack_block_head(raw: bytes) -> BlockHead:
    """The head in the first `BLOCK_SIZE` bytes. Raises Damaged for anything but a whole one within its limits."""
    if len(raw) < BLOCK_SIZE:
        raise Damaged("cut short")
    marker, *fields = BLOCK.unpack_from(raw)
    if marker != MARKER or zlib.crc32(raw[: BLOCK.size]) != int.from_bytes(raw[BLOCK.size : BLOCK_SIZE], "little"):
        raise Damaged("damaged")
    head = BlockHead._make(fields)
    if head.stored > MOST_STORED or head.raw > MOST_RAW or head.frames > MOST_FRAMES or head.last_ns < head.first_ns:
        raise Damaged("not written by gpumon")
    return head


def check_body(head: BlockHead, stored: bytes) -> None:
    """Raise Damaged for a body, as it is stored, that is not the one of the head."""
    if len(stored) < head.stored:
        raise Damaged("cut short")
    if zlib.crc32(stored) != head.crc:
        raise Damaged("damaged")


def unpack_body(head: BlockHead, stored: bytes) -> bytes:
    """The body of a block, decompressed to the length that its head gives. Raises Damaged."""
    check_body(head, stored)
    inflate = zlib.decompressobj()
    try:
        body = inflate.decompress(stored, head.raw + 1)
    except zlib.error:
        raise Damaged("damaged") from None
    if len(body) != head.raw or not inflate.eof:
        raise Damaged("not written by gpumon")
    return body


def parse_json(raw: bytes) -> Any:
    """Parse untrusted JSON. Raises Damaged."""
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        raise Damaged("not written by gpumon") from None


def text(value: Any, limit: int = 256) -> str:
    """Return an untrusted text, cleaned. Raises Damaged for another type."""
    if not isinstance(value, str):
        raise Damaged("not written by gpumon")
    return clean(value, limit)


def whole(value: Any, least: int = -(1 << 63), most: int = (1 << 63) - 1) -> int:
    """Return an untrusted whole number. Raises Damaged for another type, or out of bounds."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise Damaged("not written by gpumon")
    return value


_LINE, _DIFFERENCES = 0, 1
_PLAIN = 15
_START = struct.Struct("<Bqq")
_LARGEST = 1 << 62
"""Beyond it, floats are stored as they are."""

_ALL_MISSING, _CONSTANT, _FLOATS, _BINARY, _DECIMAL = 0, 1, 2, 3, 16
_GAPS = 0x80
"""Set where some are missing: bits of those that are not follow."""
_DIVISORS = (1, 10, 100, 1000, 10**4, 10**6, 10**9)
_FINEST = 90
"""Powers of two by which a float may be multiplied to be whole."""
_EIGHT = struct.Struct("<d")


class Cursor:
    """Takes bytes from the front, and counts the numbers made from them."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._at = 0
        self._cells = 0

    def take(self, count: int) -> bytes:
        """The next `count` bytes. Raises Damaged where they are not there."""
        found = self._raw[self._at : self._at + count]
        if len(found) < count:
            raise Damaged("not written by gpumon")
        self._at += count
        return found

    def count(self, cells: int) -> None:
        """Raises Damaged once there are more numbers than a block may have."""
        self._cells += cells
        if self._cells > MOST_CELLS:
            raise Damaged("not written by gpumon")


def pack_whole(values: Sequence[int]) -> bytes:
    """Whole numbers of 64 bits with sign."""
    if not values:
        return b""
    count, first = len(values), values[0]
    step = (values[-1] - first) // (count - 1) if count > 1 else 0
    level = [value - first for value in values]
    ways = [(_LINE, 0, level)]
    if any(level):
        ways.append((_LINE, step, [value - step * i for i, value in enumerate(level)]))
        ways.append((_DIFFERENCES, step, [0, *(b - a - step for a, b in pairwise(level))]))
    way, step, residuals = min(ways, key=lambda found: sum(map(int.bit_length, found[2])))
    folded = [value << 1 if value >= 0 else (-value << 1) - 1 for value in residuals]
    planes = (max(folded).bit_length() + 7) // 8
    if planes > 8 or not -(1 << 63) <= step < 1 << 63:
        return bytes((_PLAIN << 4 | 8,)) + _planes(struct.pack(f"<{count}q", *values), 8)
    return _START.pack(way << 4 | planes, first, step) + _planes(struct.pack(f"<{count}Q", *folded), planes)


def unpack_whole(cursor: Cursor, count: int) -> list[int]:
    """The `count` numbers that `pack_whole` packed. Raises Damaged."""
    cursor.count(count)
    if not count:
        return []
    way, planes = divmod(cursor.take(1)[0], 16)
    if planes > 8 or way not in (_LINE, _DIFFERENCES, _PLAIN):
        raise Damaged("not written by gpumon")
    if way == _PLAIN:
        return list(struct.unpack(f"<{count}q", _joined(cursor, count, 8)))
    first, step = struct.unpack("<qq", cursor.take(16))
    if planes:
        folded = struct.unpack(f"<{count}Q", _joined(cursor, count, planes))
        residuals = [value >> 1 if not value & 1 else -(value + 1 >> 1) for value in folded]
    else:
        residuals = [0] * count
        if not step:
            return [first] * count
    if way == _LINE:
        values = [first + step * i + value for i, value in enumerate(residuals)]
    else:
        steps = [step + value for value in residuals]
        values = list(accumulate([first + residuals[0], *steps[1:]]))
    if max(values) >= 1 << 63 or min(values) < -(1 << 63):
        raise Damaged("not written by gpumon")
    return values


class FloatPacker:
    """Packs columns of floats; remembers which divisor a column had, as it will have it again."""

    def __init__(self) -> None:
        self._divisors: dict[object, int] = {}

    def pack(self, values: Sequence[float], column: object) -> bytes:
        """The floats of a column, which is any name for it."""
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
        # 0.0 is not -0.0, though they are equal.
        if values.count(first) == len(values) and (
            first != 0 or len({math.copysign(1, value) for value in values}) < 2
        ):
            return bytes((_CONSTANT,)) + _EIGHT.pack(first)
        return self._decimal(values, column) or _binary(values) or _plain(values)

    def _decimal(self, values: Sequence[float], column: object) -> bytes:
        usual = self._divisors.get(column, -1)
        if not -(2.0**53) < min(values) <= max(values) < 2.0**53 or _has_minus_zero(values):
            return b""
        for place in range(usual if usual >= 0 else 0, len(_DIVISORS)):
            divisor = _DIVISORS[place]
            wholes = [round(value * divisor) for value in values]
            if [number / divisor for number in wholes] == values and max(map(abs, wholes)) < _LARGEST:
                self._divisors[column] = place
                return bytes((_DECIMAL + place,)) + pack_whole(wholes)
        self._divisors.pop(column, None)
        return b""


def unpack_floats(cursor: Cursor, count: int) -> list[float]:
    """The `count` floats that `FloatPacker.pack` packed. Raises Damaged."""
    if not count:
        cursor.take(1)
        return []
    cursor.count(count)
    form = cursor.take(1)[0]
    if not form & _GAPS:
        return _unpack_known(cursor, count, form)
    bits = int.from_bytes(cursor.take((count + 7) // 8), "little")
    known = iter(_unpack_known(cursor, (bits & (1 << count) - 1).bit_count(), form & ~_GAPS))
    return [next(known) if bits >> i & 1 else NAN for i in range(count)]


def _unpack_known(cursor: Cursor, count: int, form: int) -> list[float]:
    if form == _ALL_MISSING:
        return [NAN] * count
    if form == _CONSTANT:
        (value,) = _EIGHT.unpack(cursor.take(8))
        return [value] * count
    if form == _FLOATS:
        return list(struct.unpack(f"<{count}d", _joined(cursor, count, 8)))
    if form == _BINARY:
        power = cursor.take(1)[0]
        if power > _FINEST:
            raise Damaged("not written by gpumon")
        return [math.ldexp(number, -power) for number in unpack_whole(cursor, count)]
    if not 0 <= form - _DECIMAL < len(_DIVISORS):
        raise Damaged("not written by gpumon")
    divisor = _DIVISORS[form - _DECIMAL]
    return [number / divisor for number in unpack_whole(cursor, count)]


def _binary(values: Sequence[float]) -> bytes:
    """As whole multiples of the finest power of two that any has; empty where that saves nothing."""
    if not -_LARGEST < min(values) <= max(values) < _LARGEST or _has_minus_zero(values):
        return b""
    power = max(value.as_integer_ratio()[1].bit_length() for value in values) - 1
    if power > _FINEST:
        return b""
    wholes = [int(math.ldexp(value, power)) for value in values]
    if max(map(abs, wholes)) >= _LARGEST:
        return b""
    packed = pack_whole(wholes)
    return bytes((_BINARY, power)) + packed if len(packed) < 7 * len(values) + _START.size else b""


def _plain(values: Sequence[float]) -> bytes:
    return bytes((_FLOATS,)) + _planes(struct.pack(f"<{len(values)}d", *values), 8)


def _has_minus_zero(values: Sequence[float]) -> bool:
    return 0 in values and any(value == 0 and math.copysign(1, value) < 0 for value in values)


def _planes(packed: bytes, planes: int) -> bytes:
    return b"".join([packed[i::8] for i in range(planes)])


def _joined(cursor: Cursor, count: int, planes: int) -> bytearray:
    joined = bytearray(8 * count)
    for i in range(planes):
        joined[i::8] = cursor.take(count)
    return joined
