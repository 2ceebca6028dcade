"""All ranks of a run as one, for views that give a run one row."""

from collections.abc import Iterable, Sequence
from math import isfinite
from typing import NamedTuple

from gpumon.common.numbers import NAN, is_known
from gpumon.model.frame import Run, RunState
from gpumon.model.process import Process

TOGETHER = 10.0
"""Seconds within which runs began together."""
_WORST = (
    RunState.DIED, RunState.FAILED, RunState.INTERRUPTED, RunState.RUNNING, RunState.STOPPED, RunState.FINISHED,
)  # fmt: skip


class Ranks(NamedTuple):
    """A run, from what each of its ranks here tells. There is at least one."""

    all: tuple[Run, ...]
    """By rank."""

    @property
    def first(self) -> Run:
        """The lowest rank here: what it says of name, user and plan holds for all."""
        return self.all[0]

    @property
    def slowest(self) -> Run:
        """The rank that is least far; the others wait for it."""
        return min(self.all, key=lambda run: (run.epoch, run.step))

    @property
    def state(self) -> RunState:
        """A run whose one rank died has died, though the others still wait for it."""
        states = {run.state for run in self.all}
        return next(state for state in _WORST if state in states)

    @property
    def gpus(self) -> tuple[str, ...]:
        """UUIDs of the devices of all ranks."""
        return tuple(dict.fromkeys(uuid for run in self.all for uuid in run.gpus))

    @property
    def is_distributed(self) -> bool:
        """Whether there is more to it than this one process."""
        return self.first.world_size > 1 or len(self.all) > 1

    @property
    def present(self) -> str:
        """Ranks here of ranks in all: `4`, or `3/4` where some are not here."""
        size = self.first.world_size
        return str(size) if len(self.all) == size else f"{len(self.all)}/{size}"

    @property
    def ooms(self) -> float:
        """Out-of-memory errors of all ranks, or NaN where none tells."""
        return _sum(run.memory.ooms for run in self.all)


def ranks_of(runs: Iterable[Run]) -> list[Ranks]:
    """Runs that go on first, then the newest; those that began together by name, then in the order they came."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.id, []).append(run)
    joined = [Ranks(tuple(sorted(group, key=lambda run: run.rank))) for group in groups.values()]
    return sorted(joined, key=_order)


def memory_of(runs: Sequence[Run], processes: Iterable[Process]) -> float:
    """Device memory of some ranks, bytes: of their processes, by the driver; else what their framework holds."""
    keys = {run.key for run in runs}
    used = _sum(process.memory_used for process in processes if process.run in keys)
    return used if is_known(used) else _sum(run.memory.reserved for run in runs)


def _sum(values: Iterable[float]) -> float:
    known = [value for value in values if is_known(value)]
    return sum(known) if known else NAN


def _order(ranks: Ranks) -> tuple[bool, float, str, float]:
    """Runs that began together, as from one script, are in the order of their names, not of milliseconds."""
    first = ranks.first
    started = first.started if isfinite(first.started) else 0.0
    return ranks.state is not RunState.RUNNING, -(started // TOGETHER), first.name, -started
