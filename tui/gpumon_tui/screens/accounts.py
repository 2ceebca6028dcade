"""The accounts screen: GPU hours by user for a day, week or month, with its keys and clickable areas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment
from textual import events
from textual.app import ComposeResult
from textual.message import Message

from gpumon.storage.usage.period_totals import WINDOW_PERIODS
from gpumon_tui import theme
from gpumon_tui.data.accounts import GPUS, TIMES
from gpumon_tui.keybindings import PAGES
from gpumon_tui.render.accounts import (
    AccountButton,
    Choice,
    choice_line,
    headline_lines,
    key_line,
    message_line,
    window_lines,
)
from gpumon_tui.render.findings import wrap_words
from gpumon_tui.render.text_width import SENTENCE, Line, safe
from gpumon_tui.screens.page import COPIED_MESSAGE, half_pages
from gpumon_tui.screens.window import ModalWindow, TextWidget
from gpumon_tui.state import View
from gpumon_tui.widgets.account_table import AccountTable
from gpumon_tui.widgets.bars import Footer
from gpumon_tui.widgets.lines import Lines


class ButtonPressed(Message):
    """Posted for a click on a button; `key` is Textual's name of the equivalent key."""

    def __init__(self, buttons: Sequence[AccountButton], x: int, y: int) -> None:
        super().__init__()
        pressed = (button.key for button in buttons if button.row == y and button.begin <= x < button.end)
        self.key = next(pressed, "")


class AccountsHead(TextWidget):
    """The user, the period, the totals of the window, and the choice between GPUs and days of a user."""

    DEFAULT_CSS = "AccountsHead { height: 1; }"
    ground = "ground"
    dims = False

    def __init__(self, view: View, table: AccountTable) -> None:
        super().__init__(view)
        self._table = table
        self.buttons: list[AccountButton] = []

    def on_click(self, event: events.Click) -> None:
        """Press the clicked button."""
        self.post_message(ButtonPressed(self.buttons, event.x, event.y))

    def lines(self) -> list[Line]:
        """Return the lines, and update the buttons."""
        return self.head_lines(self.size.width)

    def head_lines(self, cells: int) -> list[Line]:
        """Return the lines for a width, and update the buttons."""
        table = self._table
        lines, self.buttons = window_lines(
            table.user, table.period, table.window.title, cells, is_newest=table.is_of_now
        )
        if table.headlines is not None:
            lines += [[], *headline_lines(table.headlines, cells), []]
            if table.user:
                groupings = [
                    Choice("", GPUS, "tab", table.grouping == GPUS),
                    Choice("", f"by {table.window.step}", "tab", table.grouping == TIMES),
                ]
                line, buttons = choice_line(groupings, len(lines), cells)
                lines.append(line)
                self.buttons += buttons
        if not table.rows or table.headlines is None:  # users who hold a GPU now may have no hours yet
            parts = wrap_words(safe(table.note, SENTENCE), cells - 2)
            lines += [[], *([Segment(f" {part}", theme.DIM)] for part in parts), []]
        return lines


class AccountsKeys(Lines):
    """The keys of the screen, or a message in their place until the next key."""

    dims = False

    def __init__(self, view: View, table: AccountTable) -> None:
        super().__init__(view, id="accounts-keys")
        self._table = table
        self.message = ""
        self.buttons: list[AccountButton] = []

    def on_click(self, event: events.Click) -> None:
        """Press the clicked button."""
        self.post_message(ButtonPressed(self.buttons, event.x, event.y))

    def lines(self) -> list[Line]:
        """Return the line, and update the buttons."""
        cells = self.size.width
        if self.message:
            self.buttons = []
            return [message_line(self.message, cells)]
        line, self.buttons = key_line(self._keys(), 0, cells, is_ascii=self.view.appearance.is_ascii)
        return [line]

    def _keys(self) -> list[Choice]:
        table, has_rows = self._table, bool(self._table.rows)
        other_grouping = f"{table.window.step}s" if table.grouping == GPUS else GPUS
        return [
            *([Choice("↵", "open", "enter")] if has_rows and not table.user else ()),
            *([Choice("Tab", other_grouping, "tab")] if table.user else ()),
            *([Choice("o", "sort", "o"), Choice("I", "turn", "I")] if has_rows else ()),
            Choice("d w m", "period", ""),
            Choice("← →", "earlier, later", ""),
            *([Choice("y", "copy", "y")] if has_rows else ()),
            Choice("Esc", "back" if table.user else "close", "escape"),
        ]


