"""A charge: the cost of some use of GPUs, as numbers that are never added to each other.

Held time is what others could not use; idle held time is the part of it in which nothing was computed. Energy is
already in the price of rented GPUs, and is what one's own GPUs cost: whoever adds the two counts it twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import floor, isfinite
from typing import TYPE_CHECKING, NamedTuple

from gpumon.common.config import Prices
from gpumon.common.numbers import NAN, is_known
from gpumon.storage.history.tiers import HOUR
from gpumon.storage.ledger import aggregate
from gpumon.storage.ledger.records import DeviceRow, Record
from gpumon.storage.ledger.summary import EpochSummary
from gpumon.storage.usage.account import Account

if TYPE_CHECKING:
    from gpumon.storage.usage.query import HourUse, KnownDevice

JOULES_PER_KWH = 3.6e6
WHOLE = 0.99
"""The share of a time from which on what is known of it counts as all."""


class Amount(NamedTuple):
    """A sum of money or grams."""

    value: float = NAN
    """Of what is known; NaN where nothing is."""
    complete: bool = True
    """Whether that is all; else it is at least so much."""
    about: bool = False
    """Whether the value itself is near the truth and no bound of it: it may be a little less or more."""

    @property
    def is_told(self) -> bool:
        """Whether it says anything: at least nothing is not known."""
        return is_known(self.value) and (self.complete or self.value != 0)

    def __add__(self, other: object) -> Amount:
        """Add what is known of both."""
        if not isinstance(other, Amount):
            return NotImplemented
        known = [one for one in (self, other) if is_known(one.value)]
        value = sum(one.value for one in known) if known else NAN
        return Amount(value, self.complete and other.complete, any(one.about for one in known))


NOTHING = Amount()
UNKNOWN = Amount(NAN, complete=False)


class Charge(NamedTuple):
    """The cost of some use, by the prices in force."""

    held: Amount = NOTHING
    idle_held: Amount = NOTHING
    energy: Amount = NOTHING
    co2: Amount = NOTHING
    """Grams."""

    def plus(self, other: Charge) -> Charge:
        """Add another use."""
        return Charge(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


NO_CHARGE = Charge(UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN)
"""Of use of which nothing is known."""


def together(charges: Iterable[Charge]) -> Charge:
    """Add uses."""
    total = Charge()
    for charge in charges:
        total = total.plus(charge)
    return total


def amount(quantity: float, price: float, *, complete: bool = True) -> Amount:
    """Price a quantity; nothing of it costs nothing, whatever the price."""
    if quantity == 0 and complete:
        return Amount(0.0) if isfinite(price) else NOTHING
    if not (is_known(quantity) and isfinite(price)):
        return UNKNOWN
    return Amount(quantity * price, complete)


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
            free = free.plus(_hourly_energy(hour.use.free_energy, per_kwh, prices, complete=True))
    return Priced(users, free)


def _charge(account: Account, per_hour: float, per_kwh: Sequence[tuple[float, float]], prices: Prices) -> Charge:
    judged, metered = account.judged > 0, account.metered > 0
    idle = amount(account.idle_held / HOUR, per_hour, complete=account.judged >= WHOLE * account.held)
    return _hourly_energy(
        account.energy if metered else NAN, per_kwh, prices, complete=account.metered >= WHOLE * account.held
    )._replace(held=amount(account.held / HOUR, per_hour), idle_held=idle if judged else UNKNOWN)


def _hourly_energy(joules: float, per_kwh: Sequence[tuple[float, float]], prices: Prices, *, complete: bool) -> Charge:
    """The charge of energy alone, by the prices of an hour and their parts of it.

    An account does not know when in its hour energy was used: with two prices it is about as much.
    """
    kwh = joules / JOULES_PER_KWH * prices.pue
    money = sum((amount(kwh * part, price, complete=complete) for price, part in per_kwh), Amount())
    is_about = len({price for price, _ in per_kwh}) > 1 and kwh > 0
    return Charge(energy=money._replace(about=is_about), co2=amount(kwh, prices.co2, complete=complete))


class Measured(NamedTuple):
    """The measurements that a charge needs; NaN is not known."""

    energy: float
    """Joules, of all devices."""
    idle_share: float
    sampled: float
    """Seconds for which they were measured."""


def price_run(
    total: EpochSummary, epochs: Sequence[EpochSummary], devices: Sequence[DeviceRow], prices: Prices,
    hour_of_day: HourOfDay = local_hour,
) -> Charge:  # fmt: skip
    """Return what a run costs: each of its GPUs from its begin to its end, and the energy of all.

    Energy of an epoch is spread evenly over its time, so that a tariff that changes within one holds for its part;
    what was used outside of them is spread over the whole run.
    """
    charge = price_stretch(total, devices, prices, hour_of_day)
    parts = [epoch for epoch in epochs if is_known(epoch.ended) and epoch.value("energy") >= 0]
    rest = total.value("energy") - sum(epoch.value("energy") for epoch in parts)
    if not parts or not rest >= 0:
        return charge
    between = _energy(rest, total.begun, total.seconds, prices, hour_of_day)
    of_epochs = [_energy(one.value("energy"), one.begun, one.seconds, prices, hour_of_day) for one in parts]
    priced = together([between, *of_epochs])
    complete = charge.energy.complete
    return charge._replace(
        energy=priced.energy._replace(complete=complete and priced.energy.complete),
        co2=priced.co2._replace(complete=complete and priced.co2.complete),
    )


def price_record(record: Record, now: float, prices: Prices, hour_of_day: HourOfDay = local_hour) -> Charge:
    """Return what a run of the ledger costs, up to `now` (s since 1970) while it goes on."""
    epochs = aggregate.epochs(record)
    return price_run(aggregate.whole(record, epochs, now), epochs, record.devices, prices, hour_of_day)


def price_stretch(
    stretch: EpochSummary, devices: Sequence[DeviceRow], prices: Prices, hour_of_day: HourOfDay = local_hour
) -> Charge:
    """Return what an epoch costs, its energy spread evenly over it."""
    measured = Measured(*(stretch.value(name) for name in Measured._fields))
    return price_devices(stretch.begun, stretch.seconds, measured, devices, prices, hour_of_day)


def price_devices(
    begun: float, seconds: float, measured: Measured, devices: Sequence[DeviceRow], prices: Prices,
    hour_of_day: HourOfDay = local_hour,
) -> Charge:  # fmt: skip
    """Return what some devices cost for a time in which so much of them was measured."""
    complete = measured.sampled >= WHOLE * seconds
    charge = _energy(measured.energy, begun, seconds, prices, hour_of_day, complete=complete)
    idle = measured.idle_share
    held = [amount(seconds / HOUR, prices.of_model(device.name)) for device in devices]
    unused = [Amount(one.value * idle, complete) if is_known(one.value) and is_known(idle) else UNKNOWN for one in held]
    return charge._replace(held=sum(held, Amount()), idle_held=sum(unused, Amount()))


def _energy(
    joules: float, begun: float, seconds: float, prices: Prices, hour_of_day: HourOfDay, *, complete: bool = True
) -> Charge:
    """The charge of energy that was used evenly over a time."""
    kwh = joules / JOULES_PER_KWH * prices.pue
    co2 = amount(kwh, prices.co2, complete=complete)
    if len(set(prices.kwh)) == 1 or not seconds > 0:
        return Charge(energy=amount(kwh, prices.kwh[hour_of_day(begun)] if is_known(begun) else NAN, complete=complete),
                      co2=co2)  # fmt: skip
    parts = [
        amount(kwh * part / seconds, prices.kwh[hour], complete=complete)
        for hour, part in hours_of_day(begun, seconds, hour_of_day)
    ]
    return Charge(energy=sum(parts, Amount()), co2=co2)
