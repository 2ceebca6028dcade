"""A regression with Lightning, seen by gpumon through one callback.

    python examples/lightning_regression.py              # one process
    python examples/lightning_regression.py --ranks 2    # Lightning's ddp: two processes, one run

Needs `pip install lightning`. While it runs, `gpumon tui` shows its epochs (counted from 0, as Lightning does), the
sanity check before the first, the validation twice in each, and the losses; `gpumon runs show` prints them afterward.
"""

from __future__ import annotations

import argparse

import lightning.pytorch as lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

from gpumon.callbacks.lightning import GpuMonitor


class Regression(lightning.LightningModule):
    """A small network that learns a sum of sines."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))

    def loss(self, batch: list[torch.Tensor]) -> torch.Tensor:
        inputs, wanted = batch
        return torch.nn.functional.mse_loss(self.net(inputs).squeeze(1), wanted)

    def training_step(self, batch: list[torch.Tensor], number: int) -> torch.Tensor:
        loss = self.loss(batch)
        self.log("train_loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch: list[torch.Tensor], number: int) -> None:
        self.log("val_loss", self.loss(batch), sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-2)


def batches(count: int, seed: int) -> DataLoader[tuple[torch.Tensor, ...]]:
    """Made-up points and the sum of their sines."""
    inputs = torch.randn(count, 8, generator=torch.Generator().manual_seed(seed))
    return DataLoader(TensorDataset(inputs, inputs.sin().sum(1)), batch_size=64, shuffle=seed == 0)


def main() -> None:
    parser = argparse.ArgumentParser(description="a regression with Lightning, seen by gpumon")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--ranks", type=int, default=1, help="processes (or GPUs) that train together")
    parser.add_argument("--strategy", default="ddp", help="how several ranks begin: ddp or ddp_spawn")
    chosen = parser.parse_args()
    trainer = lightning.Trainer(
        max_epochs=chosen.epochs,
        val_check_interval=0.5,
        devices=chosen.ranks,
        strategy=chosen.strategy if chosen.ranks > 1 else "auto",
        accelerator="gpu" if torch.cuda.device_count() >= chosen.ranks else "cpu",
        callbacks=[GpuMonitor("lightning-regression")],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Regression(), batches(4096, seed=0), batches(512, seed=1))
    print(f"validation loss {trainer.callback_metrics['val_loss'].item():.4f}")


if __name__ == "__main__":
    main()
