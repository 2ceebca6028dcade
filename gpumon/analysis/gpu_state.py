"""Determines the state of a GPU for all views: busy, allocated, idle, free, stale, lost and so on.

A state is reported only if the frames prove it. `FREE` requires the most: the GPU answers, runs no kernel, has no
process, and its memory is empty. If one of these cannot be determined, the state is at most `IDLE`. `HELD` requires a
minute of samples, because a single frame cannot distinguish an idle process from a pause between two steps. A single
frame proves only `ALLOCATED`.

A GPU in MIG mode is always `DIVIDED`; busy and free are states of its instances. Drivers do not report the utilization
of an instance, so GPM's graphics activity is used if it is available. If it is not available, an instance without
processes is `FREE`. An instance with processes is then `ALLOCATED`, because nothing shows whether the processes run
kernels.
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
    """The load of a busy GPU. The value is the word that views show."""

    PAUSING = "pausing"
    LIGHT = "light load"
    BUSY = "busy"


def classify_load(share: float) -> Load:
    """Return the load for a utilization (0 to 1).

    Low utilization gets other words than "busy", because "busy" next to 5 % looks wrong.
    """
    return Load.BUSY if not share < LIGHT else Load.LIGHT if share >= IDLE else Load.PAUSING


class _TrackedLoad(NamedTuple):
    """The reported load of a GPU, and the data from which a change of the load is detected."""

    load: Load
    worked_ns: int
    """Time of the last sample in which the GPU was busy, in ns of CLOCK_MONOTONIC."""
    changed_ns: int = 0
    """Time (ns, CLOCK_MONOTONIC) since which every sample has indicated a load other than the reported one. 0 if the
    newest sample indicates the reported load."""
    work: float = 0.0
    """Work since `changed_ns`, as the sum of utilization (0 to 1) times ns."""


class LoadTracker:
    """Determines the load of each GPU from its samples, smoothed so that the load does not change with every sample.

    Samples must be added in chronological order. A GPU that starts to work gets its new load immediately. A busy GPU
    gets a lower load after `LETS_UP` seconds in which every sample showed a lower load. A GPU with light load changes
    to pausing after `LETS_UP` seconds without a kernel. Any other change between light load and pausing takes `STEADY`
    seconds.
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
        """Delete the data of a GPU that is free or has no utilization value. Its next load is reported immediately."""
        self._tracked.pop(uuid, None)

    def clear(self) -> None:
        """Delete the data of all GPUs, for example after a gap in the samples."""
        self._tracked.clear()

    def retain(self, uuids: Container[str]) -> None:
        """Delete the data of all devices except for these UUIDs."""
        self._tracked = {uuid: tracked for uuid, tracked in self._tracked.items() if uuid in uuids}

    def load(self, uuid: str) -> Load | None:
        """Return the load of a GPU at the newest sample, or None if unknown."""
        tracked = self._tracked.get(uuid)
        return tracked.load if tracked else None


_UTILIZATION, _ACTIVITY = GPU_INDEX["gpu.utilization"], GPU_INDEX["gpu.graphics_activity"]
_MEMORY_USED, _MEMORY_TOTAL = GPU_INDEX["gpu.memory_used"], GPU_INDEX["gpu.memory_total"]


class GpuState(Enum):
    """State of a GPU. The value is the name in JSON and the API, and `title` is the word for users."""

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
    """Hash by identity, because members are compared by identity. Enum's own hash is slow, because it is computed in
    Python from the name."""

    @property
    def title(self) -> str:
        """The state as an adjective for users."""
        return _TITLES.get(self, self.value)


# Module constants, because looking up an Enum member is slow, and these are used for each device at each frame.
_OK, _STALE, _ASLEEP, _LOST = Availability.OK, Availability.STALE, Availability.ASLEEP, Availability.LOST
_BUSY, _ALLOCATED, _HELD = GpuState.BUSY, GpuState.ALLOCATED, GpuState.HELD
FREE_OR_NOT = frozenset((_BUSY, _ALLOCATED, _HELD, GpuState.ASLEEP, GpuState.FREE, GpuState.DIVIDED))
"""States that prove whether a GPU is free. "No GPU is free" is reported only if every GPU has one of these states."""
_TITLES = {GpuState.HELD: "allocated, idle", GpuState.UNKNOWN: "state unknown", GpuState.DIVIDED: "divided"}


class Observed(NamedTuple):
    """Facts about a GPU from the samples before a frame, in seconds. NaN if there are no such samples."""

    since_work: float = NAN
    """Seconds since the last sample in which the GPU was busy."""
    idle: float = NAN
    """Seconds for which the GPU has been idle since a process last took or released it. Time before a gap in the
    samples is not included."""


UNOBSERVED = Observed()


def work_share(sample: Sample) -> float:
    """Return the share of time (0 to 1) in which kernels run.

    This is the utilization, or GPM's graphics activity for a MIG instance.
    """
    utilization = sample.values[_UTILIZATION]
    if math.isfinite(utilization) or not sample.device.is_instance:
        return utilization
    return sample.values[_ACTIVITY]


def judge(sample: Sample, held: bool | None, observed: Observed = UNOBSERVED, live: bool = True) -> GpuState:
    """Return the state of a GPU.

    `held`: result of `is_held`. `observed`: facts from the samples before this one. `live`: False if this is the last
    frame of a source that stopped sampling.
    """
    if sample.state is _LOST:
        return GpuState.LOST
    if sample.state not in (_OK, _STALE, _ASLEEP):
        return GpuState.UNREADABLE
    if sample.state is _STALE or not live:
        return GpuState.STALE
    if sample.state is _ASLEEP:
        return GpuState.ASLEEP
    if sample.device.is_divided:
        return GpuState.DIVIDED
    share = work_share(sample)
    if not math.isfinite(share):
        return _unmeasured(sample, held)
    if share >= IDLE:
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
    """Return whether a GPU did not answer in time but its last sample is recent enough not to count as a gap.

    `interval`: planned seconds between frames.
    """
    return sample.state is _STALE and 0.0 < sample.age <= GAP * max(interval, WATCHED)


