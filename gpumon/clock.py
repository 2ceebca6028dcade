"""The time, passed in, so that tests own it."""

from __future__ import annotations

import time
from _thread import allocate_lock
from contextlib import suppress
from typing import Protocol

SECOND = 1_000_000_000
"""Nanoseconds in a second: clocks count in integer nanoseconds, metrics in seconds."""
SHORTEST, LONGEST = 0.01, 60.0
"""Seconds: the intervals between samples that make sense."""


class Sign(Protocol):
    """Something that happens once, such as an `Event`."""

    def wait(self, timeout: float) -> bool:
        """Wait so many seconds for it; return whether it has happened."""

    def is_set(self) -> bool:
        """Whether it has happened."""


class Clock(Protocol):
    """Where the sampler takes its time from."""

    def monotonic(self) -> int:
        """Nanoseconds of CLOCK_MONOTONIC: never steps, the same for every process of a boot."""

    def time(self) -> int:
        """Nanoseconds since 1970, as the wall clock has it."""

    def wait(self, stop: Sign, until: int) -> bool:
        """Sleep until `monotonic()` reaches `until`; true, at once, when `stop` is set."""


class SystemClock:
    """The machine's own clocks."""

    # As they are, and not each in a method of ours: the time of each of the driver's calls is taken.
    monotonic = staticmethod(time.monotonic_ns)
    time = staticmethod(time.time_ns)

    def wait(self, stop: Sign, until: int) -> bool:
        return stop.wait(max(0.0, (until - self.monotonic()) / SECOND))


class StopSign:
    """A sign that work is to end, for one thread that waits again and again.

    A lock is all of it: a wait for an Event runs through seven functions of Python.
    """

    def __init__(self) -> None:
        self._going_on = allocate_lock()
        self._going_on.acquire()

    def set(self) -> None:
        """Let the work end. May be called again, and from any thread."""
        with suppress(RuntimeError):  # it was set already
            self._going_on.release()

    def is_set(self) -> bool:
        return not self._going_on.locked()

    def wait(self, timeout: float) -> bool:
        is_set = self._going_on.acquire(timeout=timeout)
        if is_set:
            self.set()  # for the next one who asks
        return is_set
