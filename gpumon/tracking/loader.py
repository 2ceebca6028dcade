"""Samples per step, from the attributes of a loader: nothing is fetched from it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from gpumon.common.procfs import cpu_with_children
from gpumon.tracking.values import whole

_MOST = 4096
"""Processes that are asked: a tree that grows meanwhile has an end."""


class CpuTime:
    """CPU time from now on. `own`: also that of this process itself, and not only of those that it started.

    `since_start`: also what was used before now, since this process began.
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
        self._before = 0.0 if since_start else self._so_far()

    def seconds(self) -> float:
        """Seconds until now, user and system."""
        return max(0.0, self._so_far() - self._before)

    def _so_far(self) -> float:
        times = self._times()
        ended = times.children_user + times.children_system
        alive = sum(map(self._of, self._children()))
        return ended + alive + (times.user + times.system if self._own else 0.0)

    def _children(self) -> Iterator[str]:
        """Every living process below this one."""
        found = self._below("self")
        asked = 0
        while found and asked < _MOST:
            pid = found.pop()
            asked += 1
            yield pid
            found += self._below(pid)

    def _below(self, pid: str) -> list[str]:
        found: list[str] = []
        try:
            for thread in os.listdir(f"{self._proc}/{pid}/task"):
                with open(f"{self._proc}/{pid}/task/{thread}/children") as file:
                    found += file.read().split()
        except OSError:
            return found  # it has ended, or this kernel does not list children
        return found

    def _of(self, pid: str) -> float:
        """Seconds of a process and of its children that have ended."""
        try:
            with open(f"{self._proc}/{pid}/stat", "rb") as file:
                return cpu_with_children(file.read()) / os.sysconf("SC_CLK_TCK")
        except OSError:  # it has ended
            return 0.0


_WRAPPED = 4
"""Wrappers around a loader that are looked through."""


class Samples(NamedTuple):
    """Samples of a step."""

    batch: int
    """Of each but the last."""
    mean: float = 0.0
    """Over a whole pass, where the last batch is short; 0 where all are alike, or where this is unknown."""


def samples_of(loader: Any, times: int = 1) -> Samples | None:
    """Samples of a step that takes `times` batches of `loader`; None where it does not say.

    Looks through `enumerate` and tqdm, also at the iterator of a DataLoader. Raises whatever the attributes of a
    loader of the user's own raise.
    """
    loader = _unwrapped(loader)
    # `or` would ask for the length of the sampler, and that of an IterableDataset has none.
    batches = getattr(loader, "batch_sampler", None)
    if batches is None:
        batches = getattr(loader, "_index_sampler", None)
    size = getattr(loader, "batch_size", None)
    batch = whole(getattr(batches, "batch_size", None) if size is None else size)
    if batch is None or batch <= 0:
        return None
    sampler = getattr(batches, "sampler", None)
    alike = sampler is None or getattr(batches, "drop_last", True)
    samples, steps = (0, 0) if alike else (_length(sampler), _length(batches))
    return counted(batch, samples, steps, times)


def counted(batch: int, samples: int, batches: int, times: int = 1) -> Samples:
    """Of steps that take `times` batches, where a pass has so many samples in so many batches (0: unknown)."""
    # Shards of several ranks say how many samples all of them have together: then the numbers do not fit.
    if 0 < samples < batch * batches and -(-samples // batch) == batches:
        return Samples(batch * times, samples / -(-batches // times))
    return Samples(batch * times)


def _unwrapped(loader: Any) -> Any:
    for _ in range(_WRAPPED):
        if type(loader) is enumerate:
            loader = loader.__reduce__()[1][0]  # (enumerate, (iterator, next number))
        elif not hasattr(loader, "batch_size") and getattr(loader, "iterable", None) is not None:
            loader = loader.iterable  # tqdm
    return loader


def _length(of: Any) -> int:
    try:
        return len(of)
    except Exception:  # a sampler without end, or one of the user's own
        return 0
