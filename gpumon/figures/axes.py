"""Places, numbers and texts as Plotly takes them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gpumon.figures.run_series import RunSeries

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
