"""Epochs behind a figure: one filled step line on an axis of its own, however many there are.

A shape for each epoch takes Plotly half a second to draw 500 of them; one step line takes what none
takes. The page numbers the bands itself, as many as have room in what is seen of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from gpumon.figures.axes import instant, milliseconds

AXIS = "y"
"""The hidden axis of bands: the first, because Plotly draws axes in their order and bands lie behind."""


class Band(NamedTuple):
    """An epoch from its begin to its end (s since 1970)."""

    begin: float
    end: float
    number: int


def band_trace(bands: Sequence[Band]) -> dict[str, Any]:
    """Every second band filled, over the whole height of the hidden axis."""
    x: list[float] = []
    y: list[int] = []
    for band in bands:
        x += (band.begin, band.end)
        y += (band.number % 2, 0)
    return {
        "type": "scatter", "mode": "lines", "x": milliseconds(x), "y": y, "yaxis": AXIS, "fill": "tozeroy",
        "fillcolor": "@band/1", "line": {"width": 0, "shape": "hv", "color": "@band/1"}, "hoverinfo": "skip",
        "name": "", "showlegend": False, "meta": {"what": "band"},
    }  # fmt: skip


def span_trace(spans: Sequence[tuple[float, float]], color: str) -> dict[str, Any]:
    """Stretches marked in another color: phases that are no training, times without samples."""
    x: list[float | None] = []
    y: list[float | None] = []
    for begin, end in spans:
        x += (begin, begin, end, end, None)
        y += (0, 1, 1, 0, None)
    return {
        "type": "scatter", "mode": "lines", "x": milliseconds(x), "y": y, "yaxis": AXIS, "fill": "toself",
        "fillcolor": color, "line": {"width": 0, "color": color}, "hoverinfo": "skip", "name": "",
        "showlegend": False, "meta": {"what": "span"},
    }  # fmt: skip


def band_axis() -> dict[str, Any]:
    """The hidden axis of bands: the whole height of the figure."""
    return {"domain": [0, 1], "range": [0, 1], "visible": False, "fixedrange": True, "anchor": "x"}


def band_shape(begin: float, end: float, color: str) -> dict[str, Any]:
    """Return one stretch (s since 1970) as a shape, for figures that have few: a report has no hidden axis."""
    return {
        "type": "rect", "xref": "x", "yref": "paper", "x0": instant(begin), "x1": instant(end), "y0": 0, "y1": 1,
        "fillcolor": color, "line": {"width": 0}, "layer": "below",
    }  # fmt: skip
