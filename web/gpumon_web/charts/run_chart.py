"""The chart of a run: logged metrics, its GPUs combined or each by itself, epochs, phases and events."""

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
"""Title of the memory of all processes, as opposed to live tensors, as in the tables of a run."""
LOGGED = 12
"""Most logged metrics with a panel; the chart states if there are more."""
OF_DEVICE = {
    "gpu.utilization": "utilization_mean", "gpu.memory_used": "memory_used_peak", "gpu.power": "power_mean",
    "gpu.temperature": "temperature_peak",
}  # fmt: skip
"""GPU metrics with a panel, and the column with their value for the whole run."""
ROLES = tuple(f"s{place}" for place in range(8))
"""Color roles of lines, one per GPU or run."""
_ROW, _LEAST = 18, 92
"""Height of a row in the list beside a panel, and the least height of a panel (px)."""
CHECKED = ("val_", "valid_", "validation_", "eval_", "test_")
"""Prefixes of metrics logged on validation or test data."""
NAME_CELLS = 40
SLOW = 1.05
"""Factor of the median epoch time above which an epoch is slow."""
_INK, _THIN, _DOTS = "ink", "thin", "dots"
Odd = tuple[float, float]
"""Time (s since 1970) and the logged value, NaN or infinite."""


class RunDrawing(NamedTuple):
    """The data of a run's chart."""

    run: RunRow
    gpus: Sequence[DeviceCourse]
    """GPUs to draw."""
    logged: RunSeries
    epochs: Sequence[EpochSummary]
    marks: Sequence[MarkRow]
    phases: Sequence[Sequence[Any]]
    """[begin, end or None, name], oldest first."""
    diverged: Mapping[str, Sequence[tuple[float, float]]] | None = None
    is_each: bool = False
    """Whether to draw each GPU by itself instead of the mean."""
    phases_in_all: int = 0
    """Total number of phases; `phases` may only have the newest."""
    total: EpochSummary | None = None
    """Summary of the whole run on these GPUs from all samples; the chart lacks those at the very begin."""
    verdicts: Verdicts | None = None
    """Verdicts on the epochs, if already computed."""
    long: LongRun | None = None
    """Times of all epochs, and those that may need attention; only set for a long run, with some `epochs`."""
    is_judged: bool = True
    """Whether `epochs` includes all epochs that may need attention."""


def run_chart(drawing: RunDrawing, of_all: int = 1) -> Cells | None:
    """Create the chart; None if there is nothing to draw. `of_all`: number of GPUs of the run."""
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
    """Return the default panels: losses, or the first logged metric, and GPU metrics."""
    logged = [one["key"] for one in panels if one["unit"] == PLAIN]
    losses = [key for key in logged if is_loss(key)][:2]
    measured = [one["key"] for one in panels if one["unit"] != PLAIN]
    return [*(losses or logged[:1]), *measured[:3]]


def _reach(drawing: RunDrawing) -> tuple[float, float]:
    """Return the begin and the end of the data."""
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
    """Return the times of the points of a series (s since 1970)."""
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
    """Return the height (px) of a panel with a list of `lines` values beside it."""
    return max(_LEAST, 8 + _ROW * (lines + 1))


def _total(device: DeviceRow) -> dict[str, Any]:
    return {"top": device.memory_total} if device.memory_total > 0 else {}


def _numbers(values: Sequence[float]) -> list[float | None]:
    return [float(f"{value:.6g}") if math.isfinite(value) else None for value in values]


def _logged(drawing: RunDrawing) -> Iterator[Cells]:
    """Yield a panel for each logged metric; validation values are drawn with the training metric of the same name."""
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
        # The value at the end of an epoch may be the mean of its steps, so it is drawn separately.
        at_end = _ends(ended, name, drawing) if is_of_steps else None
        if at_end is not None:
            label = f"{clean(name, NAME_CELLS)}, end of epoch"
            lines.append({**with_odd(at_end, _ended_odd(ended, name)), "look": _DOTS, "label": label})
        if lines:
            yield panel(f"logged.{name[:80]}", clean(name, NAME_CELLS) or "unnamed", PLAIN, lines, tall=112)


