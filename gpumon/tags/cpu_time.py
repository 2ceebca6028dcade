"""CPU time of a process and of those that it started, such as the workers of a loader.

The kernel adds up the time of children that have ended; those that still live are asked for theirs, twice in a run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from gpumon.common.procfs import cpu_with_children

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
