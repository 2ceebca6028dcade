"""Frames into the body of a block: the texts and lists as JSON, then column after column."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Hashable, Iterable, Sequence
from operator import attrgetter
from typing import Any

from gpumon.common.clock import SECOND
from gpumon.model.frame import Frame, Run, Sample
from gpumon.model.process import Process
from gpumon.recording.columns import FloatPacker, pack_whole
from gpumon.recording.content import BOUNDARY, FLOAT, FRAME, HOST, PROCESS, RUN, SAMPLE, TEXT, Recorded, Table
from gpumon.recording.tables import context_to_json, device_to_json, process_facts, run_facts

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
            self._entities["process"].add(list(map(process_facts, frame.processes)), map(_process, frame.processes)),
            self._entities["run"].add(list(map(run_facts, frame.runs)), map(_run, frame.runs)),
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
        return self._entities["sample"].add(facts, (_sample(sample, at) for sample in frame.samples))

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


def _sample(sample: Sample, at: int) -> tuple[Any, ...]:
    stamps = (stamp and _apart(stamp - at) for stamp in (sample.monotonic_ns, sample.counters_monotonic_ns))
    return (int(sample.state), sample.run, sample.age, sample.unanswered, *stamps, *sample.values)


def _signed(number: int) -> int:
    """A whole number of 64 bits without sign as one with it."""
    return (number + (1 << 63) & (1 << 64) - 1) - (1 << 63)


def _apart(distance: int) -> int:
    """Never 0, which says that a stamp is not known."""
    return distance + 1 if distance >= 0 else distance


_process: Callable[[Process], tuple[Any, ...]] = _PROCESS_VALUES


def _run(run: Run) -> tuple[Any, ...]:
    return (*_RUN_VALUES(run), *run.metrics.values())
