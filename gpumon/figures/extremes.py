"""A series as one line: each bucket by its lowest and its highest value, so that a stall of one sample is seen."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.history.query import Series

_OFF = 0.25
"""The share of a bucket by which its two points stand before and behind its middle."""


def line_times(series: Series, begin: float, end: float) -> list[float]:
    """Return the times of the line (s since 1970), none of them outside of `begin` to `end`."""
    if not series.step:
        return list(series.times)
    off = _OFF * series.step
    return [min(max(at, begin), end) for time in series.times for at in (time - off, time + off)]


def line_values(series: Series) -> Sequence[float]:
    """Return the values at these times: low before high in a bucket where the means around it rise, else after it."""
    if not series.step:
        return series.mean
    before, after = [*series.mean[:1], *series.mean[:-1]], [*series.mean[1:], *series.mean[-1:]]
    return [
        value
        for low, high, first, last in zip(series.low, series.high, before, after, strict=True)
        for value in ((high, low) if first > last else (low, high))
    ]
