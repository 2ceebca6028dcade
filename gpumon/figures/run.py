"""A run on one device: utilization, memory, power, temperature and what was logged, on one time axis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gpumon.analysis.rank_epochs import Span
from gpumon.common.numbers import NAN
from gpumon.figures.axes import longest, numbers_of, placed, whole_stretches
from gpumon.figures.escape import literal
from gpumon.figures.logged import NAME_CELLS, Diverged, logged_lines
from gpumon.figures.marks import note
from gpumon.figures.memory_parts import memory_parts
from gpumon.figures.run_background import (
    epoch_bands,
    epoch_numbers,
    gap_shades,
    out_of_memory_captions,
    out_of_memory_lines,
    phase_shades,
    time_range,
    unsampled,
)
from gpumon.figures.run_series import RunSeries, diverged_points
from gpumon.figures.scales import scale_of
from gpumon.model.metrics import BY_NAME, Unit
from gpumon.storage.ledger.records import DeviceRow, MarkRow
from gpumon.storage.ledger.summary import EpochSummary

LOGGED = 6
"""Logged metrics that get a panel."""
_PANEL = 132
_MARGIN = 64
"""Heights of a panel, and of what is above all of them, in pixels."""


Figure = dict[str, Any]
Line = dict[str, Any]


def figure(
    series: RunSeries,
    logged: RunSeries,
    device: DeviceRow | None,
    epochs: Sequence[EpochSummary],
    marks: Sequence[MarkRow],
    spans: Sequence[Span] = (),
    diverged: Diverged | None = None,
    whole: RunSeries | None = None,
    over: float = NAN,
) -> Figure:
    """Utilization, memory, power, temperature and what was logged, on one time axis with the epochs behind.

    `spans`: the phases that are no training, which are shaded. `diverged`: what was logged and is no number,
    else as `logged` has it. `whole`: the lines of the whole run, where `series` are those of a part of it: the figure
    has the same panels and the same axis. `over`: when the run ended, in s since 1970; NaN while it goes on.
    """
    diverged = diverged or diverged_points(logged)
    whole = whole or series
    panels = list(_panels(series, logged, device, epochs, diverged, over))
    of_whole = panels if whole is series else _panels(whole, logged, device, epochs, diverged, over)
    panels = [panel for panel, (_, lines, _) in zip(panels, of_whole, strict=True) if lines]
    height = 1 / max(1, len(panels))
    data: list[Line] = []
    layout: dict[str, Any] = {
        "height": _MARGIN + 40 + _PANEL * max(1, len(panels)),
        "margin": {"l": 58, "r": 18, "t": _MARGIN - 20, "b": 40},
        "hovermode": "x unified", "hoversubplots": "axis", "dragmode": "zoom", "showlegend": True,
        "paper_bgcolor": "@card/0", "plot_bgcolor": "@card/0", "font": {"color": "@mut", "size": 11},
        "hoverlabel": {"bgcolor": "@card", "bordercolor": "@line", "font": {"color": "@ink", "size": 11}},
        "xaxis": {
            "type": "date", "range": time_range(whole, epochs), "gridcolor": "@line/0", "linecolor": "@line",
            "zeroline": False,
            "showspikes": True, "spikemode": "across", "spikesnap": "cursor", "spikethickness": 1, "spikedash": "solid",
            "spikecolor": "@mut/0.5", "anchor": f"y{len(panels)}" if len(panels) > 1 else "y",
            "hoverformat": "%Y-%m-%d %H:%M:%S",
        },
        "shapes": [*epoch_bands(epochs), *phase_shades(spans), *gap_shades(series), *out_of_memory_lines(marks)],
        "annotations": [*epoch_numbers(epochs), *out_of_memory_captions(marks)],
    }  # fmt: skip
    for place, (title, lines, axis) in enumerate(panels):
        name = "" if place == 0 else str(place + 1)
        top = 1 - place * height
        layout[f"yaxis{name}"] = {
            "domain": [top - height + 0.015, top - height * 0.2], "gridcolor": "@line/0.7", "zeroline": False,
            "nticks": 4, "fixedrange": True, **axis,
        }  # fmt: skip
        layout["annotations"].append(note(title, 0, top - height * 0.2, xanchor="left", yanchor="bottom", color="@ink"))
        if any(line.get("showlegend") for line in lines):
            layout["legend"] = {
                "orientation": "h", "x": 1, "xanchor": "right", "y": top - height * 0.2, "yanchor": "bottom",
                "traceorder": "normal", "font": {"size": 11}, "bgcolor": "@card/0",
            }  # fmt: skip
        data += [{"xaxis": "x", "yaxis": f"y{name}", "showlegend": False, **line} for line in lines]
    if series.points and data:
        data.append(_where(series, epochs, spans))
    return {"data": data, "layout": layout}


def _panels(
    series: RunSeries,
    logged: RunSeries,
    device: DeviceRow | None,
    epochs: Sequence[EpochSummary],
    diverged: Diverged,
    over: float,
) -> Iterator[tuple[str, list[Line], dict[str, Any]]]:
    columns = series.columns
    if "gpu.utilization" in columns:
        axis = {"range": [0, 103], "tickvals": [0, 50, 100], "ticktext": ["0 %", "50 %", "100 %"]}
        yield BY_NAME["gpu.utilization"].title, _banded(series, "gpu.utilization", "@u2"), axis
    in_bytes = scale_of(Unit.BYTES, rate=False)
    yield BY_NAME["gpu.memory_used"].title, memory_parts(series, device), {
        "rangemode": "tozero", "ticksuffix": in_bytes.suffix,
        **({"range": [0, device.memory_total * in_bytes.factor]} if device and device.memory_total > 0 else {}),
    }  # fmt: skip
    for name, color in (("gpu.power", "@u1"), ("gpu.temperature", "@u5")):
        if name in columns:
            lines = _banded(series, name, color)
            axis = {"ticksuffix": scale_of(BY_NAME[name].unit, rate=False).suffix}
            if name == "gpu.power":
                axis["rangemode"] = "tozero"
            yield BY_NAME[name].title, lines, axis
    for i, (name, lines) in enumerate(logged_lines(logged, epochs, unsampled(series), diverged, over)[:LOGGED]):
        look = {"color": f"@u{(3, 6, 4, 0, 2, 1)[i % 6]}"}
        drawn = [
            {**line, "line": {**look, "width": 1.6}, "marker": {**look, **line.get("marker", {})}} for line in lines
        ]
        yield literal(name, NAME_CELLS), drawn, {}


def _banded(series: RunSeries, name: str, color: str) -> list[Line]:
    """The mean as a line, and behind it from the smallest to the largest."""
    found = series.columns[name]
    scale = scale_of(BY_NAME[name].unit, rate=False)
    low, mean, high = (numbers_of(part, scale.factor, 1) for part in found)
    if not any(value is not None for value in mean):
        return []
    lines: list[Line] = []
    # Plotly would fill across a gap: each stretch without one is a pair of edges by itself.
    for begin, end in longest(whole_stretches(mean)) if low != high else ():
        edge = {
            "mode": "lines", "line": {"width": 0, "color": color}, "hoverinfo": "skip", "name": "",
            **placed(series, begin),
        }  # fmt: skip
        lines += [
            {**edge, "y": high[begin:end]},
            {**edge, "y": low[begin:end], "fill": "tonexty", "fillcolor": f"{color}/0.2"},
        ]
    lines.append({
        "mode": "lines", "line": {"width": 1.4, "color": color}, "y": mean, "name": BY_NAME[name].title,
        "hovertemplate": f"%{{y}}{scale.suffix}", **placed(series),
    })  # fmt: skip
    return lines


def _where(series: RunSeries, epochs: Sequence[EpochSummary], spans: Sequence[Span]) -> Line:
    """An invisible line that tells the epoch and phase under the pointer."""
    texts = []
    place = phase = 0
    for point in range(series.points):
        time = series.begun + (point + 0.5) * series.step
        while place + 1 < len(epochs) and epochs[place + 1].begun <= time:
            place += 1
        inside = epochs and epochs[place].begun <= time and not time > epochs[place].ended
        while phase < len(spans) and spans[phase].end <= time:
            phase += 1
        within = (
            f", {literal(spans[phase].phase, NAME_CELLS)}" if phase < len(spans) and spans[phase].begin <= time else ""
        )
        texts.append(f"epoch {epochs[place].epoch}{within}" if inside else "between epochs")
    return {
        "mode": "lines", "line": {"width": 0, "color": "@mut"}, "y": [0] * series.points, "text": texts, "name": "",
        "hovertemplate": "%{text}<extra></extra>", "xaxis": "x", "yaxis": "y", "showlegend": False, **placed(series),
    }  # fmt: skip
