"""The ledger's writer: one thread that writes what it is given, so that a slow disk delays no tick.

Nothing here ever stops a daemon: where the ledger cannot be written it is said once, what came is
kept in memory as far as there is room, and tried again later.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from threading import Condition, Thread
from time import monotonic
from typing import Any, NamedTuple

from gpumon.database.cells import REAL, parse_json, typed_rows
from gpumon.database.state_file import StateFile
from gpumon.ledger.migrations import LEDGER_FILE
from gpumon.ledger.write import Batch, has_right_sum, write

MOST_ROWS = 20_000
"""Rows that wait in memory: some 20 MB."""
_RETRY, _RETRY_MOST = 1.0, 60.0
_KNOWN_RUNS = 20_000
_KNOWN_RANKS = 50_000
"""A board may lie around as long as the machine is up: a rank that is over must not be taken for a new one."""

StoredTrace = tuple[str, int, float, int, str, bytes]
"""A trace as stored, without its rank; `cells` unpacked."""


class OpenRank(NamedTuple):
    """A rank that was running when the ledger was opened."""

    run: str
    pid: int
    hostname: str
    updated_ns: int
    """ns since 1970."""
    progress: dict[str, Any]
    traces: list[StoredTrace]


class KnownRuns(NamedTuple):
    """Content of the ledger when it was opened."""

    running: dict[str, OpenRank]
    """By key of the rank."""
    ended: set[str]
    """Keys of the newest ranks that ended."""
    runs: dict[str, tuple[str, int | None]]
    """By id: the user, and when it ended (ns since 1970), None while it runs."""


class Store:
    """Writes batches to the ledger at `path`, in a thread of its own.

    `shared`: others may read the file. `log` gets one line when something is wrong. `begin` is called in the thread
    before the ledger is opened: it may make it.
    """

    def __init__(
        self, path: str, uid: int, log: Callable[[str], object], *, shared: bool = False, most_rows: int = MOST_ROWS,
        begin: Callable[[], object] = bool,
    ) -> None:  # fmt: skip
        self._file = StateFile(path, LEDGER_FILE, uid, log, shared=shared, opened=self._load)
        self.known: KnownRuns | None = None
        """None until the ledger was open for the first time."""
        self._begin = begin
        self._log = log
        self._most_rows = most_rows
        self._waiting = Batch()
        self._changed = Condition()
        self._stopping = False
        self._dropped = 0
        self._refused = False
        self._thread = Thread(target=self._run, name="gpumon-ledger", daemon=True)

    @property
    def problem(self) -> str:
        """Why nothing is written just now, for people; empty when all is well."""
        return self._file.problem

    def start(self) -> Store:
        """Begin to open and to write."""
        self._thread.start()
        return self

    def wait_until_open(self, timeout: float) -> bool:
        """Wait for the ledger to be opened, at most so many seconds; whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: self.known is not None, timeout)

    def put(self, batch: Batch) -> None:
        """Hand over what is to be written, all of it together. Never waits for a disk."""
        if not batch:
            return
        with self._changed:
            room = self._most_rows - len(self._waiting.rows)
            if len(batch.rows) > room:
                # What can be replaced is kept; of the rest the newest is left out.
                fits = {key: row for key, row in batch.rows.items() if key in self._waiting.rows}
                new = [key for key in batch.rows if key not in fits][: max(0, room)]
                fits |= {key: batch.rows[key] for key in new}
                self._dropped += len(batch.rows) - len(fits)
                batch.rows = fits
            self._waiting.then(batch)
            del self._waiting.late[self._most_rows :]
            self._changed.notify()

    def close(self, timeout: float = 5.0) -> bool:
        """Write what is left, for at most `timeout` seconds. True when everything is written."""
        with self._changed:
            self._stopping = self._file.is_ending = True
            self._changed.notify()
        self._thread.join(timeout)
        done = not self._thread.is_alive() and not self._waiting
        if not done:
            self._log(f"cannot write the last measurements to {self._file.path}")
        return done

    def _run(self) -> None:
        delay = _RETRY
        with suppress(OSError, sqlite3.Error):  # what is wrong with the file is said when it is opened
            self._begin()
        while True:
            try:
                if not self._file.is_open and os.path.lexists(self._file.path):
                    self._file.connect()
                elif self.known is None:
                    self.known = KnownRuns({}, set(), {})  # the file is made with the first run
                    with self._changed:
                        self._changed.notify_all()
                if self._write_next():
                    return
            except Exception as error:  # a damaged file may give anything, and this thread must outlive it
                self._file.failed(error)
                with self._changed:
                    if self._stopping or self._file.is_refused:
                        return
                    deadline = monotonic() + delay
                    while not self._stopping and (left := deadline - monotonic()) > 0:
                        self._changed.wait(left)
                delay = min(2 * delay, _RETRY_MOST)
            else:
                delay = _RETRY

    def _write_next(self) -> bool:
        """Wait for a batch and write it; true when this was the last one."""
        with self._changed:
            while not self._waiting and not self._stopping:
                self._changed.wait()
            batch, self._waiting = self._waiting, Batch()
            last = self._stopping
        try:
            if batch:
                self._write(batch)
        except BaseException:
            with self._changed:
                self._waiting = batch.then(self._waiting)
            raise
        if last:
            self._file.close()
        return last

    def _write(self, batch: Batch) -> None:
        refused = write(self._file.connect(), batch)
        if refused and not self._refused:
            self._refused = True
            self._log(f"{self._file.path}: {refused} invalid rows were dropped")
        self._file.succeeded()
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            self._log(f"{self._file.path}: {dropped} rows were lost: memory was full while writing failed")

    def _load(self, connection: sqlite3.Connection) -> None:
        if self.known is None:
            self.known = _load_state(connection)


