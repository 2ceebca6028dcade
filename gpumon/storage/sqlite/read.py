"""Opens SQLite files that another process writes, and explains to users why a file is missing or unreadable."""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
from urllib.parse import quote

from gpumon.common.paths import Places, dir_option, is_missing, open_regular
from gpumon.storage.sqlite.write import FileKind, damage_error, require_plain_tables, require_regular_files


def explain_absence(where: Places, path: str, nothing: str, refused: str) -> str:
    """Return a message that says why the file at `path` does not exist.

    `nothing`: the message to return if its directory is fine. `refused`: first words of the message if its directory is
    missing or cannot be written, such as "runs are not recorded".
    """
    if is_missing(where):
        return f"{where.explicit} does not exist: check the path, or start 'gpumon daemon{dir_option(where)}'"
    machine = where.machine_state
    if machine and _is_closed(machine):
        return f"no permission to read {machine}, where the machine's daemon stores its data: ask the administrator"
    if not path:
        return f"{refused}: there is no state directory; pass --state-dir"
    directory = os.path.dirname(path)
    try:
        os.stat(path)
    except FileNotFoundError:
        parent = _nearest_existing(directory)
        if not os.access(parent, os.W_OK | os.X_OK, effective_ids=True):
            return f"{refused}: you cannot write to {parent}; pass another --state-dir"
        return nothing
    except NotADirectoryError:
        return f"{refused}: {directory} is not a directory; pass another --state-dir"
    except OSError as error:
        return f"cannot read {directory}: {error.strerror or error}"
    return nothing


def _is_closed(directory: str) -> bool:
    try:
        os.stat(f"{directory}/.")
    except OSError as error:
        return isinstance(error, PermissionError)
    return False


def _nearest_existing(directory: str) -> str:
    """Return the directory, or its nearest existing parent, in which a daemon would create the directory."""
    while directory and not os.path.isdir(directory) and os.path.dirname(directory) != directory:
        directory = os.path.dirname(directory)
    return directory or "."


LOCKED = "another program has locked it; try again once that program has ended"
"""Message for a locked file. The other program may be copying or compacting it."""

NO_LOCKS = "its file system has no locks; pass a --state-dir on a local disk, or mount it with locks"

FULL = "its file system is full"

TOO_LONG = "it has a row that is longer than any that gpumon writes"

_MIN_FREE_SPACE = 64 * 1024
"""Bytes that SQLite needs for the index of a write-ahead log (32 KiB) and a page. With less free space, it reports an
I/O error."""

_LOCK_ERRORS = (
    "SQLITE_BUSY",
    "SQLITE_LOCKED",
    "SQLITE_PROTOCOL",
    "SQLITE_IOERR_LOCK",
    "SQLITE_IOERR_RDLOCK",
    "SQLITE_IOERR_SHMLOCK",
)

_UNSUPPORTED_LOCK_ERRNOS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
"""Errors of a lock call on a file system without locks."""

_UNUSED_OFFSET = 1 << 62
"""An offset that is beyond the end of any file and that SQLite does not lock."""

_LOCKABLE: dict[str, int] = {}
"""Open file descriptors of the files that could be locked, by path."""

_NO_WAL_INDEX_ERRORS = ("SQLITE_CANTOPEN", "SQLITE_READONLY_DIRECTORY", "SQLITE_READONLY_CANTINIT")


class LockTimeout:
    """The time for which this process waits if another process has locked a file, for example to create it."""

    seconds = 5.0


def set_lock_timeout(seconds: float) -> None:
    """Set the number of seconds for which this process waits for a locked file.

    A server uses a shorter time, because its clients have to wait, too.
    """
    LockTimeout.seconds = seconds


def describe_error(error: Exception, path: str) -> str:
    """Return a message for users about an error that occurred when using the file at `path`."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    name = getattr(error, "sqlite_errorname", "")
    if name == "SQLITE_TOOBIG":
        return TOO_LONG
    if name == "SQLITE_CANTOPEN" and (reason := _reason_against_descriptors()):
        return reason
    if not name.startswith(_LOCK_ERRORS):
        return FULL if name.startswith("SQLITE_IOERR") and _is_disk_full(path) else str(error)
    return _describe_lock_error(path)


def _reason_against_descriptors() -> str:
    """Return why this process cannot open any file; empty if it can. SQLite does not report the reason."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _is_disk_full(path: str) -> bool:
    """Return whether the file system of `path` has no space left."""
    try:
        stats = os.statvfs(os.path.dirname(path) or ".")
    except OSError:
        return False
    return stats.f_bavail * stats.f_frsize < _MIN_FREE_SPACE


def _describe_lock_error(path: str) -> str:
    """Return the reason why SQLite could not lock a file, as text for users.

    SQLite itself reports most errors of the lock call as a lock held by another program.
    """
    if path not in _LOCKABLE:
        try:
            fd = open_regular(path)
        except OSError:
            return LOCKED
        try:
            fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, _UNUSED_OFFSET)
            fcntl.lockf(fd, fcntl.LOCK_UN, 1, _UNUSED_OFFSET)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                os.close(fd)
                if error.errno in _UNSUPPORTED_LOCK_ERRNOS:
                    return NO_LOCKS
                return f"it cannot be locked: {error.strerror or error}"
        # The descriptor stays open, because closing it would drop all locks of SQLite on this file in this process.
        _LOCKABLE[path] = fd
    return LOCKED


_MAX_ROW = 64 * 2**20
"""Maximum bytes of a row that is read. gpumon writes much shorter rows. Longer ones raise sqlite3.Error."""


def open_to_read(
    path: str, kind: FileKind, *, any_thread: bool = False, timeout: float | None = None
) -> tuple[sqlite3.Connection, int]:  # fmt: skip
    """Open a file for reading, and return the connection and the version of the file.

    The version is 0 while the file is being created. The function reads from the file, so that an error is raised here
    and not later if it is unreadable. `kind`: the kind whose tables it must have as plain tables. `any_thread`: let
    several threads use the connection, one at a time. `timeout`: seconds to wait while another process has locked the
    file, by default `LockTimeout`. Raises sqlite3.Error, or OSError if the path is not a regular file.
    """
    require_regular_files(path)
    try:
        return _connect_to_read(path, kind, "mode=ro", any_thread, timeout)
    except sqlite3.Error as error:
        # Without a writer the write-ahead log has no index, and this process may not create one. It can read the file
        # as immutable instead, because without a writer the file does not change.
        # Errors of Python's module, such as those about text that is not UTF-8, have no name.
        name = getattr(error, "sqlite_errorname", "")
        if name not in _NO_WAL_INDEX_ERRORS or os.path.exists(f"{path}-shm"):
            raise
        return _connect_to_read(path, kind, "immutable=1", any_thread, timeout)


def _connect_to_read(
    path: str, kind: FileKind, mode: str, any_thread: bool, timeout: float | None
) -> tuple[sqlite3.Connection, int]:  # fmt: skip
    uri = f"file:{quote(os.path.abspath(path))}?{mode}"
    seconds = LockTimeout.seconds if timeout is None else timeout
    connection = sqlite3.connect(uri, uri=True, timeout=seconds, check_same_thread=not any_thread)
    try:
        connection.isolation_level = None  # no implicit transactions
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_ROW)
        require_plain_tables(connection, kind)
    except sqlite3.Error:
        connection.close()
        raise
    except UnicodeDecodeError as error:
        connection.close()
        raise damage_error(error) from error
    return connection, version