_PERIODS = {period[0]: period for period in WINDOW_PERIODS}
_WINDOW_STEPS = {"left": -1, "left_square_bracket": -1, "right": 1, "right_square_bracket": 1}
_SORT_STEPS = {"o": 1, "f6": 1, "full_stop": 1, "O": -1, "comma": -1}
_STEPS = {"up": -1, "k": -1, "down": 1, "j": 1, "home": -1_000_000, "g": -1_000_000, "end": 1_000_000, "G": 1_000_000}
_HALF_PAGES = {"pageup": -2, "ctrl+b": -2, "pagedown": 2, "ctrl+f": 2, "ctrl+u": -1, "ctrl+d": 1}
_CLOSE_KEYS = ("q", "A", "f10")


class AccountsScreen(ModalWindow):
    """The screen, opened above the main screen."""

    follows: ClassVar[bool] = True
    own_keys: ClassVar[frozenset[str]] = frozenset(("tab", "shift+tab"))

    def __init__(self, view: View) -> None:
        self.table = AccountTable(view)
        self.head = AccountsHead(view, self.table)
        self.keys = AccountsKeys(view, self.table)
        super().__init__(self.head)

    def compose(self) -> ComposeResult:
        """Yield the parts, which fill the screen."""
        yield from (self.head, self.table, self.keys)

    def show(self) -> None:
        """Redraw with the answers so far."""
        if self.is_closed:  # after closing, drawing would repeat the queries
            return
        self.table.follow()
        head_rows = len(self.head.head_lines(self.size.width))
        if self.head.size.height != head_rows:
            self.head.styles.height = head_rows
        for part in (self.head, self.table, self.keys):
            part.show()

    def on_mount(self) -> None:
        """Lay out the parts before they are drawn first."""
        self.show()

    def on_key(self, event: events.Key) -> None:
        """Handle keys that choose a window, a sort order or a row, open a user, or close the screen."""
        event.stop()
        event.prevent_default()
        self.run_key(event.key)

    def run_key(self, name: str) -> None:
        """Run the action of a key (Textual's name)."""
        table = self.table
        if self.is_closed:
            return
        self.keys.message = ""
        if name in _CLOSE_KEYS or (name in ("escape", "backspace") and not table.close_user()):
            self.close()
        elif name.isdecimal() and 1 <= int(name) <= len(PAGES):
            self.close()
            self.app.post_message(Footer.Pressed(name))
        elif name in _PERIODS:
            table.choose(_PERIODS[name])
        elif name in _WINDOW_STEPS:
            table.step_window(_WINDOW_STEPS[name])
        elif name in _SORT_STEPS:
            table.sort_by_neighbor(_SORT_STEPS[name])
        elif name in _STEPS:
            table.move(_STEPS[name])
        elif name in _HALF_PAGES:
            table.move(half_pages(_HALF_PAGES[name], table.page))
        elif name == "I":
            table.reverse()
        elif name == "enter":
            table.open_user()
        elif name in self.own_keys:
            table.toggle_grouping()
        elif name == "y" and (text := table.row_text()):
            self.app.copy_to_clipboard(text)
            self.keys.message = COPIED_MESSAGE
        self.show()

    def on_click(self, event: events.Click | None = None) -> None:
        """Stay open; the base class closes on a click."""
        if event is not None:
            event.prevent_default()

    def on_button_pressed(self, message: ButtonPressed) -> None:
        """Run the key of a clicked button."""
        if message.key:
            self.run_key(message.key)

    def on_live_table_opened(self) -> None:
        """Open a user who was clicked twice."""
        self.run_key("enter")

    def on_live_table_moved(self) -> None:
        """Redraw after a click in the table."""
        self.show()

    def close(self) -> None:
        """Close the screen and drop the cached answers."""
        self.table.drop()
        super().close()
