"""A callback for LightGBM 4.0 or newer: for `train`, `cv` and the estimators with scikit-learn's interface.

    from gpumon.callbacks.lightgbm import GpuMonitor

    lightgbm.train(..., callbacks=[GpuMonitor()])
    lightgbm.LGBMClassifier().fit(..., callbacks=[GpuMonitor()])

Boosting rounds are steps. There are no epochs. A round includes its evaluation, because no callback is called between
the two.

LightGBM calls a callback either before or after each round. It calls no callback when the training stops. This callback
is called before each round. In the first round, it wraps the callbacks that are called after rounds, because they may
stop the training.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gpumon.callbacks.frameworks import import_framework
from gpumon.callbacks.hook import Hook, guarded, variables, warn_failed

lightgbm = import_framework("lightgbm")

_PRECEDING, _FOLLOWING = "callbacks_before_iter", "callbacks_after_iter"
"""Names of the local variables of `train` and `cv` that hold the callbacks called before and after each round."""


class GpuMonitor:
    """Shows a training run in gpumon: its boosting rounds as steps, and the metrics of its evaluations.

    LightGBM calls no callback when a round fails. The run then ends when this object is deleted, when its next training
    begins, or with the process.
    """

    before_iteration = True

    def __init__(self, name: str | None = None, **settings: Any) -> None:
        """`name` and `settings` (such as `devices`, `batch`, `run_id` or `directory`) are passed to `gpumon.run`."""
        self._hook = Hook("lightgbm", name, **settings)

    def __call__(self, env: Any) -> None:
        """Called before a round."""
        if env.iteration == env.begin_iteration:
            self._begin(env)

    @guarded
    def _begin(self, env: Any) -> None:
        local_variables = variables("lightgbm.engine", "train", "cv")
        preceding, following = local_variables[_PRECEDING], local_variables[_FOLLOWING]
        self._hook.begin(None, 0)
        self._hook.plan(env.end_iteration - env.begin_iteration)
        self._hook.config(env.params)
        # The callbacks are replaced one by one, because LightGBM is iterating over the list.
        preceding[:] = [callback if callback is self else _Callbacks(self._hook, [callback]) for callback in preceding]
        following[:] = [_Following(self._hook, list(following))]


class _Callbacks:
    """Wraps other callbacks, and ends the run if one of them raises. The exception is raised again."""

    def __init__(self, hook: Hook, callbacks: Sequence[Callable[[Any], object]]) -> None:
        self._hook = hook
        self._callbacks = callbacks

    def __call__(self, env: Any) -> None:
        try:
            for callback in self._callbacks:
                callback(env)
        except lightgbm.callback.EarlyStopException:
            self._end()
            raise
        except BaseException as error:
            self._end(error)
            raise

    @guarded
    def _end(self, error: BaseException | None = None) -> None:
        self._hook.end(error)


class _Following(_Callbacks):
    """Calls the callbacks after a round."""

    def __call__(self, env: Any) -> None:
        """Record the end of a round and its evaluation."""
        try:
            self._hook.at_step(env.iteration + 1 - env.begin_iteration)
            if env.evaluation_result_list:
                self._hook.log({f"{result[0]}-{result[1]}": result[2] for result in env.evaluation_result_list})
        except Exception as error:
            warn_failed("GpuMonitor", error)
        super().__call__(env)
        if env.iteration + 1 == env.end_iteration:
            self._end()
