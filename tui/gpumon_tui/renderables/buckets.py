"""Values of history in the columns of a chart."""

from __future__ import annotations

from math import inf

from gpumon.storage.history.buckets import Grid
from gpumon.storage.history.query import History, Query, Series

HOLD = 2.2
"""Intervals between samples for which one stands, so that columns finer than the samples have no holes."""


def read(history: History, subject: str, metric: str, grid: Grid, interval: float, end: float = inf) -> Series:
    """Return what `history` has of a metric for each column, up to `end`; samples are `interval` seconds apart."""
    query = Query(subject, (metric,), grid.begin, end, grid=grid, hold=HOLD * interval)
    return history.query(query)[metric]
