"""The one judgment of a GPU: busy, allocated, allocated but idle, idle, free, divided, asleep, unknown, stale or lost.

A state is claimed only where the frames prove it. `FREE` is the strongest claim: the GPU answers,
does nothing, lists no process, and its memory is empty. Where one of these is unknown, so is
whether it is free, and the state is `IDLE` at most. `HELD` takes a minute of watching: one frame
cannot tell idleness from a pause, so it proves `ALLOCATED` and no more.

A GPU in MIG mode is `DIVIDED`, and nothing else: its instances are what is busy or free. Of an instance no driver
tells the utilization. GPM's graphics activity stands for it where there is GPM; else an instance that nobody holds is
`FREE`, because nothing runs without a process, and one that is held is `ALLOCATED`: nobody knows whether it works.
"""

import math
from collections.abc import Container, Sequence
from enum import Enum
from typing import NamedTuple

from gpumon.analysis.thresholds import (
    CONTEXT,
    GAP,
    LETS_UP,
    LIGHT,
    NO_KERNEL,
    PAUSE,
    RESERVED_MOST,
    RESERVED_SHARE,
    STEADY,
    WATCHED,
)
from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN
from gpumon.model.frame import Frame, Sample
from gpumon.model.metrics import GPU_INDEX, IDLE, PROCESSES, Availability
from gpumon.model.process import Process


class Load(Enum):
    """The work of a GPU that counts as busy; the value is the word for people."""

    PAUSING = "pausing"
    LIGHT = "light load"
    BUSY = "busy"


def load_of(share: float) -> Load:
    """Return the load of one sample: "busy" next to 0 % reads as an error, next to 5 % too."""
    return Load.BUSY if not share < LIGHT else Load.LIGHT if share >= IDLE else Load.PAUSING


class _Course(NamedTuple):
    """The load of a GPU as it is said, and what speaks against it since when."""

    load: Load
    worked_ns: int
    """When it last did anything, ns, CLOCK_MONOTONIC."""
    since_ns: int = 0
    """Since when all samples are of another load; 0 while the newest is not."""
    work: float = 0.0
    """Work since then: shares times ns."""


class Loads:
    """Remembers the load of each GPU, from samples in their order.

    A GPU that begins to work is busy at once. One that was busy is said to work less, once all samples of some seconds
    say so, and any to pause once in such a time no kernel ran; one that pauses is said to have a light load, or the
    reverse, once those of a longer time say so.
    """

    def __init__(self) -> None:
        self._known: dict[str, _Course] = {}

    def take(self, uuid: str, share: float, monotonic_ns: int, passed: int) -> None:
        """Take in the share of time in which a GPU worked, at a moment, `passed` ns after the one before."""
        load, known = load_of(share), self._known.get(uuid)
        is_work = share >= IDLE
        worked = monotonic_ns if is_work or known is None else known.worked_ns
        if (
            known is None
            or load is Load.BUSY
            or load is known.load
            or (is_work and monotonic_ns - known.worked_ns >= PAUSE * SECOND)
        ):
            self._known[uuid] = _Course(load, worked)
            return
        since = known.since_ns or monotonic_ns - passed
        work = known.work + share * passed
        lasted = max(1, monotonic_ns - since)
        share = work / lasted
        if lasted >= (LETS_UP if known.load is Load.BUSY or share < NO_KERNEL else STEADY) * SECOND:
            self._known[uuid] = _Course(load_of(share), worked)
        else:
            self._known[uuid] = _Course(known.load, worked, since, work)

    def forget(self, uuid: str) -> None:
        """Forget a GPU that nobody holds, or whose work is not known: its next load is none that changed."""
        self._known.pop(uuid, None)

    def clear(self) -> None:
        """Forget all, as after a gap."""
        self._known.clear()

    def keep(self, uuids: Container[str]) -> None:
        """Forget devices other than these."""
        self._known = {uuid: known for uuid, known in self._known.items() if uuid in uuids}

    def of(self, uuid: str) -> Load | None:
        """Return the load of a GPU at the newest sample; None where that is not known."""
        known = self._known.get(uuid)
        return known.load if known else None


_UTILIZATION, _ACTIVITY = GPU_INDEX["gpu.utilization"], GPU_INDEX["gpu.graphics_activity"]
_MEMORY_USED, _MEMORY_TOTAL = GPU_INDEX["gpu.memory_used"], GPU_INDEX["gpu.memory_total"]


class GpuState(Enum):
    """The value is the name in the views' data; `title` is for people."""

    BUSY = "busy"
    ALLOCATED = "allocated"
    HELD = "held"
    IDLE = "idle"
    FREE = "free"
    DIVIDED = "divided"
    ASLEEP = "asleep"
    UNKNOWN = "unknown"
    STALE = "stale"
    LOST = "lost"
    UNREADABLE = "unreadable"

    __hash__ = object.__hash__
    """By identity, as members are compared: the hash of an Enum is that of its name, in Python."""

    @property
    def title(self) -> str:
        """The adjective for people."""
        return _TITLES.get(self, self.value)


