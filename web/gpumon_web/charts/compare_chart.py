"""The chart of compared runs, and its axes: time since the start, epochs or steps."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple, Protocol

from gpumon.common.numbers import NAN, is_known
from gpumon.common.text import clean
from gpumon.model import units
from gpumon.model.frame import RunState
from gpumon.reports.figures.document import METRICS, PLAIN, Cells, chart, left_out, line, metric_panel, panel
from gpumon.reports.figures.logged import LoggedSeries, broken_off, logged_series
from gpumon.reports.figures.run_chart import (
    CHECKED,
    LOGGED,
    NAME_CELLS,
    ROLES,
    NonFinite,
    is_loss,
    listing,
    mark_non_finite,
    non_finite_points,
    times_of,
)
from gpumon.reports.figures.run_gpus import DeviceCourse, mean_of, power_of
from gpumon.reports.figures.run_series import RunSeries, diverged_points, run_series, thin, unsampled_spans
from gpumon.storage.history.envelope import Envelope
from gpumon.storage.ledger.aggregate import step_summaries
from gpumon.storage.ledger.records import EpochTimes, Record, RunTrace
from gpumon.storage.ledger.summary import EpochSummary

EPOCHS, STEPS, TIME = "epochs", "step", "since"
"""Names of the axes, in addresses and in charts."""


class AxisStretch(NamedTuple):
    """A part of a run: its times (s since 1970) and its range on the axis."""

    begun: float
    ended: float
    first: float
    last: float


class RunAxis:
    """Maps times of one run to positions on an axis."""

    def __init__(self, by: str, started: float, stretches: Sequence[AxisStretch]) -> None:
        self._by = by
        self._started = started
        self._stretches = stretches
        self._begins = [stretch.begun for stretch in stretches]

    def position(self, time: float) -> float:
        """Return the position of a time (s since 1970); NaN before the start, or outside epochs on their axes."""
        if self._by == TIME:
            return time - self._started if time >= self._started else NAN
        index = bisect_right(self._begins, time) - 1
        if index < 0 or time > self._stretches[index].ended:
            return NAN
        stretch = self._stretches[index]
        share = (time - stretch.begun) / (stretch.ended - stretch.begun) if stretch.ended > stretch.begun else 1.0
        return stretch.first + share * (stretch.last - stretch.first)


class Timed(Protocol):
    """An epoch, consecutive epochs, or a row of steps: times, and number of steps."""

    @property
    def begun(self) -> float: ...
    @property
    def ended(self) -> float: ...
    @property
    def steps(self) -> int | None: ...
    @property
    def times(self) -> int: ...


def axis_of(by: str, record: Record, epochs: Sequence[Timed]) -> RunAxis:
    """Create the axis `by` of a run; `epochs` are all of its epochs."""
    stretches = [] if by == TIME else by_steps(record, epochs) if by == STEPS else by_epochs(epochs)
    return RunAxis(by, record.run.started, stretches)


def by_epochs(epochs: Sequence[Timed]) -> list[AxisStretch]:
    """Return the ranges of finished epochs on the axis of finished epochs."""
    stretches, position = [], 0.0
    for epoch in epochs:
        if _has_ended(epoch):
            stretches.append(AxisStretch(epoch.begun, epoch.ended, position, position + epoch.times))
            position = stretches[-1].last
    return stretches


def by_steps(record: Record, epochs: Sequence[Timed]) -> list[AxisStretch]:
    """Return the ranges of epochs on the axis of steps; empty if steps were not counted."""
    parts = [epoch for epoch in epochs or step_summaries(record) if _has_ended(epoch)]
    if not _have_steps(parts):
        return []
    stretches, position = [], 0.0
    for part in parts:
        stretches.append(AxisStretch(part.begun, part.ended, position, position + (part.steps or 0)))
        position = stretches[-1].last
    return stretches


def _have_steps(parts: Sequence[Timed]) -> bool:
    return any(part.steps for part in parts) and all(part.steps is not None for part in parts)


def _has_ended(epoch: Timed) -> bool:
    return is_known(epoch.begun) and is_known(epoch.ended)


def axes_of(runs: Sequence[tuple[Record, Sequence[Timed]]]) -> list[str]:
    """Return the axes that all runs have, the most informative first."""
    axes = []
    if all(any(_has_ended(epoch) for epoch in epochs) for _, epochs in runs):
        axes.append(EPOCHS)
    if all(_have_steps([*filter(_has_ended, epochs or step_summaries(record))]) for record, epochs in runs):
        axes.append(STEPS)
    return [*axes, TIME]


POINTS = 500
"""Approximate number of points per line; screens cannot show more for eight runs."""
MISSED = 3
"""Missing points in a row above which a line is interrupted."""
LABEL_CELLS = 30
USED = ("gpu.utilization", "gpu.memory_used")
UNMEASURED = "unknown: of some time before, energy was not measured"
"""Why the total energy is unknown from some point on."""
LATE = 5.0
"""Lag in seconds of GPU values behind logged values from which the chart mentions it."""
Points = Iterable[tuple[float, float]]
"""Times (s since 1970) and values; NaN breaks the line."""


class ComparedCourse(NamedTuple):
    """A run with the data of its lines."""

    label: str
    record: Record
    epochs: Sequence[EpochSummary]
    axis: RunAxis
    logged: RunSeries
    gpus: Sequence[DeviceCourse]
    energies: Sequence[tuple[float, float, float]] = ()
    """Begin, end and energy (J) of all epochs."""
    is_sample: bool = False
    """Whether `epochs` is a sample."""


def course_of(
    label: str, record: Record, epochs: Sequence[EpochSummary], axis: RunAxis, traces: Sequence[RunTrace],
    times: Sequence[EpochTimes] = (),
) -> ComparedCourse:  # fmt: skip
    """Collect the data of a run's lines, thinned for drawing; `times` has all epochs if `epochs` is a sample."""
    names = (*USED, "gpu.power")
    used_traces = [
        replace(trace, columns={name: trace.columns[name] for name in names if name in trace.columns})
        for trace in traces
        if trace.uuid
    ]
    gpus = [
        DeviceCourse(device, coarse(run_series(record, used_traces, device.uuid), names)) for device in record.devices
    ]
    logged = run_series(record, traces, "")
    logged = coarse(logged, [*logged.columns], keeps_last=True)
    energies = [(epoch.begun, epoch.ended, epoch.energy) for epoch in times] or [
        (epoch.begun, epoch.ended, epoch.value("energy")) for epoch in epochs
    ]
    seen = [gpu for gpu in gpus if gpu.series.points]
    return ComparedCourse(label, record, epochs, axis, logged, seen, energies, is_sample=bool(times))


