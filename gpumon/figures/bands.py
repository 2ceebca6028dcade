"""Epochs behind a figure of a report, as shapes."""

from __future__ import annotations

from typing import Any

from gpumon.figures.axes import instant


def band_shape(begin: float, end: float, color: str) -> dict[str, Any]:
    """Return one stretch (s since 1970) as a shape."""
    return {
        "type": "rect", "xref": "x", "yref": "paper", "x0": instant(begin), "x1": instant(end), "y0": 0, "y1": 1,
        "fillcolor": color, "line": {"width": 0}, "layer": "below",
    }  # fmt: skip
