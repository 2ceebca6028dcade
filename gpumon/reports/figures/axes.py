"""Coordinates, numbers and texts in the form that Plotly expects."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple

from gpumon.common.text import clean, cut
from gpumon.model.metrics import Unit
from gpumon.reports.figures.run_series import RunSeries

GAPS = 50
"""Largest number of ranges between gaps that are drawn; the longest are kept."""


def x_axis(series: RunSeries, first: int = 0) -> dict[str, Any]:
    """Return the x coordinates of points as Plotly's start and step in ms; each is the middle of its interval.

    `first`: index of the first point.
    """
    return {"x0": instant(series.begun + (first + 0.5) * series.step), "dx": series.step * 1000}


def instant(seconds: float) -> int:
    """Convert seconds since 1970 to milliseconds since 1970; 0 if unknown."""
    return round(seconds * 1000) if math.isfinite(seconds) else 0


def json_numbers(values: Sequence[float], scale: float, digits: int | None) -> list[float | None]:
    """Return numbers for JSON, multiplied by `scale` and rounded to `digits`; None if unknown."""
    if digits is None:
        return [float(f"{value:.6g}") if math.isfinite(value) else None for value in values]
    return [round(value * scale, digits) if math.isfinite(value) else None for value in values]


def known_ranges(values: Sequence[float | None]) -> list[tuple[int, int]]:
    """Return begin and end (not included) of each range of indexes in which all values are known."""
    result = []
    begin = -1
    for i, value in enumerate([*values, None]):
        if value is not None:
            begin = i if begin < 0 else begin
        elif begin >= 0:
            result.append((begin, i))
            begin = -1
    return result


def longest(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return only the `GAPS` longest of these ranges, in their original order."""
    return sorted(sorted(ranges, key=lambda span: span[0] - span[1])[:GAPS])


LONGEST = 80
"""Largest width of a text, in columns."""


def literal(text: str, longest: int = LONGEST) -> str:
    """Return `text` escaped and cut so that Plotly shows it literally on one line, with no tags or %{…} templates."""
    return escape(cut(clean(text), longest), quote=False)


def note(text: str, x: float | str, y: float, color: str = "@mut", **layout: Any) -> dict[str, Any]:
    """Return a Plotly text annotation at (x, y), as fractions of the figure; `layout` overrides its attributes."""
    return {
        "text": text, "x": x, "y": y, "xref": "paper", "yref": "paper", "showarrow": False,
        "font": {"color": color, "size": 11}, **layout,
    }  # fmt: skip


def out_of_memory_line(at: float) -> dict[str, Any]:
    """Return a vertical line over all panels at a time (s since 1970)."""
    return {
        "type": "line", "xref": "x", "yref": "paper", "x0": instant(at), "x1": instant(at), "y0": 0, "y1": 1,
        "line": {"color": "@bad", "width": 1.5, "dash": "dot"},
    }  # fmt: skip


def out_of_memory_caption(at: float) -> dict[str, Any]:
    """Return the caption for a line at this time (s since 1970)."""
    return note(
        "out of memory", instant(at), 0, color="@bad", xref="x", yanchor="bottom", xanchor="left", xshift=3
    )  # fmt: skip


class Scale(NamedTuple):
    """How to convert base units to the unit of an axis."""

    factor: float
    suffix: str
    """Unit after each number on the axis, with its space."""
    digits: int
    """Decimals of the value under the pointer."""


_SCALES = {
    Unit.RATIO: Scale(100.0, " %", 0),
    Unit.BYTES: Scale(2.0**-30, " GiB", 1),
    Unit.WATTS: Scale(1.0, " W", 0),
    Unit.CELSIUS: Scale(1.0, " °C", 0),
    Unit.HERTZ: Scale(1e-9, " GHz", 2),
    Unit.BYTES_PER_SECOND: Scale(2.0**-30, " GiB/s", 2),
}
_PER_SECOND = {
    Unit.BYTES: _SCALES[Unit.BYTES_PER_SECOND],
    Unit.JOULES: _SCALES[Unit.WATTS],
    Unit.SECONDS: _SCALES[Unit.RATIO],
}
_UNSCALED = Scale(1.0, "", 2)


def scale_of(unit: Unit, *, rate: bool) -> Scale:
    """Return the scale of an axis for `unit`; with `rate`, for `unit` per second."""
    return (_PER_SECOND if rate else _SCALES).get(unit, _UNSCALED)
