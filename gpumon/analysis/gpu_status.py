"""Status of a GPU of a frame, used by all views: state, processes, runs and idle time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import inf, isfinite
from typing import NamedTuple

from gpumon.analysis.gpu_state import (
    Activity,
    GpuState,
    IdleTime,
    Load,
    classify_load,
    has_unlisted_holder,
    is_held,
    judge,
    work_share,
)
from gpumon.analysis.ranks import Ranks
from gpumon.model import units
from gpumon.model.device import countable_uuids
from gpumon.model.frame import Frame, RunState, Sample
from gpumon.model.metrics import Availability
from gpumon.model.process import Process

ANSWERS = (Availability.OK, Availability.ASLEEP)
"""Values of `Availability` for a GPU without a fault."""
_NOT_WORKING = (GpuState.ALLOCATED, GpuState.HELD, GpuState.IDLE, GpuState.FREE)


class GpuStatus(NamedTuple):
    """A GPU with its state. All views use this state, so that they agree."""

    sample: Sample
    state: GpuState
    held: bool | None
    """Whether a process holds the GPU; None if this cannot be determined."""
    is_unlisted: bool
    """Whether the GPU is held by a process that the process list does not show."""
    processes: tuple[Process, ...]
    """The processes on the GPU."""
    runs: tuple[Ranks, ...]
    """Runs on the GPU: first the run named in its sample, then the runs of its processes, then runs that claim the
    GPU."""
    since: IdleTime | None
    """Idle time since a process last took or released the GPU. None if the GPU is busy or the time was not measured."""
    load: Load | None = None
    """Load over several seconds; None if there is only one sample."""

    @property
    def is_empty(self) -> bool:
        """Whether it is certain that no process is on the GPU."""
        return self.held is False and self.state in (GpuState.FREE, GpuState.UNKNOWN)

    def word(self, age: float = 0.0) -> str:
        """Return the state for users, such as `allocated, idle` or `stale 12 s`. `age`: age of the frame in seconds."""
        if self.state is GpuState.STALE:
            ages = [seconds for seconds in (self.sample.age, age) if isfinite(seconds)]
            return f"stale {units.duration(sum(ages))}" if ages else "stale"
        if self.state is GpuState.UNREADABLE:
            return self.sample.reason
        if self.state is GpuState.BUSY:
            return (self.load or classify_load(work_share(self.sample))).value
        return self.state.title


def is_unreadable(frame: Frame) -> bool:
    """Return whether no GPU of the frame can be read."""
    return not any(sample.state in ANSWERS for sample in frame.samples)


def no_gpu_reason(frame: Frame, problem: str) -> str:
    """Return the reason why no GPU of a frame can be read. `problem`: a problem that the frame reports, or empty."""
    if problem:
        return problem if frame.samples else f"{problem}. For a simulation: gpumon status --source sim"
    return "no GPU can be read: " + ", ".join(
        sorted({sample.state.reason for sample in frame.samples}) or ["none found"]
    )


def countable_statuses(statuses: Sequence[GpuStatus]) -> list[GpuStatus]:
    """Return the statuses that count as GPUs: a GPU in MIG mode is replaced by its instances."""
    devices = countable_uuids([status.sample.device for status in statuses])
    return [status for status in statuses if status.sample.device.uuid in devices]


def busy_counts(statuses: Iterable[GpuStatus], *, is_brief: bool = False) -> list[tuple[int, str]]:
    """Return the number of busy GPUs for each load, as pairs of number and word, the busiest load first.

    If no GPU is busy, the only pair is `(0, "busy")`. `is_brief`: return a single pair, with the word `in use` if the
    GPUs have different loads.
    """
    words = Counter(status.word() for status in statuses if status.state is GpuState.BUSY)
    if is_brief and len(words) > 1:
        return [(words.total(), "in use")]
    return [(words[load.value], load.value) for load in reversed(Load) if words[load.value]] or [(0, Load.BUSY.value)]


def gpu_statuses(
    frame: Frame, ranks: Sequence[Ranks], activity: Activity | None = None, live: bool = True
) -> tuple[GpuStatus, ...]:
    """Return the status of each GPU of a frame, in the order of its samples.

    `ranks`: runs of the frame, from `ranks_of`. `activity`: activity to which all frames up to this one were added.
    `live`: False if this is the last frame of a source that stopped sampling.
    """
    if activity is None:
        activity = Activity()
        activity.add(frame)
    processes: dict[str, list[Process]] = {}
    for process in frame.processes:
        processes.setdefault(process.uuid, []).append(process)
    return tuple(
        _status(sample, processes.get(sample.device.uuid, ()), ranks, activity, live, frame.time)
        for sample in frame.samples
    )


def _status(
    sample: Sample, processes: Sequence[Process], ranks: Sequence[Ranks], activity: Activity, live: bool, now: float
) -> GpuStatus:
    uuid = sample.device.uuid
    runs = runs_on(sample, processes, ranks)
    held = is_held(sample, processes, bool(runs))
    observed, since = activity.observed(uuid), activity.idle_as_held(uuid)
    held_for = longest_held(processes, now)
    if since is not None and since.seconds > held_for:
        observed = observed._replace(idle=held_for)
        since = IdleTime(now - held_for, held_for, at_least=False)
    state = judge(sample, held, observed, live)
    return GpuStatus(
        sample=sample,
        state=state,
        held=held,
        is_unlisted=has_unlisted_holder(sample, processes),
        processes=tuple(processes),
        runs=runs,
        since=since if state in _NOT_WORKING else None,
        load=activity.load(uuid),
    )


def longest_held(processes: Sequence[Process], now: float) -> float:
    """Return the longest time in seconds for which these processes can have held their GPU: the age of the oldest.

    Infinite if there are no processes, or if a process has no start time.
    """
    ages = [now - process.started for process in processes]
    return max(0.0, *ages) if ages and all(map(isfinite, ages)) else inf


def runs_on(sample: Sample, processes: Sequence[Process], ranks: Sequence[Ranks]) -> tuple[Ranks, ...]:
    """Return the runs on a GPU, in the order described at `GpuStatus.runs`."""
    keys = [sample.run, *(process.run for process in processes)]

    def priority(candidate: Ranks) -> int | None:
        positions = [keys.index(run.key) for run in candidate.all if run.key in keys]
        if positions:
            return min(positions)
        return len(keys) if candidate.state is RunState.RUNNING and sample.device.uuid in candidate.gpus else None

    ordered = [(key, number, run) for number, run in enumerate(ranks) if (key := priority(run)) is not None]
    return tuple(run for _, _, run in sorted(ordered, key=lambda entry: entry[:2]))
