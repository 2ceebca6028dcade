"""Writes a ring.

A ring file is written by a single process. A restart, more devices than rows, or a new version require a new file. The
frames of the old file are copied to the new file, which is then renamed over the old one. A ring file is never
truncated or repaired.
"""

from __future__ import annotations

import errno
import os
import time
from collections import deque
from collections.abc import Collection, Sequence
from contextlib import suppress
from zlib import crc32

from gpumon.common.errors import GpumonError
from gpumon.common.procfs import boot_id, start_time
from gpumon.model.frame import Boundary, Frame, Tick
from gpumon.ring.codec import Encoder
from gpumon.ring.directory import Directory
from gpumon.ring.events import EventWriter, read_events, read_raw_events
from gpumon.ring.layout import (
    CRC_FROM,
    HOT,
    HOT_OFFSET,
    RUNNING,
    SCHEMA_OFFSET,
    SLOT,
    STOPPED,
    Area,
    Layout,
    Superblock,
    pack_superblock,
)
from gpumon.ring.lock import open_fresh, remove_left_over
from gpumon.ring.reader import RingReader
from gpumon.ring.sums import copy_sums
from gpumon.ring.takeover import (
    MAX_ROWS,
    Predecessor,
    Widening,
    can_widen,
    open_predecessor,
    plan_layout,
    tick_from_frame,
)

FRAME_LADDER = (3600, 1800, 900, 300)
"""Possible numbers of frames in a ring. If the file system has no space for one of them, the next smaller one is
tried."""
_BACKLOG = 8192
_BATCH = 64
"""Maximum number of decoded frames in memory while frames are converted. An hour of frames would need too much
memory."""
_U32 = 0xFFFFFFFF
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENOMEM)


