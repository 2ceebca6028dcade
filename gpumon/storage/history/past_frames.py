"""Builds frames from the history file, for recordings that start before the oldest frame in the ring.

Each frame is built from a cell of the finest tier that covers its time. Gauges have their mean over the cell, counters
have their value at its end. Processes are not stored in cells, and the frame gives this as the reason why they are
missing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import NamedTuple

from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN, UNKNOWN_MODEL, is_known
from gpumon.model.device import Device, by_number
from gpumon.model.frame import Frame, Sample
from gpumon.model.metrics import BY_NAME, GPU_METRICS, HOST_METRICS, PROCESSES, Availability, Kind
from gpumon.recording.content import DecodedParts
from gpumon.storage.history.block import stored_blocks
from gpumon.storage.history.cell import HistoryCell
from gpumon.storage.history.devices import device_table
from gpumon.storage.history.query import HOST
from gpumon.storage.history.read import OpenFile, open_file
from gpumon.storage.history.tiers import SHAPES, TierShape
from gpumon.storage.sqlite.write import OtherVersion


class StoredFrame(NamedTuple):
    """A frame built from a cell of a tier."""

    step: int
    """Length of the cell in seconds."""
    frame: Frame


@dataclass(frozen=True, slots=True)
class _Cell:
    names: Sequence[str]
    cell: HistoryCell


def stored_frames(path: str, begin: float, before: Frame, devices: Mapping[str, Device]) -> list[StoredFrame]:
    """Return frames built from the history, from `begin` (s since 1970) up to the frame `before`, oldest first.

    The list is empty if there is no history file. `devices`: known devices by UUID. Damaged blocks are left out.
    """
    try:
        file = open_file(path)
    except (sqlite3.Error, OSError, OtherVersion):
        return []
    frames: list[StoredFrame] = []
    with closing(file.connection) as db:
        if not file.has_tables:
            return []
        known = _IndexedDevices(devices, _read_devices(file))
        end = before.time
        for shape in SHAPES:
            rows = sorted(_cells(db, shape, begin, end).items())
            if rows:
                frames[:0] = [
                    StoredFrame(shape.step, _frame(shape, number, cells, before, known)) for number, cells in rows
                ]
                end = rows[0][0] * shape.step
    return frames


def _cells(db: sqlite3.Connection, shape: TierShape, begin: float, end: float) -> dict[int, dict[str, _Cell]]:
    """Return the cells between two times by number (since 1970) and by subject."""
    first, last = -int(-begin // shape.step), int(end // shape.step)
    cells_by_number: dict[int, dict[str, _Cell]] = {}
    with suppress(sqlite3.Error, ValueError):  # keep what was read before
        for block in stored_blocks(db, shape, first // shape.cells, last // shape.cells):
            for number, cell in block.cells(block.names).items():
                if first <= number < last:
                    cells_by_number.setdefault(number, {})[block.subject] = _Cell(block.names, cell)
    return cells_by_number


class _IndexedDevices:
    """Devices by UUID. Each has a unique index, because views identify devices by their index."""

    def __init__(self, present: Mapping[str, Device], stored: Mapping[str, Device]) -> None:
        self._devices = dict(present)
        self._stored = stored

    def get(self, uuid: str) -> Device:
        """Return the device with this UUID. An absent device has its last index if no other device has this index."""
        device = self._devices.get(uuid)
        if device is None:
            device = self._stored.get(uuid) or Device(uuid, -1, UNKNOWN_MODEL)
            indexes = {other.index for other in self._devices.values()}
            if device.index < 0 or device.index in indexes:
                device = device._replace(index=max(indexes, default=-1) + 1)
            self._devices[uuid] = device
        return device


def _read_devices(file: OpenFile) -> Mapping[str, Device]:
    try:
        return device_table(file)
    except (sqlite3.Error, ValueError, TypeError):
        return {}  # a damaged file may still have cells


def _frame(shape: TierShape, number: int, cells: Mapping[str, _Cell], before: Frame, known: _IndexedDevices) -> Frame:
    """Return the frame for the cells with this number. `before` is used to convert the time to CLOCK_MONOTONIC."""
    time_ns = (number + 1) * shape.step * SECOND
    samples = [_sample(known.get(uuid), cell) for uuid, cell in sorted(cells.items()) if uuid != HOST]
    samples.sort(key=lambda sample: by_number(sample.device))
    host = _values(cells[HOST]) if HOST in cells else {}
    return Frame(
        number=0,
        monotonic_ns=before.monotonic_ns - (round(before.time * SECOND) - time_ns),
        time_ns=time_ns,
        interval=float(shape.step),
        sample_duration=0.0,
        skipped_ticks=0,
        dropped=0,
        parts=DecodedParts(tuple(samples), tuple(host.get(metric.name, NAN) for metric in HOST_METRICS), (), (), ()),
        is_full=False,
    )


def _sample(device: Device, cell: _Cell) -> Sample:
    values = _values(cell)
    row = tuple(values.get(metric.name, NAN) for metric in GPU_METRICS)
    unknown = [metric.name for metric, value in zip(GPU_METRICS, row, strict=True) if not is_known(value)]
    missing = dict.fromkeys((*unknown, PROCESSES), Availability.NOT_RECORDED)
    known = {name: why for name, why in device.missing.items() if name in missing}
    return Sample(device._replace(missing={**missing, **known}), Availability.OK, row)


def _values(stored: _Cell) -> dict[str, float]:
    """Return the values of a cell by metric. Gauges have their mean, counters the value at the end of the cell."""
    cell = stored.cell
    return {
        name: (cell.last if name in BY_NAME and BY_NAME[name].kind is Kind.COUNTER else cell.mean)[index]
        for index, name in enumerate(stored.names)
    }
