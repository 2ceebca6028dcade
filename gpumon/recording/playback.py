"""Playback of a recording: its state and controls, set by a view and read by the source, and the portion to play."""

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
from gpumon.recording.content import FULL, VALUES, Recorded
from gpumon.recording.reader import RecordingReader


def origin_of(reader: RecordingReader, current: Recorded | None, *, ended: bool, speed: float = 1.0) -> Origin:
    """Return the origin of a recording that plays: the file, what was recorded at `current`, end, damage and speed."""
    told = current.context.origin if current else Origin("")
    part = current.context.part if current else FULL
    remarks = [told.label] if told.label else []
    if part != FULL:
        remarks.append("values only" if part == VALUES else part)
    if reader.is_anonymized:
        remarks.append("anonymized")
    if reader.damage:
        remarks.append(f"damaged after {clock(reader.last_ns / SECOND)}")
    how = " ended" if ended else f" ×{speed:g}" if speed != 1 else ""
    label = f"REPLAY {reader.name}{how}" + (f" ({', '.join(remarks)})" if remarks else "")
    capabilities = RECORDED
    if part == FULL:
        capabilities |= told.capabilities & Capability.PROCESSES
    return Origin("replay", label, told.problem, ended=ended, capabilities=capabilities, speed=speed)


def time_ns(recorded: Recorded) -> int:
    """Return the time of a frame, ns since 1970."""
    return nanoseconds(recorded.frame.time)


def apart_ns(before: Frame, after: Frame) -> int:
    """Return the ns between two frames by the clock with the smaller difference.

    The wall clock may have been set, and the monotonic clock restarts with a boot.
    """
    ways = (after.monotonic_ns - before.monotonic_ns, nanoseconds(after.time) - nanoseconds(before.time))
    return min((way for way in ways if way >= 0), default=0)


LAST = 1 << 62
_TIMES = ("%H:%M", "%H:%M:%S")
_DATES = tuple(f"%Y-%m-%d{between}{time}" for between in (" ", "T") for time in _TIMES)
_HOW = "write a time of day (14:03), a date and a time (2026-11-22 14:03), or a duration from its beginning (10m)"


class Portion(NamedTuple):
    """Begin and end of the part to play, as texts; empty for those of the recording."""

    begin: str = ""
    end: str = ""

    def checked(self) -> Portion:
        """Return this portion. Raises UsageError for a text that is no time."""
        for text in filter(None, self):
            _moment(text, 0)
        return self

    def begin_ns(self, first_ns: int) -> int:
        """Return the begin in ns since 1970, for a recording that begins at `first_ns`."""
        return _moment(self.begin, first_ns) if self.begin else 0

    def end_ns(self, first_ns: int) -> int:
        """Return the end as `begin_ns` does. Raises UsageError for an end before the begin."""
        end = _moment(self.end, first_ns) if self.end else LAST
        if end <= self.begin_ns(first_ns):
            raise UsageError(f"--to {self.end} is not after --from {self.begin}: give a later moment")
        return end


WHOLE = Portion()


def _moment(text: str, first_ns: int) -> int:
    """Return a time in ns since 1970; a time of day is local, and means its first occurrence in the recording."""
    for form in _DATES:
        try:
            return round(datetime.strptime(text, form).timestamp() * SECOND)
        except ValueError:
            continue
    for form in _TIMES:
        try:
            time = datetime.strptime(text, form)
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
        raise UsageError(f"'{text}' is no moment of a recording: {_HOW}")
    return first_ns + round(length * SECOND)


class Playback:
    """State of a recording that plays, shared by a view and the source."""

    def __init__(self, portion: Portion | None = None) -> None:
        self.portion = portion or Portion()
        self.is_paused = False
        """Set by a view to pause."""
        self.can_seek = False
        """Set by a source that can seek."""
        self.can_pause = False
        """Set by a source that can pause."""
        self.begin = self.end = NAN
        """Set by a source: begin and end of playback (s since 1970); NaN while unknown."""
        self.path = ""
        """Set by a source: the file, for views of other times of the recording."""
        self.turns = 0
        """Number of seeks."""
        self.place = NAN
        """Set by a source: target of the last seek (s since 1970)."""
        self.arrived: tuple[int, float] = 0, NAN
        """Set by a source: number of the last completed seek, and the time of the last frame read for it (s since
        1970; NaN if there is none)."""
        self.renew: Callable[[], object] = lambda: None
        """Called by the source after a seek: the next frames do not continue the previous ones."""
        self.problem = ""
        """Set by a source: sentence that says why the recording ends early and how far it plays."""
        self._lock = Lock()
        self._seconds = 0.0

    def seek(self, seconds: float) -> None:
        """Request a jump by this many seconds of the recording, backwards if negative."""
        with self._lock:
            self._seconds += seconds

    def take_seek(self) -> float:
        """Return and clear the seconds requested since the last call."""
        with self._lock:
            seconds, self._seconds = self._seconds, 0.0
        return seconds