# To look a member up in its class takes longer than all else that is done with it, for each device at each frame.
_OK, _STALE, _ASLEEP, _LOST = Availability.OK, Availability.STALE, Availability.ASLEEP, Availability.LOST
_BUSY, _ALLOCATED, _HELD = GpuState.BUSY, GpuState.ALLOCATED, GpuState.HELD
FREE_OR_NOT = frozenset((_BUSY, _ALLOCATED, _HELD, GpuState.ASLEEP, GpuState.FREE, GpuState.DIVIDED))
"""States of GPUs of which it is known whether they are free: that none is, is said only where all are such."""
_TITLES = {GpuState.HELD: "allocated, idle", GpuState.UNKNOWN: "state unknown", GpuState.DIVIDED: "divided by MIG"}


class Observed(NamedTuple):
    """The seconds before a frame, as far as somebody watched; NaN where nobody did."""

    since_work: float = NAN
    """Since the GPU was last seen working."""
    idle: float = NAN
    """For which it was watched without a gap and did nothing, held or free as it is now."""


UNOBSERVED = Observed()


def working(sample: Sample) -> float:
    """Return the share of time in which it works: the utilization, or else what GPM tells of a MIG instance."""
    utilization = sample.values[_UTILIZATION]
    if math.isfinite(utilization) or not sample.device.is_instance:
        return utilization
    return sample.values[_ACTIVITY]


def judge(sample: Sample, held: bool | None, observed: Observed = UNOBSERVED, live: bool = True) -> GpuState:
    """Return the state of a GPU.

    `held` as from `is_held`; `observed` is what was seen before; `live` is false where the frame is the
    last one of a source that went silent.
    """
    if sample.state is _LOST:
        return GpuState.LOST
    if sample.state not in (_OK, _STALE, _ASLEEP):
        return GpuState.UNREADABLE
    if sample.state is _STALE or not live:
        return GpuState.STALE
    if sample.state is _ASLEEP:
        return GpuState.ASLEEP
    utilization = sample.values[_UTILIZATION]
    if not math.isfinite(utilization):
        if sample.device.is_divided:
            return GpuState.DIVIDED
        utilization = working(sample)
        if not math.isfinite(utilization):
            return _unmeasured(sample, held)
    if utilization >= IDLE:
        return _BUSY
    if held is None:
        return GpuState.IDLE
    if not held:
        return GpuState.FREE
    if observed.since_work < PAUSE:
        return _BUSY
    return _HELD if observed.idle >= PAUSE else _ALLOCATED


def _unmeasured(sample: Sample, held: bool | None) -> GpuState:
    """Return the state of a device that answers, and of which nobody knows whether it works."""
    if held is None or not sample.device.is_instance:
        return GpuState.UNKNOWN
    return _ALLOCATED if held else GpuState.FREE


def is_late(sample: Sample, interval: float) -> bool:
    """Return whether a GPU only did not answer in time, and was seen no longer ago than frames may lie apart."""
    return sample.state is _STALE and 0.0 < sample.age <= GAP * max(interval, WATCHED)


def is_held(sample: Sample, processes: Sequence[Process], has_run: bool) -> bool | None:
    """Return whether a process holds the GPU; None where that cannot be known, or MIG divides it.

    `processes` are those on this device. Memory in use proves a holder whom the process list does
    not show, as in another container or under MPS.
    """
    if processes or has_run:
        return True
    used, total = sample.values[_MEMORY_USED], sample.values[_MEMORY_TOTAL]
    if not math.isfinite(used):
        return None
    if used > _empty(sample, total):
        return None if sample.device.is_divided else True
    if not math.isfinite(total):
        return None
    return None if PROCESSES in sample.device.missing else False


def has_unlisted_holder(sample: Sample, processes: Sequence[Process]) -> bool:
    """Return whether memory is in use although the process list is empty or unreadable."""
    return not processes and is_held(sample, (), False) is True


def _empty(sample: Sample, total: float) -> float:
    """Bytes that an empty GPU may have in use; the most of any GPU where `total` is unknown."""
    if math.isfinite(sample.value("gpu.memory_reserved")):
        return CONTEXT
    return max(CONTEXT, min(RESERVED_MOST, RESERVED_SHARE * total))  # of NaN, min returns what stands before it


class IdleSince(NamedTuple):
    """Since when a GPU has done nothing."""

    time: float
    """Seconds since 1970."""
    seconds: float
    """Until the newest frame, by the monotonic clock."""
    at_least: bool
    """It was idle when first seen, so it may have been idle for longer."""


class _Quiet(NamedTuple):
    """A time without work."""

    begun_ns: int
    """When it was first seen, ns, CLOCK_MONOTONIC."""
    time: float
    """The same, seconds since 1970."""
    at_least: bool
    """Nobody saw it begin."""
    counted_ns: int
    """From when on it did nothing: the frame of work before, where there was one."""


