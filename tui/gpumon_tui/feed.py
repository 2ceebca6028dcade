"""Where frames come from; the live reader of gpumon fits this, and so does a fake in a test."""

from __future__ import annotations

from typing import Protocol

from gpumon.live import LiveState
from gpumon.model.frame import Frame
from gpumon.model.origin import Driver, Origin


class Player(Protocol):
    """Controls of a recording that this process plays."""

    is_paused: bool
    """Set here: nothing more of it becomes due."""
    can_seek: bool
    """Whether it can be taken elsewhere."""
    can_pause: bool
    """Whether it can stand still."""
    begin: float
    """The first moment that it plays, in s since 1970; NaN while it is unknown."""
    end: float
    """The last one."""
    seeks: int
    """Counts the times that it went elsewhere: frames from then on do not follow those before."""

    seek_target: float
    """The moment to which it went last (s since 1970)."""
    completed_seek: tuple[int, float]
    """The last turn of which all frames up to its place have been read, and the time of the last of them; NaN: none."""

    def seek(self, seconds: float) -> None:
        """Go so many seconds forward; back, if negative. Some moments later its frames come."""


class Writer(Protocol):
    """The process that makes frames."""

    @property
    def pid(self) -> int: ...

    @property
    def started(self) -> int:
        """Clock ticks after boot at which it began; with the pid this names it for ever."""


class FrameFeed(Protocol):
    """A reader that never blocks."""

    def since(self, number: int) -> list[Frame]:
        """Frames newer than `number`, oldest first; of 0, all that are kept."""

    def origin(self) -> Origin: ...

    def writer(self) -> Writer | None:
        """The process that makes the frames, or made them last; None where none is known."""

    def driver(self) -> Driver: ...

    def hostname(self) -> str: ...

    def history_file(self) -> str:
        """The file that keeps longer history of the same; empty where there is none."""

    def state(self) -> LiveState: ...
