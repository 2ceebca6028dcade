"""One writer for a directory.

The lock is a file of its own, mode 0600, because a read-only descriptor is enough to take an
exclusive `flock`. A daemon that was killed while a driver call hung keeps its lock for ever (its
thread cannot die), so a newcomer takes over from an owner that is gone, a zombie, or silent: it
renames a fresh file over the old one. The owner looks at the path each tick and stops when it no
longer names its own inode.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from gpumon.common.errors import AlreadyRunning, GpumonError
from gpumon.common.paths import open_regular, require_regular
from gpumon.common.procfs import is_alive, start_time


def open_fresh(path: str) -> tuple[int, str]:
    """Return a new, empty file next to `path`, and its name. Raises GpumonError where no file can lie there."""
    name = f"{path}.{os.getpid()}"
    with suppress(FileNotFoundError, IsADirectoryError, PermissionError):
        os.unlink(name)  # of a namesake that is dead, or of another namespace: then that one tries again
    try:
        return os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600), name
    except FileExistsError:
        raise GpumonError(f"{name} blocks a new file: remove it") from None


def remove_left_over(path: str) -> None:
    """Remove what others left of replacing `path`. Only for who holds the lock of its directory."""
    directory, final = os.path.split(path)
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            base, _, pid = entry.name.rpartition(".")
            if base == final and pid.isascii() and pid.isdigit() and entry.is_file(follow_symlinks=False):
                with suppress(OSError):  # gone meanwhile, or not ours to remove: then it is in no one's way
                    os.unlink(entry.path)


_RECORD = 64
_COMMAND = " command"
"""Ends the record of a process that samples for a command."""
NO_INODE = -1
"""Of a path at which there is nothing."""
SILENT_AFTER = 30.0
"""Seconds without a heartbeat after which a living owner counts as hung."""


class Holder(NamedTuple):
    """The process that holds a lock, as it wrote itself down."""

    pid: int
    """0 where nothing readable is written."""
    started: int
    """Clock ticks after boot; with the pid it names a process for ever."""
    uid: int
    """Owner of the file."""
    for_command: bool = False
    """Whether it samples for a command that it runs, and ends with that."""


def holder_of(path: str) -> Holder | None:
    """Return the process that holds the lock at `path`; None where none does, or there is no such file.

    Raises OSError where the file cannot be read, such as another user's.
    """
    try:
        fd = open_regular(path)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)  # given up at once: a daemon that starts now tries again
    except BlockingIOError:
        pid, started, for_command = _owner(fd)
        return Holder(pid, started, os.fstat(fd).st_uid, for_command)
    finally:
        os.close(fd)
    return None


class WriterLock:
    """The right to write a directory, held until `release` or the end of the process."""

    def __init__(
        self, path: str, heartbeat_age: Callable[[], float] = lambda: 0.0, *, for_command: bool = False
    ) -> None:
        """Take the lock.

        `heartbeat_age` returns the seconds since the present owner's last heartbeat; `for_command`: as of `Holder`.
        Raises AlreadyRunning when a living daemon holds it, GpumonError when it cannot be had.
        """
        self._path = path
        for _ in range(5):
            fd = _open(path)
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
                # Between our open and our lock the path may have been given to another file.
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
        """Whether no other process has taken over. Raises OSError where that cannot be seen."""
        return inode_at(self._path) == self._own_inode

    def is_removed(self) -> bool:
        """Whether the lock has lost its name: it was removed, and no other was made. Raises OSError as `is_mine`."""
        return inode_at(self._path) == NO_INODE

    def release(self) -> None:
        """Give the lock up; the file stays, as an empty one means nothing."""
        os.close(self._fd)


def _open(path: str) -> int:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    try:
        require_regular(fd, path)
    except OSError:
        os.close(fd)
        raise
    return fd


def _owner(fd: int) -> tuple[int, int, bool]:
    try:
        pid, started, *more = os.pread(fd, _RECORD, 0).rstrip(b"\0").split()
        return int(pid), int(started), more == [_COMMAND.strip().encode()]
    except ValueError:
        return 0, 0, False


def _replace(path: str) -> None:
    fd, fresh = open_fresh(path)
    os.close(fd)
    with suppress(FileNotFoundError):  # another newcomer has the lock, and cleaned up
        os.rename(fresh, path)


def inode_at(path: str) -> int:
    """Return the inode at a path, NO_INODE where there is nothing. Raises OSError where that cannot be seen."""
    try:
        return os.stat(path).st_ino
    except (FileNotFoundError, NotADirectoryError):
        return NO_INODE
