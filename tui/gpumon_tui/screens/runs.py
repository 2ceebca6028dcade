"""The runs page: the list, one opened run, and the comparison of two runs."""

from __future__ import annotations

from typing import ClassVar

from textual.events import Key as Press

from gpumon_tui.keybindings import CHART, PAGES, RUNS
from gpumon_tui.screens.page import TerminalPage, half_pages
from gpumon_tui.state import View
from gpumon_tui.widgets.lines import Lines
from gpumon_tui.widgets.runs_sheet import RunsSheet


class RunsPage(TerminalPage):
    """Live and past runs, from frames and from the ledgers the user can read."""

    name_shown: ClassVar[str] = RUNS

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self.sheet = RunsSheet(view)

    @property
    def drawn(self) -> tuple[Lines, ...]:
        return (self.sheet,)

    @property
    def offered(self) -> tuple[tuple[str, str], ...]:
        """Keys for the current mode: list, run or comparison."""
        return self.sheet.offered

    @property
    def withheld(self) -> frozenset[str]:
        """The key that switches tables, if there is only one table."""
        return frozenset() if self.sheet.opened.id and self.sheet.pair is None else frozenset(("Tab",))

    def take(self, press: Press) -> bool:
        """Handle typing in the filter."""
        return self.sheet.type_in(press.key, press.character or "")

    def paste(self, text: str) -> None:
        """Paste text into the filter."""
        self.sheet.list.paste(text)

    def do_move(self, step: int) -> None:
        """Move the cursor of the focused table."""
        self.sheet.move(step)

    def do_page(self, halves: int) -> None:
        """Move the cursor by half pages."""
        self.sheet.move(half_pages(halves, self.sheet.page))

    def do_open(self) -> None:
        """Open the run under the cursor, or compare it with the run marked for comparison."""
        self.sheet.open()

    def open_selected(self) -> None:
        """Open the run that another page has selected."""
        self.sheet.open_run(self.view.selected_run)

    def do_back(self) -> None:
        """Close the innermost level."""
        self.sheet.close()

    def do_table(self) -> None:
        """Move the focus between the list and the opened run."""
        self.sheet.switch()

    def do_filter(self) -> None:
        """Start typing a filter."""
        self.sheet.begin_filter()

    def do_order(self, step: int) -> None:
        """Switch to the next sort order of the list."""
        self.sheet.turn_order(step)

    def do_compare(self) -> None:
        """Mark this run for comparison with another."""
        self.sheet.begin_comparison()

    def do_swap(self) -> None:
        """Swap the baseline of a comparison."""
        self.sheet.swap()

    def do_equal(self) -> None:
        """Show or hide settings that are equal in both runs."""
        self.sheet.toggle_equal()

    def do_on_chart(self) -> None:
        """Show the epoch under the cursor on the chart; Escape returns here."""
        if way_back := self.sheet.show_epoch():
            self.post_message(self.Wanted(PAGES.index(CHART) + 1, way_back))

    def do_report(self) -> None:
        """Write the report of a run to a new file."""
        self.sheet.write_report()

    def do_curves(self) -> None:
        """Toggle between curves and table, if there is room for only one of them."""
        self.sheet.toggle_curves()

    def do_copy(self) -> None:
        """Copy the row under the cursor to the terminal's clipboard."""
        self.copy(self.sheet.row_text())

    def forget(self) -> None:
        """Reset for frames of another source."""
        self.sheet.forget()
