"""The last minutes of GPUs, by which they are judged while an hour of frames is taken in, the oldest first."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.analysis.gpu_state import Activity
from gpumon.common.numbers import NAN, is_known
from gpumon.diagnosis.live_findings import LOOK_BACK
from gpumon.model.frame import Frame
from gpumon.storage.history.buckets import ChartWindow


class LastMinutes:
    """Activity of GPUs by the newest frames, for as long as the older ones are not all taken in."""

    def __init__(self) -> None:
        self._activity: Activity | None = None

    def take(self, frames: Sequence[Frame]) -> None:
        """Take in the newest of these frames, up to the one on screen."""
        self._activity = self._activity or Activity()
        for frame in frames[-LOOK_BACK:]:
            self._activity.add(frame)

    def judged_by(self, whole: Activity, *, filling: bool) -> Activity:
        """Return that of all frames, once they are taken in; until then that of the last ones."""
        if not filling:
            self._activity = None
        return self._activity or whole


class ShownTime:
    """A window that the user moves. All times are in seconds since 1970, all lengths in seconds."""

    def __init__(self) -> None:
        self.chosen = 0
        """Length that the user chose; 0 until then."""
        self.chosen_before = 0
        """Length that the user chose last time, which is shown until then where history is as long; 0 for none."""
        self.end = NAN
        """Where the window ends in the past; NaN while it ends now."""
        self.cursor = NAN
        """The moment that is read out; NaN for none."""

    @property
    def is_past(self) -> bool:
        """Whether the window stands still, and ends before now."""
        return is_known(self.end)

    def to_now(self) -> None:
        """End now again, as long as before, without a cursor."""
        self.end = self.cursor = NAN

    def state(self) -> tuple[int, float, float]:
        """Return what the user has chosen, for `restore`."""
        return self.chosen, self.end, self.cursor

    def restore(self, state: tuple[int, float, float]) -> None:
        """Show what was shown before."""
        self.chosen, self.end, self.cursor = state

    def point(self, time: float, window: int, begin: float, now: float) -> None:
        """Read out a moment, and move the window there if it does not hold it."""
        self.cursor = time
        end = self.end if self.is_past else now
        if not end - window <= time <= end:
            self.chosen = window
            self._end_at(time + window / 2, window, begin, now)

    def hold(self, end: float, window: int) -> None:
        """Stand still with the window that ends there; NaN: end now."""
        self.end, self.chosen = end, window

    def zoom(self, step: int, window: int, offered: Sequence[ChartWindow], begin: float, now: float) -> None:
        """Take the next shorter or longer one of `offered`: around its middle in the past, else up to now."""
        windows = [one.seconds for one in offered]
        place = (windows.index(window) if window in windows else len(windows)) + step
        self.take(windows[min(max(place, 0), len(windows) - 1)], window, begin, now)

    def take(self, chosen: int, window: int, begin: float, now: float) -> None:
        """Take another window than `window`: around its middle in the past, else up to now."""
        self.chosen = chosen
        if self.is_past:
            self._end_at(self.end + (self.chosen - window) / 2, self.chosen, begin, now)

    def pan(self, halves: float, window: int, begin: float, now: float) -> None:
        """Move by so many halves of the window, back as far as history goes from `begin`; forward until it is now."""
        self.chosen = window
        self._end_at((self.end if self.is_past else now) + halves * window / 2, window, begin, now)

    def _end_at(self, end: float, window: int, begin: float, now: float) -> None:
        earliest = begin + window
        self.end = max(end, earliest) if earliest < now and end < now else NAN
