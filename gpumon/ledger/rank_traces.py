"""Traces of one rank: values over time of each of its devices, and of the metrics that it logs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from gpumon.clock import SECOND
from gpumon.frame import Run, RunState, Sample, Tick
from gpumon.ledger.store import StoredTrace
from gpumon.ledger.trace import TraceRecorder, step_for
from gpumon.ledger.write import LedgerRow
from gpumon.metrics import GPU_INDEX

TRACED = (
    "gpu.utilization", "gpu.memory_used", "gpu.run_allocated", "gpu.run_reserved", "gpu.run_used", "gpu.power",
    "gpu.temperature", "gpu.clock_sm", "gpu.memory_reserved",
)  # fmt: skip
_TRACED = tuple(GPU_INDEX[name] for name in TRACED)


class RankTraces:
    """Traces by the UUID of their device, and that of logged metrics under ''."""

    def __init__(self) -> None:
        self._traces: dict[str, TraceRecorder] = {}
        self._traced_to = 0
        self._stored_traces: Sequence[StoredTrace] = ()

    def resume(self, traces: Sequence[StoredTrace]) -> None:
        """Continue what an earlier daemon wrote, each trace when its first value comes."""
        self._stored_traces = traces

    def take(self, run: Run, tick: Tick, samples: Mapping[str, Sample]) -> None:
        """Add a tick; `samples`: of the rank's devices, by UUID."""
        if run.state != RunState.RUNNING or tick.monotonic_ns <= self._traced_to:
            return
        self._traced_to = tick.monotonic_ns
        for uuid, sample in samples.items():
            trace = self._traces.get(uuid) or self._new_trace(uuid, tick, TRACED)
            values = sample.values
            trace.add(tick.monotonic_ns, [values[i] for i in _TRACED])
        if run.metrics:
            trace = self._traces.get("") or self._new_trace("", tick, ())
            trace.log(tick.monotonic_ns, run.metrics)

    def rows(self, key: str) -> Iterator[LedgerRow]:
        """The traces as they are now; `key`: of the rank."""
        for uuid, trace in self._traces.items():
            if trace.points:
                yield LedgerRow("trace", {
                    "rank": key, "uuid": uuid, "begun": trace.begun_ns, "step": trace.step_ns / SECOND,
                    "points": trace.points, "columns": json.dumps(trace.columns), "cells": trace.cells(),
                })  # fmt: skip

    def _new_trace(self, uuid: str, tick: Tick, columns: Sequence[str]) -> TraceRecorder:
        for place, begun, step, points, names, cells in self._stored_traces:
            if place == uuid:
                try:
                    found = json.loads(names)
                    trace = TraceRecorder(
                        begun, tick.monotonic_ns - (tick.time_ns - begun), max(1, round(step * SECOND)), found,
                        keeps_last=not uuid,
                    )  # fmt: skip
                    trace.restore(cells, points, max(1, trace.step_ns // max(1, tick.interval_ns)))
                except (ValueError, TypeError):
                    break  # damaged: it begins anew
                if not columns or found == list(columns):
                    self._traces[uuid] = trace
                    return trace
        step = step_for(tick.interval_ns)
        self._traces[uuid] = TraceRecorder(tick.time_ns, tick.monotonic_ns, step, columns, keeps_last=not uuid)
        return self._traces[uuid]
