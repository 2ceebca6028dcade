"""Trainings on tables, one run of gpumon for each case; prints as JSON what the frameworks' own hooks saw.

Beside a `GpuMonitor` stand neighbors that take the time: a framework calls one just before it and one just after it.
"""

from __future__ import annotations

import copy
import json
import pickle
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

warnings.filterwarnings("ignore")

import lightgbm  # noqa: E402
import numpy as np  # noqa: E402
import xgboost  # noqa: E402
from sklearn.experimental import enable_halving_search_cv  # noqa: E402, F401
from sklearn.linear_model import LogisticRegression, Ridge, SGDRegressor  # noqa: E402
from sklearn.model_selection import GridSearchCV, HalvingGridSearchCV  # noqa: E402
from sklearn.pipeline import Pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402

import gpumon  # noqa: E402
from gpumon.callbacks import lightgbm as lightgbm_callback  # noqa: E402
from gpumon.callbacks import sklearn as sklearn_callback  # noqa: E402
from gpumon.callbacks import xgboost as xgboost_callback  # noqa: E402
from tests.trainings import recipe  # noqa: E402

X = np.random.default_rng(0).normal(size=(64, 3))
Y = X.sum(axis=1)
NOISE = np.random.default_rng(1).normal(size=64)
told: dict[str, dict[str, Any]] = {}


class Neighbor(xgboost.callback.TrainingCallback):  # type: ignore[misc]  # typed or not, by what is installed
    """Takes the time in the hooks that begin and end a training; stops it after a round where asked."""

    def __init__(self, times: dict[str, int], stop: int = -1, prune: int = -1) -> None:
        super().__init__()
        self.times = times
        self.stop = stop
        self.prune = prune

    def before_training(self, model: Any) -> Any:
        self.times["begin"] = time.monotonic_ns()
        return model

    def after_training(self, model: Any) -> Any:
        self.times["end"] = time.monotonic_ns()
        return model

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        if epoch == self.prune:
            raise TrialPruned
        return epoch == self.stop


class TrialPruned(Exception):
    """As that of Optuna, which is not installed."""

    __module__ = "optuna.exceptions"


def breaks(after: int, error: BaseException | None = None) -> Callable[..., Any]:
    """An objective that raises in a round; without an error it is that of least squares."""
    rounds = iter(range(1000))

    def objective(prediction: Any, data: Any) -> Any:
        if next(rounds) == after and error is not None:
            raise error
        return prediction - data.get_label(), np.ones_like(prediction)

    return objective


def by_xgboost() -> None:
    def train(
        case: str, monitor: Any = None, labels: Any = Y, stop: int = -1, prune: int = -1, **settings: Any
    ) -> None:  # fmt: skip
        before: dict[str, int] = {}
        after: dict[str, int] = {}
        told[case] = {"before": before, "after": after, "metrics": {}}
        data = xgboost.DMatrix(X, Y)
        callbacks = [Neighbor(before, stop), monitor or xgboost_callback.GpuMonitor(case), Neighbor(after, prune=prune)]
        xgboost.train(
            {"max_depth": 2, "seed": 0}, data, evals=[(data, "fitted"), (xgboost.DMatrix(X, labels), "held")],
            verbose_eval=False, callbacks=callbacks, evals_result=told[case]["metrics"], **settings,
        )  # fmt: skip

    train("xgboost", num_boost_round=6)
    train("xgboost, early", labels=NOISE, num_boost_round=500, early_stopping_rounds=2)
    train("xgboost, stopped", num_boost_round=6, stop=2)
    copied = pickle.loads(pickle.dumps(copy.deepcopy(xgboost_callback.GpuMonitor("xgboost, copied"))))
    train("xgboost, copied", monitor=copied, num_boost_round=3)
    with suppress(ValueError):
        train("xgboost, failed", num_boost_round=6, obj=breaks(3, ValueError("boom")))
    with suppress(TrialPruned):
        train("xgboost, pruned", num_boost_round=6, prune=3)
    crossed = xgboost.cv(
        {"max_depth": 2, "seed": 0}, xgboost.DMatrix(X, Y), num_boost_round=4, nfold=3, as_pandas=False,
        callbacks=[xgboost_callback.GpuMonitor("xgboost, crossed")],
    )  # fmt: skip
    told["xgboost, crossed"] = {"metrics": crossed}
    estimator = xgboost.XGBRegressor(n_estimators=5, callbacks=[xgboost_callback.GpuMonitor("xgboost, estimator")])
    estimator.fit(X, Y)


def prunes(is_before: bool) -> Callable[[Any], None]:
    """A callback of LightGBM that raises in a round, before or after it."""

    def callback(env: Any) -> None:
        if env.iteration == 3:
            raise TrialPruned

    callback.before_iteration = is_before  # type: ignore[attr-defined]
    return callback


