"""A training by Lightning whose values of each epoch go to the loggers of its Trainer."""

from __future__ import annotations

import sys
import time
import warnings
from typing import Any

warnings.filterwarnings("ignore")
sys.modules["tensorflow"] = None  # type: ignore[assignment]  # tensorboard would import it, for half a minute

import lightning.pytorch as lightning  # noqa: E402
import torch  # noqa: E402
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger  # noqa: E402

from gpumon.callbacks.lightning import GpuMonitor  # noqa: E402


class Net(lightning.LightningModule):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Linear(4, 1)

    def training_step(self, batch: Any, number: int) -> Any:
        time.sleep(0.1)
        loss = self.net(batch).pow(2).mean()
        self.log("loss", loss, on_step=False, on_epoch=True)
        return loss

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), 0.01)


def main(device: str) -> None:
    monitor = GpuMonitor("lit", devices=device, log_to="lightning", log_wait=600)
    trainer = lightning.Trainer(
        max_epochs=2, accelerator="cpu", logger=[CSVLogger("lit-csv"), TensorBoardLogger("lit-tensorboard")],
        callbacks=[monitor], enable_progress_bar=False, enable_checkpointing=False, enable_model_summary=False,
        log_every_n_steps=12,
    )  # fmt: skip
    trainer.fit(Net(), torch.utils.data.DataLoader(torch.randn(48, 4), batch_size=4))


if __name__ == "__main__":
    main(sys.argv[1])
