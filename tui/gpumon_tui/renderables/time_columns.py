"""The one time grid of all charts on a page: columns of a round length, at fixed places in absolute time."""

from __future__ import annotations

from math import ceil, floor

from gpumon.history.grid import Grid
from gpumon.missing import is_known

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
STEPS = (
    0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 20.0, 30.0, 40.0,
    *(number * MINUTE for number in (1, 2, 3, 4, 5, 10, 15, 20, 30)),
    *(number * HOUR for number in (1, 2, 3, 4, 6, 8, 12)), *(number * DAY for number in (1, 2, 5, 10)),
)  # fmt: skip
"""Seconds a column may last. From the length of each tier of kept history on they are whole cells of it, so that a
column is the same before and after its frames are forgotten."""
_HOPS = 24
"""The picture moves on by a part of the window: to move by each column would repaint everything each time."""
_EARLY = 1e-6
_A_PART = 0.01
"""The share of half a column that is none: times are rounded."""


def step_of(window: float, cells: int) -> float:
    """Return the shortest round length of `cells` columns that hold `window` seconds."""
    return next((step for step in STEPS if step * cells >= window * (1 - _EARLY)), STEPS[-1])


def live_columns(window: float, cells: int, now: float) -> Grid:
    """Return `cells` columns up to now; those of the next 24th of the window stand empty until their time has come."""
    cells = max(1, cells)
    step, hop = step_of(window, cells), max(1, cells // _HOPS)
    return Grid((floor(now / (hop * step) + _EARLY) + 1) * hop - cells, step, cells)


def still_columns(window: float, cells: int, end: float) -> Grid:
    """Return `cells` columns of which the last one holds `end` (s since 1970)."""
    cells = max(1, cells)
    step = step_of(window, cells)
    return Grid(ceil(end / step - _EARLY) - cells, step, cells)


def known_halves(grid: Grid, oldest: float, until: float) -> slice:
    """Return the halves of columns from the oldest time there is until another (s since 1970): what is outside of these
    is not a gap."""
    first = min(grid.buckets, max(0, grid.at(oldest))) if is_known(oldest) else 0
    last = min(2 * grid.buckets, ceil(2 * (until - grid.begin) / grid.step - _A_PART))
    return slice(2 * first, max(2 * first, last))


def halves(grid: Grid) -> Grid:
    """Return the same time in two buckets for each column: a line has two points there."""
    return Grid(2 * grid.first, grid.step / 2, 2 * grid.buckets)
