"""A callback for scikit-learn 1.9 or newer: for searches, pipelines and other estimators that support callbacks.

    from gpumon.callbacks.sklearn import GpuMonitor

    GridSearchCV(...).set_callbacks(GpuMonitor()).fit(X, y)

Steps are the finished tasks that scikit-learn reports, such as the fits of a search or the iterations of an estimator.
There are no epochs. For an older scikit-learn or another estimator, write `with gpumon.run(...)` around the fit. In a
loop over `partial_fit`, `run.epochs()` can mark epochs (docs/train/scikit-learn.md).
"""

from __future__ import annotations

from typing import Any

from gpumon.callbacks.hook import Hook, guarded
from gpumon.common.errors import FrameworkError, pip

try:
    import sklearn
except ModuleNotFoundError as error:
    if error.name != "sklearn":
        raise  # scikit-learn is installed, but one of its own imports is missing
    raise FrameworkError(f"scikit-learn is not installed: '{pip('install scikit-learn')}' (1.9 or newer)") from None
try:
    import sklearn.callback
except ModuleNotFoundError as error:
    if error.name != "sklearn.callback":
        raise
    raise FrameworkError(
        f"gpumon's callback requires scikit-learn 1.9 or newer; {sklearn.__version__} is installed. "
        "With it, write 'with gpumon.run(...):' around the fit"
    ) from None

_REFIT = "refit-with-best-params"
"""Name of the task in which a search fits the best candidate again."""


class GpuMonitor:
    """Shows a fit in gpumon: its finished tasks as steps, and for a search, its stages as phases and its best score.

    Fits in other processes (`n_jobs`) are counted only at the end of the search.
    """

    def __init__(self, name: str | None = None, **settings: Any) -> None:
        """`name` and `settings` (such as `devices`, `batch`, `run_id` or `directory`) are passed to `gpumon.run`."""
        self._hook = Hook("sklearn", name, **settings)
        self._done = 0
        self._is_complete = False
        self._open: list[tuple[str, int]] = []
        """For each open task with subtasks: the phase before it, and the number of steps at its start."""

    @guarded
    def setup(self, estimator: Any, context: Any) -> None:
        """Called when a fit begins."""
        self._done, self._is_complete, self._open = 0, False, []
        self._hook.begin(None, 0)
        self._hook.config({"class": type(estimator).__name__, **estimator.get_params(deep=False)})

    @guarded
    def on_fit_task_begin(self, estimator: Any, context: Any) -> None:
        """Called when a task of the fit begins."""
        if self._hook.run is None or context.parent is None:
            return  # the task runs in another process, or is the fit itself
        if context.task_name == _REFIT:
            self._hook.phase("refit")
        elif context.max_subtasks != 0:
            self._open.append((self._hook.phase(context.task_name), self._done))
            if context.task_name == "search" and not context.sequential_subtasks:  # each subtask is a fit
                self._hook.plan(context.max_subtasks + (context.parent.max_subtasks or 1) - 1)

    @guarded
    def on_fit_task_end(self, estimator: Any, context: Any) -> None:
        """Called when a task of the fit has ended. Returns None, so that the fit continues."""
        if self._hook.run is None:
            return
        if context.parent is None:
            self._is_complete = True
            score = getattr(estimator, "best_score_", None)
            self._hook.log({} if score is None else {"best_score": score})
        elif context.max_subtasks == 0:
            self._done += 1
            self._hook.at_step(self._done)
            if context.task_name == _REFIT:
                self._hook.phase("")
        elif self._open:
            phase, done_before = self._open.pop()
            done = done_before + sum(task.max_subtasks == 0 for task in context)
            if done > self._done:  # some tasks ran in other processes
                self._done = done
                self._hook.skip_to_step(done)
            self._hook.phase(phase)

    @guarded
    def teardown(self, estimator: Any, context: Any) -> None:
        """Called when the fit has ended or failed."""
        self._hook.end(failed=not self._is_complete)
