"""`Engine.run` of Ignite."""

from __future__ import annotations

from typing import Any

from benchmarks.trainings.case import EMPTY, Case, Loader, batches


def prepare() -> Case:
    """Make a tiny model and what trains it."""
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

    return Case(train, ["gpumon", EMPTY], batches())
