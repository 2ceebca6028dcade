"""Logger for MLflow: `log_to="mlflow"` for the active run, or a run object. The step is the number of the epoch."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from gpumon.common.errors import GpumonError
from gpumon.loggers.logger import EpochPosition, Logger


def is_run(run: object) -> bool:
    """Whether `run` is an MLflow run."""
    return hasattr(getattr(run, "info", None), "run_id")


class MlflowLogger(Logger):
    """Writes to `run`.

    If `run` is None, writes to the run that is active in the training's thread when the first epoch ends.
    """

    name = "mlflow"

    def __init__(self, run: Any = None) -> None:
        """Imports mlflow, which the training uses anyway."""
        self._mlflow = import_module("mlflow")
        self._run = run
        self._client: Any = None

    def epoch_ended(self) -> None:
        """Store the active run, unless a run is already stored."""
        if self._run is None:
            self._run = self._mlflow.active_run()

    def write(self, values: Mapping[str, float], at: EpochPosition) -> None:
        """Log all values in one call. Raises GpumonError if there is no run."""
        self.epoch_ended()
        if self._run is None:
            raise GpumonError("no run is active: call mlflow.start_run() before the first epoch ends")
        if self._client is None:
            self._client = self._mlflow.MlflowClient()  # uses the current tracking URI
        metric, time = self._mlflow.entities.Metric, round(at.ended * 1000)
        metrics = [metric(name, value, time, at.epoch) for name, value in values.items()]
        self._client.log_batch(self._run.info.run_id, metrics=metrics)
