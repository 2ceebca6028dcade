"""The runs page: the list, one opened run, and the comparison of two runs."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType
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

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab,shift+tab", "table", "table", key_display="Tab",
            tooltip="move in the list of runs, or in the run below it"),
        Binding("enter", "open", key_display="↵", tooltip="open a run: its epochs, the time between them, curves"),
        Binding("escape,backspace", "back", key_display="Esc", tooltip="close what was opened last, then the filter"),
        Binding("slash,f3,f4,backslash", "filter", key_display="/",
            tooltip="only runs with these words in name, id, user, framework, state or tag"),
        Binding("o,f6", "order(1)", key_display="o O", tooltip="another order; also a click on a heading"),
        Binding("O", "order(-1)"),
        Binding("v", "compare", key_display="v",
            tooltip="compare a run with another; x swaps them, d shows equal settings"),
        Binding("x", "swap"),
        Binding("d", "equal"),
        Binding("e", "on_chart", key_display="e", tooltip="an epoch on the chart: its time, its GPUs; Esc leads back"),
        Binding("r", "report", key_display="r",
            tooltip="write the report of a run to a new file in the working directory"),
        Binding("c", "curves", key_display="c", tooltip="curves of a run in place of its table, on a narrow screen"),
        Binding("y", "copy", key_display="y", tooltip="copy the row under the cursor"),
        Binding("n", "move(1)"),
        Binding("N", "move(-1)"),
        Binding("g", "move(-1_000_000)", key_display="g G", tooltip="the first or last row"),
        Binding("G", "move(1_000_000)"),
    ]  # fmt: skip
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
        if self.body.styles.padding.top != padding:
            self.body.styles.padding = (padding, 0, 0, 0)
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
        return self.content.list.filter_field.handle(press)

    def paste(self, text: str) -> None:
        """Paste text into the filter."""
        self.content.list.filter_field.paste(text)

    def action_move(self, step: int) -> None:
        """Move the cursor of the focused table."""
        self.content.move(step)

    def action_move_page(self, halves: int) -> None:
        """Move the cursor by half pages."""
        self.content.move(half_pages(halves, self.content.page))

    def action_open(self) -> None:
        """Open the run under the cursor, or compare it with the run marked for comparison."""
        self.content.open()

    def open_selected(self) -> None:
        """Open the run that another page has selected."""
        self.content.open_run(self.view.selected_run)

    def action_back(self) -> None:
        """Close the innermost level."""
        self.content.close()

    def action_table(self) -> None:
        """Move the focus between the list and the opened run."""
        self.content.switch()

    def action_filter(self) -> None:
        """Start typing a filter."""
        self.content.begin_filter()

    def action_order(self, step: int) -> None:
        """Switch to the next sort order of the list."""
        self.content.turn_order(step)

    def action_compare(self) -> None:
        """Mark this run for comparison with another."""
        self.content.begin_comparison()

    def action_swap(self) -> None:
        """Swap the baseline of a comparison."""
        self.content.swap()

    def action_equal(self) -> None:
        """Show or hide settings that are equal in both runs."""
        self.content.toggle_equal()

    def action_on_chart(self) -> None:
        """Show the epoch under the cursor on the chart; Escape returns here."""
        if way_back := self.content.show_epoch():
            self.post_message(self.OpenRequested(PAGES.index(CHART) + 1, way_back))

    def action_report(self) -> None:
        """Write the report of a run to a new file."""
        self.content.write_report()

    def action_curves(self) -> None:
        """Toggle between curves and table, if there is room for only one of them."""
        self.content.toggle_curves()

    def action_copy(self) -> None:
        """Copy the row under the cursor to the terminal's clipboard."""
        self.copy(self.content.row_text())

    def forget(self) -> None:
        """Reset for frames of another source."""
        self.content.forget()
