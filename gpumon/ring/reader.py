"""Reads a ring. Uses only the standard library, and trusts no byte of the file.

A reader never locks, writes or maps the file. It remembers the number of the newest frame that it has seen, because the
writer keeps no record of readers.
"""

import os
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from gpumon.common.errors import RingError
from gpumon.common.paths import open_regular
from gpumon.common.procfs import boot_id, is_alive
from gpumon.model.frame import Boundary, Frame
from gpumon.ring.codec import decode, decode_values, value_column
from gpumon.ring.directory import EMPTY, StoredDirectory, unpack
from gpumon.ring.events import Events, read_events
from gpumon.ring.layout import (
    BLOB,
    CRC_FROM,
    HOT,
    HOT_OFFSET,
    MAX_SCHEMA,
    RUNNING,
    SCHEMA_OFFSET,
    STOPPED,
    SUPERBLOCK,
    Area,
    Head,
    believable,
    frame_number,
    is_doubtful,
    is_doubtful_single,
    slot_head,
    unpack_superblock,
)

if TYPE_CHECKING:
    from gpumon.ring.sums import Sums

_TIMES = slice(16, 40)
"""The bytes of a slot that contain the number, monotonic ns and time ns of its frame, 8 bytes each."""
_HEAD_READ = SCHEMA_OFFSET + 4096
"""Number of bytes to read first for the superblock and the schema. They are nearly always complete in this first
read."""
FIRST_READ = 8192
"""Number of bytes to read first of a slot. They nearly always include all bytes in use."""
_LAPPED = 2
"""Number of the oldest frames to leave out if the CRC is not checked, because they may be overwritten at any time."""


class Heartbeat(NamedTuple):
    """Time of the writer's last heartbeat, and number of the newest frame at that time."""

    head: int
    state: int
    age: float
    """Seconds since the last heartbeat; infinite if the heartbeat was before the last boot."""


