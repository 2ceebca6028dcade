"""The page of runs: the list, one run opened, and two runs compared."""

from __future__ import annotations

from typing import ClassVar

from textual.events import Key as Press

from gpumon_tui.keybindings import CHART, PAGES, RUNS
from gpumon_tui.screens.page import TerminalPage, half_pages
from gpumon_tui.state import View
from gpumon_tui.widgets.lines import Lines
from gpumon_tui.widgets.runs_sheet import RunsSheet


class RunsPage(TerminalPage):
    """Live and past runs, from frames and from the ledgers that the user may read."""

    name_shown: ClassVar[str] = RUNS

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self.sheet = RunsSheet(view)

    @property
    def drawn(self) -> tuple[Lines, ...]:
        return (self.sheet,)

    @property
    def offered(self) -> tuple[tuple[str, str], ...]:
        """Keys for where the page is: in the list, in a run, in a comparison."""
        return self.sheet.offered

    @property
    def withheld(self) -> frozenset[str]:
        """The key to another table, where there is one table."""
        return frozenset() if self.sheet.opened.id and self.sheet.pair is None else frozenset(("Tab",))

    def take(self, press: Press) -> bool:
        """Take letters while a filter is typed."""
        return self.sheet.type_in(press.key, press.character or "")

    def paste(self, text: str) -> None:
        """Take a text into the filter."""
        self.sheet.list.paste(text)

    def do_move(self, step: int) -> None:
        """Move the cursor of what has the keys."""
        self.sheet.move(step)

    def do_page(self, halves: int) -> None:
        """Move it by half pages."""
        self.sheet.move(half_pages(halves, self.sheet.page))

    def do_open(self) -> None:
        """Open the run under the cursor, or compare it with the one that waits for that."""
        self.sheet.open()

    def open_selected(self) -> None:
        """Open the run that another page has selected."""
        self.sheet.open_run(self.view.selected_run)

    def do_back(self) -> None:
        """Close the innermost thing."""
        self.sheet.close()

    def do_table(self) -> None:
        """Keys go to the list, or to the run below it."""
        self.sheet.switch()

    def do_filter(self) -> None:
        """Type what runs must have."""
        self.sheet.begin_filter()

    def do_order(self, step: int) -> None:
        """Another order of the list."""
        self.sheet.turn_order(step)

    def do_compare(self) -> None:
        """Choose a run to compare this one with."""
        self.sheet.begin_comparison()

    def do_swap(self) -> None:
        """The other run of a comparison as the baseline."""
        self.sheet.swap()

    def do_equal(self) -> None:
        """Settings that are equal in both, or only those that differ."""
        self.sheet.toggle_equal()

    def do_on_chart(self) -> None:
        """Show the epoch under the cursor on the chart, with a way back to here."""
        if way_back := self.sheet.show_epoch():
            self.post_message(self.Wanted(PAGES.index(CHART) + 1, way_back))

    def do_report(self) -> None:
        """Write the report of a run into a new file."""
        self.sheet.write_report()

    def do_curves(self) -> None:
        """Curves in the place of the table, where both have no room."""
        self.sheet.toggle_curves()

    def do_copy(self) -> None:
        """Copy the row under the cursor to the terminal's clipboard."""
        self.copy(self.sheet.row_text())

    def forget(self) -> None:
        """Begin anew."""
        self.sheet.forget()
