"""A file that programs lock for as long as they need something, such as a daemon that samples for their notebook.

Each program holds a shared POSIX lock (fcntl(2)). The kernel releases it when the process ends, however it ends. Unlike
a lock of flock(2), it is not inherited by forked children, so a child that outlives the program does not hold it.
"""

from __future__ import annotations

import fcntl
import os

from gpumon.common.paths import require_regular


class UsageLock:
    """A shared lock on the file `path`, held until `release` or the end of this process.

    A process must have only one lock on a file, because closing any descriptor of the file releases it. Raises OSError
    if the file cannot be created or locked.
    """

    def __init__(self, path: str) -> None:
        self._fd = _open(path, os.O_CREAT)
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_SH)
        except OSError:
            os.close(self._fd)
            raise

    def release(self) -> None:
        os.close(self._fd)


def is_in_use(path: str) -> bool:
    """Return whether another process holds a lock on the file. False if the file does not exist.

    Raises OSError if this cannot be checked.
    """
    try:
        fd = _open(path)
    except FileNotFoundError:
        return False
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # released at once: a program that locks meanwhile waits for it
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _open(path: str, create: int = 0) -> int:
    fd = os.open(path, os.O_RDWR | create | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    try:
        require_regular(fd, path)
    except OSError:
        os.close(fd)
        raise
    return fd
