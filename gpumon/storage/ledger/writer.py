"""Writes batches of rows into the ledger in a separate thread, so that a slow disk does not delay ticks.

A failure here never stops the daemon. If the ledger cannot be written, this is logged once. Batches then wait in memory
up to a limit, and writing is retried later.
"""

from __future__ import annotations

import os
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from threading import Condition, Thread
from time import monotonic
from typing import Any

from gpumon.common.clock import SECOND
from gpumon.common.columnar import DamagedBlock
from gpumon.model.frame import RunState
from gpumon.storage.history.envelope import Envelope
from gpumon.storage.ledger.row_keys import STEP_ROWS
from gpumon.storage.ledger.schema import LEDGER_FILE
from gpumon.storage.ledger.trace import POINTS, pack_trace, unpack_trace
from gpumon.storage.sqlite.cells import REAL, parse_json, typed_rows
from gpumon.storage.sqlite.state_file import StateFile

KEYS: dict[str, tuple[str, ...]] = {
    "run": ("id",),
    "rank": ("key",),
    "device": ("rank", "uuid"),
    "epoch": ("rank", "ordinal"),
    "phase": ("rank", "ordinal", "phase"),
    "usage": ("rank", "ordinal", "phase", "uuid"),
    "outside": ("rank", "phase"),
    "step_row": ("rank", "ordinal"),
    "mark": ("rank", "number"),
    "trace": ("rank", "uuid"),
    "progress": ("rank",),
    "parameter": ("run", "kind", "name"),
    "note": ("run", "time", "text"),
    "tag": ("run", "tag"),
}
"""Primary key of each table. A table comes after the tables to which its foreign keys refer."""
TRACE_ROOM = 256 * 2**20
"""Maximum size of all traces together in bytes. The oldest traces are deleted first."""
_INSERT_ONLY = frozenset(("note", "tag"))
"""Tables whose rows the daemon never updates, because a user may have changed them with a command."""
_FIRST_VALUE_STAYS = frozenset(("name", "resumes", "ended", "state", "started", "seconds"))
"""Columns of `run` that a newer row does not overwrite. The name may have been changed by a user, and the other columns
are computed from the ranks."""
_ORDER = {table: i for i, table in enumerate(KEYS)}
_BY_SEVERITY = (RunState.FINISHED, RunState.STOPPED, RunState.INTERRUPTED, RunState.FAILED, RunState.DIED)
"""States from best to worst. A run has the worst state of its ranks."""
_SEVERITY = f"CASE state {' '.join(f'WHEN {state:d} THEN {i}' for i, state in enumerate(_BY_SEVERITY))} END"
_STATES = " ".join(f"WHEN {i} THEN {state:d}" for i, state in enumerate(_BY_SEVERITY))
_ROW_ERRORS = (sqlite3.IntegrityError, sqlite3.ProgrammingError, sqlite3.InterfaceError, OverflowError)
"""Errors that are caused by a single row, not by the file."""


_CHECKSUM = ',"crc":'
"""Text before the CRC32 in the JSON object with the progress of a rank. The CRC32 is the last member of the object."""


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """A complete row of a table. Columns that are missing in `values` are set to NULL."""

    table: str
    values: dict[str, Any]

    @property
    def key(self) -> tuple[Any, ...]:
        return (self.table, *(self.values[name] for name in KEYS[self.table]))


@dataclass(frozen=True, slots=True)
class LateMetrics:
    """Metrics logged for an epoch after its row was written.

    If several epochs of the rank have this number, the metrics belong to the latest.
    """

    rank: str
    """Key of the rank."""
    epoch: int
    """Number of the epoch."""
    metrics: str
    """JSON object with the metrics by name."""


