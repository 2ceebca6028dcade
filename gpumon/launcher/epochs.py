"""The trainings inside a command, and how long their epochs took by their own boundaries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from gpumon.clock import SECOND
from gpumon.frame import NAN, Boundary, Mark, Run

_SHOWN = 2


class Training(NamedTuple):
    """A training that a command ran; of a distributed one, what its first rank told."""

    id: str
    name: str
    epochs: int
    """Whole ones."""
    seconds: float
    """Mean of an epoch; NaN before the first was whole."""
    metrics: Mapping[str, float]
    """What it logged last, the losses first."""


class _Rank:
    def __init__(self) -> None:
        self.seen = 0
        """Number of the newest boundary that counted."""
        self.begun = 0
        self.epochs = 0
        self.total = 0
        self.last = 0


class CommandTrainings:
    """Collects the trainings of the command, from frames and from boards: a boundary that comes twice counts once."""

    def __init__(self) -> None:
        self._runs: dict[str, Run] = {}
        self._ranks: dict[str, _Rank] = {}

    def take(self, runs: Iterable[Run], boundaries: Iterable[Boundary]) -> None:
        """Add what is known of the command's `runs` by now; `boundaries` may have those of other runs too."""
        self._runs.update((run.key, run) for run in runs)
        for boundary in boundaries:
            if boundary.run not in self._runs:
                continue
            rank = self._ranks.setdefault(boundary.run, _Rank())
            if boundary.number <= rank.seen:
                continue
            rank.seen = boundary.number
            if boundary.mark is Mark.EPOCH_BEGIN:
                rank.begun = boundary.monotonic
            elif boundary.mark is Mark.EPOCH_END and rank.begun:
                rank.last = boundary.monotonic - rank.begun
                rank.epochs, rank.total, rank.begun = rank.epochs + 1, rank.total + rank.last, 0
            elif boundary.mark is Mark.EPOCH_LEFT:
                if not rank.begun and rank.last:  # it had been told as whole
                    rank.epochs, rank.total = rank.epochs - 1, rank.total - rank.last
                rank.begun = rank.last = 0

    def __bool__(self) -> bool:
        return bool(self._runs)

    def trainings(self) -> list[Training]:
        """In the order of their begin."""
        first: dict[str, Run] = {}
        for run in sorted(self._runs.values(), key=lambda run: (run.rank, run.started)):
            first.setdefault(run.id, run)
        return [self._training(run) for run in sorted(first.values(), key=lambda run: run.started)]

    def _training(self, run: Run) -> Training:
        rank = self._ranks.get(run.key, _Rank())
        seconds = rank.total / rank.epochs / SECOND if rank.epochs else NAN
        return Training(run.id, run.name, rank.epochs, seconds, _losses(run.metrics))


def _losses(metrics: Mapping[str, float]) -> dict[str, float]:
    """The losses of what was logged; without any, the first number."""
    losses = [name for name in metrics if "loss" in name.lower()] or list(metrics)[:1]
    return {name: metrics[name] for name in losses[:_SHOWN]}
