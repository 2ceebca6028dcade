"""The trainings that `callbacks` times: one framework for each process, with and without a callback.

Every framework fetches its batches from the same loader, which notes the time of each fetch. From one
fetch to the next is a step with all its hooks; from the last of an epoch to the first of the next is
what an epoch adds. So nothing of a framework is replaced, and its start and end are not in the figures.
Boosted trees fetch nothing: there an objective notes the times, a step is a round, and 100 rounds count as an epoch.
"""

from __future__ import annotations

import json
import logging
import random
import sys
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import pairwise
from statistics import fmean, median
from typing import Any

from benchmarks.tags import FILLED_US, steady, training_step

EPOCHS, STEPS = 3, 100
"""Of a block. What an epoch's end leaves in the caches must not reach the median step."""
LONG = 60
"""Steps of 10 ms in a block."""
EMPTY, TWO_CLOCKS = "an empty callback", "a generator, two clock readings"
"""The floors: what any callback of the framework's own class costs, and what it takes to measure a wait at all."""
Train = Callable[[str, Any, int], None]
"""Trains with a callback, by its name, on a loader, for so many epochs."""


class Loader:
    """The same batches in each epoch, with the time of each fetch on both clocks (ns)."""

    batch_size = None
    dataset = ()

    def __init__(self, batches: list[Any], work: Callable[[], object] | None = None) -> None:
        self.batches = batches
        self.work = work
        self.epochs: list[list[tuple[int, int]]] = []

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Any]:
        fetched: list[tuple[int, int]] = []
        self.epochs.append(fetched)
        for batch in self.batches:
            if self.work:
                self.work()
            fetched.append((time.process_time_ns(), time.perf_counter_ns()))
            yield batch

    def come_by(self) -> None:
        """Note a round of a training that fetches nothing."""
        if not self.epochs or len(self.epochs[-1]) == len(self.batches):
            self.epochs.append([])
        if self.work:
            self.work()
        self.epochs[-1].append((time.process_time_ns(), time.perf_counter_ns()))

    def steps(self, clock: int) -> list[float]:
        """µs from fetch to fetch within epochs; the first epoch warms up where there are more."""
        counted = self.epochs[1:] or self.epochs
        return [(b[clock] - a[clock]) / 1000 for epoch in counted for a, b in pairwise(epoch)]

    def turns(self, clock: int) -> list[float]:
        """µs from the last fetch of an epoch to the first of the next."""
        pairs = zip(self.epochs[1:], self.epochs[2:], strict=False)
        return [(after[0][clock] - before[-1][clock]) / 1000 for before, after in pairs]


def plain() -> tuple[Train, list[str], list[Any]]:
    """A loop as people write it."""
    import torch

    import gpumon

    model = torch.nn.Linear(16, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    names = ["gpumon", TWO_CLOCKS, *(["nvitop, with collector(tag)"] if find_spec("nvitop") else [])]
    names += ["zeus, windows"] if find_spec("zeus") else []

    def step(batch: Any) -> None:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(batch[0]), batch[1]).backward()
        optimizer.step()

    def two_clocks(loader: Loader) -> Iterator[Any]:
        since = time.monotonic_ns()
        for batch in loader:
            waits.append(time.monotonic_ns() - since)
            yield batch
            since = time.monotonic_ns()

    waits: deque[int] = deque(maxlen=1)
    collector = _collector()

    def with_nvitop(loader: Loader, epochs: int) -> None:
        with collector(tag="train"):
            for _ in range(epochs):
                with collector(tag="epoch"):
                    for batch in loader:
                        with collector(tag="batch"):
                            step(batch)
                    collector.collect()

    def with_zeus(loader: Loader, epochs: int) -> None:
        from zeus.monitor import ZeusMonitor

        monitor = ZeusMonitor()
        if not monitor.gpu_indices:
            raise RuntimeError("its windows would measure no GPU here")
        for _ in range(epochs):
            monitor.begin_window("epoch")
            for batch in loader:
                monitor.begin_window("step")
                step(batch)
                monitor.end_window("step")
            monitor.end_window("epoch")

    def train(who: str, loader: Loader, epochs: int) -> None:
        if who == "gpumon":
            with gpumon.run("benchmark", epochs=epochs) as run:
                _shown(run)
                for _ in run.epochs():
                    for batch in run.steps(loader):
                        step(batch)
                    run.log(loss=0.5)
        elif who == TWO_CLOCKS:
            for _ in range(epochs):
                for batch in two_clocks(loader):
                    step(batch)
        elif who.startswith("nvitop"):
            with_nvitop(loader, epochs)
        elif who.startswith("zeus"):
            with_zeus(loader, epochs)
        else:
            for _ in range(epochs):
                for batch in loader:
                    step(batch)

    return train, names, _batches()


