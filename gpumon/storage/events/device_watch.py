"""Detects events from ticks: lost GPUs, throttling, GPUs held idle, XID errors, and changes of the wall clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import ge, itemgetter, sub, truediv

from gpumon.analysis.gpu_state import GpuState, is_late
from gpumon.analysis.holders import HeldDevice
from gpumon.analysis.thresholds import LONG_IDLE
from gpumon.analysis.throttling import CAUSES
from gpumon.common.clock import SECOND
from gpumon.model.energy import FOLLOWS, is_newly_missing
from gpumon.model.events import CLOCK_SET, XID, Event, EventSubject, unseen_end
from gpumon.model.frame import Run, RunState, Sample, Tick, XidEvent
from gpumon.model.metrics import GPU_INDEX, Availability
from gpumon.model.origin import Driver
from gpumon.model.xids import xid_of
from gpumon.storage.history.buckets import is_gap

QUIET = 10 * SECOND
"""Throttling counts as ended only after this many ns without throttling, because it may start and stop many times a
minute."""
_NAMES = tuple(metric.name for metric in CAUSES)
_WARNS = tuple(metric.warn for metric in CAUSES)
_COUNTERS = itemgetter(*(GPU_INDEX[metric.name] for metric in CAUSES))
# Module constants, because looking up enum members for each device at each tick costs more than using them.
_OK = Availability.OK
_FOLLOWS = round(FOLLOWS * SECOND)
_LONG_IDLE_NS = round(LONG_IDLE * SECOND)
_UNKNOWN, _HELD = GpuState.UNKNOWN, GpuState.HELD
_LOST = (Availability.LOST, Availability.RESET_REQUIRED, Availability.ABSENT)
_ANSWERS = (Availability.OK, Availability.ASLEEP)


@dataclass(slots=True)
class _Throttling:
    """Ongoing throttling of a device with one cause."""

    begun_ns: int
    """Start of the throttling, in ns of CLOCK_MONOTONIC."""
    last_ns: int = 0
    """Newest tick with throttling, in ns of CLOCK_MONOTONIC."""
    last_time_ns: int = 0
    """Time of this tick in ns since 1970."""


@dataclass(slots=True)
class _Counters:
    """Last reading of the throttling counters of a device."""

    values: tuple[float, ...]
    read_ns: int
    """Time of the newest reading, in ns of CLOCK_MONOTONIC."""
    is_first: bool = True
    """Whether this is the first reading of the device."""


@dataclass(frozen=True, slots=True)
class _Growth:
    """Growth of the throttling counters between two readings."""

    rates: Sequence[float]
    """Growth per second in the order of `CAUSES`; negative if a counter decreased."""
    is_first: bool
    """Whether the earlier of the two readings was the first reading of the device."""


class DeviceWatch:
    """Detects events of GPUs and the driver, and keeps the list of events that have not ended."""

    def __init__(self) -> None:
        self._tick: Tick | None = None
        self._lost: dict[str, int] = {}
        """Time at which each lost device was lost, in ns of CLOCK_MONOTONIC."""
        self._no_driver_ns: int | None = None
        """Time at which the driver was lost, in ns of CLOCK_MONOTONIC; None if it is loaded."""
        self._driver = Driver()
        self._counters: dict[str, _Counters] = {}
        self._throttled: dict[tuple[str, str], _Throttling] = {}
        """Ongoing throttling by device UUID and metric."""
        self._idle: dict[str, dict[str, int]] = {}
        """For each device UUID and user, the start of the idle time that was reported, in ns of CLOCK_MONOTONIC."""

    def add(self, tick: Tick, judged: Sequence[HeldDevice]) -> Iterator[Event]:
        """Yield the events between the previous tick and this one.

        `judged`: holders and state of each GPU at this tick.
        """
        previous, self._tick = self._tick, tick
        is_first = previous is None
        if previous is not None and is_gap(
            (tick.monotonic_ns - previous.monotonic_ns) / SECOND, (tick.time_ns - previous.time_ns) / SECOND,
            tick.interval_ns / SECOND,
        ):  # fmt: skip
            self._counters.clear()
            yield from self._close_all(previous)
        states = [sample.state for sample in tick.samples]
        is_well = states.count(_OK) == len(states)
        if not is_well or self._no_driver_ns is not None or tick.driver != self._driver:
            yield from self._driver_events(tick, is_first=is_first)
        for gpu in judged:
            sample = gpu.sample
            if is_late(sample, tick.interval_ns / SECOND):
                continue
            if sample.state is not _OK or gpu.state is _UNKNOWN:
                if previous is not None:
                    yield from self._close_device(sample.device.uuid, previous)
            elif (growth := self._counter_growth(sample, tick)) is not None:
                yield from self._throttling_began(sample.device.uuid, growth, tick)
            if (self._lost or sample.state in _LOST) and not sample.device.is_instance:
                yield from self._loss_events(sample, tick, is_first=is_first)
            if gpu.state is _HELD or (self._idle and sample.device.uuid in self._idle):
                yield from self._idle_events(gpu, tick)
        if self._throttled:
            yield from self._throttling_ended(tick)
        if previous is not None and (self._idle or len(self._counters) > len(states)):  # MIG instances come and go
            present = {sample.device.uuid for sample in tick.samples}
            for uuid in [uuid for uuid in {**self._idle, **self._counters} if uuid not in present]:
                yield from self._close_device(uuid, previous)

    def finish(self) -> Iterator[Event]:
        """Yield an end event for each event that has not ended. Called when no more ticks will follow."""
        if self._tick is not None:
            yield from self._close_all(self._tick)

    def _driver_events(self, tick: Tick, *, is_first: bool) -> Iterator[Event]:
        if _has_lost_driver(tick.samples):
            if self._no_driver_ns is None:
                self._no_driver_ns = tick.monotonic_ns
                details = {"reason": tick.origin.problem[:200], **({"at_start": True} if is_first else {})}
                yield Event(tick.time_ns, "driver_lost", details=details)
            return
        driver = tick.driver
        if self._no_driver_ns is not None and any(sample.state in _ANSWERS for sample in tick.samples):
            lasted = (tick.monotonic_ns - self._no_driver_ns) / SECOND
            self._no_driver_ns = None
            details = {"version": driver.version, "before": self._driver.version}
            yield Event(tick.time_ns, "driver_reloaded", details=details, lasted=lasted)
        elif driver.version and self._driver.version and driver.version != self._driver.version:
            details = {"version": driver.version, "before": self._driver.version}
            yield Event(tick.time_ns, "driver_reloaded", details=details)
        if driver.version:
            self._driver = driver

    def _loss_events(self, sample: Sample, tick: Tick, *, is_first: bool) -> Iterator[Event]:
        uuid = sample.device.uuid
        if sample.state in _LOST:
            if uuid not in self._lost:
                self._lost[uuid] = tick.monotonic_ns
                details = {"reason": sample.reason, **({"at_start": True} if is_first else {})}
                yield Event(tick.time_ns, "gpu_lost", EventSubject(uuid), details)
        elif sample.state in _ANSWERS and uuid in self._lost:
            lasted = (tick.monotonic_ns - self._lost.pop(uuid)) / SECOND
            yield Event(tick.time_ns, "gpu_back", EventSubject(uuid), lasted=lasted)

    def _counter_growth(self, sample: Sample, tick: Tick) -> _Growth | None:
        """Return the growth since the last reading.

        None if there is no new reading, or if the growth does not call for an event.
        """
        counters = _COUNTERS(sample.values)
        at = sample.counters_monotonic_ns or sample.monotonic_ns or tick.monotonic_ns
        last = self._counters.get(sample.device.uuid)
        if last is None:
            self._counters[sample.device.uuid] = _Counters(counters, at)
            return None
        passed = at - last.read_ns
        if passed <= 0 or (passed <= _FOLLOWS and is_newly_missing(last.values, counters)):
            return None  # the driver may report the same values twice, or may leave some out for one tick
        previous, last.values, last.read_ns = last.values, counters, at
        is_first, last.is_first = last.is_first, False
        if counters == previous:
            return None
        seconds = passed / SECOND
        rates = list(map(truediv, map(sub, counters, previous), repeat(seconds)))
        return _Growth(rates, is_first) if any(map(ge, rates, _WARNS)) else None

    def _throttling_began(self, uuid: str, growth: _Growth, tick: Tick) -> Iterator[Event]:
        throttled, monotonic_ns, time_ns = self._throttled, tick.monotonic_ns, tick.time_ns
        for name, warn, share in zip(_NAMES, _WARNS, growth.rates, strict=True):
            if share >= warn:
                throttling = throttled.get((uuid, name))
                if throttling is None:
                    details = {"at_least": True} if growth.is_first else {}
                    yield Event(time_ns, "throttling_began", EventSubject(uuid, cause=name), details)
                    throttling = throttled[uuid, name] = _Throttling(monotonic_ns)
                throttling.last_ns, throttling.last_time_ns = monotonic_ns, time_ns

    def _throttling_ended(self, tick: Tick) -> Iterator[Event]:
        since_ns = tick.monotonic_ns - QUIET
        ended = [(key, throttling) for key, throttling in self._throttled.items() if throttling.last_ns <= since_ns]
        for (uuid, cause), throttling in ended:
            del self._throttled[uuid, cause]
            lasted, subject = (throttling.last_ns - throttling.begun_ns) / SECOND, EventSubject(uuid, cause=cause)
            yield Event(throttling.last_time_ns, "throttling_ended", subject, lasted=lasted)

    def _idle_events(self, gpu: HeldDevice, tick: Tick) -> Iterator[Event]:
        uuid = gpu.sample.device.uuid
        begun, users = self._idle.get(uuid, {}), gpu.users if gpu.state is _HELD else {}
        for user in [user for user in begun if user not in users]:
            lasted = (tick.monotonic_ns - begun.pop(user)) / SECOND
            yield Event(tick.time_ns, "idle_ended", EventSubject(uuid, user), lasted=lasted)
        since = gpu.idle_as_held
        if since is not None and begun.keys() != users.keys():
            idle_ns = round(since.seconds * SECOND)
            for user in [user for user in users if user not in begun]:
                held_ns = tick.monotonic_ns - gpu.since.get(user, 0)
                if min(idle_ns, held_ns) < _LONG_IDLE_NS:
                    continue
                begun[user] = tick.monotonic_ns - min(idle_ns, held_ns)
                was_idle = held_ns < idle_ns  # true if the GPU was already idle when this user came
                time_ns = tick.time_ns - held_ns if was_idle else round(since.time * SECOND)
                details = {"at_least": True} if since.at_least and not was_idle else {}
                yield Event(time_ns, "idle_began", EventSubject(uuid, user), details)
        if begun:
            self._idle[uuid] = begun
        else:
            self._idle.pop(uuid, None)

    def _close_device(self, uuid: str, last: Tick) -> Iterator[Event]:
        """Yield an unobserved end for each ongoing event of a device.

        `last`: the last tick that contained the device.
        """
        self._counters.pop(uuid, None)
        for device, cause in [key for key in self._throttled if key[0] == uuid]:
            del self._throttled[device, cause]
            yield unseen_end(last.time_ns, "throttling_began", EventSubject(uuid, cause=cause))
        for user in self._idle.pop(uuid, ()):
            yield unseen_end(last.time_ns, "idle_began", EventSubject(uuid, user))

    def _close_all(self, last: Tick) -> Iterator[Event]:
        """Yield an unobserved end for each ongoing event of all devices. `last`: the last tick that contained them."""
        for uuid in {*self._idle, *(uuid for uuid, _ in self._throttled)}:
            yield from self._close_device(uuid, last)


def _has_lost_driver(samples: Sequence[Sample]) -> bool:
    """Return whether all GPUs of a source report a missing driver.

    If only some GPUs report it, these GPUs have the problem, not the driver.
    """
    without = {sample.device.source for sample in samples if sample.state is Availability.NO_DRIVER}
    return bool(without - {sample.device.source for sample in samples if sample.state is not Availability.NO_DRIVER})


REPEAT_INTERVAL = 60 * SECOND
"""Length in ns of a period in which errors with one code on one GPU give at most two events: an immediate one for the
first error, and one for all repeats together."""


RUN_END_MARGIN = 10.0
"""An error that is reported up to this many seconds after the end of a run is assigned to the run, because the error
often caused the end."""


class _XidReports:
    """Errors with one code on a device since the last error for which there was an event."""

    def __init__(self, xid: XidEvent, subject: EventSubject) -> None:
        self.first = xid
        self.subject = subject
        self.last = xid
        self.repeats = 0


class XidWatch:
    """Turns XID errors into events. Errors that repeat within a short time become one event."""

    def __init__(self) -> None:
        self._recent: dict[tuple[str, int], _XidReports] = {}

    def add(self, tick: Tick) -> Iterator[Event]:
        """Yield the events between the previous tick and this one."""
        for key, reports in list(self._recent.items()):
            if tick.monotonic_ns - reports.first.monotonic_ns >= REPEAT_INTERVAL:
                del self._recent[key]
                yield from _repeat_event(reports)
        for xid in tick.xids:
            recent = self._recent.get((xid.uuid, xid.code))
            if recent is None:
                subject = _subject(xid, tick)
                self._recent[xid.uuid, xid.code] = _XidReports(xid, subject)
                yield _xid_event(xid, subject)
            else:
                recent.last = xid
                recent.repeats += 1

    def finish(self) -> Iterator[Event]:
        """Yield events for the repeated errors that have not been reported yet."""
        recent, self._recent = self._recent, {}
        for reports in recent.values():
            yield from _repeat_event(reports)


def _xid_event(xid: XidEvent, subject: EventSubject, times: int = 0) -> Event:
    details = {"code": xid.code, "meaning": xid_of(xid.code).meaning, **({"times": times} if times else {})}
    return Event(xid.time_ns, XID, subject, details)


def _repeat_event(reports: _XidReports) -> Iterator[Event]:
    if reports.repeats:
        yield _xid_event(reports.last, reports.subject, reports.repeats)


def _subject(xid: XidEvent, tick: Tick) -> EventSubject:
    """Return the GPU and its run as the subject of an event.

    If there are several runs on the GPU, no run is set, because the driver does not report which of them failed.
    """
    runs = {(run.user, run.id or run.key) for run in tick.runs if xid.uuid in run.gpus and _is_affected(run, xid)}
    user, run = runs.pop() if len(runs) == 1 else ("", "")
    return EventSubject(xid.uuid, user, run, str(xid.code))


def _is_affected(run: Run, xid: XidEvent) -> bool:
    time = xid.time_ns / SECOND
    return run.state is RunState.RUNNING or run.started <= time <= run.updated + RUN_END_MARGIN


MIN_CLOCK_STEP = 5.0
"""Minimum seconds by which the clock must be set to be reported. A smaller difference may be a correction of the clock,
or the time between the two readings."""


def suspended_seconds() -> float:
    """Return the total seconds for which the machine has been suspended since it was booted."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)


