"""The values that trainings logged, by epoch: as frames told of them, the last ones of each."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import NamedTuple

from gpumon.frame import NAN, Frame, Run
from gpumon.missing import is_known

EPOCHS, RUNS = 64, 64
"""Epochs kept of each run, and runs."""


class _Board(NamedTuple):
    """The values of a run as its board shows them, those of earlier epochs among them."""

    epoch: int
    shown: Mapping[str, float]
    before: Mapping[str, float]
    """As they were last shown in the epoch before; empty where that was not seen."""


class LoggedEpochs:
    """Values by run, epoch and name; of a distributed run those of its first rank.

    A board shows what was logged last of each name: a value is one of the epoch in which it was first shown.
    """

    def __init__(self) -> None:
        self._of: dict[str, dict[int, Mapping[str, float]]] = {}
        self._boards: dict[str, _Board] = {}

    def add(self, frame: Frame) -> None:
        """Take in what the runs of a frame logged."""
        for run in frame.runs:
            if run.rank or run.epoch < 0 or not run.metrics:
                continue
            board = self._boards.get(run.id, _Board(run.epoch, {}, {}))
            board = board._replace(shown=run.metrics) if board.epoch == run.epoch else _Board(
                run.epoch, run.metrics, board.shown
            )  # fmt: skip
            self._boards[run.id] = board
            of = self._of.setdefault(run.id, {})
            known = of.get(run.epoch, {})
            of[run.epoch] = {
                name: value for name, value in run.metrics.items()
                if name in known or not _is_same(value, board.before.get(name))
            }  # fmt: skip
            if len(of) > EPOCHS:
                del of[min(of)]
            if len(self._of) > RUNS:
                gone = next(iter(self._of))
                del self._of[gone], self._boards[gone]

    def of(self, run_id: str, epoch: int) -> Mapping[str, float]:
        """Return the last values of an epoch by name; empty where nothing is known of it."""
        return self._of.get(run_id, {}).get(epoch, {})

    def value(self, run_id: str, epoch: int, name: str) -> float:
        """Return the last value of an epoch, or NaN."""
        return self.of(run_id, epoch).get(name, NAN)

    def change(self, run: Run, name: str) -> float:
        """Return how a value differs from the end of the epoch before, as a share of that; NaN where one is unknown."""
        value, before = run.metrics.get(name, NAN), self.value(run.id, run.epoch - 1, name)
        return (value - before) / abs(before) if isfinite(value) and isfinite(before) and before else NAN


def _is_same(value: float, before: float | None) -> bool:
    """Whether two numbers are equal; NaN, which equals nothing, counts as NaN."""
    return before is not None and (value == before or not (is_known(value) or is_known(before)))
