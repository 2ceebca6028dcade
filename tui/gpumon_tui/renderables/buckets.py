"""Samples into the columns of a chart.

Columns stand at fixed places in absolute time, and the picture moves on by several of them at once;
in between only a column is added. That is steadier to look at, and cheap to repaint: moving
by every single column was measured at 5.7 kB/s to a terminal of 160x50, where 4 are wanted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from math import floor, nan
from typing import NamedTuple


class Columns(NamedTuple):
    """A row of equal stretches of time."""

    begin: float
    step: float
    """Seconds in each."""
    many: int

    @property
    def end(self) -> float:
        return self.begin + self.step * self.many

    def at(self, time: float) -> int:
        """The column that holds `time`; it may lie outside."""
        return floor((time - self.begin) / self.step + 1e-6)


def columns(window: float, count: int, now: float) -> Columns:
    """`count` columns, two for each cell, that show the last `window` seconds; up to a 24th after `now` is empty.

    Never fewer than those of one cell, and never half a cell: there is no room that crashes a picture.
    """
    count = max(2, count & ~1)
    step = window / count
    jump = step * max(1, 2 * (count // 48))  # whole cells, of two columns each
    return Columns((floor(now / jump + 1e-6) + 1) * jump - count * step, step, count)


def fill(
    times: Sequence[float], values: Sequence[float], into: Columns, hold: float, peaks: bool = False
) -> list[float]:
    """The mean (or the peak) of the samples in each column, NaN where there is none.

    A sample stands for up to `hold` seconds after it, so that columns finer than the samples have no
    holes; a longer silence, or a NaN, is a gap.
    """
    sums = [nan] * into.many
    counts = [0] * into.many
    first = max(0, bisect_left(times, into.begin) - 1)
    last = min(bisect_left(times, into.end), len(values))
    before, value_before, time_before = -1, nan, 0.0
    begin, per_second, most = into.begin, 1 / into.step, into.many - 1
    for time, value in zip(times[first:last], values[first:last], strict=False):
        column = floor((time - begin) * per_second + 1e-6)
        if column > before + 1 and value_before == value_before and time - time_before <= hold:
            for place in range(max(0, before + 1), min(column, most + 1)):
                sums[place], counts[place] = value_before, 1
        if value == value and 0 <= column <= most:
            if not counts[column]:
                sums[column], counts[column] = value, 1
            elif peaks:
                sums[column] = max(sums[column], value)
            else:
                sums[column] += value
                counts[column] += 1
        before, value_before, time_before = column, value, time
    return [total / n if n > 1 else total for total, n in zip(sums, counts, strict=True)]
