"""Flow control: a terminal behind a slow line skips frames instead of falling behind.

Textual queues every frame, so on a slow line the picture would lag by more and more. After each frame
the terminal is asked something it answers at once (whether it knows synchronized output, which Textual
asks at the start too); the answer comes when it has read all before it. Until then no frame is drawn.
"""

from __future__ import annotations

from typing import Any

from textual.app import App

from gpumon_tui.textual_private import write

QUESTION = "\x1b[?2026$p"
PATIENCE = 30.0
"""Seconds after which an answer is taken to be lost."""


class FlowControl:
    """Whether the terminal has read what it was sent."""

    def __init__(self) -> None:
        self.skipped = 0
        self._answers = False
        self._asked: float | None = None

    def ready(self, now: float) -> bool:
        """Whether the next frame may be drawn; counts those that may not."""
        if self._asked is None or now - self._asked > PATIENCE:
            return True
        self.skipped += 1
        return False

    def answered(self) -> None:
        """The terminal has answered; one that never did is never waited for."""
        self._answers = True
        self._asked = None

    def ask(self, app: App[Any], now: float) -> None:
        """Put the question behind the frame that has just been drawn."""
        if self._answers and write(app, QUESTION):
            self._asked = now
