"""Content of a recording: frames with their context, the tables of their columns, and the JSON of entities.

A file lists its columns. A metric that it does not have was not recorded; an unknown column is skipped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from math import isfinite
from operator import or_
from typing import Any, NamedTuple

from gpumon.common.numbers import NAN, is_known
from gpumon.model.device import Device
from gpumon.model.frame import Boundary, Frame, FrameworkMemory, Run, Sample
from gpumon.model.metrics import GPU_METRICS, HOST_METRICS, Availability
from gpumon.model.origin import Capability, Driver, Origin, SourceInfo
from gpumon.model.process import Process
from gpumon.model.run import RunFacts, read_facts
from gpumon.recording.format import MOST_FRAMES, Damaged, text, whole

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
    """Facts that many frames share."""

    origin: Origin = Origin("")
    driver: Driver = Driver()
    hostname: str = ""
    part: str = FULL
    """Content of this stretch of the recording."""


class Recorded(NamedTuple):
    """A frame of a recording with its context."""

    frame: Frame
    context: Context


class KnownParts:
    """The parts of a frame, already decoded."""

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


MOST_ROWS = 1024
"""GPUs, processes or runs of one frame."""
MOST_METRICS = 64
"""Logged metrics of a run."""
_LONG = 1024
_PARTS = 16
_U32 = (1 << 32) - 1
_I32 = (1 << 31) - 1
_STATES = frozenset(Availability)
_CAPABILITIES = Capability.__members__


def context_to_json(context: Context) -> dict[str, Any]:
    """The stored form."""
    return {
        **_origin_to_json(context.origin), "driver": context.driver._asdict(), "hostname": context.hostname,
        "part": context.part,
    }  # fmt: skip


def context_of(told: Any) -> Context:
    """Raises Damaged."""
    told = _object(told)
    return Context(
        _origin(told),
        _driver(told.get("driver")),
        text(told.get("hostname")),
        text(told.get("part"), 40),
    )


_OF_THE_MACHINE = ("address", "minor", "job")
"""Facts of a device that mean something on its own machine alone."""


def device_to_json(device: Device) -> dict[str, Any]:
    """The stored form."""
    told = {name: fact for name, fact in device._asdict().items() if name not in _OF_THE_MACHINE}
    return {**told, "missing": {name: int(why) for name, why in device.missing.items()}}


def device_of(told: Any, absent: Mapping[str, Availability]) -> Device:
    """The device, which lacks `absent` as well. Raises Damaged."""
    told = _object(told)
    missing = {text(name): _availability(why) for name, why in _object(told.get("missing")).items()}
    return Device(
        text(told.get("uuid")), whole(told.get("index"), -_I32, _I32), text(told.get("name")), {**absent, **missing},
        text(told.get("source")), text(told.get("parent")), whole(told.get("instance"), -1, _I32),
    )  # fmt: skip


def process_facts(process: Process) -> tuple[Any, ...]:
    """The fields that stay; NaN as None, so that they compare."""
    return tuple(_plain(getattr(process, name)) for name in PROCESS_FACTS)


def process_of(told: Any) -> Process:
    """The process, without what changes. Raises Damaged."""
    pid, uuid, kind, name, user, started, run = _fields(told, len(PROCESS_FACTS))
    kind = text(kind, 20)
    if kind not in ("compute", "graphics"):
        raise Damaged("not written by gpumon")
    return Process(whole(pid, 0, _U32), text(uuid), kind, text(name), text(user), moment(started), run=text(run))


def run_facts(run: Run) -> tuple[Any, ...]:
    """The fields that stay, the facts, and the names of what was logged."""
    facts = tuple((name, getattr(run.facts, name)) for name in RunFacts._fields)
    return (*(_plain(getattr(run, name)) for name in RUN_FACTS), facts, tuple(run.metrics))


def run_of(told: Any) -> Run:
    """The run, without what changes: its logged metrics are NaN. Raises Damaged."""
    *fields, facts, metrics = _fields(told, len(RUN_FACTS) + 2)
    key, id, name, pid, user, rank, local_rank, world_size, framework, *epochs, gpus, started = fields
    planned, first, base = (whole(value, -_I32, _I32) for value in epochs)
    return Run(
        key=text(key),
        id=text(id),
        name=text(name),
        pid=whole(pid, 0, _U32),
        user=text(user),
        rank=whole(rank, -_I32, _I32),
        local_rank=whole(local_rank, -_I32, _I32),
        world_size=whole(world_size, -_I32, _I32),
        framework=text(framework),
        epochs=planned,
        first_epoch=first,
        base=base,
        gpus=tuple(text(uuid) for uuid in _fields(gpus)),
        started=moment(started),
        facts=read_facts({text(fact): value for fact, value in (_fields(one, 2) for one in _fields(facts))}),
        metrics=dict.fromkeys(names_of(metrics), NAN),
    )


def names_of(told: Any) -> list[str]:
    """Names of logged metrics. Raises Damaged."""
    names = [text(name) for name in _fields(told)]
    if len(names) > MOST_METRICS or len(set(names)) < len(names):
        raise Damaged("not written by gpumon")
    return names


def lists_of(told: Any, entries: int) -> list[list[int]]:
    """Lists of entries in a table that has so many. Raises Damaged."""
    found = [list(_fields(one)) for one in _fields(told)]
    if len(found) > MOST_FRAMES or max(map(len, found), default=0) > MOST_ROWS:
        raise Damaged("not written by gpumon")
    for one in found:
        for entry in one:
            whole(entry, 0, entries - 1)
    return found


def entries_of(tables: Mapping[str, Any], name: str) -> Sequence[Any]:
    """The entries of a table. Raises Damaged."""
    found = _fields(tables.get(name))
    if len(found) > MOST_FRAMES * 16:
        raise Damaged("not written by gpumon")
    return found


def moment(value: Any) -> float:
    """Seconds; None is NaN. Raises Damaged."""
    if value is None:
        return NAN
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise Damaged("not written by gpumon")
    return float(value)


def _origin_to_json(origin: Origin) -> dict[str, Any]:
    capabilities = [one.name.lower() for one in origin.capabilities if one.name]
    parts = [{**_origin_to_json(part.origin), "driver": part.driver._asdict()} for part in origin.parts]
    return {**origin._asdict(), "capabilities": capabilities, "parts": parts}


def _origin(told: Mapping[str, Any], nested: bool = False) -> Origin:
    named = [text(name).upper() for name in _fields(told.get("capabilities"))]
    capabilities = reduce(or_, (_CAPABILITIES[name] for name in named if name in _CAPABILITIES), Capability(0))
    parts = [] if nested else [_object(part) for part in _fields(told.get("parts"))[:_PARTS]]
    return Origin(
        text(told.get("source")),
        text(told.get("label"), _LONG),
        text(told.get("problem"), _LONG),
        ended=told.get("ended") is True,
        capabilities=capabilities,
        parts=tuple(SourceInfo(_origin(part, nested=True), _driver(part.get("driver"))) for part in parts),
        notice=text(told.get("notice"), _LONG),
        unanswered=moment(told.get("unanswered")),
        speed=moment(told.get("speed")),
    )


def _driver(told: Any) -> Driver:
    told = _object(told)
    return Driver(text(told.get("version")), text(told.get("runtime")))


def _availability(why: Any) -> Availability:
    """The reason; an unknown one is that the driver gave none."""
    return Availability(why) if whole(why) in _STATES else Availability.FAILED


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not is_known(value) else value


def _object(told: Any) -> dict[str, Any]:
    if not isinstance(told, dict):
        raise Damaged("not written by gpumon")
    return told


def _fields(told: Any, count: int | None = None) -> Sequence[Any]:
    if not isinstance(told, list) or (count is not None and len(told) != count):
        raise Damaged("not written by gpumon")
    return told
