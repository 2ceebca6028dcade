"""A loop as people write it, and its peers."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

from benchmarks.trainings.case import TWO_CLOCKS, Case, Loader, batches


def prepare() -> Case:
    """Make a tiny model."""
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

    return Case(train, names, batches())


def _collector() -> Any:
    """nvitop's, one for all blocks: each has a thread that never ends, and rests while nothing is collected."""
    if not find_spec("nvitop"):
        return None
    from nvitop import ResourceMetricCollector

    return ResourceMetricCollector()


def _shown(run: Any) -> None:
    if not run.on:
        raise RuntimeError("no board could be made")
