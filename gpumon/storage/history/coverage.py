"""Seconds of each bucket of time in which samples of a metric hold."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise
from statistics import median

from gpumon.common.numbers import is_known
from gpumon.storage.history.grid import Grid


def seconds_seen(
    times: Sequence[float], values: Sequence[float], grid: Grid, pauses: Collection[float] = ()
) -> list[float]:
    """Return the seconds of each bucket that are known of `values` at sorted `times` (s since 1970).

    A sample holds until the next one; the last one, and one before any of `pauses`, as long as others do.
    """
    found = [0.0] * grid.buckets
    lengths = [after - before for before, after in pairwise(times) if before not in pauses and after not in pauses]
    usual = median(lengths) if lengths else 0.0
    for place, (time, value) in enumerate(zip(times, values, strict=False)):
        if is_known(value):
            following = times[place + 1] if place + 1 < len(times) else time + usual
            _spread(found, grid, time, min(following, time + usual) if following in pauses else following)
    return found


def _spread(found: list[float], grid: Grid, begin: float, end: float) -> None:
    """Add a stretch to the buckets that it lies in."""
    for bucket in range(max(0, grid.at(begin)), min(grid.buckets, grid.at(end) + 1)):
        edge = grid.begin + bucket * grid.step
        found[bucket] += max(0.0, min(end, edge + grid.step) - max(begin, edge))
