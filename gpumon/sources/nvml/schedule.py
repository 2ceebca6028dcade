"""Points in time at which a value is read again."""

from __future__ import annotations

EVERY_TICK = 0.0
UNSUPPORTED = 60.0
"""Seconds until a driver is asked again for what it said it does not have: a MIG mode or a reset may change that."""
SLACK = 0.25
"""Seconds that a read may come early, so that the jitter of a tick does not put it off to the next."""
_SHARE = 12
"""Of a period, the part that it may come early at most: else one of a second would be short by a quarter."""
AGAIN = 2.0 - SLACK
"""Seconds until a device is asked again for what it has answered before: that it refuses now is a fault, and passes."""
TURNS = 8


def next_due(now: float, period: float, due: float, index: int) -> float:
    """When to ask again; all in seconds, `due` is 0 before the first time.

    Devices take turns by their index, so that slow calls do not all fall on one tick.
    """
    if period == EVERY_TICK:
        return now
    turn = (TURNS - index % TURNS) / TURNS if due == 0.0 else 1.0
    return now + period * turn - min(SLACK, period / _SHARE)
