"""The body of a block into frames; of a stranger's bytes, nothing is believed and no more made than limits allow."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import islice, repeat
from operator import attrgetter
from typing import Any

from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN
from gpumon.model.frame import Boundary, Frame, FrameworkMemory, Mark, Run, RunState, Sample
from gpumon.model.metrics import PROCESSES, Availability
from gpumon.model.process import Process
from gpumon.recording.content import (
    BOUNDARY,
    FLOAT,
    FRAME,
    FULL,
    HOST,
    PROCESS,
    RUN,
    SAMPLE,
    STAMP,
    TABLES,
    TEXT,
    Context,
    KnownParts,
    Recorded,
    RecordedColumn,
    Table,
    context_of,
    context_to_json,
    device_of,
    device_to_json,
    entries_of,
    lists_of,
    names_of,
    process_facts,
    process_of,
    run_facts,
    run_of,
)
from gpumon.recording.format import (
    MOST_JSON,
    Cursor,
    Damaged,
    FloatPacker,
    pack_whole,
    parse_json,
    text,
    unpack_floats,
    unpack_whole,
    whole,
)

JSON_LENGTH = struct.Struct("<I")
_PROCESS_VALUES = attrgetter(*(column.name for column in PROCESS))
_RUN_VALUES = attrgetter(*(column.name for column in RUN))


class BlockEncoder:
    """Makes bodies of blocks; each stands alone."""

    def __init__(self) -> None:
        self._floats = FloatPacker()

    def encode(self, recorded: Sequence[Recorded]) -> bytes:
        """The body of a block of at least one frame."""
        return _BlockTables(self._floats).encode(recorded)


class _Numbers:
    """Small numbers for things that come again, in the order of their first coming."""

    def __init__(self, known: Iterable[Hashable] = ()) -> None:
        self.all: dict[Hashable, int] = {one: i for i, one in enumerate(known)}

    def of(self, one: Hashable) -> int:
        return self.all.setdefault(one, len(self.all))


class _Entities:
    """Devices, processes or runs: who was in which frame, and columns for each of them."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self.who = _Numbers()
        self.lists = _Numbers()
        self._rows: list[list[tuple[Any, ...]]] = []

    def add(self, facts: Sequence[Hashable], rows: Iterable[tuple[Any, ...]]) -> int:
        """A frame's entities by what stays of each, and what changes; returns which list it is."""
        places = tuple(map(self.who.of, facts))
        while len(self._rows) < len(self.who.all):
            self._rows.append([])
        for place, row in zip(places, rows, strict=True):
            self._rows[place].append(row)
        return self.lists.of(places)

    def packed(self, block: _BlockTables, name: str) -> Iterable[bytes]:
        for rows in self._rows:
            for place, values in enumerate(zip(*rows, strict=True)):
                # Behind the columns of the table stand the metrics that a run logs.
                kind = self._table[place].kind if place < len(self._table) else FLOAT
                yield block.pack(kind, values, (name, place))


