"""Panels below each other on one time axis: the frame of the GPU's figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from gpumon.figures.axes import milliseconds
from gpumon.figures.bands import Band, band_axis, band_trace, span_trace
from gpumon.figures.escape import literal
from gpumon.figures.marks import note, out_of_memory_caption, out_of_memory_line
from gpumon.figures.scales import Scale

PANEL_HEIGHT = 118
"""Pixels of a panel with its title above it."""
MARGIN_TOP, MARGIN_BOTTOM = 26, 44
_TITLE = 0.22
"""Of a panel's height."""
_GAP = 0.06
_ROOM = 1.04
"""A line at the top of its scale keeps its full width."""


class Plot(NamedTuple):
    """A panel: a line on a value axis."""

    metric: str
    """Its name, by which the page appends what comes later."""
    title: str
    scale: Scale
    values: Sequence[float | None]
    """In base units."""
    color: str
    top: float | None = None
    """Top of the axis in base units, where it is known beforehand."""


def figure(
    plots: Sequence[Plot],
    times: Sequence[float],
    bands: Sequence[Band] = (),
    spans: Sequence[tuple[float, float]] = (),
    faults: Sequence[float] = (),
) -> dict[str, Any]:
    """Data and layout for Plotly, and the bands, which the page numbers; `spans` are phases that are no training."""
    x = milliseconds(list(times))
    data: list[dict[str, Any]] = [band_trace(bands)] if bands else []
    data += [span_trace(spans, "@phase/1")] if spans else []
    count = max(1, len(plots))
    layout: dict[str, Any] = {
        "height": MARGIN_TOP + MARGIN_BOTTOM + PANEL_HEIGHT * count,
        "margin": {"l": 72, "r": 14, "t": MARGIN_TOP, "b": MARGIN_BOTTOM},
        "showlegend": False,
        "hovermode": "x unified",
        "hoversubplots": "axis",
        "xaxis": {"type": "date", "anchor": _axis(len(plots) - 1) if plots else "y", "showgrid": False},
        "yaxis": band_axis(),
        "annotations": [out_of_memory_caption(at) for at in faults],
        "shapes": [out_of_memory_line(at) for at in faults],
    }
    for place, plot in enumerate(plots):
        low, high = _domain(place, count)
        axis = _axis(place)
        layout["yaxis" + axis[1:]] = {
            "domain": [low, high], "nticks": 4, "rangemode": "tozero", "fixedrange": True,
            "ticksuffix": plot.scale.suffix, "zeroline": False,
            **({"range": [0, plot.top * plot.scale.factor * _ROOM]} if plot.top else {}),
        }  # fmt: skip
        title = note(literal(plot.title), 0, high, color="@ink", xanchor="left", yanchor="bottom")
        layout["annotations"].append(title)
        data.append(
            {
                "type": "scatter", "mode": "lines", "yaxis": axis, "name": literal(plot.title), "x": x,
                "y": [_scaled(value, plot.scale) for value in plot.values], "connectgaps": False,
                "line": {"color": f"{plot.color}/1", "width": 1.4}, "fill": "tozeroy",
                "fillcolor": f"{plot.color}/0.13",
                "hovertemplate": f"%{{y:.{plot.scale.digits}f}}{plot.scale.suffix}",
                "meta": {"what": "line", "metric": plot.metric, "factor": plot.scale.factor},
            }
        )  # fmt: skip
    return {"data": data, "layout": layout, "bands": [[band.begin, band.end, band.number] for band in bands]}


def _scaled(value: float | None, scale: Scale) -> float | None:
    return None if value is None else float(f"{value * scale.factor:.5g}")


def _axis(place: int) -> str:
    return f"y{place + 2}"


def _domain(place: int, count: int) -> tuple[float, float]:
    share = 1 / count
    top = 1 - place * share
    low = top - share * (1 - _GAP) if place < count - 1 else 0.0
    return round(low, 4), round(top - share * _TITLE, 4)
