"""Frames on their way into what the view knows: an hour of them in small steps, between which keys are answered."""

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
from gpumon_tui.state import TAKES, View


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


NO_SEEKING = "a log only plays on; see --from"
_PATIENCE = 30.0
"""Seconds after which a place is shown as far as it is there."""
_SAME = 0.001
"""Seconds by which the times of one frame may differ, as one is a multiple of nanoseconds."""


class Seeking:
    """Where the player of a view goes; without one, nowhere."""

    def __init__(self, view: View, player: Player | None) -> None:
        self._view, self._player = view, player
        self._turns = player.seeks if player else 0
        self._begun = 0.0
        self.is_under_way = False
        """Whether the recording is elsewhere already, and the screen not yet."""

    def seek(self, seconds: int) -> None:
        """Go so many seconds forward, or say why not."""
        view, player = self._view, self._player
        if player and player.can_seek:
            player.seek(seconds)
        elif player and Capability.NOW not in view.origin.capabilities:
            view.say(NO_SEEKING)

    def has_arrived(self, feed: FrameFeed) -> bool:
        """Whether it has gone elsewhere, and all that lies before is there: once for each place."""
        player = self._player
        if player is None or player.seeks == self._turns:
            return False
        if not self.is_under_way:
            self.is_under_way, self._begun = True, monotonic()
            self._view.say(self._words(player))
        if not _is_there(player, feed.state()) and monotonic() < self._begun + _PATIENCE:
            return False
        self.is_under_way, self._turns = False, player.seeks
        self._view.said = ""
        return True

    def holds(self) -> bool:
        """Whether what is known stays as it is.

        A recording that stands still adds nothing to its ledger: what is read of it is of what is on screen.
        """
        return self.is_under_way or (self._view.paused and not (self._player and self._player.is_paused))

    def judged(self, found: Freshness) -> Freshness:
        """The freshness of what is on screen."""
        if not self.is_under_way or self._player is None:
            return found
        text = self._words(self._player)
        return found._replace(text=text, style=theme.WARN, mark="○", word="seeking", is_leaving=True)

    def _words(self, player: Player) -> str:
        return f"seeking to {units.clock(player.seek_target)}"


def _is_there(player: Player, state: LiveState) -> bool:
    turn, last = player.completed_seek
    return turn == player.seeks and (not is_known(last) or state.since >= last - _SAME)
