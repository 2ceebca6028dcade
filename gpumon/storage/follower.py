"""Followers: writers that receive every tick after the ring, such as the ledger and the history.

Live data matter more than any follower. A follower that raises an exception is dropped, and a slow one is reported,
with a line in the log each; the daemon and the other followers continue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Thread
from typing import Protocol

from gpumon.common.clock import SECOND, Clock
from gpumon.model.frame import Tick

LEDGER, HISTORY = "ledger", "history"
"""Names of the followers whose problems the ring shows to its readers: the writers of runs, and of history."""
SLOW = 1.0
"""Seconds for one tick from which a follower is reported, because it delays sampling."""


class Follower(Protocol):
    """Receives ticks in the sampling thread, so it must return quickly; slow work needs its own thread."""

    name: str
    """A unique word."""
    writes: str
    """Plural noun for what it writes, such as "records of runs"."""

    @property
    def problem(self) -> str:
        """Why nothing can be written at present, for people; empty while writing works."""

    def add(self, tick: Tick) -> None:
        """Add the next tick."""

    def close(self) -> None:
        """Finish within a few seconds. No tick follows. May be called from another thread."""


class Followers:
    """Passes each tick to every follower. `log` receives lines for the daemon's log."""

    def __init__(self, clock: Clock, log: Callable[[str], None]) -> None:
        self._clock = clock
        self._log = log
        self._all: list[Follower] = []
        self._slow: set[str] = set()
        self._failed: dict[str, str] = {}

    def __iter__(self) -> Iterator[Follower]:
        return iter(tuple(self._all))

    def append(self, follower: Follower) -> None:
        """Pass every tick from now on to `follower` too, and close it at the end."""
        self._all.append(follower)

    def problem(self, name: str) -> str:
        """Return why the follower with this name writes nothing, also after it was dropped; empty if it writes."""
        if name in self._failed:
            return self._failed[name]
        for follower in self._all:
            if follower.name == name:
                return follower.problem
        return ""

    def add(self, tick: Tick) -> None:
        """Pass a tick to every follower. Never raises."""
        now = self._clock.monotonic()
        for follower in tuple(self._all):
            try:
                follower.add(tick)
            except Exception as error:
                self._drop(follower, error)
                now = self._clock.monotonic()
                continue
            begin, now = now, self._clock.monotonic()
            seconds = (now - begin) / SECOND
            if seconds >= SLOW and follower.name not in self._slow:
                self._slow.add(follower.name)
                self._all.sort(key=lambda follower: follower.name in self._slow)  # slow ones last
                self._log(f"writing {follower.writes} took {seconds:.1f} s and delayed sampling")

    def close(self) -> None:
        """Close all followers, one after the other. Never raises."""
        for follower in self:
            self._close(follower)

    def close_within(self, seconds: float) -> None:
        """Close all followers in parallel, and return after `seconds` even if some have not finished."""
        threads = [Thread(target=self._close, args=(follower,), daemon=True) for follower in self]
        for thread in threads:
            thread.start()
        end = self._clock.monotonic() + round(seconds * SECOND)
        for thread in threads:
            thread.join(max(0.0, (end - self._clock.monotonic()) / SECOND))

    def _drop(self, follower: Follower, error: Exception) -> None:
        problem = f"this daemon no longer writes {follower.writes}: {type(error).__name__}: {error}"
        self._failed[follower.name] = problem
        self._log(problem)
        self._close(follower)

    def _close(self, follower: Follower) -> None:
        if follower not in self._all:
            return
        self._all.remove(follower)
        try:
            follower.close()
        except Exception as error:
            self._log(f"the last {follower.writes} were lost: {type(error).__name__}: {error}")
