"""Times at which new frames are looked for: once a frame, soon after it is due."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from threading import Thread
from typing import TYPE_CHECKING, Protocol

from gpumon.common.clock import SECOND
from gpumon.live import LiveState
from gpumon.model.frame import Frame
from gpumon.model.origin import Capability, Driver, Origin

if TYPE_CHECKING:
    from gpumon.storage.ledger.records import RunSummary


LATE = 0.1
"""Seconds that a frame takes at first from its time until it can be read: the driver has to answer."""
_LATER = 0.05
"""Seconds by which it is expected later from then on, where it was not there."""
_LATEST = 0.5
_MOST = 1.0
"""Seconds after which the view is looked at in any case: what it tells may be over."""
_AGAIN = 0.1
"""Seconds until a frame that is due is looked for once more."""


class Cadence:
    """The wait for the next frame of a source that takes one every so often; `usual` where that is not known (s)."""

    def __init__(self, usual: float) -> None:
        self._usual = usual
        self._late = LATE
        self._due = 0
        """Monotonic time (ns) of the frame that is expected; 0 for none."""

    def wait(self, newest: int, interval: float, now: int) -> float:
        """Return the seconds until the next look.

        `newest`: time of the newest frame, and `now`, both of the monotonic clock (ns); `interval` of frames (s).
        """
        if interval <= self._usual:
            return self._usual
        due = newest + round(interval * SECOND)
        was_expected, self._due = due == self._due, due
        wait = (due - now) / SECOND + self._late
        if _AGAIN / 2 < wait <= interval + self._late:
            return min(wait, _MOST)
        if not was_expected or not -_AGAIN < wait <= _AGAIN / 2:
            return self._usual  # of another clock, or of a source that is silent
        self._late = min(_LATEST, self._late + _LATER)
        return min(_AGAIN, self._usual)


class Player(Protocol):
    """Controls of a recording that this process plays."""

    is_paused: bool
    """Set here: nothing more of it becomes due."""
    can_seek: bool
    """Whether it can be taken elsewhere."""
    can_pause: bool
    """Whether it can stand still."""
    begin: float
    """The first moment that it plays, in s since 1970; NaN while it is unknown."""
    end: float
    """The last one."""
    seeks: int
    """Counts the times that it went elsewhere: frames from then on do not follow those before."""

    seek_target: float
    """The moment to which it went last (s since 1970)."""
    completed_seek: tuple[int, float]
    """The last turn of which all frames up to its place have been read, and the time of the last of them; NaN: none."""

    def seek(self, seconds: float) -> None:
        """Go so many seconds forward; back, if negative. Some moments later its frames come."""


class Writer(Protocol):
    """The process that makes frames."""

    @property
    def pid(self) -> int: ...

    @property
    def started(self) -> int:
        """Clock ticks after boot at which it began; with the pid this names it for ever."""


class FrameFeed(Protocol):
    """A reader that never blocks."""

    def since(self, number: int) -> list[Frame]:
        """Frames newer than `number`, oldest first; of 0, all that are kept."""

    def origin(self) -> Origin: ...

    def writer(self) -> Writer | None:
        """The process that makes the frames, or made them last; None where none is known."""

    def driver(self) -> Driver: ...

    def hostname(self) -> str: ...

    def history_file(self) -> str:
        """The file that keeps longer history of the same; empty where there is none."""

    def state(self) -> LiveState: ...


Simulation = Callable[[], AbstractContextManager[FrameFeed]]
"""Begins to simulate, and ends that again."""
FindDaemon = Callable[[], "FrameFeed | None"]
"""Gives the frames of a daemon, once there is one."""
DAEMON_CAME = "a daemon runs now: its samples are shown"
ANOTHER_CAME = "another daemon runs now: its samples are shown"
LOOK_EVERY = 3.0
"""Seconds after which a daemon is looked for again."""
Past = Callable[[], Sequence["RunSummary"]]
"""The runs of the ledger, newest first; it may take a while."""


def with_earlier(own: Sequence[Frame], frames: Sequence[Frame]) -> list[Frame]:
    """Return the frames of a daemon, and at times for which it has none those that a view sampled; oldest first."""
    times = [frame.monotonic_ns for frame in frames]

    def is_missing(frame: Frame) -> bool:
        at, least = frame.monotonic_ns, frame.interval * SECOND
        place = bisect_left(times, at)
        return all(abs(at - other) >= least for other in times[max(0, place - 1) : place + 1])

    return sorted([*filter(is_missing, own), *frames], key=lambda frame: frame.monotonic_ns)


class Instead:
    """The feed to show: that of this machine, or of a simulation that the user began."""

    def __init__(
        self, own: FrameFeed, simulation: Simulation | None, past: Past | None, daemon: FindDaemon | None = None
    ) -> None:
        self.feed = own
        self._own = own
        self._simulation = simulation
        self._running: AbstractContextManager[FrameFeed] | None = None
        self._past = past
        self._daemon = daemon
        self._look_again = LOOK_EVERY
        self._shown: tuple[FrameFeed, object] | None = None
        """The feed, and what its frames belong to."""
        self._before: FrameFeed | None = None
        """The frames that this view sampled itself, before it found a daemon that samples the same machine."""

    @property
    def has_simulation(self) -> bool:
        """Whether there is one that can be shown, or is."""
        return self._simulation is not None

    @property
    def is_simulated(self) -> bool:
        """Whether the feed is that of a simulation."""
        return self._running is not None

    def since(self, number: int) -> list[Frame]:
        """Frames of the feed newer than `number`; of 0, all that are kept, with those that this view sampled itself."""
        frames = self.feed.since(number)
        if number or self._before is None or self.is_simulated:
            return frames
        return with_earlier(self._before.since(0), frames)

    def switch(self) -> None:
        """To a simulation, or back to this machine."""
        if self.is_simulated:
            self.close()
        elif self._simulation is not None:
            running = self._simulation()
            self.feed = running.__enter__()
            self._running = running

    def came(self, now: float) -> str:
        """Return what to say where all that is shown begins anew, else nothing. `now`: s on any clock.

        A daemon is looked for and shown from then on, or another one writes where one did.
        """
        if self._has_found_daemon(now):
            return DAEMON_CAME
        return ANOTHER_CAME if self._has_been_replaced() else ""

    def _has_been_replaced(self) -> bool:
        """Whether frames do not follow those before: a simulation and a recording begin anew with each daemon."""
        is_hardware, writer = Capability.LIVE in self.feed.origin().capabilities, self.feed.writer()
        if writer is None:
            return False
        belong_to = () if is_hardware else (writer.pid, writer.started)
        before, self._shown = self._shown, (self.feed, belong_to)
        return before is not None and before[0] is self.feed and before[1] != belong_to

    def _has_found_daemon(self, now: float) -> bool:
        if self._daemon is None or self.is_simulated or now < self._look_again:
            return False
        self._look_again = now + LOOK_EVERY
        found = self._daemon()
        if found is None:
            return False
        is_same = all(Capability.LIVE in feed.origin().capabilities for feed in (self._own, found))
        self._before = self._own if is_same else None
        self.feed = self._own = found
        self._daemon = None
        return True

    def close(self) -> None:
        """End a simulation that was begun."""
        if self._running is not None:
            self._running.__exit__(None, None, None)
            self._running = None
            self.feed = self._own

    def read_past(self, take: Callable[[Sequence[RunSummary]], None]) -> None:
        """Read the past runs, once and beside all else; `take` gets them in another thread."""
        past, self._past = self._past, None
        if past is not None:
            Thread(target=lambda: take(past()), name="gpumon-past", daemon=True).start()
