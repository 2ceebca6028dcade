"""Measures the CPU time of this process and its children, including the worker processes of data loaders."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from gpumon.common.procfs import cpu_with_children

_MAX_PROCESSES = 4096
"""Maximum number of processes to visit. A limit is needed because the process tree may grow while it is read."""


class CpuTime:
    """Measures the CPU time of the child processes of this process and, if `own`, of this process itself.

    The time is counted from the creation of this object or, with `since_start`, from the start of the process.
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
        self._children_seconds = 0.0
        total = self._total()
        self._start = 0.0 if since_start else total
        self._children_start = 0.0 if since_start else self._children_seconds

    def seconds(self) -> float:
        """Return the CPU time in seconds (user and system) used so far."""
        return max(0.0, self._total() - self._start)

    def children_seconds(self) -> float:
        """Return the part of the last result of `seconds` that the children of this process used."""
        return max(0.0, self._children_seconds - self._children_start)

    def _total(self) -> float:
        times = self._times()
        ended = times.children_user + times.children_system
        self._children_seconds = ended + sum(map(self._process_seconds, self._descendants()))
        return self._children_seconds + (times.user + times.system if self._own else 0.0)

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
            return pids  # the process has ended, or this kernel does not list children
        return pids

    def _process_seconds(self, pid: str) -> float:
        """Return the CPU seconds of a process and its ended children."""
        try:
            with open(f"{self._proc}/{pid}/stat", "rb") as file:
                return cpu_with_children(file.read()) / os.sysconf("SC_CLK_TCK")
        except OSError:  # the process has ended
            return 0.0
