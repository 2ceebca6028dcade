"""Layout of a recording: a header, blocks of frames, and an end block. See docs/inside/recording-format.md.

    0       header: magic, major, minor, length and CRC32 (`HEAD`), then that many bytes of JSON, the schema
    then    blocks: `BLOCK` with its CRC32, then the body, compressed with zlib
    last    a block of kind END; if it is missing, the file was truncated or its recorder was killed

Each block of frames is independent. So a reader can start at any block, and damage to a block does not affect the
blocks before it. All lengths are checked against limits before anything is read or allocated. No block is decompressed
beyond the length in its head.
"""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import dataclass
from typing import Any, NamedTuple

from gpumon.common.columnar import DamagedBlock, decompress
from gpumon.common.errors import SourceError
from gpumon.common.text import clean

MAGIC = b"\x89GPUMREC"
MAJOR, MINOR = 1, 0
"""Version of the format. A reader can read all minor versions of its major version, because a minor version only adds
metrics and kinds of blocks."""

HEAD = struct.Struct("<8sHHII")
"""Struct format of the head: magic, major, minor, length of the JSON that follows, and CRC32 of the JSON and the four
bytes of the versions."""
BLOCK = struct.Struct("<4sB3xIIIIQqq")
"""Struct format of the marker and the fields of `BlockHead`. In the file, a CRC32 of these bytes follows."""
BLOCK_SIZE = BLOCK.size + 4
MARKER = b"GPMB"
FRAMES, END = 1, 2
"""Kinds of blocks. A reader skips blocks of an unknown kind."""

MAX_JSON = 1 << 22
"""Maximum bytes of the schema, and of the JSON in a block."""
MAX_STORED = 1 << 25
"""Maximum bytes of the compressed body of a block."""
MAX_RAW = 1 << 25
"""Maximum bytes of the decompressed body of a block."""
MAX_FRAMES = 4096
"""Maximum frames in a block."""


class DamagedRecording(DamagedBlock):
    """Raised if a recording is damaged. The message describes the damage without the name of the file."""


class BlockHead(NamedTuple):
    """The head of a block. It describes the body and contains its length and checksum."""

    kind: int
    stored: int
    """Bytes of the compressed body."""
    raw: int
    """Bytes of the decompressed body."""
    crc: int
    """CRC32 of the compressed body."""
    frames: int
    number: int
    """Number of the block in the file, counted from 1."""
    first_ns: int
    """Time of the first frame, in ns since 1970."""
    last_ns: int
    """Time of the last frame, in ns since 1970."""


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

    Raises DamagedRecording if the header is damaged, and SourceError if this version of gpumon cannot read the format.
    """
    if len(raw) < HEAD.size:
        raise DamagedRecording("truncated within its header")
    magic, major, minor, length, crc = HEAD.unpack_from(raw)
    if magic != MAGIC:
        raise DamagedRecording("not a recording")
    body = raw[HEAD.size : HEAD.size + length]
    if length > MAX_JSON or len(body) < length:
        raise DamagedRecording("truncated within its header, or the header is damaged")
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
        raise DamagedRecording("truncated")
    marker, *fields = BLOCK.unpack_from(raw)
    if marker != MARKER or zlib.crc32(raw[: BLOCK.size]) != int.from_bytes(raw[BLOCK.size : BLOCK_SIZE], "little"):
        raise DamagedRecording("damaged")
    head = BlockHead._make(fields)
    if head.stored > MAX_STORED or head.raw > MAX_RAW or head.frames > MAX_FRAMES or head.last_ns < head.first_ns:
        raise DamagedRecording("not written by gpumon")
    return head


def check_body(head: BlockHead, stored: bytes) -> None:
    """Verify the length and checksum of a block's compressed body. Raises DamagedRecording if either is wrong."""
    if len(stored) < head.stored:
        raise DamagedRecording("truncated")
    if zlib.crc32(stored) != head.crc:
        raise DamagedRecording("damaged")


def unpack_body(head: BlockHead, stored: bytes) -> bytes:
    """Return the decompressed body of a block.

    Raises DamagedRecording if the body is damaged, or if its length differs from the length in the head.
    """
    check_body(head, stored)
    try:
        body = decompress(stored, head.raw)
    except DamagedBlock:
        raise DamagedRecording("damaged") from None
    if len(body) != head.raw:
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
