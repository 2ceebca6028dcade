"""Times at which new frames are looked for: once a frame, soon after it is due."""

from __future__ import annotations

from gpumon.common.clock import SECOND

LATE = 0.1
"""Seconds that a frame takes at first from its time until it can be read: the driver has to answer."""
_LATER = 0.05
"""Seconds by which it is expected later from then on, where it was not there."""
_LATEST = 0.5
_MOST = 1.0
"""Seconds after which the view is looked at in any case: what it tells may be over."""
_AGAIN = 0.1
"""Seconds until a frame that is due is looked for once more."""


class Cadence:
    """The wait for the next frame of a source that takes one every so often; `usual` where that is not known (s)."""

    def __init__(self, usual: float) -> None:
        self._usual = usual
        self._late = LATE
        self._due = 0
        """Monotonic time (ns) of the frame that is expected; 0 for none."""

    def wait(self, newest: int, interval: float, now: int) -> float:
        """Return the seconds until the next look.

        `newest`: time of the newest frame, and `now`, both of the monotonic clock (ns); `interval` of frames (s).
        """
        if interval <= self._usual:
            return self._usual
        due = newest + round(interval * SECOND)
        was_expected, self._due = due == self._due, due
        wait = (due - now) / SECOND + self._late
        if _AGAIN / 2 < wait <= interval + self._late:
            return min(wait, _MOST)
        if not was_expected or not -_AGAIN < wait <= _AGAIN / 2:
            return self._usual  # of another clock, or of a source that is silent
        self._late = min(_LATEST, self._late + _LATER)
        return min(_AGAIN, self._usual)
