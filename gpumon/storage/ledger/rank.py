"""Data of one rank of a run until it is written: its timeline, its devices and their traces."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN, is_known
from gpumon.common.rapl import PackageReading
from gpumon.model.device import Device
from gpumon.model.frame import Boundary, Frame, Run, RunState, Sample, Tick
from gpumon.model.metrics import GPU_INDEX
from gpumon.model.run import NO_METADATA, facts_to_row
from gpumon.storage.ledger.device import REMEMBERED, DeviceUsage, RecentSamples, device_usage_of
from gpumon.storage.ledger.epoch import Moment
from gpumon.storage.ledger.epoch_rows import (
    column_of,
    epoch_rows,
    numbers_json,
    outside_rows,
    row_of_usage,
    rows_of_steps,
)
from gpumon.storage.ledger.metadata import about_rows
from gpumon.storage.ledger.schema import WHOLE_EPOCH, WHOLE_RUN
from gpumon.storage.ledger.timeline import EpochTimeline, timeline_of
from gpumon.storage.ledger.trace import TraceRecorder, step_for
from gpumon.storage.ledger.usage import PackageUsage, package_usage_of
from gpumon.storage.ledger.writer import LateMetrics, LedgerRow, StoredTrace

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


_TOTAL, _LIMIT = GPU_INDEX["gpu.memory_total"], GPU_INDEX["gpu.power_limit"]
MOST_DEVICES = 64
_FOREVER = 1 << 62


class RankRecorder:
    """One rank, from its first sight to its end. `id`: of its run in the ledger."""

    def __init__(self, run: Run, id: str) -> None:
        self.run = run
        self.id = id
        self.timeline = EpochTimeline()
        self.package = PackageUsage()
        self.shares: dict[str, DeviceUsage] = {}
        self._traces = RankTraces()
        self.devices: dict[str, tuple[Device, float, float]] = {}
        """By UUID, with its memory in all and its power limit."""
        self.tick: Tick | None = None
        """The last one in which the run was."""
        self.end_ns = 0
        """ns, CLOCK_MONOTONIC; 0 while it runs."""
        self.ended_ns: int | None = None
        """ns since 1970."""
        self.state = RunState.RUNNING
        self.dirty = True
        self.whole_ns = 0
        """Epochs that ended until then are sampled in full; ns, CLOCK_MONOTONIC."""
        self.written_at = 0
        self.traced_at = 0
        self._over: list[LedgerRow] = []
        self.shown_rows = 0
        """Rows of steps that were written last."""
        self._peak = NAN
        self._moments: list[Moment] = []
        """Steps and wait as the last two ticks had them; of one that is over, those until its end."""
        self._alive_at = 0
        self._is_presumed = False
        """Whether it has ended, and how is not known yet."""
        self._about = NO_METADATA
        self._about_written = NO_METADATA

    def see(self, run: Run, tick: Tick) -> None:
        """The run as a tick shows it."""
        self.run, self.tick = run, tick
        if self._is_presumed and run.state != RunState.RUNNING:
            self.state, self._is_presumed, self.dirty = run.state, False, True
        about = tick.about.get(run.key)
        if about is not None and about is not self._about:
            self._about, self.dirty = about, True
        self._highest()
        if not self.end_ns:  # what was until its end is kept for as long as samples of that time are awaited
            self._moments = [*self._moments[-1:], Moment(tick.monotonic_ns, run.step, run.wait)]
        if run.state == RunState.RUNNING:
            self._alive_at = tick.monotonic_ns
        by_uuid = {sample.device.uuid: sample for sample in tick.samples} if run.gpus else {}
        for uuid in run.gpus[:MOST_DEVICES]:
            sample = by_uuid.get(uuid)
            if sample is None or (uuid not in self.shares and len(self.shares) >= MOST_DEVICES):
                continue
            if uuid not in self.shares:
                self.shares[uuid] = DeviceUsage(uuid)
                self.dirty = True
            if uuid not in self.devices:
                self.devices[uuid] = (sample.device, NAN, NAN)
            device, total, limit = self.devices[uuid]
            if not is_known(total) or not is_known(limit):
                self.devices[uuid] = (device, sample.values[_TOTAL], sample.values[_LIMIT])
        at = Round(tick.monotonic_ns, tick.time_ns, tick.interval_ns)
        self._traces.take(run, at, {uuid: by_uuid[uuid] for uuid in self.shares if uuid in by_uuid})

    def take(self, boundary: Boundary) -> None:
        """Take a boundary of the run, after the tick that brought it."""
        if self.timeline.take(boundary):
            self.dirty = True
            self._traces.fill(boundary.monotonic_ns, boundary.metrics)

    def close_when_over(self, gone: bool) -> None:
        """Note the end, once the run has reported it or its process is gone (`gone`: and its board with it)."""
        if self.end_ns or self.tick is None:
            return
        timeline, tick, run = self.timeline, self.tick, self.run
        if timeline.ended_ns:
            self.end_ns = timeline.ended_ns
            # Where it ended after the sample of this tick, the tick has it running: the next one has how it ended.
            self._is_presumed = run.state == RunState.RUNNING
            self.state = RunState.FINISHED if self._is_presumed else run.state
        elif gone or run.state != RunState.RUNNING:
            # It died unobserved: this is the last moment at which it was alive for certain.
            updated = tick.monotonic_ns - (tick.time_ns - _ns(run.updated)) if is_known(run.updated) else 0
            self.end_ns = min(max(self._alive_at, updated, timeline.last.monotonic_ns), tick.monotonic_ns)
            self.state = run.state if run.state != RunState.RUNNING else RunState.DIED
            # What its board still says is of that moment, though it was read only by the tick after.
            self._moments.append(Moment(self.end_ns, run.step, run.wait))
            if timeline.is_paused:  # its training was over: however the process ended, that was not of it
                self.end_ns, self.state = timeline.last.monotonic_ns, RunState.FINISHED
        if self.end_ns:
            self.ended_ns = tick.time_ns - (tick.monotonic_ns - self.end_ns)
            self.dirty = self.dirty or not self._is_presumed

    def take_packages(self, before: PackageReading | None, now: PackageReading, unknown: str) -> None:
        """Take a reading of the CPU packages, and the one before it, if any; `unknown`: why it says nothing."""
        self.package.unknown = unknown
        if before is not None and not self.timeline.is_paused:
            self.package.follow(before, now, self.begin, self.end_ns or _FOREVER)

    def settle(self, horizon: int, recent: Mapping[str, RecentSamples], *, final: bool = False) -> int:
        """Add all samples up to `horizon`; gives up to when (both ns, CLOCK_MONOTONIC) nothing more is to come.

        Epochs that were over by then are settled: their sums are no longer kept. Others are written as far as
        they are known. `final`: nothing more will be taken, whatever is to come.
        """
        timeline = self.timeline
        begin, end = self.begin, self.end_ns or _FOREVER
        for uuid, share in self.shares.items():
            if uuid in recent:
                share.follow(recent[uuid], timeline, horizon, begin, end)
        known = horizon
        if not final:
            for uuid, share in self.shares.items():
                if uuid in recent:
                    known = min(known, recent[uuid].known_until(horizon), share.known_until(horizon))
        for epoch in timeline.over(known):
            assert epoch.end is not None
            sums = {uuid: share.settle(epoch.ordinal) for uuid, share in self.shares.items()}
            self._over += epoch_rows(self.run, timeline, self.shares, epoch, epoch.end, sums=sums)
            self.dirty = True
        timeline.forget(horizon - REMEMBERED)
        return known

    @property
    def begin(self) -> int:
        """When the rank began: ns, CLOCK_MONOTONIC."""
        timeline, tick = self.timeline, self.tick
        if timeline.begun_ns and timeline.lost == 0:
            return timeline.begun_ns
        if tick is None or not is_known(self.run.started):
            return timeline.begun_ns
        return tick.monotonic_ns - (tick.time_ns - _ns(self.run.started))

    def rows(self, horizon: int, *, is_final: bool = False) -> Iterator[LedgerRow]:
        """The rows that change while a run lasts: the run, the rank, its devices, open epochs and sums.

        `is_final`: nothing more is to come of it. Until then its progress tells readers which epochs are settled.
        """
        assert self.tick is not None
        key, run, tick, timeline = self.run.key, self.run, self.tick, self.timeline
        lasted = self._lasted(self.end_ns or tick.monotonic_ns)
        started = _ns(run.started) if is_known(run.started) else tick.time_ns - (tick.monotonic_ns - self.begin)
        yield LedgerRow("run", {
            "id": self.id, "name": run.name, "user": run.user, "hostname": tick.hostname, "framework": run.framework,
            "source": tick.origin.source, "label": tick.origin.label, "driver": tick.driver.version,
            "world_size": run.world_size, "epochs": run.epochs or None, "base": run.base,
            "first_epoch": run.first_epoch, "started": started, "state": int(self.state), "updated": tick.time_ns,
        })  # fmt: skip
        yield LedgerRow("rank", {
            "key": key, "run": self.id, "rank": run.rank, "local_rank": run.local_rank, "pid": run.pid,
            "started": started, "ended": self.ended_ns, "state": int(self.state), "steps": run.step,
            "seconds": lasted, "metrics": numbers_json(run.metrics),
            "package_energy": column_of(self.package.energy(lasted)),
            "package_unknown": self.package.reason(lasted) or None,
            "wait": column_of(run.wait) or None, "lost_events": timeline.lost, "peak": column_of(self._highest()),
            "retries": column_of(run.memory.retries), "ooms": column_of(run.memory.ooms), **facts_to_row(run.facts),
        })  # fmt: skip
        if self._about is not self._about_written:
            yield from about_rows(self.id, run.rank, self._about)
            self._about_written = self._about
        for uuid, (device, total, limit) in self.devices.items():
            yield LedgerRow("device", {
                "rank": key, "uuid": uuid, "number": device.index, "name": device.name,
                "memory_total": column_of(total), "power_limit": column_of(limit),
            })  # fmt: skip
        # Epochs and the state to continue from are written together: after a kill they fit each other.
        yield from self._over
        self._over = []
        now = self._at(min(horizon, self.end_ns or horizon))
        for epoch in timeline.epochs.values():
            until = epoch.end or (now if now.monotonic_ns >= epoch.begin.monotonic_ns else epoch.begin)
            sums = {uuid: share.of(epoch.ordinal) for uuid, share in self.shares.items()}
            yield from epoch_rows(run, timeline, self.shares, epoch, until, sums=sums)
        yield from outside_rows(key, timeline, self.shares, now)
        steps = [*rows_of_steps(key, timeline, self.shares, now)]
        self.shown_rows = sum(row.table == "step_row" for row in steps)
        yield from steps
        seconds = self._lasted(now.monotonic_ns)
        for share in self.shares.values():
            yield row_of_usage(key, WHOLE_RUN, WHOLE_EPOCH, share, sums=share.whole(), seconds=seconds)
        for mark in timeline.marks:
            yield LedgerRow("mark", {
                "rank": key, "number": mark.number, "mark": int(mark.mark), "time": mark.time_ns, "epoch": mark.epoch,
                "step": mark.step, "asked": column_of(mark.asked), "free": column_of(mark.free),
            })  # fmt: skip
        timeline.marks.clear()
        if not is_final:
            yield LedgerRow("progress", {"rank": key, "state": self._as_json()})

    def _lasted(self, until: int) -> float:
        """Seconds from its begin until then (ns, CLOCK_MONOTONIC), without those in which it was paused."""
        return max(0.0, (until - self.begin) / SECOND - self.timeline.paused_until(until))

    def _at(self, horizon: int) -> Moment:
        """Steps and wait that belong to `horizon`: of the last tick until then, or of a boundary behind that."""
        known = [moment for moment in (*self._moments, self.timeline.last) if moment.monotonic_ns <= horizon]
        latest = max(known, key=lambda moment: moment.monotonic_ns, default=self.timeline.last)
        return latest._replace(monotonic_ns=horizon)

    def _highest(self) -> float:
        """The highest peak of the framework's memory: the training may have reset the counter in between."""
        known = [v for v in (self._peak, self.timeline.peak.highest, self.run.memory.peak) if is_known(v)]
        self._peak = max(known, default=NAN)
        return self._peak

    def left(self) -> list[tuple[str, int]]:
        """Epochs that were written with an end and had none: the rank's key, and their numbers."""
        found = [(self.run.key, number) for number in self.timeline.left]
        self.timeline.left.clear()
        return found

    def late(self) -> list[LateMetrics]:
        """Return metrics that were logged for epochs that are written already."""
        found = [LateMetrics(self.run.key, number, numbers_json(metrics)) for number, metrics in self.timeline.late]
        self.timeline.late.clear()
        return found

    def trace_rows(self) -> Iterator[LedgerRow]:
        """The traces as they are now."""
        return self._traces.rows(self.run.key)

    def resume(self, state: Mapping[str, Any], traces: Sequence[StoredTrace]) -> None:
        """Continue from what an earlier daemon wrote. Raises KeyError, TypeError or ValueError when it is damaged."""
        timeline = timeline_of(state["course"])
        shares = {share.uuid: share for share in map(device_usage_of, state["shares"])}
        self.timeline, self.shares = timeline, shares
        self._traces.resume(traces)
        self.package = package_usage_of(state["package"])

    def catch_up(self, rounds: Iterable[EarlierRound]) -> None:
        """Add to the traces what an earlier daemon sampled and did not write, oldest first."""
        self._traces.catch_up(self.run.key, rounds, MOST_DEVICES)

    def _as_json(self) -> str:
        shares = [share.as_json() for share in self.shares.values()]
        parts = {"course": self.timeline.as_json(), "package": self.package.as_json()}
        return json.dumps({**parts, "shares": shares}, separators=(",", ":"))


def _ns(seconds: float) -> int:
    return round(seconds * SECOND)
