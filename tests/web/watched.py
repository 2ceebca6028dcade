"""Small real trainings that go on with their next epoch once somebody has seen the last one.

python tests/web/watched.py keras|torch DIRECTORY: the pid is written to DIRECTORY/pid, and epoch n + 1 waits for
DIRECTORY/seen-n. So it is no matter of speed whether a test sees each epoch.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

EPOCHS = 3
_PATIENCE = 600.0
"""Seconds after which a training goes on although nobody looked."""


def wait_for(file: Path) -> None:
    """Until `file` is there, or nobody is expected to make it any more."""
    deadline = time.monotonic() + _PATIENCE
    while not file.exists() and time.monotonic() < deadline:
        time.sleep(0.05)


def by_hand(directory: Path) -> None:
    """A loop in PyTorch."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    import gpumon

    torch.manual_seed(0)
    rows = torch.randn(256, 4)
    loader = DataLoader(TensorDataset(rows, rows.sum(1, keepdim=True)), batch_size=32)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with gpumon.run("watched-torch", epochs=EPOCHS) as run:
        for epoch in run.epochs():
            if epoch:
                wait_for(directory / f"seen-{epoch}")
            for given, wanted in run.steps(loader):
                loss = torch.nn.functional.mse_loss(model(given), wanted)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            run.log(loss=loss.item())
        wait_for(directory / f"seen-{EPOCHS}")


def by_keras(directory: Path) -> None:
    """`fit`, with the callback."""
    os.environ["KERAS_BACKEND"] = "torch"
    import keras
    import numpy as np

    from gpumon.callbacks.keras import GpuMonitor

    class Wait(keras.callbacks.Callback):  # type: ignore[misc]
        """Stands before the monitor, so that it waits between two epochs, and before the end."""

        def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
            if epoch:
                wait_for(directory / f"seen-{epoch}")

        def on_train_end(self, logs: object = None) -> None:
            wait_for(directory / f"seen-{EPOCHS}")

    keras.utils.set_random_seed(0)
    rows = np.random.default_rng(0).normal(size=(256, 4)).astype("float32")
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    model.fit(
        rows, rows.sum(1), batch_size=32, epochs=EPOCHS, verbose=0, callbacks=[Wait(), GpuMonitor("watched-keras")]
    )


if __name__ == "__main__":
    place = Path(sys.argv[2])
    (place / "pid").write_text(str(os.getpid()))
    {"keras": by_keras, "torch": by_hand}[sys.argv[1]](place)
