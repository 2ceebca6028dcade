"""`transformers.Trainer.train`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.trainings.case import EMPTY, Case, Loader, batches


def prepare() -> Case:
    """Make a tiny model and what trains it."""
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

    return Case(train, ["gpumon", EMPTY], [{"x": x, "labels": y} for x, y in batches()])
