"""Energy of users by the tariff of its hour, fitted to the energy that their row shows.

An engine tells power in steps of minutes, so that what it comes to lags behind the counters of energy, and an engine
that takes the rate of a few seconds for that of all five minutes counts more than there was.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean

from gpumon.cost.charge import UNKNOWN, WHOLE, Amount

LATELY = 600.0
"""Seconds in which energy may be that steps do not have yet."""


def fitted(by_price: Mapping[float, float], lately: Mapping[float, float], total: float, *, all_priced: bool) -> Amount:
    """Price the energy of a row (kWh), of which steps have so much at each price.

    `lately`: energy of the last minutes, by each price that held in them; `all_priced`: whether every hour has a price
    and every price was answered. A step may hold energy of the tariff beside it, so that a sum of steps is no bound:
    it is told as "about". Where it is not known at which price much of it was used, all of it was at the lowest or at
    a higher one.
    """
    found = sum(by_price.values())
    value = sum(price * kwh for price, kwh in by_price.items())
    if total <= 0:
        return Amount(0.0) if all_priced else UNKNOWN
    if not all_priced:  # some of it may have been used while nothing had a price
        return Amount(value * min(1.0, total / found), complete=False, about=True) if found > 0 else UNKNOWN
    if WHOLE * total <= found <= total / WHOLE:
        return Amount(value * total / found)
    prices = {price for price, kwh in by_price.items() if kwh > 0} | set(lately)
    rest, recent = total - found, max(lately.values(), default=0.0)
    if abs(rest) <= recent / WHOLE and len(prices) == 1:
        return Amount(total * prices.pop())
    if lately and 0 < rest <= recent / WHOLE:
        return Amount(value + rest * fmean(lately), about=True)
    return Amount(total * min((*by_price, *lately)), complete=False)
