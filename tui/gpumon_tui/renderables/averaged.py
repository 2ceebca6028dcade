"""Mean and extremes of a curve over a stretch of time, and how much of that is known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import fsum, nan
from typing import NamedTuple

from gpumon.common.numbers import is_known
from gpumon.storage.history.buckets import Grid
from gpumon_tui.renderables.plot import PlotCurve
from gpumon_tui.renderables.time_columns import halves, window_words


class Averaged(NamedTuple):
    """Mean, lowest and highest value of what is known; NaN where nothing is."""

    mean: float
    low: float
    high: float
    seconds: float
    """Seconds that are known."""


def averaged(curve: PlotCurve, columns: Grid, begin: float, end: float) -> Averaged:
    """Return what a curve on `columns` has from `begin` to `end` (s since 1970): columns reach beyond a window."""
    grid = halves(columns)
    lengths = [min(edge + grid.step, end) - max(edge, begin) for edge in _begins(grid, len(curve.mean))]
    known = [
        (value, length) for value, length in zip(curve.mean, lengths, strict=True) if length > 0 and is_known(value)
    ]
    seconds = fsum(length for _, length in known)
    mean = fsum(value * length for value, length in known) / seconds if seconds > 0 else nan
    lows, highs = (_within(line, lengths) for line in (curve.low, curve.high))
    return Averaged(mean, min(lows, default=nan), max(highs, default=nan), seconds)


def span_words(seconds: float, window: float, step: float) -> str:
    """Return how long what is averaged lasts: `10 min`, or `5 min 18 s` where no more of the window is known.

    What lacks less than `step` seconds is whole: times are rounded, and a sample is due.
    """
    if not 0 < seconds < window - step:
        return window_words(window)
    whole = round(seconds)
    for (large, size), (small, part) in (
        (("d", 86400), ("h", 3600)),
        (("h", 3600), ("min", 60)),
        (("min", 60), ("s", 1)),
    ):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size} {large}" + (f" {rest} {small}" if rest else "")
    return f"{whole} s"


def _begins(grid: Grid, many: int) -> Iterator[float]:
    return ((grid.first + place) * grid.step for place in range(many))


def _within(values: Sequence[float], lengths: Sequence[float]) -> list[float]:
    return [value for value, length in zip(values, lengths, strict=True) if length > 0 and is_known(value)]