class ClockWatch:
    """Detects that the wall clock was set, by comparing it at each tick with CLOCK_MONOTONIC.

    CLOCK_MONOTONIC stops while the machine is suspended, but the wall clock does not. `suspended` returns the total
    seconds for which the machine has been suspended.
    """

    def __init__(self, suspended: Callable[[], float] = suspended_seconds) -> None:
        self._suspended = suspended
        self._explained = 0.0
        """Seconds of suspension that were already subtracted from earlier differences between the clocks."""
        self._ahead_ns: int | None = None

    def add(self, tick: Tick) -> Iterator[Event]:
        """Yield an event if the clock was set since the previous tick."""
        ahead_ns = tick.time_ns - tick.monotonic_ns
        before_ns, self._ahead_ns = self._ahead_ns, ahead_ns
        if before_ns is None or abs(ahead_ns - before_ns) < MIN_CLOCK_STEP * SECOND:
            return
        seconds = (ahead_ns - before_ns) / SECOND
        if seconds > 0:
            suspended = min(seconds, max(0.0, self._suspended() - self._explained))
            self._explained += suspended
            seconds -= suspended
        if abs(seconds) >= MIN_CLOCK_STEP:
            yield Event(tick.time_ns, CLOCK_SET, details={"seconds": round(seconds, 1)})