class Batch:
    """Rows and other changes that are written together. A row replaces an earlier row with the same key."""

    def __init__(self) -> None:
        self.rows: dict[tuple[Any, ...], LedgerRow] = {}
        self.late: list[LateMetrics] = []
        self.revoked_ends: list[tuple[str, int]] = []
        """Epochs that were written as ended although they are still open, as pairs of rank key and epoch number."""
        self.step_row_counts: dict[str, int] = {}
        """Number of rows of steps by rank key. Stored rows with higher ordinals are deleted."""
        self.dead: list[tuple[str, int]] = []
        """Ranks to mark as died, as pairs of rank key and time (ns since 1970). A rank is not marked if its run was
        updated after this time."""
        self.withdrawn: list[str] = []
        """Ids of runs to delete."""
        self.final: list[str] = []
        """Keys of ranks that have ended and get no more rows. Their rows in the table `progress` are deleted."""

    def __bool__(self) -> bool:
        return bool(self.rows or self.late or self.revoked_ends or self.dead or self.withdrawn)

    def add(self, rows: Iterable[LedgerRow]) -> None:
        """Add rows; each replaces an earlier row of the batch with the same key."""
        for row in rows:
            existing = self.rows.get(row.key)
            if existing is None or row.table != "parameter" or row.values["rank"] <= existing.values["rank"]:
                self.rows[row.key] = row

    def extend(self, newer: Batch) -> Batch:
        """Add the content of a newer batch to this one, and return this one."""
        self.add(newer.rows.values())
        self.late += newer.late
        self.revoked_ends += newer.revoked_ends
        self.step_row_counts |= newer.step_row_counts
        self.dead += newer.dead
        self.withdrawn += newer.withdrawn
        self.final += newer.final
        return self


def write_batch(connection: sqlite3.Connection, batch: Batch, trace_room: int = TRACE_ROOM) -> int:
    """Write a batch in one transaction, and return the number of rows that SQLite rejected.

    `trace_room`: maximum size of all traces in bytes. Raises sqlite3.Error if the file cannot be written.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        rejected = sum(
            not _write_row(connection, row) for row in sorted(batch.rows.values(), key=lambda row: _ORDER[row.table])
        )
        for late in batch.late:
            connection.execute(
                "UPDATE epoch SET metrics = json_patch(metrics, ?) WHERE rank = ? AND ordinal = "
                "(SELECT max(ordinal) FROM epoch WHERE rank = ? AND epoch = ?)",
                (late.metrics, late.rank, late.rank, late.epoch),
            )
        connection.executemany(
            "UPDATE epoch SET ended = NULL WHERE rank = ?1 AND ordinal = "
            "(SELECT max(ordinal) FROM epoch WHERE rank = ?1 AND epoch = ?2)",
            batch.revoked_ends,
        )
        connection.executemany("DELETE FROM step_row WHERE rank = ?1 AND ordinal >= ?2", batch.step_row_counts.items())
        connection.executemany(
            f"DELETE FROM usage WHERE rank = ?1 AND ordinal <= {STEP_ROWS} - ?2", batch.step_row_counts.items()
        )
        connection.executemany("DELETE FROM progress WHERE rank = ?", [(rank,) for rank in batch.final])
        runs = {row.values["id"] for row in batch.rows.values() if row.table == "run"}
        for key, since in batch.dead:
            runs |= _mark_dead(connection, key, since)
        for run in sorted(runs):
            _update_run(connection, run)
        connection.executemany("DELETE FROM run WHERE id = ?", [(run,) for run in batch.withdrawn])
        if any(row.table == "trace" for row in batch.rows.values()):
            _prune_traces(connection, trace_room)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return rejected


def _write_row(connection: sqlite3.Connection, row: LedgerRow) -> bool:
    names = tuple(row.values)
    values = tuple(row.values.values())
    if row.table == "trace":
        values = tuple(pack_trace(v) if name == "cells" else v for name, v in row.values.items())
    elif row.table == "progress":
        values = tuple(_with_checksum(v) if name == "state" else v for name, v in row.values.items())
    try:
        connection.execute(_upsert(row.table, names, _columns(connection, row.table)), values)
    except _ROW_ERRORS:
        return False
    return True


def _with_checksum(state: str) -> str:
    """Return a JSON object with its CRC32 added, so that a daemon does not continue from a damaged object."""
    return f"{state[:-1]}{_CHECKSUM}{zlib.crc32(state[:-1].encode())}}}"


def is_intact(state: str) -> bool:
    """Return whether the checksum stored in a rank's progress (JSON) is correct."""
    content, _, sum = state.rpartition(_CHECKSUM)
    return sum == f"{zlib.crc32(content.encode('utf-8', 'replace'))}}}"


