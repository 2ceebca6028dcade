"""Ticks into looks at the processes on GPUs: one in ten seconds, and wherever their number changes.

What a look has seen holds until the next one, over all ticks that follow each other (`is_gap`); of the time of a gap
nothing is known.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from typing import NamedTuple

from gpumon.common.clock import SECOND
from gpumon.history.gaps import is_gap
from gpumon.history.tiers import PROCESS_SHAPES
from gpumon.model.frame import Sample
from gpumon.model.metrics import Availability
from gpumon.model.process import Process

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
