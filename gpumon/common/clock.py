"""Clocks that are passed in, so that tests control the time, and parsing of durations and times."""

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
"""Shortest and longest sampling interval in seconds."""


class Sign(Protocol):
    """A flag that is set once, such as a `threading.Event`."""

    def wait(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds, and return whether it is set."""

    def is_set(self) -> bool:
        """Return whether it is set."""


class Clock(Protocol):
    """The clock of the sampler."""

    def monotonic(self) -> int:
        """Return ns of CLOCK_MONOTONIC, which never steps and is the same for all processes of a boot."""

    def time(self) -> int:
        """Return ns since 1970 of the wall clock."""

    def wait(self, stop: Sign, until: int) -> bool:
        """Sleep until `monotonic()` reaches `until`; returns True at once if `stop` is set."""


class SystemClock:
    """The machine's clocks."""

    # Without methods around them, because each driver call is timed.
    monotonic = staticmethod(time.monotonic_ns)
    time = staticmethod(time.time_ns)

    def wait(self, stop: Sign, until: int) -> bool:
        return stop.wait(max(0.0, (until - self.monotonic()) / SECOND))


class StopSign:
    """A stop flag for one thread that waits repeatedly.

    It is a bare lock, because waiting for an Event runs through seven Python functions.
    """

    def __init__(self) -> None:
        self._lock = allocate_lock()
        self._lock.acquire()

    def set(self) -> None:
        """Set the flag. Any thread may call this, also repeatedly."""
        with suppress(RuntimeError):  # already set
            self._lock.release()

    def is_set(self) -> bool:
        return not self._lock.locked()

    def wait(self, timeout: float) -> bool:
        is_set = self._lock.acquire(timeout=timeout)
        if is_set:
            self.set()  # for the next call
        return is_set


_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def seconds(length: str | float) -> float:
    """Parse a duration: a number of seconds, or text such as "90s", "10m", "2h". Raises UsageError."""
    if isinstance(length, int | float):
        return float(length)
    try:
        return float(length[:-1]) * _UNITS[length[-1]]
    except (ValueError, KeyError, IndexError) as error:
        raise UsageError(f"'{length}' is not a duration: write 90s, 10m or 2h") from error


def positive_seconds(length: str) -> float:
    """Parse a duration of more than 0 seconds. Raises UsageError."""
    value = seconds(length)
    if not (isfinite(value) and value > 0):
        raise UsageError(f"'{length}' is not a duration: write 90s, 10m or 2h")
    return value


def point_in_time(point: str | float | datetime, now: float) -> float:
    """Parse a time to seconds since 1970: a number, a datetime, ISO 8601, or a duration before `now` such as "7d".

    Without a time zone it is local time. Raises UsageError.
    """
    if isinstance(point, int | float):
        value = float(point)
    elif isinstance(point, str) and point[-1:] in _UNITS:
        value = now - positive_seconds(point)
    else:
        from datetime import datetime

        try:
            value = (datetime.fromisoformat(point) if isinstance(point, str) else point).timestamp()
        except (ValueError, OverflowError, OSError) as error:
            raise UsageError(
                f"'{point}' is not a time: write 2026-01-31, 2026-01-31T14:00, or 7d for so long ago"
            ) from error
    if not isfinite(value):
        raise UsageError(f"'{point}' is not a time: write seconds since 1970")
    return value
