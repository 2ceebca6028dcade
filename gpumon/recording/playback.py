"""Playback of a recording: the part to play, and the state that the view and the source share."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from threading import Lock
from typing import NamedTuple

from gpumon.common.clock import SECOND, seconds
from gpumon.common.errors import UsageError
from gpumon.common.numbers import NAN
from gpumon.model.frame import Frame
from gpumon.model.origin import RECORDED, Capability, Origin
from gpumon.model.units import clock
from gpumon.recording.codec import nanoseconds
from gpumon.recording.content import FULL, VALUES, RecordedFrame
from gpumon.recording.reader import RecordingReader


def playback_origin(
    reader: RecordingReader, current: RecordedFrame | None, *, ended: bool, speed: float = 1.0
) -> Origin:  # fmt: skip
    """Return the origin for frames of a recording. Its label names the file, the recorded source, damage and speed.

    `current`: the frame that is currently shown. Its recorded origin is used. `ended`: whether the recording was played
    to its end.
    """
    recorded = current.context.origin if current else Origin("")
    part = current.context.part if current else FULL
    remarks = [recorded.label] if recorded.label else []
    if part != FULL:
        remarks.append("values only" if part == VALUES else part)
    if reader.is_anonymized:
        remarks.append("anonymized")
    if reader.damage:
        remarks.append(f"damaged after {clock(reader.last_ns / SECOND)}")
    state = " ended" if ended else f" ×{speed:g}" if speed != 1 else ""
    label = f"REPLAY {reader.name}{state}" + (f" ({', '.join(remarks)})" if remarks else "")
    capabilities = RECORDED
    if part == FULL:
        capabilities |= recorded.capabilities & Capability.PROCESSES
    return Origin("replay", label, recorded.problem, ended=ended, capabilities=capabilities, speed=speed)


def time_ns(recorded: RecordedFrame) -> int:
    """Return the time of a frame in ns since 1970."""
    return nanoseconds(recorded.frame.time)


def distance_ns(before: Frame, after: Frame) -> int:
    """Return the time between two frames in ns, which is the smaller of the differences by the two clocks.

    Negative differences are ignored. The wall clock may have been set between the frames, and CLOCK_MONOTONIC starts
    again when the machine reboots.
    """
    distances = (after.monotonic_ns - before.monotonic_ns, nanoseconds(after.time) - nanoseconds(before.time))
    return min((distance for distance in distances if distance >= 0), default=0)


MAX_NS = 1 << 62
"""A time (ns since 1970) after the end of any recording."""
_TIMES = ("%H:%M", "%H:%M:%S")
_DATES = tuple(f"%Y-%m-%d{separator}{time}" for separator in (" ", "T") for time in _TIMES)
_HINT = "write a time of day (14:03), a date and a time (2026-11-22 14:03), or a duration from its beginning (10m)"


class Portion(NamedTuple):
    """Start and end of the part to play, as the user typed them.

    If one is empty, the start or end of the recording is used.
    """

    begin: str = ""
    end: str = ""

    def checked(self) -> Portion:
        """Return this object if it is valid. Raises UsageError if start or end is not a time."""
        for text in filter(None, self):
            _parse_time(text, 0)
        return self

    def begin_ns(self, first_ns: int) -> int:
        """Return the start in ns since 1970, for a recording whose first frame is at `first_ns`."""
        return _parse_time(self.begin, first_ns) if self.begin else 0

    def end_ns(self, first_ns: int) -> int:
        """Return the end in ns since 1970, for a recording whose first frame is at `first_ns`.

        Raises UsageError if the end is not after the start.
        """
        end = _parse_time(self.end, first_ns) if self.end else MAX_NS
        if end <= self.begin_ns(first_ns):
            raise UsageError(f"--to {self.end} is not after --from {self.begin}: give a later time")
        return end


WHOLE = Portion()


def _parse_time(text: str, first_ns: int) -> int:
    """Return a time that a user typed, in ns since 1970.

    A time of day is local time. It means the first occurrence of this time after `first_ns`, the time of the first
    frame.
    """
    for pattern in _DATES:
        try:
            return round(datetime.strptime(text, pattern).timestamp() * SECOND)
        except ValueError:
            continue
    for pattern in _TIMES:
        try:
            time = datetime.strptime(text, pattern)
        except ValueError:
            continue
        first = datetime.fromtimestamp(first_ns // SECOND)
        then = first.replace(hour=time.hour, minute=time.minute, second=time.second)
        return round((then if then >= first else then + timedelta(days=1)).timestamp() * SECOND)
    try:
        length = seconds(text)
    except UsageError:
        length = -1.0
    if not 0 <= length < 1e9:
        raise UsageError(f"'{text}' is not a time in a recording: {_HINT}")
    return first_ns + round(length * SECOND)


class Playback:
    """State of a recording that is being played. The view and the source share it."""

    def __init__(self, portion: Portion | None = None) -> None:
        self.portion = portion or Portion()
        self.is_paused = False
        """True while playback is paused. Set by the view."""
        self.can_seek = False
        """True if the source can seek. Set by the source."""
        self.can_pause = False
        """True if the source can pause. Set by the source."""
        self.begin = self.end = NAN
        """Start and end of playback (s since 1970); NaN until the source sets them."""
        self.path = ""
        """Path of the file, so that views can show other times of the recording. Set by the source."""
        self.seeks = 0
        """Number of seeks so far. Set by the source."""
        self.seek_target = NAN
        """Target of the last seek (s since 1970). Set by the source."""
        self.completed_seek: tuple[int, float] = 0, NAN
        """Number of the last completed seek, and the time of the last frame that was read for it (s since 1970; NaN if
        there is no such frame). Set by the source."""
        self.on_seek: Callable[[], object] = lambda: None
        """Function that the source calls after a seek, because the next frames do not continue the previous frames."""
        self.problem = ""
        """Sentence that says why the recording ends early and up to which time it can be played. Set by the source."""
        self._lock = Lock()
        self._seconds = 0.0

    def seek(self, seconds: float) -> None:
        """Request a jump by this many seconds of recorded time. A negative number jumps backwards."""
        with self._lock:
            self._seconds += seconds

    def pop_seek(self) -> float:
        """Return the sum of the jumps (s) that were requested since the last call, and reset it to 0."""
        with self._lock:
            seconds, self._seconds = self._seconds, 0.0
        return seconds