class RingWriter:
    """Writes ticks into a ring file.

    `lost_writes` counts the frames that could not be written (disk full, I/O error). The daemon continues without those
    frames.
    """

    def __init__(
        self, fd: int, layout: Layout, path: str | None, interval: int, directory: Directory | None = None
    ) -> None:
        self.fd = fd
        self.path = path
        self._unpublished = ""
        """Temporary path of the file while readers must not find it; empty once the file is at `path`."""
        self.layout = layout
        self.lost_writes = 0
        self.is_failing = False
        """Whether writing the newest frame failed."""
        self.head = 0
        self._directory = directory or Directory(layout.rows)
        self._version = 0
        self._encoder = Encoder(layout, self._directory)
        # Stored here, because a layout recomputes its offsets at each access.
        self._full, self._values, self._size = layout.full, layout.values, layout.size
        self._events = EventWriter(fd, layout, self._directory)
        self._boundaries: deque[Boundary] = deque(maxlen=_BACKLOG)
        now = time.time_ns()
        writer = Superblock(
            generation=now,
            boot_id=boot_id(),
            pid=os.getpid(),
            uid=os.getuid(),
            interval_ns=interval,
            created_ns=now,
            started=start_time(),
        )
        self._front = pack_superblock(layout, writer, now - time.monotonic_ns())
        self._stored = b""
        """Bytes of the directory that was written last."""
        os.pwrite(fd, self._front, 0)
        os.pwrite(fd, layout.schema, SCHEMA_OFFSET)

    @classmethod
    def create(
        cls,
        path: str,
        devices: int,
        interval: int,
        *,
        continues: str | None = None,
        former: int | None = None,
        uuids: Collection[str] = (),
        spare: int = 0,
        publish: bool = True,
    ) -> RingWriter:
        """Create a ring at `path` with a row for each of `devices` devices, and `spare` additional rows.

        `uuids`: UUIDs of the devices, if available. `interval`: planned ns between frames. Without `publish`, the file
        appears at `path` only after a call of `publish()`.

        The frames of the old ring are copied if that ring was written since the last boot, with samples from the source
        `continues`. `former`: a descriptor of the old ring, if that file is no longer at `path`. The caller must hold
        the lock of the directory. Raises NoRoom if not even the smallest ring fits.
        """
        remove_left_over(path)
        old = open_predecessor(path, continues, former) if continues else None
        past = Predecessor(old) if old else None
        rows = _rows(devices, past, uuids) + spare
        fd, temporary, layout = _allocate(path, rows)
        try:
            writer = cls(fd, layout, path, interval, past.directory(rows) if past else None)
            if past is not None:
                writer._take_over(past)
            writer.heartbeat()
            os.fchmod(fd, 0o644)
            writer._unpublished = temporary
            if publish:
                writer.publish()
        except BaseException:
            os.close(fd)
            with suppress(FileNotFoundError):
                os.unlink(temporary)
            raise
        finally:
            if old is not None:
                old.close()
        return writer

    @classmethod
    def private(
        cls, devices: int, interval: int, frames: int = FRAME_LADDER[0], *,
        former: int | None = None, uuids: Collection[str] = (), spare: int = 0,
    ) -> RingWriter:  # fmt: skip
        """Create a ring in memory, for this process only. The ring is read through `fd`.

        `former`: descriptor of a private ring whose frames are copied. The other arguments are as in `create`.
        """
        past = Predecessor(RingReader(os.dup(former))) if former is not None else None
        rows = _rows(devices, past, uuids) + spare
        layout = plan_layout(rows, frames)
        fd = os.memfd_create("gpumon-ring", os.MFD_CLOEXEC)
        os.ftruncate(fd, layout.size)  # the file is sparse, so pages are allocated as frames are written
        writer = cls(fd, layout, None, interval, past.directory(rows) if past else None)
        if past is not None:
            writer._take_over(past)
            past.reader.close()
        writer.heartbeat()
        return writer

    def append(self, tick: Tick) -> int:
        """Write a tick as the next frame, and return the number of the frame.

        Raises RowsExhausted, and writes nothing, if there is no row for a device.
        """
        directory = self._directory
        directory.rows(tick.samples)
        directory.set_origin(tick.origin, tick.driver, tick.hostname)
        self._boundaries.extend(tick.boundaries)
        waiting = list(self._boundaries) if self._boundaries else []
        number = self.head + 1
        try:
            for _ in range(self._write(tick, number, waiting)):
                self._boundaries.popleft()
        except OSError:  # disk full, read-only, I/O error, or a network file system that has lost the file
            self.count_lost()
        return number

    def count_lost(self) -> None:
        """Count a frame that could not be written."""
        self.lost_writes += 1
        self.is_failing = True

    def set_storage_problems(self, ledger: str, history: str) -> None:
        """Publish with the next frame why runs are not recorded (`ledger`), and why history is not.

        A string is empty if there is no problem.
        """
        self._directory.set_storage_problems(ledger[:1024], history[:1024])

    def heartbeat(self, state: int = RUNNING) -> None:
        """Show readers that the writer is alive, without a new frame.

        If the heartbeat cannot be written, readers consider the writer silent.
        """
        if self.is_failing and state == RUNNING:
            return
        with suppress(OSError):
            os.pwrite(self.fd, HOT.pack(self.head, time.monotonic_ns(), state, self._version), HOT_OFFSET)

    def is_intact(self) -> bool:
        """Return whether header, schema and directory are unchanged.

        They differ if the file was truncated or overwritten.
        """
        fd, schema, stored = self.fd, self.layout.schema, self._stored
        begin = os.pread(fd, SCHEMA_OFFSET + len(schema), 0)
        return (
            os.fstat(fd).st_size >= self._size
            and begin.startswith(self._front)
            and begin[SCHEMA_OFFSET:] == schema
            and os.pread(fd, len(stored), self._directory_at(self._version)) == stored
        )

    def is_at_path(self) -> bool:
        """Return whether the path still refers to this file. Raises OSError if that cannot be checked."""
        assert self.path is not None
        try:
            status = os.lstat(self.path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        own = os.fstat(self.fd)
        return (status.st_dev, status.st_ino) == (own.st_dev, own.st_ino)

    def publish(self) -> None:
        """Give the file its name, so that readers can find it."""
        if self._unpublished and self.path is not None:
            os.rename(self._unpublished, self.path)
            self._unpublished = ""

    def close(self) -> None:
        """Record that the writer has stopped. The file is kept for readers, unless it was never published."""
        self.heartbeat(STOPPED)
        os.close(self.fd)
        if self._unpublished:
            with suppress(FileNotFoundError):
                os.unlink(self._unpublished)

    def _write(self, tick: Tick, number: int, boundaries: Sequence[Boundary], is_full: bool = True) -> int:
        """Write a frame, and return the number of `boundaries` that fit. Without `is_full`, write only its values."""
        encoder, directory = self._encoder, self._directory
        end, sent, counts, dropped_runs = encoder.encode(tick, boundaries)
        if directory.is_crowded:
            directory.evict(_strings_in(tick), [run.key for run in tick.runs])
        self._store_directory()
        # The full frame is written last. So if it is complete, its values and events exist, too.
        if self._values.slots:
            values = encoder.values
            self._events.write(tick, boundaries[:sent], number)
            self._store(self._values, values.buffer, values.end, tick, number, (counts[0], 0, 0, 0, 0, 0))
        if is_full:
            self._store(self._full, encoder.buffer, end, tick, number, (*counts, dropped_runs))
        self.head = number
        self.is_failing = False
        self.heartbeat()
        return sent

    def _store(self, area: Area, buffer: bytearray, end: int, tick: Tick, number: int, counts: tuple[int, ...]) -> None:
        """Add the header to `buffer`, and write its bytes up to `end` to the slot of frame `number`.

        `counts`: the counts for the header. The last of them is the number of dropped runs.
        """
        SLOT.pack_into(
            buffer, 0, 2 * number, 0, end - CRC_FROM, number, tick.monotonic_ns, tick.time_ns, self._version,
            *counts[:5], min(tick.interval_ns // 1000, _U32), min(tick.sample_duration_ns // 1000, _U32),
            tick.skipped_ticks & _U32, min(counts[5], _U32),
        )  # fmt: skip
        view = memoryview(buffer)
        buffer[8:12] = crc32(view[CRC_FROM:end]).to_bytes(4, "little")
        os.pwrite(self.fd, view[:end], area.at(number))

    def _store_directory(self) -> None:
        directory, layout = self._directory, self.layout
        if not directory.dirty:
            return
        # Overwrite the older copy, so that processes that read the current copy are not disturbed.
        version = self._version + 1
        packed = directory.pack(version, layout.dir_capacity)
        os.pwrite(self.fd, packed, self._directory_at(version))
        self._stored, self._version, directory.dirty = packed, version, False

    def _directory_at(self, version: int) -> int:
        return self.layout.dir_offset + (version & 1) * self.layout.dir_capacity

    def _take_over(self, past: Predecessor) -> None:
        """Copy all complete frames, events and sums of the previous file.

        If the layout and the rows are the same, the bytes are copied unchanged.
        """
        old = past.reader
        self._version = past.known.version
        self._store_directory()
        numbers = past.numbers[-self.layout.frames :]
        if old.layout == self.layout and self._directory.has_rows_of(past.known):
            self._copy(old, numbers)
        elif can_widen(old.layout, self.layout):
            self._widen(past, numbers)
        else:
            full_since = numbers[-1] - self.layout.n_slots if numbers else 0
            for first in range(0, len(numbers), _BATCH):
                for frame in old.frames(numbers[first : first + _BATCH]):
                    is_full = frame.is_full and frame.number > full_since
                    self._write(self._tick(frame, past), frame.number, frame.boundaries, is_full)
        self.head = numbers[-1] if numbers else 0
        copy_sums(old.fd, old.layout, self.fd, self.layout)

    def _copy(self, old: RingReader, numbers: Sequence[int]) -> None:
        self._copy_events(old)
        for number in numbers:
            for area, slot in ((self._full, old.raw(number)), (self._values, old.raw_values(number))):
                if slot is not None:
                    os.pwrite(self.fd, slot, area.at(number))

    def _copy_events(self, old: RingReader) -> None:
        for number, raw in read_raw_events(old.fd, old.layout):
            self._events.copy(number, raw)
        for events in read_events(old.fd, old.layout, old.directory()).values():
            self._events.set_states(events.runs)

    def _widen(self, past: Predecessor, numbers: Sequence[int]) -> None:
        """Copy slots to a file with different rows, without decoding them."""
        old, directory = past.reader, self._directory
        widening = Widening(old.layout, self.layout, past.row_map(directory))
        self._copy_events(old)
        for number in numbers:
            if (raw := old.raw_values(number)) is not None:
                os.pwrite(self.fd, widening.slot(raw), self._values.at(number))
        for number in numbers[-self.layout.n_slots :]:
            if (raw := old.raw(number)) is None:
                continue
            widened = widening.full_slot(raw)
            if widened is not None:
                os.pwrite(self.fd, widened, self._full.at(number))
                continue
            frame = old.decode(raw)  # the slot does not fit, because there is space for fewer processes with fewer rows
            tick = self._tick(frame, past)
            end, _, counts, dropped_runs = self._encoder.encode(tick, frame.boundaries)
            self._store(self._full, self._encoder.buffer, end, tick, number, (*counts, dropped_runs))

    def _tick(self, frame: Frame, past: Predecessor) -> Tick:
        """Convert a frame of the previous file to a tick. Devices without a row in the new file are left out."""
        row_of = self._directory.row_of
        samples = [sample for sample in frame.samples if row_of(sample.device.uuid) >= 0]
        return tick_from_frame(frame, past.known)._replace(samples=samples)


def _rows(devices: int, past: Predecessor | None, uuids: Collection[str]) -> int:
    """Return the number of rows for the current devices and for former devices that have frames in `past`.

    `devices`: number of current devices. Former devices above the limit `MAX_ROWS` are dropped from `past`.
    """
    if past is not None:
        past.drop_devices(uuids, MAX_ROWS)
        devices = max(devices, past.count_devices(uuids))
    return max(1, devices)


def _allocate(path: str, rows: int) -> tuple[int, str, Layout]:
    """Create a file for `path` and allocate all its pages.

    Returns its descriptor, its temporary path, and the largest layout that fits.
    """
    fd, name = open_fresh(path)
    try:
        return fd, name, _fill(fd, path, rows)
    except BaseException:
        os.close(fd)
        os.unlink(name)
        raise


def _fill(fd: int, path: str, rows: int) -> Layout:
    for frames in FRAME_LADDER:
        layout = plan_layout(rows, frames)
        try:
            # Allocate all pages now. Otherwise frames would be lost later if the file system becomes full.
            os.posix_fallocate(fd, 0, layout.size)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            os.ftruncate(fd, 0)
        else:
            return layout
    needed = plan_layout(rows, FRAME_LADDER[-1]).size / 2**20
    raise NoRoom(f"{os.path.dirname(path)} has no room for {needed:.0f} MiB of live data: pass another --dir")


class NoRoom(GpumonError):
    """Raised if the file system has no room even for the smallest ring."""


def _strings_in(tick: Tick) -> list[str]:
    names = []
    for process in tick.processes:
        names += [process.name, process.user, process.container, process.pod, process.job]
    return names + [run.phase for run in tick.runs] + [event.phase for event in tick.boundaries]
