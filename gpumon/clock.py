"""The time, passed in, so that tests own it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from threading import Event

SECOND = 1_000_000_000
"""Nanoseconds in a second: clocks count in integer nanoseconds, metrics in seconds."""
SHORTEST, LONGEST = 0.01, 60.0
"""Seconds: the intervals between samples that make sense."""


class Clock(Protocol):
    """Where the sampler takes its time from."""

    def monotonic(self) -> int:
        """Nanoseconds of CLOCK_MONOTONIC: never steps, the same for every process of a boot."""

    def time(self) -> int:
        """Nanoseconds since 1970, as the wall clock has it."""

    def wait(self, stop: Event, until: int) -> bool:
        """Sleep until `monotonic()` reaches `until`; true, at once, when `stop` is set."""


class SystemClock:
    """The machine's own clocks."""

    # As they are, and not each in a method of ours: the time of each of the driver's calls is taken.
    monotonic = staticmethod(time.monotonic_ns)
    time = staticmethod(time.time_ns)

    def wait(self, stop: Event, until: int) -> bool:
        return stop.wait(max(0.0, (until - self.monotonic()) / SECOND))
