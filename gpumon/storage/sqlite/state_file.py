"""`StateFile` is a SQLite file to which a daemon writes.

It keeps working if the file is replaced or damaged, or if the disk is full. An error does not stop the daemon. Each
problem is logged once, and the next write tries again.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import suppress

from gpumon.common.paths import open_regular
from gpumon.storage.sqlite.read import describe_error
from gpumon.storage.sqlite.write import FileKind, OtherVersion, is_damage, move_aside, open_to_write

_MAGIC = b"SQLite format 3\0"


class StateFile:
    """The file at `path`. The first call of `connect` opens it for writing.

    `uid`: user to whom the file belongs. `shared`: whether other users may read the file. `log`: function that receives
    a line for each problem. `on_open`: function that is called with each new connection. Only one thread may use a
    `StateFile` at a time.
    """

    def __init__(
        self, path: str, kind: FileKind, uid: int, log: Callable[[str], object], *, shared: bool = False,
        on_open: Callable[[sqlite3.Connection], object] = lambda _: None,
    ) -> None:  # fmt: skip
        self.path = path
        self.problem = ""
        """Reason why nothing can be written, as text for users. Empty while writing works."""
        self.is_refused = False
        """Whether another version of gpumon also writes the file. If so, this object never writes it again."""
        self.is_stopping = False
        """The owner sets this to True before the last call of `close`. After that call, the file is not opened
        again."""
        self._kind = kind
        self._uid = uid
        self._log = log
        self._shared = shared
        self._on_open = on_open
        self._connection: sqlite3.Connection | None = None
        self._was_open = False
        self._inodes: tuple[int, int] = (0, 0)
        """Inodes of the file and of its write-ahead log; 0 if the file or log does not exist."""
        self._raw_fd = -1
        """A second descriptor of the file, used to read it without SQLite. It is closed last, because closing any
        descriptor of a file drops all locks that SQLite holds on the file."""

    @property
    def is_open(self) -> bool:
        """Whether the file is open."""
        return self._connection is not None

    def connect(self) -> sqlite3.Connection:
        """Return the connection. Opens the file again if the file or its write-ahead log was replaced or overwritten.

        SQLite then restores the file from its log, or reports it as damaged. Raises OtherVersion, OSError or
        sqlite3.Error; the caller must pass these to `handle_error`.
        """
        if self._connection is not None and self._is_in_place() and self._is_database():
            return self._connection
        self.close()
        self._connection = open_to_write(
            self.path, self._kind, shared=self._shared, uid=self._uid, log=self._log, is_first=not self._was_open
        )
        self._was_open = True
        self._inodes = _inode_of_content(self.path), _inode(f"{self.path}-wal")
        with suppress(OSError):
            self._raw_fd = open_regular(self.path)
        self._on_open(self._connection)
        return self._connection

    def clear_problem(self) -> None:
        """Record that a write succeeded. If earlier writes had failed, log that writing works again."""
        if self.problem:
            self.problem = ""
            self._log(f"{self.path} is writable again")

    def handle_error(self, error: Exception) -> bool:
        """Close the file after an error, and log the problem once. Return whether a new file can be created now.

        A damaged file is first renamed, so that it is kept.
        """
        if isinstance(error, OtherVersion):
            self.problem, self.is_refused = str(error), True
            self._log(f"{error}; {self._kind.when_refused}")
            return False
        damaged = isinstance(error, sqlite3.Error) and is_damage(error) and self.is_open
        self.close()
        if damaged:
            with suppress(OSError):
                self._log(f"{self.path} is damaged ({error}): moved to {move_aside(self.path)}")
                return True
            return False
        if not self.problem:
            self.problem = f"cannot write {self.path} ({describe_error(error, self.path)})"
            self._log(f"{self.problem}: {self._kind.when_unwritable}")
        return False

    def close(self) -> None:
        """Close the file. If `is_stopping` is set, a shared file is left without a write-ahead log.

        Users who may not write to the directory can then read the file.
        """
        connection, self._connection = self._connection, None
        if connection is None:
            return
        with suppress(sqlite3.Error):
            if self._shared and self.is_stopping:
                # Users who may not write to the directory cannot read a file in WAL mode.
                connection.execute("PRAGMA journal_mode = DELETE").fetchone()
        with suppress(sqlite3.Error):
            connection.close()
        fd, self._raw_fd = self._raw_fd, -1
        if fd >= 0:
            os.close(fd)

    def _is_database(self) -> bool:
        """Return whether the open file starts with SQLite's magic bytes.

        SQLite itself would not notice that these bytes were overwritten, because it uses cached pages.
        """
        try:
            return self._raw_fd < 0 or os.pread(self._raw_fd, len(_MAGIC), 0) == _MAGIC
        except OSError:
            return True  # SQLite will report the error

    def _is_in_place(self) -> bool:
        """Return whether the open file and its log are still at their paths, and the file is not empty.

        If the file is empty, the next program that opens it removes its log. Later writes to this log would be lost.
        """
        file, wal = self._inodes
        return _inode_of_content(self.path) == file and (not wal or _inode(f"{self.path}-wal") == wal)


def _inode(path: str) -> int:
    """Return the inode of a file, or 0 if it does not exist."""
    try:
        return os.stat(path).st_ino
    except OSError:
        return 0


def _inode_of_content(path: str) -> int:
    """Return the inode of a file, or 0 if it is empty or does not exist."""
    with suppress(OSError):
        status = os.stat(path)
        return status.st_ino if status.st_size else 0
    return 0