def coarse(series: RunSeries, names: Iterable[str], *, keeps_last: bool = False) -> RunSeries:
    """Thin the columns `names` of a series to about `POINTS` points; `keeps_last`: for logged values."""
    factor = max(1, -(-series.points // POINTS))
    present = [name for name in names if name in series.columns]
    columns = {name: thin(series.columns[name], factor, keeps_last=keeps_last) for name in present}
    return RunSeries(series.begun, series.step * factor, columns)


def compare_chart(courses: Sequence[ComparedCourse], by: str) -> Cells | None:
    """Create the chart on the axis `by`; None if there is nothing to draw."""
    tall = listing(len(courses))
    late = {"late": f"{units.fine_duration(lag)} older"} if (lag := lag_of(courses)) else {}
    logged = [entry for entry in _logged_panels(courses) if entry["lines"]]
    used = [{**entry, **late} for entry in _usage_panels(courses)]
    panels = [{**entry, "tall": tall, "lists": True} for entry in (*logged[:LOGGED], *used) if entry["lines"]]
    if not panels:
        return None
    ends = [curve["x"][-1] for entry in panels for curve in entry["lines"]]
    usual = [entry["key"] for entry in panels if entry["unit"] == PLAIN and is_loss(entry["title"])][:2]
    usual = usual or [entry["key"] for entry in panels if entry["unit"] == PLAIN][:1]
    return chart(
        panels, 0.0, max(ends) or 1.0, axis=by, step=0.0,
        all=[{"key": entry["key"], "title": entry["title"], "usual": entry["unit"] != PLAIN or entry["key"] in usual}
             for entry in panels],
        **left_out([(min(LOGGED, len(logged)), len(logged), METRICS)]),
    )  # fmt: skip


def lag_of(courses: Sequence[ComparedCourse]) -> float:
    """Return the longest lag in seconds of GPU values behind logged values over all running runs; 0 if below `LATE`.

    The ledger gets an epoch when it ends, but GPU traces only at intervals.
    """
    running = [course for course in courses if course.record.run.state is RunState.RUNNING and course.gpus]
    return max(map(_lag, running), default=0.0)


def _lag(course: ComparedCourse) -> float:
    logged = [
        time for name in _metric_names(course) for time, value in _logged_points(course, name)
        if math.isfinite(value) and is_known(course.axis.position(time))
    ]  # fmt: skip
    seen = mean_of(course.gpus)
    lag = max(logged, default=0.0) - (seen.begun + seen.points * seen.step)
    return lag if lag >= LATE else 0.0


def _logged_panels(courses: Sequence[ComparedCourse]) -> Iterator[Cells]:
    names = dict.fromkeys(name for course in courses for name in _metric_names(course))
    order = [*names]
    for name in sorted(names, key=lambda metric: (not is_loss(metric), order.index(metric))):
        look = "dots" if name.startswith(CHECKED) else None
        lines = [
            mark_non_finite(curve, _non_finite(courses[index], name))
            for index, points in enumerate(_comparable_points(courses, name))
            if (curve := _line(index, courses[index], points, look))
        ]
        yield panel(f"logged.{name[:80]}", clean(name, NAME_CELLS) or "unnamed", PLAIN, lines)


def _metric_names(course: ComparedCourse) -> list[str]:
    return [*course.logged.columns, *(name for epoch in course.epochs[-1:] for name in epoch.metrics)]


def _comparable_points(courses: Sequence[ComparedCourse], name: str) -> Iterator[Points]:
    """Yield the values of a metric for each run; values at epoch ends for all if some run only has those."""
    all_series = [_sampled_series(course, name) for course in courses]
    uses_ends = any(name in _metric_names(course) and not (series and series.is_of_steps)
                    for course, series in zip(courses, all_series, strict=True))  # fmt: skip
    for course, series in zip(courses, all_series, strict=True):
        ends = _ends(course, name) if uses_ends and series and series.is_of_steps else []
        yield ends if any(math.isfinite(value) for _, value in ends) else _logged_points(course, name)


def _logged_points(course: ComparedCourse, name: str) -> Points:
    """Return the logged values of a metric, by time; NaN breaks the line at non-finite values and unsampled times."""
    logged = _sampled_series(course, name)
    if logged is None:
        return _ends(course, name)
    values = [(time, value) for time, value, *_ in logged.points]
    non_finite = [(time, math.nan) for time, _ in diverged_points(course.logged).get(name, ())]
    return sorted([*values, *non_finite, *_unsampled_breaks(course, [time for time, _ in values])])


def _sampled_series(course: ComparedCourse, name: str) -> LoggedSeries | None:
    """Return the sampled values of a metric; None if only values at epoch ends are known or drawn."""
    if name not in course.logged.columns or name.startswith(CHECKED):
        return None
    return logged_series(course.record.run.ended, course.logged, name, course.epochs, is_sample=course.is_sample)


def _ends(course: ComparedCourse, name: str) -> list[tuple[float, float]]:
    """Return the values of a metric at epoch ends, with NaN after interrupted epochs."""
    breaks = [(time, math.nan) for time in broken_off(course.epochs, course.record.run.ended)]
    ends = [(epoch.ended, epoch.metrics.get(name, math.nan)) for epoch in course.epochs if is_known(epoch.ended)]
    return sorted([*ends, *breaks])


def _non_finite(course: ComparedCourse, name: str) -> list[NonFinite]:
    """Return the positions on the axis at which a run logged NaN or infinity, with the values."""
    points = non_finite_points(diverged_points(course.logged).get(name, ()), course.epochs, name)
    return [(position, value) for time, value in points if is_known(position := course.axis.position(time))]


def _unsampled_breaks(course: ComparedCourse, times: Sequence[float]) -> Iterator[tuple[float, float]]:
    """Yield NaN points at times without samples and without logged values; `times` are the times of the values."""
    for gpu in course.gpus[:1]:
        for begin, end in unsampled_spans(gpu.series):
            if end - begin > MISSED * gpu.series.step and bisect_left(times, begin) == bisect_right(times, end):
                yield begin, math.nan


def _usage_panels(courses: Sequence[ComparedCourse]) -> Iterator[Cells]:
    means = [mean_of(course.gpus) if course.gpus else None for course in courses]
    for name in USED:
        lines = [
            curve for index, (course, series) in enumerate(zip(courses, means, strict=True))
            if series is not None and name in series.columns
            and (curve := _line(index, course, _usage_points(series, series.columns[name])))
        ]  # fmt: skip
        yield metric_panel(name, lines)
    power = []
    energy = []
    for index, (course, series) in enumerate(zip(courses, means, strict=True)):
        power_sum = power_of(course.gpus, series) if series is not None else None
        if series is not None and power_sum is not None:
            power.append(_line(index, course, _usage_points(series, power_sum)))
        energy.append(_mark_unknown_end(_line(index, course, _cumulative_energy(course, series, power_sum))))
    yield metric_panel("gpu.power", [curve for curve in power if curve])
    lines = [curve for curve in energy if curve]
    # A line that only has its initial 0 shows no measured energy, so it is not drawn.
    curves = lines if any(_grows(curve["mean"]) for curve in lines) else []
    yield {**panel("energy", "Energy", "joules", curves), "zero": True}


def _usage_points(series: RunSeries, course: Envelope) -> Points:
    """Yield the values of a course by time, with NaN where many points are missing."""
    points = [(time, value) for time, value in zip(times_of(series), course.mean, strict=True) if is_known(value)]
    for (time, value), (later, _) in pairwise(points):
        yield time, value
        if later - time > MISSED * series.step:
            yield time + series.step, math.nan
    yield from points[-1:]


def _cumulative_energy(course: ComparedCourse, series: RunSeries | None, power: Envelope | None) -> Points:
    """Yield the cumulative energy (J) by time: from metered epochs, else from power; NaN once it is unknown."""
    ended = [epoch for epoch in course.energies if is_known(epoch[0]) and is_known(epoch[1])]
    if series is not None and course.record.run.state is RunState.RUNNING:
        # The energy of epochs that ended after the newest GPU values is not known yet.
        seen = series.begun + series.points * series.step
        ended = [epoch for epoch in ended if epoch[1] <= seen or is_known(epoch[2])]
    if any(is_known(joules) for *_, joules in ended):
        yield ended[0][0], 0.0
        parts = [(end, joules) for _, end, joules in ended]
    elif series is not None and power is not None and not ended:
        yield series.begun, 0.0
        parts = [(time, watts * series.step) for time, watts in zip(times_of(series), power.mean, strict=True)]
    else:
        return
    total, stride = 0.0, max(1, len(parts) // POINTS)
    for index, (time, joules) in enumerate(parts):
        total, previous = total + joules, total
        if index % stride == 0 or index == len(parts) - 1 or is_known(previous) != is_known(total):
            yield time, total


def _grows(sums: Sequence[float | None]) -> bool:
    """Whether a cumulative line has more than its initial 0."""
    values = [value for value in sums if value is not None]
    return len(values) > 1 or any(values)


def _mark_unknown_end(curve: Cells | None) -> Cells | None:
    """Mark the position from which a cumulative line is unknown, if there is one."""
    if curve is None or curve["mean"][-1] is not None:
        return curve
    last = max(index for index, value in enumerate(curve["mean"]) if value is not None)
    return {**curve, "lost": {"at": curve["x"][last + 1], "text": UNMEASURED}}


def _line(index: int, course: ComparedCourse, points: Points, look: str | None = None) -> Cells | None:
    """Create the line of a run in its color; None if it has no known value."""
    x: list[float] = []
    mean: list[float] = []
    for time, value in points:
        position = course.axis.position(time)
        if not is_known(position):
            continue
        x.append(float(f"{position:.7g}"))
        mean.append(value)
    if not any(map(math.isfinite, mean)):
        return None
    names = {"label": course.label, "mark": course.label[:1]}
    return line(x, mean, role=ROLES[index % len(ROLES)], look=look, joined=True, **names)