def is_held(sample: Sample, processes: Sequence[Process], has_run: bool) -> bool | None:
    """Return whether a process holds the GPU. None if this cannot be determined, or if the GPU is divided by MIG.

    `processes`: the processes on this device. `has_run`: whether a run uses the device. Memory in use also proves that
    a process holds the GPU. The driver's process list may omit this process, because it is in another container or uses
    MPS.
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
    """Return whether memory is in use although no process is listed. The process list may be unreadable."""
    return not processes and is_held(sample, (), False) is True


def _unused_limit(sample: Sample, total: float) -> float:
    """Return the maximum bytes that may be in use on an empty GPU. If `total` is NaN, return the limit for any GPU."""
    if math.isfinite(sample.value("gpu.memory_reserved")):
        return CONTEXT
    return max(CONTEXT, min(RESERVED_MOST, RESERVED_SHARE * total))  # min(x, NaN) returns x


class IdleTime(NamedTuple):
    """The idle time of a GPU."""

    time: float
    """Start of the idle time, in seconds since 1970."""
    seconds: float
    """Seconds from the start of the idle time to the newest frame, measured with CLOCK_MONOTONIC."""
    at_least: bool
    """True if the GPU was already idle at its first sample. The real idle time may then be longer."""


class _IdlePeriod(NamedTuple):
    """A period in which a GPU was not busy."""

    first_seen_ns: int
    """Time of the first sample in the period, in ns of CLOCK_MONOTONIC."""
    time: float
    """Time of the first sample in the period, in seconds since 1970."""
    at_least: bool
    """True if the start of the period was not sampled."""
    begin_ns: int
    """Time of the last busy sample before the period (ns, CLOCK_MONOTONIC), or `first_seen_ns` if there is none."""


class Activity:
    """Determines from consecutive frames when each GPU last worked. A gap between samples does not count as idle time.

    If a process took or released the GPU while it was idle, the idle time since then is recorded separately, because a
    process is not responsible for idle time before it started.
    """

    def __init__(self) -> None:
        self._now = 0
        self._worked: dict[str, int] = {}
        self._idle: dict[str, tuple[_IdlePeriod, _IdlePeriod]] = {}
        """By UUID: the whole idle period, and the part of it since a process last took or released the GPU."""
        self._free: dict[str, bool] = {}
        """Whether a GPU was free when this could last be determined in an idle period, by UUID."""
        self._loads = LoadTracker()
        """Load of each GPU. Only `add` updates it, because callers of `watch` do not show loads."""

    def add(self, frame: Frame) -> None:
        """Add a frame. If it is older than the previous frame, all earlier data is deleted first."""
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
        """Add the samples of a frame. If it is older than the previous frame, all earlier data is deleted first.

        `monotonic_ns` (CLOCK_MONOTONIC), `time` (s since 1970): time of the frame. `interval`: planned seconds between
        frames. `holders`: UUIDs of devices that count as held even if the samples show no holder.
        """
        elapsed_ns = monotonic_ns - self._now
        if elapsed_ns < 0:
            self._worked.clear()
            self._idle.clear()
            self._free.clear()
            self._loads.clear()
        is_gap = elapsed_ns > GAP * max(interval, WATCHED) * SECOND
        if is_gap:  # work before the gap does not prove that the process still exists
            self._idle.clear()
            self._worked.clear()
            self._loads.clear()
        self._now = monotonic_ns
        worked, idle = self._worked, self._idle
        self._forget_removed(samples)
        for sample in samples:
            uuid, share = sample.device.uuid, work_share(sample)
            if sample.state is not _OK or not math.isfinite(share):
                if not is_late(sample, interval):
                    idle.pop(uuid, None)
            elif share >= IDLE:
                worked[uuid] = monotonic_ns
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
        """Delete the data of devices that are no longer in the frame, such as removed MIG instances."""
        present = {sample.device.uuid for sample in samples}
        for by_uuid in (self._worked, self._idle, self._free):
            for uuid in by_uuid.keys() - present:
                del by_uuid[uuid]
        self._loads.retain(present)

    def observed(self, uuid: str) -> Observed:
        """Return the facts about a GPU from the samples up to the newest frame."""
        worked, periods = self._worked.get(uuid), self._idle.get(uuid)
        since_work = NAN if worked is None else (self._now - worked) / SECOND
        return Observed(since_work, NAN if periods is None else (self._now - periods[1].begin_ns) / SECOND)

    def load(self, uuid: str) -> Load | None:
        """Return the load of a GPU at the newest frame, or None if unknown."""
        return self._loads.load(uuid)

    def idle_since(self, uuid: str) -> IdleTime | None:
        """Return the idle time of a GPU since its last work or the last gap in its samples.

        None if the GPU works or has no current utilization value.
        """
        periods = self._idle.get(uuid)
        return self._idle_time(periods[0]) if periods else None

    def idle_as_held(self, uuid: str) -> IdleTime | None:
        """Return the idle time of a GPU since a process last took or released it.

        None if the GPU works or has no current utilization value.
        """
        periods = self._idle.get(uuid)
        return self._idle_time(periods[1]) if periods else None

    def _idle_time(self, period: _IdlePeriod) -> IdleTime:
        return IdleTime(period.time, (self._now - period.first_seen_ns) / SECOND, period.at_least)