def by_lightgbm() -> None:
    settings = {"num_leaves": 4, "min_data_in_leaf": 1, "verbose": -1, "seed": 0, "metric": "l2"}

    def train(case: str, labels: Any = Y, rounds: int = 6, more: Any = (), **changed: Any) -> Any:
        seen: dict[str, list[int]] = {"before": [], "after": []}
        told[case] = {"metrics": {}, **seen}

        def neighbor(times: list[int], *, before: bool) -> Any:
            def call(env: Any) -> None:
                times.append(time.monotonic_ns())

            call.before_iteration = before  # type: ignore[attr-defined]
            return call

        data = lightgbm.Dataset(X, Y)
        booster = lightgbm.train(
            {**settings, **changed}, data, rounds, valid_sets=[data, lightgbm.Dataset(X, labels, reference=data)],
            valid_names=["fitted", "held"], callbacks=[
                neighbor(seen["before"], before=True), lightgbm_callback.GpuMonitor(case),
                neighbor(seen["before"], before=True), lightgbm.record_evaluation(told[case]["metrics"]), *more,
                neighbor(seen["after"], before=False),
            ],
        )  # fmt: skip
        told[case]["returned"] = time.monotonic_ns()
        return booster

    def interrupt(env: Any) -> None:
        if env.iteration == 2:
            raise KeyboardInterrupt

    train("lightgbm")
    early = train("lightgbm, early", NOISE, 500, [lightgbm.early_stopping(2, verbose=False)])
    told["lightgbm, early"]["rounds"] = len(told["lightgbm, early"]["metrics"]["held"]["l2"])
    assert early.best_iteration < told["lightgbm, early"]["rounds"]
    with suppress(ValueError):
        train("lightgbm, failed", objective=breaks(3, ValueError("boom")))
    with suppress(KeyboardInterrupt):
        train("lightgbm, interrupted", more=[interrupt])
    for case, is_before in (("lightgbm, pruned", False), ("lightgbm, pruned before", True)):
        with suppress(TrialPruned):
            train(case, more=[prunes(is_before)])
    crossed = lightgbm.cv(
        settings, lightgbm.Dataset(X, Y), 4, nfold=3, stratified=False,
        callbacks=[lightgbm_callback.GpuMonitor("lightgbm, crossed")],
    )  # fmt: skip
    told["lightgbm, crossed"] = {"metrics": crossed}
    estimator = lightgbm.LGBMRegressor(n_estimators=5, min_child_samples=1, verbose=-1)
    estimator.fit(X, Y, callbacks=[lightgbm_callback.GpuMonitor("lightgbm, estimator")])


class Count:
    """Counts the tasks that have none in them."""

    ended = 0

    def setup(self, estimator: Any, context: Any) -> None: ...
    def teardown(self, estimator: Any, context: Any) -> None: ...
    def on_fit_task_begin(self, estimator: Any, context: Any) -> None: ...

    def on_fit_task_end(self, estimator: Any, context: Any) -> None:
        self.ended += context.max_subtasks == 0


class Breaking(Ridge):  # type: ignore[misc]
    """Cannot be fitted again once it was scored."""

    def fit(self, x: Any, y: Any) -> Any:
        if len(x) == len(X):
            raise ValueError("boom")
        return super().fit(x, y)


def by_sklearn() -> None:
    def search(case: str, kind: Any = GridSearchCV, model: Any = None, **settings: Any) -> Any:
        found = kind(model or Ridge(), {"alpha": [0.1, 1.0, 10.0]}, cv=2, **settings)
        return found.set_callbacks(sklearn_callback.GpuMonitor(case)).fit(X, Y)

    told["search"] = {"best": search("search").best_score_}
    search("search, elsewhere", n_jobs=2, refit=False)
    search("search, halving", HalvingGridSearchCV, factor=2, random_state=0, min_resources=16)
    with suppress(ValueError):
        search("search, failed", model=Breaking())
    try:
        int("none")
    except ValueError:  # what is handled meanwhile is no failure of the fit
        pipeline = Pipeline([("scale", StandardScaler()), ("fit", LogisticRegression())])
        pipeline.set_callbacks(sklearn_callback.GpuMonitor("pipeline")).fit(X, Y > 0)
    held = {"gpumon": gpumon, "batches": [(X[:32], Y[:32]), (X[32:], Y[32:])], "x_held": X, "y_held": Y}
    exec(recipe("partial_fit"), {**held, "model": SGDRegressor()})
    exec(recipe("search.fit(x_held"), {**held, "search": GridSearchCV(Ridge(), {"alpha": [0.1, 1.0]}, cv=2)})
    count = Count()
    regression = LogisticRegression(max_iter=5, tol=0)
    regression.set_callbacks(sklearn_callback.GpuMonitor("iterations"), count).fit(X, Y > 0)
    told["iterations"] = {"tasks": count.ended}


if __name__ == "__main__":
    by_xgboost()
    by_lightgbm()
    by_sklearn()
    print(json.dumps(told))
