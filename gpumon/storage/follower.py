"""Followers are writers that receive every tick after it was written to the ring, such as the ledger and the history.

Live data is more important than any follower. A follower that raises an exception is removed, and a slow follower is
reported. In both cases, one line is logged, and the daemon and the other followers continue.

`HistoryPlugin` is the base of the writers that share the history file and its thread.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from threading import Thread
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from gpumon.common.clock import SECOND, Clock
from gpumon.model.frame import Tick

if TYPE_CHECKING:
    import sqlite3

LEDGER, HISTORY = "ledger", "history"
"""Names of the two followers whose problems are published in the ring. They write runs and the history."""
SLOW = 1.0
"""A follower that needs at least this many seconds for one tick is reported, because it delays sampling."""


class Follower(Protocol):
    """Receives ticks in the sampling thread. It must return quickly and do slow work in a separate thread."""

    name: str
    """Unique name of the follower."""
    writes: str
    """Noun for the data that the follower writes, such as "records of runs". Messages use it."""

    @property
    def problem(self) -> str:
        """Reason why the follower cannot write, as text for users. Empty while writing works."""

    def add(self, tick: Tick) -> None:
        """Add the next tick."""

    def close(self) -> None:
        """Finish within a few seconds. No more ticks follow. May be called from another thread."""


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
        """Add a follower. It receives all later ticks and is closed with the others."""
        self._all.append(follower)

    def problem(self, name: str) -> str:
        """Return the reason why the follower with this name cannot write; empty if it can.

        The reason is also returned if the follower was removed after an exception.
        """
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


Batch = TypeVar("Batch")


class HistoryPlugin(ABC, Generic[Batch]):
    """Collects ticks for tables of the history file other than blocks of metrics, and writes them in batches.

    `add` runs in the sampling thread and must be quick. All other methods run in the thread that writes history.
    """

    @abstractmethod
    def add(self, tick: Tick) -> None:
        """Add the next tick."""

    @property
    def has_news(self) -> bool:
        """Whether there is something that readers should get within a second, such as the end of a run."""
        return False

    @abstractmethod
    def on_open(self, connection: sqlite3.Connection) -> None:
        """Prepare a newly opened file, for example by closing entries that an earlier daemon left open. Raises
        sqlite3.Error.
        """

    @abstractmethod
    def take(self) -> Batch | None:
        """Return everything that is not written yet, or None if there is nothing to write."""

    @abstractmethod
    def store(self, connection: sqlite3.Connection, batch: Batch) -> None:
        """Write a batch in an open transaction. Raises sqlite3.Error."""

    @abstractmethod
    def end(self, batch: Batch, *, is_written: bool) -> None:
        """Forget a batch that was written, or keep it for the next call of `take` if it was not written."""

    def write(self, connection: sqlite3.Connection) -> None:
        """Write everything since the last call in one transaction, or nothing and raise sqlite3.Error."""
        from gpumon.storage.sqlite.write import transaction  # imports SQLite, which not every follower needs

        batch = self.take()
        if batch is None:
            return
        is_written = False
        try:
            with transaction(connection):
                self.store(connection, batch)
            is_written = True
        finally:
            self.end(batch, is_written=is_written)

    @abstractmethod
    def finish(self) -> None:
        """Record that no more ticks follow. `write` is called once more after this."""
