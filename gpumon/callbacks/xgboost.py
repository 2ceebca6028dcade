"""A callback for XGBoost 2.0 or newer: for `train`, `cv` and the estimators with scikit-learn's interface.

    from gpumon.callbacks.xgboost import GpuMonitor

    xgboost.train(..., callbacks=[GpuMonitor()])
    xgboost.XGBClassifier(..., callbacks=[GpuMonitor()])

Boosting rounds are steps. There are no epochs. A round includes its evaluation, because no callback is called between
the two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpumon.callbacks.frameworks import import_framework
from gpumon.callbacks.hook import Hook, guarded, reporting, variables, warn_failed

xgboost = import_framework("xgboost")
_TrainingCallback: Any = xgboost.callback.TrainingCallback


class GpuMonitor(_TrainingCallback):  # type: ignore[misc]  # its type is unknown
    """Shows a training run in gpumon: its boosting rounds as steps, and the metrics of its evaluations.

    An exception in another callback ends the run. XGBoost does not report any other exception to callbacks. After such
    an exception, the run ends when this object is deleted, when its next training begins, or with the process.
    """

    def __init__(self, name: str | None = None, **settings: Any) -> None:
        """`name` and `settings` (such as `devices`, `batch`, `run_id` or `directory`) are passed to `gpumon.run`."""
        super().__init__()
        self._hook = Hook("xgboost", name, **settings)
        self._started = 0
        """Number of boosting rounds that have started."""
        self._finished = 0
        self._evaluated: Mapping[str, Mapping[str, Sequence[Any]]] = {}

    def before_training(self, model: Any) -> Any:
        """Called when the training begins. Returns the model with which XGBoost continues."""
        self._begin()
        return model

    def after_training(self, model: Any) -> Any:
        """Called when the training has ended. Returns the model that XGBoost returns to its caller."""
        self._end()
        return model

    def before_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        """Called before a round. Returns False to continue the training."""
        self._started, self._evaluated = epoch + 1, evals_log
        return False

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        """Called after a round and its evaluation. Returns False to continue the training."""
        try:
            self._finish_round(epoch + 1)
        except Exception as error:
            warn_failed("GpuMonitor.after_iteration", error)
        return False

    @guarded
    def _begin(self) -> None:
        self._started, self._finished, self._evaluated = 0, 0, {}
        self._hook.begin(None, 0)
        local_variables = variables("xgboost.training", "train", "cv")
        self._hook.plan(local_variables.get("num_boost_round"))
        if isinstance(local_variables.get("params"), Mapping):
            self._hook.config(local_variables["params"])

    @guarded
    def end_with_error(self, error: BaseException) -> None:
        """End the run after an exception in a callback."""
        self._hook.end(error)

    @guarded
    def _end(self) -> None:
        if self._started > self._finished:  # an earlier callback stopped the training, so this one was not called
            self._finish_round(self._started)
        self._evaluated = {}
        self._hook.end()

    def _finish_round(self, rounds: int) -> None:
        self._finished = rounds
        self._hook.at_step(rounds)
        if self._evaluated:
            self._hook.log(_newest(self._evaluated))


def _newest(evaluated: Mapping[str, Mapping[str, Sequence[Any]]]) -> dict[str, object]:
    """Return the last value of each metric. The keys are the names that XGBoost prints.

    In a cross-validation, the value is the mean over the folds.
    """
    return {
        f"{data}-{metric}": values[-1][0] if isinstance(values[-1], tuple) else values[-1]
        for data, metrics in evaluated.items()
        for metric, values in metrics.items()
        if values
    }


def _monitors(container: Any) -> list[GpuMonitor]:
    return [callback for callback in container.callbacks if isinstance(callback, GpuMonitor)]


for _method in ("before_iteration", "after_iteration"):
    _holder = xgboost.callback.CallbackContainer
    setattr(_holder, _method, reporting(getattr(_holder, _method), _monitors))
