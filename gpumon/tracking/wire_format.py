"""Binary layout of a tag board, which is a small file in which one training process publishes its run.

A board is named `tag.<uid>.<pid>.<8 hex>` and has 122880 bytes, little-endian, at fixed offsets. The training writes it
through its own mapping. Readers use `pread` and trust only bytes that a CRC covers. `docs/inside/architecture.md`
has the measurements behind each choice.

| offset | bytes | what |
|---|---|---|
| 0 | 84 | header, written once, `<8sIIIIQQQ16sQQI`: see `BoardHeader`; crc32 of 0..79 at 80 |
| 256, 512 | 128 | state A (even numbers), B (odd) |
| 768 | 8 | u64: number of the newest event, counted from 1 |
| 800, 816 | 16 | headers of description A, B: `<IIII` = version, length, crc32, 0 |
| 832, 848 | 16 | headers of metadata A, B, in the same format |
| 1024, 2432 | 1408 | framework memory A (even numbers), B (odd) |
| 4096 | 512 x 136 | events; number n lies at 4096 + (n % 512) * 136 |
| 73728, 81408 | 7680 | description A (even versions), B (odd): JSON, see `gpumon.tracking.description` |
| 90112 | 512 x 16 | supplements of events; the supplement of number n lies at 90112 + (n % 512) * 16 |
| 98304, 110592 | 12288 | metadata A (even versions), B: JSON, see `gpumon.model.run.Metadata` |

Header: magic `GPUMTAG\\x01`, version, size, pid and parent pid (as the training sees them), start
time (`/proc/self/stat` field 22), inodes of its pid and time namespaces, boot id, start of the run on
the monotonic and on the wall clock, crc32.

State: u32 crc32 of the rest, u32 length of the rest after it, then `<QQQqQQiHH` = number, monotonic, wall clock, step,
time waited for data since the run began, start of the epoch (monotonic, 0 for none), epoch, phase, flags; `<8d`
metrics, the newest of each; `<II`: a bit for each metric that is set, from the lowest on, and 0.

Framework memory: u32 crc32 of the rest, u32 length of the rest after it, `<QQ` = number, monotonic; then for each
device `<II9Q` = the framework's number of the device, mark of its UUID (see `device_mark`; 0 if unknown), allocated,
reserved, peak, active, inactive split, requested: bytes; retries, out-of-memory errors: counts; largest free block:
bytes; all ones if unknown.

Event: u32 crc32 of the following 132 bytes, seeded with its number; `<HHQQQqQiIQQ8d` = mark, phase, number, monotonic,
wall clock, step, time waited, epoch, aux (RUN_END: 1 failed, 2 withdrawn, 5 interrupted, 8 stopped; OUT_OF_MEMORY: mark
of the device), bytes requested and bytes free (OUT_OF_MEMORY), and the values logged in this epoch. The time waited,
here and in a state, is 0 until it is measured and all ones if the training does not know it.

Supplement: u32 crc32 of the following 12 bytes, seeded with the event's number; `<HHQ` = bits of the event's metrics
that are set (as in a state), 0, the framework's peak of allocated bytes so far over all devices (all ones if it was not
read). It is written before its event.

Times are nanoseconds. The phase is an index into the description's phase names. States, memory records, descriptions
and metadata alternate between two slots, so that one of each is always complete while another is being written.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from struct import Struct
from typing import Any, NamedTuple
from zlib import crc32

from gpumon.common.errors import BoardError
from gpumon.model.run import ROOM
from gpumon.model.vendors import without_prefix

MAGIC = b"GPUMTAG\x01"
VERSION = 1
"""Version of the layout. Boards with a different version are not read."""
SIZE = 122880

HEADER = Struct("<8sIIIIQQQ16sQQI")
STATES = (256, 512)
EVENT_HEAD = 768
DESCRIPTIONS = (800, 816)
ABOUTS = (832, 848)
MEMORY = (1024, 2432)
EVENTS = 4096
FRONT = 4096
"""Length of the first part of a board, which has everything except events and texts. A poll reads it with one
`pread`."""
EVENT_COUNT = 512
"""Number of events in the board. This covers two seconds of epochs of 8 ms, so that a late poll loses no events."""
EVENT_SIZE = 136
TEXTS = (73728, 81408)
TEXT_ROOM = 7680
SUPPLEMENTS = 90112
ABOUT_TEXTS = (98304, 110592)
SUPPLEMENT_SIZE = 16
TEXT_HEADER = Struct("<IIII")

PREFIX = Struct("<II")
_CRC = Struct("<I")
STATE_HEAD = Struct("<QQQqQQiHH")
STATE_METRICS = Struct("<8d")
STATE_SET = Struct("<II")
MEMORY_HEAD = Struct("<QQ")
MEMORY_ENTRY = Struct("<II9Q")
EVENT_BODY = Struct("<HHQQQqQiIQQ8d")
SUPPLEMENT_BODY = Struct("<HHQ")
STATE_BODY = STATE_HEAD.size + STATE_METRICS.size + STATE_SET.size
STATE_SIZE = PREFIX.size + STATE_BODY
MAX_METRICS = 8
NAN = float("nan")
MAX_MEMORY = 16
"""Maximum number of devices of one process whose framework memory is reported."""
MEMORY_ROOM = 1408
NOT_KNOWN = (1 << 64) - 1
"""Value of an unknown amount of framework memory or an unknown wait for data."""

Metrics = Sequence[float | None]
"""Logged values by slot. A value is None if nothing was logged."""
NOTHING_LOGGED: tuple[float | None, ...] = (None,) * MAX_METRICS

FLAG_ENDED = 1
FLAG_FAILED = 2
FLAG_WITHDRAWN = 4
FLAG_INTERRUPTED = 8
FLAG_STOPPED = 16
FLAG_BETWEEN = 32
"""The loop over the batches is over, so no step is expected until another loop begins."""
RUN_FAILED = 1
RUN_WITHDRAWN = 2
RUN_INTERRUPTED = 4
RUN_STOPPED = 8
"""RUN_* are bits in the aux of a RUN_END event. A withdrawn run is hidden, because another run reports the same
training in more detail. An interrupted run is also marked as failed, for readers that do not distinguish the two."""

# These are the values of `gpumon.model.frame.Mark`. A training does not import that module, so a test compares them.
EPOCH_BEGIN, EPOCH_END, PHASE, CHECKPOINT, RUN_END, RUN_BEGIN, OUT_OF_MEMORY, LOG = 1, 2, 3, 4, 5, 6, 7, 8
EPOCH_ABORTED, STEPS = 9, 10

NAME = re.compile(r"tag\.(0|[1-9][0-9]{0,9})\.(0|[1-9][0-9]{0,9})\.[0-9a-f]{8}", re.ASCII)
"""Pattern for the name of a board, with the uid of its owner and the pid in the training's pid namespace."""

