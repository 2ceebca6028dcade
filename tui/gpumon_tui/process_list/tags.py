"""Processes that were tagged, to be sent one signal or copied together."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.model.process import Process

SAME_START = 1.0
"""Seconds by which the start of a process may differ from frame to frame."""


class ProcessTags:
    """The tagged ones. A tag is of a process, on whichever GPUs it is, and goes when that ends."""

    def __init__(self) -> None:
        self._of: dict[int, Process] = {}

    def __len__(self) -> int:
        return len(self._of)

    def __contains__(self, process: Process) -> bool:
        return bool(self._of) and process.pid in self._of and is_same_process(self._of[process.pid], process)

    @property
    def processes(self) -> Sequence[Process]:
        """Each once, in the order in which they were tagged."""
        return tuple(self._of.values())

    def turn(self, process: Process) -> None:
        """Tag a process, or take its tag away."""
        if process in self:
            del self._of[process.pid]
        else:
            self._of[process.pid] = process

    def clear(self) -> None:
        """Take all tags away."""
        self._of.clear()

    def drop(self, processes: Sequence[Process]) -> None:
        """Take the tags of these away."""
        for process in processes:
            self._of.pop(process.pid, None)

    def follow(self, processes: Sequence[Process]) -> None:
        """Take the tagged ones from a frame: those that are not in it any more, or are others now, have ended."""
        if self._of:
            now = {process.pid: process for process in processes if process in self}
            self._of = {pid: now[pid] for pid in self._of if pid in now}


def is_same_process(before: Process, now: Process) -> bool:
    """Whether a pid stands for the same process in both; also one whose start is not known."""
    return before.pid == now.pid and not abs(now.started - before.started) > SAME_START
