"""Where frames come from; the live reader of gpumon fits this, and so does a fake in a test."""

from __future__ import annotations

from typing import Protocol

from gpumon.frame import Driver, Frame, Origin
from gpumon.live import LiveState


class FrameFeed(Protocol):
    """A reader that never blocks."""

    def since(self, number: int) -> list[Frame]:
        """Frames newer than `number`, oldest first; of 0, all that are kept."""

    def origin(self) -> Origin: ...

    def driver(self) -> Driver: ...

    def hostname(self) -> str: ...

    def state(self) -> LiveState: ...