class RingReader:
    """Reads the ring of a file descriptor, and closes the descriptor at the end."""

    def __init__(self, fd: int) -> None:
        """If `fd` is not a ring that this version can read, `fd` is closed and RingError is raised."""
        self.fd = fd
        try:
            head = os.pread(fd, _HEAD_READ, 0)
            whole = len(head) > SUPERBLOCK.size
            if whole and SCHEMA_OFFSET + Head._make(SUPERBLOCK.unpack_from(head)).schema_length > len(head):
                head = os.pread(fd, SCHEMA_OFFSET + MAX_SCHEMA, 0)
            self.layout, self.written_by = unpack_superblock(head[:SCHEMA_OFFSET], head[SCHEMA_OFFSET:])
        except BaseException:
            os.close(fd)
            raise
        self._full, self._values = self.layout.full, self.layout.values
        self._directory = EMPTY
        self._unnamed = os.fstat(fd).st_nlink == 0

    @classmethod
    def open(cls, path: str) -> "RingReader":
        """Open the ring at `path`. Raises OSError if there is no such file, RingError if it is not a ring."""
        return cls(open_regular(path))

    def close(self) -> None:
        os.close(self.fd)

    def heartbeat(self) -> Heartbeat:
        """Return the time at which the writer last showed that it is alive.

        Raises RingError if the file was truncated.
        """
        head, heartbeat, state, _ = self._hot()
        if self.written_by.boot_id != boot_id():
            return Heartbeat(head, STOPPED, float("inf"))
        age = max(0.0, (time.monotonic_ns() - heartbeat) / 1e9)
        return Heartbeat(head, state if state in (RUNNING, STOPPED) else STOPPED, age)

    def is_writer_alive(self) -> bool:
        """Return whether the writing process is running and visible to this process."""
        return is_alive(self.written_by.pid, self.written_by.started)

    def is_replaced(self) -> bool:
        """Return whether this file was replaced by another one or removed. Always False for a ring in memory."""
        return not self._unnamed and os.fstat(self.fd).st_nlink == 0

    def newest(self) -> Frame | None:
        """Return the newest frame; None if there is none yet. Raises RingError if the file is damaged."""
        for _ in range(3):
            head = self._hot()[0]
            if head == 0:
                return None
            raw = self.raw(head)
            if raw is not None:
                return self.decode(raw)
        raw = self.raw(head - 1)
        return None if raw is None else self.decode(raw)

    def since(self, number: int, limit: int = 1 << 30) -> list[Frame]:
        """Return the frames after number `number`, oldest first.

        If there are more than `limit`, only the newest are returned.

        Only the last `FULL_FRAMES` are complete. Older ones have only values and events (see `Frame.is_full`).
        """
        head = self._hot()[0]
        # In a damaged file, `head` may be any number. The slots prove which frames exist.
        first = max(number + 1, head - self.layout.frames + 1, head - limit + 1, 1)
        return self.frames(range(first, head + 1))

    def frames(self, numbers: Sequence[int]) -> list[Frame]:
        """Return the frames with these numbers, in this order.

        Frames that are no longer in the ring are left out.
        """
        frames = []
        full_since = numbers[-1] - self.layout.n_slots if numbers else 0
        events: Mapping[int, Events] | None = None
        for number in numbers:
            raw = self.raw(number) if number > full_since else None
            if raw is not None:
                frames.append(self.decode(raw))
                continue
            raw = self.raw_values(number)
            if raw is None:
                continue
            if slot_head(raw).directory_version > self._directory.version:
                self.directory()
            if events is None:
                events = self.events(number, numbers[-1])
            own = events.get(number, Events())
            frames.append(decode_values(raw, self.layout, self._directory, own.runs, own.boundaries))
        return frames

    def events(self, first: int, last: int) -> Mapping[int, Events]:
        """Return the events of the frames `first` to `last`. The keys are the numbers of the frames."""
        return read_events(self.fd, self.layout, self.directory(), first, last)

    def boundaries(self) -> list[Boundary]:
        """Return all stored boundaries, in the order in which they arrived."""
        events = read_events(self.fd, self.layout, self.directory())
        return [boundary for frame in sorted(events) for boundary in events[frame].boundaries]

    def series(self, metric: str, frames: int) -> tuple[list[int], list[tuple[float, ...]]]:
        """Return the times (ns since 1970) of the newest `frames` frames, and the values of a GPU metric in each.

        Only the needed bytes are read, and the CRC is checked only for the newest frame. Any other frame is accepted if
        it has the expected number and cannot have been overwritten while it was read.
        """
        area, (at, column) = self._column(metric)
        end = at + column.size
        head = self._hot()[0]
        first = max(1, head - min(frames, area.slots) + 1)
        heads, columns = bytearray(), bytearray()
        fd, pread = self.fd, os.pread
        for offset in area.range(first, head):
            raw = pread(fd, end, offset)
            if len(raw) < end:
                break  # the file was truncated
            heads += raw[_TIMES]
            columns += raw[at:]
        else:
            newest = self._whole(area, head) or b""
            heads += newest[_TIMES]
            columns += newest[at:end]
        words = struct.unpack(f"<{len(heads) // 8}q", heads)
        numbers, times = words[::3], list(words[2::3])
        values = list(column.iter_unpack(columns))
        if (is_doubtful_single if column.format.endswith("f") else is_doubtful)(columns):
            values = [believable(row) for row in values]
        oldest = self._hot()[0] - area.slots + _LAPPED
        if first >= oldest and numbers == tuple(range(first, first + len(numbers))):
            return times, values
        kept = [i for i, number in enumerate(numbers) if number == first + i >= oldest]
        return [times[i] for i in kept], [values[i] for i in kept]

    def sums(self) -> "Sums | None":
        """Return the newest running sums; None if the writer stores none."""
        from gpumon.ring.sums import read_sums  # views do not need this module

        return read_sums(self.fd, self.layout)

    def directory(self) -> StoredDirectory:
        """Return the newest complete directory. Raises RingError if it is invalid."""
        version = self._hot()[3]
        if version != self._directory.version or version == 0:
            layout = self.layout
            for at in (layout.dir_offset, layout.dir_offset + layout.dir_capacity):
                raw = os.pread(self.fd, BLOB.size, at)
                if len(raw) == BLOB.size and BLOB.unpack(raw)[0] > self._directory.version:
                    length = min(BLOB.unpack(raw)[1], layout.dir_capacity)
                    directory = unpack(raw + os.pread(self.fd, length, at + BLOB.size))
                    self._directory = directory or self._directory
        return self._directory

    def raw(self, number: int) -> bytes | None:
        """Return the bytes of the slot that contains a complete frame; None if the ring has no such slot."""
        return self._whole(self._full, number)

    def raw_values(self, number: int) -> bytes | None:
        """Return the bytes of the slot that contains only the values of a frame; None if the ring has no such slot."""
        return self._whole(self._values, number) if self._values.slots else None

    def decode(self, raw: bytes) -> Frame:
        """Return the frame in `raw`, which is a result of the method `raw`."""
        if slot_head(raw).directory_version > self._directory.version:
            self.directory()
        return decode(raw, self.layout, self._directory)

    def whole_slots(self) -> Iterator[tuple[int, bytes]]:
        """Yield the frame number and the bytes of each valid slot, in any order.

        A frame may have two slots, one complete and one with only values.
        """
        for area in (self._full, self._values):
            for slot in range(area.slots):
                raw = os.pread(self.fd, area.slot_size, area.at(slot))
                number = frame_number(raw, area.min_size)
                if number and number % area.slots == slot:
                    yield number, raw

    def _whole(self, area: Area, number: int) -> bytes | None:
        if number <= 0:
            return None
        at = area.at(number)
        raw = os.pread(self.fd, min(area.slot_size, FIRST_READ), at)
        if len(raw) == FIRST_READ and slot_head(raw).length > FIRST_READ - CRC_FROM:
            raw = os.pread(self.fd, area.slot_size, at)
        return raw if frame_number(raw, area.min_size) == number else None

    def _column(self, metric: str) -> tuple[Area, tuple[int, struct.Struct]]:
        """Return the position of a GPU metric: its area, and its offset and format in the slots of that area."""
        layout = self.layout
        if layout.n_values:
            return self._values, value_column(layout, metric)
        column = struct.Struct(f"<{layout.rows}d")
        return self._full, (layout.metrics_at + column.size * layout.gpu.index(metric), column)

    def _hot(self) -> tuple[int, int, int, int]:
        raw = os.pread(self.fd, HOT.size, HOT_OFFSET)
        if len(raw) < HOT.size:
            raise RingError("the ring file was truncated: restart the daemon")
        head, heartbeat, state, version = HOT.unpack(raw)
        return head, heartbeat, state, version
