"""Files that are broken: recognized, and moved aside."""

from __future__ import annotations

import os
import sqlite3

_SUFFIXES = ("", "-wal", "-shm", "-journal")


def is_damage(error: sqlite3.Error) -> bool:
    """Whether an error says that the file itself is broken."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def move_aside(path: str) -> str:
    """Rename a file and what SQLite keeps beside it to the first name that is free."""
    number = 1
    while os.path.lexists(f"{path}.damaged-{number}"):
        number += 1
    aside = f"{path}.damaged-{number}"
    for suffix in _SUFFIXES:
        if os.path.lexists(path + suffix):
            os.rename(path + suffix, aside + suffix)
    return aside
