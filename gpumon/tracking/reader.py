"""The daemon's side of the boards: which trainings run, and where their epochs begin and end.

`TagReader.poll` once a tick costs a lock query and one read for each board that has nothing new
to say. `at` then gives the runs as they were when a sample was taken.
"""

from __future__ import annotations

import os
import pwd
import stat
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from gpumon.common.clock import SECOND, Clock, SystemClock
from gpumon.common.errors import BoardError
from gpumon.common.paths import Places, tag_dirs
from gpumon.common.procfs import start_time
from gpumon.model.frame import ENDED_BADLY, Boundary, Run, RunState
from gpumon.model.run import NEWS_FOR, NO_METADATA, SHOWN_FOR, About
from gpumon.tracking.board_directory import (
    FOR_DESCRIPTIONS,
    Budget,
    BudgetOwners,
    Listing,
    Place,
    Refusals,
    Unchanged,
    is_of_its_user,
    name_uid,
)
from gpumon.tracking.board_watch import Times, Watched
from gpumon.tracking.matching import Claim, Named, RunIds
from gpumon.tracking.sweep import KEEP
from gpumon.tracking.wire import Memory

SHOWN_AFTER_END = round(SHOWN_FOR * SECOND)
"""Time for which an ended run stays in the list."""
NEWS_AFTER_END = round(NEWS_FOR * SECOND)
"""The same of one that failed or died: a person who comes back after a while is to hear of it."""
_NEWS_PER_USER = 16
"""Boards of one user that stay for longer than others: a script that fails again and again does not fill the frames."""
BOARDS_PER_USER = 256
"""Boards of one user that are read; those of runs that have ended give way to new ones."""
_GIVES_WAY_AFTER = 2
"""Polls that give a run as ended, before its board may give way: the sampler has its last events by then."""
_NEW_EACH_POLL = 256
"""Boards of one user that are opened in one poll."""
_REFUSED_EACH_POLL = 32
"""Files of one user that are opened in one poll and turn out to be no boards; then his others wait for the next."""


class Poll(NamedTuple):
    """The content of all boards at one moment."""

    runs: list[Run]
    """Those that run, and those that ended within the last minute."""
    boundaries: list[Boundary]
    """New since the last poll; of each run in their order."""
    claims: Mapping[str, Claim]
    """By key of the run: what `matching.devices_of` needs."""
    withdrawn: Sequence[str] = ()
    """Keys of runs that were taken back since the last poll; they are not among the runs."""
    memory: Mapping[str, Sequence[Memory]] = {}
    """By key of the run: what its framework reported of each of its devices."""
    about: Mapping[str, About] = {}
    """Particulars of runs, by key."""
    unread: int = 0
    """Boards that were not read: their users have more of them than are read at once."""


class _End(NamedTuple):
    """When a run ended, by the clock that never steps."""

    poll: int
    """The first poll that gave it as ended."""
    monotonic_ns: int
    """ns; of a run that was over before the first poll, as far back as its own times say."""


