"""A run over time: what it logged, and its GPUs together or each by itself, with its epochs, phases and events."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from gpumon.common.numbers import NAN, is_known
from gpumon.common.text import clean
from gpumon.diagnosis.past_findings import Verdicts, verdicts_of
from gpumon.model.columns import USAGE
from gpumon.model.frame import Mark, RunState
from gpumon.model.metrics import BY_NAME
from gpumon.reports.figures.logged import LoggedPoint, broken_off, logged_series
from gpumon.reports.figures.run import unsampled_spans
from gpumon.reports.figures.run_series import RunSeries, diverged_points
from gpumon.storage.history.query import MAX_POINTS
from gpumon.storage.ledger.long_run import LongRun
from gpumon.storage.ledger.records import USAGE_INDEX, DeviceRow, MarkRow, RunRow
from gpumon.storage.ledger.summary import EpochSummary
from gpumon_web.charts.document import (
    METRICS,
    PLAIN,
    Cells,
    chart,
    event,
    left_out,
    limit,
    line,
    marks_on,
    metric_panel,
    moment,
    panel,
    ribbon,
)
from gpumon_web.charts.run_gpus import DeviceCourse, mean_of, power_of, unseen

DEVICE_MEMORY = USAGE[USAGE_INDEX["memory_used_mean"]].title
"""Title of the memory of all processes, beside that of live tensors in the tables of a run."""
LOGGED = 12
"""Logged metrics that get a panel; a chart says that there are more."""
OF_DEVICE = {
    "gpu.utilization": "utilization_mean", "gpu.memory_used": "memory_used_peak", "gpu.power": "power_mean",
    "gpu.temperature": "temperature_peak",
}  # fmt: skip
"""Metrics of a GPU that have a panel, and the column of a whole run that is said of it."""
ROLES = tuple(f"s{place}" for place in range(8))
"""Colors of GPUs beside each other."""
_ROW, _LEAST = 18, 92
"""Height of what stands beside a panel for each of its lines, and of a panel at least, px."""
CHECKED = ("val_", "valid_", "validation_", "eval_", "test_")
"""Beginnings of the names of what is logged on other data than that of training."""
NAME_CELLS = 40
SLOW = 1.05
"""Times the median length of an epoch from which on it is slow."""
_INK, _THIN, _DOTS = "ink", "thin", "dots"
Odd = tuple[float, float]
"""Time (s since 1970) and what was logged then: NaN or infinite."""


class RunDrawing(NamedTuple):
    """All that the chart of a run is made of."""

    run: RunRow
    gpus: Sequence[DeviceCourse]
    """Those that are drawn: one, or several together."""
    logged: RunSeries
    epochs: Sequence[EpochSummary]
    marks: Sequence[MarkRow]
    phases: Sequence[Sequence[Any]]
    """[begin, end or None, name], oldest first."""
    diverged: Mapping[str, Sequence[tuple[float, float]]] | None = None
    is_each: bool = False
    """Whether several GPUs are drawn each by itself, rather than as their mean."""
    phases_in_all: int = 0
    """How many there are, where `phases` are the newest alone."""
    total: EpochSummary | None = None
    """The whole run on these GPUs, by all samples: a chart has none of its very begin."""
    verdicts: Verdicts | None = None
    """Those on its epochs, where they are known already."""
    long: LongRun | None = None
    """Where `epochs` are some of a long run: where each of them was, and which may need a look."""
    is_judged: bool = True
    """Whether all of these are among `epochs`."""


def run_chart(drawing: RunDrawing, of_all: int = 1) -> Cells | None:
    """The chart, or None where there is nothing to draw; `of_all` is how many GPUs the run has."""
    logged = [*_logged(drawing)]
    panels = [*logged[:LOGGED], *_measured(drawing)]
    if not panels:
        return None
    begin, end = _reach(drawing)
    some = [(len(drawing.epochs), drawing.long.begun, "values at the end of epochs")] if drawing.long else []
    left = left_out(
        [
            (min(LOGGED, len(logged)), len(logged), METRICS),
            (len(drawing.phases), drawing.phases_in_all, "phases"),
            *some,
        ]
    )
    step = max((one.series.step for one in drawing.gpus), default=drawing.logged.step)
    return chart(
        panels,
        begin,
        end,
        interval=step,
        step=step,
        all=[{"key": one["key"], "title": one["title"], "usual": one["key"] in _usual(panels)} for one in panels],
        gpus=of_all,
        runs=[_ribbon(drawing, end)],
        events=marks_on(_events(drawing), begin, end),
        held=[[begin, end, drawing.run.user]],
        goesOn=drawing.run.state is RunState.RUNNING,
        spans=True,
        unseen=unseen(drawing.gpus, begin, end, goes_on=drawing.run.state is RunState.RUNNING),
        **left,
    )


def _usual(panels: Sequence[Cells]) -> list[str]:
    """The panels that are shown until the viewer chooses others: losses, or what was logged first, and what is used."""
    logged = [one["key"] for one in panels if one["unit"] == PLAIN]
    losses = [key for key in logged if is_loss(key)][:2]
    measured = [one["key"] for one in panels if one["unit"] != PLAIN]
    return [*(losses or logged[:1]), *measured[:3]]


def _reach(drawing: RunDrawing) -> tuple[float, float]:
    """The begin and the end of what is known."""
    begins = [epoch.begun for epoch in drawing.epochs if is_known(epoch.begun)]
    ends = [_end(epoch) for epoch in drawing.epochs if is_known(epoch.begun)]
    for series in (*(one.series for one in drawing.gpus), drawing.logged):
        if series.points:
            begins.append(series.begun)
            ends.append(series.begun + series.points * series.step)
    begin = min(begins, default=drawing.run.started)
    return moment(begin), moment(max(ends, default=begin))


def _end(epoch: EpochSummary) -> float:
    if is_known(epoch.ended):
        return epoch.ended
    return epoch.begun + (epoch.seconds if epoch.seconds > 0 else 0.0)


def times_of(series: RunSeries) -> list[float]:
    """The times of the points of a series, s since 1970."""
    return [moment(series.begun + (place + 0.5) * series.step) for place in range(series.points)]


def _measured(drawing: RunDrawing) -> Iterator[Cells]:
    gpus = drawing.gpus
    if not gpus:
        return
    if drawing.is_each:
        yield from _each(gpus)
        return
    together = mean_of(gpus)
    times, columns = times_of(together), together.columns
    many = len(gpus)
    for name in OF_DEVICE:
        if name not in columns or not any(is_known(value) for value in columns[name].mean):
            continue
        found = power_of(gpus, together) if name == "gpu.power" and many > 1 else columns[name]
        drawn = [line(times, found.mean, low=_numbers(found.low), high=_numbers(found.high), step=together.step)]
        more: dict[str, Any] = {}
        if many > 1 and name != "gpu.power":
            more["below"] = f"mean of {many} GPUs"
            more["shade"] = "lowest to highest"
        if drawing.total is not None and is_known(whole := drawing.total.value(OF_DEVICE[name])):
            more["whole"] = whole
        if name == "gpu.memory_used":
            more |= {"title": DEVICE_MEMORY, **_total(gpus[0].device)}
            if many == 1 and "gpu.run_allocated" in columns and any(map(is_known, columns["gpu.run_allocated"].mean)):
                drawn.append(line(times, columns["gpu.run_allocated"].mean, look=_THIN, label="allocated"))
        if name == "gpu.power":
            limits = [one.device.power_limit for one in gpus]
            watts = sum(limits) if all(is_known(one) for one in limits) else math.nan
            more["limits"] = limit(watts, f"power limit {f'of {many} GPUs ' if many > 1 else ''}{watts:,.0f} W")
            more["title"] = BY_NAME[name].title + (f", sum of {many} GPUs" if many > 1 else "")
            more["counted"] = True
        yield metric_panel(name, drawn, **more)


def _each(gpus: Sequence[DeviceCourse]) -> Iterator[Cells]:
    for name in OF_DEVICE:
        lines = [
            line(
                times_of(one.series), one.series.columns[name].mean, step=one.series.step,
                role=ROLES[place % len(ROLES)], label=f"GPU {one.device.number}", mark=f"GPU {one.device.number}",
            )
            for place, one in enumerate(gpus) if name in one.series.columns
        ]  # fmt: skip
        if lines:
            more = {"title": DEVICE_MEMORY, **_total(gpus[0].device)} if name == "gpu.memory_used" else {}
            yield metric_panel(name, lines, lists=True, tall=listing(len(lines)), **more)


def listing(lines: int) -> int:
    """Height of a panel with the values of so many lines beside it, px."""
    return max(_LEAST, 8 + _ROW * (lines + 1))


def _total(device: DeviceRow) -> dict[str, Any]:
    return {"top": device.memory_total} if device.memory_total > 0 else {}


def _numbers(values: Sequence[float]) -> list[float | None]:
    return [float(f"{value:.6g}") if math.isfinite(value) else None for value in values]


def _logged(drawing: RunDrawing) -> Iterator[Cells]:
    """A panel for each logged metric, that on other data beside its own on the data of training."""
    ended = [epoch for epoch in drawing.epochs if is_known(epoch.ended)]
    names = dict.fromkeys([*drawing.logged.columns, *(name for epoch in ended[-100:] for name in epoch.metrics)])
    pairs = {name: next((base for lead in CHECKED if (base := name.removeprefix(lead)) != name and base in names), "")
             for name in names}  # fmt: skip
    breaks = _breaks(drawing)
    for name in sorted(names, key=lambda one: (not is_loss(one), [*names].index(one))):
        if pairs[name]:
            continue
        drawn, is_of_steps = _line(drawing, ended, name, breaks)
        sampled = _sampled_odd(drawing, name)
        odd = sampled if is_of_steps else odd_points(sampled, ended, name)
        lines = [with_odd(drawn, odd)] if drawn else []
        for other in (one for one, base in pairs.items() if base == name):
            dots = _ends(ended, other, drawing)
            if dots is not None:
                dots = with_odd(dots, _ended_odd(ended, other))
                lines.append({**dots, "role": _INK, "look": _DOTS, "label": clean(other, NAME_CELLS)})
        # Beside values of steps, that of an epoch may be their mean.
        at_end = _ends(ended, name, drawing) if is_of_steps else None
        if at_end is not None:
            label = f"{clean(name, NAME_CELLS)}, end of epoch"
            lines.append({**with_odd(at_end, _ended_odd(ended, name)), "look": _DOTS, "label": label})
        if lines:
            yield panel(f"logged.{name[:80]}", clean(name, NAME_CELLS) or "unnamed", PLAIN, lines, tall=112)


def is_loss(name: str) -> bool:
    """Whether what was logged under a name is a loss, by the name."""
    return name.endswith("loss") or name == "perplexity"


def _line(
    drawing: RunDrawing, ended: Sequence[EpochSummary], name: str, breaks: Sequence[float]
) -> tuple[Cells | None, bool]:
    """The values of one metric joined, as not every moment has one: with a gap where nothing was seen.

    And whether they are of steps, without those of the ends of epochs.
    """
    logged = drawing.logged
    if name not in logged.columns:
        return _ends(ended, name, drawing), False
    odd = [moment(time) for time, _ in _sampled_odd(drawing, name)]
    breaks = sorted([*breaks, *odd])
    points: list[LoggedPoint] = []
    place = 0
    course = logged_series(drawing.run.ended, logged, name, drawing.epochs, is_sample=drawing.long is not None)
    for point in course.points:
        if place < len(breaks) and point[0] >= breaks[place]:
            while place < len(breaks) and point[0] >= breaks[place]:
                place += 1
            if points:
                points.append((breaks[place - 1], NAN, NAN, NAN))
        points.append(point)
    if not points:
        return _ends(ended, name, drawing), False
    points = _fewer(points)
    mean, low, high = (_numbers([point[part] for point in points]) for part in (1, 2, 3))
    envelope = {"low": low, "high": high} if low != mean or high != mean else {}
    return {"x": [moment(point[0]) for point in points], "mean": mean, "joined": True, **envelope}, course.is_of_steps


def _fewer(points: list[LoggedPoint]) -> list[LoggedPoint]:
    """No more than `MOST` points between breaks: neighbors as one, the last of them with the lowest and the highest."""
    every = -(-len(points) // MAX_POINTS)
    if every == 1:
        return points
    found: list[LoggedPoint] = []
    for is_number, part in groupby(points, lambda point: is_known(point[1])):
        together = list(part)
        for first in range(0, len(together), every):
            some = together[first : first + every]
            time, value, low, high = some[-1]
            if is_number:
                low, high = min(one[2] for one in some), max(one[3] for one in some)
            found.append((time, value, low, high))
    return found


def _ends(ended: Sequence[EpochSummary], name: str, drawing: RunDrawing) -> Cells | None:
    """Values logged by the end of each epoch, and a gap behind each that broke off; None where there is no value."""
    points = [(epoch.ended, epoch.metrics[name]) for epoch in ended if math.isfinite(epoch.metrics.get(name, math.nan))]
    points = points[:: max(1, -(-len(points) // MAX_POINTS))]
    if not points:
        return None
    breaks = [(time, NAN) for time in broken_off(drawing.epochs, drawing.run.ended) if time < points[-1][0]]
    points = sorted([*points, *breaks])
    return {**line([moment(time) for time, _ in points], [value for _, value in points]), "joined": True}


def _breaks(drawing: RunDrawing) -> list[float]:
    gaps = [begin for one in drawing.gpus[:1] for begin, _ in unsampled_spans(one.series)]
    return sorted(moment(begin) for begin in gaps)


def _ribbon(drawing: RunDrawing, end: float) -> Cells:
    known = [epoch for epoch in drawing.epochs if is_known(epoch.begun)]
    lengths = sorted(epoch.seconds for epoch in known if is_known(epoch.ended) and epoch.seconds > 0)
    median = lengths[len(lengths) // 2] if len(lengths) > 2 else math.inf
    running = drawing.run.state is RunState.RUNNING
    verdicts = verdicts_of(known, running=running) if drawing.verdicts is None else drawing.verdicts
    needing = {ordinal for ordinal, judged in verdicts.items() if judged and judged.needs_a_look}
    bands = [] if drawing.long is None else _bands(drawing.long, needing, SLOW * median, is_judged=drawing.is_judged)
    since = drawing.long.begun if drawing.long else 0
    if bands and known and known[-1].ordinal == since - 1:
        bands[-1][1] = round(_end(known[-1]), 2)  # the ring may know more of it
    for epoch in (one for one in known if one.ordinal >= since):
        # The first epoch of most trainings is longer than the others: it compiles, fills caches, and begins workers.
        is_slow = is_known(epoch.ended) and epoch is not known[0] and epoch.seconds > SLOW * median
        level = "warn" if is_slow or (is_known(epoch.ended) and epoch.ordinal in needing) else ""
        band = [round(epoch.begun, 2), round(_end(epoch), 2), epoch.epoch]
        bands.append([*band, level] if level else band)
    phases = [[begin, end if last is None else last, name] for begin, last, name in drawing.phases
              if last is not None or begin < end]  # fmt: skip
    run = drawing.run
    return ribbon(run.id, run.name.strip() or run.id, run.user, bands, phases)


def _bands(long: LongRun, needing: Collection[int], slow: float, *, is_judged: bool) -> list[list[Any]]:
    """The epochs of a long run, several as one: [begin, end, first number, level, last number]."""
    wanted = sorted(needing if is_judged else {*needing, *long.suspects})
    found = []
    for one in long.bands:
        is_wanted = bisect_left(wanted, one.first) < bisect_right(wanted, one.last)
        level = "warn" if is_wanted or one.longest > slow else ""
        end = one.ended if is_known(one.ended) else one.begun
        found.append([round(one.begun, 2), round(end, 2), one.first_epoch, level, one.last_epoch])
    return found


def _events(drawing: RunDrawing) -> list[Cells]:
    found = [
        event(mark.time, "bad", "out of memory") for mark in drawing.marks
        if mark.mark is Mark.OUT_OF_MEMORY and is_known(mark.time)
    ]  # fmt: skip
    for name in dict.fromkeys([*drawing.logged.columns, *(name for one in drawing.epochs for name in one.metrics)]):
        odd = odd_points(_sampled_odd(drawing, name), drawing.epochs, name)
        turns = _turns(odd, _numbers_at(drawing, name))
        found += [event(time, "bad", f"{clean(name, NAME_CELLS)} is {_word(value)}") for time, value in turns]
    return found


def odd_points(sampled: Sequence[Odd], epochs: Sequence[EpochSummary], name: str) -> list[Odd]:
    """Times at which a metric was logged that was no number, in samples or with an epoch, and what it was."""
    return sorted([*sampled, *_ended_odd(epochs, name)], key=itemgetter(0))


def _sampled_odd(drawing: RunDrawing, name: str) -> Sequence[Odd]:
    return (drawing.diverged or diverged_points(drawing.logged)).get(name, ())


def _ended_odd(epochs: Sequence[EpochSummary], name: str) -> list[Odd]:
    return [(one.ended, one.metrics[name]) for one in epochs
            if is_known(one.ended) and not math.isfinite(one.metrics.get(name, 0.0))]  # fmt: skip


def _numbers_at(drawing: RunDrawing, name: str) -> list[float]:
    """Times at which a metric was a number, in order."""
    ended = [one.ended for one in drawing.epochs if is_known(one.ended) and is_known(one.metrics.get(name, NAN))]
    logged = drawing.logged
    means = logged.columns[name].mean if name in logged.columns else ()
    times = zip(times_of(logged), means, strict=False)
    return sorted([*(time for time, value in times if math.isfinite(value)), *ended])


def _turns(odd: Sequence[Odd], numbers: Sequence[float]) -> list[Odd]:
    """Of what was no number, what stands behind a number, or is another than the one before it."""
    return [
        (time, value) for place, (time, value) in enumerate(odd)
        if place == 0 or _word(value) != _word(odd[place - 1][1])
        or bisect_left(numbers, odd[place - 1][0]) < bisect_left(numbers, time)
    ]  # fmt: skip


def with_odd(drawn: Cells, odd: Sequence[Odd]) -> Cells:
    """A line, with the time since which what is logged is no number, and the word for it, if it is none at the end."""
    known = (x for x, value in zip(drawn["x"], drawn["mean"], strict=True) if value is not None)
    newest = max(known, default=-math.inf)
    behind = [(moment(time), value) for time, value in odd if moment(time) > newest]
    return {**drawn, "odd": [behind[0][0], _word(behind[-1][1])]} if behind else drawn


def _word(value: float) -> str:
    return "NaN" if not is_known(value) else "infinite" if value > 0 else "−infinite"
