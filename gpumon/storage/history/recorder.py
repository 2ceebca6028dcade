"""`HistoryRecorder`: the follower that writes history. It only queues ticks; a separate thread does all other work.

It never stops a daemon or delays a tick. If the file cannot be written, this is logged once, blocks are kept in memory
up to a limit, and writing is retried later.
"""

from __future__ import annotations

import os
import sqlite3
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from threading import Condition, Thread
from typing import Any

from gpumon.common.clock import SECOND
from gpumon.common.paths import Places, history_path
from gpumon.common.procfs import boot_id
from gpumon.model.frame import Tick
from gpumon.storage.follower import HistoryPlugin
from gpumon.storage.history.recovery import EarlierFrames, recover, write_earlier
from gpumon.storage.history.schema import HISTORY_FILE
from gpumon.storage.history.tier_aggregator import Aggregator, Block, TickValues, values_from_tick
from gpumon.storage.history.tiers import HOUR, USUAL_LIMITS, HistoryLimits, prune_large, prune_old
from gpumon.storage.history.write import SealedBlock, WriteProgress, seal, write, written_until
from gpumon.storage.sqlite.state_file import StateFile

BATCH = 64
"""Number of ticks after which the thread is woken. Waking it for each tick would cost more than its work."""
_MAX_WAIT = 60 * SECOND
"""Nanoseconds after which the thread is woken even for fewer ticks. The plugins write after this time, too."""
_MAX_TICKS = 600
"""Maximum number of ticks kept in memory while the disk does not respond."""
_MAX_BYTES = 8 * 2**20
"""Maximum size of the blocks kept in memory while the file cannot be written, enough for half a day of 8 GPUs."""
_STEADY_TIME = HOUR * SECOND
"""Minimum ns after a jump of the clock before old data is removed, and minimum ns between two removals."""
_JUMP = 60 * SECOND
"""If the clock is set by more than this many ns, it counts as a jump."""
_PLUGIN_INTERVAL = 60 * SECOND
"""Nanoseconds between two writes of the plugins if they have no news. This is the most that is lost if a daemon is
killed."""
_NEWS_INTERVAL = SECOND
"""Minimum nanoseconds between two writes of the plugins if one of them has news."""
_REST = 0.015
"""Seconds to pause between batches of ticks of an earlier daemon, so that new ticks are not delayed."""
_CLOSE_TIMEOUT = 4.0
"""Maximum seconds to write the last blocks when the daemon stops."""


def start_history(
    places: Places, log: Callable[[str], object], limits: HistoryLimits, directory: str, earlier: EarlierFrames,
    plugins: Sequence[HistoryPlugin[Any]] = (),
) -> HistoryRecorder:  # fmt: skip
    """Return a started follower that writes history for a daemon of this user.

    `directory`: directory of the ring. `earlier`: returns the frames in the ring, which may be from a daemon that was
    killed.
    """
    path = history_path(places)
    shared = places.uid == 0 and os.path.dirname(path) == places.system_state
    return HistoryRecorder(
        path, places.uid, log, shared=shared, limits=limits, directory=directory, earlier=earlier, plugins=plugins
    ).start()


