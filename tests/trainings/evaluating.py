"""Trainings that evaluate and save at the end of each epoch, by three frameworks, one after the other in one process.

Usage: evaluating UUID SECONDS DIRECTORY; an epoch takes `SECONDS`, and an evaluation half of that.
"""

from __future__ import annotations

import sys
import time
import warnings
from typing import Any

warnings.filterwarnings("ignore")
for name in ("jax", "pandas", "sklearn", "tensorflow"):  # Keras would import them, for a second
    sys.modules[name] = None  # type: ignore[assignment]

import keras  # noqa: E402
import lightning.pytorch as lightning  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from lightning.pytorch.callbacks import ModelCheckpoint  # noqa: E402
from torch.utils.data import DataLoader, Dataset  # noqa: E402
from transformers import Trainer, TrainingArguments  # noqa: E402

import gpumon.callbacks.keras  # noqa: E402
import gpumon.callbacks.lightning  # noqa: E402
import gpumon.callbacks.transformers  # noqa: E402

STEPS = 4
BATCH = 4
UUID, SECONDS, DIRECTORY = sys.argv[1], float(sys.argv[2]), sys.argv[3]
WORK = SECONDS / STEPS


class Points(Dataset[Any]):
    """So many batches of points with labels."""

    def __init__(self, batches: int) -> None:
        self.count = batches * BATCH

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"x": torch.ones(4), "labels": torch.tensor(1.0)}


class Net(torch.nn.Module):
    """A model each of whose passes takes a while."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, x: Any, labels: Any = None) -> dict[str, Any]:
        time.sleep(WORK)
        y = self.layer(x)[:, 0]
        return {"loss": (y - labels).pow(2).mean(), "logits": y}


class Module(lightning.LightningModule):  # type: ignore[misc]  # typed or not, by what is installed
    """The same for Lightning."""

    def __init__(self) -> None:
        super().__init__()
        self.net = Net()

    def training_step(self, batch: Any, number: int) -> Any:
        return self.net(**batch)["loss"]

    def validation_step(self, batch: Any, number: int) -> None:
        self.log("val_loss", self.net(**batch)["loss"])

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), 0.1)


class Slow(keras.Sequential):  # type: ignore[misc]
    """The same for Keras."""

    def train_step(self, *given: Any) -> Any:
        time.sleep(WORK)
        return super().train_step(*given)

    def test_step(self, *given: Any) -> Any:
        time.sleep(WORK)
        return super().test_step(*given)


def by_transformers() -> None:
    monitor = gpumon.callbacks.transformers.GpuMonitor("transformers", devices=[UUID])
    arguments = TrainingArguments(
        f"{DIRECTORY}/out", num_train_epochs=2, per_device_train_batch_size=BATCH, per_device_eval_batch_size=BATCH,
        eval_strategy="epoch", save_strategy="epoch", report_to=[], use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    given: dict[str, Any] = {"train_dataset": Points(STEPS), "eval_dataset": Points(STEPS // 2)}
    trainer = Trainer(Net(), arguments, callbacks=[monitor], **given)
    trainer.train()
    time.sleep(WORK)  # it belongs to nothing
    trainer.evaluate()


def by_lightning() -> None:
    monitor = gpumon.callbacks.lightning.GpuMonitor("lightning", devices=[UUID])
    trainer = lightning.Trainer(
        max_epochs=2, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
        callbacks=[monitor, ModelCheckpoint(f"{DIRECTORY}/kept")], num_sanity_val_steps=1,
    )  # fmt: skip
    module = Module()
    train, held = (DataLoader(Points(count), BATCH) for count in (STEPS, STEPS // 2))
    trainer.fit(module, train, held)
    time.sleep(WORK)
    trainer.validate(module, held, verbose=False)


def by_keras() -> None:
    net = Slow([keras.Input((4,)), keras.layers.Dense(1)])
    net.compile("sgd", "mse", run_eagerly=True)
    monitor = gpumon.callbacks.keras.GpuMonitor("keras", devices=[UUID])
    saver = keras.callbacks.ModelCheckpoint(f"{DIRECTORY}/net.weights.h5", save_weights_only=True)
    x, y = np.ones((STEPS * BATCH, 4)), np.ones(STEPS * BATCH)
    held = (x[: len(x) // 2], y[: len(y) // 2])
    net.fit(x, y, batch_size=BATCH, epochs=2, validation_data=held, callbacks=[monitor, saver], verbose=0)
    time.sleep(WORK)
    net.evaluate(*held, batch_size=BATCH, callbacks=[monitor], verbose=0)


if __name__ == "__main__":
    by_transformers()
    by_lightning()
    by_keras()
