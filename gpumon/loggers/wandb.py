"""Weights & Biases: `log_to="wandb"` for the active run, or the run itself; with a step metric of its own.

The steps of a run only go up, and are its author's. So values go into the row that is open, and never close it: each
call of `log` of the author's would otherwise be moved. With several epochs in one row the last would remain; so the
others wait until the author has closed it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from gpumon.common.errors import GpumonError
from gpumon.loggers.epoch_values import EPOCH, SECTION
from gpumon.loggers.logger import EpochPlace, Logger


def is_run(thing: object) -> bool:
    """Whether this is a run of W&B."""
    return callable(getattr(thing, "define_metric", None)) and hasattr(thing, "step")


class WandbLogger(Logger):
    """Writes to `run`, else to the one that is active when the first epoch ends."""

    name = "wandb"

    def __init__(self, run: Any = None) -> None:
        self._run = run
        self._is_defined = False
        self._waiting: list[dict[str, float]] = []
        self._row = -1
        """Step of the row that has values of an epoch."""

    def epoch_ended(self) -> None:
        """Find the active run."""
        if self._run is None:
            self._run = getattr(sys.modules.get("wandb"), "run", None)

    def write(self, values: Mapping[str, float], at: EpochPlace) -> None:
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
        """Write the rows that wait; W&B closes the last with the run."""
        while self._waiting:
            if self._run.step == self._row:
                self._run.log({}, commit=True)
            self._row = self._run.step
            self._run.log(self._waiting.pop(0), commit=False)
