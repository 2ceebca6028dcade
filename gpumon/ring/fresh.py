"""A new file next to the one that it will replace, whatever a killed predecessor left there.

A file is made as `PATH.PID` and then renamed to `PATH`. A process killed in between leaves it: up to a whole
ring in memory, and in the way of a namesake, for in a container a daemon has the same pid each time.
"""

from __future__ import annotations

import os
from contextlib import suppress

from gpumon.common.errors import GpumonError


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
