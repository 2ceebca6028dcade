"""Looks at processes in memory, for a view whose frames no daemon keeps in a file: one in ten seconds, for an hour."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN, is_known
from gpumon.model.frame import Frame
from gpumon.model.process import Process
from gpumon.storage.history.grid import is_gap
from gpumon.storage.history.tiers import HOUR, PROCESS_SHAPES
from gpumon.storage.processes.cells import empty, hold
from gpumon.storage.processes.measures import MEASURES, read_values
from gpumon.storage.processes.reader import Piece
from gpumon.storage.processes.rows import RESTARTED

EVERY = PROCESS_SHAPES[0].step
"""Seconds between two looks, as in the file."""
KEPT_FOR = float(HOUR)
"""Seconds, as frames without processes are kept."""
MOST_ROWS = 200_000
"""Processes of all looks together, of 16 bytes each: 500 at a time. Beyond, the oldest looks are dropped."""
_WIDE = len(MEASURES)
Who = tuple[str, int, float]
"""UUID, pid and start of a process."""


class _Seen(NamedTuple):
    """The processes of a look, which holds until the one after."""

    begin: float
    """Seconds since 1970."""
    end: float
    follows: bool
    """Whether it begins where the one before ended."""
    who: tuple[Who, ...]
    values: array[float]
    """The measures of each, one process after the other."""


class ProcessLooks:
    """Takes frames in their order, and gives what a process used in the time before the newest of them."""

    def __init__(self, every: float = EVERY, kept_for: float = KEPT_FOR, most_rows: int = MOST_ROWS) -> None:
        self._every, self._kept_for, self._most_rows = every, kept_for, most_rows
        self._seen: deque[_Seen] = deque()
        self._rows = 0
        self._time, self._monotonic_ns = NAN, 0

    @property
    def begin(self) -> float:
        """Where the oldest look begins, s since 1970; NaN while there is none."""
        return self._seen[0].begin if self._seen else NAN

    def add(self, frame: Frame) -> None:
        """Take a frame: in most of them the processes of the last look only hold on."""
        if not frame.is_full:
            return
        passed = (frame.monotonic_ns - self._monotonic_ns) / SECOND
        follows = bool(self._seen) and not is_gap(passed, frame.time - self._time, frame.interval)
        self._time, self._monotonic_ns = frame.time, frame.monotonic_ns
        if follows:
            last = self._seen[-1] = self._seen[-1]._replace(end=frame.time)
            if frame.time - last.begin < self._every:
                return
        self._look(frame.time, frame.processes, follows=follows)

    def _look(self, time: float, processes: tuple[Process, ...], *, follows: bool) -> None:
        who = tuple((process.uuid, process.pid, process.started) for process in processes)
        if self._seen and self._seen[-1].who == who:
            who = self._seen[-1].who  # one list for all looks that are alike
        values = array("f", (value for process in processes for value in read_values(process)))
        self._seen.append(_Seen(time, time, follows, who, values))
        self._rows += len(who)
        while time - self._seen[0].begin > self._kept_for or (self._rows > self._most_rows and len(self._seen) > 1):
            self._rows -= len(self._seen.popleft().who)

    def pieces(self, device: str, pid: int, started: float) -> list[Piece]:
        """Return what is known of a process, oldest first.

        One whose start (s since 1970) is not known is another one where it was gone, or nobody watched, in between.
        """
        found = [
            Piece(0, look.begin, look.end, self._cell(look, place)) for look, place in self._looks(device, pid, started)
        ]
        return [piece for piece in reversed(found) if piece.end > piece.begin]

    def _looks(self, device: str, pid: int, started: float) -> Iterator[tuple[_Seen, int]]:
        """Looks with a process and its place in them, newest first."""
        was_found = is_over = False
        for look in reversed(self._seen):
            place = next(
                (
                    at for at, one in enumerate(look.who)
                    if one[1] == pid and one[0] == device and _is_same(one[2], started)
                ),
                -1,
            )  # fmt: skip
            if not is_known(started) and was_found and (place < 0 or is_over):
                return
            if place >= 0:
                yield look, place
            was_found, is_over = was_found or place >= 0, not look.follows

    @staticmethod
    def _cell(look: _Seen, place: int) -> list[float]:
        cell = empty()
        hold(cell, look.values[place * _WIDE : (place + 1) * _WIDE], look.end - look.begin)
        return cell


def _is_same(one: float, other: float) -> bool:
    """Whether two starts are those of one process; not known is one of its own."""
    return abs(one - other) <= RESTARTED if is_known(one) and is_known(other) else is_known(one) == is_known(other)
