"""Identity of processes: those of a look that are the same as in the look before.

A process is known by GPU, pid and start. One whose start is not known is the same as in the look before, and after it
was gone, or after a gap, another one: its pid may have been used again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from operator import itemgetter
from typing import NamedTuple

from gpumon.common.clock import SECOND
from gpumon.common.numbers import is_known
from gpumon.model.frame import Sample
from gpumon.model.metrics import Availability
from gpumon.model.process import Process
from gpumon.storage.history.grid import is_gap
from gpumon.storage.history.tiers import PROCESS_SHAPES
from gpumon.storage.processes.measures import TEXTS, read_texts

EVERY = PROCESS_SHAPES[0].step * SECOND
"""ns between two looks."""
_SOON = SECOND
"""ns after a look in which a change of their number leads to no other."""
_MOST = 128
"""Looks that wait to be written at most: those of 20 minutes in which the file cannot be."""
_SIGHTED = (Availability.OK, Availability.ASLEEP)


class Look(NamedTuple):
    """The processes of a stretch of time."""

    begin_ns: int
    """ns since 1970."""
    ns: int
    """Its length, without gaps."""
    processes: Sequence[Process]
    blind: Collection[str]
    """UUIDs of GPUs that did not answer: nothing is known of their processes."""
    follows: bool
    """Whether it begins where the one before ended."""

    @property
    def end_ns(self) -> int:
        """ns since 1970."""
        return self.begin_ns + self.ns


class Looks:
    """Takes ticks or frames in their order. `every`: ns between two looks; 0 for one in each tick."""

    def __init__(self, every: int = EVERY) -> None:
        self.over: deque[Look] = deque(maxlen=_MOST if every else None)
        """Looks that are over, the oldest first; who takes them removes them."""
        self._every = every
        self._open: Look | None = None
        self._ns = self._due_ns = self._monotonic_ns = self._time_ns = 0

    def add(
        self, monotonic_ns: int, time_ns: int, interval: float, processes: Sequence[Process], samples: Sequence[Sample]
    ) -> None:
        """Take a tick: its times, the seconds between two as planned, its processes and its GPUs."""
        look = self._open
        passed = monotonic_ns - self._monotonic_ns
        gap = look is None or is_gap(passed / SECOND, (time_ns - self._time_ns) / SECOND, interval)
        self._monotonic_ns, self._time_ns = monotonic_ns, time_ns
        if look is not None and not gap:
            self._ns += passed
            is_same = len(processes) == len(look.processes) or self._ns < _SOON
            if is_same and time_ns < self._due_ns:
                return
        self.finish()
        blind = [sample.device.uuid for sample in samples if sample.state not in _SIGHTED]
        self._open = Look(time_ns, 0, processes, blind, not gap)
        self._ns = 0
        self._due_ns = (time_ns // self._every + 1) * self._every if self._every else 0

    def finish(self) -> None:
        """Close the open look."""
        look, self._open = self._open, None
        if look is not None:
            self.over.append(look._replace(ns=self._ns))


_WHO = itemgetter(*map(Process._fields.index, ("uuid", "pid", "started", *TEXTS)))
MAX_PROCESSES = 1024
"""Processes of a look; more are not kept."""
UNKNOWN = 0
"""The number of a process that does not count, because its GPU does not answer."""


class ProcessLife:
    """A process while it is on a GPU."""

    __slots__ = ("device", "first_ns", "kind", "last_ns", "number", "pid", "started", "texts")

    def __init__(self, process: Process, time_ns: int) -> None:
        self.device = process.uuid
        self.pid = process.pid
        self.started = process.started
        """Seconds since 1970; NaN where it is not known."""
        self.kind = process.kind
        self.texts: tuple[str, ...] = read_texts(process)
        """In the order of `TEXTS`."""
        self.first_ns = self.last_ns = time_ns
        """ns since 1970, from when until when it was seen."""
        self.number = UNKNOWN

    def may_be(self, process: Process) -> bool:
        """Whether a process of the same GPU and pid in the next look is this one."""
        return self.started == process.started or not (is_known(self.started) and is_known(process.started))

    def see(self, process: Process) -> bool:
        """Take what is new. One that ends has no name any more, and keeps the one that it had. Returns whether any is.

        A change of user or name is one of the same process, as of a server that begins as root.
        """
        before = (self.texts, self.started)
        self.texts = tuple(new or old for new, old in zip(read_texts(process), self.texts, strict=True))
        if is_known(process.started):
            self.started = process.started
        return before != (self.texts, self.started)


class ProcessNumbers:
    """Gives each process a number. `resolve` gives that of one which is new here."""

    def __init__(self, resolve: Callable[[ProcessLife], int]) -> None:
        self.changed: list[ProcessLife] = []
        """Those that are gone, or whose texts, start or first look are other ones, since this list was emptied."""
        self._resolve = resolve
        self._live: dict[tuple[str, int], ProcessLife] = {}
        self._who: list[tuple[object, ...]] = []
        self._blind: Sequence[str] = ()
        self._numbers: list[int] = []
        self._until_ns = 0

    def of(self, look: Look) -> list[int]:
        """Return the number of each process of a look, at most `MOST_AT_ONCE`; `UNKNOWN` of those that do not count."""
        who: list[tuple[object, ...]] = list(map(_WHO, look.processes))
        blind = list(look.blind)
        if not (look.follows and who == self._who and blind == self._blind):
            self._look(look)
            self._who, self._blind = who, blind
        self._until_ns = look.end_ns
        return self._numbers

    def lives(self) -> list[ProcessLife]:
        """Return the processes of the last look, seen until its end."""
        for life in self._live.values():
            life.last_ns = self._until_ns
        return list(self._live.values())

    def forget(self) -> None:
        """Look at all processes anew: their numbers may be other ones."""
        self._live, self._who, self.changed = {}, [], []

    def _look(self, look: Look) -> None:
        left, self._live, self._numbers = self._live, {}, []
        for process in look.processes[:MAX_PROCESSES]:
            key = (process.uuid, process.pid)
            if process.uuid in look.blind or key in self._live:
                self._numbers.append(UNKNOWN)  # each counts once
                continue
            life = left.get(key)
            if life is not None and life.may_be(process) and (look.follows or life.started == process.started):
                left.pop(key, None)
                if life.see(process) or look.begin_ns < life.first_ns:
                    # It cannot have come later than it is seen: the clock was ahead then.
                    life.first_ns, life.last_ns = min(life.first_ns, look.begin_ns), look.begin_ns
                    self.changed.append(life)
            else:
                life = ProcessLife(process, look.begin_ns)
                life.number = self._resolve(life)
            self._live[key] = life
            self._numbers.append(life.number)
        for life in left.values():
            life.last_ns = self._until_ns
            self.changed.append(life)
