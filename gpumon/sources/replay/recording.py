"""The source that plays a recording of gpumon's own: the same frames, at any speed."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gpumon.common.clock import SECOND, Clock
from gpumon.common.errors import SourceError, UsageError
from gpumon.common.numbers import NAN
from gpumon.model.origin import RECORDED, Driver, Origin
from gpumon.model.units import clock as time_of_day
from gpumon.recording.codec import nanoseconds
from gpumon.recording.content import Recorded
from gpumon.recording.playback import Playback, apart_ns, origin_of, time_ns
from gpumon.recording.reader import RecordingReader
from gpumon.sources.base import Pace, Reading

BURST = 2000
"""Readings that one `read` gives at most, so that a high speed cannot stall the sampler."""
PAST = 600
"""Seconds before the place to which somebody went, which are shown with it at once."""


class RecordingSource:
    """A recording of `gpumon record`.

    Frames become due in their own spacing, divided by `speed`; they keep their times, and everything else. A clock that
    was set, or a machine that slept, makes nobody wait. `Playback` pauses it and takes it elsewhere.
    """

    capabilities = RECORDED

    def __init__(self, path: str, *, speed: float = 1.0, clock: Clock, playback: Playback | None = None) -> None:
        """Raises SourceError where it cannot be played, UsageError for a speed or a portion that makes no sense."""
        if not (math.isfinite(speed) and speed > 0):
            raise UsageError(f"invalid speed {speed:g}: give a number greater than 0, such as 10")
        self._clock = clock
        self._speed = speed
        self._playback = playback or Playback()
        self._playback.can_seek = self._playback.can_pause = True
        self._playback.path = path
        self._current: Recorded | None = None
        self._next: Recorded | None = None
        self._due = 0
        self._position = 0
        """ns since 1970, of what is shown now; and when the next frame is due."""
        self._reader = reader = RecordingReader(path)
        try:
            portion = self._playback.portion
            self._begin = portion.begin_ns(reader.first_ns)
            self._end = portion.end_ns(reader.first_ns)
            self._playback.begin = max(self._begin, reader.first_ns) / SECOND
            self._playback.end = min(self._end, reader.last_ns) / SECOND
            self._last = clock.monotonic()
            self._play(self._begin, self._begin)
            self._check_begin()
        except BaseException:
            reader.close()
            raise
        self.interval = reader.interval
        """Seconds from frame to frame."""
        self.tick_period = self.interval / speed

    def origin(self) -> Origin:
        """The file, what was recorded there, the speed, whether it has ended, and where it is damaged."""
        ended = self._next is None
        return origin_of(self._reader, self._current, ended=ended, speed=self._speed)

    def driver(self) -> Driver:
        """The driver of the machine that was recorded."""
        return self._current.context.driver if self._current else Driver()

    def read(self) -> Sequence[Reading]:
        """Every frame that has become due, oldest first, at most `BURST`; nothing while paused, or after the end."""
        seconds = self._playback.take_seek()
        if seconds:
            self._seek(seconds)
        now = self._clock.monotonic()
        if not self._playback.is_paused:
            self._position += round(min((now - self._last) * self._speed, float(1 << 62)))
        self._last = now
        readings: list[Reading] = []
        while self._next is not None and self._due <= self._position and len(readings) < BURST:
            self._current = self._next
            readings.append(_reading(self._next))
            self._following()
        playback = self._playback
        if playback.arrived[0] != playback.turns and (self._next is None or self._due > self._position):
            playback.arrived = playback.turns, self._current.frame.time if self._current else NAN
        playback.problem = self._reader.problem
        return readings

    def close(self) -> None:
        """Let go of the file; nothing more is read."""
        self._next = None
        self._reader.close()

    def _play(self, place_ns: int, from_ns: int) -> None:
        """Go on at `place_ns`; what was recorded since `from_ns` is due at once."""
        self._frames = self._reader.frames(from_ns, self._end)
        self._current = None
        self._next = next(self._frames, None)
        self._due = time_ns(self._next) if self._next else 0
        self._position = max(place_ns, self._due)

    def _check_begin(self) -> None:
        if self._next is None:
            last = time_of_day(self._reader.last_ns / SECOND)
            raise SourceError(self._reader.damage or f"{self._reader.name} ends at {last}: start earlier than that")

    def _following(self) -> None:
        """The next frame, and when it is due."""
        before, self._next = self._next, next(self._frames, None)
        if before is not None and self._next is not None:
            self._due += apart_ns(before.frame, self._next.frame)

    def _seek(self, seconds: float) -> None:
        first, last = max(self._begin, self._reader.first_ns), min(self._reader.last_ns, self._end)
        at = time_ns(self._current) if self._current else first
        place = min(max(at + round(seconds * SECOND), first), last)
        self._playback.place = place / SECOND
        self._playback.turns += 1  # before the frames of before are gone: nobody misses them
        self._playback.renew()
        self._play(place, max(self._begin, place - PAST * SECOND))


def _reading(recorded: Recorded) -> Reading:
    frame = recorded.frame
    pace = Pace(
        interval_ns=round(frame.interval * SECOND),
        sample_duration_ns=round(frame.sample_duration * SECOND),
        skipped_ticks=frame.skipped_ticks,
        dropped=frame.dropped,
        dropped_runs=frame.dropped_runs,
    )
    return Reading(
        frame.monotonic_ns,
        nanoseconds(frame.time),
        frame.samples,
        frame.processes,
        frame.runs,
        frame.boundaries,
        frame.host,
        recorded.context.hostname,
        pace=pace,
    )
