"""The chart of a run: logged metrics, its GPUs combined or each by itself, epochs, phases and events."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from gpumon.analysis.memory import BREAKDOWN_METRICS, PARTS, MemoryBreakdown, memory_breakdown, titles
from gpumon.common.numbers import NAN, is_known
from gpumon.common.text import clean
from gpumon.diagnosis.past_findings import Verdicts, verdicts_of
from gpumon.model.columns import USAGE
from gpumon.model.frame import Mark, RunState
from gpumon.model.metrics import BY_NAME
from gpumon.reports.figures.document import (
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
    numbers,
    panel,
    ribbon,
)
from gpumon.reports.figures.logged import LoggedPoint, broken_off, logged_series
from gpumon.reports.figures.run_gpus import DeviceCourse, mean_of, power_of, unseen
from gpumon.reports.figures.run_series import RunSeries, diverged_points, unsampled_spans
from gpumon.storage.history.query import MAX_POINTS
from gpumon.storage.ledger.long_run import LongRun
from gpumon.storage.ledger.records import USAGE_INDEX, DeviceRow, MarkRow, RunRow
from gpumon.storage.ledger.summary import EpochSummary

DEVICE_MEMORY = USAGE[USAGE_INDEX["memory_used_mean"]].title
"""Title of the memory of all processes (in contrast to live tensors). It is the same in the tables of a run."""
LOGGED = 12
"""Maximum number of logged metrics with a panel. If there are more, the chart says so."""
OF_DEVICE = {
    "gpu.utilization": "utilization_mean", "gpu.memory_used": "memory_used_peak", "gpu.power": "power_mean",
    "gpu.temperature": "temperature_peak",
}  # fmt: skip
"""GPU metrics with a panel, each with the column that has its value for the whole run."""
ROLES = tuple(f"s{index}" for index in range(8))
"""Color roles of lines, one per GPU or run."""
_ROW, _LEAST = 18, 92
"""Height of a row in the list next to a panel, and the minimum height of a panel (px)."""
CHECKED = ("val_", "valid_", "validation_", "eval_", "test_")
"""Prefixes of metrics logged on validation or test data."""
NAME_CELLS = 40
SLOW = 1.05
"""An epoch is slow if it takes longer than the median epoch by this factor."""
_INK, _THIN, _DOTS = "ink", "thin", "dots"
STACKED = "stacked"
"""Look of lines whose areas are drawn on top of each other."""
MEMORY_COLORS = ("@u0/0.85", "@u0/0.4", "@u4/0.6", "@u1/0.65", "@u7/0.1", "@u7/0.35")
"""Colors of the parts of device memory, in the order of `memory.PARTS`."""
_UNDIVIDED = MemoryBreakdown(allocated=NAN, cached=NAN, context=NAN, others=NAN, free=NAN, driver=NAN)
NonFinite = tuple[float, float]
"""Time (s since 1970) and the logged value, NaN or infinite."""


class RunDrawing(NamedTuple):
    """The data of the chart of a run."""

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
    """Total number of phases. `phases` may contain only the newest ones."""
    total: EpochSummary | None = None
    """Summary of the whole run on these GPUs, from all samples. The chart lacks the samples at the very beginning."""
    verdicts: Verdicts | None = None
    """Verdicts on the epochs, if already computed."""
    long: LongRun | None = None
    """Times of all epochs, and the epochs that may need attention. Set only for a long run, in which `epochs` is only a
    part of the epochs."""
    is_judged: bool = True
    """Whether `epochs` includes all epochs that may need attention."""
    has_memory_parts: bool = False
    """Whether the memory of a single GPU is drawn as a stack of its parts."""


def run_chart(drawing: RunDrawing, of_all: int = 1) -> Cells | None:
    """Create the chart; None if there is nothing to draw. `of_all`: number of GPUs of the run."""
    logged = [*_logged_panels(drawing)]
    panels = [*logged[:LOGGED], *_gpu_panels(drawing)]
    if not panels:
        return None
    begin, end = _time_range(drawing)
    epoch_notes = [(len(drawing.epochs), drawing.long.begun, "values at the end of epochs")] if drawing.long else []
    omissions = left_out(
        [
            (min(LOGGED, len(logged)), len(logged), METRICS),
            (len(drawing.phases), drawing.phases_in_all, "phases"),
            *epoch_notes,
        ]
    )
    step = max((gpu.series.step for gpu in drawing.gpus), default=drawing.logged.step)
    return chart(
        panels,
        begin,
        end,
        interval=step,
        step=step,
        all=[
            {"key": entry["key"], "title": entry["title"], "usual": entry["key"] in _usual(panels)} for entry in panels
        ],
        gpus=of_all,
        runs=[_ribbon(drawing, end)],
        events=marks_on(_events(drawing), begin, end),
        held=[[begin, end, drawing.run.user]],
        goesOn=drawing.run.state is RunState.RUNNING,
        spans=True,
        unseen=unseen(drawing.gpus, begin, end, goes_on=drawing.run.state is RunState.RUNNING),
        **omissions,
    )


def _usual(panels: Sequence[Cells]) -> list[str]:
    """Return the default panels: losses, or the first logged metric, and GPU metrics."""
    logged = [entry["key"] for entry in panels if entry["unit"] == PLAIN]
    losses = [key for key in logged if is_loss(key)][:2]
    measured = [entry["key"] for entry in panels if entry["unit"] != PLAIN]
    return [*(losses or logged[:1]), *measured[:3]]


def _time_range(drawing: RunDrawing) -> tuple[float, float]:
    """Return the start and the end of the data."""
    begins = [epoch.begun for epoch in drawing.epochs if is_known(epoch.begun)]
    ends = [_end(epoch) for epoch in drawing.epochs if is_known(epoch.begun)]
    for series in (*(gpu.series for gpu in drawing.gpus), drawing.logged):
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
    return [moment(series.begun + (index + 0.5) * series.step) for index in range(series.points)]


def _gpu_panels(drawing: RunDrawing) -> Iterator[Cells]:
    gpus = drawing.gpus
    if not gpus:
        return
    if drawing.is_each:
        yield from _panels_by_gpu(gpus)
        return
    combined = mean_of(gpus)
    times, columns = times_of(combined), combined.columns
    count = len(gpus)
    for name in OF_DEVICE:
        if name not in columns or not any(is_known(value) for value in columns[name].mean):
            continue
        envelope = power_of(gpus, combined) if name == "gpu.power" and count > 1 else columns[name]
        low, high = numbers(envelope.low), numbers(envelope.high)
        curves = [line(times, envelope.mean, low=low, high=high, step=combined.step)]
        fields: dict[str, Any] = {}
        if count > 1 and name != "gpu.power":
            fields["below"] = f"mean of {count} GPUs"
            fields["shade"] = "lowest to highest"
        if drawing.total is not None and is_known(total := drawing.total.value(OF_DEVICE[name])):
            fields["whole"] = total
        if name == "gpu.memory_used":
            fields |= {"title": DEVICE_MEMORY, **_memory_limit(gpus[0].device)}
            if count == 1 and "gpu.run_allocated" in columns and any(map(is_known, columns["gpu.run_allocated"].mean)):
                curves.append(line(times, columns["gpu.run_allocated"].mean, look=_THIN, label="allocated"))
        if name == "gpu.power":
            limits = [gpu.device.power_limit for gpu in gpus]
            watts = sum(limits) if all(is_known(power_limit) for power_limit in limits) else math.nan
            fields["limits"] = limit(watts, f"power limit {f'of {count} GPUs ' if count > 1 else ''}{watts:,.0f} W")
            fields["title"] = BY_NAME[name].title + (f", sum of {count} GPUs" if count > 1 else "")
            fields["counted"] = True
        if name == "gpu.memory_used" and drawing.has_memory_parts and count == 1:
            curves = memory_lines(combined, gpus[0].device)
        if curves:
            yield metric_panel(name, curves, **fields)


def memory_lines(series: RunSeries, device: DeviceRow) -> list[Cells]:
    """Return the parts of a device's memory as lines to be stacked, without parts that it never had."""
    inputs = {name: [NAN] * series.points for name in BREAKDOWN_METRICS}
    inputs["gpu.memory_total"] = [device.memory_total] * series.points
    inputs |= {name: list(envelope.mean) for name, envelope in series.columns.items() if name in inputs}
    breakdowns = [
        memory_breakdown(*amounts) or _UNDIVIDED
        for amounts in zip(*(inputs[name] for name in BREAKDOWN_METRICS), strict=True)
    ]
    names = titles(breakdowns)
    times = times_of(series)
    return [
        line(times, values, step=series.step, role=color.removeprefix("@"), look=STACKED, label=names[part.name])
        for part, color, values in zip(PARTS, MEMORY_COLORS, zip(*breakdowns, strict=True), strict=True)
        if any(value > 0 for value in values)
    ]


