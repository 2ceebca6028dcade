"""The follower that keeps history: it takes the values of each tick, and its own thread does everything else.

Nothing here ever stops a daemon or delays a tick: where the file cannot be written it is said once, blocks wait in
memory as far as there is room, and are tried again later.
"""

from __future__ import annotations

import os
import sqlite3
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from threading import Condition, Thread
from typing import Protocol

from gpumon.common.clock import SECOND
from gpumon.common.paths import Places, history_path
from gpumon.common.procfs import boot_id
from gpumon.model.frame import Tick
from gpumon.storage.history.aggregator import Block, Collector, TickValues, values_of
from gpumon.storage.history.recovery import EarlierFrames, collect_earlier, recover
from gpumon.storage.history.schema import HISTORY_FILE
from gpumon.storage.history.tiers import HOUR, USUAL_LIMITS, HistoryLimits, prune_large, prune_old
from gpumon.storage.history.write import SealedBlock, Taken, seal, taken_until, write
from gpumon.storage.sqlite.state_file import StateFile


class HistoryPlugin(Protocol):
    """Takes ticks in the thread that samples, so it only adds up; all else happens in history's own thread."""

    def add(self, tick: Tick) -> None:
        """Take a tick; they come in order."""

    def on_open(self, connection: sqlite3.Connection) -> None:
        """Close what an earlier daemon left open in a file that was just opened. Raises sqlite3.Error."""

    def write(self, connection: sqlite3.Connection) -> None:
        """Write what has come since the last time: all of it or, when sqlite3.Error is raised, none."""

    def finish(self) -> None:
        """Note that no tick comes any more; `write` comes once again."""


BATCH = 64
"""Ticks that wait for the thread: waking it for each would cost more than its work, and it takes many at once."""
_PATIENCE = 60 * SECOND
"""ns after which it is woken for fewer: with the tick behind them the parts are due, too."""
_MOST_TICKS = 600
"""Ticks that wait at most, while a disk does not answer."""
_MOST_BYTES = 8 * 2**20
"""Of blocks that wait while the file cannot be written: 8 GPUs fill them in half a day."""
_STEADY = HOUR * SECOND
"""ns without a jump of the clock before anything old is removed by it, and between two such removals."""
_JUMP = 60 * SECOND
"""ns by which a clock is set that is no longer steady."""
_PARTS_EVERY = 60 * SECOND
"""ns between two writes of the parts: a daemon that is killed loses no more of them."""
_REST = 0.015
"""Seconds in which nothing is done between ticks of an earlier daemon, so that those of now are not held up."""
_LAST = 4.0
"""Seconds for the last blocks when the daemon ends."""


def start_history(
    where: Places, say: Callable[[str], object], limits: HistoryLimits, directory: str, earlier: EarlierFrames,
    parts: Sequence[HistoryPlugin] = (),
) -> HistoryRecorder:  # fmt: skip
    """Return a follower that keeps history for a daemon of this user, at work already.

    `directory` has its ring; `earlier` gives what that has of a daemon that was killed.
    """
    path = history_path(where)
    shared = where.uid == 0 and os.path.dirname(path) == where.system_state
    return HistoryRecorder(
        path, where.uid, say, shared=shared, limits=limits, directory=directory, earlier=earlier, parts=parts
    ).start()


