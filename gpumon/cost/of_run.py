"""Charges of a run and of its epochs, from the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gpumon.common.config import Prices
from gpumon.common.numbers import NAN, is_known
from gpumon.cost.charge import JOULES_PER_KWH, UNKNOWN, WHOLE, Amount, Charge, amount, together
from gpumon.cost.hours import HourOfDay, hours_of_day, local_hour
from gpumon.storage.history.tiers import HOUR
from gpumon.storage.ledger import aggregate
from gpumon.storage.ledger.records import DeviceRow, Record
from gpumon.storage.ledger.summary import EpochSummary


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