class _BlockTables:
    def __init__(self, floats: FloatPacker) -> None:
        self._floats = floats
        self._texts = _Numbers([""])
        self._contexts = _Numbers()
        self._names = _Numbers([()])
        self._entities = {"sample": _Entities(SAMPLE), "process": _Entities(PROCESS), "run": _Entities(RUN)}
        self._devices: dict[Hashable, dict[str, Any]] = {}

    def encode(self, recorded: Sequence[Recorded]) -> bytes:
        frames = [one.frame for one in recorded]
        boundaries = [boundary for frame in frames for boundary in frame.boundaries]
        rows = [self._frame(one) for one in recorded]
        packed = [self.pack(column.kind, [row[i] for row in rows], column) for i, column in enumerate(FRAME)]
        packed += [self.pack(FLOAT, [frame.host[i] for frame in frames], column) for i, column in enumerate(HOST)]
        for name, entities in self._entities.items():
            packed += entities.packed(self, name)
        for column in BOUNDARY:
            if column.name == "metrics":
                values: list[Any] = [self._names.of(tuple(boundary.metrics)) for boundary in boundaries]
            elif column.name == "number":
                values = [_signed(boundary.number) for boundary in boundaries]
            else:
                values = [getattr(boundary, column.name) for boundary in boundaries]
            packed.append(self.pack(column.kind, values, column))
        packed.append(self.pack(FLOAT, [value for one in boundaries for value in one.metrics.values()], "logged"))
        tables = json.dumps(self._tables(), separators=(",", ":")).encode()
        return b"".join((JSON_LENGTH.pack(len(tables)), tables, *packed))

    def pack(self, kind: str, values: Sequence[Any], column: Hashable) -> bytes:
        """A column of one of the kinds."""
        if kind == FLOAT:
            return self._floats.pack(values, column)
        if kind == TEXT:
            return pack_whole(list(map(self._texts.of, values)))
        return pack_whole(values)

    def _frame(self, recorded: Recorded) -> tuple[Any, ...]:
        """The row of a frame in the order of `FRAME`; its entities are taken in."""
        frame = recorded.frame
        return (
            frame.number, frame.monotonic_ns, nanoseconds(frame.time), frame.skipped_ticks, frame.dropped,
            frame.dropped_runs, self._contexts.of(recorded.context), self._samples(frame),
            self._entities["process"].add(
                list(map(process_facts, frame.processes)), map(_pack_process, frame.processes)
            ),
            self._entities["run"].add(list(map(run_facts, frame.runs)), map(_pack_run, frame.runs)),
            len(frame.boundaries), frame.interval, frame.sample_duration,
        )  # fmt: skip

    def _samples(self, frame: Frame) -> int:
        facts = []
        for sample in frame.samples:
            device = sample.device
            fact = (*device[:3], tuple(device.missing.items()), *device[4:])
            self._devices[fact] = device_to_json(device)
            facts.append(fact)
        at = frame.monotonic_ns
        return self._entities["sample"].add(facts, (_pack_sample(sample, at) for sample in frame.samples))

    def _tables(self) -> dict[str, Any]:
        entities = self._entities
        return {
            "texts": list(self._texts.all),
            "contexts": [context_to_json(context) for context in self._contexts.all],  # type: ignore[arg-type]
            "devices": [self._devices[fact] for fact in entities["sample"].who.all],
            "processes": list(entities["process"].who.all),
            "runs": list(entities["run"].who.all),
            "lists": {name: list(one.lists.all) for name, one in entities.items()},
            "logged": list(self._names.all),
        }


def nanoseconds(seconds: float) -> int:
    """The whole nanoseconds that, divided by a billion, are these seconds exactly."""
    number, divisor = seconds.as_integer_ratio()
    return (2 * number * SECOND + divisor) // (2 * divisor)


def _pack_sample(sample: Sample, at: int) -> tuple[Any, ...]:
    stamps = (stamp and _apart(stamp - at) for stamp in (sample.monotonic_ns, sample.counters_monotonic_ns))
    return (int(sample.state), sample.run, sample.age, sample.unanswered, *stamps, *sample.values)


def _signed(number: int) -> int:
    """A whole number of 64 bits without sign as one with it."""
    return (number + (1 << 63) & (1 << 64) - 1) - (1 << 63)


def _apart(distance: int) -> int:
    """Never 0, which says that a stamp is not known."""
    return distance + 1 if distance >= 0 else distance


_pack_process: Callable[[Process], tuple[Any, ...]] = _PROCESS_VALUES


def _pack_run(run: Run) -> tuple[Any, ...]:
    return (*_RUN_VALUES(run), *run.metrics.values())


_MOST_COLUMNS = 1024
_FACTS = 6
"""Of a sample, before its values."""
_I32 = 1 << 31
_U32 = 1 << 32
_U64 = (1 << 64) - 1
_OLDEST = 1e9
"""Seconds that a stale value may be old."""
_LONGEST = 1e6
"""Seconds between frames, or for one, that are believed."""
_STATES = frozenset(Availability)
_RUN_STATES = frozenset(RunState)
_MARKS = frozenset(Mark)
_PROCESS_NAMES = tuple(column.name for column in PROCESS)


