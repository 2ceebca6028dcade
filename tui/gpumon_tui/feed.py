"""Interfaces of frame sources (`FrameFeed`, `Player`, `Writer`), the timing of polls, and the choice of the source
on screen.
"""

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


INITIAL_DELAY = 0.1
"""Initial estimate of the delay (s) between a frame's timestamp and its arrival: the time the driver needs to
answer.
"""
_DELAY_STEP = 0.05
"""Increment (s) of the expected delay after a frame was not there on time."""
_MAX_DELAY = 0.5
_MAX_WAIT = 1.0
"""Maximum seconds between polls, so that messages on screen expire on time."""
_RETRY_AFTER = 0.1
"""Seconds before an overdue frame is polled for again."""


class PollTimer:
    """Computes the wait before the next poll.

    `usual`: seconds between polls of a fast source, or if the time of the next frame is unknown.
    """

    def __init__(self, usual: float) -> None:
        self._fast = usual
        self._delay = INITIAL_DELAY
        self._expected = 0
        """Monotonic time (ns) at which the next frame is expected; 0 if unknown."""

    def wait(self, newest: int, interval: float, now: int) -> float:
        """Return the seconds until the next poll.

        `newest` (timestamp of the newest frame) and `now` are CLOCK_MONOTONIC times in ns; `interval` is the sampling
        interval in s.
        """
        if interval <= self._fast:
            return self._fast
        expected = newest + round(interval * SECOND)
        was_missed, self._expected = expected == self._expected, expected
        wait = (expected - now) / SECOND + self._delay
        if _RETRY_AFTER / 2 < wait <= interval + self._delay:
            return min(wait, _MAX_WAIT)
        if not was_missed or not -_RETRY_AFTER < wait <= _RETRY_AFTER / 2:
            return self._fast  # from another clock, or the source is silent
        self._delay = min(_MAX_DELAY, self._delay + _DELAY_STEP)
        return min(_RETRY_AFTER, self._fast)


class Player(Protocol):
    """Controls of a recording played by this process."""

    is_paused: bool
    """Set by the view: while True, no further frames become due."""
    can_seek: bool
    """Whether the recording supports seeking."""
    can_pause: bool
    """Whether the recording can be paused."""
    begin: float
    """Time of the first frame (s since 1970); NaN while unknown."""
    end: float
    """Time of the last frame (s since 1970); NaN while unknown."""
    seeks: int
    """Number of seeks so far. Frames after a seek do not continue those before it."""

    seek_target: float
    """Target of the last seek (s since 1970)."""
    completed_seek: tuple[int, float]
    """Number of the last seek for which all frames up to the target have been read, and the time of the last of
    these frames (NaN: none).
    """

    def seek(self, seconds: float) -> None:
        """Move by a number of seconds, backward if negative. The frames arrive some time later."""


class Writer(Protocol):
    """The process that writes the frames."""

    @property
    def pid(self) -> int: ...

    @property
    def started(self) -> int:
        """Process start time in clock ticks after boot; together with the PID it identifies the process uniquely."""


class FrameFeed(Protocol):
    """Non-blocking reader of frames."""

    def since(self, number: int) -> list[Frame]:
        """Return the frames with a number greater than `number`, oldest first; 0 returns all buffered frames."""

    def origin(self) -> Origin: ...

    def writer(self) -> Writer | None:
        """The process that writes the frames, or wrote the last ones; None if unknown."""

    def driver(self) -> Driver: ...

    def hostname(self) -> str: ...

    def history_file(self) -> str:
        """Path of the history file of the same source; empty if there is none."""

    def state(self) -> LiveState: ...


Simulation = Callable[[], AbstractContextManager[FrameFeed]]
"""Starts a simulation; leaving the context ends it."""
FindDaemon = Callable[[], "FrameFeed | None"]
"""Returns the feed of a daemon, or None while no daemon runs."""
DAEMON_FOUND = "a daemon runs now: its samples are shown"
DAEMON_REPLACED = "another daemon runs now: its samples are shown"
SEARCH_EVERY = 3.0
"""Seconds between searches for a daemon."""
Past = Callable[[], Sequence["RunSummary"]]
"""Returns the runs of the ledger, newest first; may be slow."""


