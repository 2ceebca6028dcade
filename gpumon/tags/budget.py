"""How much one poll takes in of a user's boards, so that nobody's boards delay the sampling of others."""

from __future__ import annotations

import os
import pwd
from bisect import bisect_right
from contextlib import suppress

from gpumon.common.clock import SECOND
from gpumon.common.paths import read_regular

EVENTS = 512
"""Of one user in a second: a hundred ranks with epochs of 1 s have two fifths of it."""
BYTES = 64 * 1024
"""Of descriptions and particulars of runs, likewise: what is new in them is read later."""
FOR_DESCRIPTIONS = 256 * 1024
"""Bytes that particulars leave to descriptions: without these the events of a run are not understood."""
BURST = 8
"""Seconds of which what was not used may be used at once, as when a daemon finds the boards of many ranks."""

_LARGEST = 1 << 20
_MOST_UIDS = 4096


class BudgetOwners:
    """Users by uid: those that /etc/subuid lends to a user, as for rootless containers, use the budget of that user.

    Any user may own files and processes under 65,536 of them.
    """

    def __init__(self, path: str = "/etc/subuid") -> None:
        self._path = path
        self._stamp = 0
        self._ranges: list[tuple[int, int, int]] = []
        """First uid, the one behind the last, and the user, in the order of the first."""
        self._known: dict[int, int] = {}

    def of(self, uid: int) -> int:
        """Return the user whose budget `uid` uses."""
        known = self._known.get(uid)
        if known is None:
            self._read()
            if len(self._known) >= _MOST_UIDS:
                self._known.clear()
            place = bisect_right(self._ranges, uid, key=lambda one: one[0]) - 1
            lent = place >= 0 and uid < self._ranges[place][1]
            known = self._known[uid] = self._ranges[place][2] if lent else uid
        return known

    def _read(self) -> None:
        """Read the file again where it has changed."""
        try:
            stamp = os.stat(self._path).st_mtime_ns
            if stamp == self._stamp:
                return
            lines = read_regular(self._path, _LARGEST, follow=True).decode("utf-8", "replace").splitlines()
        except OSError:
            return  # as in a container
        self._stamp, ranges = stamp, []
        for line in lines:
            with suppress(ValueError, KeyError):  # no such user
                name, first, count = line.split(":")
                owner = int(name) if name.isdecimal() else pwd.getpwnam(name).pw_uid
                ranges.append((int(first), int(first) + int(count), owner))
        self._ranges = sorted(ranges)
        self._known.clear()


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
