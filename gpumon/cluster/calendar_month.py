"""Months of the calendar in expressions: their seconds and their end are put in when a question is asked.

A table of questions is fixed; that the last month had 30 days, and when it ended, is of the moment.
"""

from __future__ import annotations

import re
from datetime import datetime, tzinfo
from functools import partial

from gpumon.storage.usage.summary import PERIODS

LAST, THIS = "last-month", "this-month"
_RANGE = re.compile(rf"\[({LAST}|{THIS})(:\w+)?\]")
_SECONDS = re.compile(rf'"({LAST}|{THIS})"')
_LEAST = 60.0
"""Seconds of a month that has just begun: no range is empty."""


def month(which: str, at: float, zone: tzinfo | None = None) -> tuple[float, float]:
    """Return begin and end of the month (s since 1970); the current one ends now.

    `zone`: where it begins; else where this process is.
    """
    begin, _ = PERIODS["month"](at, zone)
    if which == LAST:
        return PERIODS["month"](begin - 1.0, zone)
    return min(begin, at - _LEAST), at


def days(which: str, at: float, zone: tzinfo | None = None) -> str:
    """Return the first and the last day of the month.

    >>> from datetime import UTC
    >>> days("last-month", 1796083200.0, UTC)
    '2026-11-01 to 2026-11-30'
    """
    begin, end = month(which, at, zone)
    first, last = (datetime.fromtimestamp(moment, zone) for moment in (begin, end - 1.0))
    return f"{first:%Y-%m-%d} to {last:%Y-%m-%d}"


def dated(expression: str, at: float, zone: tzinfo | None = None) -> str:
    """Return an expression whose months are those of a moment.

    >>> from datetime import UTC
    >>> dated("sum_over_time(up[last-month:300s])", 1796083200.0, UTC)
    'sum_over_time(up[2592000s:300s] @ 1796083200)'
    """
    return _SECONDS.sub(partial(_seconds, at, zone), _RANGE.sub(partial(_range, at, zone), expression))


def _range(at: float, zone: tzinfo | None, found: re.Match[str]) -> str:
    begin, end = month(found[1], at, zone)
    return f"[{end - begin:.0f}s{found[2] or ''}] @ {end:.0f}"


def _seconds(at: float, zone: tzinfo | None, found: re.Match[str]) -> str:
    begin, end = month(found[1], at, zone)
    return f'"{end - begin:.0f}"'
