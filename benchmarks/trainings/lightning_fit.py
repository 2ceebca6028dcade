"""`Trainer.fit` of Lightning, with a logger that keeps nothing: DeviceStatsMonitor asks for one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from benchmarks.trainings.case import EMPTY, Case, Loader, batches


def prepare() -> Case:
    """Make a tiny model and what trains it."""
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

    return Case(train, ["gpumon", EMPTY, "Lightning's DeviceStatsMonitor"], batches())
