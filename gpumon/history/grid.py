"""Buckets of time: of one length, at fixed places in absolute time."""

from __future__ import annotations

from collections.abc import Iterable
from math import floor
from typing import NamedTuple

LENGTHS = tuple(
    float(number * unit)
    for unit, numbers in (
        (0.1, (1, 2, 3, 5)), (1, (1, 1.5, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 30, 40)),
        (60, (1, 1.5, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 30, 40)), (3600, (1, 1.5, 2, 3, 4, 6, 8, 12, 24)),
    )
    for number in numbers
)  # fmt: skip
"""Seconds that a bucket may last. A window that grows keeps its buckets until it needs the next length."""
_LONGEST = tuple(LENGTHS[-1] * 2.0**n for n in range(1, 32))
"""The same for a line of one or two points: no window of time is longer."""
_EARLY = 1e-3
"""The share of a bucket by which a sample may come before it: times are rounded. A float64 of today's seconds over the
shortest bucket is exact to a few millionths, so that the place of a time is that of its sample."""


class Grid(NamedTuple):
    """Buckets of equal length. They begin at multiples of it since 1970, so that they stay while time passes.

    `phase` (s since 1970) is where the ledger's buckets of a run are counted from instead.
    """

    first: int
    """Number of the first bucket."""
    step: float
    """Seconds in each."""
    buckets: int
    phase: float = 0.0

    @property
    def begin(self) -> float:
        """Seconds since 1970."""
        return self.phase + self.first * self.step

    @property
    def end(self) -> float:
        """Seconds since 1970 behind the last bucket."""
        return self.phase + (self.first + self.buckets) * self.step

    def at(self, time: float) -> int:
        """The place of the bucket that holds `time`; it may lie outside."""
        return floor((time - self.phase) / self.step + _EARLY) - self.first

    def middles(self) -> list[float]:
        """The time at the middle of each bucket, in seconds since 1970."""
        first, step, count, phase = self
        return [phase + (place + 0.5) * step for place in range(first, first + count)]

    def edges(self) -> list[float]:
        """The time from which a sample belongs to each bucket, and the one from which it is behind the last."""
        first, step, count, phase = self
        return [phase + (place - _EARLY) * step for place in range(first, first + count + 1)]


def aligned(begin: float, end: float, points: int, cells: Iterable[float] = ()) -> Grid:
    """Return the shortest buckets, at most `points` of them, that hold all times from `begin` to `end`.

    `cells` (s): what was summed up before is in cells of these lengths, and each bucket holds whole ones.
    """
    lengths = (*LENGTHS, *_LONGEST)
    for cell in cells:
        lengths = tuple(length for length in lengths if length % cell == 0)
    grid = Grid(0, LENGTHS[0], 0)
    for length in lengths:
        if length * points >= end - begin:
            first, last = floor(begin / length + _EARLY), floor(end / length + _EARLY)
            grid = Grid(first, length, last - first + 1)
            if grid.buckets <= points:
                break
    return grid
