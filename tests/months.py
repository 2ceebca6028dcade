"""A month of kept history, made in seconds: cells are written as they are, no tick is taken.

`python -m tests.months FILE [GPUS]` fills a file that ends now, for looking at.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from math import nan, sin

from gpumon.storage.history.cell import HistoryCell
from gpumon.storage.history.query import HOST
from gpumon.storage.history.schema import HISTORY_FILE
from gpumon.storage.history.tier_aggregator import Block
from gpumon.storage.history.tiers import GPU_COLUMNS, HOST_COLUMNS, SHAPES, TierShape
from gpumon.storage.history.write import seal, write
from gpumon.storage.sqlite.write import open_to_write

Values = Callable[[str, str, float], tuple[float, float, float]]
"""Low, mean and high of a subject's metric in the cell that begins at a time; NaN is missing."""


def fill(path: str, subjects: Sequence[str], end: float, values: Values, shapes: Sequence[TierShape] = SHAPES) -> None:
    """Fill the file with the cells of each tier, up to the last whole one before `end` (s since 1970)."""
    with closing(open_to_write(path, HISTORY_FILE, shared=False, uid=os.getuid(), log=print)) as connection:
        for shape in shapes:
            begin = max(end - shape.keep, 0)
            for subject in (HOST, *subjects):
                _fill(connection, shape, subject, int(begin // shape.step), int(end // shape.step), values)


def _fill(
    connection: sqlite3.Connection, shape: TierShape, subject: str, first: int, last: int, values: Values
) -> None:
    columns = GPU_COLUMNS if subject else HOST_COLUMNS
    blocks: dict[int, dict[int, HistoryCell]] = {}
    for number in range(first, last):
        triples = [values(subject, name, float(number * shape.step)) for name in columns.names]
        low, mean, high = zip(*triples, strict=True)
        if all(value != value for value in mean):
            continue
        block, place = divmod(number, shape.cells)
        seconds = [float(shape.step) if value == value else 0.0 for value in mean]
        blocks.setdefault(block, {})[place] = HistoryCell(low, mean, high, mean, seconds)
    write(connection, (seal(Block(shape, block, subject, cells)) for block, cells in blocks.items()), "0" * 32)


def training(now: float) -> Values:
    """Trainings of six hours with an hour between, a night without a daemon, and a stall of a second on day 3."""
    stalled = now - 28 * 86400

    def values(subject: str, name: str, at: float) -> tuple[float, float, float]:
        age = now - at
        if 10 * 86400 < age < 10.5 * 86400:
            return nan, nan, nan
        number = int(subject[-1], 16) if subject else 0
        busy = (at / 3600 + number) % 7 < 6
        wave = 0.03 * sin(at / 5000 + number)
        found = {
            "gpu.utilization": 0.93 + wave if busy else 0.0,
            "gpu.memory_used": (70 + 100 * wave) * 2**30 if busy else 2.0**29,
            "gpu.memory_total": 80.0 * 2**30,
            "gpu.power": 640 + 1000 * wave if busy else 70.0,
            "gpu.power_limit": 700.0,
            "gpu.energy": 640 + 1000 * wave if busy else 70.0,
            "gpu.temperature": 66 + 100 * wave if busy else 35.0,
            "gpu.clock_sm": 1.98e9 if busy else 3e8,
            "gpu.memory_utilization": 0.5 + wave if busy else 0.0,
            "gpu.pcie_received": 2e9 if busy else 0.0,
            "gpu.pcie_sent": 1e9 if busy else 0.0,
            "host.cpu_utilization": 0.3 + wave,
            "host.memory_used": 2.0**38,
            "host.memory_total": 2.0**40,
            "host.disk_read": 1e8,
            "host.network_received": 1e7,
        }.get(name, nan)
        stall = name == "gpu.utilization" and at <= stalled < at + 300
        return (0.0 if stall else found), found, found

    return values


if __name__ == "__main__":
    uuids = [f"GPU-{index:04}" for index in range(int(sys.argv[2]) if len(sys.argv) > 2 else 1)]
    fill(sys.argv[1], uuids, time.time(), training(time.time()))
