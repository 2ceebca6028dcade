"""How much one poll takes in of a user's boards, so that nobody's boards delay the sampling of others."""

from __future__ import annotations

from gpumon.clock import SECOND

EVENTS = 512
"""Of one user in a second: a hundred ranks with epochs of 1 s have two fifths of it."""
BYTES = 64 * 1024
"""Of descriptions and particulars of runs, likewise: what is new in them is read later."""
FOR_DESCRIPTIONS = 256 * 1024
"""Bytes that particulars leave to descriptions: without these the events of a run are not understood."""
BURST = 8
"""Seconds of which what was not used may be used at once, as when a daemon finds the boards of many ranks."""


class Budget:
    """What one user may have read; below 0 where a board had more than was left."""

    def __init__(self, now: int) -> None:
        self.events = EVENTS * BURST
        self.bytes = BYTES * BURST
        self._at = now

    def refill(self, now: int) -> None:
        """Add what has come since the last time; `now` in monotonic ns."""
        passed, self._at = max(0, now - self._at), now
        self.events = min(self.events + EVENTS * passed // SECOND, EVENTS * BURST)
        self.bytes = min(self.bytes + BYTES * passed // SECOND, BYTES * BURST)

    @property
    def is_spent(self) -> bool:
        """Whether no further board is to be opened."""
        return self.events <= 0 or self.bytes <= 0
