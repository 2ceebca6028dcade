"""The columns of a chart, and what history has for each of them.

Columns stand at fixed places in absolute time, and the picture moves on by several of them at once;
in between only a column is added. That is steadier to look at, and cheap to repaint: moving
by every single column was measured at 5.7 kB/s to a terminal of 160x50, where 4 are wanted.
"""

from __future__ import annotations

from math import ceil, floor, inf

from gpumon.history.grid import Grid
from gpumon.history.query import History, Query, Series

HOLD = 2.2
"""Intervals between samples for which one stands, so that columns finer than the samples have no holes."""


def columns(window: float, count: int, now: float) -> Grid:
    """`count` columns, two for each cell, that show the last `window` seconds; up to a 24th after `now` is empty.

    Never fewer than those of one cell, and never half a cell: there is no room that crashes a picture.
    """
    count = max(2, count & ~1)
    step = window / count
    jump = max(1, 2 * (count // 48))  # whole cells, of two columns each
    return Grid((floor(now / (jump * step) + 1e-6) + 1) * jump - count, step, count)


def standing(window: float, count: int, end: float) -> Grid:
    """`count` columns, two for each cell, of a window that ends at `end` and stands still: to a cell exact."""
    count = max(2, count & ~1)
    step = window / count
    return Grid(2 * ceil(end / (2 * step) - 1e-6) - count, step, count)


def read(history: History, subject: str, metric: str, grid: Grid, interval: float, end: float = inf) -> Series:
    """Return what `history` has of a metric for each column, up to `end`; samples are `interval` seconds apart."""
    query = Query(subject, (metric,), grid.begin, end, grid=grid, hold=HOLD * interval)
    return history.query(query)[metric]
