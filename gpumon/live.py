"""`Live`: reads the newest frames, for views and scripts.

`Live` continues when the daemon is restarted, and when the ring file is replaced or damaged. In these cases, it raises
no error, and `state` reports the problem.
"""

import os
import time
from collections.abc import Callable, Iterable, Sequence
from math import floor, inf
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from gpumon.common.clock import SECOND
from gpumon.common.errors import RingError, converts_os_errors
from gpumon.common.numbers import NAN, is_known
from gpumon.common.paths import (
    Places,
    dir_option,
    history_paths,
    is_missing,
    may_exist,
    open_regular,
    places,
    ring_paths,
    why_unread,
)
from gpumon.model.frame import Boundary, Frame
from gpumon.model.origin import Capability, Driver, Origin
from gpumon.model.process import Process
from gpumon.model.units import clock, duration
from gpumon.ring.layout import RUNNING, Superblock
from gpumon.ring.reader import Heartbeat, RingReader

if TYPE_CHECKING:
    from gpumon.recording.playback import Playback
    from gpumon.ring.directory import StoredDirectory
    from gpumon.ring.sums import Sums
    from gpumon.storage.history.buckets import Moment
    from gpumon.storage.history.devices import Wanted
    from gpumon.storage.history.window_totals import WindowTotals
    from gpumon.storage.processes.query import ProcessWindow
    from gpumon.storage.processes.reader import StoredProcess
    from gpumon.storage.processes.usage_series import ProcessLines
    from gpumon.window import Window

NO_DAEMON = "no daemon is running"
ENDED = "the recording has ended"
WAITING = "waiting for the first sample"
CATCHING_UP = "not live yet: the simulation generates its last 10 minutes"
_STALE_AFTER = 2.0
"""Frames count as stale after this many seconds without a heartbeat, or after three sampling intervals if they are
longer."""
_DEAD_AFTER = 5.0
"""A ring counts as having no writer after this many seconds without a heartbeat, or after three sampling intervals if
they are longer."""
T = TypeVar("T")


class LiveState(NamedTuple):
    """The state of live data."""

    live: bool
    """Whether the newest frame is current. Also False when a recording has ended (`Origin.ended`)."""
    text: str
    """Text for users: `live`, or the problem and what to do."""
    interval: float
    """Seconds between frames."""
    age: float = 0.0
    """Seconds since the last heartbeat, or since the newest frame of a removed ring; 0 while live."""
    since: float = NAN
    """Time of the newest frame, in seconds since 1970; NaN if there is none."""
    stale: bool = False
    """Whether a daemon exists but has stopped writing, because its driver does not answer or it was suspended."""


