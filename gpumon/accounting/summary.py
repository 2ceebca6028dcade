"""Accounts of a window as views show them: one group for all, for each GPU, or for each hour, day, week or month."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, tzinfo
from typing import NamedTuple

from gpumon.accounting import query
from gpumon.accounting.account import Account, DeviceUse
from gpumon.accounting.query import HourUse, KeptAccounts, KnownDevice
from gpumon.history.tiers import HOUR
from gpumon.model.vendors import PARTS

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