class HistoryRecorder:
    """Keeps history in the file at `path`. `shared`: others may read it. `say` gets a line about what goes wrong."""

    name = "history"
    writes = "history"

    def __init__(
        self, path: str, uid: int, say: Callable[[str], object], *, shared: bool = False,
        limits: HistoryLimits = USUAL_LIMITS, directory: str = "", earlier: EarlierFrames = lambda _: iter(()),
        parts: Sequence[HistoryPlugin] = (),
    ) -> None:  # fmt: skip
        self._file = StateFile(path, HISTORY_FILE, uid, say, shared=shared, on_open=self._recover)
        self._say = say
        self._limits = limits
        self._taken = Taken(_text_of(directory), boot_id().hex(), 0)
        self._earlier: EarlierFrames | None = earlier
        self._first: TickValues | None = None
        self._ticks: deque[Tick] = deque(maxlen=_MOST_TICKS)
        self._changed = Condition()
        self._stopping = False
        self._collector = Collector(self._take)
        self._blocks: deque[SealedBlock] = deque()
        self._bytes = 0
        self._lost = 0
        self._parts = tuple(parts)
        self._parts_at = -_PARTS_EVERY
        self._offset_ns = self._steady_ns = self._pruned_ns = 0
        self._newest: TickValues | None = None
        self._thread = Thread(target=self._run, name="gpumon-history", daemon=True)

    @property
    def problem(self) -> str:
        """Why nothing is written just now, for people; empty while all is well."""
        return self._file.problem

    def start(self) -> HistoryRecorder:
        """Begin to take ticks."""
        self._thread.start()
        return self

    def add(self, tick: Tick) -> None:
        """Take a tick; they come in order."""
        if self._file.is_refused:
            return
        for part in self._parts:
            part.add(tick)
        with self._changed:
            self._ticks.append(tick)
            if self._is_due():
                self._changed.notify()

    def close(self, timeout: float = _LAST) -> None:
        """Write what is open; `timeout`: seconds, at most."""
        with self._changed:
            self._stopping = self._file.is_stopping = True
            self._changed.notify()
        self._thread.join(timeout)
        if not self._file.is_refused and (self._thread.is_alive() or self._blocks):
            self._say(f"cannot write the last history to {self._file.path}")

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._stopping and not self._is_due():
                    self._changed.wait()
                taken, stopping = list(self._ticks), self._stopping
                self._ticks.clear()
            ticks = list(map(values_of, taken))
            if ticks and self._first is None:
                self._first = ticks[0]
            begins = self._first is not None and self._earlier is not None and self._twice(self._collect_earlier)
            self._collector.add_all(ticks)
            for values in ticks:
                self._see_clock(values)
            if stopping:
                self._collector.finish()
                for part in self._parts:
                    part.finish()
            self._twice(partial(self._write_due, begins, stopping))
            if stopping or self._file.is_refused:
                self._file.close()
                return

    def _twice(self, work: Callable[[], object]) -> bool:
        """Whether something that uses the file was done; where it was damaged, with a new one."""
        for _ in range(2):
            try:
                work()
            except Exception as error:  # a damaged file may give anything, and this thread must outlive it
                if not self._file.handle_error(error):
                    return False
            else:
                return True
        return False

    def _write_due(self, begins: bool, stopping: bool) -> None:
        if begins or (self._blocks and self._earlier is None):
            self._write()
        if stopping or self._are_parts_due():
            self._write_parts()

    def _see_clock(self, values: TickValues) -> None:
        """Note when the wall clock was set: by one that is wrong, everything is too old."""
        offset = values.time_ns - values.monotonic_ns
        if self._newest is None or abs(offset - self._offset_ns) > _JUMP:
            self._offset_ns, self._steady_ns = offset, values.monotonic_ns
        self._newest = values

    def _is_due(self) -> bool:
        """Whether there is work: with the first tick at once, so that even a daemon that is killed soon has begun."""
        ticks = self._ticks
        if self._first is None and ticks:
            return True
        return len(ticks) >= BATCH or (len(ticks) > 0 and ticks[-1].monotonic_ns - ticks[0].monotonic_ns >= _PATIENCE)

    def _take(self, block: Block) -> None:
        sealed = seal(block)
        self._blocks.append(sealed)
        self._bytes += len(sealed.data)
        while self._bytes > _MOST_BYTES:
            self._bytes -= len(self._blocks.popleft().data)
            self._lost += 1

    def _collect_earlier(self) -> None:
        """Take, once, what the ring has from before this daemon and the file has not."""
        first = self._first
        assert self._earlier is not None
        assert first is not None
        since_ns = taken_until(self._file.connect(), self._taken.directory, self._taken.boot)
        collect_earlier(self._earlier(since_ns), since_ns, first.monotonic_ns, self._take, self._rest)
        self._earlier = None

    def _rest(self) -> None:
        with self._changed:
            if not self._stopping:
                self._changed.wait(_REST)

    def _write(self) -> None:
        connection = self._file.connect()
        write(connection, self._blocks, self._taken.boot, self._taken._replace(until_ns=self._collector.done_ns))
        self._blocks.clear()
        self._bytes = 0
        newest = self._newest
        if newest and newest.monotonic_ns - max(self._steady_ns, self._pruned_ns) >= _STEADY:
            prune_old(connection, newest.time_ns / SECOND, self._limits)
            self._pruned_ns = newest.monotonic_ns
        prune_large(connection, self._limits)
        self._file.clear_problem()
        if self._lost:
            self._say(
                f"{self._file.path}: {self._lost} blocks of history were lost: memory was full while writing failed"
            )
            self._lost = 0

    def _are_parts_due(self) -> bool:
        return self._newest is not None and self._newest.monotonic_ns - self._parts_at >= _PARTS_EVERY

    def _write_parts(self) -> None:
        """Write the parts; the first time soon after the first tick."""
        if self._newest is None or not self._parts:
            return
        self._parts_at = self._newest.monotonic_ns
        connection = self._file.connect()
        for part in self._parts:
            part.write(connection)
        self._file.clear_problem()

    def _recover(self, connection: sqlite3.Connection) -> None:
        recover(connection, self._taken.boot)
        for part in self._parts:
            part.on_open(connection)


def _text_of(path: str) -> str:
    """A path as a text that a database takes: names of files may be of any bytes."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
