"""Charges as text, JSON and CSV, the same for users, runs and epochs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gpumon.common.config import Prices
from gpumon.common.numbers import is_known
from gpumon.cost import Amount, Charge
from gpumon.model import units
from gpumon.model.columns import COSTS, Column
from gpumon.reports.csv import Cell
from gpumon.reports.text_table import TextColumn, text_column

FIELDS = ("currency", "held_cost", "idle_held_cost", "energy_cost", "co2_grams")
"""Cells of a CSV row; those of an amount that is not known are empty."""


def columns(prices: Prices) -> tuple[TextColumn, ...]:
    """Columns of what has a price."""
    return tuple(text_column(column)._replace(right=True) for column in priced(prices))


def priced(prices: Prices) -> Sequence[Column]:
    """Return the columns of what has a price; their keys are the names of amounts of a charge."""
    has = {
        "held": bool(prices.gpu_hour), "idle_held": bool(prices.gpu_hour), "energy": prices.has_energy,
        "co2": is_known(prices.co2),
    }  # fmt: skip
    return [column for column in COSTS if has[column.key]]


def cells(charge: Charge, prices: Prices) -> tuple[str, ...]:
    """Return the texts below these columns."""
    return tuple(text(getattr(charge, column.key), column.key, prices) for column in priced(prices))


def text(amount: Amount, name: str, prices: Prices) -> str:
    """An amount of a charge by its name: `12.30 EUR`, `about 12.30 EUR`, `≥ 4.1 kg` where more may have been used.

    `partly 3.00 EUR`: about so much, and more may have been used, so that it is no bound.
    """
    if not amount.is_meaningful:
        return units.MISSING
    said = units.grams(amount.value) if name == "co2" else units.money(amount.value, prices.currency)
    if amount.about:
        return f"{'about' if amount.complete else 'partly'} {said}"
    return said if amount.complete else f"≥ {said}"


def explained(found: Iterable[Charge]) -> str:
    """A sentence on a word of `text` that needs one, where any of these has it; else empty."""
    partly = any(one.about and not one.complete and one.is_meaningful for charge in found for one in charge)
    return '"partly": about so much for a part of the use; the rest of it has no price that is known.' if partly else ""


def sentence(charge: Charge, prices: Prices) -> str:
    """A charge in a sentence; empty where nothing of it is known."""
    parts = []
    if charge.held.is_meaningful:
        idle = (
            f", of which {text(charge.idle_held, 'idle_held', prices)} idle" if charge.idle_held.is_meaningful else ""
        )
        parts.append(f"{text(charge.held, 'held', prices)} for the time of its GPUs{idle}")
    if charge.energy.is_meaningful:
        parts.append(f"{text(charge.energy, 'energy', prices)} for their energy")
    if charge.co2.is_meaningful:
        parts.append(f"{text(charge.co2, 'co2', prices)} of CO₂")
    return f"Cost: {'; '.join(parts)}." if parts else ""


def as_json(charge: Charge, prices: Prices) -> dict[str, Any]:
    """Return a charge as JSON: each amount with whether it is all, and whether it is an estimate; null is not known."""
    return {"currency": prices.currency, **{name: _json(one) for name, one in charge._asdict().items()}}


def csv_cells(charge: Charge, prices: Prices) -> Sequence[Cell]:
    """Return the cells of `FIELDS`."""
    return (prices.currency, *(round(one.value, 6) if one.is_meaningful else None for one in charge))


def _json(amount: Amount) -> dict[str, Any] | None:
    if not amount.is_meaningful:
        return None
    return {"value": amount.value, "complete": amount.complete, "about": amount.about}
