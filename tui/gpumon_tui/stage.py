"""The app as Textual sees it: the look of what is painted, windows above a page, and how it ends."""

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
from gpumon_tui.look import Depth, TerminalLook
from gpumon_tui.notifications import TerminalNews
from gpumon_tui.screens.page import TerminalPage
from gpumon_tui.screens.window import Scrolled
from gpumon_tui.state import View
from gpumon_tui.textual_private import missing, partial_updates, waiting_driver, write
from gpumon_tui.textual_private.flow_control import FlowControl
from gpumon_tui.widgets.lines import Lines

OF_TEXTUAL = ("tab", "shift+tab", "ctrl+c", "ctrl+z")
"""Keys that Textual would keep for itself."""
HELD_FOR = 1.0
"""Seconds for which the screen waits at most until a page has been laid out again."""
SCREENED = 0.6
"""Share of the ground over a page on which a window lies."""

WIDTH_ASKED = "\x1b[2;1H●\x1b[6n"
"""A letter of ambiguous width, and the question where the cursor is after it; the page is drawn over it."""
_WIDE_AT = (2, 1)
"""Column and row, from 0, of the cursor after a letter that took two cells."""
MOST_COPIED = 16 * 1024
"""Letters that go to a clipboard; some terminals take no more."""


class Stage(App[None]):
    """A view on a terminal, in a look."""

    TITLE = "gpumon"
    ENABLE_COMMAND_PALETTE = False
    ALLOW_SELECT = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(name, f"press('{name}')", show=False, priority=True) for name in OF_TEXTUAL
    ]
    CSS = "Screen { overflow: hidden; }"

    def __init__(self, view: View, look: TerminalLook | None = None) -> None:
        super().__init__(ansi_color=True)  # what is drawn here fits the terminal as it is
        self.view = view
        self.news = TerminalNews({}, self.write_aside)
        self.view.look = look or TerminalLook()
        self.flow = FlowControl()
        self._holds = False
        self._changed_only = partial_updates()
        view.painter.is_able = not missing()

    def get_driver_class(self) -> type[Driver]:
        """Return the way to the terminal."""
        return waiting_driver(super().get_driver_class())

    @property
    def failure(self) -> Exception | None:
        """The exception that crashed the view; None if it did not crash."""
        return self._exception

    def show_in(self, look: TerminalLook) -> None:
        """Show everything in another look."""
        self.view.look = look
        for screen in self.screen_stack:
            self.paint_ground(screen)
            for lines in screen.query(Lines):
                lines.refresh()

    def watch_places(self) -> None:
        """From now on take notice of each time that the page is laid out."""
        self.screen.screen_layout_refresh_signal.subscribe(self.screen, self._placed, immediate=True)

    def _placed(self, screen: Screen[Any]) -> None:
        """Everything has its place; a pop-up may lie above the rest."""
        above = (lines for lines in screen.query(Lines) if lines.display and lines.layer != "default")
        self.view.painter.is_placed = next(above, None) is None

    @contextmanager
    def painting(self) -> Iterator[None]:
        """Paint what changes meanwhile, and ask the terminal to tell when it has read that."""
        painter = self.view.painter
        painter.open(self)
        try:
            yield
        finally:
            is_painted = painter.close(self)
        if is_painted:
            self.ask()
        else:
            self.call_after_refresh(self.ask)

    def ask_width(self) -> None:
        """Ask the terminal how wide it draws letters of ambiguous width; one that does not answer draws them narrow."""
        if not self.view.look.is_ascii:
            write(self, WIDTH_ASKED)

    def on_cursor_position(self, event: CursorPosition) -> None:
        """The answer: where such letters take two cells, all is drawn in ASCII."""
        if (event.x, event.y) == _WIDE_AT and not self.view.look.is_ascii:
            self.show_in(self.view.look._replace(is_ascii=True))

    def copy_to_clipboard(self, text: str) -> None:
        """Send a text to the terminal's clipboard, without what could do something where it is pasted."""
        rows = [row.split("\t") for row in text[:MOST_COPIED].splitlines()]
        cleaned = ("\t".join(clean(part, MOST_COPIED) for part in row) for row in rows)
        super().copy_to_clipboard("\n".join(cleaned)[:MOST_COPIED])

    def paint_ground(self, screen: Screen[Any]) -> None:
        """Paint what lies behind the lines; above another screen, so that it is seen as far as colors allow."""
        look = self.view.look
        ground = Color.parse(look.ground)
        is_above = isinstance(screen, Scrolled) and look.depth is Depth.MANY
        screen.styles.background = ground.with_alpha(SCREENED) if is_above else ground

    def put_above(self, window: Callable[[View], Scrolled]) -> None:
        """Open a window, unless one is open."""
        if not isinstance(self.screen, Scrolled):
            above = window(self.view)
            self.paint_ground(above)
            self.push_screen(above)

    def do_accounts(self) -> None:
        """Accounts of users in a day, a week or a month."""
        from gpumon_tui.screens.accounts import AccountsScreen  # most sessions never need it

        self.put_above(AccountsScreen)

    def on_terminal_supports_synchronized_output(self) -> None:
        """The answer to the question of `flow`."""
        self.flow.answered()

    def ask(self) -> None:
        """Ask the terminal to tell when it has read all that it was sent."""
        self.flow.ask(self, monotonic())

    def action_press(self, name: str) -> None:
        """Do what a key does that Textual would keep for itself, behind the keys that were pressed before it."""
        above = self.screen
        if isinstance(above, Scrolled) and name in above.own_keys:
            above.call_later(above.take, name)
            return
        self.screen.call_later(self.call_later, self.press, name)  # the way that these take

    def press(self, name: str) -> None:
        """Do what a key does, by Textual's name of it."""
        raise NotImplementedError

    def _fatal_error(self) -> None:
        """End; Textual would print everything that was in memory, with the names of other people's processes."""
        self._close_messages_no_wait()

    def panic(self, *_: RenderableType) -> None:
        """End in the same way, as when the terminal can no longer be read."""
        self._return_code = 1
        self._close_messages_no_wait()

    def _display(self, screen: Screen[Any], renderable: RenderableType | None) -> None:
        if not self._holds:
            super()._display(screen, self._changed_only(renderable))

    def hold_until(self, is_drawn: Callable[[], bool]) -> None:
        """Leave what is on screen there until something is drawn, for a moment at most."""
        if not self._holds:
            self._holds = True
            self._go_on(is_drawn, monotonic() + HELD_FOR)

    def _go_on(self, is_drawn: Callable[[], bool], until: float) -> None:
        if is_drawn() or monotonic() > until:
            self._holds = False
            self.refresh(layout=True)
        else:
            self.set_timer(0.005, partial(self._go_on, is_drawn, until))

    def write_aside(self, text: str) -> None:
        """Write a sequence that draws nothing to the terminal."""
        write(self, text)

    def do_notify(self) -> None:
        """Notifications by the terminal, or none."""
        self.news.notifies = not self.news.notifies
        self.view.say(f"notifications {'on' if self.news.notifies else 'off'}: run ends, free GPUs")
        self.post_message(TerminalPage.Changed())
