"""Removes old boards of this user that no process locks and no daemon will read.

A daemon removes boards after it has read them. Without a daemon, the next training of the same user removes old boards.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Collection
from itertools import islice
from struct import Struct

from gpumon.common.paths import open_regular
from gpumon.tracking import wire_format
from gpumon.tracking.wire_format import unpack_state

KEEP = 600 * 1_000_000_000
"""ns for which a board is kept after the end of its run, so that a daemon that starts later can still read it."""
_FLOCK = Struct("@hhqqi4x")
_MAX_FILES = 512


def lock_holder(fd: int) -> int | None:
    """Return the pid of the process that holds the POSIX lock on the file `fd`; None if the file is not locked.

    The pid is valid in the pid namespace of this process. It is 0 if the holder is not visible in this namespace. The
    kernel does not report locks of the calling process.
    """
    request = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, request))
    return None if kind == fcntl.F_UNLCK else max(0, pid)


def sweep(directory: str, uid: int, own: Collection[str], now: int) -> None:
    """Remove boards of `uid` whose process is dead and that have not been changed for longer than `KEEP`.

    `now`: current time in ns since 1970. `own`: names of this process's boards, which must not be opened, because
    closing one would release its lock.
    """
    prefix = f"tag.{uid}."
    try:
        with os.scandir(directory) as entries:
            names = [entry.name for entry in islice(entries, _MAX_FILES)]
    except OSError:
        return  # this user may not list the shared directory, which the daemon cleans up
    for name in names:
        final = name.lstrip(".")  # a board is created under a hidden name
        if final.startswith(prefix) and final not in own:
            try:
                _remove_if_dead(f"{directory}/{name}", uid, now)
            except OSError:
                continue  # the file no longer exists, or this user may not remove it


def _remove_if_dead(path: str, uid: int, now: int) -> None:
    fd = open_regular(path)
    try:
        status = os.fstat(fd)
        if status.st_uid != uid or lock_holder(fd) is not None:
            return

        # Writes through a memory mapping do not reliably update the file's modification time.
        state = unpack_state(os.pread(fd, wire_format.FRONT, 0))
        if now - max(status.st_mtime_ns, state.time_ns if state else 0) > KEEP:
            os.unlink(path)
    finally:
        os.close(fd)
