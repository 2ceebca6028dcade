"""Helpers for replacing a ring file. They copy the frames of the previous file and plan the layout of the new file."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Collection, Mapping
from typing import Literal, NamedTuple
from zlib import crc32

from gpumon.common.errors import RingError
from gpumon.common.procfs import boot_id
from gpumon.model.frame import Frame, Tick
from gpumon.model.metrics import GPU_METRICS, HOST_METRICS, METRICS, Kind, Unit
from gpumon.ring.codec import value_form
from gpumon.ring.directory import Directory, StoredDirectory
from gpumon.ring.layout import (
    BOUNDARY,
    BOUNDARY_ROOM,
    CRC_FROM,
    PROCESS,
    ROW,
    RUN,
    SCHEMA_OFFSET,
    SLOT,
    Layout,
    SlotHead,
    round_up,
    slot_head,
)
from gpumon.ring.reader import RingReader


class Predecessor:
    """Those frames of the previous ring file that are complete and match its directory."""

    def __init__(self, reader: RingReader) -> None:
        self.reader = reader
        self.known = reader.directory()
        numbers: set[int] = set()
        states: dict[bytes, int] = {}
        for number, raw in reader.whole_slots():
            if slot_head(raw).directory_version <= self.known.version:
                numbers.add(number)
                row_states = raw[SLOT.size : reader.layout.metrics_at : ROW.size]
                states[row_states] = max(number, states.get(row_states, 0))  # nearly all frames have the same states
        since = max(numbers, default=0) - reader.layout.frames
        self.numbers = sorted(number for number in numbers if number > since)
        self._rows: dict[int, int] = {}
        """For each row, the number of the newest frame that has a sample of the row's device."""
        for row_states, number in states.items():
            for row, state in enumerate(row_states):
                if state and number > since and row in self.known.devices:
                    self._rows[row] = max(number, self._rows.get(row, 0))

    def drop_devices(self, uuids: Collection[str], limit: int) -> None:
        """Drop former devices until at most `limit` devices are left.

        Former devices are those that are not in `uuids`. The device whose last sample is oldest is dropped first.
        """
        gone = [row for row in self._rows if self.known.devices[row].uuid not in uuids]
        gone.sort(key=self._rows.__getitem__)
        for row in gone[: max(0, self.count_devices(uuids) - limit)]:
            del self._rows[row]

    def count_devices(self, uuids: Collection[str]) -> int:
        """Return the number of different devices in the frames and in `uuids`."""
        return len({self.known.devices[row].uuid for row in self._rows} | set(uuids))

    def row_map(self, directory: Directory) -> Mapping[int, int]:
        """Return, for each row of the previous file, the row of the same device in `directory`."""
        return {row: directory.row_of(self.known.devices[row].uuid) for row in self._rows}

    def directory(self, rows: int) -> Directory:
        """Return a directory for the new file that continues the previous directory.

        `rows`: number of rows of the new file. Devices that are no longer in any frame are left out.
        """
        return Directory.resume(rows, self.known, self._rows)


def tick_from_frame(frame: Frame, known: StoredDirectory) -> Tick:
    """Convert a stored frame back to a tick, to write it to a file with different metrics or areas."""
    return Tick(
        monotonic_ns=frame.monotonic_ns,
        time_ns=round(frame.time * 1e9),
        samples=frame.samples,
        host=frame.host,
        processes=frame.processes,
        runs=frame.runs,
        boundaries=frame.boundaries,
        origin=known.origin,
        driver=known.driver,
        hostname=known.hostname,
        interval_ns=round(frame.interval * 1e9),
        sample_duration_ns=round(frame.sample_duration * 1e9),
        skipped_ticks=frame.skipped_ticks,
        unread=frame.dropped_runs,
    )


