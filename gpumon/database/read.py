"""A connection that reads a file that somebody else writes."""

from __future__ import annotations

import os
import sqlite3
from urllib.parse import quote

from gpumon.database.damage import unreadable

_WAIT = 5.0
"""Seconds to wait for a writer that holds the file for itself, as while it is made."""
_CLOSED_TO_US = ("SQLITE_CANTOPEN", "SQLITE_READONLY_DIRECTORY", "SQLITE_READONLY_CANTINIT")


def open_to_read(path: str, *, any_thread: bool = False) -> tuple[sqlite3.Connection, int]:
    """A connection that only reads and has read something, and the version of the file; 0 of one that is being made.

    `any_thread`: the caller sees to it that only one uses it at a time. Raises sqlite3.Error.
    """
    try:
        return _connect_to_read(path, "mode=ro", any_thread)
    except sqlite3.Error as error:
        # Without a writer there is no index of the write-ahead log, and here we may not make one: but then the file
        # stands still.
        if error.sqlite_errorname not in _CLOSED_TO_US or os.path.exists(f"{path}-shm"):
            raise
        return _connect_to_read(path, "immutable=1", any_thread)


def _connect_to_read(path: str, how: str, any_thread: bool) -> tuple[sqlite3.Connection, int]:
    uri = f"file:{quote(os.path.abspath(path))}?{how}"
    connection = sqlite3.connect(uri, uri=True, timeout=_WAIT, check_same_thread=not any_thread)
    try:
        connection.isolation_level = None  # transactions begin and end where we say
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    except sqlite3.Error:
        connection.close()
        raise
    except UnicodeDecodeError as error:
        connection.close()
        raise unreadable(error) from error
    return connection, version
