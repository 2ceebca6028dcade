"""Processes from stored history: those that frames have no room for (about a minute old), and the history of a
single process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic
from typing import NamedTuple

from gpumon.common.numbers import NAN
from gpumon.model.frame import Frame
from gpumon.model.process import Process
from gpumon.storage.history.buckets import Grid, WindowSpan
from gpumon.storage.history.query import Query
from gpumon.storage.processes.in_memory import RecentSnapshots
from gpumon.storage.processes.measures import NAMES
from gpumon.storage.processes.query import ProcessUse, ProcessWindow, read_processes
from gpumon.storage.processes.reader import Piece
from gpumon.storage.processes.usage_series import ProcessKey, ProcessLines, process_key, process_lines
from gpumon_tui.background import Answer, Asked

_BACK = 180.0
"""Maximum age of the history in seconds for it to count as current."""
_LOOK = 15.0
"""Seconds at the end of the history that are used; contains two samples of the processes."""
_AGAIN = 20.0

Read = Callable[[str, WindowSpan], ProcessWindow]


class LeftOutProcesses(NamedTuple):
    """Processes in stored history that the frame on screen does not contain."""

    processes: Sequence[Process] = ()
    until: float = NAN
    """Time at which they were last seen (s since 1970)."""


NONE_LEFT_OUT = LeftOutProcesses()


class LeftOutReader:
    """Reads them in a background thread while a frame reports that processes are missing; `told` is called in that
    thread.
    """

    def __init__(
        self, told: Callable[[], object], read: Read = lambda path, span: read_processes(path, (), span)
    ) -> None:
        self.asked = Asked(told)
        self._read = read
        self._of: tuple[LeftOutProcesses, Sequence[Process]] = NONE_LEFT_OUT, ()
        """Result of the last comparison, and the processes it was compared with."""
        self._there = NONE_LEFT_OUT

    def of(self, path: str, now: float, present: Sequence[Process]) -> LeftOutProcesses:
        """Return the processes that are not in `present`; empty until they have been read.

        `path` is the history file, or empty; `now` is the time of the frame (s since 1970).
        """
        if not path:
            return NONE_LEFT_OUT
        found = self.asked.ask(("left out", path), lambda: left_out(path, now, self._read), _AGAIN).found
        if found is None or not 0 <= now - found.until <= _BACK:
            return NONE_LEFT_OUT
        of = found, present
        if of[0] is not self._of[0] or of[1] is not self._of[1]:
            keys = {(one.pid, one.uuid) for one in present}
            there = [one for one in found.processes if (one.pid, one.uuid) not in keys]
            self._of, self._there = of, LeftOutProcesses(there, found.until)
        return self._there


def left_out(path: str, now: float, read: Read) -> LeftOutProcesses:
    """Return all processes in the last entry of the history."""
    until = max((use.process.last for use in read(path, WindowSpan(now - _BACK, now)).processes), default=NAN)
    if not until > now - _BACK:
        return NONE_LEFT_OUT
    uses = read(path, WindowSpan(until - _LOOK, until + 1.0)).processes
    return LeftOutProcesses([_process(use) for use in uses if use.process.last >= until - _LOOK], until)


def _process(use: ProcessUse) -> Process:
    one, measures = use.process, use.measures
    return Process(
        pid=one.pid,
        uuid=one.device,
        kind=one.kind,
        name=one.name,
        user=one.user,
        started=one.started,
        memory_used=measures["memory_used"].mean,
        sm_utilization=measures["sm_utilization"].mean,
        cpu_utilization=measures["cpu_utilization"].mean,
        host_memory=measures["host_memory"].mean,
        container=one.container,
        pod=one.pod,
        job=one.job,
    )


AGAIN = 5.0
"""Seconds between reads."""
_KEPT = 3600.0
"""Seconds for which a cached answer would remain valid; reads are triggered by `AGAIN` instead."""


class ProcessTrail:
    """History of one process at a time. `told` is called in the background thread when it has been read."""

    def __init__(self, told: Callable[[], object], clock: Callable[[], float] = monotonic) -> None:
        self.asked = Asked(told)
        self._clock = clock
        self._question: tuple[ProcessKey, float, int] | None = None
        self._due = 0.0
        self._grid: Grid | None = None
        self._frames: Sequence[Frame] = ()
        self._earlier: Sequence[Piece] = ()
        self._path = ""

    def lines(
        self, process: Process, grid: Grid, frames: Callable[[], Sequence[Frame]], path: str, looks: RecentSnapshots
    ) -> Answer[tuple[Grid, ProcessLines]]:
        """Return the history of a process with its grid; empty until it has been read.

        `frames` returns the newest frames, `path` is the history file, or empty, and `looks` the in-memory snapshots
        used without one.
        """
        question = process_key(process), grid.step, grid.buckets
        now = self._clock()
        if self.asked.is_idle and (question != self._question or now >= self._due):
            # Frames are read here, because the feed must not be used from two threads.
            self._question, self._due = question, now + AGAIN
            self._grid, self._frames, self._path = grid, frames(), path
            self._earlier = looks.pieces(process.uuid, process.pid, process.started)
            self.asked.forget(question)
        if self._question is None or self._grid is None:
            return Answer(None)
        of, kept, newest, key = self._grid, self._path, self._frames, self._question[0]
        earlier = self._earlier

        def read() -> tuple[Grid, ProcessLines]:
            query = Query(key.device, NAMES, of.begin, of.end, grid=of)
            return of, process_lines(kept, newest, key, query, earlier)

        answer = self.asked.ask(self._question, read, _KEPT)
        return answer if question == self._question else Answer(None)
