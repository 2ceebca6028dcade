"""Combines usage over several devices or several periods, by the rules in `model.columns`.

Over devices, energy is summed, utilization is averaged, and the memory peak is the peak of the fullest device.
docs/reference/columns.md has a table of all rules.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter

from gpumon.common.numbers import NAN, is_known
from gpumon.model.columns import USAGE, OverDevices, OverTime
from gpumon.storage.ledger.records import UNMEASURED, USAGE_INDEX, UsageRow
from gpumon.storage.ledger.row_keys import WHOLE_RUN

_SECONDS, _SAMPLED = USAGE_INDEX["seconds"], USAGE_INDEX["sampled"]

_ENERGY, _ENERGY_LEAST = USAGE_INDEX["energy"], USAGE_INDEX["energy_least"]
_NEEDS_ALL = frozenset(
    ("utilization_mean", "utilization_p5", "utilization_p95", "idle_share", "throttled_share", "capped_share")
)
"""Columns whose combined value is unknown if the value of any device is unknown."""
_SUMS = frozenset(column.key for column in USAGE if column.over_devices is OverDevices.SUM)

Values = Sequence[float]


def over_devices(rows: Sequence[UsageRow]) -> Values:
    """Combine the usage of several devices in one period. A device that several ranks share counts once."""
    devices: dict[str, list[UsageRow]] = {}
    for row in rows:
        devices.setdefault(row.uuid, []).append(row)
    values = [_combine_ranks(own) for own in devices.values()]
    if len(values) < 2:
        return values[0] if values else UNMEASURED
    return tuple(
        NAN
        if column.key in _NEEDS_ALL and not all(map(math.isfinite, cells))
        else _OVER_DEVICES[column.over_devices](cells)
        for column, cells in zip(USAGE, zip(*values, strict=True), strict=True)
    )


def over_time(rows: Sequence[Values]) -> Values:
    """Combine the usage of consecutive periods."""
    if not rows:
        return UNMEASURED
    if len(rows) == 1:
        return rows[0]
    columns = list(zip(*rows, strict=True))
    weights = columns[_SAMPLED]
    return tuple(_OVER_TIME[column.over_time](cells, weights) for column, cells in zip(USAGE, columns, strict=True))


def totals(rows: Sequence[UsageRow]) -> Values:
    """Return the usage of a whole run: from the rows for the whole run if there are any, else from its epochs."""
    whole_run = [row for row in rows if row.ordinal == WHOLE_RUN]
    if whole_run:
        return over_devices(whole_run)
    groups: dict[int, list[UsageRow]] = {}
    for row in sorted(rows, key=itemgetter(1)):
        groups.setdefault(row.ordinal, []).append(row)
    return over_time([over_devices(group) for group in groups.values()])


def lower_bounds(values: Values) -> Values:
    """Return the usage of a period in which the usage of another device is missing. Of its sums, only the lower bound
    of the energy is known."""
    known = [
        NAN if name in _NEEDS_ALL or name in _SUMS else value for name, value in zip(USAGE_INDEX, values, strict=True)
    ]
    known[_ENERGY_LEAST] = values[_ENERGY] if is_known(values[_ENERGY]) else values[_ENERGY_LEAST]
    return known


def sampled_share(rows: Iterable[UsageRow]) -> float:
    """Return the share of time (0 to 1) covered by samples, for the rank and device with the lowest share.

    The share is relative to the length of each row, because ranks may run for different times. NaN if no row has a
    length.
    """
    least = NAN
    for row in rows:
        seconds, sampled = row.values[_SECONDS], row.values[_SAMPLED]
        if seconds > 0:
            # NaN != NaN; no call of is_known, because a call would cost more than the rest of the loop.
            share = min(1.0, sampled / seconds) if sampled == sampled else 0.0
            least = least if least <= share else share
    return least


def utilization_sources(rows: Iterable[UsageRow]) -> str:
    """Return the sources of the utilization in `rows`: `driver`, `ticks`, `driver, ticks`, or an empty string."""
    return ", ".join(sorted({row.utilization_from for row in rows if row.utilization_from}))


def sum_or_nan(values: Sequence[float]) -> float:
    """Return the sum, or NaN if one of the values is unknown."""
    return sum(values) if all(map(math.isfinite, values)) else NAN


def mean(values: Iterable[float]) -> float:
    """Return the mean of the known values; NaN if there is none."""
    known = [value for value in values if value == value]
    return sum(known) / len(known) if known else NAN


def highest(values: Iterable[float]) -> float:
    """Return the highest known value; NaN if there is none."""
    return max((value for value in values if value == value), default=NAN)


def lowest(values: Iterable[float]) -> float:
    """Return the lowest known value; NaN if there is none."""
    return min((value for value in values if value == value), default=NAN)


def _combine_ranks(rows: Sequence[UsageRow]) -> Values:
    """Combine the ranks of one device. Energy is the growth of the device's counter while any of them was running."""
    if len(rows) == 1:
        return rows[0].values
    values = [
        (highest if column.over_devices is OverDevices.SUM else _OVER_DEVICES[column.over_devices])(cells)
        for column, cells in zip(USAGE, zip(*(row.values for row in rows), strict=True), strict=True)
    ]
    covered_until, joules = -math.inf, 0.0
    for begun, ended in sorted((row.energy_from, row.energy_to) for row in rows):
        joules += max(0.0, ended - max(begun, covered_until))
        covered_until = max(covered_until, ended)
    if all(is_known(row.energy_from) for row in rows):
        values[_ENERGY] = values[_ENERGY_LEAST] = joules
    return tuple(values)


def _weighted_mean(cells: Sequence[float], weights: Sequence[float]) -> float:
    known = [(cell, weight) for cell, weight in zip(cells, weights, strict=True) if cell == cell and weight > 0]
    span = sum(weight for _, weight in known)
    return sum(cell * weight for cell, weight in known) / span if span else NAN


_OVER_TIME: Mapping[OverTime, Callable[[Sequence[float], Sequence[float]], float]] = {
    OverTime.SUM: lambda cells, _: sum_or_nan(cells),
    OverTime.MEAN: _weighted_mean,
    OverTime.HIGHEST: lambda cells, _: highest(cells),
    OverTime.FIRST: lambda cells, _: cells[0],
    OverTime.UNKNOWN: lambda _, __: NAN,
}
_OVER_DEVICES: Mapping[OverDevices, Callable[[Sequence[float]], float]] = {
    OverDevices.SUM: sum_or_nan,
    OverDevices.MEAN: mean,
    OverDevices.HIGHEST: highest,
    OverDevices.LOWEST: lowest,
}


def by_epoch_and_phase(rows: Iterable[UsageRow]) -> dict[tuple[int, str], list[UsageRow]]:
    """Group rows by epoch ordinal and phase."""
    groups: dict[tuple[int, str], list[UsageRow]] = {}
    for row in rows:
        groups.setdefault((row.ordinal, row.phase), []).append(row)
    return groups
