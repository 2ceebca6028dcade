"""How much one visitor may ask, so that nobody delays the others.

Each visitor has a bucket: so many requests at once, and so many each second after that. Figures take
tens of milliseconds where a tick takes one; so few of them are made at a time that threads stay free
for ticks.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import BoundedSemaphore, Lock

BURST = 120.0
"""Requests that a page with all its files may send at once."""
PER_SECOND = 20.0
VISITORS = 4096
"""Buckets that are kept; whoever was not heard longest is forgotten."""
FIGURES_AT_ONCE = 2
PATIENCE = 10.0
"""Seconds that a figure waits for its turn."""
HEADER_BYTES = 16 * 1024
BODY_BYTES = 1024
"""Nothing here reads a body."""
CONNECTIONS = 1000
IDLE_SECONDS = 30
THREADS = 4


class Buckets:
    """The visitors' buckets. Safe to use from several threads."""

    def __init__(self, burst: float = BURST, per_second: float = PER_SECOND) -> None:
        self._burst = burst
        self._per_second = per_second
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = Lock()

    def takes(self, visitor: str, now: float) -> bool:
        """Whether this visitor may ask now, at `now` seconds of a clock that does not go back."""
        with self._lock:
            left, then = self._left.pop(visitor, (self._burst, now))
            left = min(self._burst, left + (now - then) * self._per_second)
            allowed = left >= 1.0
            self._left[visitor] = (left - 1.0 if allowed else left, now)
            if len(self._left) > VISITORS:
                self._left.popitem(last=False)
            return allowed


def figure_turns() -> BoundedSemaphore:
    """Turns for what is expensive."""
    return BoundedSemaphore(FIGURES_AT_ONCE)
