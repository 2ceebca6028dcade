"""The processes of a command: the command itself and all its descendants.

A process belongs to the command if the chain of its parents leads to the command. gpumon adopts orphans
(PR_SET_CHILD_SUBREAPER in prctl(2)), so that the chain does not end at process 1. A process that has ended still
belongs to the command, because its last sample may arrive later.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpumon.common.procfs import read_stat

_MAX_DEPTH = 64
_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True, slots=True)
class Parentage:
    """Parent and start time of a process, as the kernel reports them."""

    parent: int = 0
    started: int = 0
    """Start time in clock ticks after boot; 0 if the process does not exist or is hidden from us."""


class ProcessTree:
    """The processes of the command with pid `root`. The process `adopter` becomes the parent of their orphans."""

    def __init__(self, root: int, adopter: int, read: Callable[[int], Parentage]) -> None:
        self._root = root
        self._adopter = adopter
        self._read = read
        self._members = {root: read(root).started}
        """Start times of all processes of the command found so far, by pid."""

    def has_member(self, pid: int) -> bool:
        """Return whether `pid` is a process of the command, or was one until it ended."""
        process = self._read(pid)
        started = self._members.get(pid)
        if started is not None and process.started in (0, started):
            return True
        if pid == self._adopter or not process.started or not self._is_descendant(process):
            return False
        self._members[pid] = process.started
        return True

    def _is_descendant(self, process: Parentage) -> bool:
        for _ in range(_MAX_DEPTH):
            if process.parent in (self._root, self._adopter):
                return True
            if process.parent <= 1:
                return False
            process = self._read(process.parent)
        return False


def read_parentage(pid: int, proc: str = "/proc") -> Parentage:
    """Return parent and start time of a process."""
    process = read_stat(pid, proc)
    return Parentage(process.parent, process.started) if process else Parentage()


def adopt_orphans() -> None:
    """Make this process the parent of its orphaned descendants."""
    import ctypes

    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