def _panels_by_gpu(gpus: Sequence[DeviceCourse]) -> Iterator[Cells]:
    for name in OF_DEVICE:
        lines = [
            line(
                times_of(gpu.series), gpu.series.columns[name].mean, step=gpu.series.step,
                role=ROLES[index % len(ROLES)], label=f"GPU {gpu.device.number}", mark=f"GPU {gpu.device.number}",
            )
            for index, gpu in enumerate(gpus) if name in gpu.series.columns
        ]  # fmt: skip
        if lines:
            fields = {"title": DEVICE_MEMORY, **_memory_limit(gpus[0].device)} if name == "gpu.memory_used" else {}
            yield metric_panel(name, lines, lists=True, tall=listing(len(lines)), **fields)


def listing(lines: int) -> int:
    """Return the height (px) of a panel with a list of `lines` values next to it."""
    return max(_LEAST, 8 + _ROW * (lines + 1))


def _memory_limit(device: DeviceRow) -> dict[str, Any]:
    return {"top": device.memory_total} if device.memory_total > 0 else {}


def _logged_panels(drawing: RunDrawing) -> Iterator[Cells]:
    """Yield a panel for each logged metric.

    Validation values are drawn in the panel of the training metric of the same name.
    """
    ended = [epoch for epoch in drawing.epochs if is_known(epoch.ended)]
    names = dict.fromkeys([*drawing.logged.columns, *(name for epoch in ended[-100:] for name in epoch.metrics)])
    pairs = {name: next((base for lead in CHECKED if (base := name.removeprefix(lead)) != name and base in names), "")
             for name in names}  # fmt: skip
    breaks = _unsampled_begins(drawing)
    for name in sorted(names, key=lambda metric: (not is_loss(metric), [*names].index(metric))):
        if pairs[name]:
            continue
        curve, is_of_steps = _logged_line(drawing, ended, name, breaks)
        sampled = _sampled_non_finite(drawing, name)
        non_finite = sampled if is_of_steps else non_finite_points(sampled, ended, name)
        lines = [mark_non_finite(curve, non_finite)] if curve else []
        for other in (candidate for candidate, base in pairs.items() if base == name):
            dots = _epoch_end_line(ended, other, drawing)
            if dots is not None:
                dots = mark_non_finite(dots, _epoch_end_non_finite(ended, other))
                lines.append({**dots, "role": _INK, "look": _DOTS, "label": clean(other, NAME_CELLS)})
        # The value at the end of an epoch may be the mean of its steps, so it is drawn separately.
        at_end = _epoch_end_line(ended, name, drawing) if is_of_steps else None
        if at_end is not None:
            label = f"{clean(name, NAME_CELLS)}, end of epoch"
            lines.append({**mark_non_finite(at_end, _epoch_end_non_finite(ended, name)), "look": _DOTS, "label": label})
        if lines:
            yield panel(f"logged.{name[:80]}", clean(name, NAME_CELLS) or "unnamed", PLAIN, lines, tall=112)


