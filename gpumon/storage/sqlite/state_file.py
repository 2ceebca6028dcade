"""The life of a SQLite file that a daemon writes, whatever happens to it and to its disk.

Nothing here ever stops a daemon: what goes wrong is said once, in a line, and the next write tries again.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import suppress

from gpumon.common.paths import open_regular
from gpumon.storage.sqlite.read import words_of
from gpumon.storage.sqlite.write import FileKind, OtherVersion, is_damage, move_aside, open_to_write

_MAGIC = b"SQLite format 3\0"


class StateFile:
    """The file at `path`, open to write from the first time that somebody asks for its connection.

    `shared`: others may read it. `say` is told, in a line, what goes wrong; `opened` gets each new connection first.
    Only one thread uses it at a time.
    """

    def __init__(
        self, path: str, kind: FileKind, uid: int, say: Callable[[str], object], *, shared: bool = False,
        opened: Callable[[sqlite3.Connection], object] = lambda _: None,
    ) -> None:  # fmt: skip
        self.path = path
        self.problem = ""
        """Why nothing is written just now, for people; empty while all is well."""
        self.is_refused = False
        """Whether another version of gpumon writes it, too: it is left alone for good."""
        self.is_ending = False
        """Set by the owner when it will not be opened again."""
        self._kind = kind
        self._uid = uid
        self._say = say
        self._shared = shared
        self._opened = opened
        self._connection: sqlite3.Connection | None = None
        self._was_open = False
        self._inodes: tuple[int, int] = (0, 0)
        """Of the file, and of its write-ahead log; 0 where there is none."""
        self._raw = -1
        """The open file once more, to look at without SQLite. It is closed last: to close any descriptor of a file
        drops all locks that SQLite has on it."""

    @property
    def is_open(self) -> bool:
        """Whether it was opened, and not closed since."""
        return self._connection is not None

    def connect(self) -> sqlite3.Connection:
        """Return the connection, a new one where the file or its write-ahead log has lost its name,
        or something else wrote over the file: then it is mended from the log, or found to be damaged.

        Raises OtherVersion, OSError or sqlite3.Error, which `failed` takes.
        """
        if self._connection is not None and self._is_there() and self._is_database():
            return self._connection
        self.close()
        self._connection = open_to_write(
            self.path, self._kind, shared=self._shared, uid=self._uid, log=self._say, is_first=not self._was_open
        )
        self._was_open = True
        self._inodes = _inode_of_content(self.path), _inode(f"{self.path}-wal")
        with suppress(OSError):
            self._raw = open_regular(self.path)
        self._opened(self._connection)
        return self._connection

    def succeeded(self) -> None:
        """Note that something was written, and say so where that was impossible before."""
        if self.problem:
            self.problem = ""
            self._say(f"{self.path} is writable again")

    def failed(self, error: Exception) -> bool:
        """Close the file after an error, and say once what is wrong.

        A damaged file is moved aside. Returns whether a new one can be begun now.
        """
        if isinstance(error, OtherVersion):
            self.problem, self.is_refused = str(error), True
            self._say(f"{error}; {self._kind.refused}")
            return False
        damaged = isinstance(error, sqlite3.Error) and is_damage(error) and self.is_open
        self.close()
        if damaged:
            with suppress(OSError):
                self._say(f"{self.path} is damaged ({error}): moved to {move_aside(self.path)}")
                return True
            return False
        if not self.problem:
            self.problem = f"cannot write {self.path} ({words_of(error, self.path)})"
            self._say(f"{self.problem}: {self._kind.meanwhile}")
        return False

    def close(self) -> None:
        """Close the file; for good where `is_ending` is set."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        with suppress(sqlite3.Error):
            if self._shared and self.is_ending:
                # Who may not write the directory cannot read a file that wants a WAL beside it.
                connection.execute("PRAGMA journal_mode = DELETE").fetchone()
        with suppress(sqlite3.Error):
            connection.close()
        raw, self._raw = self._raw, -1
        if raw >= 0:
            os.close(raw)

    def _is_database(self) -> bool:
        """Whether the open file begins as one; SQLite itself would not look again, and go on from memory."""
        try:
            return self._raw < 0 or os.pread(self._raw, len(_MAGIC), 0) == _MAGIC
        except OSError:
            return True  # SQLite says what is wrong

    def _is_there(self) -> bool:
        """Whether the open file and its log still have their names, and the file was not emptied.

        Whoever opens an empty file next removes its log, and what is written into that is never read by anybody.
        """
        file, log = self._inodes
        return _inode_of_content(self.path) == file and (not log or _inode(f"{self.path}-wal") == log)


def _inode(path: str) -> int:
    """0 of a file that is not there."""
    try:
        return os.stat(path).st_ino
    except OSError:
        return 0


def _inode_of_content(path: str) -> int:
    """The same; 0 of an empty one, too."""
    with suppress(OSError):
        found = os.stat(path)
        return found.st_ino if found.st_size else 0
    return 0
