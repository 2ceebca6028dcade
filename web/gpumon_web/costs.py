"""Columns of charges, the same in every table: held time, idle held time, energy and CO₂, each by itself."""

from __future__ import annotations

from gpumon.common.config import Prices
from gpumon.common.numbers import NAN, exact, is_known
from gpumon.cost import NO_CHARGE, Charge
from gpumon.model import units
from gpumon.reports.charges import text
from gpumon_web.page import Cells, Column

COSTS = (
    Column(
        "held_cost",
        "Cost",
        is_number=True,
        sorts_by="held_money",
        needs="has_held_cost",
        help="Of the time of the GPUs that were held",
    ),
    Column(
        "idle_cost",
        "Idle cost",
        is_number=True,
        sorts_by="idle_money",
        needs="has_held_cost",
        help="The part of it in which they did nothing",
    ),
    Column(
        "energy_cost",
        "Power cost",
        is_number=True,
        sorts_by="energy_money",
        needs="has_energy_cost",
        help="Of the energy, by itself: it is never added to the time",
    ),
    Column("co2", "CO₂", is_number=True, sorts_by="grams", needs="has_co2", css="c-less"),
)
"""Columns of what has a price in the settings."""

_DIGITS = 4
"""Of a cost in a file, behind the point: a hundredth of a cent."""


def has_costs(prices: Prices | None) -> Cells:
    """Columns of these that there are."""
    return {
        "has_held_cost": bool(prices and prices.gpu_hour),
        "has_energy_cost": bool(prices and prices.has_energy),
        "has_co2": bool(prices and is_known(prices.co2)),
    }


def cost_cells(charge: Charge | None, prices: Prices | None) -> Cells:
    """The cells of these columns."""
    one = charge or NO_CHARGE
    named = (("held_cost", "held_money", "held"), ("idle_cost", "idle_money", "idle_held"),
             ("energy_cost", "energy_money", "energy"), ("co2", "grams", "co2"))  # fmt: skip
    found: Cells = {}
    for cell, number, name in named:
        amount = getattr(one, name)
        found[cell] = text(amount, name, prices) if prices else units.MISSING
        found[number] = exact(amount.value if amount.is_meaningful else NAN, _DIGITS)
    return found
