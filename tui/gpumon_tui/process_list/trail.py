"""History of the process that is open: read in a thread beside the view, anew every few seconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic

from gpumon.model.frame import Frame
from gpumon.model.process import Process
from gpumon.storage.history.buckets import Grid
from gpumon.storage.history.query import Query
from gpumon.storage.processes.in_memory import RecentSnapshots
from gpumon.storage.processes.measures import NAMES
from gpumon.storage.processes.reader import Piece
from gpumon.storage.processes.usage_series import ProcessKey, ProcessLines, process_key, process_lines
from gpumon_tui.asked import Answer, Asked

AGAIN = 5.0
"""Seconds after which it is read anew."""
_KEPT = 3600.0
"""Seconds for which an answer would be good by itself."""


class ProcessTrail:
    """Lines of one process at a time. `told` is called in the thread when they have come."""

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
        """Return its lines with the grid that they were read for; none yet at first.

        `frames` gives the newest ones, `path` is the file of kept history, or empty, and `looks` what there is without.
        """
        question = process_key(process), grid.step, grid.buckets
        now = self._clock()
        if self.asked.is_idle and (question != self._question or now >= self._due):
            # Frames are read here: the feed is not for two threads.
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
