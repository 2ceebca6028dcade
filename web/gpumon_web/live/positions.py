"""Pages at positions of their own in a recording: who pauses or seeks there moves nobody else.

A position comes with each question, and an answer depends on it alone. The feeds of the last positions are kept, so
that a viewer who plays on is given what is new; none of that changes what another one sees.
"""

from __future__ import annotations

from collections.abc import Sequence
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

KEPT = 6
"""Positions of which the feeds are kept: each weighs some MB."""
MISSING = "At a position of your own, only the runs of its moment are known: press Rejoin for all that was played."


class RecordedPlace(NamedTuple):
    """A position that somebody looks at."""

    frames: RecordedFrames
    feed: Feed
    views: PageFeed
    runs: Runs


class RecordedFrames:
    """The frames of a recording up to a position, as a feed takes them."""

    def __init__(self, positions: Positions) -> None:
        self._positions = positions
        self._excerpt = Excerpt((), None)

    def move(self, excerpt: Excerpt) -> None:
        """Give the frames of `excerpt` from now on."""
        self._excerpt = excerpt

    def since(self, number: int) -> Sequence[Frame]:
        """Frames newer than `number`, oldest first."""
        return [one.frame for one in self._excerpt.frames if one.frame.number > number]

    def let_go(self) -> None:
        """Keep the frame that is shown alone: a feed has taken in all others, which weigh much more in objects."""
        self._excerpt = self._excerpt._replace(frames=self._excerpt.frames[-1:])

    def state(self) -> LiveState:
        """Whether anything follows; no frame is older here than it is meant to be."""
        interval = self._current.frame.interval
        ended = self._excerpt.following is None
        return LiveState(False, ENDED, interval) if ended else LiveState(True, "replayed", interval)

    def origin(self) -> Origin:
        """The file, and where it is damaged."""
        return playback_origin(self._positions.reader, self._current, ended=self._excerpt.following is None)

    def driver(self) -> Driver:
        """The driver of the machine that was recorded."""
        return self._current.context.driver

    def hostname(self) -> str:
        """Its name."""
        return self._current.context.hostname

    def history_file(self) -> str:
        """Nothing is kept of it elsewhere."""
        return ""

    def play(self) -> Cells:
        """The way from the frame that is shown to the next one, for a player: `wait` seconds, to the time `next`."""
        following = self._excerpt.following
        if following is None or time_ns(following) <= time_ns(self._current):  # a clock was set back
            return {"next": None, "wait": None}
        wait = distance_ns(self._current.frame, following.frame) / SECOND
        return {"next": ceil(following.frame.time * 1000) / 1000, "wait": round(wait, 6)}

    @property
    def _current(self) -> RecordedFrame:
        return self._excerpt.frames[-1]


class Recording:
    """The recording of a server, at any position. Safe to use from several threads."""

    def __init__(
        self, positions: Positions, speed: float = 1.0, people: People = EVERYBODY, colors: PersonColors | None = None
    ) -> None:  # fmt: skip
        self._colors = colors or PersonColors()
        self._positions = positions
        self._people = people
        self._speed = speed
        self._places: list[RecordedPlace] = []
        self._lock = Lock()

    def at(self, position: float, boot: str = "") -> RecordedPlace:
        """Return the place at a position (s since 1970), for a viewer who has seen `boot`.

        Raises SourceError where the recording has no frame any more.
        """
        position_ns = round(position * SECOND)
        with self._lock:
            known = next((place for place in self._places if place.feed.boot == boot), None)
            newest = known.feed.newest if known else 0
            excerpt = self._positions.at(position_ns, newest)
            if known and excerpt.number >= newest and excerpt.frames[0].frame.number in (newest, newest + 1):
                found: RecordedPlace | None = known
            else:
                found = next((one for one in self._places if one.feed.newest == excerpt.number), None)
            if found is None:
                found = self._begun()
            else:
                self._places.remove(found)
            self._places = [*self._places[1 - KEPT :], found]
            with found.feed.lock:
                found.frames.move(excerpt)
                found.feed.refresh()
                found.frames.let_go()
            return found

    def extent(self) -> Cells:
        """The recording for its player: its first and last position, its speed, and why it ends too early."""
        positions = self._positions
        return {
            "begin": positions.begin_ns / SECOND,
            "end": positions.end_ns / SECOND,
            "speed": self._speed,
            "problem": positions.reader.problem,
        }

    def close(self) -> None:
        """Let go of the file."""
        self._positions.close()

    def _begun(self) -> RecordedPlace:
        frames = RecordedFrames(self._positions)

        def play() -> dict[str, Any]:
            return {**self.extent(), "own": True, **frames.play()}

        feed = Feed(named_frames(frames, self._people), play, keep=MAX_PAST_FRAMES)

        def now() -> float:
            return feed.frame.time if feed.frame else 0.0

        return RecordedPlace(frames, feed, PageFeed(feed, self._colors), Runs(feed, list, now, missing=MISSING))
