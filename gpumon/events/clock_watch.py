"""Events of a wall clock that was set: times before and after it do not fit together."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from gpumon.common.clock import SECOND
from gpumon.model.events import CLOCK_SET, Occurrence
from gpumon.model.frame import Tick

LEAST = 5.0
"""Seconds by which the clock was set, at least: less is a correction, or time between two readings."""


def suspended() -> float:
    """Return the seconds for which the machine was suspended since it was booted."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)


class ClockWatch:
    """Compares the wall clock of each tick with the steady one; `slept` is `suspended`.

    The steady clock stands still while a machine is suspended, and the wall clock does not: that is no clock set.
    """

    def __init__(self, slept: Callable[[], float] = suspended) -> None:
        self._slept = slept
        self._explained = 0.0
        """Seconds of suspension that were the cause of a jump."""
        self._ahead_ns: int | None = None

    def add(self, tick: Tick) -> Iterator[Occurrence]:
        """Yield that the clock was set since the tick before; ticks come in order."""
        ahead_ns = tick.time_ns - tick.monotonic_ns
        before_ns, self._ahead_ns = self._ahead_ns, ahead_ns
        if before_ns is None or abs(ahead_ns - before_ns) < LEAST * SECOND:
            return
        seconds = (ahead_ns - before_ns) / SECOND
        if seconds > 0:
            slept = min(seconds, max(0.0, self._slept() - self._explained))
            self._explained += slept
            seconds -= slept
        if abs(seconds) >= LEAST:
            yield Occurrence(tick.time_ns, CLOCK_SET, details={"seconds": round(seconds, 1)})
