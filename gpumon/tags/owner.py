"""The process behind a board, as the kernel reports it, never the board.

The training holds a POSIX lock on its board; F_GETLK returns the holder, as a pid of the caller's own
pid namespace, and it ends with the process however that ends (fcntl(2), proc_pid_status(5)).
"""

from __future__ import annotations

import os
from typing import NamedTuple

from gpumon.common.procfs import read_stat, start_time
from gpumon.tags.sweep import lock_holder
from gpumon.tags.wire import BoardHeader

__all__ = ["BoardOwner", "is_running", "lock_holder", "process_by_namespace", "read_process"]


class BoardOwner(NamedTuple):
    """The public part of `/proc/<pid>/status`."""

    uid: int
    """Effective, which owns the files it makes; right even where /proc/<pid> shows root as its owner."""
    inner_pid: int
    """Its pid in its innermost pid namespace."""


def read_process(proc: str, pid: int) -> BoardOwner | None:
    """The process `pid`, or None where it is gone or hidden from us."""
    uid = inner = None
    try:
        with open(f"{proc}/{pid}/status", "rb") as file:
            for line in file:
                if line.startswith(b"Uid:"):
                    uid = int(line.split()[2])
                elif line.startswith(b"NSpid:"):
                    inner = int(line.split()[-1])
    except (OSError, ValueError, IndexError):
        return None
    return None if uid is None else BoardOwner(uid, pid if inner is None else inner)


def is_running(proc: str, header: BoardHeader, uid: int, pid: int = 0) -> bool:
    """Whether the process that made a board of `uid` still runs, by its start time: the lock may be lost before.

    `pid`: its own here, where it is known.
    """
    if not pid:
        try:
            if os.stat(f"{proc}/self/ns/pid").st_ino != header.pid_namespace:
                return False
        except OSError:
            return False
        pid = header.pid
    found, process = read_stat(pid, proc), read_process(proc, pid)
    if found is None or process is None or process.uid != uid:
        return False
    return found.started == header.started and found.state not in ("Z", "X")


def process_by_namespace(proc: str, header: BoardHeader, uid: int) -> int:
    """The pid here of the process that calls itself `header.pid` in a pid namespace of its own; 0 if not found.

    For a holder of whom F_GETLK says only that it lives elsewhere. Reads all of /proc: ask once.
    """
    try:
        names = os.listdir(proc)
    except OSError:
        return 0
    for name in names:
        if name.isdigit() and start_time(name, proc) == header.started != 0:
            process = read_process(proc, int(name))
            if process is not None and process.uid == uid and process.inner_pid == header.pid:
                return int(name)
    return 0
