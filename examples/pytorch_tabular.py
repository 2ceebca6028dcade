"""A classifier of tabular events in PyTorch: a loop by hand, with four lines for gpumon.

    python examples/pytorch_tabular.py

Needs `pip install torch`. An event is a row of 12 numbers, such as a detector's, and is signal or background; the
events are made up. While it runs, `gpumon tui` shows its epochs (counted from 0, as the loop does), steps, validation,
loss and accuracy; `gpumon runs show` prints them afterward.
"""

from __future__ import annotations

import argparse

import torch
from torch.utils.data import DataLoader, TensorDataset

import gpumon

COLUMNS = 12


def events(count: int, seed: int) -> TensorDataset:
    """Made-up events; the further one lies from the middle, the likelier it is signal."""
    random = torch.Generator().manual_seed(seed)
    rows = torch.randn(count, COLUMNS, generator=random)
    distance = rows.square().mean(1) + 0.1 * torch.randn(count, generator=random)
    return TensorDataset(rows, (distance > 1).float())


def main() -> None:
    parser = argparse.ArgumentParser(description="a classifier of tabular events in PyTorch, seen by gpumon")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--events", type=int, default=32768)
    chosen = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    training = DataLoader(events(chosen.events, seed=0), batch_size=256, shuffle=True)
    validation = DataLoader(events(chosen.events // 4, seed=1), batch_size=1024)

    model = torch.nn.Sequential(
        torch.nn.Linear(COLUMNS, 128), torch.nn.ReLU(), torch.nn.Linear(128, 128), torch.nn.ReLU(),
        torch.nn.Linear(128, 1), torch.nn.Flatten(0),
    ).to(device)  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loss_of = torch.nn.BCEWithLogitsLoss()

    with gpumon.run("pytorch-tabular", epochs=chosen.epochs) as run:
        for epoch in run.epochs():
            for rows, signal in run.steps(training):
                loss = loss_of(model(rows.to(device)), signal.to(device))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()

            right = 0
            with run.phase("validate"), torch.no_grad():
                for rows, signal in validation:
                    found = model(rows.to(device)) > 0
                    right += (found.cpu() == (signal > 0)).sum().item()
            accuracy = right / len(validation.dataset)

            run.log(loss=loss, accuracy=accuracy)
            print(f"epoch {epoch}: loss {loss.item():.4f}, accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
