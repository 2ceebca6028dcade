"""The GPUs of a run combined: mean, minimum and maximum of their measurements, and their total power."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from gpumon.reports.figures.run_series import RunSeries, unsampled_spans
from gpumon.storage.history.envelope import Envelope
from gpumon.storage.ledger.records import DeviceRow

MEAN, EACH = "mean", "each"
"""Values in an address that select all GPUs of a run: their mean, or each GPU by itself."""
MISSED = 3
"""If there are more than this number of points before the first or after the last sample, this time counts as not
sampled."""


class DeviceCourse(NamedTuple):
    """Measurements of a device during a run."""

    device: DeviceRow
    series: RunSeries


def mean_of(gpus: Sequence[DeviceCourse]) -> RunSeries:
    """Return the mean series of all GPUs, at the points of the longest series. Missing values are ignored."""
    if len(gpus) == 1:
        return gpus[0].series
    base = _longest_series(gpus)
    names = dict.fromkeys(name for gpu in gpus for name in gpu.series.columns)
    return RunSeries(base.begun, base.step, {name: _combine(gpus, base, name) for name in names})


def power_of(gpus: Sequence[DeviceCourse], base: RunSeries) -> Envelope:
    """Return the total power. It is NaN at points where the power of any GPU is NaN."""
    lines = [_resample(gpu.series, base, "gpu.power") for gpu in gpus]
    sums = [tuple(math.fsum(part) for part in zip(*values, strict=True)) for values in zip(*lines, strict=True)]
    mean = [triple[1] for triple in sums]
    return Envelope(mean, mean, mean)


def unseen(gpus: Sequence[DeviceCourse], begin: float, end: float, *, goes_on: bool) -> list[list[float]]:
    """Return the spans [from, to] between `begin` and `end` in which no GPU of the run was sampled.

    `goes_on`: whether the run is still running. If so, the time after the last sample is not included, because samples
    may still arrive.
    """
    if not gpus:
        return []
    combined = mean_of([gpu._replace(series=_usage_columns(gpu.series)) for gpu in gpus])
    first, last = combined.begun, combined.begun + combined.points * combined.step
    ends = [(begin, first), *([] if goes_on else [(last, end)])]
    beyond = [(since, until) for since, until in ends if until - since > MISSED * combined.step]
    return [[round(since, 3), round(until, 3)] for since, until in sorted([*beyond, *unsampled_spans(combined)])]


def _usage_columns(series: RunSeries) -> RunSeries:
    """Reduce a series to the metrics that show when a GPU was sampled."""
    names = ("gpu.memory_used", "gpu.utilization")
    return replace(series, columns={name: series.columns[name] for name in names if name in series.columns})


def _longest_series(gpus: Sequence[DeviceCourse]) -> RunSeries:
    return max((gpu.series for gpu in gpus), key=lambda series: series.points * series.step)


def _combine(gpus: Sequence[DeviceCourse], base: RunSeries, name: str) -> Envelope:
    lines = [_resample(gpu.series, base, name) for gpu in gpus]
    low, mean, high = [], [], []
    for values in zip(*lines, strict=True):
        triples = [value for value in values if math.isfinite(value[1])]
        low.append(min((value[0] for value in triples), default=math.nan))
        mean.append(math.fsum(value[1] for value in triples) / len(triples) if triples else math.nan)
        high.append(max((value[2] for value in triples), default=math.nan))
    return Envelope(low, mean, high)


def _resample(series: RunSeries, base: RunSeries, name: str) -> list[tuple[float, float, float]]:
    """Return (low, mean, high) of a series at the points of `base`."""
    unknown = (math.nan, math.nan, math.nan)
    course = series.columns.get(name)
    if course is None:
        return [unknown] * base.points
    if (series.begun, series.step, series.points) == (base.begun, base.step, base.points):
        return list(zip(course.low, course.mean, course.high, strict=True))
    triples = []
    for index in range(base.points):
        position = math.floor((base.begun + (index + 0.5) * base.step - series.begun) / series.step)
        is_inside = 0 <= position < series.points
        triples.append((course.low[position], course.mean[position], course.high[position]) if is_inside else unknown)
    return triples
