"""A connection that reads a file that somebody else writes."""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
from urllib.parse import quote

from gpumon.common.paths import Places, dir_option, is_missing, open_regular
from gpumon.storage.sqlite.write import require_regular_files, unreadable


def why_absent(where: Places, path: str, nothing: str, refused: str) -> str:
    """One line for people: what is wrong with the place of a file, else `nothing`, which says how one comes to be.

    `refused` begins the lines about a place that cannot be written, such as "runs are not recorded".
    """
    if is_missing(where):
        return f"{where.explicit} does not exist: check the path, or start 'gpumon daemon{dir_option(where)}'"
    machine = where.machine_state
    if machine and _is_closed(machine):
        return f"no permission to look into {machine}, where the machine's daemon keeps them: ask the administrator"
    if not path:
        return f"{refused}: there is no state directory; pass --state-dir"
    directory = os.path.dirname(path)
    try:
        os.stat(path)
    except FileNotFoundError:
        there = _nearest(directory)
        if not os.access(there, os.W_OK | os.X_OK, effective_ids=True):
            return f"{refused}: you cannot write to {there}; pass another --state-dir"
        return nothing
    except NotADirectoryError:
        return f"{refused}: {directory} is not a directory; pass another --state-dir"
    except OSError as error:
        return f"cannot look into {directory}: {error.strerror or error}"
    return nothing


def _is_closed(directory: str) -> bool:
    try:
        os.stat(f"{directory}/.")
    except OSError as error:
        return isinstance(error, PermissionError)
    return False


def _nearest(directory: str) -> str:
    """The directory, or its nearest parent that exists, in which a daemon would make it."""
    while directory and not os.path.isdir(directory) and os.path.dirname(directory) != directory:
        directory = os.path.dirname(directory)
    return directory or "."


LOCKED = "another program has locked it; try again once that has ended"
"""Why a file cannot be read, and what to do: a copy or a compaction of it may go on."""

NO_LOCKS = "its file system has no locks; pass a --state-dir on a local disk, or mount it with locks"

FULL = "its file system is full"

_LEAST_ROOM = 64 * 1024
"""Bytes that SQLite wants for the index of a write-ahead log, which is 32 KiB, and a page: without them, it tells of
an I/O error."""

_OF_LOCKS = (
    "SQLITE_BUSY",
    "SQLITE_LOCKED",
    "SQLITE_PROTOCOL",
    "SQLITE_IOERR_LOCK",
    "SQLITE_IOERR_RDLOCK",
    "SQLITE_IOERR_SHMLOCK",
)

_WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
"""Errors of a lock on a file system that has none."""

_NOWHERE = 1 << 62
"""An offset that no file reaches, nor SQLite locks."""

_LOCKABLE: dict[str, int] = {}
"""Descriptors of files that were found to have locks, by path."""

_CLOSED_TO_US = ("SQLITE_CANTOPEN", "SQLITE_READONLY_DIRECTORY", "SQLITE_READONLY_CANTINIT")


class Patience:
    """Seconds that this process waits for a writer that holds a file for itself, as while it is made."""

    seconds = 5.0


def wait_at_most(seconds: float) -> None:
    """Let this process wait no longer than that, as a server must that others wait for."""
    Patience.seconds = seconds


def words_of(error: Exception, path: str) -> str:
    """Return the words of an error of the file at `path` for people."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    name = getattr(error, "sqlite_errorname", "")
    if not name.startswith(_OF_LOCKS):
        return FULL if name.startswith("SQLITE_IOERR") and _is_full(path) else str(error)
    return _why_not_locked(path)


def _is_full(path: str) -> bool:
    """Whether the file system of a file has no room left."""
    try:
        found = os.statvfs(os.path.dirname(path) or ".")
    except OSError:
        return False
    return found.f_bavail * found.f_frsize < _LEAST_ROOM


def _why_not_locked(path: str) -> str:
    """Why SQLite has no lock of a file: it reports most errors of the call as a lock of another program."""
    if path not in _LOCKABLE:
        try:
            fd = open_regular(path)
        except OSError:
            return LOCKED
        try:
            fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, _NOWHERE)
            fcntl.lockf(fd, fcntl.LOCK_UN, 1, _NOWHERE)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                os.close(fd)
                return NO_LOCKS if error.errno in _WITHOUT_LOCKS else f"it cannot be locked: {error.strerror or error}"
        # Open for good: closing it would drop all locks that SQLite has on this file in this process.
        _LOCKABLE[path] = fd
    return LOCKED


def open_to_read(
    path: str, *, any_thread: bool = False, patience: float | None = None
) -> tuple[sqlite3.Connection, int]:  # fmt: skip
    """A connection that only reads and has read something, and the version of the file; 0 of one that is being made.

    `any_thread`: the caller sees to it that only one uses it at a time; `patience`: seconds to wait for a writer that
    holds the file for itself, where they are not those of this process.
    Raises sqlite3.Error, or OSError for what is no regular file.
    """
    require_regular_files(path)
    try:
        return _connect_to_read(path, "mode=ro", any_thread, patience)
    except sqlite3.Error as error:
        # Without a writer there is no index of the write-ahead log, and here we may not make one: but then the file
        # stands still.
        if error.sqlite_errorname not in _CLOSED_TO_US or os.path.exists(f"{path}-shm"):
            raise
        return _connect_to_read(path, "immutable=1", any_thread, patience)


def _connect_to_read(
    path: str, how: str, any_thread: bool, patience: float | None
) -> tuple[sqlite3.Connection, int]:  # fmt: skip
    uri = f"file:{quote(os.path.abspath(path))}?{how}"
    wait = Patience.seconds if patience is None else patience
    connection = sqlite3.connect(uri, uri=True, timeout=wait, check_same_thread=not any_thread)
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
