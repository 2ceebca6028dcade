"""The time window of the charts (`ShownTime`), and GPU activity of the last minutes while older history is still
loading (`LastMinutes`).
"""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.analysis.gpu_state import Activity
from gpumon.common.numbers import NAN, is_known
from gpumon.diagnosis.live_findings import LOOK_BACK
from gpumon.model.frame import Frame
from gpumon.storage.history.buckets import ChartWindow


class LastMinutes:
    """GPU activity of the newest frames, used while older frames are still loading."""

    def __init__(self) -> None:
        self._activity: Activity | None = None

    def take(self, frames: Sequence[Frame]) -> None:
        """Add the newest of these frames, up to the one on screen."""
        self._activity = self._activity or Activity()
        for frame in frames[-LOOK_BACK:]:
            self._activity.add(frame)

    def judged_by(self, whole: Activity, *, filling: bool) -> Activity:
        """Return the activity of all frames once they are loaded; before that, the activity of the last minutes."""
        if not filling:
            self._activity = None
        return self._activity or whole


class ShownTime:
    """The time window that the user can move. Times are in s since 1970, lengths in s."""

    def __init__(self) -> None:
        self.chosen = 0
        """Length chosen by the user; 0 if none was chosen."""
        self.chosen_before = 0
        """Length chosen in the last session, used until the user chooses one, up to the length of the history; 0 for
        none.
        """
        self.end = NAN
        """End of a window in the past; NaN while it ends now."""
        self.cursor = NAN
        """Time of the cursor; NaN for none."""

    @property
    def is_past(self) -> bool:
        """Whether the window is fixed in the past."""
        return is_known(self.end)

    def to_now(self) -> None:
        """Return to the present, with the same length and without a cursor."""
        self.end = self.cursor = NAN

    def state(self) -> tuple[int, float, float]:
        """Return the user's choices, for `restore`."""
        return self.chosen, self.end, self.cursor

    def restore(self, state: tuple[int, float, float]) -> None:
        """Restore choices returned by `state`."""
        self.chosen, self.end, self.cursor = state

    def point(self, time: float, window: int, begin: float, now: float) -> None:
        """Set the cursor, and move the window if it does not contain that time."""
        self.cursor = time
        end = self.end if self.is_past else now
        if not end - window <= time <= end:
            self.chosen = window
            self._end_at(time + window / 2, window, begin, now)

    def hold(self, end: float, window: int) -> None:
        """Fix the window with the given end; NaN: follow the present."""
        self.end, self.chosen = end, window

    def zoom(self, step: int, window: int, offered: Sequence[ChartWindow], begin: float, now: float) -> None:
        """Choose the next shorter or longer of the `offered` windows, aligned as in `take`."""
        windows = [one.seconds for one in offered]
        place = (windows.index(window) if window in windows else len(windows)) + step
        self.take(windows[min(max(place, 0), len(windows) - 1)], window, begin, now)

    def take(self, chosen: int, window: int, begin: float, now: float) -> None:
        """Change the length from `window` to `chosen`.

        A window in the past keeps its middle; one that ends now keeps its end.
        """
        self.chosen = chosen
        if self.is_past:
            self._end_at(self.end + (self.chosen - window) / 2, self.chosen, begin, now)

    def pan(self, halves: float, window: int, begin: float, now: float) -> None:
        """Move by half windows, no further back than `begin` of the history.

        A window that reaches the present follows it again.
        """
        self.chosen = window
        self._end_at((self.end if self.is_past else now) + halves * window / 2, window, begin, now)

    def _end_at(self, end: float, window: int, begin: float, now: float) -> None:
        earliest = begin + window
        self.end = max(end, earliest) if earliest < now and end < now else NAN