_LENGTH = STATE_BODY.to_bytes(4, "little")
pack_head = STATE_HEAD.pack
"""Packs the head of a state: number, monotonic time, wall clock, step, wait, start of the epoch, epoch, phase,
flags."""


class BoardHeader(NamedTuple):
    """Facts about the process that owns a board. They never change."""

    size: int
    pid: int
    parent: int
    started: int
    """Start of the process in clock ticks since boot. Together with the pid, this identifies a process uniquely."""
    pid_namespace: int
    time_namespace: int
    """0 if the kernel has no time namespaces."""
    boot_id: bytes
    monotonic_ns: int
    time_ns: int


class State(NamedTuple):
    """The newest state of a training. Times are in ns."""

    number: int
    monotonic_ns: int
    time_ns: int
    step: int
    wait_ns: int
    epoch_monotonic_ns: int
    epoch: int
    phase: int
    flags: int
    metrics: tuple[float | None, ...]


class Memory(NamedTuple):
    """Framework memory on one device, in bytes and counts; `NOT_KNOWN` if unknown."""

    number: int
    """The framework's number of the device."""
    device: int
    """`device_mark` of the device's UUID; 0 if the training could not determine the UUID."""
    allocated: int = NOT_KNOWN
    reserved: int = NOT_KNOWN
    peak: int = NOT_KNOWN
    """Peak of `allocated` since the process began, or since the user reset the peak."""
    active: int = NOT_KNOWN
    inactive_split: int = NOT_KNOWN
    requested: int = NOT_KNOWN
    retries: int = NOT_KNOWN
    ooms: int = NOT_KNOWN
    largest_free: int = NOT_KNOWN
    """The largest free block in the framework's pool."""


