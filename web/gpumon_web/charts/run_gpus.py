"""The GPUs of a run as one: the mean of what each measured, with lowest and highest, and their power together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from gpumon.reports.figures.run import unsampled_spans
from gpumon.reports.figures.run_series import RunSeries
from gpumon.storage.history.envelope import Envelope
from gpumon.storage.ledger.records import DeviceRow

MEAN, EACH = "mean", "each"
"""Names of all GPUs of a run together, as their mean or each by itself, in an address."""
MISSED = 3
"""Points before the first sample or behind the last one from which on nothing was seen there."""


class DeviceCourse(NamedTuple):
    """Measurements of a device while a run was on it."""

    device: DeviceRow
    series: RunSeries


def mean_of(gpus: Sequence[DeviceCourse]) -> RunSeries:
    """Return one series of all of them, on the points of the longest: the mean of those that are known at a time."""
    if len(gpus) == 1:
        return gpus[0].series
    base = _base(gpus)
    names = dict.fromkeys(name for one in gpus for name in one.series.columns)
    return RunSeries(base.begun, base.step, {name: _joined(gpus, base, name) for name in names})


def power_of(gpus: Sequence[DeviceCourse], base: RunSeries) -> Envelope:
    """The sum of their power; unknown where that of one is."""
    lines = [_placed(one.series, base, "gpu.power") for one in gpus]
    sums = [tuple(math.fsum(part) for part in zip(*values, strict=True)) for values in zip(*lines, strict=True)]
    mean = [one[1] for one in sums]
    return Envelope(mean, mean, mean)


def unseen(gpus: Sequence[DeviceCourse], begin: float, end: float, *, goes_on: bool) -> list[list[float]]:
    """When none of the GPUs of a run was sampled, from and to, from its begin to its end.

    Of one that goes on, what comes next may be on its way.
    """
    if not gpus:
        return []
    together = mean_of([one._replace(series=_used(one.series)) for one in gpus])
    first, last = together.begun, together.begun + together.points * together.step
    ends = [(begin, first), *([] if goes_on else [(last, end)])]
    beyond = [(since, until) for since, until in ends if until - since > MISSED * together.step]
    return [[round(since, 3), round(until, 3)] for since, until in sorted([*beyond, *unsampled_spans(together)])]


def _used(series: RunSeries) -> RunSeries:
    """The lines by which it is told when a GPU was sampled."""
    names = ("gpu.memory_used", "gpu.utilization")
    return series._replace(columns={name: series.columns[name] for name in names if name in series.columns})


def _base(gpus: Sequence[DeviceCourse]) -> RunSeries:
    return max((one.series for one in gpus), key=lambda series: series.points * series.step)


def _joined(gpus: Sequence[DeviceCourse], base: RunSeries, name: str) -> Envelope:
    lines = [_placed(one.series, base, name) for one in gpus]
    low, mean, high = [], [], []
    for values in zip(*lines, strict=True):
        known = [value for value in values if math.isfinite(value[1])]
        low.append(min((value[0] for value in known), default=math.nan))
        mean.append(math.fsum(value[1] for value in known) / len(known) if known else math.nan)
        high.append(max((value[2] for value in known), default=math.nan))
    return Envelope(low, mean, high)


def _placed(series: RunSeries, base: RunSeries, name: str) -> list[tuple[float, float, float]]:
    """The values of a series at the points of another one."""
    nothing = (math.nan, math.nan, math.nan)
    course = series.columns.get(name)
    if course is None:
        return [nothing] * base.points
    if (series.begun, series.step, series.points) == (base.begun, base.step, base.points):
        return list(zip(course.low, course.mean, course.high, strict=True))
    found = []
    for place in range(base.points):
        at = math.floor((base.begun + (place + 0.5) * base.step - series.begun) / series.step)
        found.append((course.low[at], course.mean[at], course.high[at]) if 0 <= at < series.points else nothing)
    return found
