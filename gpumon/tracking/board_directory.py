"""Helpers with which the daemon reads directories of boards: new files, limits per user, retries, and owners of boards.

Any user may put files into a shared directory. The limits prevent the boards of one user from delaying the sampling for
everyone else.
"""

from __future__ import annotations

import os
import pwd
import stat
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from time import time_ns
from typing import NamedTuple

from gpumon.common.clock import SECOND
from gpumon.common.paths import read_regular
from gpumon.common.procfs import read_stat, start_time
from gpumon.tracking.wire_format import NAME, BoardHeader

EVENTS = 512
"""Maximum number of events to read per user and second. A hundred ranks with epochs of 1 s use 40% of this limit."""
BYTES = 64 * 1024
"""Maximum bytes of descriptions and metadata to read per user and second. The rest is read later."""
FOR_DESCRIPTIONS = 256 * 1024
"""Bytes reserved for descriptions, which metadata must not use. Without its description, the events of a run cannot be
decoded.
"""
BURST = 8
"""Maximum seconds of unused budget that accumulate. A new daemon that reads the boards of many ranks needs them at
once.
"""

_MAX_SUBUID_BYTES = 1 << 20
_MAX_UIDS = 4096


class BudgetOwners:
    """Finds the user whose limits apply to a uid. The subordinate uids in /etc/subuid share the limits of their user.

    /etc/subuid gives each user 65,536 additional uids, for example for rootless containers. If each uid had its own
    limits, a user could use them many times over.
    """

    def __init__(self, path: str = "/etc/subuid") -> None:
        self._path = path
        self._stamp = 0
        self._ranges: list[tuple[int, int, int]] = []
        """Sorted ranges of subordinate uids, each with its first uid, its end (exclusive) and its user."""
        self._owners: dict[int, int] = {}

    def of(self, uid: int) -> int:
        """Return the uid whose limits apply to `uid`."""
        owner = self._owners.get(uid)
        if owner is None:
            self._read()
            if len(self._owners) >= _MAX_UIDS:
                self._owners.clear()
            index = bisect_right(self._ranges, uid, key=lambda uids: uids[0]) - 1
            is_subordinate = index >= 0 and uid < self._ranges[index][1]
            owner = self._owners[uid] = self._ranges[index][2] if is_subordinate else uid
        return owner

    def _read(self) -> None:
        """Read the file again if it has changed."""
        try:
            stamp = os.stat(self._path).st_mtime_ns
            if stamp == self._stamp:
                return
            lines = read_regular(self._path, _MAX_SUBUID_BYTES, follow=True).decode("utf-8", "replace").splitlines()
        except OSError:
            return  # no such file, which is usual in a container
        self._stamp, ranges = stamp, []
        for line in lines:
            with suppress(ValueError, KeyError):  # no such user
                name, first, count = line.split(":")
                owner = int(name) if name.isdecimal() else pwd.getpwnam(name).pw_uid
                ranges.append((int(first), int(first) + int(count), owner))
        self._ranges = sorted(ranges)
        self._owners.clear()


