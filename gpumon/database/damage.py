"""Files that are broken: recognized, and moved aside."""

from __future__ import annotations

import os
import sqlite3

from gpumon.common.paths import require_regular_or_absent

_ASIDE = ".damaged-"
SUFFIXES = ("", "-wal", "-shm", "-journal")
"""Behind the path of a file: itself, and what SQLite keeps beside it."""


def require_regular_files(path: str) -> None:
    """Raise OSError where the file at `path`, or one that SQLite keeps beside it, is there and no regular file."""
    for suffix in SUFFIXES:
        require_regular_or_absent(path + suffix)


def is_damage(error: sqlite3.Error) -> bool:
    """Whether an error says that the file itself is broken."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def unreadable(error: UnicodeDecodeError) -> sqlite3.DatabaseError:
    """Return the damage that Python meets before SQLite can name it: a damaged schema in an error message."""
    found = sqlite3.DatabaseError(f"database disk image is malformed: {error.reason}")
    found.sqlite_errorcode, found.sqlite_errorname = sqlite3.SQLITE_CORRUPT, "SQLITE_CORRUPT"
    return found


def moved_aside(path: str) -> list[str]:
    """Return the damaged files that once had this path, oldest first."""
    begin = os.path.basename(path) + _ASIDE
    try:
        names = os.listdir(os.path.dirname(path) or ".")
    except OSError:
        return []
    numbers = (name.removeprefix(begin) for name in names if name.startswith(begin))
    return [f"{path}{_ASIDE}{number}" for number in sorted(int(one) for one in numbers if one.isdecimal())]


def move_aside(path: str) -> str:
    """Rename a file and what SQLite keeps beside it to the first name that is free."""
    number = 1
    while os.path.lexists(f"{path}{_ASIDE}{number}"):
        number += 1
    aside = f"{path}{_ASIDE}{number}"
    for suffix in SUFFIXES:
        if os.path.lexists(path + suffix):
            os.rename(path + suffix, aside + suffix)
    return aside
