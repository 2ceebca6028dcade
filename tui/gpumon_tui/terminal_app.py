"""Base class of the app: appearance, windows above a page, terminal queries, title, and exit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from time import monotonic
from typing import Any, ClassVar

from rich.console import RenderableType
from textual.app import App
from textual.binding import Binding, BindingType
from textual.color import Color
from textual.driver import Driver
from textual.events import CursorPosition
from textual.screen import Screen

from gpumon.common.text import clean
from gpumon_tui.appearance import Appearance, ColorDepth
from gpumon_tui.notifications import TerminalNotifier
from gpumon_tui.screens.page import TerminalPage
from gpumon_tui.screens.window import ModalWindow
from gpumon_tui.state import View
from gpumon_tui.textual_private import missing, partial_updates, waiting_driver, write
from gpumon_tui.textual_private.flow_control import FlowControl
from gpumon_tui.widgets.lines import Lines

TEXTUAL_KEYS = ("tab", "shift+tab", "ctrl+c", "ctrl+z")
"""Keys that Textual would handle itself."""
MAX_HOLD = 1.0
"""Maximum seconds to keep the old screen while a page is laid out again."""
WINDOW_OPACITY = 0.6
"""Opacity of the background of a window above a page."""

WIDTH_QUERY = "\x1b[2;1H●\x1b[6n"
"""Draws a character of ambiguous width and requests the cursor position; the page is drawn over it."""
_WIDE_POSITION = (2, 1)
"""Column and row (from 0) of the cursor if the character took two cells."""
MAX_COPIED = 16 * 1024
"""Maximum number of characters copied to the clipboard; some terminals accept no more."""


class TerminalApp(App[None]):
    """Textual app that draws a `View` with a given appearance."""

    TITLE = "gpumon"
    ENABLE_COMMAND_PALETTE = False
    ALLOW_SELECT = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(name, f"press('{name}')", show=False, priority=True) for name in TEXTUAL_KEYS
    ]
    CSS = "Screen { overflow: hidden; }"

    def __init__(self, view: View, appearance: Appearance | None = None) -> None:
        super().__init__(ansi_color=True)  # colors are already converted for the terminal
        self.view = view
        self.notifier = TerminalNotifier({}, self.write_escape)
        self.view.appearance = appearance or Appearance()
        self.flow = FlowControl()
        self._is_holding = False
        self._convert_update = partial_updates()
        view.painter.is_supported = not missing()

    def get_driver_class(self) -> type[Driver]:
        """Return Textual's driver class, extended by flow control."""
        return waiting_driver(super().get_driver_class())

    @property
    def failure(self) -> Exception | None:
        """The exception that crashed the view, or None."""
        return self._exception

    def set_appearance(self, appearance: Appearance) -> None:
        """Redraw everything with another appearance."""
        self.view.appearance = appearance
        for screen in self.screen_stack:
            self.paint_ground(screen)
            for lines in screen.query(Lines):
                lines.refresh()

    def watch_layout(self) -> None:
        """Subscribe to layout changes of the page."""
        self.screen.screen_layout_refresh_signal.subscribe(self.screen, self._update_painter, immediate=True)

    def _update_painter(self, screen: Screen[Any]) -> None:
        """After a layout: direct drawing is allowed unless a pop-up covers part of the page."""
        covering = (lines for lines in screen.query(Lines) if lines.display and lines.layer != "default")
        self.view.painter.is_layout_final = next(covering, None) is None

    @contextmanager
    def painting(self) -> Iterator[None]:
        """Draw changes made in the context, then ask the terminal for a reply once it has read them."""
        painter = self.view.painter
        painter.open(self)
        try:
            yield
        finally:
            is_painted = painter.close(self)
        if is_painted:
            self.request_reply()
        else:
            self.call_after_refresh(self.request_reply)

    def query_width(self) -> None:
        """Ask the terminal for the width of ambiguous characters; without an answer they count as one cell."""
        if not self.view.appearance.is_ascii:
            write(self, WIDTH_QUERY)

    def on_cursor_position(self, event: CursorPosition) -> None:
        """Handle the answer: if such characters take two cells, switch to ASCII."""
        if (event.x, event.y) == _WIDE_POSITION and not self.view.appearance.is_ascii:
            self.set_appearance(self.view.appearance._replace(is_ascii=True))

    def copy_to_clipboard(self, text: str) -> None:
        """Copy text to the terminal's clipboard, without control characters that could act where it is pasted."""
        rows = [row.split("\t") for row in text[:MAX_COPIED].splitlines()]
        cleaned = ("\t".join(clean(part, MAX_COPIED) for part in row) for row in rows)
        super().copy_to_clipboard("\n".join(cleaned)[:MAX_COPIED])

    def paint_ground(self, screen: Screen[Any]) -> None:
        """Set the background of a screen; a window above a page is translucent if the terminal has enough colors."""
        appearance = self.view.appearance
        ground = Color.parse(appearance.ground)
        is_window = isinstance(screen, ModalWindow) and appearance.depth is ColorDepth.MANY
        screen.styles.background = ground.with_alpha(WINDOW_OPACITY) if is_window else ground

    def open_window(self, make_window: Callable[[View], ModalWindow]) -> None:
        """Open a window, unless one is already open."""
        if not isinstance(self.screen, ModalWindow):
            window_screen = make_window(self.view)
            self.paint_ground(window_screen)
            self.push_screen(window_screen)

    def do_accounts(self) -> None:
        """Open the accounting of GPU use by user, per day, week or month."""
        from gpumon_tui.screens.accounts import AccountsScreen  # imported late: most sessions never use it

        self.open_window(AccountsScreen)

    def on_terminal_supports_synchronized_output(self) -> None:
        """Handle the terminal's answer to the request of `flow`."""
        self.flow.on_reply()

    def request_reply(self) -> None:
        """Request a reply that the terminal sends when it has read all output so far."""
        self.flow.request_reply(self, monotonic())

    def action_press(self, name: str) -> None:
        """Handle a key that Textual would handle itself, after the keys pressed before it."""
        window = self.screen
        if isinstance(window, ModalWindow) and name in window.own_keys:
            window.call_later(window.run_key, name)
            return
        self.screen.call_later(self.call_later, self.press, name)  # the same queues that other keys pass through

    def press(self, name: str) -> None:
        """Run the action bound to a key (Textual's name)."""
        raise NotImplementedError

    def _fatal_error(self) -> None:
        """Exit without Textual's traceback, which would print local variables, including process names of other
        users.
        """
        self._close_messages_no_wait()

    def panic(self, *_: RenderableType) -> None:
        """Exit without a traceback, for example when the terminal can no longer be read."""
        self._return_code = 1
        self._close_messages_no_wait()

    def _display(self, screen: Screen[Any], renderable: RenderableType | None) -> None:
        if not self._is_holding:
            super()._display(screen, self._convert_update(renderable))

    def hold_until(self, is_drawn: Callable[[], bool]) -> None:
        """Keep the current screen until `is_drawn` is true, for at most `MAX_HOLD` seconds."""
        if not self._is_holding:
            self._is_holding = True
            self._check_hold(is_drawn, monotonic() + MAX_HOLD)

    def _check_hold(self, is_drawn: Callable[[], bool], deadline: float) -> None:
        if is_drawn() or monotonic() > deadline:
            self._is_holding = False
            self.refresh(layout=True)
        else:
            self.set_timer(0.005, partial(self._check_hold, is_drawn, deadline))

    def write_escape(self, text: str) -> None:
        """Write an escape sequence that draws nothing."""
        write(self, text)

    def do_notify(self) -> None:
        """Turn terminal notifications on or off."""
        self.notifier.is_enabled = not self.notifier.is_enabled
        self.view.show_message(f"notifications {'on' if self.notifier.is_enabled else 'off'}: run ends, free GPUs")
        self.post_message(TerminalPage.Changed())