class Budget:
    """The number of events and bytes that may still be read from one user's boards.

    A number is negative after a board has exceeded it.
    """

    def __init__(self, now: int) -> None:
        self.events = EVENTS * BURST
        self.bytes = BYTES * BURST
        self._at = now

    def refill(self, now: int) -> None:
        """Add the budget for the time since the last call. `now`: ns of CLOCK_MONOTONIC."""
        elapsed, self._at = max(0, now - self._at), now
        self.events = min(self.events + EVENTS * elapsed // SECOND, EVENTS * BURST)
        self.bytes = min(self.bytes + BYTES * elapsed // SECOND, BYTES * BURST)

    @property
    def is_spent(self) -> bool:
        """Whether no further board of the user may be opened at present."""
        return self.events <= 0 or self.bytes <= 0


FILES_PER_POLL = 4096
"""Maximum number of files to examine in one poll. The honest users of a machine have fewer files."""
_SETTLED = 3 * SECOND
_RESCAN_AFTER = 10 * SECOND
"""ns after which an unchanged directory is scanned again, because the owner of a file in it may have changed."""
_Stamp = tuple[int, int, int, int]
"""Device and inode of a directory, and its times in ns since 1970 by the kernel's clock."""


class DirectoryScan:
    """A scan of a directory that is spread over several polls. Raises OSError if the directory cannot be read."""

    def __init__(self, directory: str) -> None:
        self.fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            self._entries = os.scandir(self.fd)
        except OSError:
            os.close(self.fd)
            raise
        self.is_done = False
        self.seen: set[str] = set()
        """Names of files that this scan has found and that no reader holds open."""

    def next_files(self) -> Iterator[os.DirEntry[str]]:
        """Yield the next files that are named like a board. Sets `is_done` if these were the last files."""
        self.is_done = True  # even if the rest of the directory cannot be read
        with suppress(OSError):
            entries = list(islice(self._entries, FILES_PER_POLL))
            self.is_done = len(entries) < FILES_PER_POLL
            yield from (entry for entry in entries if NAME.fullmatch(entry.name))

    def close(self) -> None:
        self._entries.close()
        os.close(self.fd)


class UnchangedDirectories:
    """Finds directories that need no scan because they have not been modified since they were scanned completely."""

    def __init__(self) -> None:
        self._scanned: dict[str, tuple[_Stamp, int]] = {}
        self._stamps: dict[str, _Stamp | None] = {}

    def is_unchanged(self, directory: str, now: int) -> bool:
        """Return whether `directory` is unchanged since `settle` was called for it. `now`: ns of CLOCK_MONOTONIC."""
        stamp = self._stamps[directory] = _stamp(directory)
        scanned = self._scanned.get(directory)
        return scanned is not None and scanned[0] == stamp and now < scanned[1]

    def settle(self, directory: str, now: int) -> None:
        """Record that `directory` was scanned completely after the last call of `is_unchanged`."""
        stamp = self._stamps.get(directory)
        # Two changes within one tick of the kernel's clock have the same time. On some file systems, a tick is a
        # second.
        if stamp is not None and time_ns() - stamp[-1] > _SETTLED:
            self._scanned[directory] = stamp, now + _RESCAN_AFTER

    def forget(self, directory: str) -> None:
        """Request a new scan of `directory`, even if its modification time has not changed."""
        self._scanned.pop(directory, None)


def _stamp(directory: str) -> _Stamp | None:
    try:
        status = os.stat(directory)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns


def name_uid(name: str) -> int:
    """Return the uid in the name of a board."""
    return int(name.split(".", 2)[1])


def is_of_its_user(entry: os.DirEntry[str], uid: int) -> bool:
    """Return whether the file is a regular file owned by `uid`, the uid in its name. All other files are ignored."""
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_uid == uid


class BoardOwner(NamedTuple):
    """Uid of a process, and its pid in its own pid namespace, both read from `/proc/<pid>/status`."""

    uid: int
    """Effective uid, which owns the files that the process creates. It is correct even if root owns /proc/<pid>."""
    inner_pid: int
    """Pid of the process in its innermost pid namespace."""


def read_process(proc: str, pid: int) -> BoardOwner | None:
    """Return the owner of process `pid`; None if the process has ended or is not visible to this user.

    `proc`: root of procfs.
    """
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


def is_running(proc: str, header: BoardHeader, uid: int, pid: int = 0, inode: int = 0) -> bool:
    """Return whether the program that created a board is still running, judged by the process's start time.

    Used for a board without a lock, because a living process can lose its lock. `uid`: owner of the board. `pid`: pid
    of the process in this pid namespace; 0 if not determined. `inode`: inode of the board, which the program maps; 0 if
    the program may have replaced the file.
    """
    if not pid:
        try:
            if os.stat(f"{proc}/self/ns/pid").st_ino != header.pid_namespace:
                return False
        except OSError:
            return False
        pid = header.pid
    status, process = read_stat(pid, proc), read_process(proc, pid)
    if status is None or process is None or process.uid != uid:
        return False
    if status.started != header.started or status.state in ("Z", "X"):
        return False
    return not inode or _may_map(proc, pid, inode)


def _may_map(proc: str, pid: int, inode: int) -> bool:
    """Return whether a process maps the file `inode`, or whether this user is not permitted to find out.

    A process that replaces its program (execve) keeps its pid and start time, but none of its mappings.
    """
    try:
        with open(f"{proc}/{pid}/maps", "rb") as file:
            return any(line.split(None, 5)[4] == b"%d" % inode for line in file)
    except (OSError, IndexError):
        return True


def process_by_namespace(proc: str, header: BoardHeader, uid: int) -> int:
    """Return the pid, in this pid namespace, of the process that created a board; 0 if it is not found.

    `header.pid` is its pid in another pid namespace. Needed if F_GETLK cannot report the pid of the lock's holder. This
    reads all of /proc, so call it only once per board.
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


BoardPath = tuple[str, str]
"""A directory, and the name of a board in it."""
_MAX_DELAY = 64 * SECOND
_MAX_RETRIES = 4096


class _Retry(NamedTuple):
    at: int
    delay: int


class RetryBackoff:
    """The files that could not be read as boards, each with the time of the next attempt.

    The delay doubles with each attempt.
    """

    def __init__(self) -> None:
        self._retries: dict[BoardPath, _Retry] = {}

    def __contains__(self, path: BoardPath) -> bool:
        return path in self._retries

    def must_wait(self, path: BoardPath, now: int) -> bool:
        """Return whether it is too early to try `path` again. `now`: ns of CLOCK_MONOTONIC."""
        retry = self._retries.get(path)
        return retry is not None and retry.at > now

    def add(self, path: BoardPath, now: int) -> None:
        """Try `path` again later, after twice the previous delay."""
        if len(self._retries) >= _MAX_RETRIES:
            # Drop the entries of the user with the most entries. The files of that user are then tried again, some in
            # each poll.
            ((largest, _),) = Counter(name_uid(name) for _, name in self._retries).most_common(1)
            self._retries = {key: retry for key, retry in self._retries.items() if name_uid(key[1]) != largest}
        previous = self._retries.get(path)
        delay = min(2 * previous.delay, _MAX_DELAY) if previous else SECOND
        self._retries[path] = _Retry(now + delay, delay)

    def forget(self, path: BoardPath) -> None:
        """Remove `path`. Called when the file has become a board or no longer exists."""
        self._retries.pop(path, None)

    def keep(self, directory: str, names: set[str]) -> None:
        """Remove the entries for all files of `directory` that are not in `names`."""
        for path in [path for path in self._retries if path[0] == directory and path[1] not in names]:
            del self._retries[path]
