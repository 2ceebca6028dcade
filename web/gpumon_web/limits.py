"""Limits on the requests of one visitor, so that nobody delays the others.

Each visitor has a bucket: so many requests at once, and so many each second after that.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock

BURST = 120.0
"""Requests that a page with all its files may send at once."""
PER_SECOND = 20.0
PROGRAMS = 20.0
"""Times as much for programs that send the token: many of them may share an address."""
GUESSES = 1 / 6
"""Times as much for wrong tokens from an address."""
VISITORS = 4096
"""Buckets that are kept; whoever was not heard longest is forgotten."""
HEADER_BYTES = 16 * 1024
BODY_BYTES = 1024
"""The one body that is read has a token in it."""
CONNECTIONS = 1000
IDLE_SECONDS = 30
"""A connection may be silent, or read nothing of an answer, for so long."""
REQUEST_SECONDS = 10
"""A request must be whole in so many, from its first byte, or from the connection's opening."""
UNREAD = 2**20
"""Bytes of answers that a client may leave unread and still get the next one."""
THREADS = 4


class Buckets:
    """The visitors' buckets. Safe to use from several threads."""

    def __init__(self, burst: float = BURST, per_second: float = PER_SECOND) -> None:
        self._burst = burst
        self._per_second = per_second
        self._left: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()
        self._lock = Lock()

    def takes(self, visitor: Hashable, now: float, times: float = 1.0) -> bool:
        """Whether this visitor may ask now, at `now` seconds of a clock that does not go back.

        His bucket is `times` as large as the usual one, and fills `times` as quickly.
        """
        burst = self._burst * times
        with self._lock:
            left, then = self._left.pop(visitor, (burst, now))
            left = min(burst, left + (now - then) * self._per_second * times)
            allowed = left >= 1.0
            self._left[visitor] = (left - 1.0 if allowed else left, now)
            if len(self._left) > VISITORS:
                self._left.popitem(last=False)
            return allowed
