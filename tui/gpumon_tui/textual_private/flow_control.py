"""Flow control: on a slow line, frames are skipped instead of queued.

Textual queues every frame, so on a slow line the screen would lag further and further behind. After each frame the
terminal is sent a query that it answers immediately (whether it supports synchronized output, which Textual also asks
at startup). The answer arrives once the terminal has read all previous output; until then no frame is drawn.
"""

from __future__ import annotations

from typing import Any

from textual.app import App

from gpumon_tui.textual_private import write

QUERY = "\x1b[?2026$p"
ANSWER_TIMEOUT = 30.0
"""Seconds after which an answer is considered lost."""


class FlowControl:
    """Tracks whether the terminal has read all output."""

    def __init__(self) -> None:
        self.skipped = 0
        self._has_answered = False
        self._query_sent: float | None = None

    def is_ready(self, now: float) -> bool:
        """Whether the next frame may be drawn; counts skipped frames."""
        if self._query_sent is None or now - self._query_sent > ANSWER_TIMEOUT:
            return True
        self.skipped += 1
        return False

    def on_reply(self) -> None:
        """Record the terminal's answer. A terminal that has never answered is never waited for."""
        self._has_answered = True
        self._query_sent = None

    def request_reply(self, app: App[Any], now: float) -> None:
        """Send the query after the frame that was just drawn."""
        if self._has_answered and write(app, QUERY):
            self._query_sent = now
