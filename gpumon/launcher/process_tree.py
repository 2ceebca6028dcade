"""The processes of a command: the command itself and all its descendants.

A process belongs to the command if the chain of its parents leads to the command. gpumon adopts orphans
(PR_SET_CHILD_SUBREAPER in prctl(2)), so that the chain does not end at process 1. A process that has ended still
belongs to the command, because its last sample may arrive later.
"""

from __future__ import annotations

from collections.abc import Callable

from gpumon.common.procfs import Stat, read_stat

_MAX_DEPTH = 64
_PR_SET_CHILD_SUBREAPER = 36


class ProcessTree:
    """The processes of the command with pid `root`. The process `adopter` becomes the parent of their orphans.

    `read`: function that returns the state of a process by pid; None if it does not exist or is hidden from us.
    """

    def __init__(self, root: int, adopter: int, read: Callable[[int], Stat | None] = read_stat) -> None:
        self._root = root
        self._adopter = adopter
        self._read = read
        process = read(root)
        self._members = {root: process.started if process else 0}
        """Start times of all processes of the command found so far, by pid."""

    def has_member(self, pid: int) -> bool:
        """Return whether `pid` is a process of the command, or was one until it ended."""
        process = self._read(pid)
        started = self._members.get(pid)
        if started is not None and (process is None or process.started == started):
            return True
        if pid == self._adopter or process is None or not self._is_descendant(process):
            return False
        self._members[pid] = process.started
        return True

    def _is_descendant(self, process: Stat | None) -> bool:
        for _ in range(_MAX_DEPTH):
            if process is None:
                return False
            if process.parent in (self._root, self._adopter):
                return True
            if process.parent <= 1:
                return False
            process = self._read(process.parent)
        return False


def adopt_orphans() -> None:
    """Make this process the parent of its orphaned descendants."""
    import ctypes

    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
