"""Costs of users, runs and epochs as text, JSON and CSV."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from gpumon.common.config import Prices
from gpumon.common.numbers import is_known
from gpumon.cost import Amount, Charge
from gpumon.model import units
from gpumon.model.columns import COSTS, Column
from gpumon.reports.csv import Cell
from gpumon.reports.text_table import TextColumn, text_column

FIELDS = ("currency", "held_cost", "idle_held_cost", "energy_cost", "co2_grams")
"""CSV columns. The cell of an unknown amount is empty."""


def columns(prices: Prices) -> tuple[TextColumn, ...]:
    """Return a `TextColumn` for each amount, such as energy cost, for which a price is configured."""
    return tuple(replace(text_column(column), right=True) for column in priced(prices))


def priced(prices: Prices) -> Sequence[Column]:
    """Return a column for each amount for which a price is configured.

    Its key is the name of the amount in `Charge`.
    """
    has_price = {
        "held": bool(prices.gpu_hour), "idle_held": bool(prices.gpu_hour), "energy": prices.has_energy,
        "co2": is_known(prices.co2),
    }  # fmt: skip
    return [column for column in COSTS if has_price[column.key]]


def cells(charge: Charge, prices: Prices) -> tuple[str, ...]:
    """Return the text cells of a charge, one for each column returned by `columns`."""
    return tuple(text(getattr(charge, column.key), column.key, prices) for column in priced(prices))


def text(amount: Amount, name: str, prices: Prices) -> str:
    """Return an amount of a charge as text: `12.30 EUR`, `about 12.30 EUR`, or `≥ 4.1 kg` for a lower bound.

    `partly 3.00 EUR` is an estimate for only part of the usage. The cost of the whole usage may be higher or lower.
    `name`: name of the amount in `Charge`.
    """
    if not amount.is_meaningful:
        return units.MISSING
    value = units.grams(amount.value) if name == "co2" else units.money(amount.value, prices.currency)
    if amount.about:
        return f"{'about' if amount.complete else 'partly'} {value}"
    return value if amount.complete else f"≥ {value}"


def explained(charges: Iterable[Charge]) -> str:
    """Return a sentence that explains "partly", or an empty string if none of the charges contains it."""
    amounts = (amount for charge in charges for amount in charge)
    has_partly = any(amount.about and not amount.complete and amount.is_meaningful for amount in amounts)
    return '"partly": an estimate for part of the usage. The rest has no price.' if has_partly else ""


def sentence(charge: Charge, prices: Prices) -> str:
    """Return a charge as a sentence; empty if the charge has no amounts."""
    parts = []
    if charge.held.is_meaningful:
        idle = (
            f", of which {text(charge.idle_held, 'idle_held', prices)} idle" if charge.idle_held.is_meaningful else ""
        )
        parts.append(f"{text(charge.held, 'held', prices)} for GPU time{idle}")
    if charge.energy.is_meaningful:
        parts.append(f"{text(charge.energy, 'energy', prices)} for energy")
    if charge.co2.is_meaningful:
        parts.append(f"{text(charge.co2, 'co2', prices)} of CO₂")
    return f"Cost: {'; '.join(parts)}." if parts else ""


def as_json(charge: Charge, prices: Prices) -> dict[str, Any]:
    """Return a charge as JSON.

    Each amount has the keys `complete` (false for a lower bound) and `about` (true for an estimate). A missing amount
    is null.
    """
    return {"currency": prices.currency, **{name: _json(amount) for name, amount in charge._asdict().items()}}


def csv_cells(charge: Charge, prices: Prices) -> Sequence[Cell]:
    """Return the cells of a charge for the CSV columns `FIELDS`."""
    return (prices.currency, *(round(amount.value, 6) if amount.is_meaningful else None for amount in charge))


def _json(amount: Amount) -> dict[str, Any] | None:
    if not amount.is_meaningful:
        return None
    return {"value": amount.value, "complete": amount.complete, "about": amount.about}
