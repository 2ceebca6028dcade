"""Frames on their way into what the view knows: an hour of them in small steps, between which keys are answered."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from time import monotonic

from gpumon.model.frame import Frame
from gpumon_tui.view import TAKES, View


class Intake:
    """Frames that have come, and that the view's history does not have yet."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._waiting: deque[Frame] = deque()
        self._was_behind = False
        """Whether the last step left frames."""
        self.takes = TAKES
        """Seconds that one step may last; it takes in one frame at least."""

    def forget(self) -> None:
        """Drop what waits, as where frames of another source come."""
        self._waiting.clear()
        self._was_behind = False

    @property
    def is_behind(self) -> bool:
        """Whether frames wait."""
        return bool(self._waiting)

    def add(self, frames: Sequence[Frame]) -> None:
        """Let frames wait, and show the newest of them.

        A recording that plays fast may have them come faster than they are taken in. Its picture is that of the last
        that has been, so that no chart ends before the values beside it.
        """
        view = self._view
        self._waiting.extend(frames)
        if view.frame is None or not view.plays:
            view.frame = frames[-1]

    def take(self) -> bool:
        """Take in waiting frames for a moment; return whether none waits any more, and some did after the last one."""
        view, until = self._view, monotonic() + self.takes
        while self._waiting:
            frame = self._waiting.popleft()
            view.add(frame)
            if self._is_newer(frame):
                view.frame = frame
            if monotonic() >= until:
                break
        view.filling = self.is_behind and not self._is_newer(self._waiting[0])
        was_behind, self._was_behind = self._was_behind, self.is_behind
        return was_behind and not self.is_behind

    def _is_newer(self, frame: Frame) -> bool:
        """Whether a frame is one that a recording has not shown yet."""
        shown = self._view.frame
        return self._view.plays and shown is not None and frame.number > shown.number
