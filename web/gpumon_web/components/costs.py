"""Columns of charges, the same in every table: held time, idle held time, energy and CO₂, each by itself."""

from __future__ import annotations

from gpumon.common.config import Prices
from gpumon.common.numbers import NAN, exact, is_known
from gpumon.cost import NO_CHARGE, Charge
from gpumon.model import columns, units
from gpumon.reports.charges import text
from gpumon_web.components.page import Cells, described

_CELLS = {
    "held": ("held_cost", "held_money", "has_held_cost"), "idle_held": ("idle_cost", "idle_money", "has_held_cost"),
    "energy": ("energy_cost", "energy_money", "has_energy_cost"), "co2": ("co2", "grams", "has_co2"),
}  # fmt: skip
"""The cell of each, the number by which it is sorted, and the value without which it is not shown."""
COSTS = tuple(
    described(column, key=cell, sorts_by=number, needs=needs, css="c-less" if column.key == "co2" else "")._replace(
        is_number=True
    )
    for column, (cell, number, needs) in zip(columns.COSTS, _CELLS.values(), strict=True)
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
    found: Cells = {}
    for name, (cell, number, _) in _CELLS.items():
        amount = getattr(one, name)
        found[cell] = text(amount, name, prices) if prices else units.MISSING
        found[number] = exact(amount.value if amount.is_meaningful else NAN, _DIGITS)
    return found
