"""The chart of compared runs, and its axes: time since the begin, epochs or steps."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol

from gpumon.common.numbers import NAN, is_known
from gpumon.common.text import clean
from gpumon.model import units
from gpumon.model.frame import RunState
from gpumon.reports.figures.logged import LoggedSeries, broken_off, logged_series
from gpumon.reports.figures.run import unsampled_spans
from gpumon.reports.figures.run_series import RunSeries, diverged_points, run_series, thin
from gpumon.storage.history.envelope import Envelope
from gpumon.storage.ledger.aggregate import step_summaries
from gpumon.storage.ledger.records import EpochTimes, Record, RunTrace
from gpumon.storage.ledger.summary import EpochSummary
from gpumon_web.charts.document import METRICS, PLAIN, Cells, chart, left_out, line, metric_panel, panel
from gpumon_web.charts.run_chart import (
    CHECKED,
    LOGGED,
    NAME_CELLS,
    ROLES,
    Odd,
    is_loss,
    listing,
    odd_points,
    times_of,
    with_odd,
)
from gpumon_web.charts.run_gpus import DeviceCourse, mean_of, power_of

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
        self._begins = [one.begun for one in stretches]

    def place(self, time: float) -> float:
        """Return the position of a time (s since 1970); NaN before the begin, or outside epochs on their axes."""
        if self._by == TIME:
            return time - self._started if time >= self._started else NAN
        at = bisect_right(self._begins, time) - 1
        if at < 0 or time > self._stretches[at].ended:
            return NAN
        one = self._stretches[at]
        share = (time - one.begun) / (one.ended - one.begun) if one.ended > one.begun else 1.0
        return one.first + share * (one.last - one.first)


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
    found, done = [], 0.0
    for one in epochs:
        if _has_ended(one):
            found.append(AxisStretch(one.begun, one.ended, done, done + one.times))
            done = found[-1].last
    return found


def by_steps(record: Record, epochs: Sequence[Timed]) -> list[AxisStretch]:
    """Return the ranges of epochs on the axis of steps; empty if steps were not counted."""
    parts = [one for one in epochs or step_summaries(record) if _has_ended(one)]
    if not _are_counted(parts):
        return []
    found, done = [], 0.0
    for one in parts:
        found.append(AxisStretch(one.begun, one.ended, done, done + (one.steps or 0)))
        done = found[-1].last
    return found


def _are_counted(parts: Sequence[Timed]) -> bool:
    return any(one.steps for one in parts) and all(one.steps is not None for one in parts)


def _has_ended(one: Timed) -> bool:
    return is_known(one.begun) and is_known(one.ended)


def axes_of(runs: Sequence[tuple[Record, Sequence[Timed]]]) -> list[str]:
    """Return the axes that all runs have, the most informative first."""
    found = []
    if all(any(_has_ended(one) for one in epochs) for _, epochs in runs):
        found.append(EPOCHS)
    if all(_are_counted([*filter(_has_ended, epochs or step_summaries(record))]) for record, epochs in runs):
        found.append(STEPS)
    return [*found, TIME]


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
    drawn = [one._replace(columns={name: one.columns[name] for name in names if name in one.columns})
             for one in traces if one.uuid]  # fmt: skip
    gpus = [DeviceCourse(one, coarse(run_series(record, drawn, one.uuid), names))
            for one in record.devices]  # fmt: skip
    logged = run_series(record, traces, "")
    logged = coarse(logged, [*logged.columns], keeps_last=True)
    energies = [(one.begun, one.ended, one.energy) for one in times] or [
        (one.begun, one.ended, one.value("energy")) for one in epochs
    ]
    seen = [one for one in gpus if one.series.points]
    return ComparedCourse(label, record, epochs, axis, logged, seen, energies, is_sample=bool(times))


def coarse(series: RunSeries, names: Iterable[str], *, keeps_last: bool = False) -> RunSeries:
    """Thin the columns `names` of a series to about `POINTS` points; `keeps_last`: for logged values."""
    every = max(1, -(-series.points // POINTS))
    known = [name for name in names if name in series.columns]
    columns = {name: thin(series.columns[name], every, keeps_last=keeps_last) for name in known}
    return RunSeries(series.begun, series.step * every, columns)


def compare_chart(courses: Sequence[ComparedCourse], by: str) -> Cells | None:
    """Create the chart on the axis `by`; None if there is nothing to draw."""
    tall = listing(len(courses))
    late = {"late": f"{units.fine_duration(lag)} older"} if (lag := lag_of(courses)) else {}
    logged = [one for one in _logged(courses) if one["lines"]]
    panels = [{**one, "tall": tall, "lists": True}
              for one in (*logged[:LOGGED], *({**one, **late} for one in _used(courses))) if one["lines"]]  # fmt: skip
    if not panels:
        return None
    ends = [line["x"][-1] for one in panels for line in one["lines"]]
    usual = [one["key"] for one in panels if one["unit"] == PLAIN and is_loss(one["title"])][:2]
    usual = usual or [one["key"] for one in panels if one["unit"] == PLAIN][:1]
    return chart(
        panels, 0.0, max(ends) or 1.0, axis=by, step=0.0,
        all=[{"key": one["key"], "title": one["title"], "usual": one["unit"] != PLAIN or one["key"] in usual}
             for one in panels],
        **left_out([(min(LOGGED, len(logged)), len(logged), METRICS)]),
    )  # fmt: skip


def lag_of(courses: Sequence[ComparedCourse]) -> float:
    """Return the longest lag in seconds of GPU values behind logged values over all running runs; 0 if below `LATE`.

    The ledger gets an epoch when it ends, but GPU traces only at intervals.
    """
    return max((_lag(one) for one in courses if one.record.run.state is RunState.RUNNING and one.gpus), default=0.0)


def _lag(course: ComparedCourse) -> float:
    logged = [
        time for name in _names(course) for time, value in _said(course, name)
        if math.isfinite(value) and is_known(course.axis.place(time))
    ]  # fmt: skip
    seen = mean_of(course.gpus)
    lag = max(logged, default=0.0) - (seen.begun + seen.points * seen.step)
    return lag if lag >= LATE else 0.0


def _logged(courses: Sequence[ComparedCourse]) -> Iterator[Cells]:
    names = dict.fromkeys(name for course in courses for name in _names(course))
    order = [*names]
    for name in sorted(names, key=lambda one: (not is_loss(one), order.index(one))):
        look = "dots" if name.startswith(CHECKED) else None
        lines = [
            with_odd(drawn, _odd(courses[place], name)) for place, said in enumerate(_alike(courses, name))
            if (drawn := _line(place, courses[place], said, look))
        ]  # fmt: skip
        yield panel(f"logged.{name[:80]}", clean(name, NAME_CELLS) or "unnamed", PLAIN, lines)


def _names(course: ComparedCourse) -> list[str]:
    return [*course.logged.columns, *(name for epoch in course.epochs[-1:] for name in epoch.metrics)]


def _alike(courses: Sequence[ComparedCourse], name: str) -> Iterator[Points]:
    """Yield the values of a metric for each run; values at epoch ends for all if some run only has those."""
    found = [_course(course, name) for course in courses]
    of_epochs = any(name in _names(course) and not (one and one.is_of_steps)
                    for course, one in zip(courses, found, strict=True))  # fmt: skip
    for course, one in zip(courses, found, strict=True):
        ends = _ends(course, name) if of_epochs and one and one.is_of_steps else []
        yield ends if any(math.isfinite(value) for _, value in ends) else _said(course, name)


def _said(course: ComparedCourse, name: str) -> Points:
    """Return the logged values of a metric, by time; NaN interrupts the line at odd values and unsampled time."""
    logged = _course(course, name)
    if logged is None:
        return _ends(course, name)
    values = [(time, value) for time, value, *_ in logged.points]
    odd = [(time, math.nan) for time, _ in diverged_points(course.logged).get(name, ())]
    return sorted([*values, *odd, *_pauses(course, [time for time, _ in values])])


def _course(course: ComparedCourse, name: str) -> LoggedSeries | None:
    """Return the sampled values of a metric; None if only values at epoch ends are known or drawn."""
    if name not in course.logged.columns or name.startswith(CHECKED):
        return None
    return logged_series(course.record.run.ended, course.logged, name, course.epochs, is_sample=course.is_sample)


def _ends(course: ComparedCourse, name: str) -> list[tuple[float, float]]:
    """Return the values of a metric at epoch ends, with NaN after interrupted epochs."""
    breaks = [(time, math.nan) for time in broken_off(course.epochs, course.record.run.ended)]
    ends = [(one.ended, one.metrics.get(name, math.nan)) for one in course.epochs if is_known(one.ended)]
    return sorted([*ends, *breaks])


def _odd(course: ComparedCourse, name: str) -> list[Odd]:
    """Return the positions on the axis at which a run logged NaN or infinity, with the values."""
    found = odd_points(diverged_points(course.logged).get(name, ()), course.epochs, name)
    return [(at, value) for time, value in found if is_known(at := course.axis.place(time))]


def _pauses(course: ComparedCourse, times: Sequence[float]) -> Iterator[tuple[float, float]]:
    """Yield NaN points where nothing was sampled and nothing was logged either; `times` are those of the values."""
    for one in course.gpus[:1]:
        for begin, end in unsampled_spans(one.series):
            if end - begin > MISSED * one.series.step and bisect_left(times, begin) == bisect_right(times, end):
                yield begin, math.nan


def _used(courses: Sequence[ComparedCourse]) -> Iterator[Cells]:
    means = [mean_of(course.gpus) if course.gpus else None for course in courses]
    for name in USED:
        lines = [
            drawn for place, (course, series) in enumerate(zip(courses, means, strict=True))
            if series is not None and name in series.columns
            and (drawn := _line(place, course, _seen(series, series.columns[name])))
        ]  # fmt: skip
        yield metric_panel(name, lines)
    power = []
    energy = []
    for place, (course, series) in enumerate(zip(courses, means, strict=True)):
        together = power_of(course.gpus, series) if series is not None else None
        if series is not None and together is not None:
            power.append(_line(place, course, _seen(series, together)))
        energy.append(_with_end(_line(place, course, _energy(course, series, together))))
    yield metric_panel("gpu.power", [one for one in power if one])
    lines = [one for one in energy if one]
    # A line that only has its initial 0 shows no measured energy, so it is not drawn.
    told = lines if any(_grows(one["mean"]) for one in lines) else []
    yield {**panel("energy", "Energy", "joules", told), "zero": True}


def _seen(series: RunSeries, course: Envelope) -> Points:
    """Yield the values of a course by time, with NaN where many points are missing."""
    known = [(time, value) for time, value in zip(times_of(series), course.mean, strict=True) if is_known(value)]
    for (time, value), (later, _) in pairwise(known):
        yield time, value
        if later - time > MISSED * series.step:
            yield time + series.step, math.nan
    yield from known[-1:]


def _energy(course: ComparedCourse, series: RunSeries | None, power: Envelope | None) -> Points:
    """Yield the cumulative energy (J) by time: from metered epochs, else from power; NaN once it is unknown."""
    ended = [one for one in course.energies if is_known(one[0]) and is_known(one[1])]
    if series is not None and course.record.run.state is RunState.RUNNING:
        # The energy of epochs that ended after the newest GPU values is not known yet.
        seen = series.begun + series.points * series.step
        ended = [one for one in ended if one[1] <= seen or is_known(one[2])]
    if any(is_known(joules) for *_, joules in ended):
        yield ended[0][0], 0.0
        parts = [(end, joules) for _, end, joules in ended]
    elif series is not None and power is not None and not ended:
        yield series.begun, 0.0
        parts = [(time, watts * series.step) for time, watts in zip(times_of(series), power.mean, strict=True)]
    else:
        return
    total, every = 0.0, max(1, len(parts) // POINTS)
    for place, (time, joules) in enumerate(parts):
        total, was = total + joules, total
        if place % every == 0 or place == len(parts) - 1 or is_known(was) != is_known(total):
            yield time, total


def _grows(sums: Sequence[float | None]) -> bool:
    """Whether a cumulative line has more than its initial 0."""
    known = [value for value in sums if value is not None]
    return len(known) > 1 or any(known)


def _with_end(drawn: Cells | None) -> Cells | None:
    """Mark the position from which a cumulative line is unknown, if there is one."""
    if drawn is None or drawn["mean"][-1] is not None:
        return drawn
    last = max(place for place, value in enumerate(drawn["mean"]) if value is not None)
    return {**drawn, "lost": {"at": drawn["x"][last + 1], "text": UNMEASURED}}


def _line(place: int, course: ComparedCourse, points: Points, look: str | None = None) -> Cells | None:
    """Create the line of a run in its color; None if it has no known value."""
    x: list[float] = []
    mean: list[float] = []
    for time, value in points:
        at = course.axis.place(time)
        if not is_known(at):
            continue
        x.append(float(f"{at:.7g}"))
        mean.append(value)
    if not any(map(math.isfinite, mean)):
        return None
    told = {"label": course.label, "mark": course.label[:1]}
    return line(x, mean, role=ROLES[place % len(ROLES)], look=look, joined=True, **told)
