"""The follower that keeps history: it takes the values of each tick, and its own thread does everything else.

Nothing here ever stops a daemon or delays a tick: where the file cannot be written it is said once, blocks wait in
memory as far as there is room, and are tried again later.
"""

from __future__ import annotations

import os
import sqlite3
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from threading import Condition, Thread

from gpumon.clock import SECOND
from gpumon.database.damage import is_damage, move_aside
from gpumon.database.write import NewerFile, open_to_write
from gpumon.frame import Tick
from gpumon.history.collect import Block, Collector, TickValues, values_of
from gpumon.history.limits import USUAL_LIMITS, HistoryLimits, prune
from gpumon.history.migrations import HISTORY_FILE
from gpumon.history.write import SealedBlock, recover, seal, write
from gpumon.paths import Places, history_path
from gpumon.procfs import boot_id

_BATCH = 16
"""Ticks that wait for the thread: waking it for each would cost more than its work."""
_PATIENCE = 10 * SECOND
"""ns after which it is woken for fewer."""
_MOST_TICKS = 600
"""Ticks that wait at most, while a disk does not answer."""
_MOST_BYTES = 8 * 2**20
"""Of blocks that wait while the file cannot be written: 8 GPUs fill them in half a day."""
_STEADY = 3600 * SECOND
"""ns without a jump of the clock before anything old is removed by it."""
_JUMP = 60 * SECOND
"""ns by which a clock is set that is no longer steady."""
_LAST = 4.0
"""Seconds for the last blocks when the daemon ends."""


def start_history(where: Places, say: Callable[[str], object], limits: HistoryLimits) -> HistoryRecorder:
    """Return a follower that keeps history for a daemon of this user, at work already."""
    path = history_path(where)
    shared = where.uid == 0 and os.path.dirname(path) == where.system_state
    return HistoryRecorder(path, where.uid, say, shared=shared, limits=limits).start()


class HistoryRecorder:
    """Keeps history in the file at `path`. `shared`: others may read it. `say` is told, in a line, what goes wrong."""

    name = "history"
    writes = "history"

    def __init__(
        self, path: str, uid: int, say: Callable[[str], object], *, shared: bool = False,
        limits: HistoryLimits = USUAL_LIMITS,
    ) -> None:  # fmt: skip
        self.path = path
        self.problem = ""
        """Why nothing is written just now, for people; empty while all is well."""
        self._uid = uid
        self._say = say
        self._shared = shared
        self._limits = limits
        self._boot = boot_id().hex()
        self._ticks: deque[TickValues] = deque(maxlen=_MOST_TICKS)
        self._changed = Condition()
        self._stopping = self._refused = False
        self._collector = Collector(self._take)
        self._blocks: deque[SealedBlock] = deque()
        self._bytes = 0
        self._lost = 0
        self._connection: sqlite3.Connection | None = None
        self._inode = 0
        self._offset_ns = self._steady_ns = 0
        self._newest: TickValues | None = None
        self._thread = Thread(target=self._run, name="gpumon-history", daemon=True)

    def start(self) -> HistoryRecorder:
        """Begin to take ticks."""
        self._thread.start()
        return self

    def add(self, tick: Tick) -> None:
        """Take a tick; they come in order."""
        if self._refused:
            return
        values = values_of(tick)
        with self._changed:
            self._ticks.append(values)
            oldest = self._ticks[0]
            if len(self._ticks) >= _BATCH or values.monotonic_ns - oldest.monotonic_ns >= _PATIENCE:
                self._changed.notify()

    def close(self) -> None:
        """Write what is open, within a few seconds."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join(_LAST)
        if not self._refused and (self._thread.is_alive() or self._blocks):
            self._say(f"cannot write the last history to {self.path}")

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._stopping and not self._is_due():
                    self._changed.wait()
                ticks, stopping = list(self._ticks), self._stopping
                self._ticks.clear()
            for values in ticks:
                self._collector.add(values)
                self._see_clock(values)
            if stopping:
                self._collector.finish()
            try:
                if self._blocks:
                    self._write()
            except NewerFile as error:
                self.problem, self._refused = str(error), True
                self._say(f"{error}; this daemon keeps no history")
                return
            except (OSError, sqlite3.Error) as error:
                self._failed(error)
            if stopping:
                self._shut()
                return

    def _see_clock(self, values: TickValues) -> None:
        """Note when the wall clock was set: by one that is wrong, everything is too old."""
        offset = values.time_ns - values.monotonic_ns
        if self._newest is None or abs(offset - self._offset_ns) > _JUMP:
            self._offset_ns, self._steady_ns = offset, values.monotonic_ns
        self._newest = values

    def _is_due(self) -> bool:
        ticks = self._ticks
        return len(ticks) >= _BATCH or (len(ticks) > 0 and ticks[-1].monotonic_ns - ticks[0].monotonic_ns >= _PATIENCE)

    def _take(self, block: Block) -> None:
        sealed = seal(block)
        self._blocks.append(sealed)
        self._bytes += len(sealed.data)
        while self._bytes > _MOST_BYTES:
            self._bytes -= len(self._blocks.popleft().data)
            self._lost += 1

    def _write(self) -> None:
        if self._connection is None or not self._is_there():
            self._shut()
            self._open()
        assert self._connection is not None
        write(self._connection, self._blocks, self._boot)
        self._blocks.clear()
        self._bytes = 0
        if self._newest and self._newest.monotonic_ns - self._steady_ns >= _STEADY:
            prune(self._connection, self._newest.time_ns / SECOND, self._limits)
        if self.problem:
            self.problem = ""
            self._say(f"{self.path} is writable again")
        if self._lost:
            self._say(f"{self.path}: {self._lost} blocks of history were lost: memory was full while writing failed")
            self._lost = 0

    def _open(self) -> None:
        self._connection = open_to_write(self.path, HISTORY_FILE, shared=self._shared, uid=self._uid, log=self._say)
        self._inode = os.stat(self.path).st_ino
        recover(self._connection, self._boot)

    def _is_there(self) -> bool:
        """Whether the open file still has its name: somebody may have removed it."""
        try:
            return os.stat(self.path).st_ino == self._inode
        except OSError:
            return False

    def _shut(self) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        with suppress(sqlite3.Error):
            if self._shared and self._stopping:
                # Who may not write the directory cannot read a file that wants a WAL beside it.
                connection.execute("PRAGMA journal_mode = DELETE").fetchone()
        with suppress(sqlite3.Error):
            connection.close()

    def _failed(self, error: OSError | sqlite3.Error) -> None:
        damaged = isinstance(error, sqlite3.Error) and is_damage(error) and self._connection is not None
        self._shut()
        if damaged:
            with suppress(OSError):
                self._say(f"{self.path} is damaged ({error}): moved to {move_aside(self.path)}")
            return
        if not self.problem:
            self.problem = f"cannot write {self.path} ({error})"
            self._say(f"{self.problem}: history is kept in memory meanwhile")
