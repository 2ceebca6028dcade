"""One GPU: what it supports, what is due, and its last values."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from gpumon.clock import Clock
from gpumon.frame import NAN, Device, Sample
from gpumon.metrics import GPU_METRICS, Availability
from gpumon.sources.nvml.answers import EVERY_TICK, RARELY, SELDOM, SLACK, SOON, Answers, Read
from gpumon.sources.nvml.busy import Busy, BusySamples
from gpumon.sources.nvml.library import SUCCESS, Library, availability
from gpumon.sources.nvml.processes import Held, ProcessList, ProcessShares
from gpumon.sources.nvml.readings import CALLS, FALLBACKS, Call

_NAMES = tuple(metric.name for metric in GPU_METRICS)
_ASKED = tuple(dict.fromkeys(name for call in (*CALLS, *FALLBACKS) for name in call.metrics))
"""Other metrics are not the driver's to give, so it is not what lacks them."""
_NEVER = float("inf")
_TURNS = 8
_CONTEXT = 32 << 20
"""Bytes by which the memory of a device changes at least when a process comes or goes: its CUDA context takes more."""


class _Scheduled:
    """A call of the table, bound to this device's buffers, and when it is next due."""

    __slots__ = ("call", "due", "read")

    def __init__(self, call: Call, read: Read) -> None:
        self.call = call
        self.read = read
        self.due = 0.0


class NvmlDevice:
    """Reads one device. Nothing is shared with another device, so each may have its own thread."""

    def __init__(
        self, library: Library, handle: Any, index: int, uuid: str, name: str, clock: Clock, after: int = 0
    ) -> None:
        """`after` (ns, CLOCK_MONOTONIC): utilization samples up to then were given before."""
        self.handle = handle
        self.uuid = uuid
        self.state = Availability.OK
        self.device = Device(uuid, index, name)
        self._library = library
        self._clock = clock
        self._answers = Answers(clock, dict.fromkeys(_ASKED, Availability.NOT_SUPPORTED))
        self._scheduled = [bound for call in CALLS if (bound := self._bind(call))]
        self._fallbacks = FALLBACKS
        self._compute = ProcessList(library, "compute")
        self._graphics = ProcessList(library, "graphics")
        self._shares = ProcessShares(library)
        self._busy = BusySamples(library, (index % _TURNS + 1) / _TURNS, after)
        self._graphics_held: list[Held] = []
        self._processes_due = 0.0
        self._used = NAN
        self._pids: Set[int] = frozenset()
        self._early_from = 0.0
        self._graphics_due = 0.0

    def read(self, now: float) -> Sample:
        """All metrics; those that are not due keep their last value. `now` in seconds."""
        self.state = Availability.OK
        answers, read_at = self._answers, 0
        for scheduled in self._scheduled:
            if scheduled.due <= now:
                self._ask(scheduled, now)
                if not read_at:
                    # The first row of the table: what moves fastest is then of this moment, whichever call hangs.
                    read_at = self._clock.monotonic()
                if self.state is not Availability.OK:
                    break
        if self._fallbacks and self.state is Availability.OK:
            self._try_fallbacks(now)
        if self.state is not Availability.OK:
            # Old values of a device that is gone would look like a device that is there.
            answers.clear()
        values = answers.values
        missing = {name: why for name, why in answers.missing.items() if name not in values}
        if missing != self.device.missing:
            self.device = self.device._replace(missing=missing)
        return Sample(
            self.device, self.state, [values.get(name, NAN) for name in _NAMES], monotonic=read_at,
            counters_monotonic=answers.counters_at,
        )  # fmt: skip

    def processes(self, now: float) -> list[Held] | None:
        """The processes on this device, when it is time to look again, else None."""
        used = self._answers.values.get("gpu.memory_used", NAN)
        # Whoever comes or goes moves the memory, which is read at each tick anyway.
        early = now >= self._early_from and abs(used - self._used) >= _CONTEXT
        if self.state is not Availability.OK or not (early or now >= self._processes_due):
            return None
        self._used = used
        self._processes_due = self._next(now, SOON, self._processes_due)
        held = self._compute.read(self.handle)[1]
        # This call takes milliseconds and holds a driver-wide lock on some drivers: seldom.
        if now >= self._graphics_due:
            self._graphics_due = self._next(now, SELDOM, self._graphics_due)
            self._graphics_held = self._graphics.read(self.handle)[1]
        # A process may be in both lists; it counts once, as one that computes.
        by_pid = {process.pid: process for process in (*self._graphics_held, *held)}
        if early and by_pid.keys() == self._pids:
            # In vain: somebody who was there takes more or less than before, and may go on so.
            self._early_from = now + RARELY
        self._pids = by_pid.keys()
        shares = self._shares.read(self.handle) if by_pid else {}
        return [
            process._replace(sm_utilization=shares[pid][0], memory_utilization=shares[pid][1])
            if pid in shares
            else process
            for pid, process in by_pid.items()
        ]

    def busy(self, now: float, clock: Clock) -> Busy:
        """The driver's own utilization samples that are new; mostly none, as they come several seconds at once."""
        return self._busy.read(self.handle, now, clock) if self.state is Availability.OK else ()

    def _bind(self, call: Call) -> _Scheduled | None:
        read = call.make(self._library)
        return _Scheduled(call, read) if read else None

    def _ask(self, scheduled: _Scheduled, now: float) -> None:
        call = scheduled.call
        scheduled.due = self._next(now, call.period, scheduled.due)
        answers = self._answers
        code = scheduled.read(self.handle, answers)
        if code == SUCCESS:
            for name in call.metrics:
                if name in answers.values:
                    answers.missing.pop(name, None)
            return
        why = availability(code)
        for name in call.metrics:
            answers.lack(name, why)
        if why in (Availability.LOST, Availability.NO_DRIVER):
            self.state = why
            scheduled.due = now
        elif why is Availability.NOT_SUPPORTED:
            scheduled.due = _NEVER  # it will not come before the driver is loaded again

    def _try_fallbacks(self, now: float) -> None:
        """Once, after the first read: what the batch did not give is asked for by itself."""
        for call in self._fallbacks:
            if not self._answers.values.keys() >= set(call.metrics) and (bound := self._bind(call)):
                self._scheduled.append(bound)
                self._answers.single.update(call.metrics)
                self._ask(bound, now)
        self._fallbacks = ()

    def _next(self, now: float, period: float, due: float) -> float:
        """When to ask again. Devices take turns, so that slow calls do not all fall on one tick."""
        if period == EVERY_TICK:
            return now
        first = due == 0.0
        turn = period * (self.device.index % _TURNS) / _TURNS if first else 0.0
        return now + period + turn - SLACK
