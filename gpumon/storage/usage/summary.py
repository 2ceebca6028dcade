"""Accounts of a window as views show them: one group for all, for each GPU, or for each hour, day, week or month."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, tzinfo
from typing import NamedTuple
from zoneinfo import ZoneInfo

from gpumon.model.vendors import PARTS
from gpumon.storage.history.tiers import HOUR
from gpumon.storage.usage import query
from gpumon.storage.usage.account import Account, DeviceUse
from gpumon.storage.usage.query import HourUse, KeptAccounts, KnownDevice

NOTICED = 90.0
"""Seconds of a device that were not seen, from which on they are worth telling: those of now are not written yet."""


class AccountGroup(NamedTuple):
    """Users of some hours of some GPUs."""

    begin: float
    """When it begins, s since 1970."""
    end: float
    device: KnownDevice | None
    """The GPU that it is about; None for all of them."""
    accounts: Sequence[Account]
    """Of each user whose name is known, the most held seconds first."""
    rest: Account
    """As `rest_of`."""
    use: DeviceUse
    unseen: float
    """Seconds, added up over devices, of which nothing is known: no daemon watched, or the GPU did not answer. Those
    before the first account are of them: nobody knows whether a GPU was free then."""
    hours: Sequence[HourUse] = ()
    """Those that it sums up."""


Zone = tzinfo | None
"""Where days begin; None: where this process does."""


def _hour(begin: float, zone: Zone = None) -> tuple[float, float]:
    del zone
    return begin, begin + HOUR


def _day(begin: float, zone: Zone = None) -> tuple[float, float]:
    day = _midnight(begin, zone)
    return day.timestamp(), (day + timedelta(1)).timestamp()


def _week(begin: float, zone: Zone = None) -> tuple[float, float]:
    day = _midnight(begin, zone)
    monday = day - timedelta(day.weekday())
    return monday.timestamp(), (monday + timedelta(7)).timestamp()


def _month(begin: float, zone: Zone = None) -> tuple[float, float]:
    first = _midnight(begin, zone).replace(day=1)
    return first.timestamp(), (first + timedelta(31)).replace(day=1).timestamp()


def _midnight(time: float, zone: Zone) -> datetime:
    """The begin of a day; days that are added to it are those of the calendar."""
    return datetime.fromtimestamp(time, zone).replace(hour=0, minute=0, second=0, microsecond=0, fold=0)


PERIODS: dict[str, Callable[..., tuple[float, float]]] = {
    "hour": _hour, "day": _day, "week": _week, "month": _month,
}  # fmt: skip
"""From when to when (s since 1970) the period lies in which an hour begins, in a time zone."""
WAYS = ("user", "device", *PERIODS)
"""The ways in which a window is grouped."""


def summary(kept: KeptAccounts, begin: float, end: float, by: str, zone: Zone = None) -> list[AccountGroup]:
    """Return the groups of a window that goes from `begin` to `end` (s since 1970); `by` is one of `WAYS`.

    Days, weeks and months are those of `zone`.
    """
    if by == "device":
        found = dict(query.grouped(kept.hours, lambda hour: hour.device))
        return [_group(found[one.uuid], [one], begin, end, one) for one in kept.devices]
    if by == "user":
        return [_group(kept.hours, kept.devices, begin, end)] if kept.hours else []
    periods = [
        _group(hours, kept.devices, max(begin, since), min(end, until))
        for (since, until), hours in _periods(kept, begin, end, by, zone).items()
    ]
    return [group for group in periods if group.use.observed or group.accounts or group.unseen]


def _periods(
    kept: KeptAccounts, begin: float, end: float, by: str, zone: Zone
) -> dict[tuple[float, float], list[HourUse]]:
    """Hours by the period that they lie in; also periods that nobody watched."""
    if not kept.hours:
        return {}
    found: dict[tuple[float, float], list[HourUse]] = {}
    since = begin // HOUR * HOUR
    while since < end:
        period = PERIODS[by](since, zone)
        found[period], since = [], period[1]
    for hour in kept.hours:
        found.setdefault(PERIODS[by](hour.begin, zone), []).append(hour)
    return found


def _group(
    hours: Sequence[HourUse], devices: Sequence[KnownDevice], begin: float, end: float, of: KnownDevice | None = None
) -> AccountGroup:  # fmt: skip
    use, accounts = query.total(hours), query.by_user(hours)
    # Instances of MIG come and go: that one is not there is nothing that nobody saw.
    whole = [device for device in devices if not device.uuid.startswith(PARTS)]
    unseen = max(0.0, end - begin) * len(whole) - sum(_seen(hour) for hour in hours)
    return AccountGroup(
        begin=begin,
        end=end,
        device=of,
        accounts=[account for account in accounts if account.user],
        rest=query.rest_of(use, accounts),
        use=use,
        unseen=unseen if unseen > NOTICED * len(whole) else 0.0,
        hours=hours,
    )


def _seen(hour: HourUse) -> float:
    """Seconds in which a GPU answered; while MIG divides it, only its energy is its own."""
    return 0.0 if hour.device.startswith(PARTS) else max(hour.use.observed, hour.use.metered)


def account_of(group: AccountGroup | None, user: str) -> Account:
    """The account of a user, an empty one where the group has none."""
    return next((one for one in group.accounts if one.user == user), Account(user)) if group else Account(user)


def named_use(hours: Sequence[HourUse]) -> Account:
    """The use of GPUs by holders whose names are known, each moment of a GPU once however many share it."""
    held = judged = busy = idle = 0.0
    for hour in hours:
        named = [one for one in hour.accounts if one.user]
        nameless = sum(one.held for one in hour.accounts if not one.user)
        # A GPU may have holders of both kinds at once.
        together = max([hour.use.held - nameless, *(one.held for one in named)]) if named else 0.0
        held += together
        judged += min(together, sum(one.judged for one in named))
        busy += sum(one.busy for one in named)
        idle += min(hour.use.idle_held, sum(one.idle_held for one in named))
    return Account("", held, max(judged, busy + idle), busy, idle)


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
