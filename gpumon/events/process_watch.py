"""Events of more processes at once than history keeps."""

from __future__ import annotations

from collections.abc import Iterator

from gpumon.common.clock import SECOND
from gpumon.model.events import LEFT_OUT, Occurrence
from gpumon.model.frame import Tick
from gpumon.process_history.identity import MOST_AT_ONCE

_MORE = 1.1
"""Times as many as were noted before, from which on it is noted again."""
AGAIN = 3600.0
"""Seconds after which it is noted again while it lasts, so that who asks for a part of it finds it."""
_FEWER = 0.9
"""The part of those that are kept, below which it is over: a number that goes up and down a bit is told once."""


class ProcessWatch:
    """Remembers how many were noted."""

    def __init__(self) -> None:
        self._noted = 0
        """Processes at once that were noted last; 0 while all are kept."""
        self._noted_ns = 0

    def add(self, tick: Tick) -> Iterator[Occurrence]:
        """Yield that some are left out: when they begin to be, where they become many more, and each hour."""
        count = len(tick.processes)
        if count <= MOST_AT_ONCE:
            if count < _FEWER * MOST_AT_ONCE:
                self._noted = 0
        elif count > _MORE * self._noted or tick.monotonic_ns - self._noted_ns >= AGAIN * SECOND:
            self._noted, self._noted_ns = count, tick.monotonic_ns
            yield Occurrence(tick.time_ns, LEFT_OUT, details={"count": count, "left_out": count - MOST_AT_ONCE})
