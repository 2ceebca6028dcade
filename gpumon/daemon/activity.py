"""The part of history that is about people: accounts of users, and the event log."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence
from threading import Lock

from gpumon.analysis.holders import HeldDevice, HolderWatch
from gpumon.common.procfs import boot_id
from gpumon.daemon.unwritten import EarlierTicks, unwritten
from gpumon.model.frame import Tick
from gpumon.storage.events.log import EventBook, close_unseen, last_written, write_events, write_unwritten
from gpumon.storage.sqlite.write import transaction
from gpumon.storage.usage.hours import AccountBook, write_accounts

_AT_ONCE = 10
"""Ticks taken together: after a second of sleep little of the code is in the CPU's caches, and one costs as much as
two or three that follow another."""


class ActivityPart:
    """Keeps accounts and events; a part of the history that a daemon keeps.

    `now`: ns since 1970; `holders` judges the ticks, maybe for others too; `earlier` gives those of a daemon that was
    killed.
    """

    def __init__(
        self, now: Callable[[], int] = time.time_ns, holders: HolderWatch | None = None,
        earlier: EarlierTicks = lambda _: (),
    ) -> None:  # fmt: skip
        self._now = now
        self._earlier = earlier
        self._first_ns = 0
        """ns, CLOCK_MONOTONIC, of the first tick; 0 before it."""
        self._boot = boot_id().hex()
        self._lock = Lock()
        self._holders = holders or HolderWatch()
        self._accounts = AccountBook()
        self._events = EventBook()
        self._waiting: list[tuple[Tick, Sequence[HeldDevice]]] = []
        self._is_joined = False
        """Whether what an earlier daemon left open is closed."""

    def add(self, tick: Tick) -> None:
        """Take a tick; they come in order."""
        judged = self._holders.judged(tick)
        self._first_ns = self._first_ns or tick.monotonic_ns
        with self._lock:
            self._waiting.append((tick, judged))
            if len(self._waiting) >= _AT_ONCE:
                self._take()

    def opened(self, connection: sqlite3.Connection) -> None:
        """Write what a daemon that was killed had not written, and close what it left open. Raises sqlite3.Error.

        Accounts go on where it left them.
        """
        if not self._is_joined:
            written_ns = last_written(connection, self._boot)
            found = unwritten(self._earlier(written_ns), written_ns, self._first_ns) if written_ns else None
            with transaction(connection):
                if found:
                    write_accounts(connection, found.accounts)
                    write_unwritten(connection, found.events, self._boot)
                close_unseen(connection, (), self._boot, runs=False)
            self._is_joined = True

    def write(self, connection: sqlite3.Connection) -> None:
        """Write what has come since the last time. Raises sqlite3.Error."""
        with self._lock:
            self._take()
            accounts, events = self._accounts.take(), self._events.take()
        try:
            with transaction(connection):
                write_accounts(connection, accounts)
                write_events(connection, events, self._boot)
                if events.is_settled:
                    close_unseen(connection, events.going_on, self._boot, runs=True)
        except BaseException:
            with self._lock:
                self._accounts.give_back(accounts)
                self._events.give_back(events)
            raise

    def finish(self) -> None:
        """Note that the daemon stops."""
        with self._lock:
            self._take()
            self._events.finish(self._now())

    def _take(self) -> None:
        """Take what waits, in its order."""
        waiting, self._waiting = self._waiting, []
        for tick, judged in waiting:
            self._accounts.add(tick, judged)
            self._events.add(tick, judged)
