"""The part of history that is about people: accounts of users. Judges each tick once."""

from __future__ import annotations

import sqlite3
from threading import Lock

from gpumon.accounting.book import AccountBook
from gpumon.accounting.rows import write_accounts
from gpumon.analysis.gpu_state import Activity
from gpumon.analysis.holders import held_devices
from gpumon.frame import Tick


class ActivityPart:
    """Keeps accounts of users; a part of the history that a daemon keeps."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._activity = Activity()
        self._book = AccountBook()

    def add(self, tick: Tick) -> None:
        """Take a tick; they come in order."""
        judged = held_devices(tick, self._activity)
        with self._lock:
            self._book.add(tick, judged)

    def opened(self, connection: sqlite3.Connection) -> None:
        """Accounts go on where an earlier daemon left them."""

    def write(self, connection: sqlite3.Connection) -> None:
        """Write what has come since the last time. Raises sqlite3.Error."""
        with self._lock:
            taken = self._book.take()
        try:
            connection.execute("BEGIN IMMEDIATE")
            write_accounts(connection, taken)
            connection.execute("COMMIT")
        except BaseException:
            with self._lock:
                self._book.give_back(taken)
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def finish(self) -> None:
        """Note that no tick comes any more."""
