"""The body of a block into frames; of a stranger's bytes, nothing is believed and no more made than limits allow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, repeat
from typing import Any

from gpumon.common.numbers import NAN
from gpumon.model.frame import Boundary, Frame, FrameworkMemory, Mark, Run, RunState, Sample
from gpumon.model.metrics import PROCESSES, Availability
from gpumon.model.process import Process
from gpumon.recording.columns import Cursor, unpack_floats, unpack_whole
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
)
from gpumon.recording.encode import JSON_LENGTH
from gpumon.recording.format import MOST_JSON, Damaged, parse_json, text, whole
from gpumon.recording.tables import (
    context_of,
    device_of,
    entries_of,
    lists_of,
    names_of,
    process_of,
    run_of,
)

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
        """Metrics of this version that the file does not have."""


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
                tuple(_sample(told[who], values, moments[i]) for who, values in samples[i]),
                host[i],
                tuple(_process(self._processes[who], values) for who, values in found[i]),
                tuple(_run(self._runs[who], values) for who, values in trained[i]),
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


def _sample(device: Any, row: tuple[Any, ...], at: int) -> Sample:
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


def _process(process: Process, row: tuple[Any, ...]) -> Process:
    return process._replace(**dict(zip(_PROCESS_NAMES, row, strict=True)))


def _run(run: Run, row: tuple[Any, ...]) -> Run:
    state, epoch, step, lost, phase, epoch_started, updated, wait, *rest = row
    held = len(FrameworkMemory._fields)
    return run._replace(
        state=RunState(state) if state in _RUN_STATES else RunState.DIED,
        epoch=whole(epoch, -_I32, _I32 - 1), step=step, phase=phase, epoch_started=epoch_started, updated=updated,
        wait=wait, lost_events=whole(lost, 0, _U32 - 1), memory=FrameworkMemory(*rest[:held]),
        metrics=dict(zip(run.metrics, rest[held:], strict=True)),
    )  # fmt: skip
