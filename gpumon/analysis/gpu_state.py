"""Decides the state of a GPU, for all views: busy, allocated, idle, free, stale, lost and so on.

A state is claimed only if the frames prove it. `FREE` is the strongest claim: the GPU answers, runs no kernel, has no
process, and its memory is empty. If one of these is unknown, the state is at most `IDLE`. `HELD` requires a minute of
samples. A single frame cannot tell an idle process from a pause between two steps, so it proves only `ALLOCATED`.

A GPU in MIG mode is always `DIVIDED`: its instances are busy or free. Drivers report no utilization of an instance.
GPM's graphics activity is used instead where available; without it, an instance without processes is `FREE`, and one
with processes is `ALLOCATED`, because it is unknown whether they run kernels.
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
    """How much a busy GPU works. The value is the word that views show."""

    PAUSING = "pausing"
    LIGHT = "light load"
    BUSY = "busy"


def classify_load(share: float) -> Load:
    """Return the load for a utilization (0 to 1).

    There are words for small ones, because "busy" next to 5 % looks wrong.
    """
    return Load.BUSY if not share < LIGHT else Load.LIGHT if share >= IDLE else Load.PAUSING


class _TrackedLoad(NamedTuple):
    """The reported load of a GPU, and the evidence for another one."""

    load: Load
    worked_ns: int
    """Time of the last sample with work, ns, CLOCK_MONOTONIC."""
    changed_ns: int = 0
    """Since when all samples have indicated another load; 0 if the newest does not."""
    work: float = 0.0
    """Work since then: utilization times ns."""


class LoadTracker:
    """Determines the load of each GPU from samples in order, so that it does not change at each sample.

    A GPU that starts to work is busy at once. Its load becomes lower if all samples of `LETS_UP` seconds show it, and
    it pauses if no kernel ran for that long. A change between pausing and light load takes `STEADY` seconds.
    """

    def __init__(self) -> None:
        self._tracked: dict[str, _TrackedLoad] = {}

    def update(self, uuid: str, share: float, monotonic_ns: int, elapsed_ns: int) -> None:
        """Add the utilization (0 to 1) of a GPU at a time (ns, CLOCK_MONOTONIC).

        `elapsed_ns`: time since its previous sample.
        """
        load, tracked = classify_load(share), self._tracked.get(uuid)
        is_work = share >= IDLE
        worked = monotonic_ns if is_work or tracked is None else tracked.worked_ns
        if (
            tracked is None
            or load is Load.BUSY
            or load is tracked.load
            or (is_work and monotonic_ns - tracked.worked_ns >= PAUSE * SECOND)
        ):
            self._tracked[uuid] = _TrackedLoad(load, worked)
            return
        since = tracked.changed_ns or monotonic_ns - elapsed_ns
        work = tracked.work + share * elapsed_ns
        duration = max(1, monotonic_ns - since)
        share = work / duration
        if duration >= (LETS_UP if tracked.load is Load.BUSY or share < NO_KERNEL else STEADY) * SECOND:
            self._tracked[uuid] = _TrackedLoad(classify_load(share), worked)
        else:
            self._tracked[uuid] = _TrackedLoad(tracked.load, worked, since, work)

    def reset(self, uuid: str) -> None:
        """Forget a GPU that is free or whose work is unknown. Its next load then counts at once."""
        self._tracked.pop(uuid, None)

    def clear(self) -> None:
        """Forget all GPUs, as after a gap."""
        self._tracked.clear()

    def retain(self, uuids: Container[str]) -> None:
        """Forget all devices except those with these UUIDs."""
        self._tracked = {uuid: tracked for uuid, tracked in self._tracked.items() if uuid in uuids}

    def load(self, uuid: str) -> Load | None:
        """Return the load of a GPU at the newest sample; None if unknown."""
        tracked = self._tracked.get(uuid)
        return tracked.load if tracked else None


_UTILIZATION, _ACTIVITY = GPU_INDEX["gpu.utilization"], GPU_INDEX["gpu.graphics_activity"]
_MEMORY_USED, _MEMORY_TOTAL = GPU_INDEX["gpu.memory_used"], GPU_INDEX["gpu.memory_total"]


class GpuState(Enum):
    """State of a GPU. The value is its name in JSON and the API; `title` is the word for users."""

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
    """By identity, as members are compared: Enum's own hash is computed in Python from the name."""

    @property
    def title(self) -> str:
        """The state as an adjective for users."""
        return _TITLES.get(self, self.value)


