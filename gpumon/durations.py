"""Lengths and points of time as people write them: 90s, 10m, 2h, 7d; 2026-01-31, 2026-01-31T14:00."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

from gpumon.errors import UsageError

if TYPE_CHECKING:
    from datetime import datetime

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
