"""Trainings that are slow on purpose, each for one reason, and the same trainings with that mended.

    python examples/slow_trainings.py no-workers
    gpumon why
    python examples/slow_trainings.py no-workers --fixed

Needs `pip install torch`; runs on the CPU. `gpumon why` names the cause and predicts what the change saves, and
`gpumon runs compare` of the two runs shows what it saved.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

import gpumon

STEPS = 20
BATCH = 8
COMPUTE = 0.01
"""Seconds of each step."""


class Rows(Dataset[torch.Tensor]):
    """Rows that take a while to get, as if each were read from a disk."""

    def __init__(self, pause: float = 0.0) -> None:
        self.pause = pause

    def __len__(self) -> int:
        return STEPS * BATCH

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.pause:
            time.sleep(self.pause)
        return torch.full((16,), float(index))


def train_step(batch: torch.Tensor, seconds: float = COMPUTE) -> None:
    """A step that takes a fixed time and leaves the CPU alone, as one whose kernels run on a GPU."""
    torch.mm(batch, batch.T)
    time.sleep(seconds)


def train(run: Any, loader: DataLoader[torch.Tensor], between: Callable[[int], object] = lambda epoch: None) -> None:
    """Train all epochs of a run. `between`: what happens at the end of each epoch."""
    for epoch in run.epochs():
        for batch in run.steps(loader):
            train_step(batch)
        between(epoch)


def start(name: str, fixed: bool, epochs: int) -> Any:
    """Begin the run of a case."""
    return gpumon.run(f"{name}-fixed" if fixed else name, epochs=epochs, batch=BATCH)


def no_workers(fixed: bool, epochs: int) -> None:
    """The loader takes longer than a step, and loads in the process of the training."""
    with start("no-workers", fixed, epochs) as run:
        loader = DataLoader(
            Rows(pause=0.003), batch_size=BATCH, num_workers=4 if fixed else 0, persistent_workers=fixed
        )
        train(run, loader)


def restarting_workers(fixed: bool, epochs: int) -> None:
    """The workers are spawned in each epoch, and import everything again."""
    with start("restarting-workers", fixed, epochs) as run:
        loader = DataLoader(
            Rows(), batch_size=BATCH, num_workers=1, persistent_workers=fixed, multiprocessing_context="spawn"
        )
        train(run, loader)


def long_validation(fixed: bool, epochs: int) -> None:
    """Validation takes longer than the training."""
    with start("long-validation", fixed, epochs) as run:

        def validate(epoch: int) -> None:
            if epoch % 2 or not fixed:
                with run.phase("validate"):
                    train_step(torch.ones(BATCH, 16), 0.5)

        train(run, DataLoader(Rows(), batch_size=BATCH), validate)


def many_checkpoints(fixed: bool, epochs: int) -> None:
    """A checkpoint is saved after every second step."""
    with start("many-checkpoints", fixed, epochs) as run:
        for _ in run.epochs():
            for step, batch in enumerate(run.steps(DataLoader(Rows(), batch_size=BATCH))):
                train_step(batch)
                if step % (20 if fixed else 2) == 0:
                    with run.phase("checkpoint"):
                        time.sleep(0.05)


def between_epochs(fixed: bool, epochs: int) -> None:
    """Work between the epochs takes longer than the training."""
    loader = DataLoader(Rows(), batch_size=BATCH)
    with start("between-epochs", fixed, epochs) as run:
        for epoch in range(epochs):
            with run.epoch(epoch):
                for batch in run.steps(loader):
                    train_step(batch)
            time.sleep(0.02 if fixed else 0.4)


def one_slow_epoch(fixed: bool, epochs: int) -> None:
    """One epoch waits for a file system that does not answer."""
    with start("one-slow-epoch", fixed, epochs) as run:
        for epoch in run.epochs():
            loader = DataLoader(Rows(pause=0.02 if epoch == 2 and not fixed else 0.0), batch_size=BATCH)
            for batch in run.steps(loader):
                train_step(batch)


def slower_epochs(fixed: bool, epochs: int) -> None:
    """A list grows with each step, and each step goes through all of it."""
    with start("slower-epochs", fixed, epochs) as run:
        for epoch in run.epochs():
            for batch in run.steps(DataLoader(Rows(), batch_size=BATCH)):
                train_step(batch, COMPUTE * (1 if fixed else 1 + epoch))


CASES: dict[str, Callable[[bool, int], None]] = {
    "no-workers": no_workers,
    "restarting-workers": restarting_workers,
    "long-validation": long_validation,
    "many-checkpoints": many_checkpoints,
    "between-epochs": between_epochs,
    "one-slow-epoch": one_slow_epoch,
    "slower-epochs": slower_epochs,
}


def main() -> None:
    parser = argparse.ArgumentParser(description="a training that is slow for one reason, or mended")
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--fixed", action="store_true", help="with the reason mended")
    parser.add_argument("--epochs", type=int, default=12)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    CASES[chosen.case](chosen.fixed, chosen.epochs)


if __name__ == "__main__":
    main()
