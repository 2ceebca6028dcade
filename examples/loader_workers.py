"""Does the GPU wait for data? The same training twice: with and without workers that load ahead.

    python examples/loader_workers.py

Needs `pip install torch`. It trains once with the DataLoader in the training's own process and once with 2 workers, and
prints the command that compares the two runs. `gpumon runs compare` then shows how much less the second one waited.
"""

from __future__ import annotations

import argparse
import time

import torch
from torch.utils.data import DataLoader, Dataset

import gpumon

COLUMNS = 512


class Slow(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Rows that take a while to get, as if each were read from a disk and decoded."""

    def __init__(self, count: int, pause: float = 0.0005) -> None:
        self.rows = torch.randn(count, COLUMNS, generator=torch.Generator().manual_seed(0))
        self.pause = pause

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        time.sleep(self.pause)
        row = self.rows[index]
        return row, row.mean(0, keepdim=True)


def train(rows: Dataset[tuple[torch.Tensor, torch.Tensor]], workers: int, epochs: int) -> str:
    """Train a network from its beginning; gives the id of the run."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(COLUMNS, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1024), torch.nn.ReLU(),
        torch.nn.Linear(1024, 1),
    ).to(device)  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    # Workers that persist start once, not in each epoch.
    loader = DataLoader(rows, batch_size=32, num_workers=workers, persistent_workers=workers > 0)
    with gpumon.run(f"loader-{workers}-workers", epochs=epochs) as run:
        for _ in run.epochs():
            for inputs, wanted in run.steps(loader):
                loss = torch.nn.functional.mse_loss(model(inputs.to(device)), wanted.to(device))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            run.log(loss=loss)
    print(f"{run.name}: loss {loss.item():.4f}")
    return run.id


def main() -> None:
    parser = argparse.ArgumentParser(description="the same training with and without workers, seen by gpumon")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2, help="processes that load ahead in the second run")
    parser.add_argument("--rows", type=int, default=1536)
    chosen = parser.parse_args()
    torch.set_num_threads(1)  # without a GPU, training must leave a core to the workers
    rows = Slow(chosen.rows)
    without, with_workers = (train(rows, workers, chosen.epochs) for workers in (0, chosen.workers))
    print(f"Compare them: gpumon runs compare {without} {with_workers}")


if __name__ == "__main__":
    main()
