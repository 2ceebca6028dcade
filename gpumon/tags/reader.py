"""The daemon's side of the boards: which trainings run, and where their epochs begin and end.

`TagReader.poll` once a tick costs a lock query and one read for each board that has nothing new
to say. `at` then gives the runs as they were when a sample was taken.
"""

from __future__ import annotations

import os
import pwd
import stat
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from gpumon.clock import SECOND, Clock, SystemClock
from gpumon.errors import BoardError
from gpumon.frame import Boundary, Run
from gpumon.paths import Places, tag_dirs
from gpumon.tags.board import NAME, Memory
from gpumon.tags.matching import Claim
from gpumon.tags.sweep import KEEP
from gpumon.tags.watch import Times, Watched

SHOWN_AFTER_END = 60 * SECOND
"""How long a run that has ended stays among the runs."""
BOARDS_PER_USER = 256
_RETRY_MOST = 64 * SECOND
_REMEMBERED = 4096
_NEW_EACH_POLL = 256


class Poll(NamedTuple):
    """What the boards tell at one moment."""

    runs: list[Run]
    """Those that run, and those that ended within the last minute."""
    boundaries: list[Boundary]
    """New since the last poll; of each run in their order."""
    claims: Mapping[str, Claim]
    """By key of the run: what `matching.devices_of` needs."""
    withdrawn: Sequence[str] = ()
    """Keys of runs that were taken back since the last poll; they are not among the runs."""
    memory: Mapping[str, Sequence[Memory]] = {}
    """By key of the run: what its framework told of each of its devices."""
    unread: int = 0
    """Boards that nobody looked at: their users have more of them than are read at once."""


class _Refused(NamedTuple):
    """A file that was no board when it was looked at; it may have been in the making."""

    again: int
    delay: int


class TagReader:
    """Reads all boards that this user can see, under the directories of `where`.

    `proc` is the root of procfs; `clock` gives the time. Nothing that lies in a board
    directory makes it raise, wait, or grow without bound.
    """

    def __init__(self, where: Places, proc: str = "/proc", clock: Clock | None = None) -> None:
        self._where = where
        self._proc = proc
        self._clock = clock or SystemClock()
        self._boards: dict[tuple[str, str], Watched] = {}
        self._forgotten: dict[tuple[str, str], tuple[int, int]] = {}
        self._refused: dict[tuple[str, str], _Refused] = {}
        self._users: dict[int, str] = {}
        self._runs: dict[str, tuple[Run, Watched]] = {}
        try:
            self._namespace = os.stat(f"{proc}/self/ns/time").st_ino
        except OSError:
            self._namespace = 0

    def poll(self) -> Poll:
        """Look at every board once."""
        times = self._now()
        directories = list(tag_dirs(self._where))
        unread = sum(self._scan(directory, times) for directory in directories)
        boundaries: list[Boundary] = []
        withdrawn: list[str] = []
        self._runs = {}
        for place, board in list(self._boards.items()):
            try:
                run, fresh = board.poll(self._now)
            except (BoardError, OSError):
                self._drop(place, board)
                self._refuse(place, times)
                continue
            if board.withdrawn:
                withdrawn.append(board.name)
                self._forgotten[place] = (board.inode, board.ended)
                self._drop(place, board)
                continue
            boundaries += fresh
            if board.name not in self._runs:  # the same name in two directories: somebody plays with himself
                user = self._user(board.claim.uid)
                board.claim = board.claim._replace(user=user)
                self._runs[board.name] = (run._replace(user=user), board)
            if self._is_over(board, times):
                self._forgotten[place] = (board.inode, board.ended)
                self._drop(place, board)
        return Poll(
            runs=[run for run, _ in self._runs.values()],
            boundaries=boundaries,
            claims={key: board.claim for key, (_, board) in self._runs.items()},
            withdrawn=withdrawn,
            memory={key: board.memory for key, (_, board) in self._runs.items()},
            unread=unread,
        )

    def at(self, monotonic: int) -> list[Run]:
        """The runs of the last poll with epoch, phase and state as they were at `monotonic` (ns)."""
        runs = (board.at(run, monotonic) for run, board in self._runs.values())
        return [run for run in runs if run is not None]

    def close(self) -> None:
        """Let go of all boards."""
        for place, board in list(self._boards.items()):
            self._drop(place, board)

    def _now(self) -> Times:
        return Times(self._clock.monotonic(), self._clock.time(), self._namespace)

    def _is_over(self, board: Watched, times: Times) -> bool:
        """Ended, and shown long enough; a run that ended before anybody looked is shown once."""
        return board.ended > 0 and times.time - board.ended > SHOWN_AFTER_END

    def _scan(self, directory: str, times: Times) -> int:
        """Open the boards that are new; gives how many had to be left alone."""
        try:
            fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return 0  # gone meanwhile, or another user's
        try:
            names = set(_names(fd))
            self._forget_vanished(directory, names)
            boards = Counter(place_uid(place) for place in self._boards)
            opened = unread = 0
            for name in names:
                place = (directory, name)
                if place in self._boards:
                    continue
                if place in self._forgotten:
                    self._unlink_old(fd, place, times)
                elif opened >= _NEW_EACH_POLL or boards[place_uid(place)] >= BOARDS_PER_USER:
                    unread += place not in self._refused
                elif place not in self._refused or self._refused[place].again <= times.monotonic:
                    opened += 1
                    try:
                        self._boards[place] = Watched(fd, name, self._proc)
                    except (BoardError, OSError):
                        self._refuse(place, times)
                    else:
                        self._refused.pop(place, None)
                        boards[place_uid(place)] += 1
            return unread
        finally:
            os.close(fd)

    def _forget_vanished(self, directory: str, names: set[str]) -> None:
        for place in [*self._forgotten, *self._refused]:
            if place[0] == directory and place[1] not in names:
                self._forgotten.pop(place, None)
                self._refused.pop(place, None)

    def _refuse(self, place: tuple[str, str], times: Times) -> None:
        if len(self._refused) >= _REMEMBERED:
            self._refused.clear()
        before = self._refused.get(place)
        delay = min(2 * before.delay, _RETRY_MOST) if before else SECOND
        self._refused[place] = _Refused(times.monotonic + delay, delay)

    def _unlink_old(self, directory: int, place: tuple[str, str], times: Times) -> None:
        inode, ended = self._forgotten[place]
        if times.time - ended <= KEEP:
            return
        with suppress(OSError):  # gone meanwhile, or in a directory that is not ours to write
            found = os.stat(place[1], dir_fd=directory, follow_symlinks=False)
            if found.st_ino != inode:
                del self._forgotten[place]  # another file has come to this name
            elif os.getuid() in (os.fstat(directory).st_uid, found.st_uid) and stat.S_ISREG(found.st_mode):
                os.unlink(place[1], dir_fd=directory)

    def _drop(self, place: tuple[str, str], board: Watched) -> None:
        del self._boards[place]
        board.close()

    def _user(self, uid: int) -> str:
        if uid not in self._users:
            try:
                self._users[uid] = pwd.getpwuid(uid).pw_name
            except KeyError:
                self._users[uid] = str(uid)
        return self._users[uid]


def place_uid(place: tuple[str, str]) -> str:
    """The uid in a board's name, as text."""
    return place[1].split(".", 2)[1]


def _names(directory: int) -> Iterator[str]:
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            if NAME.fullmatch(entry.name):
                yield entry.name