def open_predecessor(path: str, source: str, former: int | None) -> RingReader | None:
    """Return the previous ring; None if its frames cannot be used.

    The ring is read from the descriptor `former` or, if that is None, from the file at `path`. Its frames can be used
    if it was written since the last boot, with samples from `source`.
    """
    try:
        reader = RingReader.open(path) if former is None else RingReader(os.dup(former))
    except (OSError, RingError):
        return None
    try:
        if reader.written_by.boot_id == boot_id() and reader.directory().origin.source == source:
            return reader
    except RingError:
        pass  # without the directory, the frames cannot be decoded
    reader.close()
    return None


DIR_CAPACITY = 256 * 1024
# Numbers of processes and runs for which a full slot has space. Boundaries use the space that processes and runs leave
# free. If no space is left, boundaries wait for the next frame.
PROCESS_ROOM = 256
RUN_ROOM = 48
FULL_FRAMES = 120
"""Number of frames that are stored with processes and runs. At one frame per second, they cover two minutes."""
EVENTS = 2048
"""Number of events that a ring can store."""

SUMS_ROOM = 64 * 1024
"""Bytes of one copy of the sums. They are sufficient for `MAX_ROWS` devices and some hundred users."""


MAX_ROWS = 128
"""Maximum number of rows if some are for former devices. This is sufficient for 8 GPUs with 7 MIG instances each, and
as many former devices."""
SPARE_ROWS = 7
"""Number of spare rows in a new file that replaces a file without a free row for a new device. More devices may follow,
because a GPU has up to 7 MIG instances."""


def plan_layout(rows: int, frames: int) -> Layout:
    """Return the layout of a file with this number of rows and frames.

    If there are only a few frames, all of them are complete.
    """
    gpu = tuple(metric.name for metric in GPU_METRICS)
    host = tuple(metric.name for metric in HOST_METRICS)
    wide = tuple(metric.name for metric in METRICS if metric.kind is Kind.COUNTER or metric.unit is Unit.BITS)
    n_values, n_events = (frames, EVENTS) if frames > FULL_FRAMES else (0, 0)
    parts = {"rows": rows, "gpu": gpu, "host": host, "wide": wide, "values": n_values, "events": n_events}
    parts["sums"] = SUMS_ROOM
    schema = json.dumps(parts, separators=(",", ":")).encode()
    processes = max(PROCESS_ROOM, 8 * rows)
    slot = SLOT.size + ROW.size * rows + 8 * (len(gpu) * rows + len(host))
    slot += PROCESS.size * processes + RUN.size * RUN_ROOM + BOUNDARY.size * BOUNDARY_ROOM
    dir_offset = round_up(SCHEMA_OFFSET + len(schema), 64)
    header = round_up(dir_offset + 2 * DIR_CAPACITY, 4096)
    return Layout(
        rows=rows,
        gpu=gpu,
        host=host,
        n_slots=min(frames, FULL_FRAMES),
        slot_size=round_up(slot, 64),
        header_size=header,
        dir_offset=dir_offset,
        dir_capacity=DIR_CAPACITY,
        schema=schema,
        wide=wide,
        n_values=n_values,
        n_events=n_events,
        sums=SUMS_ROOM,
    )


_ROW_OF_PROCESS = struct.Struct("<H")
_ROW_AT = 4
"""Offset of the device's row in the record of a process."""
_NO_ROW = 0xFFFF


class _ValueGrid(NamedTuple):
    """A block with the values of all rows, metric by metric, and its offsets in the old and in the new slot."""

    code: Literal["f", "d"]
    metrics: int
    old_at: int
    new_at: int


class _KeptBytes(NamedTuple):
    """A range of bytes that is copied unchanged, and the offset of these bytes in the new slot."""

    begin: int
    end: int
    new_at: int


