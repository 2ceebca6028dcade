"""A file that programs lock for as long as they need something, such as a daemon that samples for their notebook.

Each program holds a shared POSIX lock (fcntl(2)). The kernel releases it when the process ends, however it ends. Unlike
a lock of flock(2), it is not inherited by forked children, so a child that outlives the program does not hold it.
"""

from __future__ import annotations

import fcntl
import os

from gpumon.common.paths import open_lock_file


class UsageLock:
    """A shared lock on the file `path`, held until `release` or the end of this process.

    A process must have only one lock on a file, because closing any descriptor of the file releases it. Raises OSError
    if the file cannot be created or locked.
    """

    def __init__(self, path: str) -> None:
        self._fd = open_lock_file(path)
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
        fd = open_lock_file(path, create=0)
    except FileNotFoundError:
        return False
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # released at once: a program that locks meanwhile waits for it
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False
