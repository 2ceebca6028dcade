"""The newest frames, whoever writes them: what every view and every script reads.

`Live` follows a ring through restarts of its daemon, new generations and damaged files, and never
raises for any of them: `state` says how things are.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from gpumon.boot import is_alive
from gpumon.clock import SECOND
from gpumon.errors import RingError
from gpumon.frame import Driver, Frame, Origin
from gpumon.paths import Places, places, refused_rings, ring_paths
from gpumon.ring.layout import RUNNING
from gpumon.ring.reader import Pulse, RingReader
from gpumon.units import duration

if TYPE_CHECKING:
    from gpumon.window import Window

NO_DAEMON = "no daemon runs: start one with 'gpumon daemon --detach'"
ENDED = "the recording has ended"
_PATIENCE = 5.0
T = TypeVar("T")


class LiveState(NamedTuple):
    """How things are."""

    live: bool
    """Whether the newest frame shows what is now; False as well once a recording has ended (`Origin.ended`)."""
    text: str
    """For people: `live`, or what is wrong and what to do."""
    interval: float
    """Seconds between frames."""
    age: float = 0.0
    """Seconds since the writer's last sign of life, where it is silent; 0 while it is not, or where there is none."""


class Live:
    """A reader that finds its ring again.

    `opener` gives a descriptor of the ring; it may raise OSError when there is none. `note` is
    what `state` says while all is well, `missing` what it says while there is no ring.
    """

    def __init__(self, opener: Callable[[], int], note: str = "live", missing: str = NO_DAEMON) -> None:
        self._opener = opener
        self._note = note
        self._reader: RingReader | None = None
        self._look_again = 0.0
        self._missing = self._problem = missing

    def latest(self) -> Frame | None:
        """The newest frame, or None when there is none to be had."""
        return self._try(lambda reader: reader.newest())

    def since(self, number: int) -> list[Frame]:
        """Frames newer than `number`, oldest first.

        A ring that begins anew counts from 1 again; then all its frames are newer.
        """

        def read(reader: RingReader) -> list[Frame]:
            restarted = reader.pulse().head < number
            return reader.since(0 if restarted else number)

        return self._try(read) or []

    def window(self, length: str | float) -> Window:
        """The frames of the last `length` (seconds, or such as "90s", "10m", "2h") by column. Needs numpy."""
        from gpumon.window import Window

        frames = self._try(lambda reader: reader.since(0)) or []
        return Window.of(frames, length)

    def origin(self) -> Origin:
        """Where the numbers come from."""
        known = self._try(lambda reader: reader.directory())
        return known.origin if known else Origin("")

    def driver(self) -> Driver:
        known = self._try(lambda reader: reader.directory())
        return known.driver if known else Driver()

    def hostname(self) -> str:
        known = self._try(lambda reader: reader.directory())
        return known.hostname if known else ""

    def pulse(self) -> Pulse | None:
        """The writer's last sign of life."""
        return self._try(lambda reader: reader.pulse())

    def writer_pid(self) -> int:
        """The process that writes the ring; 0 when there is none."""
        return self._reader.written_by.pid if self._reader else 0

    def writer_hangs(self) -> bool:
        """Whether the process that writes the ring is there, and silent: it hangs in a driver call, or is stopped."""
        pulse = self.pulse()
        if pulse is None or self._reader is None or pulse.state != RUNNING or self.is_alive():
            return False
        writer = self._reader.written_by
        return is_alive(writer.pid, writer.started)

    def interval(self) -> float:
        """Seconds between frames as planned."""
        return self._reader.written_by.interval / 1e9 if self._reader else 1.0

    def is_alive(self) -> bool:
        """Whether somebody writes the ring now: also one that plays a recording which has ended."""
        pulse = self.pulse()
        return pulse is not None and _state(pulse, self.interval(), self._note).live

    def state(self) -> LiveState:
        """How things are; never raises."""
        pulse = self.pulse()
        interval = self.interval()
        if pulse is None:
            return LiveState(False, self._problem, interval)
        state = _state(pulse, interval, self._note)
        if state.live and self.origin().ended:
            return state._replace(live=False, text=ENDED)
        return state

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None

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
            self._problem = f"the ring cannot be read: {error.strerror or error}"
        self.close()
        return None

    def _attached(self) -> RingReader:
        """The reader, attached anew when the file it reads has been replaced."""
        if self._reader is not None and (self._reader.is_replaced() or self._should_look_again(self._reader)):
            self.close()
        if self._reader is None:
            self._reader = RingReader(self._opener())
        return self._reader

    def _should_look_again(self, reader: RingReader) -> bool:
        """Once a second while nobody writes this ring: another one may be written by now."""
        now = time.monotonic()
        if now < self._look_again or _state(reader.pulse(), self.interval(), "").live:
            return False
        self._look_again = now + 1.0
        return True


def _state(pulse: Pulse, interval: float, note: str) -> LiveState:
    if pulse.age == float("inf"):
        return LiveState(False, "the machine was restarted and no daemon runs since", interval, pulse.age)
    if pulse.state != RUNNING:
        return LiveState(False, f"the daemon stopped {duration(pulse.age)} ago", interval, pulse.age)
    if pulse.age > max(3 * interval, _PATIENCE):
        text = f"stale: the daemon has been silent for {duration(pulse.age)}"
        return LiveState(False, text, interval, pulse.age)
    return LiveState(True, note, interval)


def follow(where: Places) -> Live:
    """The ring of the daemon for these directories, now or whenever one starts."""

    def opener() -> int:
        # A ring whose daemon is gone must not hide one that is written: the first that lives, else the first.
        opened = [fd for path in ring_paths(where) if (fd := _open(path)) is not None]
        if not opened:
            for path in refused_rings(where):
                directory = os.path.dirname(path)
                raise RingError(
                    f"{directory} is another user's, or open to others: '--dir {directory}' shows it anyway"
                )
            raise FileNotFoundError(2, "no ring")
        if len(opened) == 1:
            return opened[0]
        chosen = next((fd for fd in opened if _is_written(fd)), opened[0])
        for fd in opened:
            if fd != chosen:
                os.close(fd)
        return chosen

    return Live(opener)


def _open(path: str) -> int | None:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None


def _is_written(fd: int) -> bool:
    try:
        reader = RingReader(os.dup(fd))
    except RingError:
        return False
    try:
        return _state(reader.pulse(), reader.written_by.interval / SECOND, "").live
    except RingError:
        return False
    finally:
        reader.close()


def connect(directory: str | None = None) -> Live:
    """A reader for scripts and notebooks: of the daemon that runs here, or that writes `directory`.

    Works, and says so in `state()`, while none runs.
    """
    return follow(places(directory))
