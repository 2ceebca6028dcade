"""Adds new frames to the view's state in small steps, so that loading an hour of history does not block the keys;
also handles seeking in recordings.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from time import monotonic

from gpumon.common.numbers import is_known
from gpumon.live import LiveState
from gpumon.model import units
from gpumon.model.frame import Frame
from gpumon.model.origin import Capability
from gpumon_tui import theme
from gpumon_tui.feed import FrameFeed, Player
from gpumon_tui.freshness import Freshness
from gpumon_tui.state import MAX_STEP_SECONDS, View


class FrameQueue:
    """Queue of frames that have arrived but are not yet part of the view's history."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._waiting: deque[Frame] = deque()
        self._was_behind = False
        """Whether the last step left frames in the queue."""
        self.step_seconds = MAX_STEP_SECONDS
        """Maximum duration of a step in seconds; each step processes at least one frame."""

    def forget(self) -> None:
        """Clear the queue, for example when the source changes."""
        self._waiting.clear()
        self._was_behind = False

    @property
    def is_behind(self) -> bool:
        """Whether the queue is not empty."""
        return bool(self._waiting)

    def add(self, frames: Sequence[Frame]) -> None:
        """Queue frames, and show the newest of them.

        A recording played fast can deliver frames faster than they are processed. The frame on screen is then the last
        processed one, so that charts do not end before the values next to them.
        """
        view = self._view
        self._waiting.extend(frames)
        if view.frame is None or not view.plays_recording:
            view.frame = frames[-1]

    def process(self) -> bool:
        """Process queued frames for a short time; return True if this emptied a queue that the previous step had
        not.
        """
        view, deadline = self._view, monotonic() + self.step_seconds
        while self._waiting:
            frame = self._waiting.popleft()
            view.add(frame)
            if self._is_newer(frame):
                view.frame = frame
            if monotonic() >= deadline:
                break
        view.is_loading = self.is_behind and not self._is_newer(self._waiting[0])
        was_behind, self._was_behind = self._was_behind, self.is_behind
        return was_behind and not self.is_behind

    def _is_newer(self, frame: Frame) -> bool:
        """Whether a recording has not shown this frame yet."""
        on_screen = self._view.frame
        return self._view.plays_recording and on_screen is not None and frame.number > on_screen.number


NO_SEEKING = "a log only plays on; see --from"
_MAX_SEEK_WAIT = 30.0
"""Seconds to wait for the frames of a seek; after that the available part is shown."""
_TIME_TOLERANCE = 0.001
"""Tolerance in seconds when comparing times of a frame, because one of them is stored in nanoseconds."""


class SeekState:
    """Seeking in the recording of a player, and the state of a seek in progress."""

    def __init__(self, view: View, player: Player | None) -> None:
        self._view, self._player = view, player
        self._seen_seeks = player.seeks if player else 0
        self._started = 0.0
        self.is_seeking = False
        """Whether the player has moved, but the screen does not show the new position yet."""

    def seek(self, seconds: int) -> None:
        """Seek by a number of seconds, or show why that is not possible."""
        view, player = self._view, self._player
        if player and player.can_seek:
            player.seek(seconds)
        elif player and Capability.NOW not in view.origin.capabilities:
            view.show_message(NO_SEEKING)

    def has_arrived(self, feed: FrameFeed) -> bool:
        """Return True once per seek, when all frames up to the new position have arrived."""
        player = self._player
        if player is None or player.seeks == self._seen_seeks:
            return False
        if not self.is_seeking:
            self.is_seeking, self._started = True, monotonic()
            self._view.show_message(self._text(player))
        if not _has_target(player, feed.state()) and monotonic() < self._started + _MAX_SEEK_WAIT:
            return False
        self.is_seeking, self._seen_seeks = False, player.seeks
        self._view.message = ""
        return True

    def is_holding(self) -> bool:
        """Whether cached answers of the ledger must be kept because the screen stands still.

        A paused recording is an exception: it adds nothing to its ledger, so answers still match the screen.
        """
        return self.is_seeking or (self._view.paused and not (self._player and self._player.is_paused))

    def adjust(self, current: Freshness) -> Freshness:
        """Return the freshness of the screen, replaced by "seeking" while a seek is in progress."""
        if not self.is_seeking or self._player is None:
            return current
        text = self._text(self._player)
        return current._replace(text=text, style=theme.WARN, mark="○", word="seeking", is_seeking=True)

    def _text(self, player: Player) -> str:
        return f"seeking to {units.clock(player.seek_target)}"


def _has_target(player: Player, state: LiveState) -> bool:
    seek, last_time = player.completed_seek
    return seek == player.seeks and (not is_known(last_time) or state.since >= last_time - _TIME_TOLERANCE)
