"""Tagged processes (`ProcessTags`), and the tree of processes by their parents."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from gpumon.common.numbers import is_known
from gpumon.common.procfs import read_stat
from gpumon.common.text import clean
from gpumon.model.process import Process
from gpumon_tui.data.programs import began_together, boot_time

SAME_START = 1.0
"""Maximum difference in seconds between the start times of a process in two frames."""


class ProcessTags:
    """The tagged processes. A tag applies to a process on all its GPUs, and is removed when the process ends."""

    def __init__(self) -> None:
        self._of: dict[int, Process] = {}

    def __len__(self) -> int:
        return len(self._of)

    def __contains__(self, process: Process) -> bool:
        return bool(self._of) and process.pid in self._of and is_same_process(self._of[process.pid], process)

    @property
    def processes(self) -> Sequence[Process]:
        """Return each tagged process once, in the order of tagging."""
        return tuple(self._of.values())

    def turn(self, process: Process) -> None:
        """Toggle the tag of a process."""
        if process in self:
            del self._of[process.pid]
        else:
            self._of[process.pid] = process

    def clear(self) -> None:
        """Remove all tags."""
        self._of.clear()

    def drop(self, processes: Sequence[Process]) -> None:
        """Remove the tags of these processes."""
        for process in processes:
            self._of.pop(process.pid, None)

    def follow(self, processes: Sequence[Process]) -> None:
        """Update the tagged processes from a frame; those that are missing or whose PID was reused are dropped."""
        if self._of:
            now = {process.pid: process for process in processes if process in self}
            self._of = {pid: now[pid] for pid in self._of if pid in now}


def is_same_process(before: Process, now: Process) -> bool:
    """Whether a PID refers to the same process in both; also true if a start time is unknown."""
    return before.pid == now.pid and not abs(now.started - before.started) > SAME_START


_INIT = 1
_FAR = 12
"""Maximum number of ancestors examined."""
_KIN = 2
"""Number of ancestors without a GPU that are considered: a shell may stand between a launcher and its ranks.

Ancestors further up would join everything that was started in one terminal.
"""
_MOST = 4096
_NO_LAUNCHER = ("systemd", "init", "tini", "dumb-init", "docker-init", "containerd-shim", "sshd")
"""Programs that start unrelated processes; having one as a common parent means nothing."""


class ParentProcess(NamedTuple):
    """A process that has started others and does not use a GPU itself."""

    pid: int
    name: str
    """Process name, chosen by the process itself."""


class TreeRow(NamedTuple):
    """A process of the list, or a parent of several."""

    depth: int
    process: Process | None
    parent: ParentProcess | None = None
    """Set for a parent that is not in the list."""


class Parents:
    """Finds the ancestors of processes. Each is looked up once, because orphans get another parent."""

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._boot = boot_time(proc)
        self._of: dict[tuple[int, float], tuple[ParentProcess, ...]] = {}

    def above(self, process: Process) -> tuple[ParentProcess, ...]:
        """Return the ancestors, nearest first; empty if unknown or if the PID refers to another process here."""
        key = process.pid, process.started
        found = self._of.get(key)
        if found is None:
            if len(self._of) >= _MOST:
                self._of.clear()
            found = self._of[key] = self._read(process)
        return found

    def _read(self, process: Process) -> tuple[ParentProcess, ...]:
        stat = read_stat(process.pid, self._proc)
        if stat is None or not is_known(process.started) or not began_together(process, stat, self._boot):
            return ()
        found: list[ParentProcess] = []
        while stat is not None and stat.parent > _INIT and len(found) < _FAR:
            pid = stat.parent
            stat = read_stat(pid, self._proc)
            if stat is not None:
                found.append(ParentProcess(pid, clean(os.fsdecode(stat.name), 64)))
        return tuple(found)


def arranged(processes: Sequence[Process], above: Callable[[Process], Sequence[ParentProcess]]) -> list[TreeRow]:
    """Arrange processes as a tree. Children of one parent keep their order.

    A parent is placed where the first of its children was.
    """
    listed = {process.pid for process in processes}
    chains = {process.pid: above(process) for process in processes}
    shared = _shared(chains)
    parent_of = {pid: _nearest(chain, listed, shared) for pid, chain in chains.items()}
    by_parent: dict[int, list[Process | ParentProcess]] = {}
    seen: set[int] = set()
    for process in processes:
        parent = parent_of[process.pid]
        if parent is None:
            by_parent.setdefault(0, []).append(process)
            continue
        if parent.pid not in listed and parent.pid not in seen:
            seen.add(parent.pid)
            by_parent.setdefault(0, []).append(parent)
        by_parent.setdefault(parent.pid, []).append(process)
    rows: list[TreeRow] = []
    _place(rows, by_parent, 0, 0)
    return rows


def _place(
    rows: list[TreeRow], by_parent: Mapping[int, Sequence[Process | ParentProcess]], pid: int, depth: int
) -> None:
    children = by_parent.get(pid, ())
    last = {child.pid: place for place, child in enumerate(children)}
    for place, child in enumerate(children):
        rows.append(TreeRow(depth, child) if isinstance(child, Process) else TreeRow(depth, None, child))
        # A process on several GPUs has several rows; its children follow the last one.
        if last[child.pid] == place and depth < _FAR:
            _place(rows, by_parent, child.pid, depth + 1)


def _shared(chains: Mapping[int, Sequence[ParentProcess]]) -> frozenset[int]:
    """Return the PIDs of ancestors shared by several processes, except those that start unrelated processes."""
    count: dict[int, int] = {}
    for chain in chains.values():
        for parent in chain[:_KIN]:
            if parent.name not in _NO_LAUNCHER:
                count[parent.pid] = count.get(parent.pid, 0) + 1
    return frozenset(pid for pid, number in count.items() if number > 1)


def _nearest(chain: Sequence[ParentProcess], listed: set[int], shared: frozenset[int]) -> ParentProcess | None:
    """Return the nearest ancestor that is in the list or shared."""
    return next((parent for parent in chain if parent.pid in listed or parent.pid in shared), None)