class HistoryRecorder:
    """Writes history into the file at `path`.

    `uid`: user who owns the file. `log`: called with a line of text for each problem. `shared`: whether other users may
    read the file. `directory`: directory of the ring. `earlier`: returns the frames that an earlier daemon left in the
    ring. `plugins`: objects that write other tables of the file.
    """

    name = "history"
    writes = "history"

    def __init__(
        self, path: str, uid: int, log: Callable[[str], object], *, shared: bool = False,
        limits: HistoryLimits = USUAL_LIMITS, directory: str = "", earlier: EarlierFrames = lambda _: iter(()),
        plugins: Sequence[HistoryPlugin[Any]] = (),
    ) -> None:  # fmt: skip
        self._file = StateFile(path, HISTORY_FILE, uid, log, shared=shared, on_open=self._recover)
        self._log = log
        self._limits = limits
        self._progress = WriteProgress(_path_text(directory), boot_id().hex(), 0)
        self._earlier: EarlierFrames | None = earlier
        self._first: TickValues | None = None
        self._ticks: deque[Tick] = deque(maxlen=_MAX_TICKS)
        self._changed = Condition()
        self._stopping = False
        self._aggregator = Aggregator(self._queue_block)
        self._blocks: deque[SealedBlock] = deque()
        self._bytes = 0
        self._lost = 0
        self._plugins = tuple(plugins)
        self._plugins_at = self._news_at = -_PLUGIN_INTERVAL
        self._offset_ns = self._steady_ns = self._pruned_ns = 0
        self._newest: TickValues | None = None
        self._thread = Thread(target=self._run, name="gpumon-history", daemon=True)

    @property
    def problem(self) -> str:
        """Reason why nothing can be written, as text for users. Empty while writing works."""
        return self._file.problem

    def start(self) -> HistoryRecorder:
        """Start the writing thread."""
        self._thread.start()
        return self

    def add(self, tick: Tick) -> None:
        """Add the next tick."""
        if self._file.is_refused:
            return
        for plugin in self._plugins:
            plugin.add(tick)
        with self._changed:
            self._ticks.append(tick)
            if self._is_due():
                self._changed.notify()

    def close(self, timeout: float = _CLOSE_TIMEOUT) -> None:
        """Write everything that is not written yet, in at most `timeout` seconds."""
        with self._changed:
            self._stopping = self._file.is_stopping = True
            self._changed.notify()
        self._thread.join(timeout)
        if not self._file.is_refused and (self._thread.is_alive() or self._blocks):
            self._log(f"cannot write the last history to {self._file.path}")

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._stopping and not self._is_due():
                    self._changed.wait()
                waiting, stopping = list(self._ticks), self._stopping
                self._ticks.clear()
            ticks = list(map(values_from_tick, waiting))
            if ticks and self._first is None:
                self._first = ticks[0]
            is_first = self._first is not None and self._earlier is not None and self._retry_once(self._queue_earlier)
            for values in ticks:
                self._aggregator.add(values)
                self._check_clock(values)
            if stopping:
                self._aggregator.finish()
                for plugin in self._plugins:
                    plugin.finish()
            self._retry_once(partial(self._write_due, is_first, stopping))
            if stopping or self._file.is_refused:
                self._file.close()
                return

    def _retry_once(self, work: Callable[[], object]) -> bool:
        """Call `work`, which uses the file. If the file is damaged, call it again with a new file.

        Returns whether it succeeded.
        """
        for _ in range(2):
            try:
                work()
            except Exception as error:  # a damaged file can raise anything, and this thread must survive
                if not self._file.handle_error(error):
                    return False
            else:
                return True
        return False

    def _write_due(self, is_first: bool, stopping: bool) -> None:
        if is_first or (self._blocks and self._earlier is None):
            self._write()
        if self._newest is not None and self._plugins:
            now_ns = self._newest.monotonic_ns
            if stopping or now_ns - self._plugins_at >= _PLUGIN_INTERVAL:
                self._plugins_at = self._news_at = now_ns
                self._write_plugins(self._plugins)
            elif self._is_news_due(now_ns):
                self._news_at = now_ns
                self._write_plugins([plugin for plugin in self._plugins if plugin.has_news])

    def _check_clock(self, values: TickValues) -> None:
        """Record jumps of the wall clock, because all data could look too old if the clock is wrong."""
        offset = values.time_ns - values.monotonic_ns
        if self._newest is None or abs(offset - self._offset_ns) > _JUMP:
            self._offset_ns, self._steady_ns = offset, values.monotonic_ns
        self._newest = values

    def _is_due(self) -> bool:
        """Return whether to wake the thread. It is woken at the first tick, so that the file is created soon."""
        ticks = self._ticks
        if self._first is None and ticks:
            return True
        if len(ticks) >= BATCH or (len(ticks) > 0 and ticks[-1].monotonic_ns - ticks[0].monotonic_ns >= _MAX_WAIT):
            return True
        return len(ticks) > 0 and self._is_news_due(ticks[-1].monotonic_ns)

    def _is_news_due(self, now_ns: int) -> bool:
        """Return whether the plugins should write early. While the file cannot be written, they never do."""
        is_early = now_ns - self._news_at >= _NEWS_INTERVAL and not self._file.problem
        return is_early and any(plugin.has_news for plugin in self._plugins)

    def _queue_block(self, block: Block) -> None:
        sealed = seal(block)
        self._blocks.append(sealed)
        self._bytes += len(sealed.data)
        while self._bytes > _MAX_BYTES:
            self._bytes -= len(self._blocks.popleft().data)
            self._lost += 1

    def _queue_earlier(self) -> None:
        """Queue blocks for the frames of an earlier daemon that are in the ring but not in the file. Done only once."""
        first = self._first
        assert self._earlier is not None
        assert first is not None
        since_ns = written_until(self._file.connect(), self._progress.directory, self._progress.boot)
        write_earlier(self._earlier(since_ns), since_ns, first.monotonic_ns, self._queue_block, self._rest)
        self._earlier = None

    def _rest(self) -> None:
        with self._changed:
            if not self._stopping:
                self._changed.wait(_REST)

    def _write(self) -> None:
        connection = self._file.connect()
        progress = self._progress._replace(until_ns=self._aggregator.done_ns)
        write(connection, self._blocks, progress.boot, progress)
        self._blocks.clear()
        self._bytes = 0
        newest = self._newest
        if newest and newest.monotonic_ns - max(self._steady_ns, self._pruned_ns) >= _STEADY_TIME:
            prune_old(connection, newest.time_ns / SECOND, self._limits)
            self._pruned_ns = newest.monotonic_ns
        prune_large(connection, self._limits)
        self._file.clear_problem()
        if self._lost:
            self._log(
                f"{self._file.path}: {self._lost} blocks of history were lost: "
                "writing failed until the memory limit was reached"
            )
            self._lost = 0

    def _write_plugins(self, plugins: Sequence[HistoryPlugin[Any]]) -> None:
        connection = self._file.connect()
        for plugin in plugins:
            plugin.write(connection)
        self._file.clear_problem()

    def _recover(self, connection: sqlite3.Connection) -> None:
        recover(connection, self._progress.boot)
        for plugin in self._plugins:
            plugin.on_open(connection)


def _path_text(path: str) -> str:
    """Return a path as valid Unicode for the database, because file names may be any bytes."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