class TagReader:
    """Reads all boards that this user can see, under the directories of `where`.

    `proc` is the root of procfs; `clock` gives the time. Without `past`, runs that are no longer shown when they are
    first seen are left out; a ledger wants them once. Nothing that lies in a board directory makes it raise, wait, or
    grow without bound.
    """

    def __init__(self, where: Places, proc: str = "/proc", clock: Clock | None = None, *, past: bool = True) -> None:
        self._where = where
        self._past = past
        self._proc = proc
        self._clock = clock or SystemClock()
        self._boards: dict[Place, Watched] = {}
        self._forgotten: dict[Place, tuple[int, int]] = {}
        self._refused = Refusals()
        self._listings: dict[str, Listing] = {}
        self._unchanged = Unchanged()
        self._scanned: set[str] = set()
        """Directories that were looked into."""
        self._polls = 0
        self._ended: dict[Place, _End] = {}
        self._news_since: dict[int, int] = {}
        """End of the last run that is still news (monotonic ns), of users who had more than enough that ended."""
        self._owners = BudgetOwners()
        self._budgets: dict[int, Budget] = {}
        """By user."""
        self._users: dict[int, str] = {}
        self._ids = RunIds()
        self._runs: dict[str, tuple[Run, Watched]] = {}
        self._namespaces = _namespace(proc, "time"), _namespace(proc, "pid")

    def poll(self) -> Poll:
        """Look at every board once."""
        times = self._now()
        self._polls += 1
        for budget in self._budgets.values():
            budget.refill(times.monotonic_ns)
        unread = sum(self._scan(directory, times) for directory in tag_dirs(self._where))
        self._runs = {}
        if not self._boards:  # no training publishes one
            return Poll([], [], {}, unread=unread)
        self._news_since = self._newest_ends()
        boundaries: list[Boundary] = []
        withdrawn: list[str] = []
        left = Counter(self._owners.of(board.uid) for board in self._boards.values())
        for place, board in list(self._boards.items()):
            try:
                run, fresh = self._read(board, left)
            except (BoardError, OSError):
                self._drop(place, board)
                self._refused.add(place, times.monotonic_ns)
                continue
            if board.withdrawn:
                withdrawn.append(board.name)
                self._forget(place, board, self._end(place, board, times))
                continue
            is_over = bool(board.ended) and self._is_over(place, board, run.state, times)
            if is_over and not self._past:
                self._forget(place, board, self._end(place, board, times))
                continue
            boundaries += fresh
            if board.name not in self._runs:  # one user has the same name in two directories
                user = self._user(board.claim.uid)
                board.claim = board.claim._replace(user=user)
                self._runs[board.name] = (run._replace(user=user), board)
            if is_over:
                # Shown long enough; a run that ended before the first poll is shown once.
                self._forget(place, board, self._end(place, board, times))
        named = [
            Named(
                run.id, board.uid, run.pid, key, run.rank, run.world_size, run.started,
                is_over=run.state is not RunState.RUNNING,
            )
            for key, (run, board) in self._runs.items()
        ]  # fmt: skip
        ids = self._ids.of(named, lambda pid: start_time(pid, self._proc))
        for (key, (run, board)), id in zip(list(self._runs.items()), ids, strict=True):
            if id != run.id:
                self._runs[key] = run._replace(id=id), board
        return Poll(
            runs=[run for run, _ in self._runs.values()],
            boundaries=boundaries,
            claims={key: board.claim for key, (_, board) in self._runs.items()},
            withdrawn=withdrawn,
            memory={key: board.memory for key, (_, board) in self._runs.items()},
            about={key: board.about for key, (_, board) in self._runs.items() if board.about is not NO_METADATA},
            unread=unread,
        )

    def _read(self, board: Watched, left: Counter[int]) -> tuple[Run, list[Boundary]]:
        """Read a board as far as its user's budget goes, of which `left` boards have an equal share."""
        owner = self._owners.of(board.uid)
        budget, bytes_before = self._budgets[owner], board.text_bytes
        backlog, board.backlog = board.backlog, 0  # counted when it was opened; more may have come since
        most = backlog + max(1, budget.events // left[owner])
        left[owner] -= 1
        run, fresh = board.poll(self._now, most, texts=budget.bytes > 0, particulars=budget.bytes > FOR_DESCRIPTIONS)
        budget.events -= max(0, len(fresh) - backlog)
        budget.bytes -= board.text_bytes - bytes_before
        return run, fresh

    def at(self, monotonic_ns: int) -> list[Run]:
        """The runs of the last poll with epoch, phase and state as they were at `monotonic_ns` (ns)."""
        runs = (board.at(run, monotonic_ns) for run, board in self._runs.values())
        return [run for run in runs if run is not None]

    def close(self) -> None:
        """Let go of all boards."""
        for place, board in list(self._boards.items()):
            self._drop(place, board)
        while self._listings:
            self._listings.popitem()[1].close()

    def _now(self) -> Times:
        return Times(self._clock.monotonic(), self._clock.time(), *self._namespaces)

    def _end(self, place: Place, board: Watched, times: Times) -> _End:
        if place not in self._ended:
            ago = max(0, times.time_ns - board.ended)
            self._ended[place] = _End(self._polls, times.monotonic_ns - ago)
        return self._ended[place]

    def _is_over(self, place: Place, board: Watched, state: RunState, times: Times) -> bool:
        """Whether a run that has ended did so too long ago to be shown."""
        end = self._end(place, board, times).monotonic_ns
        ago = times.monotonic_ns - end
        if ago <= SHOWN_AFTER_END or state not in ENDED_BADLY:
            return ago > SHOWN_AFTER_END
        return ago > NEWS_AFTER_END or end < self._news_since.get(self._owners.of(board.uid), end)

    def _newest_ends(self) -> dict[int, int]:
        """Return the end of the last of each user's newest `_NEWS_PER_USER` runs, of users with so many that ended."""
        ends: dict[int, list[int]] = {}
        for place, end in self._ended.items():
            ends.setdefault(self._owners.of(self._boards[place].uid), []).append(end.monotonic_ns)
        return {uid: sorted(found)[-_NEWS_PER_USER] for uid, found in ends.items() if len(found) >= _NEWS_PER_USER}

    def _forget(self, place: Place, board: Watched, end: _End) -> None:
        """Let go of a board that was read to its end."""
        self._forgotten[place] = (board.inode, end.monotonic_ns)
        self._drop(place, board)

    def _scan(self, directory: str, times: Times) -> int:
        """Open the boards that are new; gives how many had to be left alone."""
        if directory not in self._listings and self._unchanged(directory, times.monotonic_ns):
            return 0
        try:
            listing = self._listings.pop(directory, None) or Listing(directory)
        except OSError:
            return 0  # gone meanwhile, or another user's
        self._scanned.add(directory)
        opened: Counter[int] = Counter()  # by true owner: no user uses up the room of another
        refused: Counter[int] = Counter()
        boards = Counter(self._owners.of(board.uid) for board in self._boards.values())
        unread = 0
        for entry in listing.portion():
            place = (directory, entry.name)
            if (board := self._boards.get(place)) is not None:
                if entry.inode() != board.inode:
                    self._continue(listing.fd, place, place)
                continue
            if place in self._forgotten:
                listing.seen.add(entry.name)
                self._unlink_old(listing.fd, place, times)
            elif self._refused.must_wait(place, times.monotonic_ns):
                listing.seen.add(entry.name)
            elif (
                refused[owner := self._owners.of(uid := name_uid(entry.name))] >= _REFUSED_EACH_POLL
            ):  # before the call that asks for the owner
                if place in self._refused:
                    listing.seen.add(entry.name)
                else:
                    unread += 1
            elif is_of_its_user(entry, uid):
                listing.seen.add(entry.name)
                if boards[owner] >= BOARDS_PER_USER:
                    boards[owner] -= self._made_room(owner)
                budget = self._budgets.setdefault(owner, Budget(times.monotonic_ns))
                if opened[owner] >= _NEW_EACH_POLL or boards[owner] >= BOARDS_PER_USER or budget.is_spent:
                    unread += place not in self._refused
                    continue
                opened[owner] += 1
                if (lost := self._lost_board(place)) is not None:
                    self._continue(listing.fd, lost, place)
                    continue
                is_board = self._open(listing.fd, place, times)
                boards[owner] += is_board
                refused[owner] += not is_board
        if listing.is_done:
            self._forget_vanished(directory, listing.seen)
            if not listing.seen and not unread:  # each file is an open board, or none
                self._unchanged.settle(directory, times.monotonic_ns)
            listing.close()
        else:
            self._listings[directory] = listing
        return unread

    def _open(self, directory: int, place: Place, times: Times) -> bool:
        try:
            board = self._boards[place] = Watched(directory, place[1], self._proc)
        except (BoardError, OSError):
            self._refused.add(place, times.monotonic_ns)
            return False
        self._refused.forget(place)
        self._budgets[self._owners.of(board.uid)].events -= board.backlog
        return True

    def _lost_board(self, place: Place) -> Place | None:
        """The place of a removed board of the same name: its process may have made the one at `place` for it."""
        for directory in self._scanned:
            board = self._boards.get((directory, place[1]))
            if board is not None and board.is_removed():
                return directory, place[1]
        return None

    def _continue(self, directory: int, lost: Place, place: Place) -> None:
        """Follow the board at `lost`, which is gone, in the one at `place`."""
        board = self._boards[lost]
        with suppress(BoardError, OSError):  # a file in the making, or of somebody else
            other = Watched(directory, place[1], self._proc)
            try:
                board.continue_in(other)
                self._boards[place] = self._boards.pop(lost)
                self._unchanged.forget(lost[0])
                if lost in self._ended:
                    self._ended[place] = self._ended.pop(lost)
            finally:
                other.close()

    def _made_room(self, owner: int) -> bool:
        """Let the board of `owner` give way whose run ended first; false while all of them are needed."""
        told = self._polls - _GIVES_WAY_AFTER
        over = [
            (end.monotonic_ns, place)
            for place, end in self._ended.items()
            if end.poll <= told and self._owners.of(self._boards[place].uid) == owner
        ]
        if not over:
            return False
        _, place = min(over)
        self._forget(place, self._boards[place], self._ended[place])
        return True

    def _forget_vanished(self, directory: str, names: set[str]) -> None:
        self._refused.keep(directory, names)
        for place in [place for place in self._forgotten if place[0] == directory and place[1] not in names]:
            del self._forgotten[place]

    def _unlink_old(self, directory: int, place: Place, times: Times) -> None:
        inode, ended = self._forgotten[place]
        if times.monotonic_ns - ended <= KEEP:
            return
        with suppress(OSError):  # gone meanwhile, or in a directory that is not ours to write
            found = os.stat(place[1], dir_fd=directory, follow_symlinks=False)
            if found.st_ino != inode:
                del self._forgotten[place]  # another file has come to this name
            elif os.getuid() in (os.fstat(directory).st_uid, found.st_uid) and stat.S_ISREG(found.st_mode):
                os.unlink(place[1], dir_fd=directory)

    def _drop(self, place: Place, board: Watched) -> None:
        del self._boards[place]
        self._unchanged.forget(place[0])
        self._ended.pop(place, None)
        board.close()

    def _user(self, uid: int) -> str:
        if uid not in self._users:
            try:
                self._users[uid] = pwd.getpwuid(uid).pw_name
            except KeyError:
                self._users[uid] = str(uid)
        return self._users[uid]


def _namespace(proc: str, kind: str) -> int:
    try:
        return os.stat(f"{proc}/self/ns/{kind}").st_ino
    except OSError:
        return 0
