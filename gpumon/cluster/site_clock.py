"""The local clock of a site in expressions: what it was at each moment is put in when a question is asked.

A period may lie on both sides of a change of the clock, and a server may be older than the last one: so neither the
difference to UTC of now nor that of when a table of questions was made is that of all of a period.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, tzinfo
from functools import partial

from gpumon.cluster.calendar_month import LAST, THIS, month
from gpumon.storage.history.tiers import HOUR

_MARK = re.compile(r"site_time\((-?\d+) ([\w-]+)\)")
_DAY = round(24 * HOUR)


def site_time(later: float, selector: str) -> str:
    """Return a mark for the seconds of the local clock in a period, so many seconds later; `told` puts them in."""
    return f"site_time({later:.0f} {selector})"


def told(expression: str, at: float, zone: tzinfo | None = None) -> str:
    """Return an expression with the clock of a zone, as it went until a moment; else with that of this process.

    >>> from zoneinfo import ZoneInfo
    >>> told("hour(vector(site_time(0 720h)))", 1763938800.0, ZoneInfo("Europe/Berlin"))
    'hour(vector(time() + 7200 - 3600 * (time() >= bool 1761440400)))'
    """
    return _MARK.sub(partial(_told, at, zone), expression)


def _told(at: float, zone: tzinfo | None, found: re.Match[str]) -> str:
    later, selector = int(found[1]), found[2]
    begin, end = month(selector, at, zone) if selector in (LAST, THIS) else (at - HOUR * int(selector[:-1]), at)
    begin -= HOUR  # an engine may begin with the step before
    changes = "".join(
        f" {'-' if by < 0 else '+'} {abs(by)} * (time() >= bool {moment - later})"
        for moment, by in _changes(int(begin), int(end), zone)
    )
    return f"time() + {_east(int(begin), zone) + later}{changes}"


def _changes(begin: int, end: int, zone: tzinfo | None) -> Iterator[tuple[int, int]]:
    """When the clock was changed, and by how many seconds."""
    for day in range(begin, end, _DAY):
        before, after = day, min(day + _DAY, end)
        by = _east(after, zone) - _east(before, zone)
        if not by:
            continue
        while after - before > 1:
            middle = (before + after) // 2
            if _east(middle, zone) == _east(day, zone):
                before = middle
            else:
                after = middle
        yield after, by


def _east(moment: int, zone: tzinfo | None) -> int:
    """Seconds by which the clock was ahead of UTC."""
    ahead = datetime.fromtimestamp(moment, zone).astimezone(zone).utcoffset()
    return round(ahead.total_seconds()) if ahead is not None else 0
