"""The accounts screen: GPU hours by user for a day, week or month, with its keys and clickable areas."""

from __future__ import annotations

from typing import ClassVar

from rich.segment import Segment
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message

from gpumon.storage.usage.period_totals import WINDOW_PERIODS
from gpumon_tui import theme
from gpumon_tui.data.accounts import GPUS, TIMES
from gpumon_tui.keybindings import press_key
from gpumon_tui.render.accounts import (
    Choice,
    choice_line,
    headline_lines,
    key_line,
    message_line,
    window_lines,
)
from gpumon_tui.render.text_width import SENTENCE, Line, safe, wrap_words
from gpumon_tui.screens.page import COPIED_MESSAGE, half_pages
from gpumon_tui.screens.window import ModalWindow, TextWidget
from gpumon_tui.state import View
from gpumon_tui.widgets.account_table import AccountTable
from gpumon_tui.widgets.lines import Lines


class ButtonPressed(Message):
    """Posted for a click on a button; `key` is Textual's name of the equivalent key."""

    def __init__(self, key: str) -> None:
        super().__init__()
        self.key = key


class AccountsHead(TextWidget):
    """The user, the period, the totals of the window, and the choice between GPUs and days of a user."""

    DEFAULT_CSS = "AccountsHead { height: 1; }"
    ground = "ground"
    dims = False

    def __init__(self, view: View, table: AccountTable) -> None:
        super().__init__(view)
        self._table = table

    def on_click(self, event: events.Click) -> None:
        """Press the clicked button."""
        self.post_message(ButtonPressed(self.action_at(event.x, event.y)))

    def lines(self) -> list[Line]:
        """Return the lines, and update the clickable ranges."""
        return self.head_lines(self.size.width)

    def head_lines(self, cells: int) -> list[Line]:
        """Return the lines for a width, and update the clickable ranges."""
        table = self._table
        lines, ranges = window_lines(table.user, table.period, table.window.title, cells, is_newest=table.is_of_now)
        if table.headlines is not None:
            lines += [[], *headline_lines(table.headlines, cells), []]
            if table.user:
                groupings = [
                    Choice("", GPUS, "tab", table.grouping == GPUS),
                    Choice("", f"by {table.window.step}", "tab", table.grouping == TIMES),
                ]
                line, choice_ranges = choice_line(groupings, len(lines), cells)
                lines.append(line)
                ranges += choice_ranges
        if not table.rows or table.headlines is None:  # users who hold a GPU now may have no hours yet
            parts = wrap_words(safe(table.note, SENTENCE), cells - 2)
            lines += [[], *([Segment(f" {part}", theme.DIM)] for part in parts), []]
        self.click_ranges = ranges
        return lines


class AccountsKeys(Lines):
    """The keys of the screen, or a message in their place until the next key."""

    dims = False

    def __init__(self, view: View, table: AccountTable) -> None:
        super().__init__(view, id="accounts-keys")
        self._table = table
        self.message = ""

    def on_click(self, event: events.Click) -> None:
        """Press the clicked button."""
        self.post_message(ButtonPressed(self.action_at(event.x, event.y)))

    def lines(self) -> list[Line]:
        """Return the line, and update the clickable ranges."""
        cells = self.size.width
        if self.message:
            self.click_ranges = ()
            return [message_line(self.message, cells)]
        line, self.click_ranges = key_line(self._keys(), cells, is_ascii=self.view.appearance.is_ascii)
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


class AccountsScreen(ModalWindow):
    """The screen, opened above the main screen."""

    follows: ClassVar[bool] = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,A,f10", "close"),
        Binding("escape,backspace", "back"),
        *(Binding(period[0], f"period({period!r})") for period in WINDOW_PERIODS),
        Binding("left,left_square_bracket", "window(-1)"),
        Binding("right,right_square_bracket", "window(1)"),
        Binding("o,f6,full_stop", "order(1)"),
        Binding("O,comma", "order(-1)"),
        Binding("I", "reverse"),
        Binding("up,k", "move(-1)"),
        Binding("down,j", "move(1)"),
        Binding("home,g", "move(-1_000_000)"),
        Binding("end,G", "move(1_000_000)"),
        Binding("pageup,ctrl+b", "move_page(-2)"),
        Binding("pagedown,ctrl+f", "move_page(2)"),
        Binding("ctrl+u", "move_page(-1)"),
        Binding("ctrl+d", "move_page(1)"),
        Binding("enter", "open"),
        Binding("tab,shift+tab", "grouping"),
        Binding("y", "copy"),
    ]

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

    def take_key(self, press: events.Key) -> bool:
        """Remove the message of the previous key."""
        self.keys.message = ""
        return False

    def on_unbound_key(self) -> None:
        """Ignore other keys."""

    def action_back(self) -> None:
        """Close the opened user, else the screen."""
        if not self.table.close_user():
            self.close()

    def action_period(self, period: str) -> None:
        """Show a day, a week or a month."""
        self.table.choose(period)

    def action_window(self, step: int) -> None:
        """Show the next or previous period."""
        self.table.step_window(step)

    def action_order(self, step: int) -> None:
        """Sort by the next or previous column."""
        self.table.sort_by_neighbor(step)

    def action_reverse(self) -> None:
        """Reverse the sort order."""
        self.table.reverse()

    def action_move(self, step: int) -> None:
        """Move the cursor."""
        self.table.move(step)

    def action_move_page(self, halves: int) -> None:
        """Move the cursor by half pages."""
        self.table.move(half_pages(halves, self.table.page))

    def action_open(self) -> None:
        """Open the user under the cursor."""
        self.table.open_user()

    def action_grouping(self) -> None:
        """Toggle between the GPUs and the times of a user."""
        self.table.toggle_grouping()

    def action_copy(self) -> None:
        """Copy the row under the cursor to the terminal's clipboard."""
        if text := self.table.row_text():
            self.app.copy_to_clipboard(text)
            self.keys.message = COPIED_MESSAGE

    def on_click(self, event: events.Click | None = None) -> None:
        """Stay open; the base class closes on a click."""
        if event is not None:
            event.prevent_default()

    async def on_button_pressed(self, message: ButtonPressed) -> None:
        """Run the key of a clicked button."""
        if message.key:
            self.keys.message = ""
            await press_key(self, message.key)

    async def on_live_table_opened(self) -> None:
        """Open a user who was clicked twice."""
        await self.run_action("open")

    def on_live_table_moved(self) -> None:
        """Redraw after a click in the table."""
        self.show()

    def close(self) -> None:
        """Close the screen and drop the cached answers."""
        self.table.drop()
        super().close()
