"""Processes of a frame: context for their rows, filters as typed by the user, and their tree by parents."""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from gpumon.analysis.gpu_state import IdleTime
from gpumon.analysis.processes import job_or_container
from gpumon.common.numbers import NAN, is_known
from gpumon.common.procfs import read_stat
from gpumon.common.text import clean
from gpumon.model.device import Device
from gpumon.model.frame import Run, RunState, Sample
from gpumon.model.metrics import GPU_INDEX, Availability
from gpumon.model.process import Process
from gpumon_tui.data.programs import boot_time, has_same_start

_TOTAL = GPU_INDEX["gpu.memory_total"]


class ProcessFacts(NamedTuple):
    """Lookups for all rows of a frame."""

    devices: Mapping[str, Device]
    """Devices by UUID."""
    positions: Mapping[str, int]
    """Position of each GPU in the frame, by UUID."""
    memory: Mapping[str, float]
    """Memory of each GPU in bytes; NaN if the driver does not report it."""
    runs: Mapping[str, Run]
    """Runs by key."""
    idle: Mapping[str, IdleTime]
    """Start of the idle time of allocated GPUs, by UUID; other GPUs are missing."""
    silent: Collection[str]
    """UUIDs of GPUs whose driver does not respond; their processes and values are outdated."""
    now: float
    """Time of the frame (s since 1970)."""
    me: str
    """Name of the user of this view; empty if the processes do not run on this machine."""
    script: Callable[[Process], str]
    """Returns the script that a process runs; empty for processes of other users."""

    def is_own(self, process: Process) -> bool:
        """Whether the process belongs to this user, or no user is set."""
        return not self.me or process.user == self.me

    def program(self, process: Process) -> str:
        """Return the script of a process of this user, or else the process name, which everyone can see."""
        return self.script(process) or process.name

    def run(self, process: Process) -> Run | None:
        """Return the active run of a process, as shown in the row of its GPU and in `gpumon status`."""
        run = self.runs.get(process.run) if process.run else None
        return run if run is not None and run.state is RunState.RUNNING else None

    def label(self, process: Process) -> str:
        """Return the number of the process's GPU; empty if unknown."""
        device = self.devices.get(process.uuid)
        return device.label if device else ""


def frame_facts(
    samples: Sequence[Sample], runs: Iterable[Run], now: float, *,
    idle: Mapping[str, IdleTime] | None = None, me: str = "", script: Callable[[Process], str] = lambda process: "",
) -> ProcessFacts:  # fmt: skip
    """Return the facts of a frame."""
    devices = {sample.device.uuid: sample.device for sample in samples}
    return ProcessFacts(
        devices=devices,
        positions={uuid: index for index, uuid in enumerate(devices)},
        memory={sample.device.uuid: sample.values[_TOTAL] for sample in samples},
        runs={run.key: run for run in runs},
        idle=idle or {},
        silent={sample.device.uuid for sample in samples if sample.state is Availability.STALE},
        now=now,
        me=me,
        script=script,
    )


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


Test = Callable[[Process, ProcessFacts], bool]
Value = Callable[[Process, ProcessFacts], float]
_GIB = 2.0**30
HINTS = ("user:", "gpu:", "run:", "mem>", "cpu>", "time>", "idle>")
"""Prefixes of terms, shown as a hint next to the field."""

TEXTS: dict[str, Callable[[Process, ProcessFacts], str]] = {
    "user": lambda process, facts: process.user,
    "run": lambda process, facts: run.name if (run := facts.run(process)) else "",
    "job": lambda process, facts: job_or_container(process),
    "program": lambda process, facts: facts.program(process),
}
"""Text fields by their name in a filter; a term matches if the field contains its word."""
EXACT: dict[str, Callable[[Process, ProcessFacts], str]] = {
    "gpu": lambda process, facts: facts.label(process),
    "pid": lambda process, facts: str(process.pid),
}
NUMBERS: dict[str, Value] = {
    "mem": lambda process, facts: process.memory_used / _GIB,
    "sm": lambda process, facts: process.sm_utilization * 100,
    "bandw": lambda process, facts: process.memory_utilization * 100,
    "cpu": lambda process, facts: process.cpu_utilization * 100,
    "host": lambda process, facts: process.host_memory / _GIB,
    "time": lambda process, facts: facts.now - process.started,
    "idle": lambda process, facts: since.seconds if (since := facts.idle.get(process.uuid)) else NAN,
}
"""Number fields in GiB or percent; fields in `SECONDS` are in seconds, or have a unit as in `90m`.

`idle` is the time for which the allocated GPU of the process has been idle. Unknown values never match.
"""
SECONDS = ("time", "idle")
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt, "<": operator.lt, ">=": operator.ge, "<=": operator.le, "=": operator.eq,
}  # fmt: skip
_NUMBER = re.compile(r"(\w+)(>=|<=|>|<|=)(\d+(?:\.\d+)?)([smhd]?)")
_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_UNFINISHED = re.compile(r"!?|!?\w+(>=|<=|>|<|=)|!?\w+:")


class Term(NamedTuple):
    """A condition of a filter."""

    text: str
    """The text as typed."""
    holds: Test


def parse_terms(text: str) -> tuple[Term, ...]:
    """Parse the terms in a string. Incomplete terms, such as `mem>`, are ignored."""
    return tuple(Term(word, _test(word)) for word in text.split() if not _is_unfinished(word))


def matching(processes: Sequence[Process], terms: Sequence[Term], facts: ProcessFacts) -> list[Process]:
    """Return the processes that match all terms."""
    return [process for process in processes if all(term.holds(process, facts) for term in terms)]


def count_hidden(processes: Sequence[Process], terms: Sequence[Term], facts: ProcessFacts) -> list[tuple[str, int]]:
    """Return each term that hides processes, with the number of processes it hides, in the order typed."""
    counts = [(term.text, sum(not term.holds(process, facts) for process in processes)) for term in terms]
    return [(text, count) for text, count in counts if count]


def _is_unfinished(word: str) -> bool:
    field = word.lstrip("!").rstrip("<>=:").lower()
    return bool(_UNFINISHED.fullmatch(word)) and (not field or field in TEXTS | EXACT or field in NUMBERS)


def _test(word: str) -> Test:
    if word.startswith("!"):
        negated = _test(word[1:])
        return lambda process, facts: not negated(process, facts)
    number = _NUMBER.fullmatch(word.lower())
    if number and number[1] in NUMBERS and (number[1] in SECONDS or not number[4]):
        return _number_test(NUMBERS[number[1]], _COMPARE[number[2]], float(number[3]) * _SECONDS[number[4]])
    field, colon, value = word.partition(":")
    value = value.casefold()
    if colon and (exact := EXACT.get(field.lower())):
        return lambda process, facts: exact(process, facts) == value
    if colon and (read_text := TEXTS.get(field.lower())):
        return lambda process, facts: value in read_text(process, facts).casefold()
    word = word.casefold()
    return lambda process, facts: any(
        word in text.casefold()
        for text in (process.name, str(process.pid), *(read_text(process, facts) for read_text in TEXTS.values()))
    )


def _number_test(value: Value, compare: Callable[[float, float], bool], limit: float) -> Test:
    return lambda process, facts: compare(value(process, facts), limit)
