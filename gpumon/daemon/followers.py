"""The part of history that is about people: accounts of users, and the event log."""

from __future__ import annotations

import sqlite3
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from threading import Lock

from gpumon.analysis.holders import HeldDevice, HolderWatch
from gpumon.common.procfs import boot_id
from gpumon.daemon.recovery import EarlierTicks, unwritten
from gpumon.model.frame import Tick
from gpumon.storage.events.log import EventBook, close_unseen, last_written, write_events, write_unwritten
from gpumon.storage.follower import LEDGER, Follower
from gpumon.storage.sqlite.write import transaction
from gpumon.storage.usage.hours import AccountBook
from gpumon.storage.usage.rows import write_accounts

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


_OPENED = 2.0
"""Seconds for which frames wait for their ledger to be opened, at most; on a machine that is not busy it takes ms."""
_BEFORE = 8
"""Newest ticks that are handed on with the first run: it may have begun before it was seen."""


class AwaitedRuns:
    """Hands ticks to the ledger that `make` opens with the first one that tells of a run: it gets the keys of those."""

    name = LEDGER
    writes = "records of runs"

    def __init__(self, make: Callable[[Collection[str]], Follower]) -> None:
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
            self._ledger = self._make({run.key for run in tick.runs})
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


def runs_at(
    path: Callable[[], str], uid: int, say: Callable[[str], object], *, waits: bool, shared: bool = False,
    earlier: Callable[[], Sequence[str]] = tuple,
) -> AwaitedRuns:  # fmt: skip
    """Runs that are kept in the ledger whose `path` is asked for with the first of them.

    `waits`: frames wait for it to be opened, where minutes of them come at once; `shared`: others may read it; `say`
    is told, in a line, what goes wrong. `earlier` gives ledgers that may have the same runs from before: these are
    continued.
    """

    def opened(keys: Collection[str]) -> Follower:
        from gpumon.storage.ledger.recorder import LedgerRecorder  # SQLite: only who keeps runs needs it
        from gpumon.storage.ledger.writer import Store

        own = path()

        def begin() -> None:
            from gpumon.storage.ledger.recorder import carry_over

            carry_over(own, earlier(), keys, uid, say)

        store = Store(own, uid, say, shared=shared, begin=begin).start()
        if waits:
            store.wait_until_open(_OPENED)
        return LedgerRecorder(store, keep=True)

    return AwaitedRuns(opened)
