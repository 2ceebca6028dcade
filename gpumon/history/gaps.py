"""The one rule of when two ticks follow each other, so that the first one's values hold until the second."""

from __future__ import annotations

from gpumon.history.rates import PAUSE, SHORTEST_INTERVAL

STEADY = 1.0
"""Seconds by which the wall clock may differ from the steady one between two ticks; else it was set, or we slept."""


def longest(interval: float) -> float:
    """Return by how many seconds two ticks that follow each other lie apart at most; `interval` as planned."""
    return PAUSE * max(interval, SHORTEST_INTERVAL)


def is_gap(passed: float, by_clock: float, interval: float) -> bool:
    """Return whether nothing is known of the time between two ticks.

    `passed` seconds lie between them by CLOCK_MONOTONIC, which stands still while the machine sleeps, and `by_clock`
    by the wall clock; `interval`: seconds between ticks as planned. NaN, before the first tick, is a gap.
    """
    return not (0 < passed <= longest(interval) and abs(by_clock - passed) <= STEADY)
