"""Frames in and out of the ring, beside SQLite with one blob for each frame (`benchmarks.blobs`).

Both lie in the same directory (shared memory where there is one) and are used in turn, in changing
order, so what one reads has been driven out of the nearest caches by the other, as between two
refreshes of a view; "at once again" is the same a second time. SQLite is handed frames that are packed
already: gpumon's append contains the packing. The floor is one pread of as much of a slot as a reader reads,
and the CRC of what is in use of it.
"""

from __future__ import annotations

import os
import random
import time
import zlib
from collections.abc import Callable

from benchmarks.blobs import Blobs, used
from benchmarks.report import Budget, Result, number, times
from benchmarks.stage import GPUS, PROCESSES, Effort, Stage
from benchmarks.usage import Figures
from gpumon.common.clock import SECOND
from gpumon.live import Live
from gpumon.model.frame import Frame, Tick
from gpumon.model.metrics import GPU_METRICS
from gpumon.model.process import Process
from gpumon.ring.reader import FIRST_READ, RingReader
from gpumon.ring.takeover import plan_layout
from gpumon.ring.writer import RingWriter
from tests import builders

SERIES, METRIC = 600, "gpu.power"
NEWEST, COLUMN = "newest frame", f"{SERIES} frames of one metric × {GPUS} GPUs"
_RARELY = 10


def ticks(count: int) -> list[Tick]:
    """Ticks of 8 GPUs with every metric, 40 processes that are read anew every third tick, and a run."""
    chance = random.Random(3)
    found: list[Tick] = []
    processes: tuple[Process, ...] = ()
    for now in range(1, count + 1):
        samples = [
            builders.sample(gpu, run=builders.run().key)._replace(values=[chance.random() for _ in GPU_METRICS])
            for gpu in range(GPUS)
        ]
        if now % 3 == 1:
            processes = tuple(
                builders.process(1000 + i, i % GPUS, sm_utilization=chance.random()) for i in range(PROCESSES)
            )
        found.append(builders.tick(now, samples, processes, [builders.run(step=now)]))
    return found


def measure(stage: Stage, effort: Effort) -> Result:
    """Fill both, then use them in turn."""
    directory = stage.place("ring").live
    path = f"{directory}/ring"
    writer = RingWriter.create(path, GPUS, SECOND)
    reader = RingReader.open(path)
    blobs, live = Blobs(directory / "frames.sqlite", reader), Live(lambda: os.open(path, os.O_RDONLY))
    made = ticks(SERIES + effort.times(2000))
    for tick in made[:SERIES]:
        blobs.append(writer.append(tick), blobs.packed(writer.head))
    layout = reader.layout
    found: dict[str, tuple[Figures, Figures]] = {}

    def attach() -> object:
        other = RingReader.open(path)
        try:
            return other.newest()
        finally:
            other.close()

    def floor() -> object:
        raw = os.pread(reader.fd, FIRST_READ, layout.full.at(writer.head))
        return zlib.crc32(memoryview(raw)[16 : used(raw)])

    def take(name: str, ours: Callable[[], object], theirs: Callable[[], object] | None, turn: int) -> None:
        figures = found.setdefault(name, (Figures(), Figures()))
        both = [(figures[0], ours), *([(figures[1], theirs)] if theirs else [])]
        for kept, action in both[:: -1 if turn % 2 else 1]:
            begun = time.perf_counter_ns()
            action()
            kept.add((time.perf_counter_ns() - begun) / 1000)

    for turn, tick in enumerate(made[SERIES:]):
        begun = time.perf_counter_ns()
        writer.append(tick)
        between, raw = time.perf_counter_ns(), blobs.packed(writer.head)
        again = time.perf_counter_ns()
        blobs.append(writer.head, raw)
        appended = found.setdefault("append (ring: pack, too)", (Figures(), Figures()))
        appended[0].add((between - begun) / 1000)
        appended[1].add((time.perf_counter_ns() - again) / 1000)
        take(NEWEST, reader.newest, blobs.newest, turn)
        take(f"{NEWEST}, GPUs and processes", lambda: _parts(reader.newest()), lambda: _parts(blobs.newest()), turn)
        take(f"{NEWEST}, through Live", live.latest, None, turn)
        take(f"floor: pread of {FIRST_READ} bytes", floor, None, turn)
        if turn % _RARELY == 0:
            series, select = (lambda: reader.series(METRIC, SERIES)), (lambda: blobs.series(METRIC, SERIES))
            take(COLUMN, series, select, turn // _RARELY)
            take("the same, at once again", series, None, turn)
            take("attach, newest frame, detach", attach, blobs.attach, turn // _RARELY)
    for opened in (reader, writer, blobs, live):
        opened.close()
    result = _result(found)
    result.budgets.append(Budget(f"file of {GPUS} GPUs", layout.size / 2**20, 12, " MiB"))
    result.budgets.append(Budget("file of one GPU", plan_layout(1, layout.frames).size / 2**20, 6, " MiB"))
    return result


def _result(found: dict[str, tuple[Figures, Figures]]) -> Result:
    result = Result("The ring", ("what", "ring, µs", "p99", "SQLite, µs", "p99", "ring is 1"))
    for name, (ours, theirs) in found.items():
        beside = ["–"] * 3
        if theirs.values:
            ratio = times(theirs.median, ours.median)
            beside = [number(theirs.median), number(theirs.quantile(0.99)), ratio]
        result.rows.append((name, number(ours.median), number(ours.quantile(0.99)), *beside))
    result.budgets.append(Budget(NEWEST, found[NEWEST][0].median, 20, " µs"))
    result.budgets.append(Budget(COLUMN, found[COLUMN][0].median / 1000, 1, " ms"))
    return result


def _parts(frame: Frame | None) -> object:
    return (frame.samples, frame.processes) if frame else None
