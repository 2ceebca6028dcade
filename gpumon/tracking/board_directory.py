"""How much one poll takes in of a user's boards, so that nobody's boards delay the sampling of others."""

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
from gpumon.tracking.sweep import lock_holder
from gpumon.tracking.wire import NAME, BoardHeader

EVENTS = 512
"""Of one user in a second: a hundred ranks with epochs of 1 s have two fifths of it."""
BYTES = 64 * 1024
"""Of descriptions and particulars of runs, likewise: what is new in them is read later."""
FOR_DESCRIPTIONS = 256 * 1024
"""Bytes that particulars leave to descriptions: without these the events of a run are not understood."""
BURST = 8
"""Seconds of which what was not used may be used at once, as when a daemon finds the boards of many ranks."""

_LARGEST = 1 << 20
_MOST_UIDS = 4096


class BudgetOwners:
    """Users by uid: those that /etc/subuid lends to a user, as for rootless containers, use the budget of that user.

    Any user may own files and processes under 65,536 of them.
    """

    def __init__(self, path: str = "/etc/subuid") -> None:
        self._path = path
        self._stamp = 0
        self._ranges: list[tuple[int, int, int]] = []
        """First uid, the one behind the last, and the user, in the order of the first."""
        self._known: dict[int, int] = {}

    def of(self, uid: int) -> int:
        """Return the user whose budget `uid` uses."""
        known = self._known.get(uid)
        if known is None:
            self._read()
            if len(self._known) >= _MOST_UIDS:
                self._known.clear()
            place = bisect_right(self._ranges, uid, key=lambda one: one[0]) - 1
            lent = place >= 0 and uid < self._ranges[place][1]
            known = self._known[uid] = self._ranges[place][2] if lent else uid
        return known

    def _read(self) -> None:
        """Read the file again where it has changed."""
        try:
            stamp = os.stat(self._path).st_mtime_ns
            if stamp == self._stamp:
                return
            lines = read_regular(self._path, _LARGEST, follow=True).decode("utf-8", "replace").splitlines()
        except OSError:
            return  # as in a container
        self._stamp, ranges = stamp, []
        for line in lines:
            with suppress(ValueError, KeyError):  # no such user
                name, first, count = line.split(":")
                owner = int(name) if name.isdecimal() else pwd.getpwnam(name).pw_uid
                ranges.append((int(first), int(first) + int(count), owner))
        self._ranges = sorted(ranges)
        self._known.clear()


class Budget:
    """What one user may have read; below 0 where a board had more than was left."""

    def __init__(self, now: int) -> None:
        self.events = EVENTS * BURST
        self.bytes = BYTES * BURST
        self._at = now

    def refill(self, now: int) -> None:
        """Add what has come since the last time; `now` in monotonic ns."""
        passed, self._at = max(0, now - self._at), now
        self.events = min(self.events + EVENTS * passed // SECOND, EVENTS * BURST)
        self.bytes = min(self.bytes + BYTES * passed // SECOND, BYTES * BURST)

    @property
    def is_spent(self) -> bool:
        """Whether no further board is to be opened."""
        return self.events <= 0 or self.bytes <= 0


AT_ONCE = 4096
"""Files that one poll looks at: more than honest users of one machine have."""
_SETTLED = 3 * SECOND
_LOOK_ANYWAY = 10 * SECOND
"""ns after which a directory is looked at though its times are the same: a file may have changed its owner."""
_Stamp = tuple[int, int, int, int]
"""Of a directory: device, inode, and its times (ns since 1970, by the kernel's own clock)."""


class Listing:
    """One pass through a directory, in portions. Raises OSError when it cannot be read."""

    def __init__(self, directory: str) -> None:
        self.fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            self._entries = os.scandir(self.fd)
        except OSError:
            os.close(self.fd)
            raise
        self.is_done = False
        self.seen: set[str] = set()
        """Names that the reader noted in this pass."""

    def portion(self) -> Iterator[os.DirEntry[str]]:
        """The next files with a board's name; `is_done` when these were the last."""
        self.is_done = True  # also where the directory can be read no further
        with suppress(OSError):
            found = list(islice(self._entries, AT_ONCE))
            self.is_done = len(found) < AT_ONCE
            yield from (entry for entry in found if NAME.fullmatch(entry.name))

    def close(self) -> None:
        self._entries.close()
        os.close(self.fd)


class Unchanged:
    """Directories that need no look, because all that lay in them is known and their times are the same since."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[_Stamp, int]] = {}
        self._before: dict[str, _Stamp | None] = {}

    def __call__(self, directory: str, now: int) -> bool:
        """Whether nothing has come to `directory` since `settle`; `now` in monotonic ns."""
        stamp = self._before[directory] = _stamp(directory)
        known = self._known.get(directory)
        return known is not None and known[0] == stamp and now < known[1]

    def settle(self, directory: str, now: int) -> None:
        """All that lay in `directory` after the last question is known."""
        stamp = self._before.get(directory)
        # What comes within one tick of the kernel's clock, or the second of some file systems, leaves the same time.
        if stamp is not None and time_ns() - stamp[-1] > _SETTLED:
            self._known[directory] = stamp, now + _LOOK_ANYWAY

    def forget(self, directory: str) -> None:
        """Look at `directory` again, whatever its times say."""
        self._known.pop(directory, None)


def _stamp(directory: str) -> _Stamp | None:
    try:
        found = os.stat(directory)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns


def name_uid(name: str) -> int:
    """The user in a board's name."""
    return int(name.split(".", 2)[1])


def is_of_its_user(entry: os.DirEntry[str], uid: int) -> bool:
    """Whether the file belongs to `uid`, whom its name names: else it is a stranger's, and nothing of it counts."""
    try:
        found = entry.stat(follow_symlinks=False)
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_uid == uid


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


Place = tuple[str, str]
"""A directory, and the name of a board in it."""
_LONGEST = 64 * SECOND
_REMEMBERED = 4096


class _Refused(NamedTuple):
    again: int
    delay: int


class Refusals:
    """When to look again at what, at ever longer intervals; never more than so many of them."""

    def __init__(self) -> None:
        self._found: dict[Place, _Refused] = {}

    def __contains__(self, place: Place) -> bool:
        return place in self._found

    def must_wait(self, place: Place, now: int) -> bool:
        """Whether `place` is not to be looked at yet; `now` in monotonic ns."""
        found = self._found.get(place)
        return found is not None and found.again > now

    def add(self, place: Place, now: int) -> None:
        """Look at `place` again later, after twice as long as the last time."""
        if len(self._found) >= _REMEMBERED:
            # Only who has most of them is looked at anew, each poll some.
            ((most, _),) = Counter(name_uid(name) for _, name in self._found).most_common(1)
            self._found = {kept: why for kept, why in self._found.items() if name_uid(kept[1]) != most}
        before = self._found.get(place)
        delay = min(2 * before.delay, _LONGEST) if before else SECOND
        self._found[place] = _Refused(now + delay, delay)

    def forget(self, place: Place) -> None:
        """It is a board now, or gone."""
        self._found.pop(place, None)

    def keep(self, directory: str, names: set[str]) -> None:
        """Forget what lay in `directory` and is not among `names`."""
        for place in [place for place in self._found if place[0] == directory and place[1] not in names]:
            del self._found[place]
