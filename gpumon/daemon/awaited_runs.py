"""A ledger for a view that samples by itself: opened when there is a run, so that a view without one pays nothing."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from gpumon.followers import LEDGER, Follower
from gpumon.frame import Tick

_BEFORE = 8
"""Newest ticks that are handed on with the first run: it may have begun before it was seen."""


class AwaitedRuns:
    """Hands ticks to the ledger that `make` opens with the first one that tells of a run."""

    name = LEDGER
    writes = "records of runs"

    def __init__(self, make: Callable[[], Follower]) -> None:
        self._make = make
        self._before: deque[Tick] = deque(maxlen=_BEFORE)
        self._ledger: Follower | None = None

    @property
    def problem(self) -> str:
        """Why the file cannot be written just now, for people; else empty."""
        return self._ledger.problem if self._ledger is not None else ""

    def add(self, tick: Tick) -> None:
        """Take a tick."""
        if self._ledger is None:
            self._before.append(tick)
            if not (tick.runs or tick.boundaries):
                return
            self._ledger = self._make()
            for earlier in self._before:
                self._ledger.add(earlier)
            self._before.clear()
        else:
            self._ledger.add(tick)

    def begin_anew(self) -> None:
        """Finish the ledger, and open another with the next run: what comes does not follow what is in it."""
        self.close()
        self._ledger = None
        self._before.clear()

    def close(self) -> None:
        """Finish the ledger, where one was opened."""
        if self._ledger is not None:
            self._ledger.close()
