"""The values that trainings logged, by epoch: as frames told of them, the last ones of each."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite

from gpumon.frame import NAN, Frame, Run

EPOCHS, RUNS = 64, 64
"""Epochs kept of each run, and runs."""


class LoggedEpochs:
    """Values by run, epoch and name; of a distributed run those of its first rank."""

    def __init__(self) -> None:
        self._of: dict[str, dict[int, Mapping[str, float]]] = {}

    def add(self, frame: Frame) -> None:
        """Take in what the runs of a frame logged."""
        for run in frame.runs:
            if run.rank or run.epoch < 0 or not run.metrics:
                continue
            of = self._of.setdefault(run.id, {})
            of[run.epoch] = run.metrics
            if len(of) > EPOCHS:
                del of[min(of)]
            if len(self._of) > RUNS:
                del self._of[next(iter(self._of))]

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
