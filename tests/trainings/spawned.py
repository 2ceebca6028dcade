"""Two trainings one after the other, each of two ranks that torch.multiprocessing begins, on the same port."""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import gpumon


def work(rank: int) -> None:
    """One rank."""
    dist.init_process_group("gloo", rank=rank, world_size=2)
    with gpumon.run("spawned", epochs=2) as run:
        for _ in run.epochs():
            dist.all_reduce(torch.ones(1))
            run.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=sys.argv[1])
    for _ in range(2):
        mp.start_processes(work, nprocs=2, start_method=sys.argv[2])
