"""The lines of a past run with finer points, where kept history still has any: for whoever zooms in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from gpumon.common.numbers import is_known
from gpumon.figures.run_series import RunSeries
from gpumon.storage.history.downsample import Envelope
from gpumon.storage.history.grid import Grid, aligned
from gpumon.storage.history.query import Query, Series, Tier

POINTS = 6000
"""Points of a line at most: a GPU takes half a megabyte in a report then."""


class FineHistory(Protocol):
    """A history that kept something in cells."""

    def finer(self, step: float) -> Sequence[Tier]:
        """Return what there is in cells shorter than `step` seconds, the finest first."""


def refined(series: RunSeries, history: FineHistory, uuid: str, points: int = POINTS) -> RunSeries:
    """Return the lines of a run on a device with finer points, or as they are where nothing is kept that is finer.

    Finer ones stand only where the run's own trace has a value: a run may have a GPU for a part of its time.
    """
    begin, end = series.begun, series.begun + series.points * series.step
    tiers = [tier for tier in history.finer(series.step) if tier.begin < end and begin < tier.end] if uuid else []
    if not tiers or not series.points:
        return series
    grid = aligned(begin, end, points, [tier.step for tier in tiers])
    if grid.step >= series.step:
        return series
    found: list[Mapping[str, Series]] = []
    for tier in tiers:
        span = max(begin, tier.begin), min(end, tier.end)
        found.append(tier.query(Query(uuid, tuple(series.columns), *span, grid=grid)))
    if not any(is_known(value) for lines in found for one in lines.values() for value in one.mean):
        return series
    return RunSeries(grid.begin, grid.step, {name: _joined(series, name, grid, found) for name in series.columns})


def _joined(series: RunSeries, name: str, grid: Grid, found: Sequence[Mapping[str, Series]]) -> Envelope:
    """One line: of each point the finest that is known."""
    trace = series.columns[name]
    low, mean, high = [], [], []
    lines = [lines[name] for lines in found]
    for place, middle in enumerate(grid.middles()):
        # The first bucket and the last one may reach over the ends of the run.
        at = min(max(0, int((middle - series.begun) // series.step)), series.points - 1)
        value = trace.low[at], trace.mean[at], trace.high[at]
        if is_known(trace.mean[at]):
            fine = next((line for line in lines if is_known(line.mean[place])), None)
            if fine is not None:
                value = fine.low[place], fine.mean[place], fine.high[place]
        low.append(value[0])
        mean.append(value[1])
        high.append(value[2])
    return Envelope(low, mean, high)
