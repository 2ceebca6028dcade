"""The content of a recording: frames with their context, the columns of its tables, and the JSON of devices and runs.

A file contains a list of its columns. A metric that is not in this list was not recorded. A column that this version of
gpumon does not support is skipped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
from gpumon.recording.format import MAX_FRAMES, DamagedRecording, parse_int, parse_text

INTEGER, FLOAT, STAMP, TEXT = "i", "f", "m", "s"
"""Kinds of columns. `INTEGER` and `FLOAT` are numbers, and `TEXT` is text. `STAMP` is a time in ns of CLOCK_MONOTONIC.
It is stored relative to the time of the frame; 0 stands for a missing time."""

FULL = "frames"
"""Value of `Context.part` for complete frames, with processes, runs and boundaries."""
VALUES = "values"
"""Value of `Context.part` for frames that have only the sampled metrics of GPUs and host. Processes were not
recorded."""


def means_part(step: int) -> str:
    """Return the value of `Context.part` for frames from the history. These have only means over `step` seconds."""
    return f"means of {step} s"


@dataclass(frozen=True, slots=True)
class Context:
    """Data that many frames share: origin, driver, host name, and kind of content."""

    origin: Origin = field(default_factory=lambda: Origin(""))
    driver: Driver = field(default_factory=Driver)
    hostname: str = ""
    part: str = FULL
    """Content of these frames: `FULL`, `VALUES` or the result of `means_part`."""


class RecordedFrame(NamedTuple):
    """A frame of a recording with its context."""

    frame: Frame
    context: Context


class DecodedParts:
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


@dataclass(frozen=True, slots=True)
class RecordedColumn:
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
"""Columns of frames. `context`, `devices`, `processes` and `runs` are indexes into tables of the block. `boundaries` is
the number of boundaries."""
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
"""Columns of runs. In a block, the logged metrics of the run follow these columns, in the order of its `metrics`."""
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
"""Fields of a run that are the same in many frames. A block stores them only once."""

_CHANGING = {"state", "epoch", "step", "phase", "epoch_started", "updated", "wait", "lost_events"}
assert {*PROCESS_FACTS, *(column.name for column in PROCESS)} == set(Process._fields)
assert {*RUN_FACTS, *_CHANGING, "memory", "metrics", "facts"} == set(Run._fields)
assert {column.name for column in BOUNDARY} == set(Boundary._fields)
assert {*(column.name for column in SAMPLE[:6]), "device", "values"} == set(Sample._fields)


MAX_ROWS = 1024
"""Maximum number of GPUs, processes or runs in a frame."""
MAX_METRICS = 64
"""Maximum number of logged metrics of a run."""
_MAX_LONG_TEXT = 1024
_MAX_PARTS = 16
_U32 = (1 << 32) - 1
_I32 = (1 << 31) - 1
_STATES = frozenset(Availability)
_CAPABILITIES = Capability.__members__


def context_to_json(context: Context) -> dict[str, Any]:
    """Return a context as JSON."""
    return {
        **_origin_to_json(context.origin), "driver": context.driver._asdict(), "hostname": context.hostname,
        "part": context.part,
    }  # fmt: skip


def context_from_json(data: Any) -> Context:
    """Return the context in untrusted JSON. Raises DamagedRecording if it is invalid."""
    fields = _object(data)
    return Context(
        _origin(fields),
        _driver(fields.get("driver")),
        parse_text(fields.get("hostname")),
        parse_text(fields.get("part"), 40),
    )


_MACHINE_FACTS = ("address", "minor", "job")
"""Fields of a device that are meaningful only on its machine. They are not recorded."""


def device_to_json(device: Device) -> dict[str, Any]:
    """Return a device as JSON."""
    facts = {name: fact for name, fact in device._asdict().items() if name not in _MACHINE_FACTS}
    return {**facts, "missing": {name: int(why) for name, why in device.missing.items()}}


def device_from_json(data: Any, absent: Mapping[str, Availability]) -> Device:
    """Return the device in untrusted JSON.

    `absent`: metrics that the recording does not have, each with the reason. Raises DamagedRecording if the JSON is
    invalid.
    """
    fields = _object(data)
    missing = {parse_text(name): _availability(why) for name, why in _object(fields.get("missing")).items()}
    return Device(
        parse_text(fields.get("uuid")), parse_int(fields.get("index"), -_I32, _I32), parse_text(fields.get("name")),
        {**absent, **missing}, parse_text(fields.get("source")), parse_text(fields.get("parent")),
        parse_int(fields.get("instance"), -1, _I32),
    )  # fmt: skip


def process_facts(process: Process) -> tuple[Any, ...]:
    """Return the fields of a process that do not change. NaN becomes None, so that equal processes compare equal."""
    return tuple(_nan_to_none(getattr(process, name)) for name in PROCESS_FACTS)


def process_from_json(data: Any) -> Process:
    """Return the process in untrusted JSON. Only the fields that do not change are set. Raises DamagedRecording."""
    pid, uuid, kind, name, user, started, run = _list(data, len(PROCESS_FACTS))
    kind = parse_text(kind, 20)
    if kind not in ("compute", "graphics"):
        raise DamagedRecording("not written by gpumon")
    return Process(
        parse_int(pid, 0, _U32), parse_text(uuid), kind, parse_text(name), parse_text(user), _optional_number(started),
        run=parse_text(run),
    )  # fmt: skip


def run_facts(run: Run) -> tuple[Any, ...]:
    """Return the fields of a run that do not change, its facts, and the names of its logged metrics."""
    facts = tuple((name, getattr(run.facts, name)) for name in RunFacts._fields)
    return (*(_nan_to_none(getattr(run, name)) for name in RUN_FACTS), facts, tuple(run.metrics))


def run_from_json(data: Any) -> Run:
    """Return the run in untrusted JSON. Only the fields that do not change are set. Its logged metrics are NaN.

    Raises DamagedRecording.
    """
    *fields, facts, metrics = _list(data, len(RUN_FACTS) + 2)
    key, id, name, pid, user, rank, local_rank, world_size, framework, *epochs, gpus, started = fields
    planned, first, base = (parse_int(value, -_I32, _I32) for value in epochs)
    return Run(
        key=parse_text(key),
        id=parse_text(id),
        name=parse_text(name),
        pid=parse_int(pid, 0, _U32),
        user=parse_text(user),
        rank=parse_int(rank, -_I32, _I32),
        local_rank=parse_int(local_rank, -_I32, _I32),
        world_size=parse_int(world_size, -_I32, _I32),
        framework=parse_text(framework),
        epochs=planned,
        first_epoch=first,
        base=base,
        gpus=tuple(parse_text(uuid) for uuid in _list(gpus)),
        started=_optional_number(started),
        facts=read_facts({parse_text(fact): value for fact, value in (_list(pair, 2) for pair in _list(facts))}),
        metrics=dict.fromkeys(metric_names(metrics), NAN),
    )


def metric_names(data: Any) -> list[str]:
    """Return the names of logged metrics in untrusted JSON. Raises DamagedRecording."""
    names = [parse_text(name) for name in _list(data)]
    if len(names) > MAX_METRICS or len(set(names)) < len(names):
        raise DamagedRecording("not written by gpumon")
    return names


def entity_lists(data: Any, entities: int) -> list[list[int]]:
    """Return lists of indexes in untrusted JSON, each below `entities`. Raises DamagedRecording."""
    lists = [list(_list(entry)) for entry in _list(data)]
    if len(lists) > MAX_FRAMES or max(map(len, lists), default=0) > MAX_ROWS:
        raise DamagedRecording("not written by gpumon")
    for indexes in lists:
        for index in indexes:
            parse_int(index, 0, entities - 1)
    return lists


def table_entries(tables: Mapping[str, Any], name: str) -> Sequence[Any]:
    """Return the entries of the table `name` in untrusted JSON. Raises DamagedRecording."""
    entries = _list(tables.get(name))
    if len(entries) > MAX_FRAMES * 16:
        raise DamagedRecording("not written by gpumon")
    return entries


def _optional_number(value: Any) -> float:
    """Return an untrusted finite number, or NaN for None. Raises DamagedRecording for anything else."""
    if value is None:
        return NAN
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise DamagedRecording("not written by gpumon")
    return float(value)


def _origin_to_json(origin: Origin) -> dict[str, Any]:
    capabilities = [capability.name.lower() for capability in origin.capabilities if capability.name]
    parts = [{**_origin_to_json(part.origin), "driver": part.driver._asdict()} for part in origin.parts]
    return {**origin._asdict(), "capabilities": capabilities, "parts": parts}


def _origin(fields: Mapping[str, Any], nested: bool = False) -> Origin:
    names = [parse_text(name).upper() for name in _list(fields.get("capabilities"))]
    capabilities = reduce(or_, (_CAPABILITIES[name] for name in names if name in _CAPABILITIES), Capability(0))
    parts = [] if nested else [_object(part) for part in _list(fields.get("parts"))[:_MAX_PARTS]]
    return Origin(
        parse_text(fields.get("source")),
        parse_text(fields.get("label"), _MAX_LONG_TEXT),
        parse_text(fields.get("problem"), _MAX_LONG_TEXT),
        ended=fields.get("ended") is True,
        capabilities=capabilities,
        parts=tuple(SourceInfo(_origin(part, nested=True), _driver(part.get("driver"))) for part in parts),
        notice=parse_text(fields.get("notice"), _MAX_LONG_TEXT),
        unanswered=_optional_number(fields.get("unanswered")),
        speed=_optional_number(fields.get("speed")),
        lacks_card=fields.get("lacks_card") is True,
    )


def _driver(data: Any) -> Driver:
    fields = _object(data)
    return Driver(parse_text(fields.get("version")), parse_text(fields.get("runtime")))


def _availability(why: Any) -> Availability:
    """Return the reason why a metric is missing.

    A reason that only a later version of gpumon defines becomes FAILED.
    """
    return Availability(why) if parse_int(why) in _STATES else Availability.FAILED


def _nan_to_none(value: Any) -> Any:
    return None if isinstance(value, float) and not is_known(value) else value


def _object(data: Any) -> dict[str, Any]:
    """Return an untrusted JSON object. Raises DamagedRecording for another type."""
    if not isinstance(data, dict):
        raise DamagedRecording("not written by gpumon")
    return data


def _list(data: Any, count: int | None = None) -> Sequence[Any]:
    """Return an untrusted JSON list. It must have `count` entries unless `count` is None.

    Raises DamagedRecording for anything else.
    """
    if not isinstance(data, list) or (count is not None and len(data) != count):
        raise DamagedRecording("not written by gpumon")
    return data
