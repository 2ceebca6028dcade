"""Table cells for an epoch, which are the same in every view. Also used for phases, rows of steps and whole runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gpumon.common.numbers import is_known
from gpumon.diagnosis.past_findings import is_partly_sampled, lacks_samples
from gpumon.model.columns import BY_KEY, Column
from gpumon.model.units import ABOUT, AT_LEAST, AT_MOST, MISSING, percent
from gpumon.storage.ledger.summary import EpochSummary


def number(key: str, stretch: EpochSummary) -> float:
    """Return the number in a cell: the value if there is one, else a bound of it.

    `key`: key of the column. `stretch`: the epoch, phase or run. `sign` says whether the number is a bound.
    """
    if key == "utilization_range":
        return stretch.value("utilization_p95")
    if key == "energy" and stretch.lacks_energy:
        return stretch.value("energy_least")
    if key == "framework_peak" and not is_known(stretch.framework_peak):
        return stretch.value("run_allocated_peak")
    return stretch.number(key)


def sign(key: str, stretch: EpochSummary) -> str:
    """Return the sign before the number: `≥` or `≤` for a bound, or an empty string.

    The sign is `≈` if the number may still change, or if it is a mean or share of only part of the time.
    """
    column = BY_KEY[key]
    if key == "energy":
        return AT_LEAST if stretch.lacks_energy else ""
    if key == "framework_peak":
        peak = stretch.live_peak
        if is_known(peak.value) and not peak.reached:
            return AT_MOST
        return AT_LEAST if stretch.is_open or not is_known(peak.value) else ""
    if column.is_peak:
        return AT_LEAST if stretch.is_open or is_partly_sampled(stretch) else ""
    if key == "power_mean" and is_known(stretch.value("energy")):  # computed from the energy, which needs no samples
        return ""
    return ABOUT if column.needs_samples and (stretch.is_settling or lacks_samples(stretch)) else ""


def largest(
    columns: Iterable[Column], rows: Sequence[EpochSummary], other_rows: Sequence[EpochSummary] = ()
) -> Mapping[str, float]:
    """Return the largest number in each column, by the key of the column.

    `other_rows`: used for a column that has no numbers in `rows`. A column without any number is left out.
    """
    result: dict[str, float] = {}
    for column in columns:
        for stretches in (rows, other_rows):
            numbers = [value for stretch in stretches if is_known(value := number(column.key, stretch))]
            if numbers:
                result[column.key] = max(numbers)
                break
    return result


def cell(column: Column, stretch: EpochSummary, largest: Mapping[str, float], *, is_narrow: bool = True) -> str:
    """Return the text of a cell. `largest`: largest number of each column. It determines the unit of the column."""
    if column.key == "utilization_range":
        low, high = stretch.value("utilization_p5"), stretch.value("utilization_p95")
        text = f"{percent(low)[:-1]}–{percent(high)}"
        return f"{sign(column.key, stretch)}{text}" if is_known(low) and is_known(high) else MISSING
    value = number(column.key, stretch)
    text = column.write(value, largest.get(column.key, value), is_narrow=is_narrow)
    return text if text == MISSING else f"{sign(column.key, stretch)}{text}"


def peak(key: str, stretch: EpochSummary) -> str:
    """Return a memory peak as text, such as `31.0 GiB`, or `≤31.0 GiB` or `≥31.0 GiB` if there is only a bound."""
    return cell(BY_KEY[key], stretch, {})
