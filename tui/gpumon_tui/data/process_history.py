"""Processes from stored history: processes for which frames have no room, and the history of a single process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic
from typing import NamedTuple

from gpumon.common.numbers import NAN
from gpumon.model.frame import Frame
from gpumon.model.process import Process
from gpumon.storage.history.buckets import Grid, WindowSpan
from gpumon.storage.history.query import Query
from gpumon.storage.processes.blocks import NAMES
from gpumon.storage.processes.in_memory import RecentSnapshots
from gpumon.storage.processes.query import ProcessUse, ProcessWindow, read_processes
from gpumon.storage.processes.reader import Piece
from gpumon.storage.processes.usage_series import ProcessKey, ProcessLines, process_key, process_lines
from gpumon_tui.background_queries import Answer, BackgroundQueries

_MAX_AGE = 180.0
"""Age in seconds up to which the history counts as current; it is usually about a minute old."""
_RECENT = 15.0
"""Seconds at the end of the history that are used; they contain two samples of the processes."""
_READ_EVERY = 20.0

Read = Callable[[str, WindowSpan], ProcessWindow]


class LeftOutProcesses(NamedTuple):
    """Processes in stored history that the frame on screen does not contain."""

    processes: Sequence[Process] = ()
    until: float = NAN
    """Time at which they were last seen (s since 1970)."""


NONE_LEFT_OUT = LeftOutProcesses()


class LeftOutReader:
    """Reads left-out processes in a background thread, in which `on_answer` is called after each read."""

    def __init__(
        self, on_answer: Callable[[], object], read: Read = lambda path, span: read_processes(path, (), span)
    ) -> None:
        self.asked = BackgroundQueries(on_answer)
        self._read = read
        self._compared: tuple[LeftOutProcesses, Sequence[Process]] = NONE_LEFT_OUT, ()
        """The processes from history and the processes of the frame that were last compared."""
        self._missing = NONE_LEFT_OUT
        """Result of that comparison."""

    def processes(self, path: str, now: float, present: Sequence[Process]) -> LeftOutProcesses:
        """Return the processes that are not in `present`; empty until they have been read.

        `path` is the history file, or empty; `now` is the time of the frame (s since 1970).
        """
        if not path:
            return NONE_LEFT_OUT
        stored = self.asked.get(("left out", path), lambda: left_out(path, now, self._read), _READ_EVERY).result
        if stored is None or not 0 <= now - stored.until <= _MAX_AGE:
            return NONE_LEFT_OUT
        compared = stored, present
        if compared[0] is not self._compared[0] or compared[1] is not self._compared[1]:
            keys = {(process.pid, process.uuid) for process in present}
            missing = [process for process in stored.processes if (process.pid, process.uuid) not in keys]
            self._compared, self._missing = compared, LeftOutProcesses(missing, stored.until)
        return self._missing


def left_out(path: str, now: float, read: Read) -> LeftOutProcesses:
    """Return all processes in the last entry of the history."""
    until = max((use.process.last for use in read(path, WindowSpan(now - _MAX_AGE, now)).processes), default=NAN)
    if not until > now - _MAX_AGE:
        return NONE_LEFT_OUT
    uses = read(path, WindowSpan(until - _RECENT, until + 1.0)).processes
    return LeftOutProcesses([_process(use) for use in uses if use.process.last >= until - _RECENT], until)


def _process(use: ProcessUse) -> Process:
    process, measures = use.process, use.measures
    return Process(
        pid=process.pid,
        uuid=process.device,
        kind=process.kind,
        name=process.name,
        user=process.user,
        started=process.started,
        memory_used=measures["memory_used"].mean,
        sm_utilization=measures["sm_utilization"].mean,
        cpu_utilization=measures["cpu_utilization"].mean,
        host_memory=measures["host_memory"].mean,
        container=process.container,
        pod=process.pod,
        job=process.job,
    )


TRAIL_READ_EVERY = 5.0
"""Seconds between reads."""
_VALID = 3600.0
"""Seconds for which a cached answer would stay valid; `TRAIL_READ_EVERY` triggers the reads instead."""


class ProcessTrail:
    """Reads the history of one process at a time. `on_answer` is called in the background thread after each read."""

    def __init__(self, on_answer: Callable[[], object], clock: Callable[[], float] = monotonic) -> None:
        self.asked = BackgroundQueries(on_answer)
        self._clock = clock
        self._question: tuple[ProcessKey, float, int] | None = None
        self._due = 0.0
        self._grid: Grid | None = None
        self._frames: Sequence[Frame] = ()
        self._earlier: Sequence[Piece] = ()
        self._path = ""

    def lines(
        self, process: Process, grid: Grid, frames: Callable[[], Sequence[Frame]], path: str, snapshots: RecentSnapshots
    ) -> Answer[tuple[Grid, ProcessLines]]:
        """Return the history of a process with its grid; empty until it has been read.

        `frames` returns the newest frames. `path` is the history file, or empty; without a file, the in-memory
        `snapshots` are used.
        """
        query_key = process_key(process), grid.step, grid.buckets
        now = self._clock()
        if self.asked.is_idle and (query_key != self._question or now >= self._due):
            # Read the frames here, because the feed must not be used from two threads.
            self._question, self._due = query_key, now + TRAIL_READ_EVERY
            self._grid, self._frames, self._path = grid, frames(), path
            self._earlier = snapshots.pieces(process.uuid, process.pid, process.started)
            self.asked.expire(query_key)
        if self._question is None or self._grid is None:
            return Answer(None)
        read_grid, read_path, read_frames, key = self._grid, self._path, self._frames, self._question[0]
        earlier = self._earlier

        def read() -> tuple[Grid, ProcessLines]:
            query = Query(key.device, NAMES, read_grid.begin, read_grid.end, grid=read_grid)
            return read_grid, process_lines(read_path, read_frames, key, query, earlier)

        answer = self.asked.get(self._question, read, _VALID)
        return answer if query_key == self._question else Answer(None)
