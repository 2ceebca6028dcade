"""One GPU: all its panels on one time axis, epochs behind them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from gpumon.analysis.epochs import Epochs
from gpumon.clock import SECOND
from gpumon.figures.bands import Band
from gpumon.figures.extremes import is_wide, line_times, line_values
from gpumon.figures.scales import scale_of
from gpumon.figures.stack import Plot, figure
from gpumon.frame import RunState, Sample
from gpumon.history.query import MOST, History, Query
from gpumon.json_value import shown
from gpumon.missing import is_known
from gpumon.panels import GPU_PANELS, Panel

COLORS = ("@u2", "@u0", "@u1", "@u5", "@u3", "@u6", "@u4", "@u7")
"""Of the panels in their order; a metric has the same color in the figure of a run."""


class Behind(NamedTuple):
    """Epochs, phases and errors behind the lines."""

    bands: list[Band]
    spans: list[tuple[float, float]]
    """Phases that are no training."""
    faults: list[float]
    """When memory ran out."""
    runs: list[dict[str, Any]]
    """The runs that the window has epochs of, and which of them are drawn."""


def gpu_figure(
    history: History, epochs: Epochs, sample: Sample, begin: float, end: float, points: int = MOST, run: str = ""
) -> dict[str, Any]:
    """The figure of a device from `begin` to `end` (s since 1970), with the epochs of `run` (an id) before others'.

    `wide` in it is the length (s) of the buckets where each is drawn by itself, else 0.
    """
    uuid = sample.device.uuid
    panels = [panel for panel in GPU_PANELS if history.has(uuid, panel.metric.name)]
    until = min(end, history.end)  # nothing is known of what is to come
    series = history.query(Query(uuid, [panel.metric.name for panel in panels], begin, end, points // 2))  # two each
    since = max(begin, history.begin)
    wide = any(is_wide(one, points) for one in series.values())
    times = next((line_times(one, since, until, wide=wide) for one in series.values()), [])
    plots = [
        Plot(
            metric=panel.metric.name,
            title=panel.title,
            scale=scale_of(panel.metric.unit, rate=panel.is_rate),
            values=[shown(value) for value in line_values(series[panel.metric.name], since, until, wide=wide)],
            color=COLORS[GPU_PANELS.index(panel) % len(COLORS)],
            top=top_of(panel, sample),
        )
        for panel in panels
    ]
    back = behind(epochs, epochs.runs_on(uuid), begin, until, run or _id(epochs, sample.run))
    step = next((one.step for one in series.values()), 0.0) if wide else 0.0
    return {**figure(plots, times, back.bands, back.spans, back.faults), "runs": back.runs, "wide": step}


def _id(epochs: Epochs, key: str) -> str:
    run = epochs.run(key)
    return run.id if run else ""


def top_of(panel: Panel, sample: Sample) -> float | None:
    """Top of a panel's axis: its full scale, else its limit on this card; None where the data decide."""
    if is_known(panel.full_scale):
        return panel.full_scale
    limit = sample.value(panel.metric.limit) if panel.metric.limit else float("nan")
    return limit if is_known(limit) and limit > 0 else None


def behind(epochs: Epochs, keys: Sequence[str], begin: float, end: float, chosen: str = "") -> Behind:
    """Bands of epochs, phases that are no training, and errors, as far as they lie within a window.

    Two runs that train at the same time would be one muddle of bands: of those only one is drawn, `chosen` (an id)
    if it is among them, else the one that began last.
    """
    groups: dict[str, list[str]] = {}
    for key in keys:
        groups.setdefault(_id(epochs, key) or key, []).append(key)
    bands = {name: found for name, group in groups.items() if (found := _bands(epochs, group, begin, end))}
    order = sorted(bands, key=lambda name: (name == chosen, bands[name][0].begin), reverse=True)
    drawn: list[str] = []
    for name in order:
        first, last = bands[name][0].begin, bands[name][-1].end
        if all(last <= bands[other][0].begin or first >= bands[other][-1].end for other in drawn):
            drawn.append(name)
    spans = [
        (max(span.begin, begin), min(span.end, end))
        for name, group in groups.items()
        if name in drawn or name not in bands
        for span in epochs.drawn(group).spans
        if span.begin < min(end, span.end) and span.end > begin
    ]
    faults = [fault.time_ns / SECOND for fault in epochs.drawn(keys).faults]
    return Behind(
        sorted(band for name in drawn for band in bands[name]),
        sorted(spans),
        [at for at in faults if begin <= at <= end],
        [{"id": name, "name": _name(epochs, groups[name]), "drawn": name in drawn} for name in bands],
    )


def _bands(epochs: Epochs, keys: Sequence[str], begin: float, end: float) -> list[Band]:
    """The epochs of one run."""
    marks = epochs.drawn(keys).marks
    over = max((_over(epochs, key) for key in keys), default=math.inf)
    found = []
    for place, mark in enumerate(marks):
        after = marks[place + 1].time if place + 1 < len(marks) else end
        after = min(after, over, end)  # a run that is over has no epoch any more
        if mark.time < end and after > begin:
            found.append(Band(max(mark.time, begin), after, mark.epoch))
    return found


def _over(epochs: Epochs, key: str) -> float:
    run = epochs.run(key)
    return run.updated if run and run.state is not RunState.RUNNING else math.inf


def _name(epochs: Epochs, keys: Sequence[str]) -> str:
    run = epochs.run(keys[0])
    return (run.name.strip() or run.id) if run else keys[0]
