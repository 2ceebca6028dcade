"""The trainings inside a command, and how long their epochs took by their own boundaries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN
from gpumon.model.epoch import EpochEnd, EpochFold
from gpumon.model.frame import Boundary, Run

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
    """The metrics that it logged last, the losses first."""
    steps: int = 0
    """Over the whole run; 0 where they are not counted."""


class _Rank:
    """Whole epochs of one rank and how long they took, in ns."""

    def __init__(self) -> None:
        self._fold = EpochFold()
        self._begun: Boundary | None = None
        self._last: tuple[int, int] | None = None
        """Number and duration of the newest whole epoch."""
        self.epochs = 0
        self.total = 0

    def take(self, boundary: Boundary) -> None:
        """Take the next boundary."""
        change = self._fold.take(boundary)
        if change is None:
            return
        if change.closed is not None and self._begun is not None:
            self._last = None
            if change.closed is EpochEnd.FINISHED:
                self._last = self._begun.epoch, boundary.monotonic_ns - self._begun.monotonic_ns
                self._add(1, self._last[1])
            self._begun = None
        if change.begun:
            self._begun = boundary
        if self._last is not None and change.revoked == self._last[0]:
            self._add(-1, -self._last[1])
            self._last = None

    def _add(self, epochs: int, nanoseconds: int) -> None:
        self.epochs += epochs
        self.total += nanoseconds


class CommandTrainings:
    """Collects the trainings of the command, from frames and from boards: a boundary that comes twice counts once."""

    def __init__(self) -> None:
        self._runs: dict[str, Run] = {}
        self._ranks: dict[str, _Rank] = {}

    def take(self, runs: Iterable[Run], boundaries: Iterable[Boundary]) -> None:
        """Add what is known of the command's `runs` by now; `boundaries` may have those of other runs too."""
        self._runs.update((run.key, run) for run in runs)
        for boundary in boundaries:
            if boundary.run in self._runs:
                self._ranks.setdefault(boundary.run, _Rank()).take(boundary)

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
        return Training(run.id, run.name, rank.epochs, seconds, _losses(run.metrics), run.step)


def _losses(metrics: Mapping[str, float]) -> dict[str, float]:
    """The losses of what was logged; without any, the first number."""
    losses = [name for name in metrics if "loss" in name.lower()] or list(metrics)[:1]
    return {name: metrics[name] for name in losses[:_SHOWN]}
