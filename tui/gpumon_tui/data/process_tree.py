"""Tagged processes (`ProcessTags`), and the tree of processes by their parents."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from gpumon.common.numbers import is_known
from gpumon.common.procfs import read_stat
from gpumon.common.text import clean
from gpumon.model.process import Process
from gpumon_tui.data.programs import boot_time, has_same_start

SAME_START = 1.0
"""Maximum difference in seconds between the start times of a process in two frames."""


class ProcessTags:
    """Tagged processes. A tag applies to a process on all its GPUs, and is removed when the process ends."""

    def __init__(self) -> None:
        self._tagged: dict[int, Process] = {}

    def __len__(self) -> int:
        return len(self._tagged)

    def __contains__(self, process: Process) -> bool:
        return (
            bool(self._tagged) and process.pid in self._tagged and is_same_process(self._tagged[process.pid], process)
        )

    @property
    def processes(self) -> Sequence[Process]:
        """Return each tagged process once, in the order of tagging."""
        return tuple(self._tagged.values())

    def turn(self, process: Process) -> None:
        """Toggle the tag of a process."""
        if process in self:
            del self._tagged[process.pid]
        else:
            self._tagged[process.pid] = process

    def clear(self) -> None:
        """Remove all tags."""
        self._tagged.clear()

    def drop(self, processes: Sequence[Process]) -> None:
        """Remove the tags of these processes."""
        for process in processes:
            self._tagged.pop(process.pid, None)

    def follow(self, processes: Sequence[Process]) -> None:
        """Update the tagged processes from a frame; drop processes that are missing or whose PID was reused."""
        if self._tagged:
            current = {process.pid: process for process in processes if process in self}
            self._tagged = {pid: current[pid] for pid in self._tagged if pid in current}


def is_same_process(earlier: Process, later: Process) -> bool:
    """Whether both are the same process; also true if the PIDs are equal and a start time is unknown."""
    return earlier.pid == later.pid and not abs(later.started - earlier.started) > SAME_START


_INIT = 1
_MAX_DEPTH = 12
"""Maximum number of ancestors examined."""
_NEAR_ANCESTORS = 2
"""Number of nearest ancestors that can become a shared parent: a shell may stand between a launcher and its ranks.

More distant ancestors would join everything that was started in one terminal.
"""
_MAX_CACHED = 4096
_NO_LAUNCHER = ("systemd", "init", "tini", "dumb-init", "docker-init", "containerd-shim", "sshd")
"""Programs that start unrelated processes, and so are no shared parents."""


class ParentProcess(NamedTuple):
    """A process that has started other processes and does not use a GPU itself."""

    pid: int
    name: str
    """Process name, chosen by the process itself."""


class TreeRow(NamedTuple):
    """A process of the list, or a parent of several processes."""

    depth: int
    process: Process | None
    parent: ParentProcess | None = None
    """Set for a parent that is not in the list."""


class Parents:
    """Finds the ancestors of processes. Each process is looked up once, because orphans get another parent."""

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._boot = boot_time(proc)
        self._ancestors: dict[tuple[int, float], tuple[ParentProcess, ...]] = {}
        self._chains: dict[tuple[int, int], tuple[ParentProcess, ...]] = {}
        """Processes with their ancestors, by PID and start (clock ticks after boot)."""

    def above(self, process: Process) -> tuple[ParentProcess, ...]:
        """Return the ancestors, nearest first; empty if unknown or if the PID refers to another process here."""
        key = process.pid, process.started
        ancestors = self._ancestors.get(key)
        if ancestors is None:
            if len(self._ancestors) >= _MAX_CACHED:
                self._ancestors.clear()
                self._chains.clear()
            ancestors = self._ancestors[key] = self._read(process)
        return ancestors

    def _read(self, process: Process) -> tuple[ParentProcess, ...]:
        stat = read_stat(process.pid, self._proc)
        if stat is None or not is_known(process.started) or not has_same_start(process, stat, self._boot):
            return ()
        return self._with_ancestors(stat.parent, _MAX_DEPTH)

    def _with_ancestors(self, pid: int, depth: int) -> tuple[ParentProcess, ...]:
        """Return a process and its ancestors, nearest first; siblings share what was read for the first of them."""
        stat = read_stat(pid, self._proc) if pid > _INIT and depth else None
        if stat is None:
            return ()
        key = pid, stat.started
        chain = self._chains.get(key)
        if chain is None:
            process = ParentProcess(pid, clean(os.fsdecode(stat.name), 64))
            chain = self._chains[key] = (process, *self._with_ancestors(stat.parent, depth - 1))
        return chain


def build_tree(processes: Sequence[Process], above: Callable[[Process], Sequence[ParentProcess]]) -> list[TreeRow]:
    """Return processes as the rows of a tree. Children of one parent keep their order.

    A parent takes the position of its first child.
    """
    listed = {process.pid for process in processes}
    chains = {process.pid: above(process) for process in processes}
    shared = _shared_ancestors(chains)
    parents = {pid: _nearest_parent(chain, listed, shared) for pid, chain in chains.items()}
    by_parent: dict[int, list[Process | ParentProcess]] = {}
    seen: set[int] = set()
    for process in processes:
        parent = parents[process.pid]
        if parent is None:
            by_parent.setdefault(0, []).append(process)
            continue
        if parent.pid not in listed and parent.pid not in seen:
            seen.add(parent.pid)
            by_parent.setdefault(0, []).append(parent)
        by_parent.setdefault(parent.pid, []).append(process)
    rows: list[TreeRow] = []
    _add_children(rows, by_parent, 0, 0)
    return rows


def _add_children(
    rows: list[TreeRow], by_parent: Mapping[int, Sequence[Process | ParentProcess]], pid: int, depth: int
) -> None:
    children = by_parent.get(pid, ())
    last_index = {child.pid: index for index, child in enumerate(children)}
    for index, child in enumerate(children):
        rows.append(TreeRow(depth, child) if isinstance(child, Process) else TreeRow(depth, None, child))
        # A process on several GPUs has several rows; its children follow the last one.
        if last_index[child.pid] == index and depth < _MAX_DEPTH:
            _add_children(rows, by_parent, child.pid, depth + 1)


def _shared_ancestors(chains: Mapping[int, Sequence[ParentProcess]]) -> frozenset[int]:
    """Return the PIDs of ancestors shared by several processes, except ancestors that start unrelated processes."""
    count: dict[int, int] = {}
    for chain in chains.values():
        for parent in chain[:_NEAR_ANCESTORS]:
            if parent.name not in _NO_LAUNCHER:
                count[parent.pid] = count.get(parent.pid, 0) + 1
    return frozenset(pid for pid, number in count.items() if number > 1)


def _nearest_parent(chain: Sequence[ParentProcess], listed: set[int], shared: frozenset[int]) -> ParentProcess | None:
    """Return the nearest ancestor that is in the list or shared."""
    return next((parent for parent in chain if parent.pid in listed or parent.pid in shared), None)
