"""Caps on usage as text and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from gpumon.caps import CapState
from gpumon.common.config import Prices
from gpumon.common.numbers import is_known
from gpumon.model import units
from gpumon.reports.run_json import nullable
from gpumon.reports.text_table import TextColumn, draw
from gpumon.reports.usage import energy_text, hours_text
from gpumon.storage.history.tiers import HOUR
from gpumon.storage.usage.period_totals import Zone

SCHEMA = 1
TITLES = {"hours": "GPU time", "idle-hours": "idle GPU time", "kwh": "energy", "cost": "cost"}
"""Name of each measure in text for people."""
_THIS = {"day": "today", "week": "this week", "month": "this month"}
_COLUMNS = (
    TextColumn("USER OR GROUP", 90, right=False, max_width=32),
    TextColumn("CAP ON", 60, right=False),
    TextColumn("USED", 90),
    TextColumn("LIMIT", 90),
    TextColumn("SHARE", 80),
    TextColumn("", 70, right=False),
)


def lines(states: Sequence[CapState], prices: Prices | None = None, width: int = 0) -> Iterator[str]:
    """Yield a table of the caps, those that are used most first."""
    if states:
        yield f"from {units.moment(states[0].begin)} to {units.moment(states[0].end)}"
    rows = [
        (
            f"{state.holder} (group)" if state.is_group else state.holder, TITLES[state.measure],
            used_text(state, prices), amount_text(state.measure, state.limit, prices), share_text(state),
            prospect(state) or _why_unknown(state, prices),
        )
        for state in states
    ]  # fmt: skip
    yield from draw(_COLUMNS, rows, width)


def amount_text(measure: str, value: float, prices: Prices | None) -> str:
    """Format an amount of a measure in base units."""
    if not is_known(value):
        return units.MISSING
    if measure == "cost":
        return units.money(value, prices.currency if prices else "")
    return energy_text(value) if measure == "kwh" else hours_text(value)


def used_text(state: CapState, prices: Prices | None) -> str:
    """Format what is used of a cap. It begins with `≥` if not all of the time was measured."""
    text = amount_text(state.measure, state.used.value, prices)
    return text if state.used.complete or text == units.MISSING else f"≥ {text}"


def share_text(state: CapState) -> str:
    """Format the used share of a cap."""
    return units.share(state.share) if is_known(state.share) else units.MISSING


def prospect(state: CapState, zone: Zone = None) -> str:
    """Return text that says when the cap was or will be reached at the present rate; empty if it will not be.

    `zone`: time zone of the viewer; None for the zone of this process.
    """
    if is_known(state.reached):
        return f"reached {_day(state.reached, zone)}–{datetime.fromtimestamp(state.reached + HOUR, zone):%H:%M}"
    return f"at this rate reached {_day(state.forecast, zone)}" if is_known(state.forecast) else ""


def _why_unknown(state: CapState, prices: Prices | None) -> str:
    return "unknown without prices: see [cost] in the settings" if state.measure == "cost" and prices is None else ""


def _day(time: float, zone: Zone) -> str:
    """Format a day and a time of day in the near past or future, such as `Thu 4 Dec 15:00`."""
    moment = datetime.fromtimestamp(time, zone)
    return f"{moment:%a} {moment.day} {moment:%b %H:%M}"


def usage_text(state: CapState, prices: Prices | None) -> str:
    """Return how much of a cap is used, such as `87.0 h of 100.0 h GPU time this month`."""
    used, limit = used_text(state, prices), amount_text(state.measure, state.limit, prices)
    return f"{used} of {limit} {TITLES[state.measure]} {_THIS[state.period]}"


def as_json(states: Sequence[CapState], prices: Prices | None) -> dict[str, Any]:
    """Return the caps as JSON, in seconds, joules and the configured currency. Unknown values are null."""
    return {
        "schema": SCHEMA,
        "currency": prices.currency if prices else None,
        "caps": [
            {
                "user": None if state.is_group else state.holder, "group": state.holder if state.is_group else None,
                "measure": state.measure.replace("-", "_"),
                "period": state.period, "limit": state.limit, "used": nullable(state.used.value),
                "complete": state.used.complete, "begin": state.begin, "end": state.end,
                "reached": nullable(state.reached), "forecast": nullable(state.forecast),
            }
            for state in states
        ],
    }  # fmt: skip
