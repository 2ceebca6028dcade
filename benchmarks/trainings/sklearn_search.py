"""`GridSearchCV.fit` of scikit-learn: a step is a fit of a candidate that does nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.trainings.case import EMPTY, STEPS, Case, Loader, table


def prepare() -> Case:
    """Make an estimator that does nothing."""
    from sklearn.base import BaseEstimator
    from sklearn.model_selection import GridSearchCV, KFold

    from gpumon.callbacks.sklearn import GpuMonitor

    class Empty:
        """A callback as scikit-learn asks for it."""

        def setup(self, estimator: Any, context: Any) -> None: ...

        def on_fit_task_begin(self, estimator: Any, context: Any) -> None: ...

        def on_fit_task_end(self, estimator: Any, context: Any) -> None: ...

        def teardown(self, estimator: Any, context: Any) -> None: ...

    class Still(BaseEstimator):  # type: ignore[misc]  # typed or not, by what is installed
        timed: Loader

        def __init__(self, number: int = 0) -> None:
            self.number = number

        def fit(self, x: Any, y: Any) -> Any:
            self.timed.come_by()
            return self

        def score(self, x: Any, y: Any) -> float:
            return 0.5

    x, y = table()
    callbacks: dict[str, Callable[[], Any]] = {"gpumon": lambda: GpuMonitor("benchmark"), EMPTY: Empty}
    folds = 2

    def train(who: str, loader: Loader, epochs: int) -> None:
        Still.timed = loader
        candidates = {"number": range(epochs * len(loader) // folds)}
        search = GridSearchCV(Still(), candidates, cv=KFold(folds), refit=False)
        if who:
            search.set_callbacks(callbacks[who]())
        search.fit(x, y)

    return Case(train, ["gpumon", EMPTY], list(range(STEPS)))
