"""Places, numbers and texts as Plotly takes them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple

from gpumon.common.text import clean, cut
from gpumon.model.metrics import Unit
from gpumon.reports.figures.run_series import RunSeries

GAPS = 50
"""Stretches between gaps that are drawn with all that is theirs: the longest."""


def placed(series: RunSeries, first: int = 0) -> dict[str, Any]:
    """The x of each point from `first` on, in the middle of its time: a beginning, and a step in milliseconds."""
    return {"x0": instant(series.begun + (first + 0.5) * series.step), "dx": series.step * 1000}


def instant(seconds: float) -> int:
    """A time as Plotly takes it."""
    return round(seconds * 1000) if math.isfinite(seconds) else 0


def numbers_of(values: Sequence[float], scale: float, digits: int | None) -> list[float | None]:
    """Numbers for JSON, no longer than a screen can show; null where there is none."""
    if digits is None:
        return [float(f"{value:.6g}") if math.isfinite(value) else None for value in values]
    return [round(value * scale, digits) if math.isfinite(value) else None for value in values]


def whole_stretches(values: Sequence[float | None]) -> list[tuple[int, int]]:
    """Where values are, without a gap: from each first to behind each last place."""
    found = []
    begin = -1
    for i, value in enumerate([*values, None]):
        if value is not None:
            begin = i if begin < 0 else begin
        elif begin >= 0:
            found.append((begin, i))
            begin = -1
    return found


def longest(stretches: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest `GAPS` of some stretches, in their order."""
    return sorted(sorted(stretches, key=lambda stretch: stretch[0] - stretch[1])[:GAPS])


LONGEST = 80
"""Cells that a text takes at most."""


def literal(text: str, longest: int = LONGEST) -> str:
    """Return `text` as Plotly shows it letter by letter, on one line: no tags, and no %{…} of templates."""
    return escape(cut(clean(text), longest), quote=False)


def note(text: str, x: float | str, y: float, color: str = "@mut", **place: Any) -> dict[str, Any]:
    """Return a text of the figure's own at a place of the paper; `place` says otherwise."""
    return {
        "text": text, "x": x, "y": y, "xref": "paper", "yref": "paper", "showarrow": False,
        "font": {"color": color, "size": 11}, **place,
    }  # fmt: skip


def out_of_memory_line(at: float) -> dict[str, Any]:
    """Return a line through all panels at a time (s since 1970)."""
    return {
        "type": "line", "xref": "x", "yref": "paper", "x0": instant(at), "x1": instant(at), "y0": 0, "y1": 1,
        "line": {"color": "@bad", "width": 1.5, "dash": "dot"},
    }  # fmt: skip


def out_of_memory_caption(at: float) -> dict[str, Any]:
    """Return what the line says."""
    return note(
        "out of memory", instant(at), 0, color="@bad", xref="x", yanchor="bottom", xanchor="left", xshift=3
    )  # fmt: skip


class Scale(NamedTuple):
    """Conversion from base units to those of an axis."""

    factor: float
    suffix: str
    """Behind each number on the axis, with its space."""
    digits: int
    """Behind the point, where the pointer is."""


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
_BARE = Scale(1.0, "", 2)


def scale_of(unit: Unit, *, rate: bool) -> Scale:
    """The scale of an axis of `unit`, or of `unit` each second."""
    return (_PER_SECOND if rate else _SCALES).get(unit, _BARE)
