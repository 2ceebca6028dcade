"""The reading end of a ring: the standard library only, and no byte of the file is believed.

A reader never locks, never writes, never maps. It carries a cursor (the number of the newest frame
it has seen); the ring knows nothing of its readers.
"""

from __future__ import annotations

import os
import struct
import time
from typing import NamedTuple

from gpumon.errors import RingError
from gpumon.frame import Frame
from gpumon.procfs import boot_id, is_alive
from gpumon.ring.believable import believable, is_doubtful
from gpumon.ring.body import decode
from gpumon.ring.directory import NOTHING, Known, unpack
from gpumon.ring.layout import (
    BLOB,
    HOT,
    HOT_OFFSET,
    MAX_SCHEMA,
    RUNNING,
    SCHEMA_OFFSET,
    STOPPED,
    SUPERBLOCK,
    Head,
    frame_number,
    slot_head,
    unpack_superblock,
)

_TIMES = slice(16, 40)
"""Number, monotonic ns and time ns of a frame in its slot, each in 8 bytes."""
_HEAD_READ = SCHEMA_OFFSET + 4096
"""Bytes of superblock and schema that are read at first: nearly always all of them."""
_LAPPED = 2
"""Frames so close to being overwritten that a reader without a CRC leaves them out."""


class Heartbeat(NamedTuple):
    """The last sign of life of the writer."""

    head: int
    state: int
    age: float
    """Seconds since its last heartbeat; infinite when it belongs to another boot."""


class RingReader:
    """Reads the ring behind a descriptor, which it owns."""

    def __init__(self, fd: int) -> None:
        """Raises RingError when it is not a ring that this version reads; `fd` is closed then."""
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
        self._known = NOTHING
        self._unnamed = os.fstat(fd).st_nlink == 0

    @classmethod
    def open(cls, path: str) -> RingReader:
        """Raises OSError when there is no such file, RingError when it is no ring."""
        return cls(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK))

    def close(self) -> None:
        os.close(self.fd)

    def heartbeat(self) -> Heartbeat:
        """Whether somebody writes this file. Raises RingError when it was emptied."""
        head, heartbeat, state, _ = self._hot()
        if self.written_by.boot_id != boot_id():
            return Heartbeat(head, STOPPED, float("inf"))
        age = max(0.0, (time.monotonic_ns() - heartbeat) / 1e9)
        return Heartbeat(head, state if state in (RUNNING, STOPPED) else STOPPED, age)

    def is_writer_there(self) -> bool:
        """Whether the process that writes this file still runs, as far as this process can see."""
        return is_alive(self.written_by.pid, self.written_by.started)

    def is_replaced(self) -> bool:
        """Whether the file has lost its name: a new generation lies at its path. Never so in memory."""
        return not self._unnamed and os.fstat(self.fd).st_nlink == 0

    def newest(self) -> Frame | None:
        """The newest frame, None before the first. Raises RingError when the file is damaged."""
        for _ in range(3):
            head = self._hot()[0]
            if head == 0:
                return None
            frame = self.get(head)
            if frame is not None:
                return frame
        return self.get(head - 1)

    def get(self, number: int) -> Frame | None:
        """One frame, or None when it is not (or no longer) there."""
        raw = self.raw(number)
        return None if raw is None else self.decode(raw)

    def since(self, number: int, most: int = 1 << 30) -> list[Frame]:
        """Frames after `number` that are still there, oldest first; the newest `most` of them."""
        head = self._hot()[0]
        # A head from a damaged file may be any number; the slots decide what is true.
        first = max(number + 1, head - self.layout.n_slots + 1, head - most + 1, 1)
        found = (self.get(wanted) for wanted in range(first, head + 1))
        return [frame for frame in found if frame is not None]

    def series(self, metric: str, frames: int) -> tuple[list[int], list[tuple[float, ...]]]:
        """Times (ns since 1970) and values by row of one GPU metric in the newest `frames` frames.

        Reads only the bytes it needs, without their CRC: a frame counts when its number is the one
        wanted and it cannot have been overwritten meanwhile. The newest frame is checked in full.
        """
        layout = self.layout
        column = struct.Struct(f"<{layout.rows}d")
        at = layout.metrics_at + column.size * layout.gpu.index(metric)
        end = at + column.size
        head = self._hot()[0]
        first = max(1, head - min(frames, layout.n_slots) + 1)
        heads, columns = bytearray(), bytearray()
        fd, pread = self.fd, os.pread
        for offset in layout.slots_at(first, head):
            raw = pread(fd, end, offset)
            if len(raw) < end:
                break  # somebody cut the file
            heads += raw[_TIMES]
            columns += raw[at:]
        else:
            newest = self.raw(head) or b""
            heads += newest[_TIMES]
            columns += newest[at:end]
        words = struct.unpack(f"<{len(heads) // 8}q", heads)
        numbers, times = words[::3], list(words[2::3])
        values = list(column.iter_unpack(columns))
        if is_doubtful(columns):
            values = [believable(found) for found in values]
        oldest = self._hot()[0] - layout.n_slots + _LAPPED
        if first >= oldest and numbers == tuple(range(first, first + len(numbers))):
            return times, values
        kept = [i for i, number in enumerate(numbers) if number == first + i >= oldest]
        return [times[i] for i in kept], [values[i] for i in kept]

    def directory(self) -> Known:
        """The newest whole directory. Raises RingError when it makes no sense."""
        version = self._hot()[3]
        if version != self._known.version or version == 0:
            layout = self.layout
            for at in (layout.dir_offset, layout.dir_offset + layout.dir_capacity):
                raw = os.pread(self.fd, BLOB.size, at)
                if len(raw) == BLOB.size and BLOB.unpack(raw)[0] > self._known.version:
                    length = min(BLOB.unpack(raw)[1], layout.dir_capacity)
                    known = unpack(raw + os.pread(self.fd, length, at + BLOB.size))
                    self._known = known or self._known
        return self._known

    def raw(self, number: int) -> bytes | None:
        """The bytes of one whole frame."""
        raw = os.pread(self.fd, self.layout.slot_size, self.layout.slot_at(number))
        return raw if number > 0 and frame_number(raw) == number else None

    def decode(self, raw: bytes) -> Frame:
        """A frame from bytes that `raw` gave."""
        if slot_head(raw).directory_version > self._known.version:
            self.directory()
        return decode(raw, self.layout, self._known)

    def whole_frames(self) -> list[int]:
        """Numbers of all frames that are whole, in order. The head is only a hint after a crash."""
        layout = self.layout
        found = []
        for slot in range(layout.n_slots):
            number = frame_number(os.pread(self.fd, layout.slot_size, layout.header_size + slot * layout.slot_size))
            if number and number % layout.n_slots == slot:
                found.append(number)
        newest = max(found, default=0)
        return sorted(number for number in found if number > newest - layout.n_slots)

    def _hot(self) -> tuple[int, int, int, int]:
        raw = os.pread(self.fd, HOT.size, HOT_OFFSET)
        if len(raw) < HOT.size:
            raise RingError("the ring file was emptied: restart the daemon")
        head, heartbeat, state, version = HOT.unpack(raw)
        return head, heartbeat, state, version