def is_loss(name: str) -> bool:
    """Whether the name of a logged metric shows that it is a loss."""
    return name.endswith("loss") or name == "perplexity"


def _logged_line(
    drawing: RunDrawing, ended: Sequence[EpochSummary], name: str, breaks: Sequence[float]
) -> tuple[Cells | None, bool]:
    """Return the line of a metric, and whether its values are from steps (True) or from the ends of epochs (False).

    Not every sample has a value, so points are joined. The line has a gap where nothing was sampled.
    """
    logged = drawing.logged
    if name not in logged.columns:
        return _epoch_end_line(ended, name, drawing), False
    non_finite = [moment(time) for time, _ in _sampled_non_finite(drawing, name)]
    breaks = sorted([*breaks, *non_finite])
    points: list[LoggedPoint] = []
    index = 0
    course = logged_series(drawing.run.ended, logged, name, drawing.epochs, is_sample=drawing.long is not None)
    for point in course.points:
        if index < len(breaks) and point[0] >= breaks[index]:
            while index < len(breaks) and point[0] >= breaks[index]:
                index += 1
            if points:
                points.append((breaks[index - 1], NAN, NAN, NAN))
        points.append(point)
    if not points:
        return _epoch_end_line(ended, name, drawing), False
    points = _thin(points)
    mean, low, high = (numbers([point[part] for point in points]) for part in (1, 2, 3))
    envelope = {"low": low, "high": high} if low != mean or high != mean else {}
    return {"x": [moment(point[0]) for point in points], "mean": mean, "joined": True, **envelope}, course.is_of_steps


