"""A loop that logs each step by Accelerate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.trainings.case import EMPTY, Case, Loader, batches


def prepare() -> Case:
    """Make a tiny model and what trains it."""
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

    return Case(train, ["gpumon", EMPTY], batches())
