"""MLflow: `log_to="mlflow"` for the active run, or the run itself; the epoch's number is the step."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from gpumon.common.errors import GpumonError
from gpumon.loggers.logger import EpochPlace, Logger


def is_run(thing: object) -> bool:
    """Whether this is a run of MLflow."""
    return hasattr(getattr(thing, "info", None), "run_id")


class MlflowLogger(Logger):
    """Writes to `run`, else to the one that is active, in the training's own thread, when the first epoch ends."""

    name = "mlflow"

    def __init__(self, run: Any = None) -> None:
        """Imports mlflow, as its author has."""
        self._mlflow = import_module("mlflow")
        self._run = run
        self._client: Any = None

    def epoch_ended(self) -> None:
        """Find the active run."""
        if self._run is None:
            self._run = self._mlflow.active_run()

    def write(self, values: Mapping[str, float], at: EpochPlace) -> None:
        """Log all values in one call. Raises GpumonError if there is no run."""
        self.epoch_ended()
        if self._run is None:
            raise GpumonError("no run is active: call mlflow.start_run() before the first epoch ends")
        if self._client is None:
            self._client = self._mlflow.MlflowClient()  # of the tracking URI as it is now
        metric, time = self._mlflow.entities.Metric, round(at.ended * 1000)
        metrics = [metric(name, value, time, at.epoch) for name, value in values.items()]
        self._client.log_batch(self._run.info.run_id, metrics=metrics)
