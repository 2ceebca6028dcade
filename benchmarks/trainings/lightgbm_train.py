"""`lightgbm.train`, which evaluates each round."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.trainings.case import EMPTY, STEPS, Case, Loader, table


def prepare() -> Case:
    """Make a tiny model and what trains it."""
    import lightgbm

    from gpumon.callbacks.lightgbm import GpuMonitor

    x, y = table()

    def train(who: str, loader: Loader, epochs: int) -> None:
        def objective(prediction: Any, data: Any) -> Any:
            loader.come_by()
            return prediction - y, y * 0 + 1

        made: dict[str, Callable[[], Any]] = {"gpumon": lambda: GpuMonitor("benchmark"), EMPTY: lambda: _nothing}
        data = lightgbm.Dataset(x, y)
        lightgbm.train(
            {"num_threads": 1, "num_leaves": 4, "verbose": -1, "objective": objective, "metric": "l2"}, data,
            epochs * len(loader), valid_sets=[data], callbacks=[made[who]()] if who else [],
        )  # fmt: skip

    return Case(train, ["gpumon", EMPTY], list(range(STEPS)))


def _nothing(env: Any) -> None:
    """Do nothing after a round."""
