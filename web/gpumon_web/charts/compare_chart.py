"""The axes on which runs stand over each other: time since their begin, epochs, or steps that they have done."""

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
"""Names of axes, in an address and in a chart."""


class AxisStretch(NamedTuple):
    """A part of a run: when it was (s since 1970), and where that is on the axis."""

    begun: float
    ended: float
    first: float
    last: float


class RunAxis:
    """Places of one run on an axis."""

    def __init__(self, by: str, started: float, stretches: Sequence[AxisStretch]) -> None:
        self._by = by
        self._started = started
        self._stretches = stretches
        self._begins = [one.begun for one in stretches]

    def place(self, time: float) -> float:
        """The place of a moment (s since 1970); NaN before the begin, and outside of epochs where these count."""
        if self._by == TIME:
            return time - self._started if time >= self._started else NAN
        at = bisect_right(self._begins, time) - 1
        if at < 0 or time > self._stretches[at].ended:
            return NAN
        one = self._stretches[at]
        share = (time - one.begun) / (one.ended - one.begun) if one.ended > one.begun else 1.0
        return one.first + share * (one.last - one.first)


class Timed(Protocol):
    """An epoch, several behind each other, or a row of steps: when it was, and how many steps it had."""

    @property
    def begun(self) -> float: ...
    @property
    def ended(self) -> float: ...
    @property
    def steps(self) -> int | None: ...
    @property
    def times(self) -> int: ...


def axis_of(by: str, record: Record, epochs: Sequence[Timed]) -> RunAxis:
    """The places of a run on the axis `by`; `epochs` are all of its epochs."""
    stretches = [] if by == TIME else by_steps(record, epochs) if by == STEPS else by_epochs(epochs)
    return RunAxis(by, record.run.started, stretches)


def by_epochs(epochs: Sequence[Timed]) -> list[AxisStretch]:
    """A stretch for each epoch, or some, that ended: how many had, at its begin and at its end."""
    found, done = [], 0.0
    for one in epochs:
        if _has_ended(one):
            found.append(AxisStretch(one.begun, one.ended, done, done + one.times))
            done = found[-1].last
    return found


def by_steps(record: Record, epochs: Sequence[Timed]) -> list[AxisStretch]:
    """The same of steps; nothing where they were not counted."""
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
    """The axes on which all of these runs have places, the one that tells most first."""
    found = []
    if all(any(_has_ended(one) for one in epochs) for _, epochs in runs):
        found.append(EPOCHS)
    if all(_are_counted([*filter(_has_ended, epochs or step_summaries(record))]) for record, epochs in runs):
        found.append(STEPS)
    return [*found, TIME]


POINTS = 500
"""Points of a line, about: more than that no screen shows of eight."""
MISSED = 3
"""Points that are missing in a row, from which on a line breaks."""
LABEL_CELLS = 30
USED = ("gpu.utilization", "gpu.memory_used")
UNMEASURED = "unknown: of some time before, energy was not measured"
"""Why a sum of energy has no value at its end."""
LATE = 5.0
"""Seconds by which values of GPUs are older than what was logged, from which on that is said."""
Points = Iterable[tuple[float, float]]
"""Times (s since 1970) and values; NaN breaks the line."""


class ComparedCourse(NamedTuple):
    """A run with what its lines are made of."""

    label: str
    record: Record
    epochs: Sequence[EpochSummary]
    axis: RunAxis
    logged: RunSeries
    gpus: Sequence[DeviceCourse]
    energies: Sequence[tuple[float, float, float]] = ()
    """Begin, end and energy (J) of all epochs."""
    is_sample: bool = False
    """Whether `epochs` are a sample of them."""


