"""Logger for Weights & Biases: `log_to="wandb"` for the active run, or a run object. The charts use the epoch as
x-axis.

The steps of a W&B run only increase, and the user's calls of `log` define them. So gpumon adds its values to the open
row and does not close this row, because this would shift the user's steps. A row can hold one epoch. If several epochs
arrive while a row is open, all but the first wait for later rows.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from gpumon.common.errors import GpumonError
from gpumon.loggers.epoch_values import EPOCH, SECTION
from gpumon.loggers.logger import EpochPosition, Logger


def is_run(run: object) -> bool:
    """Whether `run` is a W&B run."""
    return callable(getattr(run, "define_metric", None)) and hasattr(run, "step")


class WandbLogger(Logger):
    """Writes to `run`. If `run` is None, writes to the run that is active when the first epoch ends."""

    name = "wandb"

    def __init__(self, run: Any = None) -> None:
        self._run = run
        self._is_defined = False
        self._waiting: list[dict[str, float]] = []
        self._row = -1
        """W&B step of the last row to which values of an epoch were added; -1 if there is none."""

    def epoch_ended(self) -> None:
        """Store the active run, unless a run is already stored."""
        if self._run is None:
            self._run = getattr(sys.modules.get("wandb"), "run", None)

    def write(self, values: Mapping[str, float], at: EpochPosition) -> None:
        """Add the values to the open row of the run, or keep them for a later row.

        Raises GpumonError if there is no run.
        """
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
        """Write each epoch that waits to a row of its own. W&B closes the last row at the end of the run."""
        while self._waiting:
            if self._run.step == self._row:
                self._run.log({}, commit=True)
            self._row = self._run.step
            self._run.log(self._waiting.pop(0), commit=False)
