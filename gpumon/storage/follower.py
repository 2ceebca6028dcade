"""Consumers of every tick after the ring: the ledger, longer history, accounts of users.

Live data are worth more than any of them. A follower that raises is dropped, one that is slow is named, each in one
line; the daemon and the other followers continue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Thread
from typing import Protocol

from gpumon.common.clock import SECOND, Clock
from gpumon.model.frame import Tick

LEDGER, HISTORY = "ledger", "history"
"""Names of the followers that record runs, and all else: readers of the ring are told their problems."""
SLOW = 1.0
"""Seconds for one tick from which a follower is named: it holds up the sampling for so long."""


class Follower(Protocol):
    """Takes ticks in the thread that samples, so quickly that it delays no other; slow work needs its own thread."""

    name: str
    """One word that tells it from the others."""
    writes: str
    """Plural noun for what it keeps, such as "records of runs"."""

    @property
    def problem(self) -> str:
        """Why nothing can be kept just now, for people; empty while all is well."""

    def add(self, tick: Tick) -> None:
        """Take a tick; they come in order."""

    def close(self) -> None:
        """Finish, within a few seconds; no tick comes after this, and it may come from another thread."""


class Followers:
    """Hands each tick to every follower. `say` takes a line for the daemon's log."""

    def __init__(self, clock: Clock, say: Callable[[str], None]) -> None:
        self._clock = clock
        self._say = say
        self._all: list[Follower] = []
        self._slow: set[str] = set()
        self._failed: dict[str, str] = {}

    def __iter__(self) -> Iterator[Follower]:
        return iter(tuple(self._all))

    def append(self, follower: Follower) -> None:
        """Hand every tick from now on to `follower` too; this closes it."""
        self._all.append(follower)

    def problem(self, name: str) -> str:
        """Why the follower of this name keeps nothing just now, also after it was dropped; else empty."""
        if name in self._failed:
            return self._failed[name]
        for follower in self._all:
            if follower.name == name:
                return follower.problem
        return ""

    def add(self, tick: Tick) -> None:
        """Hand on a tick. Never raises."""
        at = self._clock.monotonic()
        for follower in tuple(self._all):
            try:
                follower.add(tick)
            except Exception as error:
                self._drop(follower, error)
                at = self._clock.monotonic()
                continue
            begun, at = at, self._clock.monotonic()
            seconds = (at - begun) / SECOND
            if seconds >= SLOW and follower.name not in self._slow:
                self._slow.add(follower.name)
                self._all.sort(key=lambda one: one.name in self._slow)  # the others have their ticks before it
                self._say(f"writing {follower.writes} took {seconds:.1f} s and delayed sampling")

    def close(self) -> None:
        """Finish all of them. Never raises."""
        for follower in self:
            self._close(follower)

    def close_within(self, seconds: float) -> None:
        """Finish all of them at once, for a process that ends whether they have finished or not."""
        threads = [Thread(target=self._close, args=(follower,), daemon=True) for follower in self]
        for thread in threads:
            thread.start()
        end = self._clock.monotonic() + round(seconds * SECOND)
        for thread in threads:
            thread.join(max(0.0, (end - self._clock.monotonic()) / SECOND))

    def _drop(self, follower: Follower, error: Exception) -> None:
        problem = f"this daemon no longer writes {follower.writes}: {type(error).__name__}: {error}"
        self._failed[follower.name] = problem
        self._say(problem)
        self._close(follower)

    def _close(self, follower: Follower) -> None:
        if follower not in self._all:
            return
        self._all.remove(follower)
        try:
            follower.close()
        except Exception as error:
            self._say(f"the last {follower.writes} were lost: {type(error).__name__}: {error}")
