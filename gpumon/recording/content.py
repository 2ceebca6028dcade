"""The contents of a recording: frames, each with where it came from, and the tables of their columns.

A file names its columns, so that a reader of another version takes those that it knows. A new column is a name here.
"""

from __future__ import annotations

from typing import NamedTuple

from gpumon.model.frame import Boundary, Frame, FrameworkMemory, Run, Sample
from gpumon.model.metrics import GPU_METRICS, HOST_METRICS
from gpumon.model.origin import Driver, Origin
from gpumon.model.process import Process

WHOLE, FLOAT, STAMP, TEXT = "i", "f", "m", "s"
"""Kinds of columns: whole numbers; floats; ns of CLOCK_MONOTONIC, stored from the frame's own on, 0 for unknown;
texts."""

FULL = "frames"
"""Content of a stretch: frames as they were sampled, with processes, runs and boundaries."""
VALUES = "values"
"""Metrics of GPUs and of the host alone, as they were sampled: who was there is not recorded."""


def means_of(step: int) -> str:
    """Name of a stretch of cells of kept history, of so many seconds each: the same, as means."""
    return f"means of {step} s"


class Context(NamedTuple):
    """Facts of many frames at once."""

    origin: Origin = Origin("")
    driver: Driver = Driver()
    hostname: str = ""
    part: str = FULL
    """Content of this stretch of the recording."""


class Recorded(NamedTuple):
    """A frame of a recording."""

    frame: Frame
    context: Context


class KnownParts:
    """The parts of a frame, all there already."""

    __slots__ = ("_boundaries", "_host", "_processes", "_runs", "_samples")

    def __init__(
        self, samples: tuple[Sample, ...], host: tuple[float, ...], processes: tuple[Process, ...],
        runs: tuple[Run, ...], boundaries: tuple[Boundary, ...],
    ) -> None:  # fmt: skip
        self._samples, self._host, self._processes, self._runs = samples, host, processes, runs
        self._boundaries = boundaries

    def samples(self) -> tuple[Sample, ...]:
        return self._samples

    def host(self) -> tuple[float, ...]:
        return self._host

    def processes(self) -> tuple[Process, ...]:
        return self._processes

    def runs(self) -> tuple[Run, ...]:
        return self._runs

    def boundaries(self) -> tuple[Boundary, ...]:
        return self._boundaries


class RecordedColumn(NamedTuple):
    """A column of a table."""

    kind: str
    name: str


Table = tuple[RecordedColumn, ...]


def _table(**columns: str) -> Table:
    return tuple(RecordedColumn(kind, name) for kind, names in columns.items() for name in names.split())


FRAME = _table(
    i="number monotonic_ns time_ns skipped_ticks dropped dropped_runs context devices processes runs boundaries",
    f="interval sample_duration",
)
"""Of each frame; from `context` on which entry of a table in its block, and how many boundaries."""
HOST = tuple(RecordedColumn(FLOAT, metric.name) for metric in HOST_METRICS)
SAMPLE = (
    *_table(i="state", s="run", f="age unanswered", m="monotonic_ns counters_monotonic_ns"),
    *(RecordedColumn(FLOAT, metric.name) for metric in GPU_METRICS),
)
PROCESS = _table(
    f="memory_used sm_utilization memory_utilization cpu_utilization host_memory encoder_utilization "
    "decoder_utilization",
    s="container pod job",
)
RUN = (
    *_table(i="state epoch step lost_events", s="phase", f="epoch_started updated wait"),
    *(RecordedColumn(FLOAT, f"memory.{name}") for name in FrameworkMemory._fields),
)
"""Behind them in a block, the metrics that the run has logged, in the order of its `metrics`."""
BOUNDARY = _table(
    i="number mark epoch step monotonic_ns time_ns metrics of_step", s="run phase", f="wait asked free peak",
)  # fmt: skip

TABLES: dict[str, Table] = {
    "frame": FRAME, "host": HOST, "sample": SAMPLE, "process": PROCESS, "run": RUN, "boundary": BOUNDARY,
}  # fmt: skip

PROCESS_FACTS = ("pid", "uuid", "kind", "name", "user", "started", "run")
RUN_FACTS = (
    "key", "id", "name", "pid", "user", "rank", "local_rank", "world_size", "framework", "epochs", "first_epoch",
    "base", "gpus", "started",
)  # fmt: skip
"""Fields that are the same in many frames: stored once in a block."""

_HELD = {"state", "epoch", "step", "phase", "epoch_started", "updated", "wait", "lost_events"}
assert {*PROCESS_FACTS, *(column.name for column in PROCESS)} == set(Process._fields)
assert {*RUN_FACTS, *_HELD, "memory", "metrics", "facts"} == set(Run._fields)
assert {column.name for column in BOUNDARY} == set(Boundary._fields)
assert {*(column.name for column in SAMPLE[:6]), "device", "values"} == set(Sample._fields)
