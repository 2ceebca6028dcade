"""The runs page: the list, one opened run, and the comparison of two runs."""

from __future__ import annotations

from typing import ClassVar

from textual.events import Key as Press
from textual.geometry import Size

from gpumon_tui.keybindings import CHART, PAGES, RUNS
from gpumon_tui.screens.page import TerminalPage, half_pages
from gpumon_tui.state import View
from gpumon_tui.widgets.lines import Lines
from gpumon_tui.widgets.live_table import LiveTable
from gpumon_tui.widgets.runs_widget import RunsWidget

BLANK_FROM = 30
"""Page height from which a blank row follows the header."""


class RunsPage(TerminalPage):
    """Live and past runs, from frames and from the ledgers the user can read."""

    page_name: ClassVar[str] = RUNS

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self.content = RunsWidget(view)

    @property
    def line_widgets(self) -> tuple[Lines, ...]:
        return self.content.list, self.content

    def lay_out(self, size: Size) -> None:
        """Update the list, and divide the page between it and the part below."""
        padding = int(size.height >= BLANK_FROM)
        if self.styles.padding.top != padding:
            self.styles.padding = (padding, 0, 0, 0)
        height = size.height - padding
        list_rows = self.content.lay_out(size.width, height)
        self.set_heights((self.content.list, list_rows), (self.content, height - list_rows))

    def on_live_table_opened(self) -> None:
        """Open a run that was clicked twice."""
        self.content.open()

    def on_live_table_moved(self, message: LiveTable.Moved) -> None:
        """Give the list the focus after a click on a row; an opened run follows the cursor. The base class redraws."""
        if message.is_row:
            self.content.in_list = True
            if self.content.opened.id:
                self.content.open()

    @property
    def extra_keys(self) -> tuple[tuple[str, str], ...]:
        """Keys for the current mode: list, run or comparison."""
        return self.content.extra_keys

    @property
    def hidden_keys(self) -> frozenset[str]:
        """The key that switches tables, if there is only one table."""
        return frozenset() if self.content.opened.id and self.content.pair is None else frozenset(("Tab",))

    def take_key(self, press: Press) -> bool:
        """Handle typing in the filter."""
        return self.content.type_in(press.key, press.character or "")

    def paste(self, text: str) -> None:
        """Paste text into the filter."""
        self.content.list.paste(text)

    def do_move(self, step: int) -> None:
        """Move the cursor of the focused table."""
        self.content.move(step)

    def do_page(self, halves: int) -> None:
        """Move the cursor by half pages."""
        self.content.move(half_pages(halves, self.content.page))

    def do_open(self) -> None:
        """Open the run under the cursor, or compare it with the run marked for comparison."""
        self.content.open()

    def open_selected(self) -> None:
        """Open the run that another page has selected."""
        self.content.open_run(self.view.selected_run)

    def do_back(self) -> None:
        """Close the innermost level."""
        self.content.close()

    def do_table(self) -> None:
        """Move the focus between the list and the opened run."""
        self.content.switch()

    def do_filter(self) -> None:
        """Start typing a filter."""
        self.content.begin_filter()

    def do_order(self, step: int) -> None:
        """Switch to the next sort order of the list."""
        self.content.turn_order(step)

    def do_compare(self) -> None:
        """Mark this run for comparison with another."""
        self.content.begin_comparison()

    def do_swap(self) -> None:
        """Swap the baseline of a comparison."""
        self.content.swap()

    def do_equal(self) -> None:
        """Show or hide settings that are equal in both runs."""
        self.content.toggle_equal()

    def do_on_chart(self) -> None:
        """Show the epoch under the cursor on the chart; Escape returns here."""
        if way_back := self.content.show_epoch():
            self.post_message(self.OpenRequested(PAGES.index(CHART) + 1, way_back))

    def do_report(self) -> None:
        """Write the report of a run to a new file."""
        self.content.write_report()

    def do_curves(self) -> None:
        """Toggle between curves and table, if there is room for only one of them."""
        self.content.toggle_curves()

    def do_copy(self) -> None:
        """Copy the row under the cursor to the terminal's clipboard."""
        self.copy(self.content.row_text())

    def forget(self) -> None:
        """Reset for frames of another source."""
        self.content.forget()
