"""The bytes of a recording: a header, blocks of frames, an end. docs/recording.md has the same for people.

    0     magic, major, minor, length and CRC32 of what follows: `HEAD`, then that many bytes of JSON (`schema`)
    then  blocks, one behind the other: `BLOCK` with a CRC32 of its own, then its body, compressed by zlib
    last  a block of kind END; a file without one was cut, or its recorder killed

Each block of frames stands alone, so that a reader may begin at any of them, and damage to one costs none before it.
Lengths are checked against the limits here before anything is read or allocated, and nothing is decompressed beyond
the length that its block gives.
"""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any, NamedTuple

from gpumon.common.errors import SourceError
from gpumon.common.text import clean

MAGIC = b"\x89GPUMREC"
MAJOR, MINOR = 1, 0
"""A reader of this version reads every minor one of its major one: those only add columns and kinds of blocks."""

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
    """Bytes that are no recording, from here on; the message says why, without the file's name."""


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
    """The header at the beginning of `raw`, which may be longer. Raises Damaged, or SourceError for a later version."""
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
        to_do = "upgrade gpumon" if major > MAJOR else "play it with the version that wrote it"
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
    """JSON of a stranger. Raises Damaged."""
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        raise Damaged("not written by gpumon") from None


def text(value: Any, limit: int = 256) -> str:
    """A text of a stranger, made harmless. Raises Damaged where it is none."""
    if not isinstance(value, str):
        raise Damaged("not written by gpumon")
    return clean(value, limit)


def whole(value: Any, least: int = -(1 << 63), most: int = (1 << 63) - 1) -> int:
    """A whole number of a stranger. Raises Damaged where it is none, or out of bounds."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise Damaged("not written by gpumon")
    return value
