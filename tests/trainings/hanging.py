"""A training of several ranks with gloo, of which rank 1 hangs at a step, in one of ten ways.

Arguments: the way, and a FIFO into which nothing is ever written.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

import gpumon

FOREVER = 3600.0
CULPRIT, AT = 1, 12
RANK = int(os.environ["RANK"])


def oversleep() -> None:
    time.sleep(FOREVER)


def lock_twice() -> None:
    lock = threading.Lock()
    with lock:
        lock.acquire()


def fill_queue() -> None:
    queue = multiprocessing.Queue(maxsize=1)  # type: ignore[var-annotated]
    for number in range(2):
        queue.put(number)


def hold_the_gil() -> None:
    re.match("(a+)+$", "a" * 60 + "b")


def stop_itself() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def fail() -> None:
    threading.Thread(target=time.sleep, args=(FOREVER,)).start()  # keeps the process
    raise ValueError("a label is out of range")


def validate_forever() -> None:
    while True:
        time.sleep(0.01)


class Samples(Dataset[int]):
    """Samples, of which one cannot be read."""

    def __init__(self, way: str, path: str) -> None:
        self._way, self._path = way, path

    def __len__(self) -> int:
        return 50

    def __getitem__(self, index: int) -> int:
        if index == AT and RANK == CULPRIT:
            if self._way == "stopped_worker":
                os.kill(os.getpid(), signal.SIGSTOP)
            elif self._way == "slow_disk":
                read_shard(self._path)
        return index


def read_shard(path: str) -> bytes:
    file = os.open(path, os.O_RDWR)  # opening a FIFO so does not wait for a writer
    return os.read(file, 1)


def batches(way: str, path: str) -> Iterator[object]:
    if way in ("stopped_worker", "slow_disk"):
        return iter(DataLoader(Samples(way, path), num_workers=1))
    return iter(range(50))


IN_STEP = {
    "sleeping_rank": oversleep, "deadlocked_lock": lock_twice, "full_queue": fill_queue, "exception": fail,
    "busy_loop": hold_the_gil, "stopped_rank": stop_itself,
}  # fmt: skip


def main(way: str, path: str) -> None:
    if way == "never_joined" and RANK == CULPRIT:
        oversleep()
    with gpumon.run(way.replace("_", "-"), epochs=1) as run:
        dist.init_process_group("gloo")
        with run.epoch(0):
            for step, _ in enumerate(run.steps(batches(way, path))):
                if step == AT and RANK == CULPRIT and way in IN_STEP:
                    IN_STEP[way]()
                if step == AT and way == "endless_validation":
                    if RANK == CULPRIT:
                        with run.phase("validate"):
                            validate_forever()
                    dist.barrier()
                dist.all_reduce(torch.ones(1))
                time.sleep(0.2)


if __name__ == "__main__":
    main(*sys.argv[1:])
