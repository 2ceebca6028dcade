"""The ledger's writer: one thread that writes what it is given, so that a slow disk delays no tick.

Nothing here ever stops a daemon: where the ledger cannot be written it is said once, what came is
kept in memory as far as there is room, and tried again later.
"""

from __future__ import annotations

import os
import sqlite3
import zlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from threading import Condition, Thread
from time import monotonic
from typing import Any, NamedTuple

from gpumon.common.clock import SECOND
from gpumon.model.frame import RunState
from gpumon.storage.ledger.schema import STEP_ROWS
from gpumon.storage.ledger.tables import LEDGER_FILE
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
"""The primary key of each table; in this order, so that what is referred to comes first."""
TRACE_ROOM = 256 * 2**20
"""Bytes that traces may take in all; the oldest go first."""
_ONCE = frozenset(("note", "tag"))
"""Tables whose rows stay as they came first: a command may have changed them since."""
_BY_TRAINING_ONCE = frozenset(("name", "resumes", "ended", "state", "started", "seconds"))
"""Columns of `run` that stay as they came first: it may have been renamed, or they follow from its ranks."""
_ORDER = {table: i for i, table in enumerate(KEYS)}
_BY_BADNESS = (RunState.FINISHED, RunState.STOPPED, RunState.INTERRUPTED, RunState.FAILED, RunState.DIED)
"""A run stands as the worst of its ranks, and these are in that order."""
_BADNESS = f"CASE state {' '.join(f'WHEN {state:d} THEN {i}' for i, state in enumerate(_BY_BADNESS))} END"
_STATES = " ".join(f"WHEN {i} THEN {state:d}" for i, state in enumerate(_BY_BADNESS))
_SKIPPED = (sqlite3.IntegrityError, sqlite3.ProgrammingError, sqlite3.InterfaceError, OverflowError)
"""Errors that are of one row and not of the file."""


_SUM = ',"crc":'
"""Ahead of the sum in the progress of a rank, which is the last member of its JSON object."""


class LedgerRow(NamedTuple):
    """A row of a table, whole: what is not in `values` is NULL."""

    table: str
    values: dict[str, Any]

    @property
    def key(self) -> tuple[Any, ...]:
        return (self.table, *(self.values[name] for name in KEYS[self.table]))


class LateMetrics(NamedTuple):
    """Metrics that were logged for the last epoch of this number, after that was written."""

    rank: str
    epoch: int
    metrics: str
    """JSON."""


class Batch:
    """Rows to be written together. A row that is put again takes the place of the one before."""

    def __init__(self) -> None:
        self.rows: dict[tuple[Any, ...], LedgerRow] = {}
        self.late: list[LateMetrics] = []
        self.left: list[tuple[str, int]] = []
        """Keys of ranks, and numbers of epochs that have been written with an end and had none."""
        self.row_counts: dict[str, int] = {}
        """By key of the rank, how many rows of steps it has; those behind them go."""
        self.died: list[tuple[str, int]] = []
        """Keys of ranks that were left running and are gone, unless their run was updated after that time (ns)."""
        self.withdrawn: list[str] = []
        """Ids of runs that are to be forgotten."""
        self.final: list[str] = []
        """Keys of ranks that have ended, and of which all is written: their progress is deleted."""

    def __bool__(self) -> bool:
        return bool(self.rows or self.late or self.left or self.died or self.withdrawn)

    def add(self, rows: Iterable[LedgerRow]) -> None:
        """Put rows in, over older ones of the same key."""
        for row in rows:
            before = self.rows.get(row.key)
            if before is None or row.table != "parameter" or row.values["rank"] <= before.values["rank"]:
                self.rows[row.key] = row

    def then(self, newer: Batch) -> Batch:
        """This batch, and what came later."""
        self.add(newer.rows.values())
        self.late += newer.late
        self.left += newer.left
        self.row_counts |= newer.row_counts
        self.died += newer.died
        self.withdrawn += newer.withdrawn
        self.final += newer.final
        return self


