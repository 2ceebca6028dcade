"""Coordinates, numbers and texts in the form that Plotly expects."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, TypeVar

from gpumon.common.text import clean, cut
from gpumon.model.metrics import Unit
from gpumon.reports.figures.run_series import RunSeries

_Range = TypeVar("_Range", tuple[int, int], tuple[float, float])
GAPS = 50
"""Largest number of ranges between gaps that are drawn. If there are more, only the longest are drawn."""


def x_axis(series: RunSeries, first: int = 0) -> dict[str, Any]:
    """Return the x coordinates of points as Plotly's start and step, in ms.

    The coordinate of a point is the middle of its interval. `first`: index of the first point to draw.
    """
    return {"x0": instant(series.begun + (first + 0.5) * series.step), "dx": series.step * 1000}


def instant(seconds: float) -> int:
    """Convert seconds since 1970 to milliseconds since 1970; 0 if unknown."""
    return round(seconds * 1000) if math.isfinite(seconds) else 0


def json_numbers(values: Sequence[float], scale: float, digits: int | None) -> list[float | None]:
    """Return numbers for JSON, multiplied by `scale` and rounded to `digits` decimals. Unknown numbers become None.

    If `digits` is None, numbers are not scaled, and have six significant digits.
    """
    if digits is None:
        return [float(f"{value:.6g}") if math.isfinite(value) else None for value in values]
    return [round(value * scale, digits) if math.isfinite(value) else None for value in values]


def known_ranges(values: Sequence[float | None]) -> list[tuple[int, int]]:
    """Return the start and end (exclusive) of each range of indexes in which all values are known."""
    result = []
    begin = -1
    for i, value in enumerate([*values, None]):
        if value is not None:
            begin = i if begin < 0 else begin
        elif begin >= 0:
            result.append((begin, i))
            begin = -1
    return result


def longest(ranges: Sequence[_Range]) -> list[_Range]:
    """Return only the `GAPS` longest of these ranges, in their original order."""
    return sorted(sorted(ranges, key=lambda span: span[0] - span[1])[:GAPS])


LONGEST = 80
"""Largest width of a label, in terminal columns."""


def literal(text: str, longest: int = LONGEST) -> str:
    """Escape `text` and cut it to `longest` columns.

    Plotly then shows it literally on one line, without interpreting tags or %{…} templates.
    """
    return escape(cut(clean(text), longest), quote=False)


def note(text: str, x: float | str, y: float, color: str = "@mut", **layout: Any) -> dict[str, Any]:
    """Return a Plotly text annotation. `x`, `y`: position as fractions of the figure. `layout`: other attributes."""
    return {
        "text": text, "x": x, "y": y, "xref": "paper", "yref": "paper", "showarrow": False,
        "font": {"color": color, "size": 11}, **layout,
    }  # fmt: skip


def band_shape(begin: float, end: float, color: str) -> dict[str, Any]:
    """Return a shape over the full height of the figure, from `begin` to `end` (s since 1970)."""
    return {
        "type": "rect", "xref": "x", "yref": "paper", "x0": instant(begin), "x1": instant(end), "y0": 0, "y1": 1,
        "fillcolor": color, "line": {"width": 0}, "layer": "below",
    }  # fmt: skip


def event_line(at: float, color: str = "@bad") -> dict[str, Any]:
    """Return a vertical line over all panels, such as for an out-of-memory error. `at`: time (s since 1970)."""
    return {
        "type": "line", "xref": "x", "yref": "paper", "x0": instant(at), "x1": instant(at), "y0": 0, "y1": 1,
        "line": {"color": color, "width": 1.5, "dash": "dot"},
    }  # fmt: skip


def out_of_memory_caption(at: float) -> dict[str, Any]:
    """Return the caption of an out-of-memory line. `at`: time of the error (s since 1970)."""
    return note(
        "out of memory", instant(at), 0, color="@bad", xref="x", yanchor="bottom", xanchor="left", xshift=3
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Scale:
    """Factor and text to show values in the unit of an axis."""

    factor: float
    suffix: str
    """Unit after each number on the axis, including the space before it."""
    digits: int
    """Number of decimals of the value under the pointer."""


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
    """Return the scale of an axis for values in `unit`. `rate`: True for values in `unit` per second."""
    return (_PER_SECOND if rate else _SCALES).get(unit, _UNSCALED)
