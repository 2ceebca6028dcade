"""The newest frames, whoever writes them: what every view and every script reads.

`Live` follows a ring through restarts of its daemon, new generations and damaged files, and never
raises for any of them: `state` says how things are.
"""

import os
import time
from collections.abc import Callable, Iterable, Sequence
from math import floor, inf
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from gpumon.common.clock import SECOND
from gpumon.common.errors import RingError
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
    from gpumon.ring.sums import Sums
    from gpumon.storage.history.devices import Wanted
    from gpumon.storage.history.grid import Moment
    from gpumon.storage.history.totals import WindowTotals
    from gpumon.storage.processes.lines import ProcessLines
    from gpumon.storage.processes.query import ProcessWindow
    from gpumon.storage.processes.reader import KnownProcess
    from gpumon.window import Window

NO_DAEMON = "no daemon is running"
ENDED = "the recording has ended"
WAITING = "waiting for the first sample"
CATCHING_UP = "not live yet: the simulation makes up its last 10 minutes"
_PATIENCE = 2.0
"""Seconds of silence after which what is shown is no longer what is, at short intervals."""
_GIVEN_UP = 5.0
"""Seconds of silence after which a ring counts as one that nobody writes, at short intervals."""
T = TypeVar("T")


class LiveState(NamedTuple):
    """The state of live data."""

    live: bool
    """Whether the newest frame shows what is now; False as well once a recording has ended (`Origin.ended`)."""
    text: str
    """For people: `live`, or what is wrong and what to do."""
    interval: float
    """Seconds between frames."""
    age: float = 0.0
    """Seconds since the writer was heard, or since the newest frame of a ring that is gone; 0 where none is silent."""
    since: float = NAN
    """Seconds since 1970: the time of the newest frame; NaN when there is none."""
    stale: bool = False
    """Whether a daemon runs that has gone silent: its driver does not answer, or somebody stopped it."""