def merge_frames(sampled: Sequence[Frame], frames: Sequence[Frame]) -> list[Frame]:
    """Merge a daemon's frames with those the view sampled itself at times the daemon does not cover; oldest first."""
    times = [frame.monotonic_ns for frame in frames]

    def is_missing(frame: Frame) -> bool:
        time, interval = frame.monotonic_ns, frame.interval * SECOND
        index = bisect_left(times, time)
        return all(abs(time - covered) >= interval for covered in times[max(0, index - 1) : index + 1])

    return sorted([*filter(is_missing, sampled), *frames], key=lambda frame: frame.monotonic_ns)


class FrameSource:
    """The source on screen: this machine, a daemon, or a simulation the user has started."""

    def __init__(
        self, feed: FrameFeed, simulation: Simulation | None, past: Past | None, daemon: FindDaemon | None = None
    ) -> None:
        self.feed = feed
        self._default_feed = feed
        self._simulation = simulation
        self._running: AbstractContextManager[FrameFeed] | None = None
        self._past = past
        self._find_daemon = daemon
        self._search_at = SEARCH_EVERY
        self._last_source: tuple[FrameFeed, object] | None = None
        """The current feed, and the PID and start time of its writer if a new writer starts over (empty for
        hardware).
        """
        self._sampled_feed: FrameFeed | None = None
        """Frames that this view sampled itself before it found a daemon for the same machine."""

    @property
    def has_simulation(self) -> bool:
        """Whether a simulation is available."""
        return self._simulation is not None

    @property
    def is_simulated(self) -> bool:
        """Whether the current feed is a simulation."""
        return self._running is not None

    def since(self, number: int) -> list[Frame]:
        """Return the frames newer than `number`; for 0, all buffered frames, including those this view sampled
        itself.
        """
        frames = self.feed.since(number)
        if number or self._sampled_feed is None or self.is_simulated:
            return frames
        return merge_frames(self._sampled_feed.since(0), frames)

    def toggle_simulation(self) -> None:
        """Switch between the simulation and this machine."""
        if self.is_simulated:
            self.close()
        elif self._simulation is not None:
            running = self._simulation()
            self.feed = running.__enter__()
            self._running = running

    def check_source(self, now: float) -> str:
        """Check for a new source; return the message to show if the view must start over, else an empty string.

        `now`: s of any clock.

        The source changes when a daemon is found, or when another process has replaced the writer.
        """
        if self._has_found_daemon(now):
            return DAEMON_FOUND
        return DAEMON_REPLACED if self._has_been_replaced() else ""

    def _has_been_replaced(self) -> bool:
        """Whether the new writer's frames do not continue those of the previous writer; a daemon playing a
        simulation or recording starts over each time.
        """
        is_hardware, writer = Capability.LIVE in self.feed.origin().capabilities, self.feed.writer()
        if writer is None:
            return False
        identity = () if is_hardware else (writer.pid, writer.started)
        previous, self._last_source = self._last_source, (self.feed, identity)
        return previous is not None and previous[0] is self.feed and previous[1] != identity

    def _has_found_daemon(self, now: float) -> bool:
        if self._find_daemon is None or self.is_simulated or now < self._search_at:
            return False
        self._search_at = now + SEARCH_EVERY
        daemon_feed = self._find_daemon()
        if daemon_feed is None:
            return False
        is_same = all(Capability.LIVE in feed.origin().capabilities for feed in (self._default_feed, daemon_feed))
        self._sampled_feed = self._default_feed if is_same else None
        self.feed = self._default_feed = daemon_feed
        self._find_daemon = None
        return True

    def close(self) -> None:
        """End a simulation started here."""
        if self._running is not None:
            self._running.__exit__(None, None, None)
            self._running = None
            self.feed = self._default_feed

    def read_past(self, on_read: Callable[[Sequence[RunSummary]], None]) -> None:
        """Read the past runs once, in a background thread; `on_read` receives them in that thread."""
        read, self._past = self._past, None
        if read is not None:
            Thread(target=lambda: on_read(read()), name="gpumon-past", daemon=True).start()
