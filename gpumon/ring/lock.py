"""The lock that ensures that only one process writes to a directory.

The lock is a separate file with mode 0600, because anyone who can open a file for reading could lock it with `flock`.
If a daemon was killed while a driver call hung, it holds its lock forever, because its thread cannot end. So a new
daemon takes over the lock if its owner has ended, is a zombie, or has been silent for too long. To do so, the daemon
renames a new file over the old one. At each tick, the owner checks which file is at the path, and stops if it is a
different file.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from gpumon.common.errors import AlreadyRunning, GpumonError
from gpumon.common.paths import open_lock_file, open_regular
from gpumon.common.procfs import is_alive, start_time


def open_fresh(path: str) -> tuple[int, str]:
    """Create an empty file next to `path`. Return its descriptor and its path.

    Raises GpumonError if the name is already in use.
    """
    name = f"{path}.{os.getpid()}"
    with suppress(FileNotFoundError, IsADirectoryError, PermissionError):
        os.unlink(name)  # left by a dead process with our pid, or made by one in another namespace, which tries again
    try:
        return os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600), name
    except FileExistsError:
        raise GpumonError(f"cannot create {name}, because it exists: remove it") from None


def remove_left_over(path: str) -> None:
    """Remove files that other processes created to replace `path` and left behind.

    The caller must hold the lock of the directory.
    """
    directory, final = os.path.split(path)
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            base, _, pid = entry.name.rpartition(".")
            if base == final and pid.isascii() and pid.isdigit() and entry.is_file(follow_symlinks=False):
                with suppress(OSError):  # the file no longer exists, or this user may not remove it
                    os.unlink(entry.path)


_RECORD = 64
_COMMAND = " command"
"""Suffix of the record of a process that samples for a command (`gpumon run`)."""
NO_INODE = -1
"""Result of `inode_at` if there is no file at the path."""
SILENT_AFTER = 30.0
"""Seconds without a heartbeat after which a living owner is assumed to hang."""


class Holder(NamedTuple):
    """The process that holds a lock, according to the record that this process wrote into the lock file."""

    pid: int
    """Pid of the process; 0 if the record is unreadable."""
    started: int
    """Start time of the process in clock ticks after boot. Together with the pid, it identifies a process."""
    uid: int
    """Uid of the owner of the lock file."""
    for_command: bool = False
    """Whether the process samples only for a command (`gpumon run`). It then ends when the command ends."""


def holder_of(path: str) -> Holder | None:
    """Return the process that holds the lock at `path`; None if the file is not locked or does not exist.

    Raises OSError if the file cannot be read, for example because it belongs to another user.
    """
    try:
        fd = open_regular(path)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)  # held only briefly; a daemon that starts just then tries again
    except BlockingIOError:
        pid, started, for_command = _owner(fd)
        return Holder(pid, started, os.fstat(fd).st_uid, for_command)
    finally:
        os.close(fd)
    return None


class WriterLock:
    """The exclusive right to write to a directory, until `release` is called or the process ends.

    `heartbeat_age`: function that returns the seconds since the current owner last showed that it is alive.
    `for_command`: see `Holder`. Raises AlreadyRunning if a living daemon holds the lock, GpumonError if the lock cannot
    be acquired.
    """

    def __init__(
        self, path: str, heartbeat_age: Callable[[], float] = lambda: 0.0, *, for_command: bool = False
    ) -> None:
        """Acquire the lock. See the class for arguments and errors."""
        self._path = path
        for _ in range(5):
            fd = open_lock_file(path)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                pid, started, runs_command = _owner(fd)
                os.close(fd)
                if is_alive(pid, started) and heartbeat_age() <= SILENT_AFTER:
                    raise AlreadyRunning(os.path.dirname(path), pid, for_command=runs_command) from None
                _replace(path)
                continue
            except OSError as error:
                os.close(fd)
                raise GpumonError(
                    f"cannot lock {path}: {error.strerror or error}; pass a --dir on a local disk"
                ) from None
            try:
                # Between our open and our lock, a different file may have been renamed to the path.
                if inode_at(path) == os.fstat(fd).st_ino:
                    record = f"{os.getpid()} {start_time()}{_COMMAND if for_command else ''}"
                    os.pwrite(fd, record.encode().ljust(_RECORD, b"\0"), 0)
                    self._fd = fd
                    self._own_inode = os.fstat(fd).st_ino
                    remove_left_over(path)
                    return
            except OSError:
                os.close(fd)
                raise
            os.close(fd)
        raise GpumonError(f"several daemons are starting in {os.path.dirname(path)}: try again")

    def is_mine(self) -> bool:
        """Return whether this process still holds the lock. False if another process has taken it over.

        Raises OSError if that cannot be checked.
        """
        return inode_at(self._path) == self._own_inode

    def is_removed(self) -> bool:
        """Return whether the lock file was removed and not replaced. Raises OSError if that cannot be checked."""
        return inode_at(self._path) == NO_INODE

    def release(self) -> None:
        """Release the lock. The file is kept, but has no effect while no process locks it."""
        os.close(self._fd)


def _owner(fd: int) -> tuple[int, int, bool]:
    try:
        pid, started, *more = os.pread(fd, _RECORD, 0).rstrip(b"\0").split()
        return int(pid), int(started), more == [_COMMAND.strip().encode()]
    except ValueError:
        return 0, 0, False


def _replace(path: str) -> None:
    fd, fresh = open_fresh(path)
    os.close(fd)
    with suppress(FileNotFoundError):  # another new daemon holds the lock and has removed our file
        os.rename(fresh, path)


def inode_at(path: str) -> int:
    """Return the inode of the file at a path; NO_INODE if there is none. Raises OSError if that cannot be checked."""
    try:
        return os.stat(path).st_ino
    except (FileNotFoundError, NotADirectoryError):
        return NO_INODE
