"""Base class of the app: appearance, windows above a page, terminal queries, title, and exit."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import ClassVar

from textual.binding import BindingType
from textual.events import CursorPosition

from gpumon.common.text import clean
from gpumon_tui import _textual
from gpumon_tui.appearance import Appearance
from gpumon_tui.keybindings import GLOBAL_BINDINGS
from gpumon_tui.notifications import TerminalNotifier
from gpumon_tui.screens.page import TerminalPage
from gpumon_tui.screens.window import ModalWindow, open_window, paint_ground
from gpumon_tui.state import View
from gpumon_tui.widgets.lines import Lines

WIDTH_QUERY = "\x1b[2;1H●\x1b[6n"
"""Draws a character of ambiguous width and requests the cursor position; the page is drawn over it."""
_WIDE_POSITION = (2, 1)
"""Column and row (from 0) of the cursor if the character took two cells."""
MAX_COPIED = 16 * 1024
"""Maximum number of characters copied to the clipboard; some terminals accept no more."""


QUERY = "\x1b[?2026$p"
ANSWER_TIMEOUT = 30.0
"""Seconds after which an answer is considered lost."""


class FlowControl:
    """Tracks whether the terminal has read all output; on a slow line, frames are skipped instead of queued.

    Textual queues every frame, so on a slow line the screen would lag further and further behind. After each frame the
    terminal is sent a query that it answers immediately (whether it supports synchronized output, which Textual also
    asks at startup). The answer arrives once the terminal has read all previous output; until then no frame is drawn.
    """

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

    def request_reply(self, write: Callable[[str], bool], now: float) -> None:
        """Send the query after the frame that was just drawn."""
        if self._has_answered and write(QUERY):
            self._query_sent = now


class TerminalApp(_textual.TextualApp, inherit_bindings=False):
    """Textual app that draws a `View` with a given appearance."""

    TITLE = "gpumon"
    ENABLE_COMMAND_PALETTE = False
    ALLOW_SELECT = False
    AUTO_FOCUS = None
    BINDINGS: ClassVar[list[BindingType]] = [*GLOBAL_BINDINGS]

    def __init__(self, view: View, appearance: Appearance | None = None) -> None:
        super().__init__()
        self.view = view
        self.notifier = TerminalNotifier({}, self.write_escape)
        self.view.appearance = appearance or Appearance()
        self.flow = FlowControl()
        self.pages: dict[str, TerminalPage] = {}
        """Pages opened so far, by name."""

    def set_appearance(self, appearance: Appearance) -> None:
        """Redraw everything with another appearance."""
        self.view.appearance = appearance
        for screen in {*self.pages.values(), *self.screen_stack}:
            paint_ground(screen, appearance)
            for lines in screen.query(Lines):
                lines.refresh()

    def delay_update(self, delay: float = 0.05) -> None:
        """Do nothing. Textual keeps the old screen for some time when the mode changes; `hold_until` keeps it until the
        new page is drawn.
        """

    def query_width(self) -> None:
        """Ask the terminal for the width of ambiguous characters; without an answer they count as one cell."""
        if not self.view.appearance.is_ascii:
            self.write_escape(WIDTH_QUERY)

    def on_cursor_position(self, event: CursorPosition) -> None:
        """Handle the answer: if such characters take two cells, switch to ASCII."""
        if (event.x, event.y) == _WIDE_POSITION and not self.view.appearance.is_ascii:
            self.set_appearance(self.view.appearance._replace(is_ascii=True))

    def copy_to_clipboard(self, text: str) -> None:
        """Copy text to the terminal's clipboard, without control characters that could act where it is pasted."""
        rows = [row.split("\t") for row in text[:MAX_COPIED].splitlines()]
        cleaned = ("\t".join(clean(part, MAX_COPIED) for part in row) for row in rows)
        super().copy_to_clipboard("\n".join(cleaned)[:MAX_COPIED])

    def open_window(self, make_window: Callable[[View], ModalWindow]) -> None:
        """Open a window, unless one is already open."""
        open_window(self, make_window(self.view))

    def action_accounts(self) -> None:
        """Open the accounting of GPU use by user, per day, week or month."""
        from gpumon_tui.screens.accounts import AccountsScreen  # imported late: most sessions never use it

        self.open_window(AccountsScreen)

    def on_terminal_supports_synchronized_output(self) -> None:
        """Handle the terminal's answer to the request of `flow`."""
        self.flow.on_reply()

    def request_reply(self) -> None:
        """Request a reply that the terminal sends when it has read all output so far."""
        self.flow.request_reply(self.write_escape, monotonic())

    def action_toggle_notifications(self) -> None:
        """Turn terminal notifications on or off."""
        self.notifier.is_enabled = not self.notifier.is_enabled
        self.view.show_message(f"notifications {'on' if self.notifier.is_enabled else 'off'}: run ends, free GPUs")
