"""Encodes frames into the body of a block, and decodes them. The decoder checks all data, and limits the memory that it
uses."""

from __future__ import annotations

import json
import struct
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import islice, repeat
from operator import attrgetter
from typing import Any

from gpumon.common.clock import SECOND
from gpumon.common.columnar import DamagedBlock, FloatPacker, PartReader, pack_integers
from gpumon.common.numbers import NAN
from gpumon.model.device import Device
from gpumon.model.frame import Boundary, Frame, FrameworkMemory, Mark, Run, RunState, Sample
from gpumon.model.metrics import PROCESSES, Availability
from gpumon.model.process import Process
from gpumon.recording.content import (
    BOUNDARY,
    FLOAT,
    FRAME,
    FULL,
    HOST,
    INTEGER,
    PROCESS,
    RUN,
    SAMPLE,
    STAMP,
    TABLES,
    TEXT,
    Context,
    DecodedParts,
    RecordedColumn,
    RecordedFrame,
    Table,
    context_from_json,
    context_to_json,
    device_from_json,
    device_to_json,
    entity_lists,
    metric_names,
    process_facts,
    process_from_json,
    run_facts,
    run_from_json,
    table_entries,
)
from gpumon.recording.format import MAX_JSON, DamagedRecording, parse_int, parse_json, parse_text

JSON_LENGTH = struct.Struct("<I")
_PROCESS_VALUES = attrgetter(*(column.name for column in PROCESS))
_RUN_VALUES = attrgetter(*(column.name for column in RUN))


class BlockEncoder:
    """Encodes the bodies of blocks. Each block can be decoded without other blocks."""

    def __init__(self) -> None:
        self._floats = FloatPacker()

    def encode(self, recorded: Sequence[RecordedFrame]) -> bytes:
        """Return the body of a block with these frames. At least one frame is required."""
        return _BlockTables(self._floats).encode(recorded)


class _Indexes:
    """Indexes of repeated values, in the order in which they first appear."""

    def __init__(self, values: Iterable[Hashable] = ()) -> None:
        self.by_value: dict[Hashable, int] = {value: index for index, value in enumerate(values)}

    def add(self, value: Hashable) -> int:
        """Return the index of a value. A new value gets the next index."""
        return self.by_value.setdefault(value, len(self.by_value))