@cache
def _upsert(table: str, names: tuple[str, ...], columns: tuple[str, ...]) -> str:
    key = KEYS[table]
    changes = [
        f"{name} = excluded.{name}" if name in names else f"{name} = NULL"
        for name in columns
        if name not in key and not (table == "run" and name in _FIRST_VALUE_STAYS)
    ]
    update = f"UPDATE SET {', '.join(changes)}"
    if table == "parameter":
        update += " WHERE excluded.rank <= parameter.rank"
    return (
        f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))}) "
        f"ON CONFLICT ({', '.join(key)}) DO {'NOTHING' if table in _INSERT_ONLY else update}"
    )


def _columns(connection: sqlite3.Connection, table: str) -> tuple[str, ...]:
    columns = _table_columns.get(table)
    if columns is None:
        rows = connection.execute("SELECT name FROM pragma_table_info(?)", (table,)).fetchall()
        columns = _table_columns[table] = tuple(name for (name,) in rows)
    return columns


_table_columns: dict[str, tuple[str, ...]] = {}


def _mark_dead(connection: sqlite3.Connection, key: str, since: int) -> set[str]:
    connection.execute(
        "UPDATE rank SET state = ?, ended = max(started, (SELECT updated FROM run WHERE id = rank.run)) "
        "WHERE key = ? AND ended IS NULL AND (SELECT updated FROM run WHERE id = rank.run) <= ?",
        (int(RunState.DIED), key, since),
    )
    connection.execute(
        "DELETE FROM progress WHERE rank = ?1 AND EXISTS (SELECT 1 FROM rank WHERE key = ?1 AND ended IS NOT NULL)",
        (key,),
    )
    return {run for (run,) in connection.execute("SELECT run FROM rank WHERE key = ?", (key,))}


_WORST = f"CASE max({_SEVERITY}) {_STATES} END"


_ALIVE_FOR = 2 * SECOND
"""If a run was last updated more than this many ns after the start of another run, the other run does not continue
it.
"""
_RESUME = (
    # Sets `resumes` to the newest earlier run of this name that had reached this epoch or did not finish. NULL while
    # the end of that run may not be written yet.
    "UPDATE run SET resumes = (SELECT CASE e.state WHEN 0 THEN NULL ELSE e.id END FROM run e "
    "WHERE e.user = run.user AND e.name = run.name AND e.id != run.id AND e.started < run.started AND "
    f"CASE e.state WHEN 0 THEN e.hostname = run.hostname AND e.updated <= run.started + {_ALIVE_FOR} "
    "ELSE e.ended <= run.started AND (e.state != 1 OR "
    "(SELECT max(epoch) FROM epoch JOIN rank ON rank.key = epoch.rank WHERE rank.run = e.id) >= run.first_epoch - 1) "
    "END ORDER BY e.started DESC LIMIT 1) WHERE first_epoch > base AND resumes IS NULL"
)


def _update_run(connection: sqlite3.Connection, run: str) -> None:
    """Update the state and times of a run from its ranks.

    The run is running while one of its ranks is running. After that it has the worst state of its ranks. It lasts from
    the start of the first rank to the end of the last rank.
    """
    connection.execute(
        "UPDATE run SET (started, ended, state, seconds) = (SELECT min(started), "
        "CASE WHEN count(*) = count(ended) THEN max(ended) END, "
        f"CASE WHEN count(*) = count(ended) THEN {_WORST} ELSE 0 END, max(seconds + (started - "
        "(SELECT min(started) FROM rank WHERE rank.run = run.id)) / 1e9) FROM rank WHERE rank.run = run.id) "
        "WHERE id = ? AND EXISTS (SELECT 1 FROM rank WHERE rank.run = run.id)",
        (run,),
    )
    connection.execute(f"{_RESUME} AND id = ?", (run,))
    # Now that this run has ended, a later run of the same name may turn out to continue it.
    connection.execute(
        f"{_RESUME} AND (user, name) = (SELECT user, name FROM run WHERE id = ?1 AND state != 0) "
        "AND started > (SELECT started FROM run WHERE id = ?1)",
        (run,),
    )


