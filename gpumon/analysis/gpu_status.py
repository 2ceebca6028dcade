"""One GPU of a frame as every view shows it: its state, who holds it, and since when it does nothing; or why none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import inf, isfinite
from typing import NamedTuple

from gpumon.analysis.gpu_state import (
    Activity,
    GpuState,
    IdleSince,
    Load,
    has_unlisted_holder,
    is_held,
    judge,
    load_of,
    working,
)
from gpumon.analysis.ranks import Ranks
from gpumon.common.numbers import is_known
from gpumon.model import units
from gpumon.model.device import counted
from gpumon.model.frame import Frame, RunState, Sample
from gpumon.model.metrics import Availability
from gpumon.model.process import Process
from gpumon.model.vendors import clock_events, maker


def clock_event_reasons(sample: Sample) -> tuple[str, ...] | None:
    """Return the reasons for which the clocks of a GPU are below their highest, in words; None where unknown."""
    mask = sample.value("gpu.event_reasons")
    vendor = maker(sample.device.name, sample.device.uuid)
    known = vendor is not None and bool(vendor.clock_events) and is_known(mask) and 0 <= mask < 2**64
    return clock_events(vendor, int(mask)) if vendor and known else None


IDLE = "idle"
"""A reason that every view shows as the state of the GPU already."""
HOT = frozenset(("heat (driver)", "heat (hardware)", "hardware slowdown", "power brake"))
"""Reasons that need a look: something other than the work or the power limit holds the clocks."""


ANSWERS = (Availability.OK, Availability.ASLEEP)
"""States of a GPU that nothing is wrong with."""
_DOES_NOTHING = (GpuState.ALLOCATED, GpuState.HELD, GpuState.IDLE, GpuState.FREE)


class GpuStatus(NamedTuple):
    """A GPU, judged. All views read the state here, so that they agree."""

    sample: Sample
    state: GpuState
    held: bool | None
    """Whether a process holds it; None where that cannot be known."""
    is_unlisted: bool
    """Whether its holder is one that the process list does not show."""
    processes: tuple[Process, ...]
    """Those on it."""
    runs: tuple[Ranks, ...]
    """The run in force first, then those of its processes, then those that report that they use it."""
    since: IdleSince | None
    """Since when it has done nothing, held or free as it is now; None where it works or that is unknown."""
    load: Load | None = None
    """Its work over some seconds; None where its sample alone is known."""

    @property
    def is_empty(self) -> bool:
        """Whether it is known that nothing holds it."""
        return self.held is False and self.state in (GpuState.FREE, GpuState.UNKNOWN)

    def word(self, age: float = 0.0) -> str:
        """Return the state for people: `busy`, `allocated, idle`, `stale 12 s`; `age` is that of the frame, seconds."""
        if self.state is GpuState.STALE:  # older by the age of the frame
            ages = [one for one in (self.sample.age, age) if isfinite(one)]
            return f"stale {units.duration(sum(ages))}" if ages else "stale"
        if self.state is GpuState.UNREADABLE:
            return self.sample.reason
        if self.state is GpuState.BUSY:
            return (self.load or load_of(working(self.sample))).value
        return self.state.title


def is_unreadable(frame: Frame) -> bool:
    """Return whether no GPU answers."""
    return not any(sample.state in ANSWERS for sample in frame.samples)


def why_none(frame: Frame, problem: str) -> str:
    """Return why no GPU of a frame can be read; `problem` is that of its origin, empty where it has none."""
    if problem:
        return problem if frame.samples else f"{problem}. For a simulation: gpumon status --source sim"
    return "no GPU can be read: " + ", ".join(
        sorted({sample.state.reason for sample in frame.samples}) or ["none found"]
    )


def counted_statuses(statuses: Sequence[GpuStatus]) -> list[GpuStatus]:
    """Return those of what counts as a GPU: of one that MIG divides, its instances."""
    devices = counted([status.sample.device for status in statuses])
    return [status for status in statuses if status.sample.device.uuid in devices]


def busy_counts(statuses: Iterable[GpuStatus], *, is_brief: bool = False) -> list[tuple[int, str]]:
    """Return the numbers of the GPUs that count as busy by the words that their rows have, those at work first.

    In brief they are one number: with the word of all if they have the same, else `in use`. None is `0 busy`.
    """
    words = Counter(status.word() for status in statuses if status.state is GpuState.BUSY)
    if is_brief and len(words) > 1:
        return [(words.total(), "in use")]
    return [(words[load.value], load.value) for load in reversed(Load) if words[load.value]] or [(0, Load.BUSY.value)]


def gpu_statuses(
    frame: Frame, joined: Sequence[Ranks], activity: Activity | None = None, live: bool = True
) -> tuple[GpuStatus, ...]:
    """Judge the GPUs of `frame`, in the order of its samples.

    `joined` are the runs of the frame by `ranks_of`; `activity` has taken in the frames until this
    one; `live` is false where the frame is the last one of a source that went silent.
    """
    if activity is None:
        activity = Activity()
        activity.add(frame)
    processes: dict[str, list[Process]] = {}
    for process in frame.processes:
        processes.setdefault(process.uuid, []).append(process)
    return tuple(
        _status(sample, processes.get(sample.device.uuid, ()), joined, activity, live, frame.time)
        for sample in frame.samples
    )


def _status(
    sample: Sample, processes: Sequence[Process], joined: Sequence[Ranks], activity: Activity, live: bool, now: float
) -> GpuStatus:
    uuid = sample.device.uuid
    runs = runs_on(sample, processes, joined)
    held = is_held(sample, processes, bool(runs))
    observed, since = activity.observed(uuid), activity.idle_as_held(uuid)
    held_for = longest_held(processes, now)
    if since is not None and since.seconds > held_for:
        observed = observed._replace(idle=held_for)
        since = IdleSince(now - held_for, held_for, at_least=False)
    state = judge(sample, held, observed, live)
    return GpuStatus(
        sample=sample,
        state=state,
        held=held,
        is_unlisted=has_unlisted_holder(sample, processes),
        processes=tuple(processes),
        runs=runs,
        since=since if state in _DOES_NOTHING else None,
        load=activity.load(uuid),
    )


def longest_held(processes: Sequence[Process], now: float) -> float:
    """Return the seconds for which processes on a GPU can hold it at most: the age of the oldest one.

    Infinite where nobody is listed, or when one began is not known; what they do not use is theirs from then on.
    """
    ages = [now - process.started for process in processes]
    return max(0.0, *ages) if ages and all(map(isfinite, ages)) else inf


def runs_on(sample: Sample, processes: Sequence[Process], joined: Sequence[Ranks]) -> tuple[Ranks, ...]:
    """Return the runs on a GPU, in the order of `GpuStatus.runs`."""
    keys = [sample.run, *(process.run for process in processes)]

    def place(ranks: Ranks) -> int | None:
        found = [keys.index(run.key) for run in ranks.all if run.key in keys]
        if found:
            return min(found)
        return len(keys) if ranks.state is RunState.RUNNING and sample.device.uuid in ranks.gpus else None

    placed = [(at, number, ranks) for number, ranks in enumerate(joined) if (at := place(ranks)) is not None]
    return tuple(ranks for _, _, ranks in sorted(placed, key=lambda one: one[:2]))
