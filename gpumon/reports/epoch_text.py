"""Cells of epochs as text, for every view: also of phases, rows of steps, the time between epochs, and whole runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gpumon.common.numbers import is_known
from gpumon.diagnosis.past_findings import is_partly_sampled
from gpumon.model.columns import BY_KEY, Column
from gpumon.model.units import ABOUT, AT_LEAST, AT_MOST, MISSING, percent
from gpumon.storage.ledger.summary import EpochSummary

_SETTLES = frozenset(("utilization_mean", "idle_share"))
"""Columns whose values change until the last samples of the driver have come."""


def number(key: str, stretch: EpochSummary) -> float:
    """The number in a cell: where a value is unknown, the bound that is known of it."""
    if key == "utilization_range":
        return stretch.value("utilization_p95")
    if key == "energy" and stretch.lacks_energy:
        return stretch.value("energy_least")
    if key == "framework_peak" and not is_known(stretch.framework_peak):
        return stretch.value("run_allocated_peak")
    return stretch.number(key)


def sign(key: str, stretch: EpochSummary) -> str:
    """The sign before a number: `≥` and `≤` of bounds, `≈` of what may still change; empty of an exact one."""
    if key == "energy":
        return AT_LEAST if stretch.lacks_energy else ""
    if key == "framework_peak":
        peak = stretch.live_peak
        if is_known(peak.value) and not peak.reached:
            return AT_MOST
        return AT_LEAST if stretch.is_open or not is_known(peak.value) else ""
    if key == "memory_used_peak":
        return AT_LEAST if stretch.is_open or is_partly_sampled(stretch) else ""
    return ABOUT if key in _SETTLES and stretch.is_settling else ""


def largest(
    columns: Iterable[Column], rows: Sequence[EpochSummary], beside: Sequence[EpochSummary] = ()
) -> Mapping[str, float]:
    """The largest known number of each of `columns`, by its key: of `rows`, else of what stands `beside` them.

    A column that is unknown in all of them has none.
    """
    found: dict[str, float] = {}
    for column in columns:
        for stretches in (rows, beside):
            numbers = [value for stretch in stretches if is_known(value := number(column.key, stretch))]
            if numbers:
                found[column.key] = max(numbers)
                break
    return found


def cell(column: Column, stretch: EpochSummary, largest: Mapping[str, float], *, is_narrow: bool = True) -> str:
    """The text of a cell, by the `largest` number of each column."""
    if column.key == "utilization_range":
        low, high = stretch.value("utilization_p5"), stretch.value("utilization_p95")
        return f"{percent(low)[:-1]}–{percent(high)}" if is_known(low) and is_known(high) else MISSING
    value = number(column.key, stretch)
    text = column.write(value, largest.get(column.key, value), is_narrow=is_narrow)
    return text if text == MISSING else f"{sign(column.key, stretch)}{text}"


def peak(key: str, stretch: EpochSummary) -> str:
    """A peak of memory by itself: `31.0 GiB`, `≤31.0 GiB`, `≥31.0 GiB`."""
    return cell(BY_KEY[key], stretch, {})
