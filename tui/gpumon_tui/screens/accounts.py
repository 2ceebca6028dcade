"""The accounts screen: GPU hours by user for a day, week or month, with its keys and clickable areas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment
from textual import events
from textual.app import ComposeResult

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
from gpumon_tui.render.process_lines import PlacedColumn, fit_columns, heading, row_line
from gpumon_tui.render.text_width import SENTENCE, Line, safe
from gpumon_tui.screens.account_rows import AccountSelection
from gpumon_tui.screens.page import COPIED_MESSAGE, half_pages
from gpumon_tui.screens.window import ModalWindow, TextWidget
from gpumon_tui.state import View
from gpumon_tui.widgets.bars import Footer


class AccountsWidget(TextWidget):
    """The text of the screen: window, totals, rows and keys."""

    DEFAULT_CSS = "AccountsWidget { height: 100%; }"
    ground = "ground"
    dims = False

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self.selection = AccountSelection(view)
        self.page = 1
        """Number of rows on screen."""
        self.message = ""
        """Message shown in place of the keys until the next key."""
        self._fitted_columns: Sequence[PlacedColumn] = ()
        self._buttons: list[AccountButton] = []
        self._heading_at, self._first, self._top = -1, 0, 0

    def lines(self) -> list[Line]:
        """Return the window, its totals, the rows and the keys."""
        cells, height = self.size
        selection = self.selection
        selection.follow()
        lines, self._buttons = window_lines(
            selection.user, selection.period, selection.window.title, cells, is_newest=selection.is_of_now
        )
        if selection.headlines is not None:
            lines += [[], *headline_lines(selection.headlines, cells), []]
            if selection.user:
                line, buttons = choice_line(self._groupings(), len(lines), cells)
                lines.append(line)
                self._buttons += buttons
        if not selection.rows or selection.headlines is None:  # users who hold a GPU now may have no hours yet
            lines += [
                [],
                *([Segment(f" {part}", theme.DIM)] for part in wrap_words(safe(selection.note, SENTENCE), cells - 2)),
                [],
            ]
        self._heading_at = -1
        if selection.rows:
            self._heading_at = len(lines)
            self._fitted_columns = fit_columns(selection.columns, cells, selection.order.name)
            lines.append(heading(self._fitted_columns, cells, *selection.order))
        self._first = len(lines)
        self.page = max(1, height - len(lines) - 1)
        lines += self._row_lines(cells)
        lines = [*lines, *([[]] * (height - 1 - len(lines)))][: height - 1]
        if self.message:
            return [*lines, message_line(self.message, cells)]
        key_row, buttons = key_line(self._keys(), height - 1, cells, is_ascii=self.view.appearance.is_ascii)
        self._buttons += buttons
        return [*lines, key_row]

    def _groupings(self) -> list[Choice]:
        selection, time_name = self.selection, f"by {self.selection.window.step}"
        return [
            Choice("", GPUS, "tab", selection.grouping == GPUS),
            Choice("", time_name, "tab", selection.grouping == TIMES),
        ]

    def _keys(self) -> list[Choice]:
        selection, has_rows = self.selection, bool(self.selection.rows)
        return [
            *([Choice("↵", "open", "enter")] if has_rows and not selection.user else ()),
            *(
                [Choice("Tab", f"{selection.window.step}s" if selection.grouping == GPUS else GPUS, "tab")]
                if selection.user
                else ()
            ),
            *([Choice("o", "sort", "o"), Choice("I", "turn", "I")] if has_rows else ()),
            Choice("d w m", "period", ""),
            Choice("← →", "earlier, later", ""),
            *([Choice("y", "copy", "y")] if has_rows else ()),
            Choice("Esc", "back" if selection.user else "close", "escape"),
        ]

    def _row_lines(self, cells: int) -> list[Line]:
        selection, facts = self.selection, self.view.process_facts()
        max_top = max(0, len(selection.rows) - self.page)
        self._top = max(0, min(self._top, selection.cursor, max_top), selection.cursor - self.page + 1)
        return [
            row_line(
                [column.cell(row, facts) for column, _, _ in self._fitted_columns],
                self._fitted_columns,
                cells,
                index == selection.cursor,
            )
            for index, row in enumerate(selection.rows)
            if self._top <= index < self._top + self.page
        ]

    def key_at(self, event: events.Click) -> str:
        """Return the key that a click stands for; empty if the click itself has sorted or moved the cursor."""
        selection = self.selection
        key = next(
            (button.key for button in self._buttons if button.row == event.y and button.begin <= event.x < button.end),
            "",
        )
        if key:
            return key
        if event.y == self._heading_at:
            sortable = (
                candidate
                for candidate, begin, room in self._fitted_columns
                if begin <= event.x <= begin + room and candidate.order
            )
            if column := next(sortable, None):
                selection.sort_by(column)
        elif self._first <= event.y < self._first + min(self.page, len(selection.rows) - self._top):
            index = event.y - self._first + self._top
            was_selected = index == selection.cursor
            selection.move(index - selection.cursor)
            return "enter" if was_selected else ""
        return ""


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
        self.content = AccountsWidget(view)
        super().__init__(self.content)

    def compose(self) -> ComposeResult:
        """Yield the widget, which fills the screen."""
        yield self.content

    def show(self) -> None:
        """Redraw with the answers so far; the layout does not change."""
        if not self.is_closed:  # after closing, drawing would repeat the queries
            self.content.show()

    def on_key(self, event: events.Key) -> None:
        """Handle keys that choose a window, a sort order or a row, open a user, or close the screen."""
        event.stop()
        event.prevent_default()
        self.run_key(event.key)

    def run_key(self, name: str) -> None:
        """Run the action of a key (Textual's name)."""
        content = self.content
        if self.is_closed:
            return
        content.message = ""
        if name in _CLOSE_KEYS or (name in ("escape", "backspace") and not content.selection.close()):
            self.close()
        elif name.isdecimal() and 1 <= int(name) <= len(PAGES):
            self.close()
            self.app.post_message(Footer.Pressed(name))
        elif name in _PERIODS:
            content.selection.choose(_PERIODS[name])
        elif name in _WINDOW_STEPS:
            content.selection.step_window(_WINDOW_STEPS[name])
        elif name in _SORT_STEPS:
            content.selection.sort_by_neighbor(_SORT_STEPS[name])
        elif name in _STEPS:
            content.selection.move(_STEPS[name])
        elif name in _HALF_PAGES:
            content.selection.move(half_pages(_HALF_PAGES[name], content.page))
        elif name == "I":
            content.selection.reverse()
        elif name == "enter":
            content.selection.open()
        elif name in self.own_keys:
            content.selection.toggle_grouping()
        elif name == "y" and (text := content.selection.row_text()):
            self.app.copy_to_clipboard(text)
            content.message = COPIED_MESSAGE
        self.show()

    def on_click(self, event: events.Click | None = None) -> None:
        """Handle a click on a key, a heading or a row."""
        if event is not None:
            event.prevent_default()  # the base class closes on a click
            if key := self.content.key_at(event):
                self.run_key(key)
            self.show()

    def on_mouse_scroll_down(self) -> None:
        """Move the cursor down by three rows."""
        self._wheel(3)

    def on_mouse_scroll_up(self) -> None:
        """Move the cursor up by three rows."""
        self._wheel(-3)

    def _wheel(self, step: int) -> None:
        self.content.selection.move(step)
        self.show()

    def close(self) -> None:
        """Close the screen and drop the cached answers."""
        self.content.selection.drop()
        super().close()
