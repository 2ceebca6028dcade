"""Reads all boards for the daemon. The daemon learns from them which trainings are running and when epochs begin and
end.

`TagReader.poll` is called once per tick. For a board without new data, this takes one lock query and one read. After
the poll, `at` returns the runs with their epochs at the time of a sample.
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
from gpumon.model.run import NEWS_FOR, NO_METADATA, SHOWN_FOR, Metadata
from gpumon.tracking.board_directory import (
    FOR_DESCRIPTIONS,
    BoardPath,
    Budget,
    BudgetOwners,
    DirectoryScan,
    RetryBackoff,
    UnchangedDirectories,
    is_of_its_user,
    name_uid,
)
from gpumon.tracking.board_reader import BoardReader, ClockReading
from gpumon.tracking.matching import Claim, RunIdentity, RunIds
from gpumon.tracking.stale_boards import KEEP
from gpumon.tracking.stalls import LIMITS, StallLimits
from gpumon.tracking.wire_format import Memory

SHOWN_AFTER_END = round(SHOWN_FOR * SECOND)
"""ns for which a run stays in the list after its end."""
NEWS_AFTER_END = round(NEWS_FOR * SECOND)
"""ns for which a run that failed or died stays in the list, so that users who return later still see it."""
_NEWS_PER_USER = 16
"""Maximum number of failed runs per user that stay in the list for the longer time. A script that keeps failing must
not fill the frames."""
BOARDS_PER_USER = 256
"""Maximum number of boards to read per user. If there are more, boards of ended runs are closed for new ones."""
_EVICT_AFTER = 2
"""Number of polls that report a run as ended before its board may be closed. By then, the sampler has the last events
of the run."""
_NEW_PER_POLL = 256
"""Maximum number of boards of one user to open in one poll."""
_INVALID_PER_POLL = 32
"""Maximum number of invalid files of one user to open in one poll. After that, the user's other files wait for the next
poll.
"""


class Poll(NamedTuple):
    """The content of all boards at one time."""

    runs: list[Run]
    """Running runs, and recently ended ones."""
    boundaries: list[Boundary]
    """Boundaries that are new since the last poll. The boundaries of each run are in chronological order."""
    claims: Mapping[str, Claim]
    """Claims for `matching.match_devices`, by key of the run."""
    withdrawn: Sequence[str] = ()
    """Keys of runs that were withdrawn since the last poll. `runs` does not contain them."""
    memory: Mapping[str, Sequence[Memory]] = {}
    """Framework memory of each device, by key of the run."""
    about: Mapping[str, Metadata] = {}
    """Metadata of runs, by key."""
    unread: int = 0
    """Number of boards that were not read because their users have too many."""


class _End(NamedTuple):
    """The end of a run, by the monotonic clock."""

    poll: int
    """Number of the first poll that reported that the run had ended."""
    monotonic_ns: int
    """Time of the end in ns. For a run that ended before the first poll, it is computed from the times in its board."""


class TagReader:
    """Reads all boards that this user can see, under the directories of `places`.

    `proc` is the root of procfs. `limits`: when a run counts as stalled. With `past`, a run that ended long ago is
    returned once, by the poll that finds it, so that a ledger can record it. Otherwise such runs are skipped. Whatever
    a board directory contains, this class never raises an exception, never waits, and does not grow without bound.
    """

    def __init__(
        self,
        places: Places,
        proc: str = "/proc",
        clock: Clock | None = None,
        *,
        past: bool = True,
        limits: StallLimits = LIMITS,
    ) -> None:
        self._places = places
        self._limits = limits
        self._past = past
        self._proc = proc
        self._clock = clock or SystemClock()
        self._boards: dict[BoardPath, BoardReader] = {}
        self._forgotten: dict[BoardPath, tuple[int, int]] = {}
        """Boards that were read completely and closed. For each, the file's inode and the end of the run (ns,
        CLOCK_MONOTONIC).
        """
        self._invalid = RetryBackoff()
        self._scans: dict[str, DirectoryScan] = {}
        """Unfinished scans of directories, by directory."""
        self._unchanged = UnchangedDirectories()
        self._scanned: set[str] = set()
        """All directories that have been scanned."""
        self._polls = 0
        self._ended: dict[BoardPath, _End] = {}
        self._failed: set[tuple[int, str]] = set()
        """User and id of each run that had a failed rank in the last poll."""
        self._news_since: dict[int, int] = {}
        """A time (monotonic ns) for each user with at least `_NEWS_PER_USER` ended runs. Failed runs that ended before
        this time are no longer in the list."""
        self._owners = BudgetOwners()
        self._budgets: dict[int, Budget] = {}
        """Budget of each user, by user id."""
        self._users: dict[int, str] = {}
        self._ids = RunIds()
        self._runs: dict[str, tuple[Run, BoardReader]] = {}
        self._namespaces = _namespace(proc, "time"), _namespace(proc, "pid")

    def poll(self) -> Poll:
        """Read every board once."""
        clock = self._now()
        self._polls += 1
        for budget in self._budgets.values():
            budget.refill(clock.monotonic_ns)
        unread = sum(self._scan(directory, clock) for directory in tag_dirs(self._places))
        self._runs = {}
        failed, self._failed = self._failed, set()
        if not self._boards:
            return Poll([], [], {}, unread=unread)
        self._news_since = self._oldest_news()
        boundaries: list[Boundary] = []
        withdrawn: list[str] = []
        remaining = Counter(self._owners.of(board.uid) for board in self._boards.values())
        for path, board in list(self._boards.items()):
            try:
                run, new = self._read(board, remaining)
            except (BoardError, OSError):
                self._drop(path, board)
                self._invalid.add(path, clock.monotonic_ns)
                continue
            if board.withdrawn:
                withdrawn.append(board.name)
                self._forget(path, board, self._end(path, board, clock))
                continue
            ended_badly = run.state in ENDED_BADLY
            # The other ranks are shown as long as the failed ones, because a run is shown with all its ranks.
            is_news = ended_badly or (board.uid, run.id) in failed
            is_past = bool(board.ended) and self._is_past(path, board, is_news, clock)
            if ended_badly and not is_past:
                self._failed.add((board.uid, run.id))
            if is_past and not self._past:
                self._forget(path, board, self._end(path, board, clock))
                continue
            boundaries += new
            if board.name not in self._runs:  # a user may have boards with the same name in two directories
                user = self._user(board.claim.uid)
                board.claim = board.claim._replace(user=user)
                self._runs[board.name] = (run._replace(user=user), board)
            if is_past:
                # The run has been shown long enough. If it ended before the first poll, it is shown once.
                self._forget(path, board, self._end(path, board, clock))
        self._resolve_ids()
        return Poll(
            runs=[run for run, _ in self._runs.values()],
            boundaries=boundaries,
            claims={key: board.claim for key, (_, board) in self._runs.items()},
            withdrawn=withdrawn,
            memory={key: board.memory for key, (_, board) in self._runs.items()},
            about={key: board.about for key, (_, board) in self._runs.items() if board.about is not NO_METADATA},
            unread=unread,
        )

    def _resolve_ids(self) -> None:
        """Make the ids of the runs unique."""
        identities = [
            RunIdentity(
                run.id, board.uid, run.pid, key, run.rank, run.world_size, run.started,
                is_over=run.state is not RunState.RUNNING,
            )
            for key, (run, board) in self._runs.items()
        ]  # fmt: skip
        ids = self._ids.resolve(identities, lambda pid: start_time(pid, self._proc))
        for (key, (run, board)), id in zip(list(self._runs.items()), ids, strict=True):
            if id != run.id:
                self._runs[key] = run._replace(id=id), board

    def _read(self, board: BoardReader, remaining: Counter[int]) -> tuple[Run, list[Boundary]]:
        """Read a board within its user's budget, which is divided equally among the boards still to be read.

        `remaining`: for each user, the number of boards still to be read.
        """
        owner = self._owners.of(board.uid)
        budget, bytes_before = self._budgets[owner], board.text_bytes
        backlog, board.backlog = board.backlog, 0  # subtracted when the board was opened; there may be more events now
        max_events = backlog + max(1, budget.events // remaining[owner])
        remaining[owner] -= 1
        run, new = board.poll(self._now, max_events, texts=budget.bytes > 0, metadata=budget.bytes > FOR_DESCRIPTIONS)
        budget.events -= max(0, len(new) - backlog)
        budget.bytes -= board.text_bytes - bytes_before
        return run, new

    def at(self, monotonic_ns: int) -> list[Run]:
        """Return the runs of the last poll with epoch, phase and state at `monotonic_ns` (ns, CLOCK_MONOTONIC)."""
        runs = (board.at(run, monotonic_ns) for run, board in self._runs.values())
        return [run for run in runs if run is not None]

    def close(self) -> None:
        """Close all boards."""
        for path, board in list(self._boards.items()):
            self._drop(path, board)
        while self._scans:
            self._scans.popitem()[1].close()

    def _now(self) -> ClockReading:
        return ClockReading(self._clock.monotonic(), self._clock.time(), *self._namespaces)

    def _end(self, path: BoardPath, board: BoardReader, clock: ClockReading) -> _End:
        if path not in self._ended:
            ago = max(0, clock.time_ns - board.ended)
            self._ended[path] = _End(self._polls, clock.monotonic_ns - ago)
        return self._ended[path]

    def _is_past(self, path: BoardPath, board: BoardReader, is_news: bool, clock: ClockReading) -> bool:
        """Whether a run ended so long ago that it is no longer shown. `is_news`: whether a rank of the run failed."""
        end = self._end(path, board, clock).monotonic_ns
        ago = clock.monotonic_ns - end
        if ago <= SHOWN_AFTER_END or not is_news:
            return ago > SHOWN_AFTER_END
        return ago > NEWS_AFTER_END or end < self._news_since.get(self._owners.of(board.uid), end)

    def _oldest_news(self) -> dict[int, int]:
        """Return the times for `_news_since`: for each user, the end of the `_NEWS_PER_USER`-th newest ended run."""
        ends: dict[int, list[int]] = {}
        for path, end in self._ended.items():
            ends.setdefault(self._owners.of(self._boards[path].uid), []).append(end.monotonic_ns)
        return {uid: sorted(times)[-_NEWS_PER_USER] for uid, times in ends.items() if len(times) >= _NEWS_PER_USER}

    def _forget(self, path: BoardPath, board: BoardReader, end: _End) -> None:
        """Close a board that was read completely."""
        self._forgotten[path] = (board.inode, end.monotonic_ns)
        self._drop(path, board)

    def _scan(self, directory: str, clock: ClockReading) -> int:
        """Open new boards. Return the number of boards that could not be opened in this poll."""
        if directory not in self._scans and self._unchanged.is_unchanged(directory, clock.monotonic_ns):
            return 0
        try:
            scan = self._scans.pop(directory, None) or DirectoryScan(directory)
        except OSError:
            return 0  # the directory no longer exists, or is not readable
        self._scanned.add(directory)
        opened: Counter[int] = Counter()  # counted by user, so that no user can use up the limit of another
        invalid: Counter[int] = Counter()
        boards = Counter(self._owners.of(board.uid) for board in self._boards.values())
        unread = 0
        for entry in scan.next_files():
            path = (directory, entry.name)
            if (board := self._boards.get(path)) is not None:
                if entry.inode() != board.inode:
                    self._continue(scan.fd, path, path)
                continue
            uid = name_uid(entry.name)
            owner = self._owners.of(uid)
            if path in self._forgotten:
                scan.seen.add(entry.name)
                self._unlink_old(scan.fd, path, clock)
            elif self._invalid.must_wait(path, clock.monotonic_ns):
                scan.seen.add(entry.name)
            elif invalid[owner] >= _INVALID_PER_POLL:  # checked before the system call that determines the file's owner
                if path in self._invalid:
                    scan.seen.add(entry.name)
                else:
                    unread += 1
            elif is_of_its_user(entry, uid):
                scan.seen.add(entry.name)
                if boards[owner] >= BOARDS_PER_USER:
                    boards[owner] -= self._make_room(owner)
                budget = self._budgets.setdefault(owner, Budget(clock.monotonic_ns))
                if opened[owner] >= _NEW_PER_POLL or boards[owner] >= BOARDS_PER_USER or budget.is_spent:
                    unread += path not in self._invalid
                    continue
                opened[owner] += 1
                if (removed := self._removed_board(path)) is not None:
                    self._continue(scan.fd, removed, path)
                    continue
                is_board = self._open(scan.fd, path, clock)
                boards[owner] += is_board
                invalid[owner] += not is_board
        if scan.is_done:
            self._forget_vanished(directory, scan.seen)
            if not scan.seen and not unread:  # every file is either an open board or no board at all
                self._unchanged.settle(directory, clock.monotonic_ns)
            scan.close()
        else:
            self._scans[directory] = scan
        return unread

    def _open(self, directory: int, path: BoardPath, clock: ClockReading) -> bool:
        try:
            board = self._boards[path] = BoardReader(directory, path[1], self._proc, self._limits)
        except (BoardError, OSError):
            self._invalid.add(path, clock.monotonic_ns)
            return False
        self._invalid.forget(path)
        self._budgets[self._owners.of(board.uid)].events -= board.backlog
        return True

    def _removed_board(self, path: BoardPath) -> BoardPath | None:
        """Return the path of a removed board with the same name as `path`; None if there is none.

        The process of the removed board may have created `path` to replace it.
        """
        for directory in self._scanned:
            board = self._boards.get((directory, path[1]))
            if board is not None and board.is_removed():
                return directory, path[1]
        return None

    def _continue(self, directory: int, removed: BoardPath, path: BoardPath) -> None:
        """Continue reading the board `removed` in its replacement `path`."""
        board = self._boards[removed]
        with suppress(BoardError, OSError):  # the file is incomplete, or belongs to another user
            other = BoardReader(directory, path[1], self._proc)
            try:
                board.continue_in(other)
                self._boards[path] = self._boards.pop(removed)
                self._unchanged.forget(removed[0])
                if removed in self._ended:
                    self._ended[path] = self._ended.pop(removed)
            finally:
                other.close()

    def _make_room(self, owner: int) -> bool:
        """Close the board of the user `owner` whose run ended first. Return False if no run of this user has ended."""
        last_poll = self._polls - _EVICT_AFTER
        ended = [
            (end.monotonic_ns, path)
            for path, end in self._ended.items()
            if end.poll <= last_poll and self._owners.of(self._boards[path].uid) == owner
        ]
        if not ended:
            return False
        _, path = min(ended)
        self._forget(path, self._boards[path], self._ended[path])
        return True

    def _forget_vanished(self, directory: str, names: set[str]) -> None:
        self._invalid.keep(directory, names)
        for path in [path for path in self._forgotten if path[0] == directory and path[1] not in names]:
            del self._forgotten[path]

    def _unlink_old(self, directory: int, path: BoardPath, clock: ClockReading) -> None:
        inode, ended = self._forgotten[path]
        if clock.monotonic_ns - ended <= KEEP:
            return
        with suppress(OSError):  # the file no longer exists, or the directory is not writable
            status = os.stat(path[1], dir_fd=directory, follow_symlinks=False)
            if status.st_ino != inode:
                del self._forgotten[path]  # another file now has this name
            elif os.getuid() in (os.fstat(directory).st_uid, status.st_uid) and stat.S_ISREG(status.st_mode):
                os.unlink(path[1], dir_fd=directory)

    def _drop(self, path: BoardPath, board: BoardReader) -> None:
        del self._boards[path]
        self._unchanged.forget(path[0])
        self._ended.pop(path, None)
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
