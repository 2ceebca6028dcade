"""Measures batch size and CPU time without the help of a framework.

The batch size is read from a loader's attributes, and no batch is fetched. The CPU time includes worker processes of
loaders.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from gpumon.common.procfs import cpu_with_children
from gpumon.tracking.logged_values import whole

_MAX_PROCESSES = 4096
"""Maximum number of processes to visit, since the tree may grow while it is read."""


class CpuTime:
    """Measures the CPU time of the child processes of this process and, if `own`, of this process itself.

    It counts from the creation of this object or, with `since_start`, from the start of the process.
    """

    def __init__(
        self,
        *,
        own: bool = True,
        since_start: bool = False,
        proc: str = "/proc",
        times: Callable[[], os.times_result] = os.times,
    ) -> None:
        self._own = own
        self._proc = proc
        self._times = times
        self._start = 0.0 if since_start else self._total()

    def seconds(self) -> float:
        """Return the CPU time in seconds (user and system) used so far."""
        return max(0.0, self._total() - self._start)

    def _total(self) -> float:
        times = self._times()
        ended = times.children_user + times.children_system
        running = sum(map(self._process_seconds, self._descendants()))
        return ended + running + (times.user + times.system if self._own else 0.0)

    def _descendants(self) -> Iterator[str]:
        """Yield the pid of each running descendant of this process."""
        pids = self._children("self")
        visited = 0
        while pids and visited < _MAX_PROCESSES:
            pid = pids.pop()
            visited += 1
            yield pid
            pids += self._children(pid)

    def _children(self, pid: str) -> list[str]:
        pids: list[str] = []
        try:
            for thread in os.listdir(f"{self._proc}/{pid}/task"):
                with open(f"{self._proc}/{pid}/task/{thread}/children") as file:
                    pids += file.read().split()
        except OSError:
            return pids  # it has ended, or this kernel does not list children
        return pids

    def _process_seconds(self, pid: str) -> float:
        """Return the CPU seconds of a process and its ended children."""
        try:
            with open(f"{self._proc}/{pid}/stat", "rb") as file:
                return cpu_with_children(file.read()) / os.sysconf("SC_CLK_TCK")
        except OSError:  # it has ended
            return 0.0


_MAX_WRAPPERS = 4


class BatchSize(NamedTuple):
    """Number of samples per step."""

    batch: int
    """Samples of each step except perhaps the last one."""
    mean: float = 0.0
    """Mean over a whole pass if the last batch is smaller; 0 if all batches have the same size, or if unknown."""


def read_batch_size(loader: Any, times: int = 1) -> BatchSize | None:
    """Return the samples per step if a step takes `times` batches of `loader`; None if the loader does not tell them.

    Also finds the loader inside `enumerate`, tqdm and the iterator of a DataLoader. Exceptions of attributes of the
    user's loader are not caught.
    """
    loader = _unwrap(loader)
    # Not `or`, which would call the length of the sampler: the sampler of an IterableDataset has none.
    batches = getattr(loader, "batch_sampler", None)
    if batches is None:
        batches = getattr(loader, "_index_sampler", None)
    size = getattr(loader, "batch_size", None)
    batch = whole(getattr(batches, "batch_size", None) if size is None else size)
    if batch is None or batch <= 0:
        return None
    sampler = getattr(batches, "sampler", None)
    is_even = sampler is None or getattr(batches, "drop_last", True)
    samples, count = (0, 0) if is_even else (_length(sampler), _length(batches))
    return batch_size_of_pass(batch, samples, count, times)


def batch_size_of_pass(batch: int, samples: int, batches: int, times: int = 1) -> BatchSize:
    """Return the samples per step if a step takes `times` batches.

    `batch`: samples in a full batch. `samples`, `batches`: number of samples and of batches in one pass over the data,
    0 if unknown.
    """
    # The shard of a rank may report the samples of all ranks. Then the numbers do not match, and the mean is unknown.
    if 0 < samples < batch * batches and -(-samples // batch) == batches:
        return BatchSize(batch * times, samples / -(-batches // times))
    return BatchSize(batch * times)


def _unwrap(loader: Any) -> Any:
    for _ in range(_MAX_WRAPPERS):
        if type(loader) is enumerate:
            loader = loader.__reduce__()[1][0]  # (enumerate, (iterator, next number))
        elif not hasattr(loader, "batch_size") and getattr(loader, "iterable", None) is not None:
            loader = loader.iterable  # tqdm
    return loader


def _length(sampler: Any) -> int:
    try:
        return len(sampler)
    except Exception:  # an endless sampler, or a user's class that may do anything
        return 0
