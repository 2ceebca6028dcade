"""A requested window as two points in time."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpumon.common.clock import point_in_time, seconds
from gpumon.common.errors import UsageError

if TYPE_CHECKING:
    from datetime import datetime

    Moment = str | float | datetime
    """Seconds since 1970, a datetime, a text of ISO 8601, or such as "7d" for so long ago."""


_FARTHEST = 100 * 366 * 86400.0
"""Seconds from now beyond which no window lies: it could not even be printed as a date."""


class WindowSpan(NamedTuple):
    """A stretch of time, in seconds since 1970."""

    begin: float
    end: float


def span_of(length: str | float | None, begin: Moment | None, end: Moment | None, now: float) -> WindowSpan:
    """Return the window of `length` (seconds, or such as "7d") up to `end`, or from `begin` on; or between the two.

    Without an end it ends `now` (s since 1970). Raises UsageError.
    """
    if length is not None and begin is not None and end is not None:
        raise UsageError("pass two of length, begin and end: the third follows")
    if length is None and begin is None:
        raise UsageError("pass a length such as '7d', or a begin")
    until = now if end is None else point_in_time(end, now)
    if begin is None:
        assert length is not None
        found = WindowSpan(until - seconds(length), until)
    else:
        since = point_in_time(begin, now)
        found = WindowSpan(since, until if length is None else since + seconds(length))
    if not all(abs(edge - now) <= _FARTHEST for edge in found):  # also one that is infinite, or not a number
        raise UsageError("a window must lie within a hundred years of now: pass a length such as '7d', or a date")
    if not found.begin < found.end:
        raise UsageError("the window is empty: its begin must be before its end")
    return found
