"""A charge: the cost of some use of GPUs, as numbers that are never added to each other.

Held time is what others could not use; idle held time is the part of it in which nothing was computed. Energy is
already in the price of rented GPUs, and is what one's own GPUs cost: whoever adds the two counts it twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite
from typing import NamedTuple

from gpumon.common.numbers import NAN, is_known

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
