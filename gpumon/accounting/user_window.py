"""The window of accounts that a page or a screen shows: a day, a week or a month of the calendar."""

from __future__ import annotations

import re
from datetime import datetime
from typing import NamedTuple
from zoneinfo import ZoneInfo

from gpumon.accounting.summary import PERIODS, Zone

CHOICES = ("day", "week", "month")
USUAL = "week"
_ZONE = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*", re.ASCII)
_DAY = "%Y-%m-%d"


class UserWindow(NamedTuple):
    """A period of the calendar; times in seconds since 1970."""

    period: str
    """One of `CHOICES`."""
    begin: float
    end: float
    """Of the whole period, also where that is still to come."""
    zone: Zone
    """None: the server's, whose own the viewer's is not."""

    @property
    def title(self) -> str:
        """`Sun 22 Nov 2026`, `16–22 Nov 2026`, `28 Dec 2026 – 3 Jan 2027`, `November 2026`."""
        first, last = self.day(self.begin), self.day(self.end - 1)
        if self.period == "day":
            return f"{first:%a} {_dated(first)}"
        if self.period == "month":
            return f"{first:%B %Y}"
        if first.month == last.month:
            return f"{first.day}–{_dated(last)}"
        begin = f"{first.day} {first:%b}" if first.year == last.year else _dated(first)
        return f"{begin} – {_dated(last)}"

    @property
    def file_name(self) -> str:
        """The title as a part of the name of a file: `16-22-Nov-2026`."""
        return re.sub(r"\W+", "-", self.title, flags=re.ASCII)

    def day(self, time: float) -> datetime:
        """`time` in the window's zone."""
        return datetime.fromtimestamp(time, self.zone)

    @property
    def step(self) -> str:
        """The periods that it consists of, as `summary` names them."""
        return "hour" if self.period == "day" else "day"

    def named(self, time: float) -> str:
        """The name of one of these: `14:00`, `Sun 22 Nov`."""
        day = self.day(time)
        return f"{day:%H:%M}" if self.period == "day" else f"{day:%a} {day.day} {day:%b}"

    def beside(self, later: int) -> UserWindow:
        """The period before it (-1) or behind it (1)."""
        return _around(self.period, self.end + 1 if later > 0 else self.begin - 1, self.zone)

    def days(self) -> list[float]:
        """When each of its days begins: one may have 23 hours, or 25."""
        found = [self.begin]
        while (end := PERIODS["day"](found[-1], self.zone)[1]) < self.end:
            found.append(end)
        return found

    @property
    def address(self) -> str:
        """The day that an address names it by."""
        return self.day(self.begin).strftime(_DAY)


def user_window(period: str, day: str, zone: str, now: float) -> UserWindow:
    """Return the period that `day` (2026-11-22) lies in, that of `now` where it is no day; `zone` is an IANA name."""
    where = _zone(zone)
    try:
        time = datetime.strptime(day, _DAY).replace(tzinfo=where).timestamp()
        return _around(period if period in CHOICES else USUAL, time, where)
    except (ValueError, OverflowError, OSError):  # no day, or one that no calendar of this machine has
        return _around(period if period in CHOICES else USUAL, now, where)


def _around(period: str, time: float, zone: Zone) -> UserWindow:
    begin, end = PERIODS[period](time, zone)
    return UserWindow(period, begin, end, zone)


def _zone(name: str) -> Zone:
    if not _ZONE.fullmatch(name):
        return None
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # unknown here, or of a machine without the names of zones
        return None


def _dated(day: datetime) -> str:
    return f"{day.day} {day:%b %Y}"
