"""One GPU: all its panels on one time axis, epochs behind them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from gpumon.clock import SECOND
from gpumon.epochs import Epochs
from gpumon.frame import RunState, Sample
from gpumon.history.recent import History
from gpumon.panels import GPU_PANELS, Panel
from gpumon_web.feed import shown
from gpumon_web.figures.bands import Band
from gpumon_web.figures.scales import scale_of
from gpumon_web.figures.stack import Plot, figure
from gpumon_web.series import MOST, columns

COLOURS = ("@u2", "@u0", "@u1", "@u5", "@u3", "@u6", "@u4", "@u7")
"""Of the panels in their order; a metric has the same colour in the figure of a run."""


class Behind(NamedTuple):
    """What is drawn behind the lines."""

    bands: list[Band]
    spans: list[tuple[float, float]]
    """Phases that are no training."""
    faults: list[float]
    """When memory ran out."""


def gpu_figure(
    history: History, epochs: Epochs, sample: Sample, begin: float, end: float, points: int = MOST
) -> dict[str, Any]:
    """The figure of a device from `begin` to `end` (s since 1970)."""
    uuid = sample.device.uuid
    panels = [panel for panel in GPU_PANELS if history.has(uuid, panel.metric.name)]
    found = columns(history, uuid, [panel.metric.name for panel in panels], begin, end, points)
    plots = [
        Plot(
            panel.metric.name,
            panel.title,
            scale_of(panel.metric.unit, rate=panel.is_rate),
            [shown(value) for value in values],
            COLOURS[GPU_PANELS.index(panel) % len(COLOURS)],
            top_of(panel, sample),
        )
        for panel, values in zip(panels, found.values, strict=True)
    ]
    back = behind(epochs, epochs.runs_on(uuid), begin, end)
    return figure(plots, found.times, back.bands, back.spans, back.faults)


def top_of(panel: Panel, sample: Sample) -> float | None:
    """Top of a panel's axis: its full scale, else its limit on this card; None where the data decide."""
    if panel.full_scale == panel.full_scale:
        return panel.full_scale
    limit = sample.value(panel.metric.limit) if panel.metric.limit else float("nan")
    return limit if limit == limit and limit > 0 else None


def behind(epochs: Epochs, keys: Sequence[str], begin: float, end: float) -> Behind:
    """Bands of epochs, phases that are no training, and errors, as far as they lie within a window."""
    drawn = epochs.drawn(keys)
    over = {run.id: run.updated for key in keys if (run := epochs.run(key)) and run.state is not RunState.RUNNING}
    bands = []
    for place, mark in enumerate(drawn.marks):
        after = drawn.marks[place + 1].time if place + 1 < len(drawn.marks) else end
        after = min(after, over.get(mark.run, end), end)  # a run that is over has no epoch any more
        if mark.time < end and after > begin:
            bands.append(Band(max(mark.time, begin), after, mark.epoch))
    spans = [
        (max(span.begin, begin), min(span.end, end))
        for span in drawn.spans
        if span.begin < min(end, span.end) and span.end > begin
    ]
    faults = [fault.time / SECOND for fault in drawn.faults]
    return Behind(bands, spans, [at for at in faults if begin <= at <= end])
