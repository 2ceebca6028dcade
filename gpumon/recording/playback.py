"""The controls of a recording that plays: a view sets them, the source obeys, each in its own thread."""

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
    """The file, what was recorded at `current`, whether it has ended, where it is damaged; it plays at `speed`."""
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
    """ns since 1970."""
    return nanoseconds(recorded.frame.time)


def apart_ns(before: Frame, after: Frame) -> int:
    """ns between two frames, by the clock that says less: one may have been set, the other begun anew with a boot."""
    ways = (after.monotonic_ns - before.monotonic_ns, nanoseconds(after.time) - nanoseconds(before.time))
    return min((way for way in ways if way >= 0), default=0)


LAST = 1 << 62
_TIMES = ("%H:%M", "%H:%M:%S")
_DATES = tuple(f"%Y-%m-%d{between}{time}" for between in (" ", "T") for time in _TIMES)
_HOW = "write a time of day (14:03), a date and a time (2026-11-22 14:03), or a duration from its beginning (10m)"


class Portion(NamedTuple):
    """Begin and end of playing, as texts; empty for the recording's own beginning and end."""

    begin: str = ""
    end: str = ""

    def checked(self) -> Portion:
        """The same. Raises UsageError for what is no moment."""
        for text in filter(None, self):
            _moment(text, 0)
        return self

    def begin_ns(self, first_ns: int) -> int:
        """ns since 1970, of a recording that begins at `first_ns`."""
        return _moment(self.begin, first_ns) if self.begin else 0

    def end_ns(self, first_ns: int) -> int:
        """ns since 1970, of a recording that begins at `first_ns`. Raises UsageError where it ends before it begins."""
        end = _moment(self.end, first_ns) if self.end else LAST
        if end <= self.begin_ns(first_ns):
            raise UsageError(f"--to {self.end} is not after --from {self.begin}: give a later moment")
        return end


WHOLE = Portion()


def _moment(text: str, first_ns: int) -> int:
    """ns since 1970. A time of day is the first such one of the recording, by this machine's time zone."""
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
    """State of a recording that plays: its portion, whether it is paused, where it continues."""

    def __init__(self, portion: Portion | None = None) -> None:
        self.portion = portion or Portion()
        self.is_paused = False
        """Set by a view: nothing becomes due."""
        self.can_seek = False
        """Set by a source that is able to."""
        self.can_pause = False
        """The same of standing still."""
        self.begin = self.end = NAN
        """Set by a source: the first and the last moment that is played (s since 1970); NaN while it is unknown."""
        self.path = ""
        """Set by the same: the file, for those who look at other moments of it meanwhile."""
        self.turns = 0
        """Counts the times that it went elsewhere."""
        self.place = NAN
        """Set by a source that goes elsewhere: the moment to which it goes (s since 1970)."""
        self.arrived: tuple[int, float] = 0, NAN
        """Set by the same: the last turn of which all frames up to its place have been read, and the time of the last
        of them (s since 1970), NaN where there is none."""
        self.renew: Callable[[], object] = lambda: None
        """Called by the source before frames that do not follow those before: they need a history of their own."""
        self.problem = ""
        """Set by a source: why the recording ends too early, and how far it plays, in a sentence."""
        self._lock = Lock()
        self._seconds = 0.0

    def seek(self, seconds: float) -> None:
        """Ask for another place, so many seconds of the recording after the one that plays; before it, if negative."""
        with self._lock:
            self._seconds += seconds

    def take_seek(self) -> float:
        """The seconds that were asked for since this was called last."""
        with self._lock:
            seconds, self._seconds = self._seconds, 0.0
        return seconds
