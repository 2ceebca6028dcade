"""The cost of GPU usage: held time, idle held time, energy and CO2. These are never added to each other.

Held time is time in which others could not use a GPU. Idle held time is the part of the held time in which no kernel
ran. The price of a rented GPU includes its energy, while an owned GPU costs only its energy. Adding both prices would
count energy twice.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
    from gpumon.storage.usage.query import HourUse, StoredDevice

JOULES_PER_KWH = 3.6e6
WHOLE = 0.99
"""A period counts as completely measured if at least this share of it was measured."""


class Amount(NamedTuple):
    """An amount of money or grams of CO2."""

    value: float = NAN
    """The part of the amount that could be computed; NaN if no part could be."""
    complete: bool = True
    """Whether `value` is the whole amount. If false, the amount is at least `value`."""
    about: bool = False
    """Whether `value` is approximate. It may then be slightly too high or too low."""

    @property
    def is_meaningful(self) -> bool:
        """Whether the amount should be shown. "At least 0" has no meaning."""
        return is_known(self.value) and (self.complete or self.value != 0)

    def __add__(self, other: object) -> Amount:
        """Add the values of both amounts. NaN is ignored."""
        if not isinstance(other, Amount):
            return NotImplemented
        known = [amount for amount in (self, other) if is_known(amount.value)]
        value = sum(amount.value for amount in known) if known else NAN
        return Amount(value, self.complete and other.complete, any(amount.about for amount in known))


NOTHING = Amount()
UNKNOWN = Amount(NAN, complete=False)


class Charge(NamedTuple):
    """The cost of some usage."""

    held: Amount = NOTHING
    idle_held: Amount = NOTHING
    energy: Amount = NOTHING
    co2: Amount = NOTHING
    """CO2 emissions in grams."""

    def plus(self, other: Charge) -> Charge:
        """Return the sum of this and another charge."""
        return Charge(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


NO_CHARGE = Charge(UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN)
"""The charge for usage that was not measured."""


def sum_charges(charges: Iterable[Charge]) -> Charge:
    """Return the sum of several charges."""
    total = Charge()
    for charge in charges:
        total = total.plus(charge)
    return total


def amount(quantity: float, price: float, *, complete: bool = True) -> Amount:
    """Return the cost of `quantity` at `price` per unit. A quantity of 0 costs 0 at any price except NaN.

    `complete`: whether the quantity was measured completely.
    """
    if quantity == 0 and complete:
        return Amount(0.0) if isfinite(price) else NOTHING
    if not (is_known(quantity) and isfinite(price)):
        return UNKNOWN
    return Amount(quantity * price, complete)


_ZONE_STEP = 300.0
"""The UTC offset of every time zone is a multiple of this number of seconds."""
_INSTANT = 0.001
"""The end of an hour is checked at a time this many seconds before it."""


def local_hour(moment: float) -> int:
    """Return the hour of the day (0 to 23) in the time zone of this machine, which uses the electricity."""
    return time.localtime(moment).tm_hour


def hours_of_day(begin: float, seconds: float) -> Iterator[tuple[int, float]]:
    """Yield the hours of the day in a period, each with the number of seconds in the period.

    The UTC offset of some time zones is not a whole number of hours. So the start of an hour is searched in steps of
    five minutes.
    """
    moment, end = begin, begin + seconds
    while moment < end:
        next_hour, hour = min(end, (floor(moment / HOUR) + 1) * HOUR), local_hour(moment)
        if local_hour(max(moment, next_hour - _INSTANT)) != hour:
            border = (floor(moment / _ZONE_STEP) + 1) * _ZONE_STEP
            while border < next_hour and local_hour(border) == hour:
                border += _ZONE_STEP
            next_hour = min(next_hour, border)
        yield hour, next_hour - moment
        moment = next_hour


@dataclass(frozen=True, slots=True)
class HourlyCharges:
    """Charges for the usage in several hours."""

    users: Mapping[str, Charge]
    """Charges by user. The empty name stands for unknown users."""
    free: Charge
    """Charge for GPUs that no user held. It has only energy and CO2."""


def price_hours(hours: Iterable[HourUse], devices: Sequence[StoredDevice], prices: Prices) -> HourlyCharges:
    """Return the cost of each user's usage in these hours.

    `devices`: the devices. Their models determine the prices.
    """
    models = {device.uuid: device.name for device in devices}
    users: dict[str, Charge] = {}
    free = Charge()
    for hour in hours:
        per_hour = prices.of_model(models.get(hour.device, ""))
        per_kwh = [(prices.kwh[number], part / HOUR) for number, part in hours_of_day(hour.begin, HOUR)]
        for account in hour.accounts:
            charge = _account_charge(account, per_hour, per_kwh, prices)
            users[account.user] = users.get(account.user, Charge()).plus(charge)
        if hour.use.free > 0:
            free = free.plus(_hourly_energy(hour.use.free_energy, per_kwh, prices, complete=True))
    return HourlyCharges(users, free)


def _account_charge(
    account: Account, per_hour: float, per_kwh: Sequence[tuple[float, float]], prices: Prices
) -> Charge:
    judged, metered = account.judged > 0, account.metered > 0
    idle = amount(account.idle_held / HOUR, per_hour, complete=account.judged >= WHOLE * account.held)
    return _hourly_energy(
        account.energy if metered else NAN, per_kwh, prices, complete=account.metered >= WHOLE * account.held
    )._replace(held=amount(account.held / HOUR, per_hour), idle_held=idle if judged else UNKNOWN)


def _hourly_energy(joules: float, per_kwh: Sequence[tuple[float, float]], prices: Prices, *, complete: bool) -> Charge:
    """Return the charge for energy in an hour. `per_kwh`: the prices in this hour, each with its share of the hour.

    An account does not record at which time in the hour energy was used. So the amount is approximate if there are two
    prices.
    """
    kwh = joules / JOULES_PER_KWH * prices.pue
    money = sum((amount(kwh * part, price, complete=complete) for price, part in per_kwh), Amount())
    is_about = len({price for price, _ in per_kwh}) > 1 and kwh > 0
    return Charge(energy=money._replace(about=is_about), co2=amount(kwh, prices.co2, complete=complete))


class Measured(NamedTuple):
    """The measurements from which a charge is computed; NaN if missing."""

    energy: float
    """Joules of all devices together."""
    idle_share: float
    sampled: float
    """Number of seconds that were sampled."""


def price_run(
    total: EpochSummary, epochs: Sequence[EpochSummary], devices: Sequence[DeviceRow], prices: Prices
) -> Charge:
    """Return the cost of a run, which is the cost of its GPUs for the whole run and the cost of their energy.

    `total`: summary of the whole run. The energy of an epoch is assumed to be used evenly over the epoch. If the price
    changes during the epoch, each price applies in proportion. Energy outside epochs is assumed to be used evenly over
    the whole run.
    """
    charge = price_summary(total, devices, prices)
    ended = [epoch for epoch in epochs if is_known(epoch.ended) and epoch.value("energy") >= 0]
    rest = total.value("energy") - sum(epoch.value("energy") for epoch in ended)
    if not ended or not rest >= 0:
        return charge
    between = _energy(rest, total.begun, total.seconds, prices)
    within = [_energy(epoch.value("energy"), epoch.begun, epoch.seconds, prices) for epoch in ended]
    energy = sum_charges([between, *within])
    complete = charge.energy.complete
    return charge._replace(
        energy=energy.energy._replace(complete=complete and energy.energy.complete),
        co2=energy.co2._replace(complete=complete and energy.co2.complete),
    )


def price_record(record: Record, prices: Prices) -> Charge:
    """Return the cost of a run in the ledger. For a running run, this is the cost so far."""
    epochs = aggregate.epoch_summaries(record)
    return price_run(aggregate.run_total(record, epochs), epochs, record.devices, prices)


def price_summary(summary: EpochSummary, devices: Sequence[DeviceRow], prices: Prices) -> Charge:
    """Return the cost of an epoch or another summarized period. Energy is assumed to be used evenly over the period."""
    measured = Measured(*(summary.value(name) for name in Measured._fields))
    return price_devices(summary.begun, summary.seconds, measured, devices, prices)


def price_devices(
    begun: float, seconds: float, measured: Measured, devices: Sequence[DeviceRow], prices: Prices
) -> Charge:
    """Return the cost of using `devices` for a period.

    `begun`: start of the period in seconds since 1970. `seconds`: length of the period. `measured`: measurements in
    this period.
    """
    complete = measured.sampled >= WHOLE * seconds
    charge = _energy(measured.energy, begun, seconds, prices, complete=complete)
    idle = measured.idle_share
    held = [amount(seconds / HOUR, prices.of_model(device.name)) for device in devices]
    unused = [
        Amount(amount.value * idle, complete) if is_known(amount.value) and is_known(idle) else UNKNOWN
        for amount in held
    ]
    return charge._replace(held=sum(held, Amount()), idle_held=sum(unused, Amount()))


def _energy(joules: float, begun: float, seconds: float, prices: Prices, *, complete: bool = True) -> Charge:
    """Return the charge for energy that was used evenly over a period.

    `joules`: the energy. `begun`: start of the period in seconds since 1970. `seconds`: length of the period.
    """
    kwh = joules / JOULES_PER_KWH * prices.pue
    co2 = amount(kwh, prices.co2, complete=complete)
    if len(set(prices.kwh)) == 1 or not seconds > 0:
        return Charge(energy=amount(kwh, prices.kwh[local_hour(begun)] if is_known(begun) else NAN, complete=complete),
                      co2=co2)  # fmt: skip
    parts = [
        amount(kwh * part / seconds, prices.kwh[hour], complete=complete) for hour, part in hours_of_day(begun, seconds)
    ]
    return Charge(energy=sum(parts, Amount()), co2=co2)
