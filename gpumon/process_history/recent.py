"""The newest frames as pieces of processes: what the file has not yet, and finer points of the last minutes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf, nan

from gpumon.common.clock import SECOND
from gpumon.common.numbers import is_known
from gpumon.history.tiers import PROCESS_SHAPES
from gpumon.model.frame import Frame
from gpumon.model.process import Process
from gpumon.process_history.cell import empty, hold
from gpumon.process_history.identity import UNKNOWN, ProcessLife, ProcessNumbers
from gpumon.process_history.kept import KnownProcess, Piece
from gpumon.process_history.look import Looks
from gpumon.process_history.measures import read_values
from gpumon.process_history.rows import RESTARTED

_AT_ONCE = 1e-6
"""Seconds by which two times are the same."""
_NEXT = 0.5
"""Seconds by which the end of what the file has, a sum by a steady clock, may differ from the time of its frame."""
_LOOK = PROCESS_SHAPES[0].step
"""Seconds after a process came when the file may have it first."""


class RecentProcesses:
    """Processes of `frames`, oldest first, from `since` (s since 1970) on.

    `known` are those of the file, which has all `until` some time, when those of `present` were there. `only`: UUID and
    pid of the one that is asked for.
    """

    def __init__(
        self, frames: Iterable[Frame], since: float, known: Sequence[KnownProcess] = (), present: Iterable[int] = (),
        until: float = -inf, only: tuple[str, int] | None = None,
    ) -> None:  # fmt: skip
        self.new: dict[int, KnownProcess] = {}
        """Those that the file does not have, by number."""
        self.pieces: list[Piece] = []
        self._present = frozenset(present)
        self._until = until
        self._came: dict[tuple[str, int], ProcessLife] = {}
        """The newest of those that are new, by UUID and pid."""
        self._known: dict[tuple[str, int], list[KnownProcess]] = {}
        for one in known:
            self._known.setdefault((one.device, one.pid), []).append(one)
        looks, numbers = Looks(every=0), ProcessNumbers(self._number)
        for frame in frames:
            if frame.is_full and frame.time >= since - _AT_ONCE:
                time_ns = round(frame.time * SECOND)
                there: Sequence[Process] = frame.processes
                if only is not None:
                    there = [process for process in there if (process.uuid, process.pid) == only]
                looks.add(frame.monotonic_ns, time_ns, frame.interval, there, frame.samples)
        looks.finish()
        self.begin = looks.over[0].begin_ns / SECOND if looks.over else nan
        """Seconds since 1970."""
        for look in looks.over:
            begin, seconds = look.begin_ns / SECOND, look.ns / SECOND
            for process, number in zip(look.processes, numbers.of(look), strict=False):
                if number != UNKNOWN:
                    cell = empty()
                    hold(cell, read_values(process), seconds)
                    self.pieces.append(Piece(number, begin, begin + seconds, cell))
        for life in (*numbers.changed, *numbers.lives()):
            came = self.new.get(life.number)
            if came is not None:
                self.new[life.number] = _process(life)._replace(first=came.first)

    def _number(self, life: ProcessLife) -> int:
        first = life.first_ns / SECOND
        for one in reversed(self._known.get((life.device, life.pid), ())):
            if is_known(life.started) and is_known(one.started):
                if abs(life.started - one.started) <= RESTARTED:
                    return one.number
            elif self._goes_on(one, first):
                return one.number
        came = self._came.setdefault((life.device, life.pid), life)
        if abs(life.started - came.started) <= RESTARTED and came is not life:
            return came.number  # for a while it was gone, or its GPU did not answer
        self._came[life.device, life.pid] = life
        life.number = -1 - len(self.new)
        self.new[life.number] = _process(life)
        return life.number

    def _goes_on(self, one: KnownProcess, first: float) -> bool:
        """Whether one whose start is not known, and that frames have since `first`, is this one of the file."""
        if first > self._until - _NEXT:  # else it was gone meanwhile, or nobody watched
            return one.number in self._present and first < self._until + _NEXT
        return one.first <= first + _LOOK


def _process(life: ProcessLife) -> KnownProcess:
    return KnownProcess(
        life.number, life.device, life.pid, life.started, life.kind, life.first_ns / SECOND, life.last_ns / SECOND,
        *life.texts,
    )  # fmt: skip
