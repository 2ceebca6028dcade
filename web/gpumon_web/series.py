"""The one function every figure asks: columns of a window of any length.

Today they come from the live ring's last frames. Coarser tiers of months answer the same question
when there are some; a figure does not notice.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from gpumon.frame import NAN
from gpumon.history.recent import History

MOST = 2000
"""Points of a line, at any zoom."""


class Columns(NamedTuple):
    """Times (s since 1970) and a column for each metric asked for, all of the same length; NaN is a gap."""

    times: list[float]
    values: list[list[float]]


def columns(
    history: History, subject: str, metrics: Sequence[str], begin: float, end: float, points: int = MOST
) -> Columns:
    """The window from `begin` to `end`, both of them seconds since 1970, in at most `points` points a line.

    Where there are more samples, each stretch of them gives two points: its lowest and its highest value,
    in the order in which they came, so that a stall of one sample is seen in any window. Stretches are of equal
    time, so that a pause, which `History` marks by a row without values, stays a gap.
    """
    points = max(2, min(points, MOST))
    first, last = bisect_left(history.times, begin), bisect_right(history.times, end)
    times = list(history.times[first:last])
    found = [list(history.values(subject, name)[first:last]) or [NAN] * len(times) for name in metrics]
    if len(times) <= points:
        return Columns(times, found)
    spans = _stretches(times, points // 2)
    # One time axis for all: a stretch shows at its begin and at its middle.
    thinned = [time for a, b in spans for time in (times[a], times[(a + b) // 2])]
    return Columns(thinned, [[value for a, b in spans for value in _extremes(column[a:b])] for column in found])


def _stretches(times: Sequence[float], count: int) -> list[tuple[int, int]]:
    """Places of the samples in each of `count` equal times: from the first to behind the last; none is empty."""
    step = (times[-1] - times[0]) / count or 1.0
    numbers = [min(int((time - times[0]) / step), count - 1) for time in times]
    edges = [0, *(place for place in range(1, len(times)) if numbers[place] != numbers[place - 1]), len(times)]
    return list(pairwise(edges))


def _extremes(values: Sequence[float]) -> tuple[float, float]:
    known = [value for value in values if value == value]
    if not known:
        return NAN, NAN
    low, high = min(known), max(known)
    return (low, high) if values.index(low) <= values.index(high) else (high, low)