def keras_fit() -> tuple[Train, list[str], list[Any]]:
    """`model.fit` on the torch backend."""
    import keras
    from torch.utils.data import DataLoader

    from gpumon.callbacks.keras import GpuMonitor

    class Batches(DataLoader):  # type: ignore[misc]  # typed or not, by what is installed
        """Data that Keras takes for a loader of torch."""

        def __init__(self, loader: Loader) -> None:
            super().__init__(loader.batches, batch_size=None)
            self.timed = loader

        def __iter__(self) -> Any:
            return iter(self.timed)

    model = keras.Sequential([keras.layers.Input((16,)), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")

    def train(who: str, loader: Loader, epochs: int) -> None:
        callbacks: dict[str, Callable[[], list[Any]]] = {
            "gpumon": lambda: [GpuMonitor("benchmark")], EMPTY: lambda: [keras.callbacks.Callback()],
        }  # fmt: skip
        model.fit(Batches(loader), epochs=epochs, callbacks=callbacks[who]() if who else [], verbose=0)

    return train, ["gpumon", EMPTY], _batches()


def lightning_fit() -> tuple[Train, list[str], list[Any]]:
    """`Trainer.fit`, with a logger that keeps nothing: DeviceStatsMonitor asks for one."""
    import torch
    from lightning.pytorch import Callback, LightningModule, Trainer
    from lightning.pytorch.callbacks import DeviceStatsMonitor
    from lightning.pytorch.loggers.logger import DummyLogger

    from gpumon.callbacks.lightning import GpuMonitor

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    class Net(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(16, 1)

        def training_step(self, batch: Any, index: int) -> Any:
            return torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.01)

    def train(who: str, loader: Loader, epochs: int) -> None:
        peer: dict[str, Callable[[], Any]] = {
            "gpumon": lambda: GpuMonitor("benchmark"), EMPTY: Callback,
            "Lightning's DeviceStatsMonitor": DeviceStatsMonitor,
        }  # fmt: skip
        trainer = Trainer(
            max_epochs=epochs, accelerator="cpu", devices=1, logger=DummyLogger(), enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False, callbacks=[peer[who]()] if who else [],
        )  # fmt: skip
        trainer.fit(Net(), loader)

    return train, ["gpumon", EMPTY, "Lightning's DeviceStatsMonitor"], _batches()


def transformers_fit() -> tuple[Train, list[str], list[Any]]:
    """`transformers.Trainer.train`."""
    import tempfile

    import torch
    from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

    from gpumon.callbacks.transformers import GpuMonitor

    class Net(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(16, 1)

        def forward(self, x: Any, labels: Any) -> dict[str, Any]:
            return {"loss": torch.nn.functional.mse_loss(self.layer(x), labels)}

    class OnLoader(Trainer):  # type: ignore[misc]
        timed: Any = None

        def get_train_dataloader(self) -> Any:
            return self.timed

    def train(who: str, loader: Loader, epochs: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            arguments = TrainingArguments(
                folder, num_train_epochs=epochs, use_cpu=True, report_to="none", disable_tqdm=True,
                save_strategy="no", logging_strategy="no", remove_unused_columns=False,
            )  # fmt: skip
            callbacks: dict[str, Callable[[], list[Any]]] = {
                "gpumon": lambda: [GpuMonitor("benchmark")], EMPTY: lambda: [TrainerCallback()],
            }  # fmt: skip
            chosen = callbacks[who]() if who else []
            trainer = OnLoader(Net(), arguments, train_dataset=loader.batches, callbacks=chosen)
            trainer.remove_callback(PrinterCallback)
            trainer.timed = loader
            trainer.train()

    return train, ["gpumon", EMPTY], [{"x": x, "labels": y} for x, y in _batches()]


def ignite_run() -> tuple[Train, list[str], list[Any]]:
    """`Engine.run` of Ignite."""
    import torch
    from ignite.engine import Engine, Events

    from gpumon.callbacks.ignite import GpuMonitor

    layer = torch.nn.Linear(16, 1)
    optimizer = torch.optim.SGD(layer.parameters(), 0.01)

    def step(engine: Any, batch: Any) -> float:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(layer(batch[0]), batch[1]).backward()
        optimizer.step()
        return 0.5

    def train(who: str, loader: Loader, epochs: int) -> None:
        engine = Engine(step)
        if who == "gpumon":
            GpuMonitor("benchmark").attach(engine)
        elif who:
            for event in (Events.GET_BATCH_STARTED, Events.GET_BATCH_COMPLETED, Events.ITERATION_COMPLETED):
                engine.add_event_handler(event, lambda: None)
        engine.run(loader, max_epochs=epochs)

    return train, ["gpumon", EMPTY], _batches()


def accelerate_log() -> tuple[Train, list[str], list[Any]]:
    """A loop that logs each step by Accelerate."""
    import torch
    from accelerate import Accelerator
    from accelerate.tracking import GeneralTracker

    from gpumon.callbacks.accelerate import GpuMonitorTracker

    class Empty(GeneralTracker):  # type: ignore[misc]
        name = "empty"
        requires_logging_directory = False
        tracker = None

    layer = torch.nn.Linear(16, 1)
    optimizer = torch.optim.SGD(layer.parameters(), 0.01)

    def train(who: str, loader: Loader, epochs: int) -> None:
        trackers: dict[str, Callable[[], list[Any]]] = {
            "gpumon": lambda: [GpuMonitorTracker("benchmark")],
            EMPTY: lambda: [Empty()],
        }
        accelerator = Accelerator(cpu=True, log_with=trackers[who]() if who else None)
        accelerator.init_trackers("benchmark")
        for _ in range(epochs):
            for step, batch in enumerate(loader):
                optimizer.zero_grad()
                accelerator.backward(torch.nn.functional.mse_loss(layer(batch[0]), batch[1]))
                optimizer.step()
                accelerator.log({"loss": 0.5}, step=step)
        accelerator.end_training()

    return train, ["gpumon", EMPTY], _batches()


def xgboost_train() -> tuple[Train, list[str], list[Any]]:
    """`xgboost.train`, which evaluates each round."""
    import xgboost

    from gpumon.callbacks.xgboost import GpuMonitor

    x, y = _table()
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

    return train, ["gpumon", EMPTY], list(range(STEPS))


def lightgbm_train() -> tuple[Train, list[str], list[Any]]:
    """`lightgbm.train`, which evaluates each round."""
    import lightgbm

    from gpumon.callbacks.lightgbm import GpuMonitor

    x, y = _table()

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

    return train, ["gpumon", EMPTY], list(range(STEPS))


def _nothing(env: Any) -> None:
    """Do nothing after a round of LightGBM."""


def _table() -> tuple[Any, Any]:
    import numpy as np

    x = np.random.default_rng(1).normal(size=(200, 4))
    return x, x.sum(axis=1)


FRAMEWORKS: dict[str, Callable[[], tuple[Train, list[str], list[Any]]]] = {
    "plain loop": plain,
    "Keras on torch": keras_fit,
    "Lightning": lightning_fit,
    "Transformers": transformers_fit,
    "Ignite": ignite_run,
    "Accelerate": accelerate_log,
    "XGBoost": xgboost_train,
    "LightGBM": lightgbm_train,
}


def measure(framework: str, rounds: int, pairs: int) -> dict[str, Any]:
    """For each callback ('': none) a list by block; blocks of one round follow each other in random order."""
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    train, names, batches = FRAMEWORKS[framework]()
    chance, failed = random.Random(1), {}
    for name in list(names):
        try:
            train(name, Loader(batches), 2)
        except Exception as error:  # a peer that needs what is not here: said, and left out
            if name == "gpumon":
                raise
            failed[name] = f"{type(error).__name__}: {error}"
            names.remove(name)
    found: dict[str, dict[str, list[float]]] = {
        name: {"cpu": [], "mean": [], "wall": [], "epoch": []} for name in ("", *names)
    }
    for _ in range(rounds):
        for name in chance.sample(list(found), len(found)):
            loader = Loader(batches)
            train(name, loader, EPOCHS)
            found[name]["cpu"].append(median(loader.steps(0)))
            found[name]["mean"].append(fmean(loader.steps(0)))
            found[name]["wall"].append(median(loader.steps(1)))
            found[name]["epoch"].append(median(loader.turns(0)))
    work = steady(training_step(FILLED_US)[1])
    long: dict[str, list[float]] = {name: [] for name in found if name in ("", "gpumon", EMPTY, TWO_CLOCKS)}
    for _ in range(pairs):
        for name in chance.sample(list(long), len(long)):
            loader = Loader(batches[:LONG], work)
            train(name, loader, 1)
            long[name].append(median(loader.steps(1)))
    return {"found": found, "long": long, "failed": failed}


def _collector() -> Any:
    """nvitop's, one for all blocks: each has a thread that never ends, and rests while nothing is collected."""
    if not find_spec("nvitop"):
        return None
    from nvitop import ResourceMetricCollector

    return ResourceMetricCollector()


def _batches() -> list[Any]:
    import torch

    return [(torch.randn(8, 16), torch.randn(8, 1)) for _ in range(STEPS)]


def _shown(run: Any) -> None:
    if not run.on:
        raise RuntimeError("no board could be made")


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
