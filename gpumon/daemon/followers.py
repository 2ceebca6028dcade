"""Classes that get each tick from the recorder: `ActivityRecorder` for accounts and events, and `LazyLedger` for
runs."""

from __future__ import annotations

import sqlite3
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from threading import Lock

from gpumon.analysis.holders import HolderWatch
from gpumon.common.procfs import boot_id
from gpumon.daemon.recovery import EarlierTicks, unwritten_activity
from gpumon.hang.own_runs import explain_in_background
from gpumon.model.frame import Tick
from gpumon.storage.events.log import EventBatch, EventBook, close_unseen, last_written, write_events, write_unwritten
from gpumon.storage.follower import LEDGER, Follower, HistoryPlugin
from gpumon.storage.sqlite.write import transaction
from gpumon.storage.usage.account import write_accounts
from gpumon.storage.usage.hours import AccountBook


class ActivityRecorder(HistoryPlugin[tuple[AccountBook, EventBatch]]):
    """Records the accounts of users and the event log, as a plugin of the history recorder.

    `now`: function that returns the current time in ns since 1970. `holders`: determines who holds each GPU; may be
    shared with other followers. `earlier`: function that returns the ticks of an earlier daemon that was killed.
    """

    def __init__(
        self, now: Callable[[], int] = time.time_ns, holders: HolderWatch | None = None,
        earlier: EarlierTicks = lambda _: (),
    ) -> None:  # fmt: skip
        self._now = now
        self._earlier = earlier
        self._first_ns = 0
        """Time of the first tick in ns of CLOCK_MONOTONIC, or 0 before the first tick."""
        self._boot = boot_id().hex()
        self._lock = Lock()
        self._holders = holders or HolderWatch()
        self._accounts = AccountBook()
        self._events = EventBook(explain_in_background)
        self._is_recovered = False
        """True after the entries that an earlier daemon left open have been closed."""

    def add(self, tick: Tick) -> None:
        """Add a tick. Ticks must be added in chronological order."""
        judged = self._holders.judged(tick)
        self._first_ns = self._first_ns or tick.monotonic_ns
        with self._lock:
            self._accounts.add(tick, judged)
            self._events.add(tick, judged)

    @property
    def has_news(self) -> bool:
        """Whether there are events that have not been written yet."""
        return self._events.has_events

    def on_open(self, connection: sqlite3.Connection) -> None:
        """Write the data that a killed daemon had not written, and end the events that it left open.

        Raises sqlite3.Error.
        """
        if not self._is_recovered:
            written_ns = last_written(connection, self._boot)
            unwritten = (
                unwritten_activity(self._earlier(written_ns), written_ns, self._first_ns) if written_ns else None
            )
            with transaction(connection):
                if unwritten:
                    write_accounts(connection, unwritten.accounts)
                    write_unwritten(connection, unwritten.events, self._boot)
                close_unseen(connection, (), self._boot, runs=False)
            self._is_recovered = True

    def take(self) -> tuple[AccountBook, EventBatch]:
        """Return the accounts and events that are new since the last call."""
        with self._lock:
            return self._accounts.drain(), self._events.drain()

    def store(self, connection: sqlite3.Connection, batch: tuple[AccountBook, EventBatch]) -> None:
        """Write accounts and events in an open transaction. Raises sqlite3.Error."""
        accounts, events = batch
        write_accounts(connection, accounts)
        write_events(connection, events, self._boot)
        if events.is_settled:
            close_unseen(connection, events.open_events, self._boot, runs=True)

    def end(self, batch: tuple[AccountBook, EventBatch], *, is_written: bool) -> None:
        """Add accounts and events back that could not be written."""
        if not is_written:
            with self._lock:
                self._accounts.restore(batch[0])
                self._events.restore(batch[1])

    def finish(self) -> None:
        """Record that the daemon stops."""
        with self._lock:
            self._events.finish(self._now())


_OPEN_TIMEOUT_S = 2.0
"""Frames wait at most this many seconds until their ledger is open. On an idle machine, opening it takes
milliseconds."""
_EARLIER_TICKS = 8
"""This number of ticks before the first tick with a run are also passed to the ledger, because the run may have started
before it was seen."""


class LazyLedger:
    """Opens a ledger when a tick first contains a run. This tick and all later ones are passed to the ledger.

    `open_ledger`: function that opens the ledger. Its argument is the keys of the runs in the first tick with a run.
    """

    name = LEDGER
    writes = "records of runs"

    def __init__(self, open_ledger: Callable[[Collection[str]], Follower]) -> None:
        self._open_ledger = open_ledger
        self._earlier: deque[Tick] = deque(maxlen=_EARLIER_TICKS)
        self._ledger: Follower | None = None

    @property
    def problem(self) -> str:
        """Reason why the ledger cannot be written at the moment, as text for users. Empty if it can be written."""
        return self._ledger.problem if self._ledger is not None else ""

    def add(self, tick: Tick) -> None:
        """Add a tick. Ticks must be added in chronological order."""
        if self._ledger is None:
            self._earlier.append(tick)
            if not (tick.runs or tick.boundaries):
                return
            self._ledger = self._open_ledger({run.key for run in tick.runs})
            for earlier in self._earlier:
                self._ledger.add(earlier)
            self._earlier.clear()
        else:
            self._ledger.add(tick)

    def restart(self) -> None:
        """Close the ledger, so that another ledger is opened when the next run appears.

        This is needed after a jump in a recording, because later ticks do not continue the earlier ones.
        """
        self.close()
        self._ledger = None
        self._earlier.clear()

    def close(self) -> None:
        """Close the ledger if one was opened."""
        if self._ledger is not None:
            self._ledger.close()


def lazy_ledger(
    path: Callable[[], str], uid: int, log: Callable[[str], object], *, waits: bool, shared: bool = False,
    earlier: Callable[[], Sequence[str]] = tuple,
) -> LazyLedger:  # fmt: skip
    """Return a ledger in the file `path()` that is opened when the first run appears.

    `uid`: user to whom the file belongs. `log`: function that is called with a line for each problem. `waits`: let
    ticks wait until the ledger is open; needed for sources that deliver minutes of ticks at once. `shared`: let other
    users read the file. `earlier`: function that returns the paths of other ledgers. If they contain the start of the
    same runs, these runs are continued.
    """

    def open_ledger(keys: Collection[str]) -> Follower:
        from gpumon.storage.ledger.recorder import LedgerRecorder  # imports SQLite, which only runs need
        from gpumon.storage.ledger.writer import LedgerWriter

        file = path()

        def copy_earlier() -> None:
            from gpumon.storage.ledger.recorder import copy_runs

            copy_runs(file, earlier(), keys, uid, log)

        store = LedgerWriter(file, uid, log, shared=shared, prepare=copy_earlier).start()
        if waits:
            store.wait_until_open(_OPEN_TIMEOUT_S)
        return LedgerRecorder(store, keep=True)

    return LazyLedger(open_ledger)
