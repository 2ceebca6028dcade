"""`xgboost.train`, which evaluates each round."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.trainings.case import EMPTY, STEPS, Case, Loader, table


def prepare() -> Case:
    """Make a tiny model and what trains it."""
    import xgboost

    from gpumon.callbacks.xgboost import GpuMonitor

    x, y = table()
    data = xgboost.DMatrix(x, y)

    def train(who: str, loader: Loader, epochs: int) -> None:
        def objective(prediction: Any, data: Any) -> Any:
            loader.come_by()
            return prediction - y, y * 0 + 1

        made: dict[str, Callable[[], Any]] = {
            "gpumon": lambda: GpuMonitor("benchmark"), EMPTY: xgboost.callback.TrainingCallback,
        }  # fmt: skip
        xgboost.train(
            {"nthread": 1, "max_depth": 2}, data, epochs * len(loader), evals=[(data, "train")], obj=objective,
            verbose_eval=False, callbacks=[made[who]()] if who else [],
        )  # fmt: skip

    return Case(train, ["gpumon", EMPTY], list(range(STEPS)))