class Event(NamedTuple):
    """An event as stored in the board, such as the start or end of an epoch or phase. Times are in ns."""

    mark: int
    phase: int
    number: int
    monotonic_ns: int
    time_ns: int
    step: int
    wait_ns: int
    epoch: int
    aux: int = 0
    asked: int = NOT_KNOWN
    free: int = NOT_KNOWN
    logged: tuple[float | None, ...] = NOTHING_LOGGED
    peak: int = NOT_KNOWN
    """The framework's peak of allocated bytes so far, over all devices."""


def pack_header(header: BoardHeader) -> bytes:
    """Return the first 84 bytes of a board."""
    raw = HEADER.pack(
        MAGIC, VERSION, header.size, header.pid, header.parent, header.started, header.pid_namespace,
        header.time_namespace, header.boot_id, header.monotonic_ns, header.time_ns, 0,
    )  # fmt: skip
    return raw[:-4] + _CRC.pack(crc32(raw[:-4]))


def pack_tail(metrics: Metrics) -> bytes:
    """Return the packed metrics. They are the last part of a state record and change less often than the rest."""
    return STATE_METRICS.pack(*_numbers(metrics)) + STATE_SET.pack(_set(metrics), 0)


def device_mark(uuid: str) -> int:
    """Return a number that identifies the UUID of a device in a board; 0 for an empty UUID."""
    # Some versions of torch report the UUID of a MIG instance with the prefix of a whole GPU.
    return crc32(without_prefix(uuid).encode("utf-8", "replace")) if uuid else 0


def pack_memory(number: int, monotonic_ns: int, devices: Sequence[Memory]) -> bytes:
    """Return a record of framework memory. Only the first sixteen devices are included."""
    body = MEMORY_HEAD.pack(number, monotonic_ns) + b"".join(
        MEMORY_ENTRY.pack(*device) for device in devices[:MAX_MEMORY]
    )
    length = len(body).to_bytes(4, "little")
    return crc32(length + body).to_bytes(4, "little") + length + body


def pack_state(head: bytes, tail: bytes) -> bytes:
    """Return a complete state record from the results of `pack_head` and `pack_tail`."""
    body = head + tail
    return crc32(_LENGTH + body).to_bytes(4, "little") + _LENGTH + body


def pack_event(event: Event) -> bytes:
    """Return an event record. Its CRC includes its number, so that an old record cannot be mistaken for a new one."""
    body = EVENT_BODY.pack(*event[:-2], *_numbers(event.logged))
    return _sealed(body, event.number)


def pack_supplement(event: Event) -> bytes:
    """Return the supplement of an event."""
    return _sealed(SUPPLEMENT_BODY.pack(_set(event.logged), 0, event.peak), event.number)


def event_offset(number: int) -> int:
    """Return the offset in the board of the event with this number."""
    return EVENTS + (number % EVENT_COUNT) * EVENT_SIZE


def supplement_offset(number: int) -> int:
    """Return the offset in the board of the supplement of the event with this number."""
    return SUPPLEMENTS + (number % EVENT_COUNT) * SUPPLEMENT_SIZE


def pack_text_header(version: int, text: bytes) -> bytes:
    """Return the header of a description or metadata text."""
    return TEXT_HEADER.pack(version, len(text), crc32(text), 0)


def _numbers(metrics: Metrics) -> list[float]:
    return [NAN if value is None else value for value in metrics]


def _set(metrics: Metrics) -> int:
    which, bit = 0, 1
    for value in metrics:
        if value is not None:
            which |= bit
        bit <<= 1
    return which


def _sealed(body: bytes, number: int) -> bytes:
    return crc32(body, number & 0xFFFFFFFF).to_bytes(4, "little") + body


def unpack_header(front: bytes) -> BoardHeader:
    """Return the header of a board. Raises BoardError if the bytes are not a board of this version."""
    if len(front) < HEADER.size:
        raise BoardError("shorter than a header")
    magic, version, size, *rest, crc = HEADER.unpack_from(front)
    if magic != MAGIC:
        raise BoardError("not a tag board")
    if crc32(front[: HEADER.size - 4]) != crc:
        raise BoardError("damaged header")
    if version != VERSION:
        raise BoardError(f"the board is version {version}, but this gpumon reads version {VERSION}")
    return BoardHeader(size, *rest)


