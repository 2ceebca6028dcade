"""The time, passed in, so that tests own it."""

from __future__ import annotations

import time
from _thread import allocate_lock
from contextlib import suppress
from math import isfinite
from typing import TYPE_CHECKING, Protocol

from gpumon.common.errors import UsageError

if TYPE_CHECKING:
    from datetime import datetime


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


_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def seconds(length: str | float) -> float:
    """A length of time in seconds, from a number or such as "90s", "10m", "2h". Raises UsageError."""
    if isinstance(length, int | float):
        return float(length)
    try:
        return float(length[:-1]) * _UNITS[length[-1]]
    except (ValueError, KeyError, IndexError) as error:
        raise UsageError(f"'{length}' is not a duration: write 90s, 10m or 2h") from error


def positive_seconds(length: str) -> float:
    """A length of time that is more than nothing, in seconds. Raises UsageError."""
    found = seconds(length)
    if not (isfinite(found) and found > 0):
        raise UsageError(f"'{length}' is not a duration: write 90s, 10m or 2h")
    return found


def point_in_time(point: str | float | datetime, now: float) -> float:
    """A point of time in seconds since 1970: such a number, a datetime, ISO 8601, or such as "7d" before `now`.

    One without a time zone is local time. Raises UsageError.
    """
    if isinstance(point, int | float):
        found = float(point)
    elif isinstance(point, str) and point[-1:] in _UNITS:
        found = now - positive_seconds(point)
    else:
        from datetime import datetime

        try:
            found = (datetime.fromisoformat(point) if isinstance(point, str) else point).timestamp()
        except (ValueError, OverflowError, OSError) as error:
            raise UsageError(
                f"'{point}' is not a time: write 2026-01-31, 2026-01-31T14:00, or 7d for so long ago"
            ) from error
    if not isfinite(found):
        raise UsageError(f"'{point}' is not a time: write seconds since 1970")
    return found
