"""A series as one line: each bucket by its lowest and its highest value, so that a stall of one sample is seen.

Where buckets are wide, a line from one to the next would make hours of a second. There each is its mean from end to
end, and its extremes are upright in its middle.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from gpumon.history.query import Series

WIDE = 60
"""Buckets of a window that are wide on any screen, if it has no more."""
_EACH = 6
"""Points of a wide bucket: its ends, and its mean, its extremes and its mean in the middle."""
_OFF = 0.25
"""The share of a bucket by which its two points stand before and behind its middle, where it is not wide."""


def is_wide(series: Series, points: int) -> bool:
    """Whether each bucket is drawn by itself, in a line of so many points at most."""
    return series.step > 0 and _EACH * len(series.times) <= min(points, _EACH * WIDE)


def line_times(series: Series, begin: float, end: float, *, wide: bool = False) -> list[float]:
    """Return the times of the line (s since 1970), none of them outside of `begin` to `end`."""
    if not series.step:
        return list(series.times)
    if wide:
        half = series.step / 2
        points = [at for time in series.times for at in (time - half, *[time] * (_EACH - 2), time + half)]
    else:
        off = _OFF * series.step
        points = [at for time in series.times for at in (time - off, time + off)]
    return [min(max(at, begin), end) for at in points]


def line_values(series: Series, begin: float = -inf, end: float = inf, *, wide: bool = False) -> Sequence[float]:
    """Return the values at these times: low before high in a bucket where the means around it rise, else after it.

    Of a wide one whose middle is outside of `begin` to `end`, only the mean.
    """
    if not series.step:
        return series.mean
    if wide:
        return [
            value
            for time, low, mean, high in zip(series.times, series.low, series.mean, series.high, strict=True)
            for value in ((mean, mean, low, high, mean, mean) if begin <= time <= end else (mean,) * _EACH)
        ]
    before, after = [*series.mean[:1], *series.mean[:-1]], [*series.mean[1:], *series.mean[-1:]]
    return [
        value
        for low, high, first, last in zip(series.low, series.high, before, after, strict=True)
        for value in ((high, low) if first > last else (low, high))
    ]
