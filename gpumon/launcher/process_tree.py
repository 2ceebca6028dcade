"""Process tree of the command: the command itself and all of its descendants.

A process belongs to the command when its parents lead to it. This process adopts orphans
(PR_SET_CHILD_SUBREAPER, prctl(2)), so that the way does not end at process 1. A process that
was found once stays found: its last sample may come after its end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from gpumon.common.procfs import read_stat

_LONGEST_WAY = 64
_PR_SET_CHILD_SUBREAPER = 36


class Parentage(NamedTuple):
    """Parent and start of a process, as the kernel reports them."""

    parent: int = 0
    started: int = 0
    """Clock ticks after boot; 0 when there is no such process, or none that we may see."""


class ProcessTree:
    """The processes of the command `root`. Orphans of it are children of `adopter`."""

    def __init__(self, root: int, adopter: int, read: Callable[[int], Parentage]) -> None:
        self._root = root
        self._adopter = adopter
        self._read = read
        self._found = {root: read(root).started}

    def holds(self, pid: int) -> bool:
        """Whether `pid` is a process of the command, or was one to its end."""
        known = self._read(pid)
        before = self._found.get(pid)
        if before is not None and known.started in (0, before):
            return True
        if pid == self._adopter or not known.started or not self._leads_here(known):
            return False
        self._found[pid] = known.started
        return True

    def _leads_here(self, known: Parentage) -> bool:
        for _ in range(_LONGEST_WAY):
            if known.parent in (self._root, self._adopter):
                return True
            if known.parent <= 1:
                return False
            known = self._read(known.parent)
        return False


def read_parentage(pid: int, proc: str = "/proc") -> Parentage:
    """Parent and start of a process."""
    found = read_stat(pid, proc)
    return Parentage(found.parent, found.started) if found else Parentage()


def adopt_orphans() -> None:
    """From now on this process is the parent of those below it that lose theirs."""
    import ctypes

    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
