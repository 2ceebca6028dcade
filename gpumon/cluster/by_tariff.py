"""Energy of users by the tariff of its hour, fitted to the energy that their row shows.

An engine tells power in steps of minutes, so that what it comes to lags behind the counters of energy, and an engine
that takes the rate of a few seconds for that of all five minutes counts more than there was.
"""

from __future__ import annotations

from collections.abc import Mapping

from gpumon.cost.charge import UNKNOWN, WHOLE, Amount

LATELY = 600.0
"""Seconds in which energy may be that steps do not have yet."""


def fitted(by_price: Mapping[float, float], lately: Mapping[float, float], total: float, *, all_priced: bool) -> Amount:
    """Price the energy of a row (kWh), of which steps have so much at each price.

    `lately`: energy of the last minutes, by each price that held in them; `all_priced`: whether every hour has a price
    and every price was answered. Where it is not known at which price some of it was used, it is at least so much.
    """
    found = sum(by_price.values())
    value = sum(price * kwh for price, kwh in by_price.items())
    if total <= 0:
        return Amount(0.0) if all_priced else UNKNOWN
    if found > total / WHOLE:
        value = total * min(price for price, kwh in by_price.items() if kwh > 0)
    elif found > total:
        value *= total / found
    if not all_priced:
        return Amount(value, complete=False) if found > 0 else UNKNOWN
    prices = {price for price, kwh in by_price.items() if kwh > 0} | set(lately)
    rest, recent = total - found, max(lately.values(), default=0.0)
    if WHOLE * total <= found <= total / WHOLE:
        return Amount(value if rest < 0 else value * total / found)
    if abs(rest) <= recent / WHOLE and len(prices) == 1:
        return Amount(total * prices.pop())
    if rest < 0:
        return Amount(total * min((*by_price, *lately)), complete=False)
    if lately and rest <= recent / WHOLE:
        return Amount(value + rest * min(lately), complete=len(lately) == 1)
    return Amount(value + rest * min((*by_price, *lately)), complete=False)
