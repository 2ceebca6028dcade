"""A loop by hand with HF Accelerate, of as many ranks as its launcher starts."""

from __future__ import annotations

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

import gpumon


def main() -> None:
    accelerator = Accelerator(cpu=True)
    x = torch.randn(64, 4)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    loader = DataLoader(TensorDataset(x, x.sum(dim=1, keepdim=True)), batch_size=8)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    with gpumon.run("accelerated", epochs=2) as run:
        for _ in run.epochs():
            for inputs, targets in run.steps(loader):
                optimizer.zero_grad()
                loss = torch.nn.functional.mse_loss(model(inputs), targets)
                accelerator.backward(loss)
                optimizer.step()
            run.log(loss=loss)
    accelerator.end_training()


if __name__ == "__main__":
    main()
