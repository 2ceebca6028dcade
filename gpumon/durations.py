"""Lengths of time as people write them: 90s, 10m, 2h, 7d."""

from __future__ import annotations

from math import isfinite

from gpumon.errors import UsageError

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