def is_loss(name: str) -> bool:
    """Whether a logged metric is a loss, judging by its name."""
    return name.endswith("loss") or name == "perplexity"


def _line(
    drawing: RunDrawing, ended: Sequence[EpochSummary], name: str, breaks: Sequence[float]
) -> tuple[Cells | None, bool]:
    """Return the line of one metric, and whether its values are of steps rather than of epoch ends.

    Points are joined, as not every sample has a value, with a gap where nothing was sampled.
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
    """Thin to about `MAX_POINTS` points: of neighbors the last value is kept, with their lowest and highest."""
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
    """Return the line of values at epoch ends, with a gap after interrupted epochs; None if there is no value."""
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
        bands[-1][1] = round(_end(known[-1]), 2)  # the ring may have newer data of it
    for epoch in (one for one in known if one.ordinal >= since):
        # The first epoch usually takes longer: it compiles, fills caches and starts data-loading workers.
        is_slow = is_known(epoch.ended) and epoch is not known[0] and epoch.seconds > SLOW * median
        level = "warn" if is_slow or (is_known(epoch.ended) and epoch.ordinal in needing) else ""
        band = [round(epoch.begun, 2), round(_end(epoch), 2), epoch.epoch]
        bands.append([*band, level] if level else band)
    phases = [[begin, end if last is None else last, name] for begin, last, name in drawing.phases
              if last is not None or begin < end]  # fmt: skip
    run = drawing.run
    return ribbon(run.id, run.name.strip() or run.id, run.user, bands, phases)


def _bands(long: LongRun, needing: Collection[int], slow: float, *, is_judged: bool) -> list[list[Any]]:
    """Return groups of epochs of a long run: [begin, end, first number, level, last number]."""
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
    """Return the times and values at which a metric was NaN or infinite, in samples or at epoch ends."""
    return sorted([*sampled, *_ended_odd(epochs, name)], key=itemgetter(0))


def _sampled_odd(drawing: RunDrawing, name: str) -> Sequence[Odd]:
    return (drawing.diverged or diverged_points(drawing.logged)).get(name, ())


def _ended_odd(epochs: Sequence[EpochSummary], name: str) -> list[Odd]:
    return [(one.ended, one.metrics[name]) for one in epochs
            if is_known(one.ended) and not math.isfinite(one.metrics.get(name, 0.0))]  # fmt: skip


def _numbers_at(drawing: RunDrawing, name: str) -> list[float]:
    """Return the times at which a metric was finite, in order."""
    ended = [one.ended for one in drawing.epochs if is_known(one.ended) and is_known(one.metrics.get(name, NAN))]
    logged = drawing.logged
    means = logged.columns[name].mean if name in logged.columns else ()
    times = zip(times_of(logged), means, strict=False)
    return sorted([*(time for time, value in times if math.isfinite(value)), *ended])


def _turns(odd: Sequence[Odd], numbers: Sequence[float]) -> list[Odd]:
    """Return the odd values that follow a finite value, or differ from the odd value before them."""
    return [
        (time, value) for place, (time, value) in enumerate(odd)
        if place == 0 or _word(value) != _word(odd[place - 1][1])
        or bisect_left(numbers, odd[place - 1][0]) < bisect_left(numbers, time)
    ]  # fmt: skip


def with_odd(drawn: Cells, odd: Sequence[Odd]) -> Cells:
    """Add to a line that ends with NaN or infinity the time since when, and the name of the value."""
    known = (x for x, value in zip(drawn["x"], drawn["mean"], strict=True) if value is not None)
    newest = max(known, default=-math.inf)
    behind = [(moment(time), value) for time, value in odd if moment(time) > newest]
    return {**drawn, "odd": [behind[0][0], _word(behind[-1][1])]} if behind else drawn


def _word(value: float) -> str:
    return "NaN" if not is_known(value) else "infinite" if value > 0 else "−infinite"
