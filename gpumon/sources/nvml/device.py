"""One GPU: what it supports, what is due, and its last values."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from gpumon.clock import Clock
from gpumon.frame import NAN, Device, Sample
from gpumon.metrics import FROM_DRIVERS, GPU_METRICS, PROCESSES, Availability
from gpumon.sources.nvml.answers import AGAIN, EVERY_TICK, RARELY, SELDOM, SLACK, SOON, Answers, Read
from gpumon.sources.nvml.library import SUCCESS, Library, availability, unspoken
from gpumon.sources.nvml.processes import Held, ProcessList, ProcessShares
from gpumon.sources.nvml.readings import CALLS, FALLBACKS, Call
from gpumon.sources.nvml.utilization_samples import SampleBuffer, UtilizationSamples

_NAMES = tuple(metric.name for metric in GPU_METRICS)
ASKED = frozenset(name for call in (*CALLS, *FALLBACKS) for name in call.metrics)
"""Metrics that are asked for: all that this source can give."""
_NANS = (NAN,) * len(_NAMES)
_TURNS = 8
_CONTEXT = 32 << 20
"""Bytes by which the memory of a device changes at least when a process comes or goes: its CUDA context takes more."""
_GONE = (Availability.LOST, Availability.NO_DRIVER)
"""Of these one call is proof: nothing more is asked."""
_WORST = (
    Availability.RESET_REQUIRED, Availability.NO_PERMISSION, Availability.FAILED, Availability.NOT_SUPPORTED,
)  # fmt: skip
"""What to call a device of which nothing can be read, where its calls do not agree."""


class _Scheduled:
    """A call of the table, bound to this device's buffers, and when it is next due."""

    __slots__ = ("call", "code", "due", "metrics", "read")

    def __init__(self, call: Call, read: Read) -> None:
        self.call = call
        self.metrics = frozenset(call.metrics)
        self.read = read
        self.due = 0.0
        self.code = SUCCESS
        """What it answered last."""