def unpack_state(front: bytes) -> State | None:
    """Return the newest complete state; None if there is none yet. `front`: the first `FRONT` bytes of a board."""
    best: tuple[int, tuple[int, ...], int] | None = None
    for offset in STATES:
        if len(front) < offset + 256:
            continue
        crc, length = PREFIX.unpack_from(front, offset)
        if length != STATE_BODY or crc32(front[offset + 4 : offset + 8 + length]) != crc:
            continue
        head = STATE_HEAD.unpack_from(front, offset + 8)
        if head[0] and (best is None or head[0] > best[0]):
            best = (head[0], head, offset)
    if best is None:
        return None
    offset = best[2] + 8 + STATE_HEAD.size
    which, _ = STATE_SET.unpack_from(front, offset + STATE_METRICS.size)
    fields: tuple[Any, ...] = (*best[1], _logged(STATE_METRICS.unpack_from(front, offset), which))
    return State(*fields)


def unpack_memory(front: bytes) -> tuple[int, tuple[Memory, ...]]:
    """Return time (ns, CLOCK_MONOTONIC) and devices of the newest complete memory record; (0, ()) if there is none yet.

    `front`: the first `FRONT` bytes of a board.
    """
    newest, record = (0, 0), b""
    for offset in MEMORY:
        if len(front) < offset + MEMORY_ROOM:
            continue  # cut short
        crc, length = PREFIX.unpack_from(front, offset)
        if not MEMORY_HEAD.size <= length <= MEMORY_ROOM - 8 or crc32(front[offset + 4 : offset + 8 + length]) != crc:
            continue
        body = front[offset + 8 : offset + 8 + length]
        head = MEMORY_HEAD.unpack_from(body)
        if head[0] > newest[0]:
            newest, record = head, body
    count = (len(record) - MEMORY_HEAD.size) // MEMORY_ENTRY.size if record else 0
    return newest[1], tuple(
        Memory(*MEMORY_ENTRY.unpack_from(record, MEMORY_HEAD.size + i * MEMORY_ENTRY.size))
        for i in range(min(count, MAX_MEMORY))
    )


def unpack_event(ring: bytes, number: int, supplements: bytes) -> Event | None:
    """Return the event with this number; None if it is missing or incomplete.

    `ring`: the bytes of the board from `EVENTS` on. `supplements`: the bytes from `SUPPLEMENTS` on.
    """
    body = _checked(ring, event_offset(number) - EVENTS, EVENT_BODY.size, number)
    supplement = _checked(supplements, supplement_offset(number) - SUPPLEMENTS, SUPPLEMENT_BODY.size, number)
    if body is None or supplement is None:
        return None
    fields, (which, _, peak) = EVENT_BODY.unpack(body), SUPPLEMENT_BODY.unpack(supplement)
    arguments: tuple[Any, ...] = (*fields[:-MAX_METRICS], _logged(fields[-MAX_METRICS:], which), peak)
    event = Event(*arguments)
    return event if event.number == number else None


def text_versions(front: bytes) -> list[tuple[int, int, int, int]]:
    """Return version, length, crc32 and offset of each description in a board, newer first.

    `front`: the first `FRONT` bytes of a board.
    """
    return _texts(front, DESCRIPTIONS, TEXTS, TEXT_ROOM)


def about_versions(front: bytes) -> list[tuple[int, int, int, int]]:
    """Return version, length, crc32 and offset of each metadata text in a board, newer first.

    `front`: the first `FRONT` bytes of a board.
    """
    return _texts(front, ABOUTS, ABOUT_TEXTS, ROOM)


def _texts(front: bytes, headers: Sequence[int], offsets: Sequence[int], room: int) -> list[tuple[int, int, int, int]]:
    texts = []
    for header, offset in zip(headers, offsets, strict=True):
        if len(front) >= header + TEXT_HEADER.size:
            version, length, crc, _ = TEXT_HEADER.unpack_from(front, header)
            if version and length <= room:
                texts.append((version, length, crc, offset))
    return sorted(texts, reverse=True)


def _logged(numbers: Sequence[float], which: int) -> tuple[float | None, ...]:
    return tuple(value if which >> slot & 1 else None for slot, value in enumerate(numbers))


def _checked(ring: bytes, offset: int, size: int, number: int) -> bytes | None:
    """Return a record without its CRC; None if the CRC does not match."""
    raw = ring[offset : offset + 4 + size]
    if len(raw) < 4 + size or crc32(raw[4:], number & 0xFFFFFFFF) != int.from_bytes(raw[:4], "little"):
        return None
    return raw[4:]
