"""The tags of a training by LightGBM, from 4.0 on: `train`, `cv` and its estimators for scikit-learn.

    from gpumon.callbacks.lightgbm import GpuMonitor

    lightgbm.train(..., callbacks=[GpuMonitor()])
    lightgbm.LGBMClassifier().fit(..., callbacks=[GpuMonitor()])

Boosting rounds are steps; there are no epochs. A round contains the evaluation after it: no hook stands between them.

LightGBM calls a callback either before each round or after it, and none when it stops. So this one is called before
them, and at the first puts itself around those that are called after, one of which may stop the training.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gpumon.callbacks.frameworks import missing, require
from gpumon.callbacks.hook import Hook, failed, guarded, variables

try:
    import lightgbm
except ModuleNotFoundError as error:
    if error.name != "lightgbm":
        raise  # it is there, and lacks something itself
    raise missing("lightgbm") from None

require("lightgbm", lightgbm.__version__)

_PRECEDING, _FOLLOWING = "callbacks_before_iter", "callbacks_after_iter"
"""The variables of `train` and `cv` that hold what is called before and after a round."""


class GpuMonitor:
    """Shows a training in gpumon: its boosting rounds as steps, and the metrics of its evaluations.

    LightGBM calls nothing when a round fails: the run then ends when the callback is dropped, with its next
    training, or with the process.
    """

    before_iteration = True

    def __init__(self, name: str | None = None, **settings: Any) -> None:
        """`name` and `settings` (`devices`, `batch`, `metrics`, `run_id`, `directory`) are those of `gpumon.run`."""
        self._hook = Hook("lightgbm", name, **settings)

    def __call__(self, env: Any) -> None:
        """A round begins."""
        if env.iteration == env.begin_iteration:
            self._begin(env)

    @guarded
    def _begin(self, env: Any) -> None:
        given = variables("lightgbm.engine", "train", "cv")
        preceding, following = given[_PRECEDING], given[_FOLLOWING]
        self._hook.begin(None, 0)
        self._hook.plan(env.end_iteration - env.begin_iteration)
        self._hook.config(env.params)
        # Each in its place: the list is being gone through.
        preceding[:] = [one if one is self else _Callbacks(self._hook, [one]) for one in preceding]
        following[:] = [_Following(self._hook, list(following))]


class _Callbacks:
    """Callbacks of others, as one. Whatever they raise passes through, and ends the run."""

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
    """The callbacks after a round."""

    def __call__(self, env: Any) -> None:
        """A round and its evaluation are over."""
        try:
            self._hook.at_step(env.iteration + 1 - env.begin_iteration)
            if env.evaluation_result_list:
                self._hook.log({f"{one[0]}-{one[1]}": one[2] for one in env.evaluation_result_list})
        except Exception as error:
            failed("GpuMonitor", error)
        super().__call__(env)
        if env.iteration + 1 == env.end_iteration:
            self._end()
