"""The file that a ring replaces: what of it the new one takes over."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping

from gpumon.common.errors import RingError
from gpumon.common.procfs import boot_id
from gpumon.model.frame import Frame, Tick
from gpumon.ring.directory import Known
from gpumon.ring.directory_writer import Directory
from gpumon.ring.layout import SLOT, slot_head
from gpumon.ring.reader import RingReader


class Predecessor:
    """Remains of a predecessor: frames that are whole, and explained by its directory."""

    def __init__(self, reader: RingReader) -> None:
        self.reader = reader
        self.known = reader.directory()
        numbers: set[int] = set()
        states: dict[bytes, int] = {}
        for number, raw in reader.whole_slots():
            if slot_head(raw).directory_version <= self.known.version:
                numbers.add(number)
                found = raw[SLOT.size : reader.layout.metrics_at : reader.layout.row.size]
                states[found] = max(number, states.get(found, 0))  # nearly all have the same ones
        since = max(numbers, default=0) - reader.layout.frames
        self.numbers = sorted(number for number in numbers if number > since)
        self._rows: dict[int, int] = {}
        """Rows that have a device in one of them, and the newest of those."""
        for found, number in states.items():
            for row, state in enumerate(found):
                if state and number > since and row in self.known.devices:
                    self._rows[row] = max(number, self._rows.get(row, 0))

    def leave_out(self, uuids: Collection[str], most: int) -> None:
        """Leave out devices that are not among `uuids`, those first that are gone longest, until `most` are left."""
        gone = [row for row in self._rows if self.known.devices[row].uuid not in uuids]
        gone.sort(key=self._rows.__getitem__)
        for row in gone[: max(0, self.devices_with(uuids) - most)]:
            del self._rows[row]

    def devices_with(self, uuids: Collection[str]) -> int:
        """Count the devices in its frames and among `uuids`."""
        return len({self.known.devices[row].uuid for row in self._rows} | set(uuids))

    def places(self, directory: Directory) -> Mapping[int, int]:
        """Where `directory` has the devices of each row."""
        return {row: directory.row_of(self.known.devices[row].uuid) for row in self._rows}

    def directory(self, rows: int) -> Directory:
        """Its directory to continue, without devices that no frame has any more."""
        return Directory.resume(rows, self.known, self._rows)


def tick_of(frame: Frame, known: Known) -> Tick:
    """Return a stored frame as a tick again, for a file of another layout."""
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
    """Return the ring behind `former`, else at `path`, when its frames can be kept."""
    try:
        reader = RingReader.open(path) if former is None else RingReader(os.dup(former))
    except (OSError, RingError):
        return None
    try:
        if reader.written_by.boot_id == boot_id() and reader.directory().origin.source == source:
            return reader
    except RingError:
        pass  # nothing explains its frames: they are worth nothing
    reader.close()
    return None
