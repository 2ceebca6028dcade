"""Time columns of charts: their length and position, and history values in them."""

from __future__ import annotations

from math import ceil, floor, inf

from gpumon.common.numbers import is_known
from gpumon.model import units
from gpumon.storage.history.buckets import SHORT_WINDOWS, WINDOWS, Grid
from gpumon.storage.history.query import History, Query, Series

HOLD = 2.2
"""Number of intervals for which a sample stays valid, so that columns finer than the sampling have no gaps."""


def read(history: History, subject: str, metric: str, grid: Grid, interval: float, end: float = inf) -> Series:
    """Return the history of a metric in each column, up to `end`; samples are `interval` seconds apart."""
    query = Query(subject, (metric,), grid.begin, end, grid=grid, hold=HOLD * interval)
    return history.query(query)[metric]


MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
MAX_EXCESS = 0.1
"""Maximum share by which columns may exceed the window, so that its name is still correct."""
_ROUND_UNITS = (
    *(number * DAY for number in (1, 0.5)), *(number * HOUR for number in (6, 3, 2, 1)),
    *(number * MINUTE for number in (30, 20, 15, 10, 5, 2, 1)), 30.0, 20.0, 10.0, 5.0, 2.0, 1.0,
    0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001,
)  # fmt: skip
"""Units in seconds for the length of a column, roundest first."""
_SCROLL_STEPS = 24
"""The chart moves by this fraction of the window, because moving by single columns would repaint everything each
time.
"""
_ROUNDING = 1e-6
_HALF_TOLERANCE = 0.01
"""Tolerance as a share of half a column, because times are rounded."""


def step_of(window: float, cells: int) -> float:
    """Return the roundest column length for which `cells` columns cover `window` seconds and hardly more."""
    min_step = window / max(1, cells) * (1 - _ROUNDING)
    for unit in _ROUND_UNITS:
        count = ceil(min_step / unit)
        if count * unit <= min_step * (1 + MAX_EXCESS):
            # Multiplying a decimal fraction would accumulate its error.
            return count * unit if unit >= 1 else count / round(1 / unit)
    return min_step


def window_text(window: float) -> str:
    """Return the displayed name of a window; the columns match it to within a tenth."""
    title = next(
        (window_name.title for window_name in (*SHORT_WINDOWS, *WINDOWS) if window_name.seconds == window), None
    )
    return title or units.long_duration(window)


def column_text(step: float) -> str:
    """Return the exact length of a column: `12 min`, `1 h 50 min`, `6.5 s`."""
    parts, remainder = [], step
    for size, name in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min")):
        if count := int((remainder + _ROUNDING) // size):
            parts.append(f"{count} {name}")
            remainder -= count * size
    if remainder > _ROUNDING or not parts:
        parts.append(f"{remainder:.3g} s")
    return " ".join(parts)


def live_columns(window: float, cells: int, now: float) -> Grid:
    """Return `cells` columns up to now; columns for the next 24th of the window stay empty until then."""
    cells = max(1, cells)
    step, scroll_columns = step_of(window, cells), max(1, cells // _SCROLL_STEPS)
    return Grid((floor(now / (scroll_columns * step) + _ROUNDING) + 1) * scroll_columns - cells, step, cells)


def past_columns(window: float, cells: int, end: float) -> Grid:
    """Return `cells` columns; the last column contains `end` (s since 1970)."""
    cells = max(1, cells)
    step = step_of(window, cells)
    return Grid(ceil(end / step - _ROUNDING) - cells, step, cells)


def observed_halves(grid: Grid, oldest: float, newest: float) -> slice:
    """Return the half columns between the times `oldest` and `newest` (s since 1970); values missing outside are not
    gaps.
    """
    first = min(grid.buckets, max(0, grid.at(oldest))) if is_known(oldest) else 0
    last = min(2 * grid.buckets, ceil(2 * (newest - grid.begin) / grid.step - _HALF_TOLERANCE))
    return slice(2 * first, max(2 * first, last))


def halves(grid: Grid) -> Grid:
    """Return the same time with two buckets per column, because lines have two points per column."""
    return Grid(2 * grid.first, grid.step / 2, 2 * grid.buckets)