class Activity:
    """Remembers when each GPU last worked, from frames in their order. A gap is not idleness.

    Of a GPU that was taken or released since, it also tells for how long it has done nothing as it is held now: a
    holder is not idle for the time before they came.
    """

    def __init__(self) -> None:
        self._now = 0
        self._worked: dict[str, int] = {}
        self._idle: dict[str, tuple[_Quiet, _Quiet]] = {}
        """The whole time without work, and that in which the GPU was held, or was free, as it is now."""
        self._free: dict[str, bool] = {}
        """Whether a GPU that does nothing was free when that was last known."""
        self._loads = Loads()
        """Of views, which take in frames: who only counts has no use for words."""
        self._count = 0
        """Devices of the last frame."""

    def add(self, frame: Frame) -> None:
        """Take in a frame; one that is older than the last begins anew."""
        now = frame.monotonic_ns
        passed = now - self._now
        self.watch(frame.samples, monotonic_ns=now, time=frame.time, interval=frame.interval)
        for sample in frame.samples:
            share = working(sample)
            if sample.state is _OK and (share >= IDLE or (share < IDLE and is_held(sample, (), bool(sample.run)))):
                self._loads.take(sample.device.uuid, share, now, passed)
            else:
                self._loads.forget(sample.device.uuid)

    def watch(
        self,
        samples: Sequence[Sample],
        *,
        monotonic_ns: int,
        time: float,
        interval: float,
        holders: Container[str] = (),
    ) -> None:
        """Take in what a frame has: when it was taken (ns, CLOCK_MONOTONIC; s since 1970), and its seconds as planned.

        `holders` has the UUIDs that somebody is known to hold, besides what samples prove: most frames of a ring tell
        of no processes. A frame that is older than the last begins anew.
        """
        passed = monotonic_ns - self._now
        if passed < 0:
            self._worked.clear()
            self._idle.clear()
            self._free.clear()
            self._loads.clear()
        is_gap = passed > GAP * max(interval, WATCHED) * SECOND
        if is_gap:  # work before it proves no pause: whoever worked may be gone
            self._idle.clear()
            self._worked.clear()
            self._loads.clear()
        self._now = monotonic_ns
        worked, idle, count = self._worked, self._idle, len(samples)
        if count != self._count or len(worked) > count or len(idle) > count:
            self._forget_gone(samples)
        for sample in samples:
            uuid, utilization = sample.device.uuid, sample.values[_UTILIZATION]
            if not math.isfinite(utilization):
                utilization = working(sample)
            if sample.state is not _OK or not math.isfinite(utilization):
                if not is_late(sample, interval):
                    idle.pop(uuid, None)
            elif utilization >= IDLE:
                worked[uuid] = monotonic_ns
                if idle:
                    idle.pop(uuid, None)
            else:
                held = is_held(sample, (), bool(sample.run) or uuid in holders)
                known = idle.get(uuid)
                if known is None:
                    seen_ending = worked.get(uuid) == monotonic_ns - passed and passed > 0 and not is_gap
                    counted = monotonic_ns - passed if seen_ending else monotonic_ns
                    quiet = _Quiet(monotonic_ns, time, not seen_ending, counted)
                    idle[uuid] = quiet, quiet
                elif held is not None and self._free.get(uuid, not held) is held:
                    idle[uuid] = known[0], _Quiet(monotonic_ns, time, False, monotonic_ns)
                if held is not None:
                    self._free[uuid] = not held

    def _forget_gone(self, samples: Sequence[Sample]) -> None:
        """Forget devices without a row, as MIG instances that are gone: nobody watches them."""
        self._count = len(samples)
        there = {sample.device.uuid for sample in samples}
        for of_all in (self._worked, self._idle, self._free):
            for uuid in of_all.keys() - there:
                del of_all[uuid]
        self._loads.keep(there)

    def observed(self, uuid: str) -> Observed:
        """Return the seconds before the newest frame, as far as the GPU was watched."""
        worked, found = self._worked.get(uuid), self._idle.get(uuid)
        since_work = NAN if worked is None else (self._now - worked) / SECOND
        return Observed(since_work, NAN if found is None else (self._now - found[1].counted_ns) / SECOND)

    def load(self, uuid: str) -> Load | None:
        """Return how much a GPU works at the newest frame, for some seconds; None where that is not known."""
        return self._loads.of(uuid)

    def idle_since(self, uuid: str) -> IdleSince | None:
        """Since when it has done nothing without a gap; None where it works or that is unknown."""
        found = self._idle.get(uuid)
        return self._since(found[0]) if found else None

    def idle_as_held(self, uuid: str) -> IdleSince | None:
        """The same, but not from before it was taken, or released, last."""
        found = self._idle.get(uuid)
        return self._since(found[1]) if found else None

    def _since(self, quiet: _Quiet) -> IdleSince:
        return IdleSince(quiet.time, (self._now - quiet.begun_ns) / SECOND, quiet.at_least)
