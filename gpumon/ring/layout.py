"""The binary layout of a ring file.

Everything is little-endian, and every offset is fixed for the life of the file. Only one process writes a file, with
one `pwrite` per record. Readers use `pread` and check their private copy. A record with a wrong CRC is ignored. This
works on any CPU and after any crash.

    0       superblock, immutable: `SUPERBLOCK`, then its CRC32
    256     hot words, one 24-byte write per tick: `HOT`
    4096    schema, JSON: {"rows", "gpu": [metric names], "host": [metric names], "wide": [those that are f8 in
            slots of values], "values": slots of values, "events": slots of events, "sums": bytes}
    dir_off directory, two copies of `dir_capacity` bytes, the newer one in copy `version & 1`:
            `BLOB` (version, length, CRC32, 0) and JSON (devices by row, strings, runs, origin)
    header_size, then areas of slots; the record with a number is in slot `number % slots` of its area:
            full    `n_slots` times: `SLOT`, rows[R], f8 metrics[M][R], f8 host[H], processes, runs, boundaries
            values  `SLOT`, rows[R], f4 metrics and host, f8 metrics and host: see `codec.ValueForm`
            events  boundaries, and runs that began or ended, each with the number of its frame: see `events`
    sums_at sums over the daemon's own ticks, two copies of `sums` bytes: see `sums`

The newest frames are in the areas full and values. Older frames are only in values and events, so that an hour of
frames needs little space. A slot's CRC32 covers the bytes from 16 to 16 + length. `number` counts frames from 1. A slot
contains the ids of strings, but no strings. In full frames all values are f8, so that byte counts are exact. In slots
of values, gauges are f4, and counters and bit masks are f8.

A reader supports one layout (`MAJOR`). A view rejects a ring with a different layout, and a new daemon replaces it with
a new ring. The metrics of a file are in its schema, so a version with more metrics can read the frames of a version
with fewer.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple
from zlib import crc32

from gpumon.common.errors import RingError
from gpumon.common.numbers import LARGEST, NAN

# The two highest bytes of a float64 are its sign, its exponent and four more bits: 44 00 for LARGEST, 7F F8 for NaN.
# A few fast passes over these bytes show whether all values are plausible, which is nearly always the case.
_EXPONENT = bytes(high & 0x7F > 0x43 and high != 0x7F for high in range(256))
_HIGHEST = bytes(high == 0x7F for high in range(256))
_NOT_NAN = bytes(second != 0xF8 for second in range(256))


def believable(values: Iterable[float]) -> tuple[float, ...]:
    """Return the values, with NaN in place of infinite and implausibly large ones."""
    low, high, missing = -LARGEST, LARGEST, NAN  # local variables and a list are faster, and this runs for each process
    return tuple([value if low < value < high else missing for value in values])


def is_doubtful(raw: bytes | bytearray, offsets: Iterable[int] = (0,), stride: int = 8) -> bool:
    """Return whether one of the little-endian float64 values in `raw` may be implausible.

    The values are at these `offsets` in each record of `stride` bytes.
    """
    highest = b"".join([raw[at + 7 :: stride] for at in offsets])
    second = b"".join([raw[at + 6 :: stride] for at in offsets])
    if highest.translate(_EXPONENT).find(1) >= 0:
        return True
    infinite = int.from_bytes(highest.translate(_HIGHEST), "little")
    return bool(infinite & int.from_bytes(second.translate(_NOT_NAN), "little"))


_EXPONENT_SINGLE = bytes(high & 0x7F > 0x5F and high != 0x7F for high in range(256))
_NOT_NAN_SINGLE = bytes(second != 0xC0 for second in range(256))


def is_doubtful_single(raw: bytes | bytearray) -> bool:
    """Return whether one of the little-endian float32 values in `raw` may be implausible."""
    highest = raw[3::4]
    if highest.translate(_EXPONENT_SINGLE).find(1) >= 0:
        return True
    infinite = int.from_bytes(highest.translate(_HIGHEST), "little")
    return bool(infinite & int.from_bytes(raw[2::4].translate(_NOT_NAN_SINGLE), "little"))


MAGIC = b"GPUMRNG\x01"
MAJOR = 1
"""Version of the layout that is written. No other version is read."""
MINOR = 0
"""Version of the additions to the layout. A reader of the same layout can ignore additions."""

SUPERBLOCK = struct.Struct("<8sHHIIIIIQ16sIIQIIIIQq")
"""Struct format of the fields of `Head`."""
HOT_OFFSET = 256
HOT = struct.Struct("<QQII")
"""head (number of the newest frame, only a hint), heartbeat (monotonic ns), state, directory version"""
SCHEMA_OFFSET = 4096
BLOB = struct.Struct("<IIII")

RUNNING, STOPPED = 1, 2
"""States of a writer; 0 before its first frame. A file that was replaced needs no state, because it has no name
(st_nlink is 0).
"""

SLOT = struct.Struct("<QIIQqqIHHHHIIIII")
"""Struct format of the fields of `SlotHead`."""
CRC_FROM = 16
_BEYOND = 1 << 62
"""Limit of frame numbers and times (ns)."""
ROW = struct.Struct("<BxHIIqq")
"""A device: availability, time without an answer (tenths of a second plus 1; 0 if unknown), run id or 0, age in ms,
time of the gauges and of the counters (monotonic ns, 0 if unknown)"""
PROCESS = struct.Struct("<IHBxIIIIII4d4H")
"""pid, row, kind, name, user, run id, container, pod, job; started, memory_used, cpu, host memory; share of SM,
memory, encoder and decoder in units of 1/10000, `NO_SHARE` if unknown"""
SHARE, NO_SHARE = 10_000, 0xFFFF
RUN = struct.Struct("<IBBxxiqI3d9d8dI")
"""run id, state, number of logged metrics, epoch, step, phase; epoch_started, updated, wait, framework memory as in
`Run`; metrics; lost"""
BOUNDARY = struct.Struct("<IQBBxxIiqqq3d")
"""run id, number, mark, a bit for each metric of the run in this frame that the boundary has, from the lowest on (0
without runs), phase, epoch, step, monotonic ns, time ns, wait, asked, free"""

EVENT_SIZE = 24 + BOUNDARY.size

KINDS = ("compute", "graphics")
RUN_METRICS = 8

BOUNDARY_ROOM = 32
"""Number of boundaries for which a full slot has reserved space."""

# Limits that a reader checks in an untrusted file before it allocates anything.
_MAX_SLOT = 1 << 20
_MAX_SLOTS = 1 << 20
_MAX_EVENTS = 1 << 16
_MAX_ROWS = 512
_MAX_SUMS = 1 << 20
MAX_SCHEMA = 1 << 16


class Area(NamedTuple):
    """A part of the file that consists of slots of the same size."""

    begin: int
    slot_size: int
    slots: int
    min_size: int = 0
    """Minimum bytes of a record."""

    @property
    def end(self) -> int:
        return self.begin + self.slot_size * self.slots

    def at(self, number: int) -> int:
        """Return the offset of the slot for the record with this number."""
        return self.begin + number % self.slots * self.slot_size

    def range(self, first: int, last: int) -> Iterator[int]:
        """Iterate over the offsets of records `first` to `last` - 1, but at most as many as there are slots."""
        begin, step = self.at(first), self.slot_size
        end = begin + (last - first) * step
        over = max(0, end - self.end)  # bytes that wrap around to the start of the area
        return chain(range(begin, end - over, step), range(self.begin, self.begin + over, step))


class Layout(NamedTuple):
    """Sizes and offsets of a ring file."""

    rows: int
    gpu: tuple[str, ...]
    host: tuple[str, ...]
    n_slots: int
    slot_size: int
    header_size: int
    dir_offset: int
    dir_capacity: int
    schema: bytes
    wide: tuple[str, ...] = ()
    """Metrics that are f8 in slots of values."""
    n_values: int = 0
    n_events: int = 0
    sums: int = 0
    """Size of one copy of the sums in bytes."""

    @property
    def metrics_at(self) -> int:
        """Offset of the metrics in a slot, either full or with only values."""
        return SLOT.size + ROW.size * self.rows

    @property
    def host_at(self) -> int:
        return self.metrics_at + 8 * len(self.gpu) * self.rows

    @property
    def variable_at(self) -> int:
        """Offset of the first process."""
        return self.host_at + 8 * len(self.host)

    @property
    def values_end(self) -> int:
        """Number of bytes in use in a slot of values."""
        wide = set(self.wide)
        widths = [8 if name in wide else 4 for name in self.gpu], [8 if name in wide else 4 for name in self.host]
        return self.metrics_at + sum(widths[0]) * self.rows + sum(widths[1])

    @property
    def value_size(self) -> int:
        """Size of a slot of values in bytes."""
        return round_up(self.values_end, 8)

    @property
    def full(self) -> Area:
        """The area of the slots with complete frames."""
        return Area(self.header_size, self.slot_size, self.n_slots, self.variable_at)

    @property
    def values(self) -> Area:
        """The area of the slots with only the values of frames."""
        return Area(self.full.end, self.value_size, self.n_values, self.values_end)

    @property
    def events(self) -> Area:
        """The area of the slots with boundaries, and with runs that began or ended."""
        return Area(self.values.end, EVENT_SIZE, self.n_events)

    @property
    def sums_at(self) -> int:
        """Offset of the first copy of the sums."""
        return round_up(self.events.end, 64)

    @property
    def frames(self) -> int:
        """Maximum number of frames in the file, complete or with only values."""
        return max(self.n_slots, self.n_values)

    @property
    def size(self) -> int:
        """Size of the file in bytes."""
        return self.sums_at + 2 * self.sums

    @property
    def schema_crc(self) -> int:
        return crc32(self.schema)


class Head(NamedTuple):
    """The superblock as stored in the file."""

    magic: bytes
    major: int
    minor: int
    header_size: int
    slot_size: int
    n_slots: int
    dir_offset: int
    dir_capacity: int
    generation: int
    boot_id: bytes
    pid: int
    uid: int
    started: int
    schema_offset: int
    schema_length: int
    schema_crc: int
    interval_us: int
    created_ns: int
    realtime_offset_ns: int
    """Difference of the realtime clock and the monotonic clock (realtime minus monotonic) in ns."""


class SlotHead(NamedTuple):
    """The header of a slot as stored in the file."""

    sequence: int
    """Twice the number of the frame in the slot."""
    crc: int
    length: int
    number: int
    monotonic_ns: int
    """Time of the frame in ns of CLOCK_MONOTONIC. It may be negative, because a simulation may begin before the machine
    was booted."""
    time_ns: int
    directory_version: int
    rows: int
    processes: int
    runs: int
    boundaries: int
    dropped_processes: int
    interval_us: int
    sample_duration_us: int
    skipped_ticks: int
    dropped_runs: int


def slot_head(raw: bytes) -> SlotHead:
    """Return the header of a slot. Raises struct.error if `raw` is too short."""
    return SlotHead._make(SLOT.unpack_from(raw))


class Superblock(NamedTuple):
    """The process that writes a ring, and the time at which it created the file."""

    generation: int
    boot_id: bytes
    pid: int
    uid: int
    interval_ns: int
    """Planned time between frames in ns."""
    created_ns: int
    started: int
    """Start time of the process in clock ticks after boot. Together with the pid, it identifies the process."""


def pack_superblock(layout: Layout, writer: Superblock, offset: int) -> bytes:
    """Return the superblock and its CRC. `offset`: realtime clock minus monotonic clock, in ns."""
    raw = SUPERBLOCK.pack(
        MAGIC, MAJOR, MINOR, layout.header_size, layout.slot_size, layout.n_slots, layout.dir_offset,
        layout.dir_capacity, writer.generation, writer.boot_id, writer.pid, writer.uid, writer.started, SCHEMA_OFFSET,
        len(layout.schema), layout.schema_crc, min(writer.interval_ns // 1000, 0xFFFFFFFF), writer.created_ns, offset,
    )  # fmt: skip
    return raw + crc32(raw).to_bytes(4, "little")


def unpack_superblock(raw: bytes, schema: bytes) -> tuple[Layout, Superblock]:
    """Return the layout and the writer of a ring.

    `raw`: the first 4096 bytes of the file. `schema`: the bytes that follow.

    Raises RingError if the file is not a complete ring, or has a layout that this version of gpumon cannot read.
    """
    if len(raw) < SUPERBLOCK.size + 4:
        raise RingError("the ring file is truncated: restart the daemon")
    head = Head._make(SUPERBLOCK.unpack_from(raw))
    if head.magic != MAGIC:
        raise RingError("the ring file is not a gpumon ring, or is damaged: restart the daemon")
    if crc32(raw[: SUPERBLOCK.size]) != int.from_bytes(raw[SUPERBLOCK.size : SUPERBLOCK.size + 4], "little"):
        raise RingError("the head of the ring file is damaged: restart the daemon")
    if head.major != MAJOR:
        raise RingError(
            f"the ring has layout {head.major}, but this gpumon reads layout {MAJOR}: another version of gpumon "
            "wrote it. Restart the daemon, or use its version of gpumon"
        )
    sizes_fit = head.slot_size <= _MAX_SLOT and head.dir_capacity <= _MAX_SLOT and head.schema_length <= MAX_SCHEMA
    if not (sizes_fit and 0 < head.n_slots <= _MAX_SLOTS):
        raise RingError("the sizes in the ring file are invalid: restart the daemon")
    at = head.schema_offset - SCHEMA_OFFSET
    schema = schema[at : at + head.schema_length]
    if at < 0 or crc32(schema) != head.schema_crc:
        raise RingError("the schema of the ring file is damaged: restart the daemon")
    parsed = _parse_schema(schema)
    layout = Layout(
        rows=parsed.rows,
        gpu=parsed.gpu,
        host=parsed.host,
        n_slots=head.n_slots,
        slot_size=head.slot_size,
        header_size=head.header_size,
        dir_offset=head.dir_offset,
        dir_capacity=head.dir_capacity,
        schema=schema,
        wide=parsed.wide,
        n_values=parsed.values,
        n_events=parsed.events,
        sums=parsed.sums,
    )
    if layout.variable_at > head.slot_size or (layout.n_values and layout.value_size > _MAX_SLOT):
        raise RingError("the ring file is damaged (its schema does not fit its slots): restart the daemon")
    return layout, Superblock(
        generation=head.generation,
        boot_id=head.boot_id,
        pid=head.pid,
        uid=head.uid,
        interval_ns=head.interval_us * 1000,
        created_ns=head.created_ns,
        started=head.started,
    )


class _Schema(NamedTuple):
    rows: int
    gpu: tuple[str, ...]
    host: tuple[str, ...]
    wide: tuple[str, ...]
    values: int
    events: int
    sums: int


def _parse_schema(schema: bytes) -> _Schema:
    try:
        document = json.loads(schema)
        rows, gpu, host = document["rows"], document["gpu"], document["host"]
        wide, values, events, sums = document["wide"], document["values"], document["events"], document["sums"]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise RingError("the schema of the ring file cannot be read: restart the daemon") from error
    are_lists = all(isinstance(names, list) for names in (gpu, host, wide))
    bounds = (rows, _MAX_ROWS), (values, _MAX_SLOTS), (events, _MAX_EVENTS), (sums, _MAX_SUMS)
    if (
        not are_lists
        or not all(isinstance(name, str) for name in gpu + host + wide)
        or not all(isinstance(number, int) and 0 <= number <= most for number, most in bounds)
    ):
        raise RingError("the schema of the ring file is invalid: restart the daemon")
    return _Schema(rows, tuple(gpu), tuple(host), tuple(wide), values, events, sums)


def frame_number(raw: bytes, min_size: int = SLOT.size) -> int:
    """Return the number of the frame in a slot; 0 if the slot is not complete, or shorter than `min_size` bytes.

    `raw` must be a private copy of the slot, because the writer may overwrite the file.
    """
    if len(raw) < SLOT.size:
        return 0
    seq, crc, length, number, monotonic, time = struct.unpack_from("<QIIQqq", raw)
    if (
        number == 0
        or max(number, abs(monotonic), abs(time)) >= _BEYOND
        or seq != 2 * number
        or not min_size - CRC_FROM <= length <= len(raw) - CRC_FROM
    ):
        return 0
    return number if crc32(memoryview(raw)[CRC_FROM : CRC_FROM + length]) == crc else 0


def round_up(value: int, to: int) -> int:
    """Return the smallest multiple of `to` that is at least `value`."""
    return (value + to - 1) // to * to
