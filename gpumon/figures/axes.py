"""Places, numbers and texts as Plotly takes them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any

from gpumon.figures.run_series import RunSeries
from gpumon.text import cut


def placed(course: RunSeries, first: int = 0) -> dict[str, Any]:
    """The x of each point from `first` on, in the middle of its time: a beginning, and a step in milliseconds."""
    return {"x0": instant(course.begun + (first + 0.5) * course.step), "dx": course.step * 1000}


def instant(seconds: float) -> int:
    """A time as Plotly takes it."""
    return round(seconds * 1000) if math.isfinite(seconds) else 0


def numbers_of(values: Sequence[float], scale: float, digits: int | None) -> list[float | None]:
    """Numbers for JSON, no longer than a screen can show; null where there is none."""
    if digits is None:
        return [float(f"{value:.6g}") if math.isfinite(value) else None for value in values]
    return [round(value * scale, digits) if math.isfinite(value) else None for value in values]


def plain_text(stranger: str) -> str:
    """A stranger's text as Plotly shows it as it is: no tags, and no %{…} of templates."""
    return escape(cut(stranger, 40), quote=False)
