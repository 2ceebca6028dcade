"""The controls of a recording that plays: a view sets them, the source obeys, each in its own thread."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

from gpumon.common.numbers import NAN
from gpumon.recording.portion import Portion


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
