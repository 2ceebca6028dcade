"""Pages at a viewer's own position in a recording: pausing or seeking does not affect other viewers.

Each request includes the position, and the answer depends only on it. The feeds of recent positions are cached, so that
a viewer who keeps playing only gets the changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from threading import Lock
from typing import Any, NamedTuple

from gpumon.common.clock import SECOND
from gpumon.common.privacy import EVERYBODY, People
from gpumon.live import ENDED, LiveState
from gpumon.model.frame import Frame
from gpumon.model.origin import Driver, Origin
from gpumon.recording.content import RecordedFrame
from gpumon.recording.playback import distance_ns, playback_origin, time_ns
from gpumon.recording.positions import MAX_PAST_FRAMES, Excerpt, Positions
from gpumon_web.components.page import Cells
from gpumon_web.components.person_colors import PersonColors
from gpumon_web.feed import Feed
from gpumon_web.live.runs import Runs
from gpumon_web.live.values import PageFeed
from gpumon_web.names import named_frames

MAX_CACHED = 6
"""Number of positions whose feeds are cached; each takes a few MB."""
MISSING = "At a position of your own, only the runs of its moment are known: press Rejoin for all that was played."


class RecordedPosition(NamedTuple):
    """A position with its feed and pages."""

    frames: RecordedFrames
    feed: Feed
    views: PageFeed
    runs: Runs


class RecordedFrames:
    """The frames of a recording up to a position, for a feed (`feed.Frames`)."""

    def __init__(self, positions: Positions) -> None:
        self._positions = positions
        self._excerpt = Excerpt((), None)

    def move(self, excerpt: Excerpt) -> None:
        """Switch to the frames of `excerpt`."""
        self._excerpt = excerpt

    def since(self, number: int) -> Sequence[Frame]:
        """Return the frames newer than `number`, oldest first."""
        return [recorded.frame for recorded in self._excerpt.frames if recorded.frame.number > number]

    def trim(self) -> None:
        """Drop all frames but the current one, because the feed has read them and stores them more compactly."""
        self._excerpt = replace(self._excerpt, frames=self._excerpt.frames[-1:])

    def state(self) -> LiveState:
        """Return whether the recording continues. Data is never late here."""
        interval = self._current.frame.interval
        ended = self._excerpt.following is None
        return LiveState(False, ENDED, interval) if ended else LiveState(True, "replayed", interval)

    def origin(self) -> Origin:
        """Return the file as origin, including where it is damaged."""
        return playback_origin(self._positions.reader, self._current, ended=self._excerpt.following is None)

    def driver(self) -> Driver:
        """Return the driver of the recorded machine."""
        return self._current.context.driver

    def hostname(self) -> str:
        """Return the host name of the recorded machine."""
        return self._current.context.hostname

    def history_file(self) -> str:
        """Return an empty path: a recording has no history file."""
        return ""

    def play(self) -> Cells:
        """Return, for the player, the time of the next frame (`next`) and the seconds until it (`wait`)."""
        following = self._excerpt.following
        if following is None or time_ns(following) <= time_ns(self._current):  # the clock was set back
            return {"next": None, "wait": None}
        wait = distance_ns(self._current.frame, following.frame) / SECOND
        return {"next": ceil(following.frame.time * 1000) / 1000, "wait": round(wait, 6)}

    @property
    def _current(self) -> RecordedFrame:
        return self._excerpt.frames[-1]


class Recording:
    """The server's recording, at any position. Thread-safe."""

    def __init__(
        self, positions: Positions, speed: float = 1.0, people: People = EVERYBODY, colors: PersonColors | None = None
    ) -> None:  # fmt: skip
        self._colors = colors or PersonColors()
        self._positions = positions
        self._people = people
        self._speed = speed
        self._cached: list[RecordedPosition] = []
        self._lock = Lock()

    def at(self, position: float, boot: str = "") -> RecordedPosition:
        """Return the feed and pages at a position (s since 1970), for a viewer whose last answer was from `boot`.

        Raises SourceError if the recording no longer has any frame.
        """
        position_ns = round(position * SECOND)
        with self._lock:
            previous = next((cached for cached in self._cached if cached.feed.boot == boot), None)
            newest = previous.feed.newest if previous else 0
            excerpt = self._positions.at(position_ns, newest)
            if previous and excerpt.number >= newest and excerpt.frames[0].frame.number in (newest, newest + 1):
                match: RecordedPosition | None = previous
            else:
                match = next((cached for cached in self._cached if cached.feed.newest == excerpt.number), None)
            if match is None:
                match = self._open()
            else:
                self._cached.remove(match)
            self._cached = [*self._cached[1 - MAX_CACHED :], match]
            with match.feed.lock:
                match.frames.move(excerpt)
                match.feed.refresh()
                match.frames.trim()
            return match

    def extent(self) -> Cells:
        """Return the data of the player: first and last position, speed, and the problem if the file is damaged."""
        positions = self._positions
        return {
            "begin": positions.begin_ns / SECOND,
            "end": positions.end_ns / SECOND,
            "speed": self._speed,
            "problem": positions.reader.problem,
        }

    def close(self) -> None:
        """Close the file."""
        self._positions.close()

    def _open(self) -> RecordedPosition:
        frames = RecordedFrames(self._positions)

        def play() -> dict[str, Any]:
            return {**self.extent(), "own": True, **frames.play()}

        feed = Feed(named_frames(frames, self._people), play, keep=MAX_PAST_FRAMES)

        def now() -> float:
            return feed.frame.time if feed.frame else 0.0

        return RecordedPosition(frames, feed, PageFeed(feed, self._colors), Runs(feed, list, now, missing=MISSING))
