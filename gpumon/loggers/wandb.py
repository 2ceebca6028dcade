"""Weights & Biases: `log_to="wandb"` for the active run, or a run object; with a step metric of its own.

The steps of a W&B run only increase, and the user's calls of `log` define them. So values are added to the open row,
and the row is never closed here, which would shift the user's steps. If several epochs arrive during one row, they wait
for later rows, since the last would replace the others.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from gpumon.common.errors import GpumonError
from gpumon.loggers.epoch_values import EPOCH, SECTION
from gpumon.loggers.logger import EpochPosition, Logger


def is_run(run: object) -> bool:
    """Whether `run` is a run of W&B."""
    return callable(getattr(run, "define_metric", None)) and hasattr(run, "step")


class WandbLogger(Logger):
    """Writes to `run`; None: to the run that is active when the first epoch ends."""

    name = "wandb"

    def __init__(self, run: Any = None) -> None:
        self._run = run
        self._is_defined = False
        self._waiting: list[dict[str, float]] = []
        self._row = -1
        """Step of the last row that got values of an epoch."""

    def epoch_ended(self) -> None:
        """Find the active run."""
        if self._run is None:
            self._run = getattr(sys.modules.get("wandb"), "run", None)

    def write(self, values: Mapping[str, float], at: EpochPosition) -> None:
        """Add the values to the open row of the run. Raises GpumonError if there is none."""
        self.epoch_ended()
        if self._run is None:
            raise GpumonError("no run is active: call wandb.init() before the first epoch ends")
        if not self._is_defined:
            self._is_defined = True
            self._run.define_metric(EPOCH, hidden=True)
            self._run.define_metric(f"{SECTION}/*", step_metric=EPOCH)
        self._waiting.append({EPOCH: at.epoch, **values})
        if self._run.step != self._row:
            self._row = self._run.step
            self._run.log(self._waiting.pop(0), commit=False)

    def flush(self) -> None:
        """Write waiting epochs to rows of their own; W&B closes the last row with the run."""
        while self._waiting:
            if self._run.step == self._row:
                self._run.log({}, commit=True)
            self._row = self._run.step
            self._run.log(self._waiting.pop(0), commit=False)
