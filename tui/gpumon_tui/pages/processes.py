"""The page of processes: every one of them, sorted, filtered, as a tree or added up by user."""

from __future__ import annotations

from typing import ClassVar

from textual.events import Key as Press
from textual.geometry import Size

from gpumon_tui.keys import PROCESSES
from gpumon_tui.pages.page import TerminalPage
from gpumon_tui.pages.process_sheet import ProcessSheet
from gpumon_tui.view import View
from gpumon_tui.widgets.lines import Lines


class ProcessesPage(TerminalPage):
    """One sheet of lines, and its keys."""

    name_shown: ClassVar[str] = PROCESSES

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self.sheet = ProcessSheet(view)
        self.rows = self.sheet.rows

    @property
    def drawn(self) -> tuple[Lines, ...]:
        return (self.sheet,)

    def share_out(self, size: Size) -> None:
        """Take the processes of the frame on screen."""
        self.rows.follow()

    @property
    def offered(self) -> tuple[tuple[str, str], ...]:
        """The key that ends a process, where that is allowed."""
        return () if self.view.is_readonly else (("K", "end…"),)

    def take(self, press: Press) -> bool:
        """Take what is typed into the filter, and keys of what is open above the table."""
        self.sheet.question.said = self.sheet.said = ""
        if self.sheet.question.is_open:
            return self.sheet.question.take(press.key)
        if self.sheet.orders.is_open:
            return self.sheet.orders.take(press.key)
        return self.sheet.typing.take(press)

    def do_filter(self) -> None:
        """Type a filter."""
        self.sheet.typing.begin()

    def do_order(self) -> None:
        """Choose the column to sort by."""
        self.sheet.orders.open()

    def do_reverse(self) -> None:
        """Turn the order."""
        self.rows.sort_by(self.rows.order.name)

    def do_by_user(self) -> None:
        """Show totals by user, or processes again."""
        self.rows.is_by_user = not self.rows.is_by_user

    def do_tree(self) -> None:
        """Show processes below those that started them, or a list again."""
        self.rows.is_by_user = False
        self.rows.is_tree = not self.rows.is_tree

    def do_move(self, step: int) -> None:
        """Move the cursor."""
        self._move(step)

    def do_page(self, pages: int) -> None:
        """Move it by pages."""
        self._move(pages * self.sheet.page)

    def _move(self, step: int) -> None:
        """Move the cursor; what is open follows it."""
        self.rows.move(step)
        if self.sheet.detail.is_open and self.rows.process is not None:
            self.sheet.detail.open(self.rows.process)

    def do_table(self) -> None:
        """Choose between No and Yes, while a question is open."""
        if self.sheet.question.is_open:
            self.sheet.question.take("tab")

    def do_signal(self) -> None:
        """Ask whether to end the process under the cursor."""
        if self.rows.process is not None:
            self.sheet.question.ask(self.rows.process)

    def do_open(self) -> None:
        """Open what is under the cursor: of a user, the processes."""
        self.sheet.open()

    def do_close(self) -> None:
        """Close what was opened last."""
        self.sheet.close()

    def do_copy(self) -> None:
        """Copy the row under the cursor to the clipboard of the terminal."""
        text = self.sheet.row_text()
        if text:
            self.app.copy_to_clipboard(text)
            self.sheet.said = "copied, if the terminal lets programs copy (OSC 52)"

    def forget(self) -> None:
        """Close what is open."""
        self.sheet.forget()