def _prune_traces(connection: sqlite3.Connection, room: int) -> None:
    sizes = connection.execute(
        "SELECT length(cells), trace.rank, uuid FROM trace JOIN rank ON rank.key = trace.rank "
        "ORDER BY rank.ended IS NULL DESC, rank.started DESC"
    )
    total, deleted = 0, []
    for size, rank, uuid in sizes:
        total += size
        if total > room:
            deleted.append((rank, uuid))
    connection.executemany("DELETE FROM trace WHERE rank = ? AND uuid = ?", deleted)


MAX_ROWS = 20_000
"""Maximum number of rows that wait in memory, about 20 MB."""
_RETRY, _MAX_RETRY = 1.0, 60.0
_MAX_STORED_RUNS = 20_000
_MAX_STORED_RANKS = 50_000
"""Maximum number of ended ranks that are loaded. They are needed because a board may exist until the machine is
restarted, and an ended rank must not be recorded as a new one."""

StoredTrace = tuple[str, int, float, int, str, Sequence[Envelope]]
"""A row of `trace` without the column `rank`, with `cells` decoded."""


@dataclass(frozen=True, slots=True)
class OpenRank:
    """A rank that had not ended when the ledger was opened."""

    run: str
    pid: int
    hostname: str
    updated_ns: int
    """Time of the last update of the rank, in ns since 1970."""
    progress: dict[str, Any]
    traces: list[StoredTrace]


@dataclass(frozen=True, slots=True)
class StoredRuns:
    """The runs and ranks that the ledger contained when it was opened."""

    running: dict[str, OpenRank]
    """Ranks that had not ended, by rank key."""
    ended: set[str]
    """Keys of the newest ranks that have ended, and of ranks whose run a user deleted."""
    runs: dict[str, tuple[str, int | None]]
    """User and end (ns since 1970, None while the run is running) by run id."""