class Live:
    """A reader that finds its ring again.

    A ring in memory has no name that it could lose: `generation` counts those that were given up for another.

    `opener` gives a descriptor of the ring; it may raise OSError when there is none. `note` is what `state` says while
    all is well, `missing` what it says while there is no ring; in `where` lies its history.
    """

    def __init__(
        self,
        opener: Callable[[], int],
        note: str = "live",
        missing: str = "",
        generation: Callable[[], int] = lambda: 0,
        playback: "Playback | None" = None,
        where: Places | None = None,
    ) -> None:
        self.playback = playback
        """Of a recording that this process plays: pauses it and takes it elsewhere."""
        self.has_failed: Callable[[], bool] = lambda: False
        """Whether sampling in this process has ended by itself: nothing more comes."""
        self.end_sampling: Callable[[], object] = lambda: None
        """Asks sampling in this process to end, for a view that has found a daemon."""
        self._opener, self._where, self._note = opener, where, note
        self._generation, self._read_generation = generation, 0
        self._reader: RingReader | None = None
        self._look_again = 0.0
        self._newest: tuple[RingReader | None, int, float] = (None, 0, NAN)
        self._missing = self._problem = missing or no_daemon(where or Places())

    def latest(self) -> Frame | None:
        """The newest frame, or None when there is none to be had."""
        return self._try(lambda reader: reader.newest())

    def since(self, number: int) -> list[Frame]:
        """Frames newer than `number`, oldest first; those of more than some minutes ago are not full (`Frame.is_full`).

        A ring that begins anew counts from 1 again; then all its frames are newer.
        """

        return self._try(lambda reader: reader.since(0 if reader.heartbeat().head < number else number)) or []

    def boundaries(self) -> list[Boundary]:
        """Every boundary of runs that is kept, oldest first: for who reads few frames, such as the newest alone."""
        return self._try(lambda reader: reader.boundaries()) or []

    def window(
        self, length: str | float | None = None, *, begin: "Moment | None" = None, end: "Moment | None" = None,
        metrics: Sequence[str] | None = None, devices: "Wanted | Iterable[Wanted] | None" = None, points: int = 4000,
    ) -> "Window":  # fmt: skip
        """Return metrics by time and device as numpy arrays, from frames and kept history. Needs numpy.

        The window is of `length` (seconds, or such as "90s", "2h", "7d") and ends with the newest frame, or is from
        `begin` to `end` (seconds since 1970, a datetime, ISO 8601, or such as "7d" for so long ago). Where it has more
        samples than `points`, or older ones than the ring, it is in at most so many stretches, with low, mean and high.
        `metrics` are names, or one; else each is read when it is asked for; `devices` are indexes or UUIDs, else all.
        Raises UsageError.
        """
        from gpumon.window import Window

        frames, path = self.since(0), self._kept()
        found = Window.ask(
            frames, path, self._newest_time(frames), length=length, begin=begin, end=end, metrics=metrics,
            devices=devices, points=points,
        )  # fmt: skip
        found.problem = found.problem or self._why_nothing(frames, path)
        return found

    def to_pandas(self, length: str | float | None = None, *, value: str = "mean", **window: Any) -> Any:
        """Return `window(length, ...)` as a pandas DataFrame: rows by time (UTC), columns by metric and device.

        `value` is `mean`, `low`, `high` or `seen`. Raises MissingPackage without pandas.
        """
        return self.window(length, **window).to_pandas(value)

    def to_arrow(self, length: str | float | None = None, **window: Any) -> Any:
        """Return `window(length, ...)` as a pyarrow Table: a row for each time, device and metric.

        Raises MissingPackage without pyarrow.
        """
        return self.window(length, **window).to_arrow()

    def totals(
        self, length: str | float | None = None, *, begin: "Moment | None" = None,
        end: "Moment | None" = None, devices: "Wanted | Iterable[Wanted] | None" = None,
    ) -> "WindowTotals":  # fmt: skip
        """Return energy, utilization, throttling, peak memory and PCIe bytes of each GPU, from frames and kept history.

        The window is of `length` (seconds, or such as "7d") and ends with the newest frame, or is from `begin` to `end`
        (seconds since 1970, a datetime, a text of ISO 8601, or such as "7d" for so long ago). `devices` are indexes or
        UUIDs; else all. Each total says how many seconds are missing. Raises UsageError.
        """
        from gpumon.storage.history.devices import chosen, devices_of
        from gpumon.storage.history.grid import span_of
        from gpumon.storage.history.open import kept_devices, open_totals

        frames = self.since(0)
        span = span_of(length, begin, end, float(floor(self._newest_time(frames))))
        path = self._kept()
        wanted = chosen(devices, devices_of(frames[-1:]), lambda: kept_devices(path, frames))
        found = open_totals(path, frames, span, wanted)
        return found._replace(problem=found.problem or self._why_nothing(frames, path))

    def processes(
        self, length: str | float | None = None, *, begin: "Moment | None" = None, end: "Moment | None" = None,
        devices: "Wanted | Iterable[Wanted] | None" = None, user: str | None = None, pid: int | None = None,
    ) -> "ProcessWindow":  # fmt: skip
        """Return the processes that were on the GPUs in a window, with what they used, from frames and kept history.

        The window is as of `totals`; `devices` are indexes or UUIDs. What is not named selects all. Raises UsageError.
        """
        from gpumon.storage.processes.query import processes_of

        frames = self.since(0)
        span = (length, begin, end, self._newest_time(frames))
        return processes_of(self._kept(), frames, span, devices, user or "", pid or 0)

    def process_lines(
        self, process: "Process | KnownProcess", length: str | float | None = None, *,
        begin: "Moment | None" = None, end: "Moment | None" = None, points: int = 2000,
    ) -> "ProcessLines":  # fmt: skip
        """Return what a process of a frame, or of `processes`, used over time, in at most `points` stretches a line.

        The window is as of `totals`. Raises UsageError.
        """
        from gpumon.storage.processes.query import lines_of

        frames = self.since(0)
        span = (length, begin, end, self._newest_time(frames))
        return lines_of(self._kept(), frames, span, process, points)

    def sums(self) -> "Sums | None":
        """Sums of the daemon's own ticks; None where it keeps none."""
        return self._try(lambda reader: reader.sums())

    def _why_nothing(self, frames: Sequence[Frame], path: str) -> str:
        """Why there are neither frames nor a history; empty where there are any."""
        return "" if frames or may_exist(path) else self.state().text

    def _newest_time(self, frames: Sequence[Frame]) -> float:
        """The end of windows (s since 1970): the newest frame, but now where it shows a machine and has no writer."""
        if frames and (self.is_alive() or Capability.LIVE not in self.origin().capabilities):
            return frames[-1].time
        return time.time()

    def _kept(self) -> str:
        """The file with history of what is read here, or that was read when a ring was there; empty where none is."""
        if self._where is None or self._try(lambda reader: reader.directory()) is not None:
            return self.history_file()
        return next(iter(history_paths(self._where)), "")

    def origin(self) -> Origin:
        """Where the numbers come from."""
        return known.origin if (known := self._try(lambda reader: reader.directory())) else Origin("")

    def driver(self) -> Driver:
        return known.driver if (known := self._try(lambda reader: reader.directory())) else Driver()

    def hostname(self) -> str:
        return known.hostname if (known := self._try(lambda reader: reader.directory())) else ""

    def not_kept(self) -> tuple[str, str]:
        """Why the daemon keeps no run just now, and no history; each is empty when it does, or nobody runs."""
        known = self._try(lambda reader: reader.directory())
        return (known.ledger, known.history) if known and self.is_alive() else ("", "")

    def history_file(self) -> str:
        """The file that keeps longer history of what is read here; empty where nobody keeps any."""
        if self._where is None or Capability.LIVE not in self.origin().capabilities:
            return ""
        return next(iter(history_paths(self._where)), "")

    def unreadable(self) -> str:
        """Why a ring that is there cannot be read, and what to do; empty where it can be, or none is there."""
        self.heartbeat()
        return self._problem if self._reader is None and self._problem != self._missing else ""

    def heartbeat(self) -> Heartbeat | None:
        """The writer's last sign of life."""
        return self._try(lambda reader: reader.heartbeat())

    def writer_pid(self) -> int:
        """The process that writes the ring; 0 when there is none."""
        return self._reader.written_by.pid if self._reader else 0

    def writer(self) -> Superblock | None:
        """The process that writes the ring, or wrote it last; None where there is none."""
        return self._reader.written_by if self._reader else None

    def version(self) -> str:
        """Version of gpumon that writes the ring; empty where there is none."""
        return known.gpumon if (known := self._try(lambda reader: reader.directory())) else ""

    def interval(self) -> float:
        """Seconds between frames as planned."""
        return self._reader.written_by.interval_ns / 1e9 if self._reader else 1.0

    @property
    def generation(self) -> int:
        """Changes where frames from now on do not follow those before: a recording was taken to another place."""
        return self._generation()

    def is_alive(self) -> bool:
        """Whether somebody writes the ring now: also one that plays a recording which has ended."""
        heartbeat = self.heartbeat()
        return heartbeat is not None and _is_beating(heartbeat, self.interval())

    def has_writer(self) -> bool:
        """Whether this is the ring to follow: somebody writes it, or is there and silent for now."""
        return self.is_alive() or self.state().stale

    def state(self) -> LiveState:
        """Return the state of the data; never raises."""
        heartbeat, interval = self.heartbeat(), self.interval()
        since, origin = self._time_of(heartbeat.head) if heartbeat else self._newest[2], self.origin()
        if heartbeat is None or self._reader is None:  # damaged meanwhile
            age = max(1.0, time.time() - since) if is_known(since) else 0.0
            return LiveState(False, self._problem, interval, age, since)
        state = LiveState(False, "", interval, heartbeat.age, since)
        if heartbeat.age == inf:
            text = "no daemon has run since the machine was restarted"
            return state._replace(text=text, age=max(1.0, time.time() - since) if is_known(since) else inf)
        if heartbeat.state != RUNNING:
            who = "the daemon" if self._missing.startswith(NO_DAEMON) else "sampling in this process"
            return state._replace(text=f"{who} stopped {duration(heartbeat.age)} ago")
        if heartbeat.age > max(3 * interval, _PATIENCE):
            seen = f"last seen {clock(since)} ({duration(heartbeat.age)} ago)"
            if not self._reader.is_writer_there():
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
        """The time of the newest frame, NaN where there is none; read once a frame, as many ask for it."""
        if self._newest[:2] != (self._reader, head):
            newest = self.latest()
            self._newest = (self._reader, head, newest.time if newest else NAN)
        return self._newest[2]

    def _try(self, read: Callable[[RingReader], T]) -> T | None:
        """`read` on a reader that is attached; None, with the problem noted, when that cannot be."""
        try:
            reader = self._attached()
            return read(reader)
        except FileNotFoundError:
            self._problem = self._missing
        except RingError as error:
            self._problem = str(error)
        except OSError as error:
            self._problem = f"cannot read the ring: {error.strerror or error}"
        self.close()
        return None

    def _attached(self) -> RingReader:
        """The reader, attached anew when the file it reads has been replaced."""
        if self._read_generation != self.generation:
            self.close()
        if self._reader is not None and (self._reader.is_replaced() or self._should_look_again(self._reader)):
            self.close()
        if self._reader is None:
            self._read_generation = self.generation
            self._reader = RingReader(self._opener())
        return self._reader

    def _should_look_again(self, reader: RingReader) -> bool:
        """Once a second while nobody writes this ring: another one may be written by now."""
        now = time.monotonic()
        if now < self._look_again or _is_beating(reader.heartbeat(), self.interval()):
            return False
        self._look_again = now + 1.0
        return True


