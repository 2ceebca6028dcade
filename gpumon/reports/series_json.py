"""Metrics over time as JSON: lowest, mean and highest value of each stretch, and why there is none in a gap."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from gpumon.common.numbers import is_known
from gpumon.model.device import Device
from gpumon.model.metrics import BY_NAME, Availability, Kind
from gpumon.storage.history.query import ALWAYS, HOST, History, Query, Series

SCHEMA = 1
BEFORE, LATER, NOT_SAMPLED, NO_VALUE = "before_history", "not_yet", "not_sampled", "no_value"
REASONS: Mapping[str, str] = {
    BEFORE: "before the oldest value that is kept",
    LATER: "after the newest sample",
    NOT_SAMPLED: "nothing was sampled on this machine: no daemon ran, or the machine slept",
    NO_VALUE: "the machine was sampled, and this has no value: the GPU did not answer, or does not report it",
}
"""Why there are no values, by name."""


class SeriesAsked(NamedTuple):
    """Lines that are asked for."""

    metrics: Sequence[str]
    begin: float
    """Seconds since 1970; as `end`."""
    end: float
    points: int
    """Points of each line at most."""


class SubjectHistory(NamedTuple):
    """A GPU, or None for the machine, and what is kept of it."""

    device: Device | None
    history: History


class Gap(NamedTuple):
    """A stretch without values, in seconds since 1970."""

    begin: float
    end: float
    reason: str


def series_json(
    asked: SeriesAsked, of: Sequence[SubjectHistory], machine: History, problem: str = ""
) -> dict[str, Any]:
    """Return the lines of some metrics; `machine` tells when samples were taken at all, `problem` what is unreadable.

    All are on the same `times` (s since 1970): the middles of stretches of `step` seconds, or of samples if that is 0.
    `coarse` are those kept in longer cells.
    """
    times, sampled = [], list[float]()
    lines, step, coarse = [], 0.0, list[dict[str, float]]()
    (base,) = machine.query(Query(HOST, [ALWAYS], asked.begin, asked.end, asked.points)).values()
    for device, history in of:
        subject = device.uuid if device else HOST
        names = [name for name in asked.metrics if name.startswith("gpu.") == (device is not None)]
        for name, series in history.query(Query(subject, names, asked.begin, asked.end, asked.points)).items():
            times, step, coarse = list(series.times), series.step, [one._asdict() for one in series.coarse]
            sampled = list(base.mean) if list(base.times) == times else []
            gaps = gaps_of(series, sampled, asked, machine)
            lines.append(_line(name, device, series, gaps))
    return {
        "schema": SCHEMA, "begin": asked.begin, "end": asked.end, "step": step, "coarse": coarse, "times": times,
        "series": lines, "problem": problem or None,
    }  # fmt: skip


def gaps_of(series: Series, sampled: Sequence[float], asked: SeriesAsked, machine: History) -> list[Gap]:
    """Return the stretches of a window in which a line has no value; `sampled` has one where anything was sampled."""
    oldest, newest = machine.begin, machine.end
    if not is_known(oldest):
        return [Gap(asked.begin, asked.end, NOT_SAMPLED)]
    before = [Gap(asked.begin, min(oldest, asked.end), BEFORE)] if asked.begin < oldest else []
    later = [Gap(max(newest, asked.begin), asked.end, LATER)] if asked.end > newest else []
    return [*before, *_inner(series, sampled, max(asked.begin, oldest), min(asked.end, newest)), *later]


def _inner(series: Series, sampled: Sequence[float], begin: float, end: float) -> Iterator[Gap]:
    """Gaps between `begin` and `end`, of which something is kept."""
    if not begin <= end:
        return
    if not series.times:
        yield Gap(begin, end, NOT_SAMPLED)
        return
    half = series.step / 2
    times = [begin - half, *series.times, end + half]

    def reason(place: int) -> str:
        if is_known(series.mean[place]):
            return ""
        return NO_VALUE if sampled and is_known(sampled[place]) else NOT_SAMPLED

    for found, places in groupby(range(len(series.times)), key=reason):
        run = list(places)
        if found:
            # Between samples, from the one before; of stretches, their own edges.
            first = times[run[0]] if not half else series.times[run[0]] - half
            last = times[run[-1] + 2] if not half else series.times[run[-1]] + half
            yield Gap(max(first, begin), min(last, end), found)


def _line(name: str, device: Device | None, series: Series, gaps: Sequence[Gap]) -> dict[str, Any]:
    metric = BY_NAME[name]
    why = device.missing.get(name) if device else None
    return {
        "metric": name, "unit": unit_of(name), "gpu": device.uuid if device else None,
        "label": device.label if device else None,
        "min": _values(series.low), "mean": _values(series.mean), "max": _values(series.high),
        "missing": why.name.lower() if why not in (None, Availability.OK) else None,
        "gaps": [gap._asdict() for gap in gaps if gap.begin < gap.end],
        "is_rate": metric.kind is Kind.COUNTER,
    }  # fmt: skip


def unit_of(name: str) -> str:
    """Return the unit of a metric's lines: of a counter, that of its rate."""
    metric = BY_NAME[name]
    return metric.unit.value + ("_per_second" if metric.kind is Kind.COUNTER else "")


def _values(line: Sequence[float]) -> list[float | None]:
    return [value if is_known(value - value) else None for value in line]