class Schema:
    """The columns of a file, by table. Raises Damaged for what is no schema."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        tables = told.get("tables")
        if not isinstance(tables, dict):
            raise Damaged("the header makes no sense")
        self.tables: dict[str, Table] = {name: _table(tables.get(name)) for name in TABLES}
        known = {column.name for column in self.tables["sample"]}
        self.absent = {column.name: Availability.NOT_RECORDED for column in SAMPLE[_FACTS:] if column.name not in known}
        """Metrics that the file does not have."""


def schema_to_json() -> dict[str, Any]:
    """The columns that this version writes."""
    return {name: [f"{column.kind}:{column.name}" for column in table] for name, table in TABLES.items()}


def decode(body: bytes, schema: Schema, frames: int) -> list[Recorded]:
    """The frames of a block that has so many. Raises Damaged."""
    return BlockDecoder(body, schema, frames).recorded()


def _table(told: Any) -> Table:
    if not isinstance(told, list) or len(told) > _MOST_COLUMNS:
        raise Damaged("the header makes no sense")
    columns = tuple(RecordedColumn(*text(one, 80).partition(":")[::2]) for one in told)
    if any(column.kind not in (FLOAT, STAMP, TEXT, "i") for column in columns):
        raise Damaged("the header makes no sense")
    return columns


_NOT_RECORDED = Availability.NOT_RECORDED


class BlockDecoder:
    """One block on its way to frames."""

    def __init__(self, body: bytes, schema: Schema, frames: int) -> None:
        self._cursor = Cursor(body)
        self._schema = schema
        self._frames = frames
        (length,) = JSON_LENGTH.unpack(self._cursor.take(JSON_LENGTH.size))
        if length > MOST_JSON:
            raise Damaged("not written by gpumon")
        tables = parse_json(self._cursor.take(length))
        if not isinstance(tables, dict):
            raise Damaged("not written by gpumon")
        self._texts = [text(one) for one in entries_of(tables, "texts")]
        self._contexts: list[Context] = [context_of(one) for one in entries_of(tables, "contexts")]
        self._devices = [device_of(one, schema.absent) for one in entries_of(tables, "devices")]
        self._unlisted = [
            device._replace(missing={**device.missing, PROCESSES: device.missing.get(PROCESSES, _NOT_RECORDED)})
            for device in self._devices
        ]
        """The devices in a stretch without processes: an empty list then is no proof of an empty GPU."""
        self._processes = [process_of(one) for one in entries_of(tables, "processes")]
        self._runs = [run_of(one) for one in entries_of(tables, "runs")]
        self._logged = [names_of(one) for one in entries_of(tables, "logged")]
        self._lists = tables.get("lists")
        if not isinstance(self._lists, dict):
            raise Damaged("not written by gpumon")

    def recorded(self) -> list[Recorded]:
        rows = list(zip(*self._columns("frame", FRAME, self._frames), strict=True))
        host = list(zip(*self._columns("host", HOST, self._frames), strict=True))
        devices, processes, runs = ([row[place] for row in rows] for place in (7, 8, 9))
        moments = [row[1] for row in rows]
        samples = self._entities("sample", SAMPLE, [0] * len(self._devices), devices)
        found = self._entities("process", PROCESS, [0] * len(self._processes), processes)
        trained = self._entities("run", RUN, [len(run.metrics) for run in self._runs], runs)
        boundaries = self._boundaries(sum(whole(row[10], 0, 1 << 20) for row in rows))
        made = []
        for i, row in enumerate(rows):
            number, monotonic_ns, time_ns, skipped, dropped, dropped_runs, context, _, _, _, marks, *paces = row
            about = self._contexts[whole(context, 0, len(self._contexts) - 1)]
            told = self._devices if about.part == FULL else self._unlisted
            parts = KnownParts(
                tuple(_unpack_sample(told[who], values, moments[i]) for who, values in samples[i]),
                host[i],
                tuple(_unpack_process(self._processes[who], values) for who, values in found[i]),
                tuple(_unpack_run(self._runs[who], values) for who, values in trained[i]),
                tuple(one for one in islice(boundaries, marks) if one is not None),
            )
            interval, duration = (value if 0 <= value <= _LONGEST else 0.0 for value in paces)
            frame = Frame(
                number, monotonic_ns, time_ns, interval, duration, whole(skipped, 0, _U32 - 1),
                whole(dropped, 0, _U32 - 1), parts, whole(dropped_runs, 0, _U32 - 1), about.part == FULL,
            )  # fmt: skip
            made.append(Recorded(frame, about))
        return made

    def _columns(self, name: str, wanted: Table, count: int, logged: int = 0) -> list[Sequence[Any]]:
        """Columns of this version in its own order, and `logged` more; what the file has not is missing."""
        found = {}
        for column in self._schema.tables[name]:
            found[column.name] = self._column(column.kind, count)
        self._cursor.count(count * sum(column.name not in found for column in wanted))
        of_this = [found[column.name] if column.name in found else _absent(column, count) for column in wanted]
        return [*of_this, *(self._column(FLOAT, count) for _ in range(logged))]

    def _column(self, kind: str, count: int) -> list[Any]:
        if kind == FLOAT:
            return unpack_floats(self._cursor, count)
        numbers = unpack_whole(self._cursor, count)
        if kind != TEXT:
            return numbers
        most = len(self._texts) - 1
        return [self._texts[whole(number, 0, most)] for number in numbers]

    def _entities(
        self, name: str, table: Table, logged: Sequence[int], frames: Sequence[int]
    ) -> list[list[tuple[int, tuple[Any, ...]]]]:
        """Of each frame, who was in it and with which values."""
        assert isinstance(self._lists, dict)
        lists = lists_of(self._lists.get(name), len(logged))
        present = [lists[whole(which, 0, len(lists) - 1)] for which in frames]
        counts = [0] * len(logged)
        for who in present:
            self._cursor.count(len(who))
            for one in who:
                counts[one] += 1
        rows: list[Iterator[tuple[Any, ...]]] = [
            zip(*self._columns(name, table, count, more), strict=True)
            for count, more in zip(counts, logged, strict=True)
        ]
        return [[(one, next(rows[one])) for one in who] for who in present]

    def _boundaries(self, count: int) -> Iterator[Boundary | None]:
        """All of the block; None for one of a kind that this version does not know."""
        columns = self._columns("boundary", BOUNDARY, count)
        names = [self._logged[whole(which, 0, len(self._logged) - 1)] for which in columns[6]]
        values = iter(unpack_floats(self._cursor, sum(map(len, names))))
        made: list[Boundary | None] = []
        for row, logged in zip(zip(*columns, strict=True), names, strict=True):
            number, mark, epoch, step, monotonic_ns, time_ns, _, of_step, run, phase, wait, asked, free, peak = row
            metrics = {name: next(values) for name in logged}
            if mark not in _MARKS:
                made.append(None)
                continue
            made.append(
                Boundary(
                    run=run,
                    number=number & _U64,
                    mark=Mark(mark),
                    epoch=whole(epoch, -_I32, _I32 - 1),
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
        return iter(made)


def _absent(column: RecordedColumn, count: int) -> Sequence[Any]:
    """Metrics that this version has and the file lacks."""
    return list(repeat(NAN if column.kind == FLOAT else "" if column.kind == TEXT else 0, count))


def _unpack_sample(device: Any, row: tuple[Any, ...], at: int) -> Sample:
    state, run, age, unanswered, *rest = row
    gauges, counters = (stamp and at + (stamp - 1 if stamp > 0 else stamp) for stamp in rest[:2])
    return Sample(
        device,
        Availability(state) if state in _STATES else Availability.FAILED,
        tuple(rest[2:]),
        run,
        age if 0 <= age <= _OLDEST else 0.0,
        gauges,
        counters,
        unanswered if 0 <= unanswered <= _OLDEST else NAN,
    )


def _unpack_process(process: Process, row: tuple[Any, ...]) -> Process:
    return process._replace(**dict(zip(_PROCESS_NAMES, row, strict=True)))


def _unpack_run(run: Run, row: tuple[Any, ...]) -> Run:
    state, epoch, step, lost, phase, epoch_started, updated, wait, *rest = row
    held = len(FrameworkMemory._fields)
    return run._replace(
        state=RunState(state) if state in _RUN_STATES else RunState.DIED,
        epoch=whole(epoch, -_I32, _I32 - 1), step=step, phase=phase, epoch_started=epoch_started, updated=updated,
        wait=wait, lost_events=whole(lost, 0, _U32 - 1), memory=FrameworkMemory(*rest[:held]),
        metrics=dict(zip(run.metrics, rest[held:], strict=True)),
    )  # fmt: skip