class Widening:
    """Converts slots to a layout that differs only in its rows. `rows`: for each old row, the new row."""

    def __init__(self, old: Layout, new: Layout, rows: Mapping[int, int]) -> None:
        self._old, self._new = old, new
        self._rows = sorted(rows.items())
        self._is_same = all(row == to for row, to in self._rows)
        form, wider = value_form(old), value_form(new)
        grids, spans, at, to = list[_ValueGrid](), list[_KeptBytes](), old.metrics_at, new.metrics_at
        narrow: tuple[int, int, Literal["f"]] = form.narrow, form.narrow_host, "f"
        wide: tuple[int, int, Literal["d"]] = len(form.gpu) - form.narrow, len(form.host) - form.narrow_host, "d"
        for metrics, host, code in (narrow, wide):
            width = struct.calcsize(code)
            grids.append(_ValueGrid(code, metrics, at, to))
            at, to = at + width * metrics * old.rows, to + width * metrics * new.rows
            spans.append(_KeptBytes(at, at + width * host, to))
            at, to = at + width * host, to + width * host
        self._of_values = grids, spans
        self._of_full = (
            [_ValueGrid("d", len(old.gpu), old.metrics_at, new.metrics_at)],
            [_KeptBytes(old.host_at, old.variable_at, new.host_at)],
        )
        nans = len(form.gpu) * new.rows + len(form.host)
        rowless = bytes(new.metrics_at)
        self._no_values = rowless + wider.all.pack(*[float("nan")] * nans)
        self._nothing = rowless + struct.pack(f"<{nans}d", *[float("nan")] * nans)

    def slot(self, raw: bytes) -> bytes:
        """Convert a slot that contains only values."""
        whole = bytearray(self._no_values)
        self._move(raw, whole, *self._of_values)
        return self._headed(whole, slot_head(raw))

    def full_slot(self, raw: bytes) -> bytes | None:
        """Convert a slot with a complete frame. Return None if the frame does not fit into the new slot."""
        head, old = slot_head(raw), self._old
        rest = bytearray(raw[old.variable_at : head.length + CRC_FROM])
        if self._new.variable_at + len(rest) > self._new.slot_size:
            return None
        whole = bytearray(self._nothing)
        self._move(raw, whole, *self._of_full)
        if not self._is_same:
            rows, size = dict(self._rows), PROCESS.size
            for at in range(_ROW_AT, min(head.processes * size, len(rest)), size):
                (row,) = _ROW_OF_PROCESS.unpack_from(rest, at)
                _ROW_OF_PROCESS.pack_into(rest, at, rows.get(row, _NO_ROW))
        return self._headed(whole + rest, head)

    def _move(self, raw: bytes, whole: bytearray, grids: list[_ValueGrid], spans: list[_KeptBytes]) -> None:
        old, new, record = self._old.rows, self._new.rows, ROW.size
        before, after = memoryview(raw), memoryview(whole)
        for row, to in self._rows:
            at = SLOT.size + row * record
            whole[SLOT.size + to * record : SLOT.size + (to + 1) * record] = raw[at : at + record]
        for code, metrics, old_at, new_at in grids:
            width = struct.calcsize(code)
            source = before[old_at : old_at + width * metrics * old].cast(code)
            target = after[new_at : new_at + width * metrics * new].cast(code)
            for row, to in self._rows:
                target[to::new] = source[row::old]
        for begin, end, new_at in spans:
            whole[new_at : new_at + end - begin] = raw[begin:end]

    def _headed(self, whole: bytearray, head: SlotHead) -> bytes:
        SLOT.pack_into(whole, 0, *head._replace(length=len(whole) - CRC_FROM, rows=self._new.rows))
        whole[8:12] = crc32(memoryview(whole)[CRC_FROM:]).to_bytes(4, "little")
        return bytes(whole)


def can_widen(old: Layout, new: Layout) -> bool:
    """Return whether `Widening` can convert slots between these layouts, because they differ only in their rows."""
    has_same_metrics = (old.gpu, old.host, old.wide) == (new.gpu, new.host, new.wide)
    return has_same_metrics and old.n_values > 0 and new.n_values > 0
