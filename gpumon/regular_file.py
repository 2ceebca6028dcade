"""Opens files to read, and regular files alone: reading from a FIFO, a socket or a device may wait for ever."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress

NOT_REGULAR = "not a regular file"


def open_regular(path: str, *, follow: bool = False, dir_fd: int | None = None) -> int:
    """Return a descriptor to read the file at `path`; a symbolic link is refused unless `follow` is set.

    Raises OSError, also for what is no regular file.
    """
    # Here, not at import: Windows lacks these, and trainings there import this module.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY | (0 if follow else os.O_NOFOLLOW)
    try:
        fd = os.open(path, flags, dir_fd=dir_fd)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket
            raise _not_regular(path) from None
        if error.errno == errno.ELOOP and not follow:
            raise OSError(errno.ELOOP, "a symbolic link, which gpumon does not follow here", path) from None
        raise
    try:
        require_regular(fd, path)
    except OSError:
        os.close(fd)
        raise
    return fd


def may_exist(path: str) -> bool:
    """Whether there is something at `path`, or that cannot be told: no permission, a disk or a network that fails."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
    except OSError:
        return True
    return True


def read_regular(path: str, most: int, *, follow: bool = False) -> bytes:
    """Return the first `most` bytes of the file at `path`. Raises OSError as `open_regular` does."""
    fd = open_regular(path, follow=follow)
    with os.fdopen(fd, "rb") as file:
        return file.read(most)


def require_readable(path: str) -> None:
    """Raise OSError as `open_regular` does, links followed: for files that a library opens by their names."""
    os.close(open_regular(path, follow=True))


def require_regular(fd: int, path: str) -> None:
    """Raise OSError where an open descriptor is no regular file."""
    _require(os.fstat(fd).st_mode, path)


def require_regular_or_absent(path: str) -> None:
    """Raise OSError where anything but a regular file lies at `path`, such as a symbolic link.

    For files that SQLite opens: closing a descriptor of ours would drop its locks.
    """
    with suppress(FileNotFoundError):
        _require(os.lstat(path).st_mode, path)


def _require(mode: int, path: str) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "a directory, not a file", path)
    if stat.S_ISLNK(mode):
        raise OSError(errno.ELOOP, "a symbolic link, which gpumon does not follow here", path)
    if not stat.S_ISREG(mode):
        raise _not_regular(path)


def _not_regular(path: str) -> OSError:
    return OSError(errno.EINVAL, NOT_REGULAR, path)