class Live:
    """Reads a ring, and opens it again when it is replaced.

    `opener`: function that returns a descriptor of the ring, or raises OSError if there is none. `note`: text of
    `state` while the ring is live. `missing`: text of `state` while there is no ring. `generation`: number of times a
    ring in memory was replaced, because such a ring has no file name to check. `directories`: directories in which to
    look for the history.
    """

    def __init__(
        self,
        opener: Callable[[], int],
        note: str = "live",
        missing: str = "",
        generation: Callable[[], int] = lambda: 0,
        playback: "Playback | None" = None,
        directories: Places | None = None,
    ) -> None:
        self.playback = playback
        """Controls (pause, seek) of a recording that this process plays; None for other sources."""
        self.has_failed: Callable[[], bool] = lambda: False
        """Function that returns whether sampling in this process has ended with an error."""
        self.end_sampling: Callable[[], object] = lambda: None
        """Function that stops the sampler in this process. A view calls it when it has found a daemon."""
        self._opener, self._directories, self._note = opener, directories, note
        self._generation, self._read_generation = generation, 0
        self._reader: RingReader | None = None
        self._next_search = 0.0
        self._newest: tuple[RingReader | None, int, float] = (None, 0, NAN)
        """Reader, number and time of the newest frame."""
        self._missing = self._problem = missing or no_daemon(directories or Places())

    def latest(self) -> Frame | None:
        """Return the newest frame, or None if there is none."""
        return self._try(lambda reader: reader.newest())

    def since(self, number: int) -> list[Frame]:
        """Return the frames after number `number`, oldest first.

        Frames that are older than a few minutes are not full (see `Frame.is_full`). If the ring was replaced by one
        that counts from 1 again, all its frames are returned.
        """
        return self._try(lambda reader: reader.since(0 if reader.heartbeat().head < number else number)) or []

    def boundaries(self) -> list[Boundary]:
        """Return all boundaries of runs in the ring, oldest first. Used by callers that do not read all frames."""
        return self._try(lambda reader: reader.boundaries()) or []

    @converts_os_errors
    def window(
        self, length: str | float | None = None, *, begin: "Moment | None" = None, end: "Moment | None" = None,
        metrics: Sequence[str] | None = None, devices: "Wanted | Iterable[Wanted] | None" = None, points: int = 4000,
    ) -> "Window":  # fmt: skip
        """Return metrics by time and device as numpy arrays, from frames and stored history. Requires numpy.

        The window is the last `length` (seconds, or text like "90s", "2h", "7d") up to the newest frame, or the time
        from `begin` to `end` (seconds since 1970, a datetime, ISO 8601, or text like "7d" for 7 days ago). If the
        window has more samples than `points`, or starts before the oldest frame in the ring, it is divided into at most
        `points` intervals with low, mean and high. `metrics`: one or more names. By default, each metric is read when
        it is first accessed. `devices`: indexes or UUIDs; by default, all devices. Raises UsageError.
        """
        from gpumon.window import Window

        frames, path = self.since(0), self._history_path()
        window = Window.ask(
            frames, path, self._newest_time(frames), length=length, begin=begin, end=end, metrics=metrics,
            devices=devices, points=points,
        )  # fmt: skip
        window.problem = window.problem or self._no_data_reason(frames, path)
        return window

    @converts_os_errors
    def to_pandas(self, length: str | float | None = None, *, value: str = "mean", **window: Any) -> Any:
        """Return `window(length, ...)` as a pandas DataFrame: rows by time (UTC), columns by metric and device.

        `value` is `mean`, `low`, `high` or `seen`. Raises MissingPackage without pandas.
        """
        return self.window(length, **window).to_pandas(value)

    @converts_os_errors
    def to_arrow(self, length: str | float | None = None, **window: Any) -> Any:
        """Return `window(length, ...)` as a pyarrow Table: a row for each time, device and metric.

        Raises MissingPackage without pyarrow.
        """
        return self.window(length, **window).to_arrow()

    @converts_os_errors
    def totals(
        self, length: str | float | None = None, *, begin: "Moment | None" = None,
        end: "Moment | None" = None, devices: "Wanted | Iterable[Wanted] | None" = None,
    ) -> "WindowTotals":  # fmt: skip
        """Return totals of each GPU: energy, utilization, throttling, peak memory and PCIe bytes.

        Totals are computed from frames and stored history. The window is specified as for `window`. `devices`: indexes
        or UUIDs; by default, all devices. Each total contains the number of missing seconds. Raises UsageError.
        """
        from gpumon.storage.history.buckets import resolve_window
        from gpumon.storage.history.devices import devices_of, resolve_devices
        from gpumon.storage.history.open import open_totals, stored_devices

        frames = self.since(0)
        span = resolve_window(length, begin, end, float(floor(self._newest_time(frames))))
        path = self._history_path()
        wanted = resolve_devices(devices, devices_of(frames[-1:]), lambda: stored_devices(path, frames))
        totals = open_totals(path, frames, span, wanted)
        from dataclasses import replace  # slow to import, and not needed by `gpumon status`

        return replace(totals, problem=totals.problem or self._no_data_reason(frames, path))

    @converts_os_errors
    def processes(
        self, length: str | float | None = None, *, begin: "Moment | None" = None, end: "Moment | None" = None,
        devices: "Wanted | Iterable[Wanted] | None" = None, user: str | None = None, pid: int | None = None,
    ) -> "ProcessWindow":  # fmt: skip
        """Return the processes on the GPUs in a window, with their usage, from frames and stored history.

        The window is specified as for `window`. `devices` (indexes or UUIDs), `user` and `pid` restrict the result.
        Raises UsageError.
        """
        from gpumon.storage.processes.query import query_processes

        frames = self.since(0)
        span = (length, begin, end, self._newest_time(frames))
        return query_processes(self._history_path(), frames, span, devices, user or "", pid or 0)

    @converts_os_errors
    def process_lines(
        self, process: "Process | StoredProcess", length: str | float | None = None, *,
        begin: "Moment | None" = None, end: "Moment | None" = None, points: int = 2000,
    ) -> "ProcessLines":  # fmt: skip
        """Return the usage of a process over time, in at most `points` intervals.

        `process`: a process from a frame, or from the result of `processes`. The window is specified as for `window`.
        Raises UsageError.
        """
        from gpumon.storage.processes.query import query_lines

        frames = self.since(0)
        span = (length, begin, end, self._newest_time(frames))
        return query_lines(self._history_path(), frames, span, process, points)

    def sums(self) -> "Sums | None":
        """Return the usage sums that the daemon stores in the ring; None if it stores none."""
        return self._try(lambda reader: reader.sums())

    def _no_data_reason(self, frames: Sequence[Frame], path: str) -> str:
        """Return why there is no data. Empty if there are frames or a history."""
        return "" if frames or may_exist(path) else self.state().text

    def _newest_time(self, frames: Sequence[Frame]) -> float:
        """Return the default end of a window in seconds since 1970.

        This is the time of the newest frame, or the current time if there is no frame or this machine's daemon is gone.
        """
        if frames and (self.is_alive() or Capability.LIVE not in self.origin().capabilities):
            return frames[-1].time
        return time.time()

    def _history_path(self) -> str:
        """Return the history file of this ring, or of the directories if there is no ring; empty if none exists."""
        if self._directories is None or self._directory() is not None:
            return self.history_file()
        return next(iter(history_paths(self._directories)), "")

    def _directory(self) -> "StoredDirectory | None":
        return self._try(lambda reader: reader.directory())

    def origin(self) -> Origin:
        """Return the origin of the values: the source and its capabilities."""
        return directory.origin if (directory := self._directory()) else Origin("")

    def driver(self) -> Driver:
        return directory.driver if (directory := self._directory()) else Driver()

    def hostname(self) -> str:
        return directory.hostname if (directory := self._directory()) else ""

    def not_kept(self) -> tuple[str, str]:
        """Return why the daemon does not record runs, and why it does not record history.

        A reason is an empty string if there is no problem, or if no daemon is running.
        """
        directory = self._directory()
        return (directory.ledger, directory.history) if directory and self.is_alive() else ("", "")

    def history_file(self) -> str:
        """Return the path of the history file for this ring; empty if there is none."""
        if self._directories is None or Capability.LIVE not in self.origin().capabilities:
            return ""
        return next(iter(history_paths(self._directories)), "")

    def unreadable(self) -> str:
        """Return why an existing ring cannot be read, and what to do; empty if it can be read or does not exist."""
        self.heartbeat()
        return self._problem if self._reader is None and self._problem != self._missing else ""

    def heartbeat(self) -> Heartbeat | None:
        """Return the last heartbeat of the writer; None without a ring."""
        return self._try(lambda reader: reader.heartbeat())

    def writer_pid(self) -> int:
        """Return the pid of the process that writes the ring; 0 without a ring."""
        return self._reader.written_by.pid if self._reader else 0

    def writer(self) -> Superblock | None:
        """Return the process that writes the ring, or that wrote the ring last; None without a ring."""
        return self._reader.written_by if self._reader else None

    def version(self) -> str:
        """Return the gpumon version of the writer; empty without a ring."""
        return directory.gpumon if (directory := self._directory()) else ""

    def interval(self) -> float:
        """Return the planned seconds between frames."""
        return self._reader.written_by.interval_ns / 1e9 if self._reader else 1.0

    @property
    def generation(self) -> int:
        """A number that changes when a recording is moved to another position.

        Later frames then do not continue the earlier frames.
        """
        return self._generation()

    def is_alive(self) -> bool:
        """Return whether the ring has a running writer, even if the writer has played a recording to its end."""
        heartbeat = self.heartbeat()
        return heartbeat is not None and _is_beating(heartbeat, self.interval())

    def has_writer(self) -> bool:
        """Return whether the ring has a writer, even if the writer is not writing at present."""
        return self.is_alive() or self.state().stale

    def state(self) -> LiveState:
        """Return the state of the data. Never raises."""
        heartbeat, interval = self.heartbeat(), self.interval()
        since, origin = self._time_of(heartbeat.head) if heartbeat else self._newest[2], self.origin()
        if heartbeat is None or self._reader is None:  # the ring is missing or damaged
            age = max(1.0, time.time() - since) if is_known(since) else 0.0
            return LiveState(False, self._problem, interval, age, since)
        state = LiveState(False, "", interval, heartbeat.age, since)
        if heartbeat.age == inf:
            text = "no daemon has run since the machine was restarted"
            return state._replace(text=text, age=max(1.0, time.time() - since) if is_known(since) else inf)
        if heartbeat.state != RUNNING:
            who = "the daemon" if self._missing.startswith(NO_DAEMON) else "sampling in this process"
            return state._replace(text=f"{who} stopped {duration(heartbeat.age)} ago")
        if heartbeat.age > max(3 * interval, _STALE_AFTER):
            seen = f"last seen {clock(since)} ({duration(heartbeat.age)} ago)"
            if not self._reader.is_writer_alive():
                return state._replace(text=f"the daemon is no longer running: {seen}")
            return state._replace(text=f"stale: {seen}", stale=True)
        if origin.ended:
            return state._replace(text=ENDED, age=0.0)
        return state._replace(live=True, text=self._note, age=0.0)

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _time_of(self, head: int) -> float:
        """Return the time of the newest frame.

        `head`: number of this frame. NaN if there is no frame. The result is cached.
        """
        if self._newest[:2] != (self._reader, head):
            newest = self.latest()
            self._newest = (self._reader, head, newest.time if newest else NAN)
        return self._newest[2]

    def _try(self, read: Callable[[RingReader], T]) -> T | None:
        """Return `read(reader)`. If the ring cannot be read, store the problem for `state`, and return None."""
        try:
            return read(self._attach())
        except FileNotFoundError:
            self._problem = self._missing
        except RingError as error:
            self._problem = str(error)
        except OSError as error:
            self._problem = f"cannot read the ring: {error.strerror or error}"
        self.close()
        return None

    def _attach(self) -> RingReader:
        """Return the reader of the ring. Opens the ring again if it was replaced or has no writer."""
        if self._read_generation != self.generation:
            self.close()
        if self._reader is not None and (self._reader.is_replaced() or self._should_search(self._reader)):
            self.close()
        if self._reader is None:
            self._read_generation = self.generation
            self._reader = RingReader(self._opener())
        return self._reader

    def _should_search(self, reader: RingReader) -> bool:
        """Return whether to look for another ring. This is done once a second while the current ring has no writer."""
        now = time.monotonic()
        if now < self._next_search or _is_beating(reader.heartbeat(), self.interval()):
            return False
        self._next_search = now + 1.0
        return True


