"""Removing boards of this user that no process holds and no daemon will read any more.

A daemon removes what it has read. Where none ever runs, the next training of the same user does it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Collection
from itertools import islice
from struct import Struct

from gpumon.common.paths import open_regular
from gpumon.tracking import wire
from gpumon.tracking.wire import unpack_state

KEEP = 600 * 1_000_000_000
"""ns that a board stays after its end, for a daemon that starts late."""
_FLOCK = Struct("@hhqqi4x")
_MOST = 512


def lock_holder(fd: int) -> int | None:
    """The pid that holds the POSIX lock on `fd`, as this process sees it; None when no process does.

    0 when the holder lives in a pid namespace that cannot be seen from here. A lock of the asking
    process itself does not count: the kernel answers None.
    """
    asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, asked))
    return None if kind == fcntl.F_UNLCK else max(0, pid)


def sweep(directory: str, uid: int, own: Collection[str], now: int) -> None:
    """Remove dead boards of `uid` in `directory`, silent before `now` (ns since 1970) - KEEP.

    Never opens a board of the caller itself, by the names in `own`: closing it again would drop its lock.
    """
    mine = f"tag.{uid}."
    try:
        with os.scandir(directory) as entries:
            names = [entry.name for entry in islice(entries, _MOST)]
    except OSError:
        return  # a shared directory that cannot be listed: its daemon cleans up
    for name in names:
        final = name.lstrip(".")  # one that never got its name
        if final.startswith(mine) and final not in own:
            try:
                _remove_if_dead(f"{directory}/{name}", uid, now)
            except OSError:
                continue  # gone meanwhile, or not ours to remove


def _remove_if_dead(path: str, uid: int, now: int) -> None:
    fd = open_regular(path)
    try:
        found = os.fstat(fd)
        if found.st_uid != uid or lock_holder(fd) is not None:
            return

        # Writes through a mapping do not reliably move the file's own time.
        state = unpack_state(os.pread(fd, wire.FRONT, 0))
        if now - max(found.st_mtime_ns, state.time_ns if state else 0) > KEEP:
            os.unlink(path)
    finally:
        os.close(fd)
