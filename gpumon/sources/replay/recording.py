"""The source that plays a recording of gpumon: the same frames, at any speed."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.common.clock import SECOND, Clock
from gpumon.common.errors import SourceError
from gpumon.common.numbers import NAN
from gpumon.model.origin import RECORDED, Driver, Origin
from gpumon.model.units import clock as time_of_day
from gpumon.recording.codec import nanoseconds
from gpumon.recording.content import RecordedFrame
from gpumon.recording.playback import Playback, distance_ns, playback_origin, time_ns
from gpumon.recording.reader import RecordingReader
from gpumon.sources.base import Pace, Reading
from gpumon.sources.replay.format import BURST, check_speed

PAST = 600
"""After a seek, the frames of this many seconds before the new position are returned at once."""


class RecordingSource:
    """Plays a recording of `gpumon record`.

    Frames become due at their recorded intervals divided by `speed`. Their times and contents are unchanged. Playback
    does not wait for times in which the recorded machine was suspended or by which its clock was changed. `playback`
    pauses the source and seeks.
    """

    capabilities = RECORDED

    def __init__(self, path: str, *, speed: float = 1.0, clock: Clock, playback: Playback | None = None) -> None:
        """Open the file. Raises SourceError if it cannot be played, and UsageError for an invalid speed or portion.

        `speed`: seconds of the recording per second. `playback`: the portion to play, and the controls.
        """
        check_speed(speed)
        self._clock = clock
        self._speed = speed
        self._playback = playback or Playback()
        self._playback.can_seek = self._playback.can_pause = True
        self._playback.path = path
        self._current: RecordedFrame | None = None
        self._next: RecordedFrame | None = None
        self._due = 0
        self._position = 0
        """Time of the current frame (ns since 1970). `_due` is the time of the next frame."""
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
        """Seconds between two frames."""
        self.tick_period = self.interval / speed

    def origin(self) -> Origin:
        """Return the file name, recorded source, speed, whether the end was reached, and where the file is damaged."""
        ended = self._next is None
        return playback_origin(self._reader, self._current, ended=ended, speed=self._speed)

    def driver(self) -> Driver:
        """Return the driver of the recorded machine."""
        return self._current.context.driver if self._current else Driver()

    def read(self) -> Sequence[Reading]:
        """Return the frames that have become due, oldest first, at most `BURST`; none while paused or after the end."""
        seconds = self._playback.pop_seek()
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
            self._advance()
        playback = self._playback
        if playback.completed_seek[0] != playback.seeks and (self._next is None or self._due > self._position):
            playback.completed_seek = playback.seeks, self._current.frame.time if self._current else NAN
        playback.problem = self._reader.problem
        return readings

    def close(self) -> None:
        """Close the file. Nothing is read afterward."""
        self._next = None
        self._reader.close()

    def _play(self, target_ns: int, from_ns: int) -> None:
        """Continue at `target_ns`. Frames since `from_ns` are due immediately. Both times are in ns since 1970."""
        self._frames = self._reader.frames(from_ns, self._end)
        self._current = None
        self._next = next(self._frames, None)
        self._due = time_ns(self._next) if self._next else 0
        self._position = max(target_ns, self._due)

    def _check_begin(self) -> None:
        if self._next is None:
            last = time_of_day(self._reader.last_ns / SECOND)
            raise SourceError(self._reader.damage or f"{self._reader.name} ends at {last}: start earlier than that")

    def _advance(self) -> None:
        """Go to the next frame, and compute when it is due."""
        before, self._next = self._next, next(self._frames, None)
        if before is not None and self._next is not None:
            self._due += distance_ns(before.frame, self._next.frame)

    def _seek(self, seconds: float) -> None:
        first, last = max(self._begin, self._reader.first_ns), min(self._reader.last_ns, self._end)
        at = time_ns(self._current) if self._current else first
        target = min(max(at + round(seconds * SECOND), first), last)
        self._playback.seek_target = target / SECOND
        self._playback.seeks += 1  # set before the earlier frames are dropped, so that none is missed
        self._playback.on_seek()
        self._play(target, max(self._begin, target - PAST * SECOND))


def _reading(recorded: RecordedFrame) -> Reading:
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
