"""Runs that another ledger has and that are not over: a new ledger continues them, as a daemon that starts does."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Collection, Sequence
from contextlib import closing, suppress

from gpumon.database.read import open_to_read
from gpumon.database.write import open_to_write, transaction
from gpumon.ledger.migrations import LEDGER_FILE, VERSION
from gpumon.ledger.write import KEYS

_BY_RUN = frozenset(("rank", "parameter", "note", "tag"))
"""Tables whose rows name their run; the others but `run` name a rank of it."""


def carry_over(
    path: str, ledgers: Sequence[str], keys: Collection[str], uid: int, say: Callable[[str], object]
) -> None:
    """Begin a ledger at `path` with the runs of some ranks, by their keys, each as the first of `ledgers` has it.

    A ledger that cannot be read, or is of an older version, has none for that. Raises OSError or sqlite3.Error where
    the new one cannot be made.
    """
    wanted = set(keys)
    for ledger in ledgers:
        if not wanted or not os.path.exists(ledger):
            continue
        with suppress(sqlite3.Error, OSError):
            source, version = open_to_read(ledger)
            with closing(source):
                runs = _runs(source, wanted) if version == VERSION else {}
                if not runs:
                    continue
                tables = {table: _rows(source, table, [*runs]) for table in KEYS}
            wanted -= {key for found in runs.values() for key in found}
            with closing(open_to_write(path, LEDGER_FILE, shared=False, uid=uid, log=say)) as own, transaction(own):
                for table, rows in tables.items():
                    for row in rows:
                        own.execute(f"INSERT OR IGNORE INTO {table} VALUES ({', '.join('?' * len(row))})", row)


def _runs(source: sqlite3.Connection, keys: Collection[str]) -> dict[str, list[str]]:
    """Ids of the runs that some ranks belong to, with the keys of these."""
    found: dict[str, list[str]] = {}
    for key in keys:
        for (run,) in source.execute("SELECT run FROM rank WHERE key = ?", (key,)):
            found.setdefault(run, []).append(key)
    return found


def _rows(source: sqlite3.Connection, table: str, runs: Sequence[str]) -> list[tuple[object, ...]]:
    """All columns of what a table has of some runs, in the order of every ledger of this version."""
    marks = ", ".join("?" * len(runs))
    where = f"id IN ({marks})" if table == "run" else f"run IN ({marks})"
    if table != "run" and table not in _BY_RUN:
        where = f"rank IN (SELECT key FROM rank WHERE {where})"
    return source.execute(f"SELECT * FROM {table} WHERE {where}", (*runs,)).fetchall()
