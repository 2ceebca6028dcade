"""The tags of a training by XGBoost, from 2.0 on: `train`, `cv` and its estimators for scikit-learn.

    from gpumon.callbacks.xgboost import GpuMonitor

    xgboost.train(..., callbacks=[GpuMonitor()])
    xgboost.XGBClassifier(..., callbacks=[GpuMonitor()])

Boosting rounds are steps; there are no epochs. A round contains the evaluation after it: no hook stands between them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any

from gpumon.callbacks.frameworks import missing, require
from gpumon.callbacks.hook import Hook, failed, guarded, variables

try:
    import xgboost
except ModuleNotFoundError as error:
    if error.name != "xgboost":
        raise  # it is there, and lacks something itself
    raise missing("xgboost") from None

require("xgboost", xgboost.__version__)


class GpuMonitor(xgboost.callback.TrainingCallback):  # type: ignore[misc]  # typed or not, by what is installed
    """Shows a training in gpumon: its boosting rounds as steps, and the metrics of its evaluations.

    An exception of another callback ends the run. Of others XGBoost calls nothing: the run then ends when the callback
    is dropped, with its next training, or with the process.
    """

    def __init__(self, name: str | None = None, **settings: Any) -> None:
        """`name` and `settings` (`devices`, `batch`, `metrics`, `run_id`, `directory`) are those of `gpumon.run`."""
        super().__init__()
        self._hook = Hook("xgboost", name, **settings)
        self._begun = 0
        self._made = 0
        self._evaluated: Mapping[str, Mapping[str, Sequence[Any]]] = {}

    def before_training(self, model: Any) -> Any:
        """The training begins; XGBoost continues with the model that is returned."""
        self._begin()
        return model

    def after_training(self, model: Any) -> Any:
        """The training is over; XGBoost returns the model that is returned here."""
        self._end()
        return model

    def before_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        """A round begins; False: the training continues."""
        self._begun, self._evaluated = epoch + 1, evals_log
        return False

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        """A round and its evaluation are over; False: the training continues."""
        try:
            self._came_to(epoch + 1)
        except Exception as error:
            failed("GpuMonitor.after_iteration", error)
        return False

    @guarded
    def _begin(self) -> None:
        self._begun, self._made, self._evaluated = 0, 0, {}
        self._hook.begin(None, 0)
        given = variables("xgboost.training", "train", "cv")
        self._hook.plan(given.get("num_boost_round"))
        if isinstance(given.get("params"), Mapping):
            self._hook.config(given["params"])

    @guarded
    def raised(self, error: BaseException) -> None:
        """A callback has raised, which ends the training."""
        self._hook.end(error)

    @guarded
    def _end(self) -> None:
        if self._begun > self._made:  # a callback before this one stopped the training, and the others were not called
            self._came_to(self._begun)
        self._evaluated = {}
        self._hook.end()

    def _came_to(self, rounds: int) -> None:
        self._made = rounds
        self._hook.at_step(rounds)
        if self._evaluated:
            self._hook.log(_newest(self._evaluated))


def _newest(evaluated: Mapping[str, Mapping[str, Sequence[Any]]]) -> dict[str, object]:
    """The last value of each metric, by the name that XGBoost prints; of a cross-validation its mean."""
    return {
        f"{data}-{metric}": values[-1][0] if isinstance(values[-1], tuple) else values[-1]
        for data, metrics in evaluated.items()
        for metric, values in metrics.items()
        if values
    }


def _reporting(method: Callable[..., Any]) -> Callable[..., Any]:
    """`method` of a container of callbacks, whose monitors are told of an exception that one of them raises."""

    @wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        except BaseException as error:
            for callback in self.callbacks:
                if isinstance(callback, GpuMonitor):
                    callback.raised(error)
            raise

    return call


for _method in ("before_iteration", "after_iteration"):
    _holder = xgboost.callback.CallbackContainer
    setattr(_holder, _method, _reporting(getattr(_holder, _method)))
