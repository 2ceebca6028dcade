"""Charges of users by the accounts of hours, each at the price of its hour of the day."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import floor
from typing import NamedTuple

from gpumon.common.config import Prices
from gpumon.common.numbers import NAN
from gpumon.cost.charge import JOULES_PER_KWH, UNKNOWN, WHOLE, Amount, Charge, amount
from gpumon.storage.history.tiers import HOUR
from gpumon.storage.usage.account import Account
from gpumon.storage.usage.query import HourUse, KnownDevice

HourOfDay = Callable[[float], int]
"""The hour of the day, 0 to 23, of a time (s since 1970)."""

_BORDERS = 300.0
"""Seconds of which the difference of every zone to UTC is a multiple."""
_INSTANT = 0.001


def local_hour(moment: float) -> int:
    """Return the hour of the day in the time zone of this machine, whose electricity it is."""
    return time.localtime(moment).tm_hour


def hours_of_day(begin: float, seconds: float, hour_of_day: HourOfDay) -> Iterator[tuple[int, float]]:
    """Yield each hour of the day that a time touches, and the seconds of it.

    In some zones an hour begins at half past one of UTC, or a quarter: it is looked for in steps of five minutes.
    """
    moment, end = begin, begin + seconds
    while moment < end:
        following, hour = min(end, (floor(moment / HOUR) + 1) * HOUR), hour_of_day(moment)
        if hour_of_day(max(moment, following - _INSTANT)) != hour:
            border = (floor(moment / _BORDERS) + 1) * _BORDERS
            while border < following and hour_of_day(border) == hour:
                border += _BORDERS
            following = min(following, border)
        yield hour, following - moment
        moment = following


class Priced(NamedTuple):
    """Charges of some hours."""

    users: Mapping[str, Charge]
    """By user; the empty name is whoever held a GPU unknown."""
    free: Charge
    """GPUs that nobody held: energy alone."""


def price_hours(
    hours: Iterable[HourUse], devices: Sequence[KnownDevice], prices: Prices, hour_of_day: HourOfDay = local_hour
) -> Priced:
    """Return what each user's part of these hours costs."""
    models = {device.uuid: device.name for device in devices}
    users: dict[str, Charge] = {}
    free = Charge()
    for hour in hours:
        per_hour = prices.of_model(models.get(hour.device, ""))
        per_kwh = [(prices.kwh[of], part / HOUR) for of, part in hours_of_day(hour.begin, HOUR, hour_of_day)]
        for account in hour.accounts:
            charge = _charge(account, per_hour, per_kwh, prices)
            users[account.user] = users.get(account.user, Charge()).plus(charge)
        if hour.use.free > 0:
            free = free.plus(_energy(hour.use.free_energy, per_kwh, prices, complete=True))
    return Priced(users, free)


def _charge(account: Account, per_hour: float, per_kwh: Sequence[tuple[float, float]], prices: Prices) -> Charge:
    judged, metered = account.judged > 0, account.metered > 0
    idle = amount(account.idle_held / HOUR, per_hour, complete=account.judged >= WHOLE * account.held)
    return _energy(
        account.energy if metered else NAN, per_kwh, prices, complete=account.metered >= WHOLE * account.held
    )._replace(held=amount(account.held / HOUR, per_hour), idle_held=idle if judged else UNKNOWN)


def _energy(joules: float, per_kwh: Sequence[tuple[float, float]], prices: Prices, *, complete: bool) -> Charge:
    """The charge of energy alone, by the prices of an hour and their parts of it.

    An account does not know when in its hour energy was used: with two prices it is about as much.
    """
    kwh = joules / JOULES_PER_KWH * prices.pue
    money = sum((amount(kwh * part, price, complete=complete) for price, part in per_kwh), Amount())
    is_about = len({price for price, _ in per_kwh}) > 1 and kwh > 0
    return Charge(energy=money._replace(about=is_about), co2=amount(kwh, prices.co2, complete=complete))
