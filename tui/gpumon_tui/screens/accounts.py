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
from gpumon_tui.screens.page import COPIED, half_pages
from gpumon_tui.screens.window import Scrolled, Text
from gpumon_tui.state import View
from gpumon_tui.widgets.bars import Footer


class AccountSheet(Text):
    """The text of the screen: window, totals, rows and keys."""

    DEFAULT_CSS = "AccountSheet { height: 100%; }"
    ground = "ground"
    dims = False

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self.of = AccountSelection(view)
        self.page = 1
        """Number of rows on screen."""
        self.said = ""
        """Message shown in place of the keys until the next key."""
        self._placed: Sequence[PlacedColumn] = ()
        self._places: list[AccountButton] = []
        self._heading_at, self._first, self._top = -1, 0, 0

    def lines(self) -> list[Line]:
        """Return the window, its totals, the rows and the keys."""
        cells, height = self.size
        of = self.of
        of.follow()
        lines, self._places = window_lines(of.user, of.period, of.window.title, cells, is_newest=of.is_of_now)
        if of.headlines is not None:
            lines += [[], *headline_lines(of.headlines, cells), []]
            if of.user:
                line, places = choice_line(self._ways(), len(lines), cells)
                lines.append(line)
                self._places += places
        if not of.rows or of.headlines is None:  # users who hold a GPU now may have no hours yet
            lines += [
                [],
                *([Segment(f" {part}", theme.DIM)] for part in wrap_words(safe(of.why, SENTENCE), cells - 2)),
                [],
            ]
        self._heading_at = -1
        if of.rows:
            self._heading_at = len(lines)
            self._placed = fit_columns(of.columns, cells, of.order.name)
            lines.append(heading(self._placed, cells, *of.order))
        self._first = len(lines)
        self.page = max(1, height - len(lines) - 1)
        lines += self._row_lines(cells)
        lines = [*lines, *([[]] * (height - 1 - len(lines)))][: height - 1]
        if self.said:
            return [*lines, message_line(self.said, cells)]
        last, places = key_line(self._keys(), height - 1, cells, is_ascii=self.view.look.is_ascii)
        self._places += places
        return [*lines, last]

    def _ways(self) -> list[Choice]:
        of, by = self.of, f"by {self.of.window.step}"
        return [Choice("", GPUS, "tab", of.way == GPUS), Choice("", by, "tab", of.way == TIMES)]

    def _keys(self) -> list[Choice]:
        of, has_rows = self.of, bool(self.of.rows)
        return [
            *([Choice("↵", "open", "enter")] if has_rows and not of.user else ()),
            *([Choice("Tab", f"{of.window.step}s" if of.way == GPUS else GPUS, "tab")] if of.user else ()),
            *([Choice("o", "sort", "o"), Choice("I", "turn", "I")] if has_rows else ()),
            Choice("d w m", "period", ""),
            Choice("← →", "earlier, later", ""),
            *([Choice("y", "copy", "y")] if has_rows else ()),
            Choice("Esc", "back" if of.user else "close", "escape"),
        ]

    def _row_lines(self, cells: int) -> list[Line]:
        of, facts = self.of, self.view.process_facts()
        most = max(0, len(of.rows) - self.page)
        self._top = max(0, min(self._top, of.cursor, most), of.cursor - self.page + 1)
        return [
            row_line(
                [column.cell(row, facts) for column, _, _ in self._placed], self._placed, cells, place == of.cursor
            )
            for place, row in enumerate(of.rows)
            if self._top <= place < self._top + self.page
        ]

    def key_at(self, event: events.Click) -> str:
        """Return the key that a click stands for; empty if the click itself has sorted or moved the cursor."""
        of = self.of
        found = next((one.key for one in self._places if one.row == event.y and one.begin <= event.x < one.end), "")
        if found:
            return found
        if event.y == self._heading_at:
            sortable = (c for c, begin, room in self._placed if begin <= event.x <= begin + room and c.order)
            if column := next(sortable, None):
                of.sort_by(column)
        elif self._first <= event.y < self._first + min(self.page, len(of.rows) - self._top):
            place = event.y - self._first + self._top
            was_there = place == of.cursor
            of.move(place - of.cursor)
            return "enter" if was_there else ""
        return ""


_PERIODS = {period[0]: period for period in WINDOW_PERIODS}
_TURNS = {"left": -1, "left_square_bracket": -1, "right": 1, "right_square_bracket": 1}
_SORTS = {"o": 1, "f6": 1, "full_stop": 1, "O": -1, "comma": -1}
_STEPS = {"up": -1, "k": -1, "down": 1, "j": 1, "home": -1_000_000, "g": -1_000_000, "end": 1_000_000, "G": 1_000_000}
_HALVES = {"pageup": -2, "ctrl+b": -2, "pagedown": 2, "ctrl+f": 2, "ctrl+u": -1, "ctrl+d": 1}
_CLOSES = ("q", "A", "f10")


class AccountsScreen(Scrolled):
    """The screen, opened above the main screen."""

    follows: ClassVar[bool] = True
    own_keys: ClassVar[frozenset[str]] = frozenset(("tab", "shift+tab"))

    def __init__(self, view: View) -> None:
        self.sheet = AccountSheet(view)
        super().__init__(self.sheet)

    def compose(self) -> ComposeResult:
        """Yield the sheet, which fills the screen."""
        yield self.sheet

    def show(self) -> None:
        """Redraw with the answers so far; the layout does not change."""
        if not self.is_closed:  # after closing, drawing would repeat the queries
            self.sheet.show()

    def on_key(self, event: events.Key) -> None:
        """Handle keys that choose a window, a sort order or a row, open a user, or close the screen."""
        event.stop()
        event.prevent_default()
        self.take(event.key)

    def take(self, name: str) -> None:
        """Run the action of a key (Textual's name)."""
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
        """Handle a click on a key, a heading or a row."""
        if event is not None:
            event.prevent_default()  # the base class closes on a click
            if key := self.sheet.key_at(event):
                self.take(key)
            self.show()

    def on_mouse_scroll_down(self) -> None:
        """Move the cursor down by three rows."""
        self._wheel(3)

    def on_mouse_scroll_up(self) -> None:
        """Move the cursor up by three rows."""
        self._wheel(-3)

    def _wheel(self, step: int) -> None:
        self.sheet.of.move(step)
        self.show()

    def close(self) -> None:
        """Close the screen and drop the cached answers."""
        self.sheet.of.drop()
        super().close()