# Looking a member up in its Enum is slow, and these are used for each device at each frame.
_OK, _STALE, _ASLEEP, _LOST = Availability.OK, Availability.STALE, Availability.ASLEEP, Availability.LOST
_BUSY, _ALLOCATED, _HELD = GpuState.BUSY, GpuState.ALLOCATED, GpuState.HELD
FREE_OR_NOT = frozenset((_BUSY, _ALLOCATED, _HELD, GpuState.ASLEEP, GpuState.FREE, GpuState.DIVIDED))
"""States that prove whether a GPU is free. "No GPU is free" is claimed only if every GPU is in one of them."""
_TITLES = {GpuState.HELD: "allocated, idle", GpuState.UNKNOWN: "state unknown", GpuState.DIVIDED: "divided by MIG"}


class Observed(NamedTuple):
    """What samples before a frame show about a GPU, in seconds; NaN without such samples."""

    since_work: float = NAN
    """Since the last sample with work."""
    idle: float = NAN
    """Idle time without a gap in the samples, since it was last taken or released."""


UNOBSERVED = Observed()


def work_share(sample: Sample) -> float:
    """Return the share of time in which kernels run: utilization, or GPM's graphics activity for a MIG instance."""
    utilization = sample.values[_UTILIZATION]
    if math.isfinite(utilization) or not sample.device.is_instance:
        return utilization
    return sample.values[_ACTIVITY]