class NvmlDevice:
    """Reads one device. Nothing is shared with another device, so each may have its own thread."""

    def __init__(
        self, library: Library, handle: Any, index: int, uuid: str, name: str, clock: Clock, after: int = 0
    ) -> None:
        """`after` (ns, CLOCK_MONOTONIC): utilization samples up to then were given before."""
        self.handle = handle
        self.uuid = uuid
        self.state = Availability.OK
        self.failure = SUCCESS
        """The driver's code where the state is not OK."""
        self.device = Device(uuid, index, name)
        self._clock = clock
        self._answers = Answers(clock, dict.fromkeys(FROM_DRIVERS, Availability.NOT_SUPPORTED))
        self._calls = [_Scheduled(call, read) for call in CALLS if (read := call.make(library))]
        self._fallbacks = [_Scheduled(call, read) for call in FALLBACKS if (read := call.make(library))]
        self._compute = ProcessList(library, "compute")
        self._graphics = ProcessList(library, "graphics")
        self._shares = ProcessShares(library, clock)
        self._sample_buffer = SampleBuffer(library, (index % _TURNS + 1) / _TURNS, after)
        self._graphics_held: list[Held] = []
        self._graphics_code = SUCCESS
        self._processes_due = 0.0
        self._used = NAN
        self._pids: Set[int] = frozenset()
        self._early_from = 0.0
        self._graphics_due = 0.0
        self._doubt_from = 0.0
        self._is_gone = False

    def read(self, now: float) -> Sample:
        """All metrics; those that are not due keep their last value. `now` in seconds."""
        answers, before = self._answers, self.state
        answers.read_at = 0
        if not self._ask_due(now):
            self._doubt(now)
        elif before is not Availability.OK:
            self._ask_all(now)  # nothing was kept of what is read seldom
        if self.state is Availability.OK:
            self._try_fallbacks(now)
        else:
            # Old values of a device that is gone would look like a device that is there.
            answers.clear()
        self._tell_missing()
        values = list(map(answers.values.get, _NAMES, _NANS))
        return Sample(self.device, self.state, values, "", 0.0, answers.read_at, answers.counters_at)

    def processes(self, now: float) -> list[Held] | None:
        """The processes on this device that are known, when it is time to look again, else None.

        Where they are not all, `device.missing` has the reason.
        """
        if self.state is not Availability.OK:
            return self._no_processes()
        used = self._answers.values.get("gpu.memory_used", NAN)
        # Whoever comes or goes moves the memory, which is read at each tick anyway.
        early = now >= self._early_from and abs(used - self._used) >= _CONTEXT
        if not (early or now >= self._processes_due):
            return None
        self._used = used
        self._processes_due = self._next(now, SOON, self._processes_due)
        code, held = self._compute.read(self.handle)
        # This call takes milliseconds and holds a driver-wide lock on some drivers: seldom.
        if now >= self._graphics_due:
            self._graphics_due = self._next(now, SELDOM, self._graphics_due)
            self._graphics_code, self._graphics_held = self._graphics.read(self.handle)
        self._judge_lists(code, now)
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

    def utilization_samples(self, now: float, clock: Clock) -> UtilizationSamples:
        """The driver's own utilization samples that are new; mostly none, as they come several seconds at once."""
        return self._sample_buffer.read(self.handle, now, clock) if self.state is Availability.OK else ()

    def _ask_due(self, now: float) -> bool:
        """Ask what is due. Whether it answers: anything at all, and to no call that it is gone."""
        answers = self._answers
        answered = self._is_gone = False
        for scheduled in self._calls:
            if scheduled.due <= now:
                code = self._ask(scheduled, now, answers.single)
                # After the first row of the table: what moves fastest is then of this moment, whichever call hangs.
                if not answers.read_at:
                    answers.read_at = self._clock.monotonic()
                if code == SUCCESS:
                    answered = True
                    if scheduled.call.period == EVERY_TICK:
                        self._doubt_from = 0.0  # it is well: the next silence is another one
                elif availability(code) in _GONE:
                    self.state, self.failure, self._is_gone = availability(code), code, True
                    return False
        if answered:
            self.state, self.failure = Availability.OK, SUCCESS
        return answered

    def _ask_all(self, now: float) -> bool:
        """Ask for everything that is not read at each tick."""
        for scheduled in self._calls:
            if scheduled.call.period != EVERY_TICK:
                scheduled.due = 0.0
        return self._ask_due(now)

    def _doubt(self, now: float) -> None:
        """Nothing answered: is it this device, or only these calls? The others tell."""
        if not self._is_gone and now >= self._doubt_from:
            self._doubt_from = now + RARELY
            self._ask_all(now)
        if self._is_gone:
            return
        codes = [scheduled.code for scheduled in self._calls]
        if codes and SUCCESS not in codes:
            self.failure = min(codes, key=lambda code: _WORST.index(availability(code)))
            self.state = availability(self.failure)

    def _ask(self, scheduled: _Scheduled, now: float, kept: Set[str] = frozenset()) -> int:
        """Make one call. Of the metrics that it cannot give, those `kept` come from elsewhere."""
        call, answers = scheduled.call, self._answers
        scheduled.due = self._next(now, call.period, scheduled.due)
        code = scheduled.code = scheduled.read(self.handle, answers)
        if code == SUCCESS:
            if not answers.missing.keys().isdisjoint(call.metrics):
                for name in call.metrics:
                    if name in answers.values:
                        answers.missing.pop(name, None)
            return code
        why = availability(code)
        for name in call.metrics:
            if name not in kept:
                answers.lack(name, why)
        if why is Availability.NOT_SUPPORTED:
            scheduled.due = now + AGAIN  # a MIG mode or a reset may change that
        return code

    def _try_fallbacks(self, now: float) -> None:
        """Ask by itself for what the batch does not give."""
        answers = self._answers
        for scheduled in self._fallbacks:
            metrics = scheduled.metrics
            if answers.batched >= scheduled.metrics:
                answers.single.difference_update(metrics)
            elif scheduled.due <= now or not answers.single >= scheduled.metrics:
                if self._ask(scheduled, now) == SUCCESS:
                    answers.single.update(metrics)
                else:
                    answers.single.difference_update(metrics)

    def _judge_lists(self, code: int, now: float) -> None:
        """Say that processes may be there which a list did not give."""
        why = availability(code)
        if why is Availability.NOT_SUPPORTED:
            self._processes_due = self._early_from = now + AGAIN
        elif why is Availability.OK and not unspoken(self._graphics_code):
            why = availability(self._graphics_code)  # a card that has no list of what draws has nothing that draws
        if why is Availability.OK:
            self._answers.missing.pop(PROCESSES, None)
        else:
            self._answers.missing[PROCESSES] = why
        self._tell_missing()

    def _no_processes(self) -> list[Held] | None:
        """Nobody knows who is on a device that does not answer; asked at once when it does."""
        self._processes_due = self._graphics_due = self._early_from = 0.0
        self._answers.missing[PROCESSES] = self.state
        self._tell_missing()
        if not self._pids:
            return None
        self._pids = frozenset()
        return []

    def _tell_missing(self) -> None:
        if not self._answers.missing and not self.device.missing:
            return
        values = self._answers.values
        missing = {name: why for name, why in self._answers.missing.items() if name not in values}
        if missing != self.device.missing:
            self.device = self.device._replace(missing=missing)

    def _next(self, now: float, period: float, due: float) -> float:
        """When to ask again. Devices take turns, so that slow calls do not all fall on one tick."""
        if period == EVERY_TICK:
            return now
        turn = (_TURNS - self.device.index % _TURNS) / _TURNS if due == 0.0 else 1.0
        return now + period * turn - SLACK