def _load_state(connection: sqlite3.Connection) -> KnownRuns:
    # A daemon was killed in the seconds behind their end: what it awaited then does not come any more.
    connection.execute("DELETE FROM progress WHERE rank IN (SELECT key FROM rank WHERE ended IS NOT NULL)")
    running = {}
    ranks = connection.execute(
        "SELECT key, rank.run, pid, hostname, updated, progress.state FROM rank JOIN run ON run.id = rank.run "
        "LEFT JOIN progress ON progress.rank = rank.key WHERE rank.ended IS NULL"
    )
    for key, run, pid, hostname, updated, state in typed_rows(ranks, str, str, int, str, int, object):
        traces = [
            (uuid, begun, step, points, columns, cells)
            for uuid, begun, step, points, columns, packed in typed_rows(
                connection.execute(
                    "SELECT uuid, begun, step, points, columns, cells FROM trace WHERE rank = ?", (key,)
                ),
                str, int, REAL, int, str, bytes,
            )
            if (cells := _unpacked(packed)) is not None
        ]  # fmt: skip
        running[key] = OpenRank(
            run=run,
            pid=pid,
            hostname=hostname,
            updated_ns=updated,
            progress=_progress(state),
            traces=traces,
        )
    ended = connection.execute(
        "SELECT key FROM rank WHERE ended IS NOT NULL ORDER BY started DESC LIMIT ?", (_KNOWN_RANKS,)
    )
    forgotten = connection.execute("SELECT rank FROM forgotten ORDER BY time DESC LIMIT ?", (_KNOWN_RANKS,))
    runs = connection.execute("SELECT id, user, ended FROM run ORDER BY started DESC LIMIT ?", (_KNOWN_RUNS,))
    return KnownRuns(
        running=running,
        ended={key for rows in (ended, forgotten) for (key,) in typed_rows(rows, str)},
        runs={id: (user, over) for id, user, over in typed_rows(runs, str, str, int | None)},
    )


def _unpacked(packed: bytes) -> bytes | None:
    import zlib

    try:
        return zlib.decompress(packed)
    except (zlib.error, TypeError):
        return None


def _progress(state: object) -> dict[str, Any]:
    """Progress of a rank; empty where there is none, or it is damaged."""
    found = parse_json(state) if isinstance(state, str) and has_right_sum(state) else None
    return found if isinstance(found, dict) else {}
