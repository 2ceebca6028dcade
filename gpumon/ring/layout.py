"""The bytes of a ring file.

Everything is little-endian, and every offset is fixed for the life of the file. One process writes
an inode, with one `pwrite` a record; readers use `pread` and judge only their private copy: a
record is whole (its CRC says so) or it does not exist, on any CPU and under any crash.

    0       superblock, immutable: `SUPERBLOCK`, then its CRC32
    256     hot words, one 24-byte write each tick: `HOT`
    4096    schema, JSON: {"rows", "gpu": [metric names], "host": [metric names], "wide": [those that are f8 in
            slots of values], "values": slots of values, "events": slots of events, "sums": bytes}
    dir_off directory, two copies of `dir_capacity` bytes, the newer one in copy `version & 1`:
            `BLOB` (version, length, CRC32, 0) and JSON (devices by row, strings, runs, origin)
    header_size, then areas of slots; the record with a number lies in slot `number % slots` of its area:
            full    `n_slots` times: `SLOT`, rows[R], f8 metrics[M][R], f8 host[H], processes, runs, boundaries
            values  `SLOT`, rows[R], f4 metrics and host, f8 metrics and host: see `values`
            events  boundaries, and runs that began or ended, each with the number of its frame: see `events`
    sums_at sums of the daemon's own ticks, two copies of `sums` bytes: see `sums`

The newest frames are in both of the first areas. Older ones have only their values and their events: so an hour
of them takes little room. A slot's CRC32 covers bytes 16 up to 16 + length. `number` counts frames from 1.
Strings are never in a slot, only their ids. In full frames all values are f8, so that byte counts stay exact; in
slots of values gauges are f4, while counters and bit masks are f8.

A reader knows one layout (`MAJOR`): a view refuses the ring of another version, and a new daemon begins a new one.
The metrics of a file are in its schema, so a version with one more reads the frames of one with fewer.
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

# The two highest bytes of a float64 are its sign, its exponent and four bits more: 44 00 for LARGEST, 7F F8 for NaN.
# So a few passes in C show that nothing is wrong, which is nearly always the case.
_EXPONENT = bytes(high & 0x7F > 0x43 and high != 0x7F for high in range(256))
_HIGHEST = bytes(high == 0x7F for high in range(256))
_NOT_NAN = bytes(second != 0xF8 for second in range(256))


def believable(values: Iterable[float]) -> tuple[float, ...]:
    """The values, NaN in place of what is infinite or beyond reason."""
    least, most, missing = -LARGEST, LARGEST, NAN  # locals, and a list first: it is done for each process
    return tuple([value if least < value < most else missing for value in values])


def is_doubtful(raw: bytes | bytearray, offsets: Iterable[int] = (0,), stride: int = 8) -> bool:
    """Whether a little-endian float64 at one of `offsets` in a record of `stride` bytes might not be believable."""
    highest = b"".join([raw[at + 7 :: stride] for at in offsets])
    second = b"".join([raw[at + 6 :: stride] for at in offsets])
    if highest.translate(_EXPONENT).find(1) >= 0:
        return True
    infinite = int.from_bytes(highest.translate(_HIGHEST), "little")
    return bool(infinite & int.from_bytes(second.translate(_NOT_NAN), "little"))


_EXPONENT_SINGLE = bytes(high & 0x7F > 0x5F and high != 0x7F for high in range(256))
_NOT_NAN_SINGLE = bytes(second != 0xC0 for second in range(256))


def is_doubtful_single(raw: bytes | bytearray) -> bool:
    """Whether one of little-endian float32 values might not be believable."""
    highest = raw[3::4]
    if highest.translate(_EXPONENT_SINGLE).find(1) >= 0:
        return True
    infinite = int.from_bytes(highest.translate(_HIGHEST), "little")
    return bool(infinite & int.from_bytes(raw[2::4].translate(_NOT_NAN_SINGLE), "little"))


MAGIC = b"GPUMRNG\x01"
MAJOR = 1
"""The layout that is written, and the only one that is read."""
MINOR = 0
"""Additions that a reader of the same layout may ignore."""

SUPERBLOCK = struct.Struct("<8sHHIIIIIQ16sIIQIIIIQq")
"""The fields of `Head`."""
HOT_OFFSET = 256
HOT = struct.Struct("<QQII")
"""head (the newest frame's number; a hint), heartbeat (monotonic ns), state, directory version"""
SCHEMA_OFFSET = 4096
BLOB = struct.Struct("<IIII")

RUNNING, STOPPED = 1, 2
"""States of a writer; 0 until its first frame. A file that was replaced needs no mark: it has no name left (st_nlink
is 0)."""

SLOT = struct.Struct("<QIIQqqIHHHHIIIII")
"""The fields of `SlotHead`."""
CRC_FROM = 16
_BEYOND = 1 << 62
"""No frame has this number or time (ns), nor a later one."""
ROW = struct.Struct("<BxHIIqq")
"""A device: availability, for how long it is unanswered (tenths of a second and 1; 0 is not known), run id or 0,
age ms, when the gauges and the counters were true (monotonic ns, 0 where it is not known)"""
PROCESS = struct.Struct("<IHBxIIIIII4d4H")
"""pid, row, kind, name, user, run id, container, pod, job; started, memory_used, cpu, host memory; share of SM,
memory, encoder and decoder, of which 10000 are the whole and `NO_SHARE` is not known"""
SHARE, NO_SHARE = 10_000, 0xFFFF
RUN = struct.Struct("<IBBxxiqI3d9d8dI")
"""run id, state, how many metrics it has logged, epoch, step, phase; epoch_started, updated, wait, framework memory as
in `Run`; metrics; lost"""
BOUNDARY = struct.Struct("<IQBBxxIiqqq3d")
"""run id, number, mark, which metrics of the run in this frame are those of the boundary (a bit for each, from the
lowest on; 0 where there are no runs), phase, epoch, step, monotonic ns, time ns, wait, asked,
free"""

EVENT_SIZE = 24 + BOUNDARY.size

KINDS = ("compute", "graphics")
RUN_METRICS = 8

BOUNDARY_ROOM = 32
"""Boundaries for which a full slot has room."""

# What a reader believes of a stranger's file before it allocates anything.
_MAX_SLOT = 1 << 20
_MAX_SLOTS = 1 << 20
_MAX_EVENTS = 1 << 16
_MAX_ROWS = 512
_MAX_SUMS = 1 << 20
MAX_SCHEMA = 1 << 16


class Area(NamedTuple):
    """Slots of one size, one after the other."""

    begin: int
    slot_size: int
    slots: int
    least: int = 0
    """Bytes that each record has at least."""

    @property
    def end(self) -> int:
        return self.begin + self.slot_size * self.slots

    def at(self, number: int) -> int:
        """Offset of the slot of a record, by its number."""
        return self.begin + number % self.slots * self.slot_size

    def range(self, first: int, last: int) -> Iterator[int]:
        """Where the slots of records `first` to `last` - 1 begin; at most as many as there are slots."""
        begin, step = self.at(first), self.slot_size
        end = begin + (last - first) * step
        over = max(0, end - self.end)  # that many bytes lie at the front
        return chain(range(begin, end - over, step), range(self.begin, self.begin + over, step))


class Layout(NamedTuple):
    """Sizes and offsets of one ring file."""

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
    """Bytes of a copy of the sums."""

    @property
    def metrics_at(self) -> int:
        """Offset of the metrics block in a slot of either kind."""
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
        """Bytes that a slot of values uses."""
        wide = set(self.wide)
        widths = [8 if name in wide else 4 for name in self.gpu], [8 if name in wide else 4 for name in self.host]
        return self.metrics_at + sum(widths[0]) * self.rows + sum(widths[1])

    @property
    def value_size(self) -> int:
        """Bytes of a slot of values."""
        return round_up(self.values_end, 8)

    @property
    def full(self) -> Area:
        """Frames with all their parts."""
        return Area(self.header_size, self.slot_size, self.n_slots, self.variable_at)

    @property
    def values(self) -> Area:
        """Frames with their values alone."""
        return Area(self.full.end, self.value_size, self.n_values, self.values_end)

    @property
    def events(self) -> Area:
        """Boundaries, and runs that began or ended."""
        return Area(self.values.end, EVENT_SIZE, self.n_events)

    @property
    def sums_at(self) -> int:
        """Offset of the first copy of the sums."""
        return round_up(self.events.end, 64)

    @property
    def frames(self) -> int:
        """Frames kept, with or without their other parts."""
        return max(self.n_slots, self.n_values)

    @property
    def size(self) -> int:
        """Bytes of the whole file."""
        return self.sums_at + 2 * self.sums

    @property
    def schema_crc(self) -> int:
        return crc32(self.schema)


class Head(NamedTuple):
    """The superblock as it lies in the file."""

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
    """Realtime less monotonic clock."""


class SlotHead(NamedTuple):
    """The beginning of a slot as it lies in the file."""

    sequence: int
    """Twice the number."""
    crc: int
    length: int
    number: int
    monotonic_ns: int
    """Signed: what a simulation shows of the last minutes can lie before the machine's start."""
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
    """The beginning of a slot. Raises struct.error where `raw` is shorter."""
    return SlotHead._make(SLOT.unpack_from(raw))


class Superblock(NamedTuple):
    """Writer of a ring, and time of writing."""

    generation: int
    boot_id: bytes
    pid: int
    uid: int
    interval_ns: int
    """ns"""
    created_ns: int
    started: int
    """When the writing process began: clock ticks after boot; with the pid this names it for ever."""


def pack_superblock(layout: Layout, who: Superblock, offset: int) -> bytes:
    """The first bytes of the file, with their CRC."""
    raw = SUPERBLOCK.pack(
        MAGIC, MAJOR, MINOR, layout.header_size, layout.slot_size, layout.n_slots, layout.dir_offset,
        layout.dir_capacity, who.generation, who.boot_id, who.pid, who.uid, who.started, SCHEMA_OFFSET,
        len(layout.schema), layout.schema_crc, min(who.interval_ns // 1000, 0xFFFFFFFF), who.created_ns, offset,
    )  # fmt: skip
    return raw + crc32(raw).to_bytes(4, "little")


def unpack_superblock(raw: bytes, schema: bytes) -> tuple[Layout, Superblock]:
    """Layout and writer of a ring, from its first 4096 bytes and what follows them.

    Raises RingError for anything that is not a whole ring of a version that can be read.
    """
    if len(raw) < SUPERBLOCK.size + 4:
        raise RingError("the ring file is cut short: restart the daemon")
    head = Head._make(SUPERBLOCK.unpack_from(raw))
    if head.magic != MAGIC:
        raise RingError("the ring file is not a gpumon ring, or is damaged: restart the daemon")
    if crc32(raw[: SUPERBLOCK.size]) != int.from_bytes(raw[SUPERBLOCK.size : SUPERBLOCK.size + 4], "little"):
        raise RingError("the head of the ring file is damaged: restart the daemon")
    if head.major != MAJOR:
        to_do = "use the same version of gpumon as the daemon"
        raise RingError(f"the ring has layout {head.major}, this gpumon reads layout {MAJOR}: {to_do}")
    sizes_fit = head.slot_size <= _MAX_SLOT and head.dir_capacity <= _MAX_SLOT and head.schema_length <= MAX_SCHEMA
    if not (sizes_fit and 0 < head.n_slots <= _MAX_SLOTS):
        raise RingError("the sizes in the ring file make no sense: restart the daemon")
    at = head.schema_offset - SCHEMA_OFFSET
    schema = schema[at : at + head.schema_length]
    if at < 0 or crc32(schema) != head.schema_crc:
        raise RingError("the schema of the ring file is damaged: restart the daemon")
    found = _parse_schema(schema)
    layout = Layout(
        rows=found.rows,
        gpu=found.gpu,
        host=found.host,
        n_slots=head.n_slots,
        slot_size=head.slot_size,
        header_size=head.header_size,
        dir_offset=head.dir_offset,
        dir_capacity=head.dir_capacity,
        schema=schema,
        wide=found.wide,
        n_values=found.values,
        n_events=found.events,
        sums=found.sums,
    )
    if layout.variable_at > head.slot_size or (layout.n_values and layout.value_size > _MAX_SLOT):
        raise RingError("the schema of the ring file does not fit its slots: restart the daemon")
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
        found = json.loads(schema)
        rows, gpu, host = found["rows"], found["gpu"], found["host"]
        wide, values, events, sums = found["wide"], found["values"], found["events"], found["sums"]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise RingError("the schema of the ring file cannot be read: restart the daemon") from error
    are_lists = all(isinstance(names, list) for names in (gpu, host, wide))
    bounds = (rows, _MAX_ROWS), (values, _MAX_SLOTS), (events, _MAX_EVENTS), (sums, _MAX_SUMS)
    if (
        not are_lists
        or not all(isinstance(name, str) for name in gpu + host + wide)
        or not all(isinstance(number, int) and 0 <= number <= most for number, most in bounds)
    ):
        raise RingError("the schema of the ring file makes no sense: restart the daemon")
    return _Schema(rows, tuple(gpu), tuple(host), tuple(wide), values, events, sums)


def frame_number(raw: bytes, least: int = SLOT.size) -> int:
    """The number of the one whole frame of `least` bytes or more that `raw` holds, else 0.

    Looks only at this private copy.
    """
    if len(raw) < SLOT.size:
        return 0
    seq, crc, length, number, monotonic, time = struct.unpack_from("<QIIQqq", raw)
    if (
        number == 0
        or max(number, abs(monotonic), abs(time)) >= _BEYOND
        or seq != 2 * number
        or not least - CRC_FROM <= length <= len(raw) - CRC_FROM
    ):
        return 0
    return number if crc32(memoryview(raw)[CRC_FROM : CRC_FROM + length]) == crc else 0


def round_up(value: int, to: int) -> int:
    """Return the next multiple of `to`."""
    return (value + to - 1) // to * to
