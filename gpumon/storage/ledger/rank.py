"""Records one rank of a run by turning its epochs, device usage and traces into ledger rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpumon.analysis.ranks import start_ns, unreported_end_ns
from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN, is_known
from gpumon.common.rapl import PackageReading
from gpumon.model.device import Device
from gpumon.model.frame import Boundary, Frame, Run, RunState, Sample, Tick
from gpumon.model.metrics import GPU_INDEX
from gpumon.model.run import NO_METADATA, Metadata, facts_to_row
from gpumon.storage.ledger.device import SAMPLE_RETENTION, DeviceUsage, RecentSamples
from gpumon.storage.ledger.epoch import Moment
from gpumon.storage.ledger.epoch_rows import (
    epoch_rows,
    nullable,
    numbers_json,
    outside_rows,
    step_rows,
    usage_row,
)
from gpumon.storage.ledger.metadata import ParameterKind
from gpumon.storage.ledger.row_keys import WHOLE_EPOCH, WHOLE_RUN
from gpumon.storage.ledger.timeline import EpochTimeline
from gpumon.storage.ledger.trace import TraceRecorder, step_for
from gpumon.storage.ledger.usage import PackageUsage
from gpumon.storage.ledger.writer import LateMetrics, LedgerRow, StoredTrace

TRACED = (
    "gpu.utilization", "gpu.memory_used", "gpu.run_allocated", "gpu.run_reserved", "gpu.run_used", "gpu.power",
    "gpu.temperature", "gpu.clock_sm", "gpu.memory_reserved",
)  # fmt: skip
_TRACED = tuple(GPU_INDEX[name] for name in TRACED)


@dataclass(frozen=True, slots=True)
class TickTime:
    """Time of a tick by both clocks, and the interval between ticks, all in ns.

    The tick may be one of the previous daemon.

    `monotonic_ns` is CLOCK_MONOTONIC, `time_ns` is since 1970.
    """

    monotonic_ns: int
    time_ns: int
    interval_ns: int


class RankTraces:
    """Traces of a rank by device UUID. The key '' holds the trace of metrics that the training logs."""

    def __init__(self) -> None:
        self._traces: dict[str, TraceRecorder] = {}
        self._traced_to = 0
        self._stored_traces: Sequence[StoredTrace] = ()

    def resume(self, traces: Sequence[StoredTrace]) -> None:
        """Continue the traces that an earlier daemon stored. A trace is loaded when its first new value arrives."""
        self._stored_traces = traces

    def add_earlier(self, key: str, frames: Iterable[Frame]) -> None:
        """Add the frames that the previous daemon sampled but did not write, oldest first. `key`: key of the rank."""
        written = {uuid: begun + round(points * step * SECOND)
                   for uuid, begun, step, points, *_ in self._stored_traces}  # fmt: skip
        for frame in frames:
            run = next((run for run in frame.runs if run.key == key), None)
            if run is None:
                continue
            at = TickTime(frame.monotonic_ns, round(frame.time * SECOND), round(frame.interval * SECOND))
            missing = [uuid for uuid in run.gpus[:MAX_DEVICES] if at.time_ns >= written.get(uuid, 0)]
            samples = {sample.device.uuid: sample for sample in frame.samples if sample.device.uuid in missing}
            has_logged = at.time_ns >= written.get("", 0)
            self.add(run if has_logged else run._replace(metrics={}), at, samples)

    def add(self, run: Run, at: TickTime, samples: Mapping[str, Sample]) -> None:
        """Add a tick. `samples` are the samples of the rank's devices, by UUID."""
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
        """Add metrics that were logged at the end of an epoch while no daemon was running.

        `monotonic_ns`: time of the epoch's end (CLOCK_MONOTONIC).
        """
        trace = self._traces.get("")
        if metrics and trace is not None:
            trace.fill(monotonic_ns, metrics)

    def rows(self, key: str) -> Iterator[LedgerRow]:
        """Yield a row of the table `trace` for each trace that has points. `key` is the key of the rank."""
        for uuid, trace in self._traces.items():
            if trace.points:
                yield LedgerRow("trace", {
                    "rank": key, "uuid": uuid, "begun": trace.begun_ns, "step": trace.step_ns / SECOND,
                    "points": trace.points, "columns": json.dumps(trace.columns), "cells": trace.cells(),
                })  # fmt: skip

    def _new_trace(self, uuid: str, at: TickTime, columns: Sequence[str]) -> TraceRecorder:
        for stored_uuid, begun, step, points, names, cells in self._stored_traces:
            if stored_uuid == uuid:
                try:
                    stored_columns = json.loads(names)
                    trace = TraceRecorder(
                        begun, at.monotonic_ns - (at.time_ns - begun), max(1, round(step * SECOND)), stored_columns,
                        keeps_last=not uuid,
                    )  # fmt: skip
                    trace.restore(cells, points, max(1, trace.step_ns // max(1, at.interval_ns)))
                except (ValueError, TypeError):
                    break  # the trace is damaged; start a new one
                if not columns or stored_columns == list(columns):
                    self._traces[uuid] = trace
                    return trace
        step = step_for(at.interval_ns)
        self._traces[uuid] = TraceRecorder(at.time_ns, at.monotonic_ns, step, columns, keeps_last=not uuid)
        return self._traces[uuid]


_TOTAL, _LIMIT = GPU_INDEX["gpu.memory_total"], GPU_INDEX["gpu.power_limit"]
MAX_DEVICES = 64
_FOREVER = 1 << 62
_DEVICE_DELAY = 10 * SECOND
"""Nanoseconds after the start of a rank within which its devices may still be determined. This is twice the time
between two reads of the process list, plus some delay on a busy machine."""
_MAX_OPEN_EPOCHS = 64


class RankRecorder:
    """Records one rank, from the first tick that shows it until it ends.

    `id`: id of the run in the ledger. `pid`: pid that an earlier daemon recorded, or 0. It is needed if the process
    ended before this daemon started.
    """

    def __init__(self, run: Run, id: str, pid: int = 0) -> None:
        self.run = run
        self._pid = pid
        self.id = id
        self.timeline = EpochTimeline()
        self.package = PackageUsage()
        self.device_usage: dict[str, DeviceUsage] = {}
        self._traces = RankTraces()
        self.devices: dict[str, tuple[Device, float, float]] = {}
        """For each UUID: the device, its total memory in bytes, and its power limit in W."""
        self.tick: Tick | None = None
        """The last tick that contained the run."""
        self.end_ns = 0
        """End of the rank in ns, CLOCK_MONOTONIC; 0 while the rank is running."""
        self.ended_ns: int | None = None
        """End of the rank in ns since 1970; None while the rank is running."""
        self.state = RunState.RUNNING
        self.dirty = True
        """Whether something has changed that should be written soon."""
        self.sampled_until_ns = 0
        """Time up to which samples are complete; ns, CLOCK_MONOTONIC. All samples of epochs that ended before it have
        been added."""
        self.written_at = 0
        self.traced_at = 0
        self._ended_rows: list[LedgerRow] = []
        self.step_row_count = 0
        """Number of rows of steps at the last write."""
        self._peak = NAN
        self._moments: list[Moment] = []
        """Steps and wait at the last two ticks before the end of the rank, and at the end."""
        self._last_alive_ns = 0
        self._is_state_presumed = False
        """Whether the rank has ended but its final state has not been received yet."""
        self._about = NO_METADATA
        self._about_written = NO_METADATA

    def update(self, run: Run, tick: Tick) -> None:
        """Update this rank from a tick: its state, devices, peaks and traces."""
        self.run, self.tick = run, tick
        if self._is_state_presumed and run.state != RunState.RUNNING:
            self.state, self._is_state_presumed, self.dirty = run.state, False, True
        about = tick.about.get(run.key)
        if about is not None and about is not self._about:
            self._about, self.dirty = about, True
        self._update_peak()
        if not self.end_ns:  # late samples need the values from before the end, so later ticks must not replace them
            self._moments = [*self._moments[-1:], Moment(tick.monotonic_ns, run.step, run.wait)]
        if run.state == RunState.RUNNING:
            self._last_alive_ns = tick.monotonic_ns
        by_uuid = {sample.device.uuid: sample for sample in tick.samples} if run.gpus else {}
        for uuid in run.gpus[:MAX_DEVICES]:
            sample = by_uuid.get(uuid)
            if sample is None or (uuid not in self.device_usage and len(self.device_usage) >= MAX_DEVICES):
                continue
            if uuid not in self.device_usage:
                self.device_usage[uuid] = DeviceUsage(uuid)
                self.dirty = True
            if uuid not in self.devices:
                self.devices[uuid] = (sample.device, NAN, NAN)
            device, total, limit = self.devices[uuid]
            if not is_known(total) or not is_known(limit):
                self.devices[uuid] = (device, sample.values[_TOTAL], sample.values[_LIMIT])
        at = TickTime(tick.monotonic_ns, tick.time_ns, tick.interval_ns)
        self._traces.add(run, at, {uuid: by_uuid[uuid] for uuid in self.device_usage if uuid in by_uuid})

    def add_boundary(self, boundary: Boundary) -> None:
        """Add a boundary of the run, which is the start or end of an epoch or phase.

        The caller must first call `update` with the tick that contains the boundary.
        """
        if self.timeline.add(boundary):
            self.dirty = True
            self._traces.fill(boundary.monotonic_ns, boundary.metrics)

    def close_if_ended(self, gone: bool) -> None:
        """Record the end of the rank if it has reported its end, its process has ended, or it has disappeared.

        `gone`: whether the rank has disappeared, which means that recent ticks do not contain it.
        """
        if self.end_ns or self.tick is None:
            return
        timeline, tick, run = self.timeline, self.tick, self.run
        if timeline.ended_ns:
            self.end_ns = timeline.ended_ns
            # If the rank ended after this tick was sampled, the tick shows the rank as running. The next tick will show
            # its final state.
            self._is_state_presumed = run.state == RunState.RUNNING
            self.state = RunState.FINISHED if self._is_state_presumed else run.state
        elif gone or run.state != RunState.RUNNING:
            self.end_ns = unreported_end_ns(run, tick, self._last_alive_ns, timeline.last.monotonic_ns)
            self.state = run.state if run.state != RunState.RUNNING else RunState.DIED
            # The last values of the board are from that time, although they were read at a later tick.
            self._moments.append(Moment(self.end_ns, run.step, run.wait))
            if timeline.is_paused:  # the training had already finished, so it does not matter how its process ended
                self.end_ns, self.state = timeline.last.monotonic_ns, RunState.FINISHED
        if self.end_ns:
            self.ended_ns = tick.time_ns - (tick.monotonic_ns - self.end_ns)
            self.dirty = self.dirty or not self._is_state_presumed

    def add_package_reading(self, previous: PackageReading | None, now: PackageReading, unknown: str) -> None:
        """Add the energy of the CPU packages between two readings.

        `previous`: the reading before `now`; None if there is none. `unknown`: reason why the energy cannot be
        determined; empty if it can.
        """
        self.package.unknown = unknown
        if previous is not None and not self.timeline.is_paused:
            self.package.add(previous, now, self.begin, self.end_ns or _FOREVER)

    def add_samples(self, horizon: int, recent: Mapping[str, RecentSamples], *, final: bool = False) -> int:
        """Add the device samples up to `horizon`, and return the time up to which the samples are complete.

        Both times are ns, CLOCK_MONOTONIC. Epochs that ended before the returned time are converted into rows.
        `recent`: samples by device UUID. `final`: no more samples will arrive, so late samples are not waited for.
        """
        timeline = self.timeline
        begin, end = self.begin, self.end_ns or _FOREVER
        for uuid, usage in self.device_usage.items():
            if uuid in recent:
                usage.update(recent[uuid], timeline, horizon, begin, end)
        known_until = horizon
        if not final:
            for uuid, usage in self.device_usage.items():
                if uuid in recent:
                    known_until = min(known_until, recent[uuid].known_until(horizon), usage.known_until(horizon))
        ended_until = known_until if final or not self._may_get_devices(horizon) else 0
        for epoch in timeline.pop_ended(ended_until):
            assert epoch.end is not None
            sums = {uuid: usage.pop_epoch(epoch.ordinal) for uuid, usage in self.device_usage.items()}
            self._ended_rows += epoch_rows(self.run, timeline, self.device_usage, epoch, epoch.end, sums=sums)
            self.dirty = True
        timeline.drop_spans(horizon - SAMPLE_RETENTION)
        return known_until

    def _may_get_devices(self, now: int) -> bool:
        """Return whether the devices of a new rank may still be determined (`now`: ns, CLOCK_MONOTONIC).

        If a training reports no devices, they are taken from the driver's process list, which is read every few
        seconds. Epochs that end before then are kept open, so that the usage in these epochs is not lost. Their number
        is limited, because open epochs are written again and again.
        """
        if self.device_usage or self.end_ns:
            return False
        return now - self.begin < _DEVICE_DELAY and len(self.timeline.epochs) <= _MAX_OPEN_EPOCHS

    @property
    def begin(self) -> int:
        """Start of the rank; ns, CLOCK_MONOTONIC."""
        timeline, tick = self.timeline, self.tick
        if timeline.begun_ns and timeline.lost == 0:
            return timeline.begun_ns
        return (start_ns(self.run, tick) if tick is not None else 0) or timeline.begun_ns

    def rows(self, horizon: int, *, is_final: bool = False) -> Iterator[LedgerRow]:
        """Yield the rows that have changed since the last call.

        These are the run, rank, devices, epochs, and the sums of the run.

        `horizon`: time up to which samples were added (ns, CLOCK_MONOTONIC). `is_final`: whether these are the last
        rows of this rank. If not, a row of the table `progress` is included. It tells readers which epochs will no
        longer change, and the next daemon continues from it.
        """
        yield from self._run_rows(horizon)
        # Epochs and progress are written together, so that they agree even if the daemon is killed.
        yield from self._epoch_rows(horizon)
        if not is_final:
            yield LedgerRow("progress", {"rank": self.run.key, "state": self._as_json()})

    def _run_rows(self, horizon: int) -> Iterator[LedgerRow]:
        """Yield the rows of the run, the rank, the run's metadata and the devices."""
        assert self.tick is not None
        key, run, tick = self.run.key, self.run, self.tick
        duration = self._duration(self.end_ns or tick.monotonic_ns)
        started = (
            round(run.started * SECOND) if is_known(run.started) else tick.time_ns - (tick.monotonic_ns - self.begin)
        )
        yield LedgerRow("run", {
            "id": self.id, "name": run.name, "user": run.user, "hostname": tick.hostname, "framework": run.framework,
            "source": tick.origin.source, "label": tick.origin.label, "driver": tick.driver.version,
            "world_size": run.world_size, "epochs": run.epochs or None, "base": run.base,
            "first_epoch": run.first_epoch, "started": started, "state": int(self.state), "updated": tick.time_ns,
        })  # fmt: skip
        yield LedgerRow("rank", {
            "key": key, "run": self.id, "rank": run.rank, "local_rank": run.local_rank, "pid": run.pid or self._pid,
            "started": started, "ended": self.ended_ns, "state": int(self.state), "steps": run.step,
            "seconds": self._duration(self.end_ns or horizon), "metrics": numbers_json(run.metrics),
            "package_energy": nullable(self.package.energy(duration)),
            "package_unknown": self.package.reason(duration) or None,
            "wait": nullable(run.wait) or None, "lost_events": self.timeline.lost,
            "peak": nullable(self._update_peak()), "retries": nullable(run.memory.retries),
            "ooms": nullable(run.memory.ooms), **facts_to_row(run.facts),
        })  # fmt: skip
        if self._about is not self._about_written:
            yield from _about_rows(self.id, run.rank, self._about)
            self._about_written = self._about
        for uuid, (device, total, limit) in self.devices.items():
            yield LedgerRow("device", {
                "rank": key, "uuid": uuid, "number": device.index, "name": device.name,
                "memory_total": nullable(total), "power_limit": nullable(limit),
            })  # fmt: skip

    def _epoch_rows(self, horizon: int) -> Iterator[LedgerRow]:
        """Yield the rows for epochs, for time outside epochs, for steps, for usage in the whole run, and for marks."""
        key, timeline = self.run.key, self.timeline
        yield from self._ended_rows
        self._ended_rows = []
        now = self._moment_at(min(horizon, self.end_ns or horizon))
        for epoch in timeline.epochs.values():
            until = epoch.end or (now if now.monotonic_ns >= epoch.begin.monotonic_ns else epoch.begin)
            sums = {uuid: usage.epoch_sums(epoch.ordinal) for uuid, usage in self.device_usage.items()}
            yield from epoch_rows(self.run, timeline, self.device_usage, epoch, until, sums=sums)
        yield from outside_rows(key, timeline, self.device_usage, now)
        steps = [*step_rows(key, timeline, self.device_usage, now)]
        self.step_row_count = sum(row.table == "step_row" for row in steps)
        yield from steps
        seconds = self._duration(self.end_ns or now.monotonic_ns)  # samples up to the end may still be missing
        for usage in self.device_usage.values():
            yield usage_row(key, WHOLE_RUN, WHOLE_EPOCH, usage, sums=usage.run_sums(), seconds=seconds)
        for mark in timeline.marks:
            yield LedgerRow("mark", {
                "rank": key, "number": mark.number, "mark": int(mark.mark), "time": mark.time_ns, "epoch": mark.epoch,
                "step": mark.step, "asked": nullable(mark.asked), "free": nullable(mark.free),
            })  # fmt: skip
        timeline.marks.clear()

    def _duration(self, until: int) -> float:
        """Return the seconds from the rank's start to `until` (ns, CLOCK_MONOTONIC), without pauses."""
        return max(0.0, (until - self.begin) / SECOND - self.timeline.paused_until(until))

    def _moment_at(self, horizon: int) -> Moment:
        """Return the steps and the wait at `horizon`, taken from the last tick or boundary before it."""
        known = [moment for moment in (*self._moments, self.timeline.last) if moment.monotonic_ns <= horizon]
        latest = max(known, key=lambda moment: moment.monotonic_ns, default=self.timeline.last)
        return latest._replace(monotonic_ns=horizon)

    def _update_peak(self) -> float:
        """Update and return the highest peak of the framework's memory in the whole run.

        The current value of the counter is not sufficient, because a training may reset it.
        """
        known = [v for v in (self._peak, self.timeline.peak.highest, self.run.memory.peak) if is_known(v)]
        self._peak = max(known, default=NAN)
        return self._peak

    def pop_revoked_ends(self) -> list[tuple[str, int]]:
        """Return and clear the epochs that were written as ended but are still open: pairs of rank key and epoch."""
        ends = [(self.run.key, number) for number in self.timeline.revoked_ends]
        self.timeline.revoked_ends.clear()
        return ends

    def pop_late_metrics(self) -> list[LateMetrics]:
        """Return and clear the list of metrics that were logged for epochs whose rows had already been written."""
        key, late = self.run.key, self.timeline.late_metrics
        rows = [LateMetrics(key, number, numbers_json(metrics)) for number, metrics in late]
        late.clear()
        return rows

    def trace_rows(self) -> Iterator[LedgerRow]:
        """Return an iterator over a row of the table `trace` for each trace that has points."""
        return self._traces.rows(self.run.key)

    def resume(self, state: Mapping[str, Any], traces: Sequence[StoredTrace]) -> None:
        """Continue from the state and traces that an earlier daemon wrote.

        The keys of `state` are part of the file format. Raises KeyError, TypeError or ValueError if `state` is invalid.
        """
        timeline = EpochTimeline.from_json(state["course"])
        device_usage = {usage.uuid: usage for usage in map(DeviceUsage.from_json, state["shares"])}
        self.timeline, self.device_usage = timeline, device_usage
        self._traces.resume(traces)
        self.package = PackageUsage.from_json(state["package"])

    def add_earlier(self, frames: Iterable[Frame]) -> None:
        """Add frames that the previous daemon sampled but did not write to the traces, oldest first."""
        self._traces.add_earlier(self.run.key, frames)

    def _as_json(self) -> str:
        device_usage = [usage.as_json() for usage in self.device_usage.values()]
        parts = {"course": self.timeline.as_json(), "package": self.package.as_json()}
        return json.dumps({**parts, "shares": device_usage}, separators=(",", ":"))


def _about_rows(run: str, rank: int, about: Metadata) -> Iterator[LedgerRow]:
    """Yield the rows for the metadata that one rank of a run has published."""
    omitted = {"": about.omitted} if about.omitted else {}
    for kind, values in (
        (ParameterKind.CONFIG, about.config),
        (ParameterKind.PROGRAM, about.program),
        (ParameterKind.OMITTED, omitted),
    ):
        for place, (name, value) in enumerate(values.items()):
            yield LedgerRow("parameter", {
                "run": run, "kind": int(kind), "name": name, "place": place, "value": json.dumps(value), "rank": rank,
            })  # fmt: skip
    for note in about.notes:
        yield LedgerRow("note", {"run": run, "time": note.time_ns, "text": note.text, "author": ""})
    for tag in about.tags:
        yield LedgerRow("tag", {"run": run, "tag": tag, "removed": 0})
