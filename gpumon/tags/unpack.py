"""Reading the bytes of a board, which may be hostile: nothing counts that its CRC does not cover.

The layout, and the side that writes, are in `gpumon.tags.wire`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from zlib import crc32

from gpumon.common.errors import BoardError
from gpumon.model.run import ROOM
from gpumon.tags.wire import (
    ABOUT_TEXTS,
    ABOUTS,
    DESCRIPTIONS,
    EVENT_BODY,
    EVENTS,
    HEADER,
    MAGIC,
    MAJOR,
    MAX_MEMORY,
    MAX_METRICS,
    MEMORY,
    MEMORY_ENTRY,
    MEMORY_HEAD,
    MEMORY_ROOM,
    NOT_KNOWN,
    PREFIX,
    STATE_BODY,
    STATE_HEAD,
    STATE_LEAST,
    STATE_METRICS,
    STATE_SET,
    STATES,
    SUPPLEMENT_BODY,
    SUPPLEMENTS,
    TEXT_HEADER,
    TEXT_ROOM,
    TEXTS,
    BoardHeader,
    Event,
    Memory,
    State,
    event_offset,
    supplement_offset,
)


def unpack_header(front: bytes) -> BoardHeader:
    """The header of a board. Raises BoardError when this is none, or one of another version."""
    if len(front) < HEADER.size:
        raise BoardError("shorter than a header")
    magic, major, _minor, size, *rest, crc = HEADER.unpack_from(front)
    if magic != MAGIC:
        raise BoardError("not a tag board")
    if crc32(front[: HEADER.size - 4]) != crc:
        raise BoardError("damaged header")
    if major != MAJOR:
        raise BoardError(f"version {major} of the board, this gpumon reads version {MAJOR}")
    return BoardHeader(size, *rest)


def unpack_state(front: bytes) -> State | None:
    """The newest whole state of the first `FRONT` bytes of a board, or None before the first."""
    best: tuple[int, tuple[int, ...], int, int] | None = None
    for offset in STATES:
        if len(front) < offset + 256:
            continue
        crc, length = PREFIX.unpack_from(front, offset)
        if not STATE_LEAST <= length <= 248 or crc32(front[offset + 4 : offset + 8 + length]) != crc:
            continue
        head = STATE_HEAD.unpack_from(front, offset + 8)
        if head[0] and (best is None or head[0] > best[0]):
            best = (head[0], head, offset, length)
    if best is None:
        return None
    at = best[2] + 8 + STATE_HEAD.size
    which = STATE_SET.unpack_from(front, at + STATE_METRICS.size)[0] if best[3] >= STATE_BODY else None
    fields: tuple[Any, ...] = (*best[1], _logged(STATE_METRICS.unpack_from(front, at), which))
    return State(*fields)


def unpack_memory(front: bytes) -> tuple[int, tuple[Memory, ...]]:
    """(monotonic, devices) of the newest whole record of framework memory; (0, ()) before the first."""
    best, found = (0, 0), b""
    for offset in MEMORY:
        if len(front) < offset + MEMORY_ROOM:
            continue  # cut short
        crc, length = PREFIX.unpack_from(front, offset)
        if not MEMORY_HEAD.size <= length <= MEMORY_ROOM - 8 or crc32(front[offset + 4 : offset + 8 + length]) != crc:
            continue
        body = front[offset + 8 : offset + 8 + length]
        head = MEMORY_HEAD.unpack_from(body)
        if head[0] > best[0]:
            best, found = head, body
    whole = (len(found) - MEMORY_HEAD.size) // MEMORY_ENTRY.size if found else 0
    return best[1], tuple(
        Memory(*MEMORY_ENTRY.unpack_from(found, MEMORY_HEAD.size + i * MEMORY_ENTRY.size))
        for i in range(min(whole, MAX_MEMORY))
    )


def unpack_event(ring: bytes, number: int, supplements: bytes = b"") -> Event | None:
    """Event `number` of the bytes from EVENTS on, or None when it is not there, or not whole.

    `supplements`: the bytes from SUPPLEMENTS on; a board of version 1.0 has none.
    """
    body = _whole(ring, event_offset(number) - EVENTS, EVENT_BODY.size, number)
    if body is None:
        return None
    fields = EVENT_BODY.unpack(body)
    supplement = _whole(supplements, supplement_offset(number) - SUPPLEMENTS, SUPPLEMENT_BODY.size, number)
    which, _, peak = SUPPLEMENT_BODY.unpack(supplement) if supplement is not None else (None, 0, NOT_KNOWN)
    whole: tuple[Any, ...] = (*fields[:-MAX_METRICS], _logged(fields[-MAX_METRICS:], which), peak)
    event = Event(*whole)
    return event if event.number == number else None


def text_versions(front: bytes) -> list[tuple[int, int, int, int]]:
    """(version, length, crc32, offset) of both descriptions, the newer first; absent ones left out."""
    return _texts(front, DESCRIPTIONS, TEXTS, TEXT_ROOM)


def about_versions(front: bytes) -> list[tuple[int, int, int, int]]:
    """(version, length, crc32, offset) of the particulars of a run; a board of version 1.1 has none."""
    return _texts(front, ABOUTS, ABOUT_TEXTS, ROOM)


def _texts(front: bytes, headers: Sequence[int], offsets: Sequence[int], room: int) -> list[tuple[int, int, int, int]]:
    found = []
    for where, offset in zip(headers, offsets, strict=True):
        if len(front) >= where + TEXT_HEADER.size:
            version, length, crc, _ = TEXT_HEADER.unpack_from(front, where)
            if version and length <= room:
                found.append((version, length, crc, offset))
    return sorted(found, reverse=True)


def _logged(numbers: Sequence[float], which: int | None) -> tuple[float | None, ...]:
    if which is None:  # of version 1.0: a NaN may have been logged or not
        # NaN is not itself; in place, because a call would cost more than the rest of the loop.
        return tuple(None if value != value else value for value in numbers)
    return tuple(value if which >> slot & 1 else None for slot, value in enumerate(numbers))


def _whole(ring: bytes, offset: int, size: int, number: int) -> bytes | None:
    raw = ring[offset : offset + 4 + size]
    if len(raw) < 4 + size or crc32(raw[4:], number & 0xFFFFFFFF) != int.from_bytes(raw[:4], "little"):
        return None
    return raw[4:]
