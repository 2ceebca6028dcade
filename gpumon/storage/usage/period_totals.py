"""Groups the accounts of a window for views, in total or by GPU, hour, day, week or month. Defines calendar windows."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

from gpumon.model.vendors import PARTS
from gpumon.storage.history.tiers import HOUR
from gpumon.storage.usage import query
from gpumon.storage.usage.account import Account, DeviceUse
from gpumon.storage.usage.query import HourUse, StoredAccounts, StoredDevice

MIN_UNSEEN = 90.0
"""Minimum seconds for which a device must be unobserved for this to be reported. Shorter times are normal, because the
newest seconds have not been written yet."""


@dataclass(frozen=True, slots=True)
class AccountGroup:
    """Usage of one GPU or of all GPUs, in total and by user, summed over some hours."""

    begin: float
    """Start of the period, in seconds since 1970."""
    end: float
    device: StoredDevice | None
    """The GPU; None for all GPUs."""
    accounts: Sequence[Account]
    """Accounts of named users, sorted by held seconds, descending."""
    rest: Account
    """Usage that is not included in any of the accounts (`unattributed`)."""
    use: DeviceUse
    unseen: float
    """Seconds without any observation, summed over devices. In this time, no daemon was running or the GPU did not
    answer. The time before the first account is included, because a GPU may or may not have been free then."""
    hours: Sequence[HourUse] = ()
    """The hours in this group."""


Zone = tzinfo | None
"""Time zone of calendar days; None is the zone of this process."""


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
    """Return the start of the day of `time` (s since 1970). A timedelta added to it counts calendar days."""
    return datetime.fromtimestamp(time, zone).replace(hour=0, minute=0, second=0, microsecond=0, fold=0)


PERIODS: dict[str, Callable[..., tuple[float, float]]] = {
    "hour": _hour, "day": _day, "week": _week, "month": _month,
}  # fmt: skip
"""Functions that return the start and end (s since 1970) of the period that contains a given time in a given time
zone."""
GROUPINGS = ("user", "device", *PERIODS)


def summary(stored: StoredAccounts, begin: float, end: float, by: str, zone: Zone = None) -> list[AccountGroup]:
    """Return the accounts from `begin` to `end` (s since 1970) in groups.

    `by`: one of `GROUPINGS`, such as by GPU or by day. `zone`: time zone that defines days, weeks and months.
    """
    if by == "device":
        hours_by_device = dict(query.group_hours(stored.hours, lambda hour: hour.device))
        return [_group(hours_by_device[device.uuid], [device], begin, end, device) for device in stored.devices]
    if by == "user":
        return [_group(stored.hours, stored.devices, begin, end)] if stored.hours else []
    groups = [
        _group(hours, stored.devices, max(begin, since), min(end, until))
        for (since, until), hours in _hours_by_period(stored, begin, end, by, zone).items()
    ]
    return [group for group in groups if group.use.observed or group.accounts or group.unseen]


def _hours_by_period(
    stored: StoredAccounts, begin: float, end: float, by: str, zone: Zone
) -> dict[tuple[float, float], list[HourUse]]:
    """Return the hours in each period of the window, by start and end of the period.

    Periods without observation have an empty list.
    """
    if not stored.hours:
        return {}
    hours: dict[tuple[float, float], list[HourUse]] = {}
    since = begin // HOUR * HOUR
    while since < end:
        period = PERIODS[by](since, zone)
        hours[period], since = [], period[1]
    for hour in stored.hours:
        hours.setdefault(PERIODS[by](hour.begin, zone), []).append(hour)
    return hours


def _group(
    hours: Sequence[HourUse],
    devices: Sequence[StoredDevice],
    begin: float,
    end: float,
    device: StoredDevice | None = None,
) -> AccountGroup:
    use, accounts = query.total(hours), query.by_user(hours)
    # MIG instances may be created and destroyed, so time in which an instance does not exist does not count as
    # unobserved.
    whole_gpus = [gpu for gpu in devices if not gpu.uuid.startswith(PARTS)]
    unseen = max(0.0, end - begin) * len(whole_gpus) - sum(_observed(hour) for hour in hours)
    return AccountGroup(
        begin=begin,
        end=end,
        device=device,
        accounts=[account for account in accounts if account.user],
        rest=query.unattributed(use, accounts),
        use=use,
        unseen=unseen if unseen > MIN_UNSEEN * len(whole_gpus) else 0.0,
        hours=hours,
    )


def _observed(hour: HourUse) -> float:
    """Return the seconds in which a GPU answered.

    While MIG divides the GPU, only the sum `metered` includes these seconds.
    """
    return 0.0 if hour.device.startswith(PARTS) else max(hour.use.observed, hour.use.metered)


def find_account(group: AccountGroup | None, user: str) -> Account:
    """Return the account of a user in a group, or an empty account if there is none."""
    accounts = group.accounts if group else ()
    return next((account for account in accounts if account.user == user), Account(user))


def named_use(hours: Sequence[HourUse]) -> Account:
    """Return the usage by holders who have a name. If several holders share a GPU, the time counts once."""
    held = judged = busy = idle = 0.0
    for hour in hours:
        named = [account for account in hour.accounts if account.user]
        unnamed_held = sum(account.held for account in hour.accounts if not account.user)
        # A GPU may have holders with and without a name at the same time.
        named_held = max([hour.use.held - unnamed_held, *(account.held for account in named)]) if named else 0.0
        held += named_held
        judged += min(named_held, sum(account.judged for account in named))
        busy += sum(account.busy for account in named)
        idle += min(hour.use.idle_held, sum(account.idle_held for account in named))
    return Account("", held, max(judged, busy + idle), busy, idle)


WINDOW_PERIODS = ("day", "week", "month")
DEFAULT_PERIOD = "week"
_ZONE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*", re.ASCII)
_DAY_FORMAT = "%Y-%m-%d"


@dataclass(frozen=True, slots=True)
class UserWindow:
    """A day, week or month of the calendar. Times are in seconds since 1970."""

    period: str
    """Length of the window: one of `WINDOW_PERIODS`."""
    begin: float
    end: float
    """End of the whole period, even if this is in the future."""
    zone: Zone
    """Time zone of the viewer; None is the zone of the server."""

    @property
    def title(self) -> str:
        """The period as text, such as `Sun 22 Nov 2026`, `16–22 Nov 2026` or `November 2026`."""
        first, last = self.local_time(self.begin), self.local_time(self.end - 1)
        if self.period == "day":
            return f"{first:%a} {_date_text(first)}"
        if self.period == "month":
            return f"{first:%B %Y}"
        if first.month == last.month:
            return f"{first.day}–{_date_text(last)}"
        begin = f"{first.day} {first:%b}" if first.year == last.year else _date_text(first)
        return f"{begin} – {_date_text(last)}"

    @property
    def file_name(self) -> str:
        """The title in a form for file names, such as `16-22-Nov-2026`."""
        return re.sub(r"\W+", "-", self.title, flags=re.ASCII)

    def local_time(self, time: float) -> datetime:
        """Return `time` (s since 1970) in the window's time zone."""
        return datetime.fromtimestamp(time, self.zone)

    @property
    def step(self) -> str:
        """Grouping for `summary` that divides the window: a day into hours, a week or month into days."""
        return "hour" if self.period == "day" else "day"

    def step_title(self, time: float) -> str:
        """Return the title of the hour or day that starts at `time` (s since 1970), as `14:00` or `Sun 22 Nov`."""
        begin = self.local_time(time)
        return f"{begin:%H:%M}" if self.period == "day" else f"{begin:%a} {begin.day} {begin:%b}"

    def neighbor(self, direction: int) -> UserWindow:
        """Return the previous (`direction` -1) or the next (1) day, week or month."""
        return _window_at(self.period, self.end + 1 if direction > 0 else self.begin - 1, self.zone)

    def days(self) -> list[float]:
        """Return the start of each day (s since 1970). With daylight saving time, a day may have 23 or 25 hours."""
        days = [self.begin]
        while (end := PERIODS["day"](days[-1], self.zone)[1]) < self.end:
            days.append(end)
        return days

    @property
    def first_day(self) -> str:
        """First day of the window in the form used in web addresses, such as `2026-11-22`."""
        return self.local_time(self.begin).strftime(_DAY_FORMAT)


def parse_window(period: str, day: str, zone: str, now: float) -> UserWindow:
    """Return the day, week or month that contains `day`.

    `period`: one of `WINDOW_PERIODS`; a week if it is invalid. `day`: a date such as `2026-11-22`; if it is invalid,
    the result contains `now` (s since 1970). `zone`: IANA name of a time zone.
    """
    period, time_zone = period if period in WINDOW_PERIODS else DEFAULT_PERIOD, _parse_zone(zone)
    try:
        return _window_at(period, datetime.strptime(day, _DAY_FORMAT).replace(tzinfo=time_zone).timestamp(), time_zone)
    except (ValueError, OverflowError, OSError):  # `day` is not a date, or is out of range on this machine
        return _window_at(period, now, time_zone)


def _window_at(period: str, time: float, zone: Zone) -> UserWindow:
    begin, end = PERIODS[period](time, zone)
    return UserWindow(period, begin, end, zone)


def _parse_zone(name: str) -> Zone:
    """Return the time zone with this name, or None if the name is invalid or unknown on this machine."""
    if not _ZONE_NAME.fullmatch(name):
        return None
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return None


def _date_text(day: datetime) -> str:
    return f"{day.day} {day:%b %Y}"