def _thin(points: list[LoggedPoint]) -> list[LoggedPoint]:
    """Reduce to about `MAX_POINTS` points. Neighbors become one point with their last, lowest and highest value."""
    stride = -(-len(points) // MAX_POINTS)
    if stride == 1:
        return points
    thinned: list[LoggedPoint] = []
    for is_number, part in groupby(points, lambda point: is_known(point[1])):
        neighbors = list(part)
        for first in range(0, len(neighbors), stride):
            group = neighbors[first : first + stride]
            time, value, low, high = group[-1]
            if is_number:
                low, high = min(point[2] for point in group), max(point[3] for point in group)
            thinned.append((time, value, low, high))
    return thinned


def _epoch_end_line(ended: Sequence[EpochSummary], name: str, drawing: RunDrawing) -> Cells | None:
    """Return the line of values at the ends of epochs, with a gap after an interrupted epoch.

    None if there are no values.
    """
    points = [(epoch.ended, epoch.metrics[name]) for epoch in ended if math.isfinite(epoch.metrics.get(name, math.nan))]
    points = points[:: max(1, -(-len(points) // MAX_POINTS))]
    if not points:
        return None
    breaks = [(time, NAN) for time in broken_off(drawing.epochs, drawing.run.ended) if time < points[-1][0]]
    points = sorted([*points, *breaks])
    return {**line([moment(time) for time, _ in points], [value for _, value in points]), "joined": True}


def _unsampled_begins(drawing: RunDrawing) -> list[float]:
    gaps = [begin for gpu in drawing.gpus[:1] for begin, _ in unsampled_spans(gpu.series)]
    return sorted(moment(begin) for begin in gaps)


def _ribbon(drawing: RunDrawing, end: float) -> Cells:
    epochs = [epoch for epoch in drawing.epochs if is_known(epoch.begun)]
    lengths = sorted(epoch.seconds for epoch in epochs if is_known(epoch.ended) and epoch.seconds > 0)
    median = lengths[len(lengths) // 2] if len(lengths) > 2 else math.inf
    running = drawing.run.state is RunState.RUNNING
    verdicts = verdicts_of(epochs, running=running) if drawing.verdicts is None else drawing.verdicts
    flagged = {ordinal for ordinal, judged in verdicts.items() if judged and judged.needs_a_look}
    bands = [] if drawing.long is None else _bands(drawing.long, flagged, SLOW * median, is_judged=drawing.is_judged)
    since = drawing.long.begun if drawing.long else 0
    if bands and epochs and epochs[-1].ordinal == since - 1:
        bands[-1][1] = round(_end(epochs[-1]), 2)  # the ring may have newer data of this epoch
    for epoch in (candidate for candidate in epochs if candidate.ordinal >= since):
        # The first epoch usually takes longer, because it compiles, fills caches and starts data-loading workers.
        is_slow = is_known(epoch.ended) and epoch is not epochs[0] and epoch.seconds > SLOW * median
        level = "warn" if is_slow or (is_known(epoch.ended) and epoch.ordinal in flagged) else ""
        band = [round(epoch.begun, 2), round(_end(epoch), 2), epoch.epoch]
        bands.append([*band, level] if level else band)
    phases = [[begin, end if phase_end is None else phase_end, name] for begin, phase_end, name in drawing.phases
              if phase_end is not None or begin < end]  # fmt: skip
    run = drawing.run
    return ribbon(run.id, run.name.strip() or run.id, run.user, bands, phases)


def _bands(long: LongRun, flagged: Collection[int], slow: float, *, is_judged: bool) -> list[list[Any]]:
    """Return groups of epochs of a long run, as lists [begin, end, first number, level, last number]."""
    ordinals = sorted(flagged if is_judged else {*flagged, *long.suspects})
    bands = []
    for band in long.bands:
        is_wanted = bisect_left(ordinals, band.first) < bisect_right(ordinals, band.last)
        level = "warn" if is_wanted or band.longest > slow else ""
        end = band.ended if is_known(band.ended) else band.begun
        bands.append([round(band.begun, 2), round(end, 2), band.first_epoch, level, band.last_epoch])
    return bands


def _events(drawing: RunDrawing) -> list[Cells]:
    events = [
        event(mark.time, "bad", "out of memory") for mark in drawing.marks
        if mark.mark is Mark.OUT_OF_MEMORY and is_known(mark.time)
    ]  # fmt: skip
    for name in dict.fromkeys([*drawing.logged.columns, *(name for epoch in drawing.epochs for name in epoch.metrics)]):
        non_finite = non_finite_points(_sampled_non_finite(drawing, name), drawing.epochs, name)
        turns = _changes(non_finite, _finite_times(drawing, name))
        events += [event(time, "bad", f"{clean(name, NAME_CELLS)} is {_value_name(value)}") for time, value in turns]
    return events


def non_finite_points(sampled: Sequence[NonFinite], epochs: Sequence[EpochSummary], name: str) -> list[NonFinite]:
    """Return the times and values at which a metric was NaN or infinite, in samples or at epoch ends."""
    return sorted([*sampled, *_epoch_end_non_finite(epochs, name)], key=itemgetter(0))


def _sampled_non_finite(drawing: RunDrawing, name: str) -> Sequence[NonFinite]:
    return (drawing.diverged or diverged_points(drawing.logged)).get(name, ())


def _epoch_end_non_finite(epochs: Sequence[EpochSummary], name: str) -> list[NonFinite]:
    return [(epoch.ended, epoch.metrics[name]) for epoch in epochs
            if is_known(epoch.ended) and not math.isfinite(epoch.metrics.get(name, 0.0))]  # fmt: skip


def _finite_times(drawing: RunDrawing, name: str) -> list[float]:
    """Return the times at which a metric was finite, in order."""
    ended = [
        epoch.ended for epoch in drawing.epochs if is_known(epoch.ended) and is_known(epoch.metrics.get(name, NAN))
    ]
    logged = drawing.logged
    means = logged.columns[name].mean if name in logged.columns else ()
    times = zip(times_of(logged), means, strict=False)
    return sorted([*(time for time, value in times if math.isfinite(value)), *ended])


def _changes(non_finite: Sequence[NonFinite], finite_times: Sequence[float]) -> list[NonFinite]:
    """Return the non-finite values that follow a finite value, or that differ from the previous non-finite value."""
    return [
        (time, value) for index, (time, value) in enumerate(non_finite)
        if index == 0 or _value_name(value) != _value_name(non_finite[index - 1][1])
        or bisect_left(finite_times, non_finite[index - 1][0]) < bisect_left(finite_times, time)
    ]  # fmt: skip


def mark_non_finite(curve: Cells, non_finite: Sequence[NonFinite]) -> Cells:
    """If a line ends with NaN or infinite values, mark where they start, and name the last value."""
    positions = (x for x, value in zip(curve["x"], curve["mean"], strict=True) if value is not None)
    newest = max(positions, default=-math.inf)
    behind = [(moment(time), value) for time, value in non_finite if moment(time) > newest]
    return {**curve, "odd": [behind[0][0], _value_name(behind[-1][1])]} if behind else curve


def _value_name(value: float) -> str:
    return "NaN" if not is_known(value) else "infinite" if value > 0 else "−infinite"
