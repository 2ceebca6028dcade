"""Compute how many seconds of each bucket are covered by samples."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise
from statistics import median

from gpumon.common.numbers import is_known
from gpumon.storage.history.buckets import Grid


def known_seconds(
    times: Sequence[float], values: Sequence[float], grid: Grid, pauses: Collection[float] = ()
) -> list[float]:
    """Return the seconds of each bucket with a known value, for `values` at sorted `times` (s since 1970).

    A sample is valid until the next one. The last sample, and one before any of `pauses`, is valid for the median time
    between samples.
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
    """Add the seconds from `begin` to `end` to the buckets that contain them."""
    for bucket in range(max(0, grid.at(begin)), min(grid.buckets, grid.at(end) + 1)):
        edge = grid.begin + bucket * grid.step
        found[bucket] += max(0.0, min(end, edge + grid.step) - max(begin, edge))
