"""A loop by hand on several ranks, one run in gpumon.

    torchrun --nproc-per-node 2 examples/torchrun_ddp.py

Uses NCCL where each rank has a GPU, else gloo. While it runs, `gpumon tui` shows one run with a row for each rank:
their steps side by side, and what each waited for data. Rank 1 reads slowly here, and the other one waits for it.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import gpumon


def batches(rank: int, device: torch.device, count: int = 40) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Made-up batches; rank 1 takes 5 ms longer for each."""
    for _ in range(count):
        time.sleep(0.005 * rank)
        inputs = torch.randn(64, 16, device=device)
        yield inputs, inputs.sum(1, keepdim=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="a loop by hand on several ranks, one run in gpumon")
    parser.add_argument("--epochs", type=int, default=4)
    chosen = parser.parse_args()
    on_gpu = torch.cuda.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_gpu else "gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(torch.nn.Linear(16, 1).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    with gpumon.run("torchrun-ddp", epochs=chosen.epochs) as run:
        for _ in run.epochs():
            for inputs, wanted in run.steps(batches(rank, device)):
                loss = torch.nn.functional.mse_loss(model(inputs), wanted)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            run.log(loss=loss)
    if rank == 0:
        print(f"loss {loss.item():.4f}")
    del model, optimizer, loss
    dist.barrier()  # no rank leaves while another still needs it
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