def judge(sample: Sample, held: bool | None, observed: Observed = UNOBSERVED, live: bool = True) -> GpuState:
    """Return the state of a GPU.

    `held`: result of `is_held`. `observed`: what samples before this one show. `live`: False if this is the last frame
    of a source that stopped sampling.
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
        utilization = work_share(sample)
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
    """Return the state of a device that answers but reports no utilization."""
    if held is None or not sample.device.is_instance:
        return GpuState.UNKNOWN
    return _ALLOCATED if held else GpuState.FREE


def is_late(sample: Sample, interval: float) -> bool:
    """Return whether a GPU did not answer in time, but has a sample that is recent enough not to count as a gap.

    `interval`: planned seconds between frames.
    """
    return sample.state is _STALE and 0.0 < sample.age <= GAP * max(interval, WATCHED)


def is_held(sample: Sample, processes: Sequence[Process], has_run: bool) -> bool | None:
    """Return whether a process holds the GPU; None if that is unknown or the GPU is divided by MIG.

    `processes`: those on this device. Memory in use also proves a process, one that the list does not show because it
    is in another container or uses MPS.
    """
    if processes or has_run:
        return True
    used, total = sample.values[_MEMORY_USED], sample.values[_MEMORY_TOTAL]
    if not math.isfinite(used):
        return None
    if used > _unused_limit(sample, total):
        return None if sample.device.is_divided else True
    if not math.isfinite(total):
        return None
    return None if PROCESSES in sample.device.missing else False


def has_unlisted_holder(sample: Sample, processes: Sequence[Process]) -> bool:
    """Return whether memory is in use although no process is listed, or the list cannot be read."""
    return not processes and is_held(sample, (), False) is True


def _unused_limit(sample: Sample, total: float) -> float:
    """Bytes that may be in use on an empty GPU; the upper limit for all GPUs if `total` is NaN."""
    if math.isfinite(sample.value("gpu.memory_reserved")):
        return CONTEXT
    return max(CONTEXT, min(RESERVED_MOST, RESERVED_SHARE * total))  # min(x, NaN) returns x


class IdleTime(NamedTuple):
    """How long a GPU has been idle."""

    time: float
    """When that began, seconds since 1970."""
    seconds: float
    """Duration until the newest frame, by the monotonic clock."""
    at_least: bool
    """True if it was already idle when first sampled, so that it may have been idle for longer."""


class _IdlePeriod(NamedTuple):
    """A period without work."""

    first_seen_ns: int
    """Its first sample, ns, CLOCK_MONOTONIC."""
    time: float
    """The same, seconds since 1970."""
    at_least: bool
    """True if its beginning was not sampled."""
    begin_ns: int
    """The last sample with work before it, if there was one; else as `first_seen_ns`."""


class Activity:
    """Remembers when each GPU last worked, from frames in order. A gap between samples does not count as idle time.

    If a process took or released the GPU while it was idle, the idle time since then is known as well, because a
    process is not to blame for the time before it started.
    """

    def __init__(self) -> None:
        self._now = 0
        self._worked: dict[str, int] = {}
        self._idle: dict[str, tuple[_IdlePeriod, _IdlePeriod]] = {}
        """The whole idle period, and the part of it since the GPU was last taken or released."""
        self._free: dict[str, bool] = {}
        """Whether an idle GPU was free when that was last known."""
        self._loads = LoadTracker()
        """Updated by `add` only: callers of `watch` do not show loads."""
        self._count = 0
        """Number of devices in the last frame."""

    def add(self, frame: Frame) -> None:
        """Add a frame. If it is older than the last one, everything before is forgotten."""
        now = frame.monotonic_ns
        elapsed_ns = now - self._now
        self.watch(frame.samples, monotonic_ns=now, time=frame.time, interval=frame.interval)
        for sample in frame.samples:
            share = work_share(sample)
            if sample.state is _OK and (share >= IDLE or (share < IDLE and is_held(sample, (), bool(sample.run)))):
                self._loads.update(sample.device.uuid, share, now, elapsed_ns)
            else:
                self._loads.reset(sample.device.uuid)

    def watch(
        self,
        samples: Sequence[Sample],
        *,
        monotonic_ns: int,
        time: float,
        interval: float,
        holders: Container[str] = (),
    ) -> None:
        """Add the samples of a frame. If it is older than the last one, everything before is forgotten.

        `monotonic_ns` (CLOCK_MONOTONIC), `time` (s since 1970): when it was taken. `interval`: planned seconds between
        frames. `holders`: UUIDs of devices that are known to be held, although these samples do not show it; most
        frames of a ring have no process list.
        """
        elapsed_ns = monotonic_ns - self._now
        if elapsed_ns < 0:
            self._worked.clear()
            self._idle.clear()
            self._free.clear()
            self._loads.clear()
        is_gap = elapsed_ns > GAP * max(interval, WATCHED) * SECOND
        if is_gap:  # work before the gap proves nothing about now: the process may be gone
            self._idle.clear()
            self._worked.clear()
            self._loads.clear()
        self._now = monotonic_ns
        worked, idle, count = self._worked, self._idle, len(samples)
        if count != self._count or len(worked) > count or len(idle) > count:
            self._forget_removed(samples)
        for sample in samples:
            uuid, utilization = sample.device.uuid, sample.values[_UTILIZATION]
            if not math.isfinite(utilization):
                utilization = work_share(sample)
            if sample.state is not _OK or not math.isfinite(utilization):
                if not is_late(sample, interval):
                    idle.pop(uuid, None)
            elif utilization >= IDLE:
                worked[uuid] = monotonic_ns
                if idle:
                    idle.pop(uuid, None)
            else:
                held = is_held(sample, (), bool(sample.run) or uuid in holders)
                periods = idle.get(uuid)
                if periods is None:
                    was_working = worked.get(uuid) == monotonic_ns - elapsed_ns and elapsed_ns > 0 and not is_gap
                    begin = monotonic_ns - elapsed_ns if was_working else monotonic_ns
                    period = _IdlePeriod(monotonic_ns, time, not was_working, begin)
                    idle[uuid] = period, period
                elif held is not None and self._free.get(uuid, not held) is held:
                    idle[uuid] = periods[0], _IdlePeriod(monotonic_ns, time, False, monotonic_ns)
                if held is not None:
                    self._free[uuid] = not held

    def _forget_removed(self, samples: Sequence[Sample]) -> None:
        """Forget devices that are not in the frame any more, such as removed MIG instances."""
        self._count = len(samples)
        present = {sample.device.uuid for sample in samples}
        for by_uuid in (self._worked, self._idle, self._free):
            for uuid in by_uuid.keys() - present:
                del by_uuid[uuid]
        self._loads.retain(present)

    def observed(self, uuid: str) -> Observed:
        """Return what the samples up to the newest frame show about a GPU."""
        worked, periods = self._worked.get(uuid), self._idle.get(uuid)
        since_work = NAN if worked is None else (self._now - worked) / SECOND
        return Observed(since_work, NAN if periods is None else (self._now - periods[1].begin_ns) / SECOND)

    def load(self, uuid: str) -> Load | None:
        """Return the load of a GPU at the newest frame; None if unknown."""
        return self._loads.load(uuid)

    def idle_since(self, uuid: str) -> IdleTime | None:
        """Return for how long a GPU has been idle, without a gap in its samples.

        None if it works, or if that is unknown.
        """
        periods = self._idle.get(uuid)
        return self._idle_time(periods[0]) if periods else None

    def idle_as_held(self, uuid: str) -> IdleTime | None:
        """Return for how long a GPU has been idle since it was last taken or released; None as for `idle_since`."""
        periods = self._idle.get(uuid)
        return self._idle_time(periods[1]) if periods else None

    def _idle_time(self, period: _IdlePeriod) -> IdleTime:
        return IdleTime(period.time, (self._now - period.first_seen_ns) / SECOND, period.at_least)
