"""Cost columns, the same in every table: held time, idle held time, energy and CO₂."""

from __future__ import annotations

from gpumon.common.config import Prices
from gpumon.common.numbers import NAN, exact, is_known
from gpumon.cost import NO_CHARGE, Charge
from gpumon.model import columns, units
from gpumon.reports.charges import text
from gpumon_web.components.page import Cells, table_column

_CELLS = {
    "held": ("held_cost", "held_money", "has_held_cost"), "idle_held": ("idle_cost", "idle_money", "has_held_cost"),
    "energy": ("energy_cost", "energy_money", "has_energy_cost"), "co2": ("co2", "grams", "has_co2"),
}  # fmt: skip
"""For each cost: its cell, the cell with the number to sort by, and the value that must be set to show it."""
COSTS = tuple(
    table_column(column, key=cell, sorts_by=number, needs=needs, css="c-less" if column.key == "co2" else "")._replace(
        is_number=True
    )
    for column, (cell, number, needs) in zip(columns.COSTS, _CELLS.values(), strict=True)
)
"""The cost columns; each is only shown if the settings have its price."""

_DIGITS = 4
"""Decimal places of a cost in a CSV file: a hundredth of a cent."""


def shown_costs(prices: Prices | None) -> Cells:
    """Return which cost columns are shown."""
    return {
        "has_held_cost": bool(prices and prices.gpu_hour),
        "has_energy_cost": bool(prices and prices.has_energy),
        "has_co2": bool(prices and is_known(prices.co2)),
    }


def cost_cells(charge: Charge | None, prices: Prices | None) -> Cells:
    """Return the cells of the cost columns."""
    cost = charge or NO_CHARGE
    cells: Cells = {}
    for name, (cell, number, _) in _CELLS.items():
        amount = getattr(cost, name)
        cells[cell] = text(amount, name, prices) if prices else units.MISSING
        cells[number] = exact(amount.value if amount.is_meaningful else NAN, _DIGITS)
    return cells