class LedgerWriter:
    """Writes batches to the ledger at `path` in a separate thread.

    `uid`: user to whom the file belongs. `shared`: let other users read the file. `log`: gets a line for each problem.
    `max_rows`: maximum number of rows that wait in memory. `prepare`: called in the thread before the ledger is opened;
    it may create the file.
    """

    def __init__(
        self, path: str, uid: int, log: Callable[[str], object], *, shared: bool = False, max_rows: int = MAX_ROWS,
        prepare: Callable[[], object] = bool,
    ) -> None:  # fmt: skip
        self._file = StateFile(path, LEDGER_FILE, uid, log, shared=shared, on_open=self._load)
        self.stored: StoredRuns | None = None
        """Content of the ledger when it was first opened; None before it is opened."""
        self._prepare = prepare
        self._log = log
        self._most_rows = max_rows
        self._waiting = Batch()
        self._changed = Condition()
        self._stopping = False
        self._dropped = 0
        self._has_logged_rejected = False
        self._thread = Thread(target=self._run, name="gpumon-ledger", daemon=True)

    @property
    def problem(self) -> str:
        """Reason why the ledger cannot be written, as text for users. Empty while writing works."""
        return self._file.problem

    def start(self) -> LedgerWriter:
        """Start the thread, which opens the ledger."""
        self._thread.start()
        return self

    def wait_until_open(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds until the ledger is open, and return whether it is open."""
        with self._changed:
            return self._changed.wait_for(lambda: self.stored is not None, timeout)

    def put(self, batch: Batch) -> None:
        """Queue a batch for writing. Returns at once, without waiting for the disk."""
        if not batch:
            return
        with self._changed:
            room = self._most_rows - len(self._waiting.rows)
            if len(batch.rows) > room:
                # Keep the rows that replace waiting rows. Keep as many of the other rows as fit.
                fits = {key: row for key, row in batch.rows.items() if key in self._waiting.rows}
                new = [key for key in batch.rows if key not in fits][: max(0, room)]
                fits |= {key: batch.rows[key] for key in new}
                self._dropped += len(batch.rows) - len(fits)
                batch.rows = fits
            self._waiting.extend(batch)
            del self._waiting.late[self._most_rows :]
            self._changed.notify()

    def close(self, timeout: float = 5.0) -> bool:
        """Write all queued rows within `timeout` seconds, and return whether this succeeded."""
        with self._changed:
            self._stopping = self._file.is_stopping = True
            self._changed.notify()
        self._thread.join(timeout)
        done = not self._thread.is_alive() and not self._waiting
        if not done:
            self._log(f"cannot write the last measurements to {self._file.path}")
        return done

    def _run(self) -> None:
        delay = _RETRY
        with suppress(OSError, sqlite3.Error):  # errors of the file are logged when it is opened
            self._prepare()
        while True:
            try:
                if not self._file.is_open and os.path.lexists(self._file.path):
                    self._file.connect()
                elif self.stored is None:
                    self.stored = StoredRuns({}, set(), {})  # the file is created with the first run
                with self._changed:
                    self._changed.notify_all()  # for `wait_until_open`
                if self._write_next():
                    return
            except Exception as error:  # a damaged file may raise anything, and this thread must survive it
                self._file.handle_error(error)
                with self._changed:
                    if self._stopping or self._file.is_refused:
                        return
                    deadline = monotonic() + delay
                    while not self._stopping and (remaining := deadline - monotonic()) > 0:
                        self._changed.wait(remaining)
                delay = min(2 * delay, _MAX_RETRY)
            else:
                delay = _RETRY

    def _write_next(self) -> bool:
        """Wait for a batch and write it. Return True if the writer is stopping and this was the last batch."""
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
                self._waiting = batch.extend(self._waiting)
            raise
        if last:
            self._file.close()
        return last

    def _write(self, batch: Batch) -> None:
        rejected = write_batch(self._file.connect(), batch)
        if rejected and not self._has_logged_rejected:
            self._has_logged_rejected = True
            self._log(f"{self._file.path}: {rejected} invalid rows were dropped")
        self._file.clear_problem()
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            self._log(f"{self._file.path}: {dropped} rows were lost: writing failed until the memory limit was reached")

    def _load(self, connection: sqlite3.Connection) -> None:
        if self.stored is None:
            self.stored = _load_state(connection)


def _load_state(connection: sqlite3.Connection) -> StoredRuns:
    # These ranks have ended, but the daemon was killed before their last samples arrived. These samples are lost.
    connection.execute("DELETE FROM progress WHERE rank IN (SELECT key FROM rank WHERE ended IS NOT NULL)")
    running = {}
    ranks = connection.execute(
        "SELECT key, rank.run, pid, hostname, updated, progress.state FROM rank JOIN run ON run.id = rank.run "
        "LEFT JOIN progress ON progress.rank = rank.key WHERE rank.ended IS NULL"
    )
    for key, run, pid, hostname, updated, state in typed_rows(ranks, str, str, int, str, int, object):
        rows = connection.execute(
            "SELECT uuid, begun, step, points, columns, cells FROM trace WHERE rank = ?", (key,)
        )  # fmt: skip
        traces: list[StoredTrace] = []
        for *cells, packed in typed_rows(rows, str, int, REAL, int, str, bytes):
            with suppress(DamagedBlock):  # a new trace is started
                traces.append((*cells, unpack_trace(packed, min(cells[3], POINTS))))
        running[key] = OpenRank(
            run=run,
            pid=pid,
            hostname=hostname,
            updated_ns=updated,
            progress=_parse_progress(state),
            traces=traces,
        )
    ended = connection.execute(
        "SELECT key FROM rank WHERE ended IS NOT NULL ORDER BY started DESC LIMIT ?", (_MAX_STORED_RANKS,)
    )
    forgotten = connection.execute("SELECT rank FROM forgotten ORDER BY time DESC LIMIT ?", (_MAX_STORED_RANKS,))
    runs = connection.execute("SELECT id, user, ended FROM run ORDER BY started DESC LIMIT ?", (_MAX_STORED_RUNS,))
    return StoredRuns(
        running=running,
        ended={key for rows in (ended, forgotten) for (key,) in typed_rows(rows, str)},
        runs={id: (user, over) for id, user, over in typed_rows(runs, str, str, int | None)},
    )


def _parse_progress(state: object) -> dict[str, Any]:
    """Return the progress of a rank. The result is empty if there is no progress or it is damaged."""
    progress = parse_json(state) if isinstance(state, str) and is_intact(state) else None
    return progress if isinstance(progress, dict) else {}
