"""Traces of one rank: values over time of each of its devices, and of the metrics that it logs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from gpumon.common.clock import SECOND
from gpumon.ledger.store import StoredTrace
from gpumon.ledger.trace import TraceRecorder, step_for
from gpumon.ledger.write import LedgerRow
from gpumon.model.frame import Frame, Run, RunState, Sample
from gpumon.model.metrics import GPU_INDEX

TRACED = (
    "gpu.utilization", "gpu.memory_used", "gpu.run_allocated", "gpu.run_reserved", "gpu.run_used", "gpu.power",
    "gpu.temperature", "gpu.clock_sm", "gpu.memory_reserved",
)  # fmt: skip
_TRACED = tuple(GPU_INDEX[name] for name in TRACED)


class Round(NamedTuple):
    """The moment of a tick, of this daemon or of the one before it, and its interval; in ns."""

    monotonic_ns: int
    time_ns: int
    interval_ns: int


class EarlierRound(NamedTuple):
    """A round of sampling of the daemon before this one."""

    at: Round
    samples: Mapping[str, Sample]
    """By the UUID of their device."""
    runs: Mapping[str, Run]
    """By key."""


def earlier_round(frame: Frame) -> EarlierRound:
    """Return what traces need of a frame."""
    at = Round(frame.monotonic_ns, round(frame.time * SECOND), round(frame.interval * SECOND))
    return EarlierRound(
        at, {sample.device.uuid: sample for sample in frame.samples}, {run.key: run for run in frame.runs}
    )


class RankTraces:
    """Traces by the UUID of their device, and that of logged metrics under ''."""

    def __init__(self) -> None:
        self._traces: dict[str, TraceRecorder] = {}
        self._traced_to = 0
        self._stored_traces: Sequence[StoredTrace] = ()

    def resume(self, traces: Sequence[StoredTrace]) -> None:
        """Continue what an earlier daemon wrote, each trace when its first value comes."""
        self._stored_traces = traces

    def catch_up(self, key: str, rounds: Iterable[EarlierRound], most: int) -> None:
        """Add what an earlier daemon sampled and did not write, oldest first; `key`: of the rank, `most`: devices."""
        written = {uuid: begun + round(points * step * SECOND)
                   for uuid, begun, step, points, *_ in self._stored_traces}  # fmt: skip
        for at, samples, runs in rounds:
            run = runs.get(key)
            if run is None:
                continue
            missing = [uuid for uuid in run.gpus[:most] if uuid in samples and at.time_ns >= written.get(uuid, 0)]
            has_logged = at.time_ns >= written.get("", 0)
            self.take(run if has_logged else run._replace(metrics={}), at, {uuid: samples[uuid] for uuid in missing})

    def take(self, run: Run, at: Round, samples: Mapping[str, Sample]) -> None:
        """Add a tick; `samples`: of the rank's devices, by UUID."""
        if run.state != RunState.RUNNING or at.monotonic_ns <= self._traced_to:
            return
        self._traced_to = at.monotonic_ns
        for uuid, sample in samples.items():
            trace = self._traces.get(uuid) or self._new_trace(uuid, at, TRACED)
            values = sample.values
            trace.add(at.monotonic_ns, [values[i] for i in _TRACED])
        if run.metrics:
            trace = self._traces.get("") or self._new_trace("", at, ())
            trace.log(at.monotonic_ns, run.metrics)

    def fill(self, monotonic_ns: int, metrics: Mapping[str, float]) -> None:
        """Take what was logged at the end of an epoch, where no tick told it: no daemon ran."""
        trace = self._traces.get("")
        if metrics and trace is not None:
            trace.fill(monotonic_ns, metrics)

    def rows(self, key: str) -> Iterator[LedgerRow]:
        """The traces as they are now; `key`: of the rank."""
        for uuid, trace in self._traces.items():
            if trace.points:
                yield LedgerRow("trace", {
                    "rank": key, "uuid": uuid, "begun": trace.begun_ns, "step": trace.step_ns / SECOND,
                    "points": trace.points, "columns": json.dumps(trace.columns), "cells": trace.cells(),
                })  # fmt: skip

    def _new_trace(self, uuid: str, at: Round, columns: Sequence[str]) -> TraceRecorder:
        for place, begun, step, points, names, cells in self._stored_traces:
            if place == uuid:
                try:
                    found = json.loads(names)
                    trace = TraceRecorder(
                        begun, at.monotonic_ns - (at.time_ns - begun), max(1, round(step * SECOND)), found,
                        keeps_last=not uuid,
                    )  # fmt: skip
                    trace.restore(cells, points, max(1, trace.step_ns // max(1, at.interval_ns)))
                except (ValueError, TypeError):
                    break  # damaged: it begins anew
                if not columns or found == list(columns):
                    self._traces[uuid] = trace
                    return trace
        step = step_for(at.interval_ns)
        self._traces[uuid] = TraceRecorder(at.time_ns, at.monotonic_ns, step, columns, keeps_last=not uuid)
        return self._traces[uuid]