def write(connection: sqlite3.Connection, batch: Batch, trace_room: int = TRACE_ROOM) -> int:
    """All of a batch or, when sqlite3.Error is raised, nothing. Gives the number of rows that no table takes."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        refused = sum(not _put(connection, row) for row in sorted(batch.rows.values(), key=_place))
        for late in batch.late:
            connection.execute(
                "UPDATE epoch SET metrics = json_patch(metrics, ?) WHERE rank = ? AND ordinal = "
                "(SELECT max(ordinal) FROM epoch WHERE rank = ? AND epoch = ?)",
                (late.metrics, late.rank, late.rank, late.epoch),
            )
        connection.executemany(
            "UPDATE epoch SET ended = NULL WHERE rank = ?1 AND ordinal = "
            "(SELECT max(ordinal) FROM epoch WHERE rank = ?1 AND epoch = ?2)",
            batch.left,
        )
        connection.executemany("DELETE FROM step_row WHERE rank = ?1 AND ordinal >= ?2", batch.row_counts.items())
        connection.executemany(
            f"DELETE FROM usage WHERE rank = ?1 AND ordinal <= {STEP_ROWS} - ?2", batch.row_counts.items()
        )
        connection.executemany("DELETE FROM progress WHERE rank = ?", [(rank,) for rank in batch.final])
        runs = {row.values["id"] for row in batch.rows.values() if row.table == "run"}
        for key, since in batch.died:
            runs |= _died(connection, key, since)
        for run in sorted(runs):
            _sum_up(connection, run)
        connection.executemany("DELETE FROM run WHERE id = ?", [(run,) for run in batch.withdrawn])
        if any(row.table == "trace" for row in batch.rows.values()):
            _prune_traces(connection, trace_room)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return refused


def _put(connection: sqlite3.Connection, row: LedgerRow) -> bool:
    names = tuple(row.values)
    values = tuple(row.values.values())
    if row.table == "trace":
        values = tuple(zlib.compress(v, 6) if name == "cells" else v for name, v in row.values.items())
    elif row.table == "progress":
        values = tuple(_with_sum(v) if name == "state" else v for name, v in row.values.items())
    try:
        connection.execute(_upsert(row.table, names, _columns(connection, row.table)), values)
    except _SKIPPED:
        return False
    return True


def _with_sum(state: str) -> str:
    """Add the CRC32 of a JSON object to it: nothing else proves that a daemon can go on from it."""
    return f"{state[:-1]}{_SUM}{zlib.crc32(state[:-1].encode())}}}"


def has_right_sum(state: str) -> bool:
    """Whether the progress of a rank is as it was written."""
    content, _, sum = state.rpartition(_SUM)
    return sum == f"{zlib.crc32(content.encode('utf-8', 'replace'))}}}"


@cache
def _upsert(table: str, names: tuple[str, ...], columns: tuple[str, ...]) -> str:
    key = KEYS[table]
    changes = [
        f"{name} = excluded.{name}" if name in names else f"{name} = NULL"
        for name in columns
        if name not in key and not (table == "run" and name in _BY_TRAINING_ONCE)
    ]
    update = f"UPDATE SET {', '.join(changes)}"
    if table == "parameter":
        update += " WHERE excluded.rank <= parameter.rank"
    return (
        f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))}) "
        f"ON CONFLICT ({', '.join(key)}) DO {'NOTHING' if table in _ONCE else update}"
    )


def _columns(connection: sqlite3.Connection, table: str) -> tuple[str, ...]:
    found = _known_columns.get(table)
    if found is None:
        rows = connection.execute("SELECT name FROM pragma_table_info(?)", (table,)).fetchall()
        found = _known_columns[table] = tuple(name for (name,) in rows)
    return found


_known_columns: dict[str, tuple[str, ...]] = {}


def _place(row: LedgerRow) -> int:
    return _ORDER[row.table]


def _died(connection: sqlite3.Connection, key: str, since: int) -> set[str]:
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


_WORST = f"CASE max({_BADNESS}) {_STATES} END"


_ALIVE_FOR = 2 * SECOND
"""A run that was seen running so long after another one began has not ended before that."""
_RESUME = (
    # The newest earlier run of this name that had come so far, or that did not end as it should. One whose end may
    # only not be written yet is waited for: NULL until then.
    "UPDATE run SET resumes = (SELECT CASE e.state WHEN 0 THEN NULL ELSE e.id END FROM run e "
    "WHERE e.user = run.user AND e.name = run.name AND e.id != run.id AND e.started < run.started AND "
    f"CASE e.state WHEN 0 THEN e.hostname = run.hostname AND e.updated <= run.started + {_ALIVE_FOR} "
    "ELSE e.ended <= run.started AND (e.state != 1 OR "
    "(SELECT max(epoch) FROM epoch JOIN rank ON rank.key = epoch.rank WHERE rank.run = e.id) >= run.first_epoch - 1) "
    "END ORDER BY e.started DESC LIMIT 1) WHERE first_epoch > base AND resumes IS NULL"
)


def _sum_up(connection: sqlite3.Connection, run: str) -> None:
    """Update a run from its ranks: it runs while one does, else it stands as the worst of them.

    It lasts from the begin of the first rank to the end of the last one.
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
    # Its end may decide which run a later one continues.
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
    held, gone = 0, []
    for size, rank, uuid in sizes:
        held += size
        if held > room:
            gone.append((rank, uuid))
    connection.executemany("DELETE FROM trace WHERE rank = ? AND uuid = ?", gone)


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
        self._file = StateFile(path, LEDGER_FILE, uid, log, shared=shared, on_open=self._load)
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
            self._stopping = self._file.is_stopping = True
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
                    self._changed.notify_all()  # also of a file that was there: `wait_until_open`
                if self._write_next():
                    return
            except Exception as error:  # a damaged file may give anything, and this thread must outlive it
                self._file.handle_error(error)
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
        self._file.clear_problem()
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
