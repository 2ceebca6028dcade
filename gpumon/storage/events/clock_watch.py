"""Detects changes of the wall clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from gpumon.common.clock import SECOND
from gpumon.model.events import CLOCK_SET, Event
from gpumon.model.frame import Tick

MIN_CLOCK_STEP = 5.0
"""Minimum seconds by which the clock must be set to be reported. A smaller difference may be a correction of the clock,
or the time between the two readings."""


def suspended_seconds() -> float:
    """Return the total seconds for which the machine has been suspended since it was booted."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)


class ClockWatch:
    """Detects that the wall clock was set, by comparing it at each tick with CLOCK_MONOTONIC.

    CLOCK_MONOTONIC stops while the machine is suspended, but the wall clock does not. `suspended` returns the total
    seconds for which the machine has been suspended.
    """

    def __init__(self, suspended: Callable[[], float] = suspended_seconds) -> None:
        self._suspended = suspended
        self._explained = 0.0
        """Seconds of suspension that were already subtracted from earlier differences between the clocks."""
        self._ahead_ns: int | None = None

    def add(self, tick: Tick) -> Iterator[Event]:
        """Yield an event if the clock was set since the previous tick."""
        ahead_ns = tick.time_ns - tick.monotonic_ns
        before_ns, self._ahead_ns = self._ahead_ns, ahead_ns
        if before_ns is None or abs(ahead_ns - before_ns) < MIN_CLOCK_STEP * SECOND:
            return
        seconds = (ahead_ns - before_ns) / SECOND
        if seconds > 0:
            suspended = min(seconds, max(0.0, self._suspended() - self._explained))
            self._explained += suspended
            seconds -= suspended
        if abs(seconds) >= MIN_CLOCK_STEP:
            yield Event(tick.time_ns, CLOCK_SET, details={"seconds": round(seconds, 1)})
