"""Combines the ranks of a run, for views that show one row for each run."""

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import NamedTuple

from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN, is_known
from gpumon.model.frame import Run, RunState, Tick
from gpumon.model.process import Process
from gpumon.model.run import PAUSED

TOGETHER = 10.0
"""Runs that start within this many seconds count as started at the same time."""
_WORST = (
    RunState.DIED, RunState.FAILED, RunState.INTERRUPTED, RunState.RUNNING, RunState.STOPPED, RunState.FINISHED,
)  # fmt: skip


class LoggedRank(NamedTuple):
    """The values that a rank logged last, and its position in the training."""

    metrics: Mapping[str, float]
    position: tuple[int, int]
    """Newest epoch, or -1 and the number of steps if the training has no epochs."""
    is_running: bool


def last_logged(ranks: Sequence[LoggedRank]) -> dict[str, float]:
    """Return the last value of each logged metric. `ranks`: the ranks of a run, sorted by rank number.

    If several ranks logged a metric, the value of the lowest rank is used. But ranks that ended in an epoch before the
    current epoch of the run are used only if no other rank logged the metric.
    """
    running = [rank.position for rank in ranks if rank.is_running]
    reached = min(running) if running else max((rank.position for rank in ranks), default=(-1, 0))
    metrics: dict[str, float] = {}
    for rank in sorted(ranks, key=lambda rank: rank.position < reached):
        metrics |= {name: value for name, value in rank.metrics.items() if name not in metrics}
    return metrics


class Ranks(NamedTuple):
    """The ranks of one run on this machine. There is at least one."""

    all: tuple[Run, ...]
    """All ranks, sorted by rank number."""

    @property
    def first(self) -> Run:
        """The rank with the lowest number on this machine. Views show its name, user and plan for the run."""
        return self.all[0]

    @property
    def slowest(self) -> Run:
        """The rank whose epoch, step and phase are shown for the run.

        This is the running rank that is furthest behind, because the other ranks wait for it. If no rank is running any
        more, it is the rank that got furthest.
        """
        running = [run for run in self.all if run.state is RunState.RUNNING]
        return min(running, key=_position) if running else max(self.all, key=_position)

    @property
    def metrics(self) -> Mapping[str, float]:
        """The last logged values of the run by name; see `last_logged`."""
        return last_logged(
            [
                LoggedRank(run.metrics, (run.epoch, run.step if run.epoch < 0 else 0), run.state is RunState.RUNNING)
                for run in self.all
            ]
        )

    @property
    def worst(self) -> Run:
        """The rank with the worst state. If one rank has died, the run has died, even if others still wait for it."""
        return min(self.all, key=lambda run: _WORST.index(run.state))

    @property
    def state(self) -> RunState:
        """The worst state of all ranks."""
        return self.worst.state

    @property
    def stalled_since(self) -> float:
        """Time (s since 1970) since which no rank has made progress, if the run is stalled; else NaN.

        A run is stalled if all of its ranks that are running are stalled. While one of them makes progress, the others
        may wait for it, for example while only rank 0 validates.
        """
        running = [run for run in self.all if run.state is RunState.RUNNING and run.phase != PAUSED]
        times = [run.facts.stalled_since for run in running]
        return max(times) if times and all(times) else NAN

    @property
    def gpus(self) -> tuple[str, ...]:
        """UUIDs of the devices of all ranks."""
        return tuple(dict.fromkeys(uuid for run in self.all for uuid in run.gpus))

    @property
    def is_distributed(self) -> bool:
        """Whether the run has more than one process."""
        return self.first.world_size > 1 or len(self.all) > 1

    @property
    def present(self) -> str:
        """Number of ranks as text: `4`, or `3/4` if only three of four ranks are on this machine."""
        size = self.first.world_size
        return str(size) if len(self.all) == size else f"{len(self.all)}/{size}"

    @property
    def ooms(self) -> float:
        """Number of out-of-memory errors in all ranks; NaN if unknown."""
        return _sum(run.memory.ooms for run in self.all)


def ranks_of(runs: Iterable[Run]) -> list[Ranks]:
    """Group ranks by the id of their run.

    Running runs come first. Otherwise newer runs come first, and runs that started at the same time are sorted by name.
    """
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.id, []).append(run)
    combined = [Ranks(tuple(sorted(group, key=lambda run: run.rank))) for group in groups.values()]
    return sorted(combined, key=_order)


def start_ns(run: Run, tick: Tick) -> int:
    """Return the start of a rank that a tick contains, in ns of CLOCK_MONOTONIC; 0 if it is unknown."""
    return tick.monotonic_ns - (tick.time_ns - round(run.started * SECOND)) if is_known(run.started) else 0


def unreported_end_ns(run: Run, tick: Tick, last_alive_ns: int, last_boundary_ns: int) -> int:
    """Return the last time at which a rank was certainly alive. Used for a rank that did not report its end.

    `tick`: the last tick that contained the rank. `last_alive_ns`: time of the last tick in which it was running.
    `last_boundary_ns`: time of its newest boundary. All times are ns of CLOCK_MONOTONIC.
    """
    updated = tick.monotonic_ns - (tick.time_ns - round(run.updated * SECOND)) if is_known(run.updated) else 0
    return min(max(last_alive_ns, updated, last_boundary_ns), tick.monotonic_ns)


def run_memory(runs: Sequence[Run], processes: Iterable[Process]) -> float:
    """Return the device memory of these ranks in bytes, reported by the driver.

    If the driver does not report it, the memory reserved by their framework is returned.
    """
    keys = {run.key for run in runs}
    used = _sum(process.memory_used for process in processes if process.run in keys)
    return used if is_known(used) else _sum(run.memory.reserved for run in runs)


def _position(run: Run) -> tuple[int, int]:
    return run.epoch, run.step


def _sum(values: Iterable[float]) -> float:
    known = [value for value in values if is_known(value)]
    return sum(known) if known else NAN


def _order(ranks: Ranks) -> tuple[bool, float, str, float]:
    """Return a sort key. Runs that started within the same `TOGETHER` seconds, as by one script, are sorted by name."""
    first = ranks.first
    started = first.started if isfinite(first.started) else 0.0
    return ranks.state is not RunState.RUNNING, -(started // TOGETHER), first.name, -started
