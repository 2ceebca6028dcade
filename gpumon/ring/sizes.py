"""The sizes of a ring that this version writes: how many frames it keeps, and what has room in one.

Readers take them from the file.
"""

import json

from gpumon.model.metrics import GPU_METRICS, HOST_METRICS, METRICS, Kind, Unit
from gpumon.ring.layout import (
    BOUNDARY,
    BOUNDARY_ROOM,
    MAJOR,
    PROCESS,
    ROWS,
    RUN,
    SCHEMA_OFFSET,
    SLOT,
    Layout,
    round_up,
)

DIR_CAPACITY = 256 * 1024
# Room in a full slot behind the fixed part. Boundaries take what processes and runs leave, and wait for
# the next frame when there is none.
PROCESS_ROOM = 256
RUN_ROOM = 48
FULL_FRAMES = 120
"""Frames kept with processes and runs: two minutes at one a second."""
EVENTS = 2048
"""Events kept, whatever the time between them."""

SUMS_ROOM = 64 * 1024
"""Bytes of a copy of the sums: those of `MOST_ROWS` devices, and of some hundred users on them."""


MOST_ROWS = 128
"""Rows beyond which devices that are gone keep none: 8 GPUs of 7 MIG instances each, and as many that were before."""
SPARE_ROWS = 7
"""Rows for devices that come one after another, once one has come that found none: a GPU has 7 MIG instances."""


def rows_for(devices: int) -> int:
    """Rows for so many devices; one that is plugged in later gets a new file."""
    return max(1, devices)


def plan(rows: int, frames: int) -> Layout:
    """The layout this version writes, for so many frames; without areas of its own for the values of a few."""
    gpu = tuple(metric.name for metric in GPU_METRICS)
    host = tuple(metric.name for metric in HOST_METRICS)
    wide = tuple(metric.name for metric in METRICS if metric.kind is Kind.COUNTER or metric.unit is Unit.BITS)
    n_values, n_events = (frames, EVENTS) if frames > FULL_FRAMES else (0, 0)
    parts = {"rows": rows, "gpu": gpu, "host": host, "wide": wide, "values": n_values, "events": n_events}
    parts["sums"] = SUMS_ROOM
    schema = json.dumps(parts, separators=(",", ":")).encode()
    processes = max(PROCESS_ROOM, 8 * rows)
    slot = SLOT.size + ROWS[MAJOR].size * rows + 8 * (len(gpu) * rows + len(host))
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