def course_of(
    label: str, record: Record, epochs: Sequence[EpochSummary], axis: RunAxis, traces: Sequence[RunTrace],
    times: Sequence[EpochTimes] = (),
) -> ComparedCourse:  # fmt: skip
    """Gather these, no finer than it is drawn; `times` are of all epochs where `epochs` are a sample of them."""
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
    """These columns of a series, of not many more than `POINTS` points; `keeps_last`: of what was logged."""
    every = max(1, -(-series.points // POINTS))
    known = [name for name in names if name in series.columns]
    columns = {name: thin(series.columns[name], every, keeps_last=keeps_last) for name in known}
    return RunSeries(series.begun, series.step * every, columns)


def compare_chart(courses: Sequence[ComparedCourse], by: str) -> Cells | None:
    """The chart on the axis `by`; None where there is nothing to draw."""
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
    """Seconds by which values of GPUs of a run that goes on are older than what it logged last, of all the most.

    0 where nobody would see it. The ledger gets an epoch as it ends, and lines from time to time.
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
    """Values of each run under a name: those of steps only where no other run has but those of epochs beside them."""
    found = [_course(course, name) for course in courses]
    of_epochs = any(name in _names(course) and not (one and one.is_of_steps)
                    for course, one in zip(courses, found, strict=True))  # fmt: skip
    for course, one in zip(courses, found, strict=True):
        ends = _ends(course, name) if of_epochs and one and one.is_of_steps else []
        yield ends if any(math.isfinite(value) for _, value in ends) else _said(course, name)


def _said(course: ComparedCourse, name: str) -> Points:
    """Values that a run logged under a name, by time; what was no number, and what nobody saw, breaks the line."""
    logged = _course(course, name)
    if logged is None:
        return _ends(course, name)
    values = [(time, value) for time, value, *_ in logged.points]
    odd = [(time, math.nan) for time, _ in diverged_points(course.logged).get(name, ())]
    return sorted([*values, *odd, *_pauses(course, [time for time, _ in values])])


def _course(course: ComparedCourse, name: str) -> LoggedSeries | None:
    """The values of a metric as they were sampled; None where only the ends of epochs are drawn, or known."""
    if name not in course.logged.columns or name.startswith(CHECKED):
        return None
    return logged_series(course.record.run.ended, course.logged, name, course.epochs, is_sample=course.is_sample)


def _ends(course: ComparedCourse, name: str) -> list[tuple[float, float]]:
    """The values of a metric at the ends of epochs, with a break behind each that broke off."""
    breaks = [(time, math.nan) for time in broken_off(course.epochs, course.record.run.ended)]
    ends = [(one.ended, one.metrics.get(name, math.nan)) for one in course.epochs if is_known(one.ended)]
    return sorted([*ends, *breaks])


def _odd(course: ComparedCourse, name: str) -> list[Odd]:
    """Places on the axis where what a run logged was no number, and what it was."""
    found = odd_points(diverged_points(course.logged).get(name, ()), course.epochs, name)
    return [(at, value) for time, value in found if is_known(at := course.axis.place(time))]


def _pauses(course: ComparedCourse, times: Sequence[float]) -> Iterator[tuple[float, float]]:
    """Breaks of a line whose values have these times: where nothing was sampled, and nothing was logged either."""
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
    # That each began at nothing is no energy that was measured, and an axis of that alone would be made up.
    told = lines if any(_grows(one["mean"]) for one in lines) else []
    yield {**panel("energy", "Energy", "joules", told), "zero": True}


def _seen(series: RunSeries, course: Envelope) -> Points:
    """The values of a course, by time, broken where they are missing for long."""
    known = [(time, value) for time, value in zip(times_of(series), course.mean, strict=True) if is_known(value)]
    for (time, value), (later, _) in pairwise(known):
        yield time, value
        if later - time > MISSED * series.step:
            yield time + series.step, math.nan
    yield from known[-1:]


def _energy(course: ComparedCourse, series: RunSeries | None, power: Envelope | None) -> Points:
    """Energy used up to a moment, J: of epochs as they were metered, else of the power; none once it is unknown."""
    ended = [one for one in course.energies if is_known(one[0]) and is_known(one[1])]
    if series is not None and course.record.run.state is RunState.RUNNING:
        # What an epoch took that ended behind the newest values of GPUs is still to come.
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
    """Whether more is known of a sum than that it began."""
    known = [value for value in sums if value is not None]
    return len(known) > 1 or any(known)


def _with_end(drawn: Cells | None) -> Cells | None:
    """A sum, with the place from which on it is not known, if there is one."""
    if drawn is None or drawn["mean"][-1] is not None:
        return drawn
    last = max(place for place, value in enumerate(drawn["mean"]) if value is not None)
    return {**drawn, "lost": {"at": drawn["x"][last + 1], "text": UNMEASURED}}


def _line(place: int, course: ComparedCourse, points: Points, look: str | None = None) -> Cells | None:
    """A line in the color of its run, on the axis; None where nothing of it is known."""
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
