"""The life of a SQLite file that a daemon writes, whatever happens to it and to its disk.

Nothing here ever stops a daemon: what goes wrong is said once, in a line, and the next write tries again.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import suppress

from gpumon.database.damage import is_damage, move_aside
from gpumon.database.write import FileKind, NewerFile, open_to_write


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
        """Whether a later gpumon wrote it: it is left alone for good."""
        self.is_ending = False
        """Set by the owner when it will not be opened again."""
        self._kind = kind
        self._uid = uid
        self._say = say
        self._shared = shared
        self._opened = opened
        self._connection: sqlite3.Connection | None = None
        self._inode = 0

    @property
    def is_open(self) -> bool:
        """Whether it was opened, and not closed since."""
        return self._connection is not None

    def connect(self) -> sqlite3.Connection:
        """Return the connection, of a new file where the old one has lost its name.

        Raises NewerFile, OSError or sqlite3.Error, which `failed` takes.
        """
        if self._connection is not None and self._is_there():
            return self._connection
        self.close()
        self._connection = open_to_write(self.path, self._kind, shared=self._shared, uid=self._uid, log=self._say)
        self._inode = os.stat(self.path).st_ino
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
        if isinstance(error, NewerFile):
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
            self.problem = f"cannot write {self.path} ({error})"
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

    def _is_there(self) -> bool:
        """Whether the open file still has its name: somebody may have removed it."""
        try:
            return os.stat(self.path).st_ino == self._inode
        except OSError:
            return False