class _EntityTable:
    """A table for the entities of a block, which are devices, processes or runs.

    It contains the entities of each frame, and the columns of each entity.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self.entities = _Indexes()
        self.lists = _Indexes()
        self._rows: list[list[tuple[Any, ...]]] = []

    def add(self, facts: Sequence[Hashable], rows: Iterable[tuple[Any, ...]]) -> int:
        """Add the entities of a frame. Return the index of the list with these entities.

        `facts`: constant fields of each entity, which identify it. `rows`: values of each entity in this frame.
        """
        indexes = tuple(map(self.entities.add, facts))
        while len(self._rows) < len(self.entities.by_value):
            self._rows.append([])
        for index, row in zip(indexes, rows, strict=True):
            self._rows[index].append(row)
        return self.lists.add(indexes)

    def pack(self, block: _BlockTables, name: str) -> Iterable[bytes]:
        """Yield the packed columns of each entity."""
        for rows in self._rows:
            for index, values in enumerate(zip(*rows, strict=True)):
                # The logged metrics of a run follow the columns of the table.
                kind = self._table[index].kind if index < len(self._table) else FLOAT
                yield block.pack(kind, values, (name, index))


class _BlockTables:
    """The tables of one block while it is encoded."""

    def __init__(self, floats: FloatPacker) -> None:
        self._floats = floats
        self._texts = _Indexes([""])
        self._contexts = _Indexes()
        self._names = _Indexes([()])
        self._tables = {"sample": _EntityTable(SAMPLE), "process": _EntityTable(PROCESS), "run": _EntityTable(RUN)}
        self._devices: dict[Hashable, dict[str, Any]] = {}

    def encode(self, recorded: Sequence[RecordedFrame]) -> bytes:
        """Return the body of the block with these frames."""
        frames = [entry.frame for entry in recorded]
        boundaries = [boundary for frame in frames for boundary in frame.boundaries]
        rows = [self._frame_row(entry) for entry in recorded]
        packed = [self.pack(column.kind, [row[i] for row in rows], column) for i, column in enumerate(FRAME)]
        packed += [self.pack(FLOAT, [frame.host[i] for frame in frames], column) for i, column in enumerate(HOST)]
        for name, table in self._tables.items():
            packed += table.pack(self, name)
        for column in BOUNDARY:
            if column.name == "metrics":
                values: list[Any] = [self._names.add(tuple(boundary.metrics)) for boundary in boundaries]
            elif column.name == "number":
                values = [_to_signed(boundary.number) for boundary in boundaries]
            else:
                values = [getattr(boundary, column.name) for boundary in boundaries]
            packed.append(self.pack(column.kind, values, column))
        logged = [value for boundary in boundaries for value in boundary.metrics.values()]
        packed.append(self.pack(FLOAT, logged, "logged"))
        header = json.dumps(self._header(), separators=(",", ":")).encode()
        return b"".join((JSON_LENGTH.pack(len(header)), header, *packed))

    def pack(self, kind: str, values: Sequence[Any], column: Hashable) -> bytes:
        """Return a packed column. `column`: any hashable object that identifies the column."""
        if kind == FLOAT:
            return self._floats.pack(values, column)
        if kind == TEXT:
            return pack_integers(list(map(self._texts.add, values)))
        return pack_integers(values)

    def _frame_row(self, recorded: RecordedFrame) -> tuple[Any, ...]:
        """Return the row of a frame in the order of `FRAME`, and add its entities to their tables."""
        frame = recorded.frame
        return (
            frame.number, frame.monotonic_ns, nanoseconds(frame.time), frame.skipped_ticks, frame.dropped,
            frame.dropped_runs, self._contexts.add(recorded.context), self._add_samples(frame),
            self._tables["process"].add(
                list(map(process_facts, frame.processes)), map(_PROCESS_VALUES, frame.processes)
            ),
            self._tables["run"].add(list(map(run_facts, frame.runs)), map(_run_row, frame.runs)),
            len(frame.boundaries), frame.interval, frame.sample_duration,
        )  # fmt: skip

    def _add_samples(self, frame: Frame) -> int:
        facts = []
        for sample in frame.samples:
            device = sample.device
            fact = (*device[:3], tuple(device.missing.items()), *device[4:])
            self._devices[fact] = device_to_json(device)
            facts.append(fact)
        now_ns = frame.monotonic_ns
        return self._tables["sample"].add(facts, (_sample_row(sample, now_ns) for sample in frame.samples))

    def _header(self) -> dict[str, Any]:
        """Return the JSON at the start of the body."""
        tables = self._tables
        return {
            "texts": list(self._texts.by_value),
            "contexts": [context_to_json(context) for context in self._contexts.by_value],  # type: ignore[arg-type]
            "devices": [self._devices[fact] for fact in tables["sample"].entities.by_value],
            "processes": list(tables["process"].entities.by_value),
            "runs": list(tables["run"].entities.by_value),
            "lists": {name: list(table.lists.by_value) for name, table in tables.items()},
            "logged": list(self._names.by_value),
        }


def nanoseconds(seconds: float) -> int:
    """Convert seconds to nanoseconds. Divided by a billion, the result is exactly `seconds`."""
    number, divisor = seconds.as_integer_ratio()
    return (2 * number * SECOND + divisor) // (2 * divisor)


def _sample_row(sample: Sample, now_ns: int) -> tuple[Any, ...]:
    stamps = (stamp and _pack_offset(stamp - now_ns) for stamp in (sample.monotonic_ns, sample.counters_monotonic_ns))
    return (int(sample.state), sample.run, sample.age, sample.unanswered, *stamps, *sample.values)


def _to_signed(number: int) -> int:
    """Return the signed 64-bit integer that has the same bits as an unsigned integer."""
    return (number + (1 << 63) & (1 << 64) - 1) - (1 << 63)


def _pack_offset(offset: int) -> int:
    """Return the number to store for the offset of a stamp. It is never 0, because 0 stands for a missing stamp."""
    return offset + 1 if offset >= 0 else offset


def _run_row(run: Run) -> tuple[Any, ...]:
    return (*_RUN_VALUES(run), *run.metrics.values())


_MAX_COLUMNS = 1024
_SAMPLE_FACTS = 6
"""Number of columns of a sample before the columns of metrics."""
_I32 = 1 << 31
_U32 = 1 << 32
_U64 = (1 << 64) - 1
_MAX_AGE = 1e9
"""Maximum age of a stale value in seconds. A larger age is ignored."""
_MAX_INTERVAL = 1e6
"""Maximum seconds between frames, and maximum seconds to sample a frame. Larger values are ignored."""
_STATES = frozenset(Availability)
_RUN_STATES = frozenset(RunState)
_MARKS = frozenset(Mark)
_PROCESS_NAMES = tuple(column.name for column in PROCESS)


class RecordingSchema:
    """The columns of each table in a recording. Raises DamagedRecording if the schema is invalid."""

    def __init__(self, header: Mapping[str, Any]) -> None:
        tables = header.get("tables")
        if not isinstance(tables, dict):
            raise DamagedRecording("the header is invalid")
        self.tables: dict[str, Table] = {name: _table(tables.get(name)) for name in TABLES}
        known = {column.name for column in self.tables["sample"]}
        self.absent = {column.name: _NOT_RECORDED for column in SAMPLE[_SAMPLE_FACTS:] if column.name not in known}
        """GPU metrics that the file does not have, each with the reason why it is missing."""


def schema_to_json() -> dict[str, Any]:
    """Return the columns that this version of gpumon writes, as JSON."""
    return {name: [f"{column.kind}:{column.name}" for column in table] for name, table in TABLES.items()}


def decode(body: bytes, schema: RecordingSchema, frames: int) -> list[RecordedFrame]:
    """Return the frames of a block.

    `frames`: number of frames according to the head of the block. Raises DamagedRecording.
    """
    try:
        return _BlockDecoder(body, schema, frames).decode()
    except DamagedRecording:
        raise
    except DamagedBlock:
        raise DamagedRecording("not written by gpumon") from None


def _table(data: Any) -> Table:
    if not isinstance(data, list) or len(data) > _MAX_COLUMNS:
        raise DamagedRecording("the header is invalid")
    columns = tuple(RecordedColumn(*parse_text(column, 80).partition(":")[::2]) for column in data)
    if any(column.kind not in (FLOAT, STAMP, TEXT, INTEGER) for column in columns):
        raise DamagedRecording("the header is invalid")
    return columns


_NOT_RECORDED = Availability.NOT_RECORDED


class _BlockDecoder:
    """Decodes the body of one block."""

    def __init__(self, body: bytes, schema: RecordingSchema, frames: int) -> None:
        self._part = PartReader(body)
        self._schema = schema
        self._frames = frames
        (length,) = JSON_LENGTH.unpack(self._part.read(JSON_LENGTH.size))
        if length > MAX_JSON:
            raise DamagedRecording("not written by gpumon")
        tables = parse_json(self._part.read(length))
        if not isinstance(tables, dict):
            raise DamagedRecording("not written by gpumon")
        self._texts = [parse_text(entry) for entry in table_entries(tables, "texts")]
        self._contexts: list[Context] = [context_from_json(entry) for entry in table_entries(tables, "contexts")]
        self._devices = [device_from_json(entry, schema.absent) for entry in table_entries(tables, "devices")]
        self._devices_without_processes = [
            device._replace(missing={**device.missing, PROCESSES: device.missing.get(PROCESSES, _NOT_RECORDED)})
            for device in self._devices
        ]
        """The devices for frames in which processes were not recorded. These devices list processes as missing, because
        an empty process list must not mean that a GPU was free."""
        self._processes = [process_from_json(entry) for entry in table_entries(tables, "processes")]
        self._runs = [run_from_json(entry) for entry in table_entries(tables, "runs")]
        self._logged = [metric_names(entry) for entry in table_entries(tables, "logged")]
        self._lists = tables.get("lists")
        if not isinstance(self._lists, dict):
            raise DamagedRecording("not written by gpumon")

    def decode(self) -> list[RecordedFrame]:
        """Return the frames of the block."""
        rows = list(zip(*self._columns("frame", FRAME, self._frames), strict=True))
        host = list(zip(*self._columns("host", HOST, self._frames), strict=True))
        device_lists, process_lists, run_lists = ([row[column] for row in rows] for column in (7, 8, 9))
        times = [row[1] for row in rows]
        samples = self._entities("sample", SAMPLE, [0] * len(self._devices), device_lists)
        processes = self._entities("process", PROCESS, [0] * len(self._processes), process_lists)
        runs = self._entities("run", RUN, [len(run.metrics) for run in self._runs], run_lists)
        boundaries = self._boundaries(sum(parse_int(row[10], 0, 1 << 20) for row in rows))
        recorded = []
        for i, row in enumerate(rows):
            number, monotonic_ns, time_ns, skipped, dropped, dropped_runs, context_index, _, _, _, marks, *seconds = row
            context = self._contexts[parse_int(context_index, 0, len(self._contexts) - 1)]
            devices = self._devices if context.part == FULL else self._devices_without_processes
            parts = DecodedParts(
                tuple(_unpack_sample(devices[index], values, times[i]) for index, values in samples[i]),
                host[i],
                tuple(_unpack_process(self._processes[index], values) for index, values in processes[i]),
                tuple(_unpack_run(self._runs[index], values) for index, values in runs[i]),
                tuple(boundary for boundary in islice(boundaries, marks) if boundary is not None),
            )
            interval, duration = (value if 0 <= value <= _MAX_INTERVAL else 0.0 for value in seconds)
            frame = Frame(
                number, monotonic_ns, time_ns, interval, duration, parse_int(skipped, 0, _U32 - 1),
                parse_int(dropped, 0, _U32 - 1), parts, parse_int(dropped_runs, 0, _U32 - 1), context.part == FULL,
            )  # fmt: skip
            recorded.append(RecordedFrame(frame, context))
        return recorded

    def _columns(self, name: str, wanted: Table, count: int, logged: int = 0) -> list[Sequence[Any]]:
        """Return the `wanted` columns of a table, followed by the columns of logged metrics.

        `count`: number of rows. `logged`: number of logged metrics. Columns that the file does not have get the values
        of `_absent`.
        """
        stored = {}
        for column in self._schema.tables[name]:
            stored[column.name] = self._column(column.kind, count)
        self._part.count(count * sum(column.name not in stored for column in wanted))
        columns = [stored[column.name] if column.name in stored else _absent(column, count) for column in wanted]
        return [*columns, *(self._column(FLOAT, count) for _ in range(logged))]

    def _column(self, kind: str, count: int) -> list[Any]:
        if kind == FLOAT:
            return list(self._part.floats(count))
        numbers = self._part.integers(count)
        if kind != TEXT:
            return numbers
        last = len(self._texts) - 1
        return [self._texts[parse_int(number, 0, last)] for number in numbers]

    def _entities(
        self, name: str, table: Table, logged: Sequence[int], list_indexes: Sequence[int]
    ) -> list[list[tuple[int, tuple[Any, ...]]]]:
        """Return for each frame its entities as pairs: the index of the entity in the table `name`, and its values.

        `logged`: for each entity, its number of logged metrics. `list_indexes`: for each frame, the index of its list
        of entities.
        """
        assert isinstance(self._lists, dict)
        lists = entity_lists(self._lists.get(name), len(logged))
        present = [lists[parse_int(index, 0, len(lists) - 1)] for index in list_indexes]
        counts = [0] * len(logged)
        for entities in present:
            self._part.count(len(entities))
            for entity in entities:
                counts[entity] += 1
        rows: list[Iterator[tuple[Any, ...]]] = [
            zip(*self._columns(name, table, count, metrics), strict=True)
            for count, metrics in zip(counts, logged, strict=True)
        ]
        return [[(entity, next(rows[entity])) for entity in entities] for entities in present]

    def _boundaries(self, count: int) -> Iterator[Boundary | None]:
        """Yield the boundaries of the block. An entry is None if its mark is from a later version of gpumon."""
        columns = self._columns("boundary", BOUNDARY, count)
        names = [self._logged[parse_int(index, 0, len(self._logged) - 1)] for index in columns[6]]
        values = iter(self._part.floats(sum(map(len, names))))
        boundaries: list[Boundary | None] = []
        for row, logged in zip(zip(*columns, strict=True), names, strict=True):
            number, mark, epoch, step, monotonic_ns, time_ns, _, of_step, run, phase, wait, asked, free, peak = row
            metrics = {name: next(values) for name in logged}
            if mark not in _MARKS:
                boundaries.append(None)
                continue
            boundaries.append(
                Boundary(
                    run=run,
                    number=number & _U64,
                    mark=Mark(mark),
                    epoch=parse_int(epoch, -_I32, _I32 - 1),
                    step=step,
                    phase=phase,
                    monotonic_ns=monotonic_ns,
                    time_ns=time_ns,
                    wait=wait,
                    asked=asked,
                    free=free,
                    metrics=metrics,
                    peak=peak,
                    of_step=max(0, of_step),
                )
            )
        return iter(boundaries)


def _absent(column: RecordedColumn, count: int) -> Sequence[Any]:
    """Return the values of a column that the file does not have: NaN, "" or 0."""
    return list(repeat(NAN if column.kind == FLOAT else "" if column.kind == TEXT else 0, count))


def _unpack_sample(device: Device, row: tuple[Any, ...], now_ns: int) -> Sample:
    state, run, age, unanswered, *rest = row
    gauges_ns, counters_ns = (stamp and now_ns + (stamp - 1 if stamp > 0 else stamp) for stamp in rest[:2])
    return Sample(
        device,
        Availability(state) if state in _STATES else Availability.FAILED,
        tuple(rest[2:]),
        run,
        age if 0 <= age <= _MAX_AGE else 0.0,
        gauges_ns,
        counters_ns,
        unanswered if 0 <= unanswered <= _MAX_AGE else NAN,
    )


def _unpack_process(process: Process, row: tuple[Any, ...]) -> Process:
    return process._replace(**dict(zip(_PROCESS_NAMES, row, strict=True)))


def _unpack_run(run: Run, row: tuple[Any, ...]) -> Run:
    state, epoch, step, lost, phase, epoch_started, updated, wait, *rest = row
    memory_fields = len(FrameworkMemory._fields)
    return run._replace(
        state=RunState(state) if state in _RUN_STATES else RunState.DIED,
        epoch=parse_int(epoch, -_I32, _I32 - 1), step=step, phase=phase, epoch_started=epoch_started, updated=updated,
        wait=wait, lost_events=parse_int(lost, 0, _U32 - 1), memory=FrameworkMemory(*rest[:memory_fields]),
        metrics=dict(zip(run.metrics, rest[memory_fields:], strict=True)),
    )  # fmt: skip