def _is_beating(heartbeat: Heartbeat, interval: float) -> bool:
    return heartbeat.state == RUNNING and heartbeat.age <= max(3 * interval, _DEAD_AFTER)


def no_daemon(directories: Places) -> str:
    """Return a message that says that no daemon is running for these directories, and how to start one."""
    missing = f" in {directories.explicit}, which does not exist" if is_missing(directories) else ""
    return f"{NO_DAEMON}{missing}: start one with 'gpumon daemon --detach{dir_option(directories)}'"


def follow(directories: Places) -> Live:
    """Return a reader of the daemon for these directories. The daemon may also be started later."""

    def opener() -> int:
        # A ring whose daemon is gone must not hide a ring that is being written, or a ring whose daemon hangs.
        candidates = [fd for path in ring_paths(directories) if (fd := _open(path)) is not None]
        if not candidates:
            if reason := why_unread(directories):
                raise RingError(reason)
            raise FileNotFoundError(2, "no ring")
        if len(candidates) == 1:
            return candidates[0]
        best = max(candidates, key=_liveliness)  # the first one if several are equal
        for fd in candidates:
            if fd != best:
                os.close(fd)
        return best

    return Live(opener, directories=directories)


def _open(path: str) -> int | None:
    try:
        return open_regular(path)
    except OSError:
        return None


def _liveliness(fd: int) -> int:
    """Return 2 if a ring is being written, 1 if its writer exists but has stopped writing, else 0."""
    try:
        reader = RingReader(os.dup(fd))
    except RingError:
        return 0
    try:
        heartbeat = reader.heartbeat()
        if _is_beating(heartbeat, reader.written_by.interval_ns / SECOND):
            return 2
        return int(heartbeat.state == RUNNING and reader.is_writer_alive())
    except RingError:
        return 0
    finally:
        reader.close()


@converts_os_errors
def connect(directory: str | None = None) -> Live:
    """Return a reader for scripts and notebooks.

    It reads the data of the daemon that writes to `directory`; by default, this machine's daemon. This also works while
    no daemon is running. `state()` then reports this.
    """
    return follow(places(directory))