def _is_beating(heartbeat: Heartbeat, interval: float) -> bool:
    return heartbeat.state == RUNNING and heartbeat.age <= max(3 * interval, _GIVEN_UP)


def no_daemon(where: Places) -> str:
    """Return that no daemon runs for these directories, and how to start one for them."""
    missing = f" in {where.explicit}, which does not exist" if is_missing(where) else ""
    return f"{NO_DAEMON}{missing}: start one with 'gpumon daemon --detach{dir_option(where)}'"


def follow(where: Places) -> Live:
    """The ring of the daemon for these directories, now or whenever one starts."""

    def opener() -> int:
        # A ring whose daemon is gone must not hide one that is written, or whose daemon hangs.
        opened = [fd for path in ring_paths(where) if (fd := _open(path)) is not None]
        if not opened:
            if why := why_unread(where):
                raise RingError(why)
            raise FileNotFoundError(2, "no ring")
        if len(opened) == 1:
            return opened[0]
        chosen = max(opened, key=_liveliness)  # of several alike the first
        for fd in opened:
            if fd != chosen:
                os.close(fd)
        return chosen

    return Live(opener, where=where)


def _open(path: str) -> int | None:
    try:
        return open_regular(path)
    except OSError:
        return None


def _liveliness(fd: int) -> int:
    """2 for a ring that is written, 1 for one whose writer is there and silent, else 0."""
    try:
        reader = RingReader(os.dup(fd))
    except RingError:
        return 0
    try:
        heartbeat = reader.heartbeat()
        if _is_beating(heartbeat, reader.written_by.interval_ns / SECOND):
            return 2
        return int(heartbeat.state == RUNNING and reader.is_writer_there())
    except RingError:
        return 0
    finally:
        reader.close()


def connect(directory: str | None = None) -> Live:
    """A reader for scripts and notebooks: of the daemon that runs here, or that writes `directory`.

    Works, and says so in `state()`, while none runs.
    """
    return follow(places(directory))
