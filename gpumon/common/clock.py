"""Clocks, and parsing of durations and times. Clocks are passed as arguments so that tests can control the time."""

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
"""Nanoseconds in a second. Clocks count in integer nanoseconds, and metrics are in seconds."""
SHORTEST, LONGEST = 0.01, 60.0
"""Shortest and longest sampling interval in seconds."""


class Sign(Protocol):
    """A flag that a thread can wait for, such as a `threading.Event`."""

    def wait(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds for the flag to be set, and return whether it is set."""

    def is_set(self) -> bool:
        """Return whether the flag is set."""


class Clock(Protocol):
    """The clock interface that the sampler needs."""

    def monotonic(self) -> int:
        """Return the time of CLOCK_MONOTONIC in ns.

        This clock never jumps, and all processes read the same time until the machine reboots.
        """

    def time(self) -> int:
        """Return the time of the wall clock in ns since 1970."""

    def wait(self, stop: Sign, until: int) -> bool:
        """Sleep until `monotonic()` reaches `until` (ns). Return True as soon as `stop` is set, else False."""


class SystemClock:
    """Reads the clocks of the machine. Tests use another clock."""

    # Assigned directly instead of wrapped in methods, because each driver call is timed and must not get slower.
    monotonic = staticmethod(time.monotonic_ns)
    time = staticmethod(time.time_ns)

    def wait(self, stop: Sign, until: int) -> bool:
        return stop.wait(max(0.0, (until - self.monotonic()) / SECOND))


class StopSign:
    """A flag that tells a thread to stop. It is fast for a thread that waits for the flag repeatedly.

    The flag is a plain lock. Waiting for a `threading.Event` would call seven Python functions.
    """

    def __init__(self) -> None:
        self._lock = allocate_lock()
        self._lock.acquire()

    def set(self) -> None:
        """Set the flag. May be called from any thread, and more than once."""
        with suppress(RuntimeError):  # already set
            self._lock.release()

    def is_set(self) -> bool:
        return not self._lock.locked()

    def wait(self, timeout: float) -> bool:
        is_set = self._lock.acquire(timeout=timeout)
        if is_set:
            self.set()  # so that the next call also returns True
        return is_set


_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def seconds(length: str | float) -> float:
    """Convert a duration to seconds. `length`: seconds, or a string such as "90s", "10m", "2h". Raises UsageError."""
    if isinstance(length, int | float):
        return float(length)
    try:
        return float(length[:-1]) * _UNITS[length[-1]]
    except (ValueError, KeyError, IndexError) as error:
        raise UsageError(f"'{length}' is not a duration: write 90s, 10m or 2h") from error


def positive_seconds(length: str) -> float:
    """Convert a duration to seconds. Raises UsageError if it is invalid or not more than 0."""
    value = seconds(length)
    if not (isfinite(value) and value > 0):
        raise UsageError(f"'{length}' is not a duration: write 90s, 10m or 2h")
    return value


def later_time(point: str, now: float) -> float:
    """Convert a time to seconds since 1970, such as `point_in_time`, but `8h` means 8 hours after `now`.

    Raises UsageError if it is no time, or not after `now`.
    """
    try:
        value = now + positive_seconds(point) if point[-1:] in _UNITS else point_in_time(point, now)
    except UsageError:
        raise UsageError(f"'{point}' is not a later time: write 8h for 8 hours from now, or 2026-01-31T14:00") from None
    if value <= now:
        raise UsageError(f"'{point}' has already passed")
    return value


def point_in_time(point: str | float | datetime, now: float) -> float:
    """Convert a time to seconds since 1970. Raises UsageError.

    `point`: seconds since 1970, a datetime, an ISO 8601 string, or a duration such as "7d", which means 7 days before
    `now`. A time without a time zone is local time.
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
                f"'{point}' is not a time: write 2026-01-31, 2026-01-31T14:00, or 7d for 7 days ago"
            ) from error
    if not isfinite(value):
        raise UsageError(f"'{point}' is not a time: write seconds since 1970")
    return value
