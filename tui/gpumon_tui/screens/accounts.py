"""Accounts of users on the whole screen: its keys, and what the mouse does."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.app import ComposeResult

from gpumon.storage.usage.summary import WINDOW_PERIODS
from gpumon_tui.keys import PAGES
from gpumon_tui.pages.page import COPIED, half_pages
from gpumon_tui.screens.account_sheet import AccountSheet
from gpumon_tui.screens.scrolled import Scrolled
from gpumon_tui.view import View
from gpumon_tui.widgets.bars import Footer

_PERIODS = {period[0]: period for period in WINDOW_PERIODS}
_TURNS = {"left": -1, "left_square_bracket": -1, "right": 1, "right_square_bracket": 1}
_SORTS = {"o": 1, "f6": 1, "full_stop": 1, "O": -1, "comma": -1}
_STEPS = {"up": -1, "k": -1, "down": 1, "j": 1, "home": -1_000_000, "g": -1_000_000, "end": 1_000_000, "G": 1_000_000}
_HALVES = {"pageup": -2, "ctrl+b": -2, "pagedown": 2, "ctrl+f": 2, "ctrl+u": -1, "ctrl+d": 1}
_CLOSES = ("q", "A", "f10")


class AccountsScreen(Scrolled):
    """Above the main screen."""

    follows: ClassVar[bool] = True
    own_keys: ClassVar[frozenset[str]] = frozenset(("tab", "shift+tab"))

    def __init__(self, view: View) -> None:
        self.sheet = AccountSheet(view)
        super().__init__(self.sheet)

    def compose(self) -> ComposeResult:
        """The sheet takes all of the screen."""
        yield self.sheet

    def show(self) -> None:
        """Draw again what is known by now: the sheet has its room already."""
        if not self.is_closed:  # else all would be read again
            self.sheet.show()

    def on_key(self, event: events.Key) -> None:
        """Choose a window, an order or a row, open, or close."""
        event.stop()
        event.prevent_default()
        self.take(event.key)

    def take(self, name: str) -> None:
        """Do what a key does here, by Textual's name of it."""
        sheet = self.sheet
        if self.is_closed:
            return
        sheet.said = ""
        if name in _CLOSES or (name in ("escape", "backspace") and not sheet.of.close()):
            self.close()
        elif name.isdecimal() and 1 <= int(name) <= len(PAGES):
            self.close()
            self.app.post_message(Footer.Pressed(name))
        elif name in _PERIODS:
            sheet.of.choose(_PERIODS[name])
        elif name in _TURNS:
            sheet.of.turn(_TURNS[name])
        elif name in _SORTS:
            sheet.of.sort_beside(_SORTS[name])
        elif name in _STEPS:
            sheet.of.move(_STEPS[name])
        elif name in _HALVES:
            sheet.of.move(half_pages(_HALVES[name], sheet.page))
        elif name == "I":
            sheet.of.reverse()
        elif name == "enter":
            sheet.of.open()
        elif name in self.own_keys:
            sheet.of.turn_way()
        elif name == "y" and (text := sheet.of.row_text()):
            self.app.copy_to_clipboard(text)
            sheet.said = COPIED
        self.show()

    def on_click(self, event: events.Click | None = None) -> None:
        """Do what stands under the mouse."""
        if event is not None:
            event.prevent_default()  # a window closes on a click
            if key := self.sheet.key_at(event):
                self.take(key)
            self.show()

    def on_mouse_scroll_down(self) -> None:
        """Three rows, as elsewhere."""
        self._wheel(3)

    def on_mouse_scroll_up(self) -> None:
        """Three rows, as elsewhere."""
        self._wheel(-3)

    def _wheel(self, step: int) -> None:
        self.sheet.of.move(step)
        self.show()

    def close(self) -> None:
        """Give the screen back to the page, and forget what was read."""
        self.sheet.of.drop()
        super().close()
