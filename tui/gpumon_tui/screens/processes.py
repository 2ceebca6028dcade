"""The processes page: a sorted and filtered list, a tree, or totals by user."""

from __future__ import annotations

from typing import ClassVar

from textual.events import Key as Press
from textual.geometry import Size

from gpumon_tui.keybindings import PROCESSES, pressed
from gpumon_tui.screens.page import COPIED, TerminalPage, half_pages
from gpumon_tui.screens.process_sheet import ProcessSheet
from gpumon_tui.screens.signal_dialog import not_on_page
from gpumon_tui.state import View
from gpumon_tui.widgets.lines import Lines

_OF_ROWS = frozenset(("Space", "o", "↵", "y", "u", "t"))
_OF_TABLE = frozenset(("Space", "/", "o", "↵", "u", "t"))
"""Keys of the table; they have no effect while an opened process covers it."""
_OF_CHARTS = frozenset(("+ -",))
_ACTIONS = frozenset((
    "filter", "order", "reverse", "by_memory", "by_cpu", "by_time", "next_order", "by_user", "tree", "tag", "untag",
))  # fmt: skip
"""Actions that change the table."""
COVERED = "Esc closes the process first"


class ProcessesPage(TerminalPage):
    """The page: one sheet and the actions of its keys."""

    name_shown: ClassVar[str] = PROCESSES

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self.sheet = ProcessSheet(view)
        self.rows = self.sheet.rows

    @property
    def drawn(self) -> tuple[Lines, ...]:
        return (self.sheet,)

    def share_out(self, size: Size) -> None:
        """Update the rows from the frame on screen."""
        self.rows.follow()
        self.leave_air(size)

    @property
    def offered(self) -> tuple[tuple[str, str], ...]:
        """Keys for closing an opened process, ending a process (if allowed), and the accounts screen."""
        close = (("Esc", "close"),) if self.sheet.detail.is_open else ()
        past = (("A", "accounts"),) if self.rows.is_by_user else ()
        ends = (("K", "end…"),) if self.view.can_signal and self.rows.process is not None else ()
        return (*close, *ends, *past)

    @property
    def withheld(self) -> frozenset[str]:
        """Keys without effect, because they need a row or the charts of a process."""
        window = frozenset() if self.sheet.has_detail else _OF_CHARTS
        opened = frozenset(("↵",)) if self.sheet.detail.is_open else frozenset()
        opened |= frozenset(("Space",)) if self.rows.is_by_user else frozenset()
        unseen = _OF_TABLE if self.sheet.is_covered else opened
        nothing = frozenset() if self.rows.all or self.rows.filter or self.rows.is_by_user else frozenset(("/",))
        return window | unseen | nothing if len(self.rows) else window | unseen | nothing | _OF_ROWS

    def take(self, press: Press) -> bool:
        """Handle typing in the filter, and keys of dialogs above the table."""
        self.sheet.question.said = self.sheet.said = ""
        if self.sheet.question.is_open:
            return self.sheet.question.take(press.key)
        if self.sheet.orders.is_open:
            return self.sheet.orders.take(press.key)
        return self.sheet.typing.take(press) or self._is_of_covered(press.key)

    def paste(self, text: str) -> None:
        """Paste text into the filter."""
        if not (self.sheet.question.is_open or self.sheet.orders.is_open):
            self.sheet.typing.paste(text)

    def _is_of_covered(self, name: str) -> bool:
        """Whether a key would change a table covered by an opened process; if so, show a hint instead."""
        key = pressed(PROCESSES, name)
        is_covered = self.sheet.is_covered and key is not None and key.action in _ACTIONS
        if is_covered:
            self.view.say(COVERED)
        return is_covered

    def do_filter(self) -> None:
        """Start typing a filter."""
        self.sheet.typing.begin()

    def do_order(self) -> None:
        """Choose the sort column."""
        self.sheet.orders.open()

    def do_reverse(self) -> None:
        """Reverse the sort order."""
        self.rows.sort_by(self.rows.order.name)

    def do_by_memory(self) -> None:
        """Sort by GPU memory."""
        self.rows.sort_by("mem", anew=True)

    def do_by_cpu(self) -> None:
        """Sort by CPU use."""
        self.rows.sort_by("cpu", anew=True)

    def do_by_time(self) -> None:
        """Sort by age."""
        self.rows.sort_by("time", anew=True)

    def do_next_order(self, step: int) -> None:
        """Sort by the next or previous column."""
        self.rows.sort_beside(step)

    def do_by_user(self) -> None:
        """Toggle between totals by user and processes."""
        self.rows.is_by_user = not self.rows.is_by_user

    def do_tree(self) -> None:
        """Toggle between the process tree and the list."""
        self.rows.is_by_user = False
        self.rows.is_tree = not self.rows.is_tree

    def do_move(self, step: int) -> None:
        """Move the cursor."""
        self._move(step)

    def do_page(self, halves: int) -> None:
        """Move the cursor by half pages."""
        self._move(half_pages(halves, self.sheet.page))

    def _move(self, step: int) -> None:
        """Move the cursor; an opened process follows it."""
        self.rows.move(step)
        if self.sheet.detail.is_open and self.rows.process is not None:
            self.sheet.detail.open(self.rows.process)

    def do_zoom(self, step: int) -> None:
        """Show a shorter or longer window, starting from the window of the process charts."""
        self.view.shown.chosen = self.view.shown.chosen or self.sheet.detail.window
        self.view.zoom(step)

    def do_table(self) -> None:
        """Toggle between No and Yes in an open question."""
        if self.sheet.question.is_open:
            self.sheet.question.take("tab")

    def do_signal(self) -> None:
        """Ask whether to end the tagged processes, or the one under the cursor."""
        self.sheet.question.ask(*self.rows.meant, unseen=self.rows.tags_unseen, is_by_user=self.rows.is_by_user)

    def do_tag(self) -> None:
        """Toggle the tag of the process under the cursor and move to the next; no effect while the rows are hidden."""
        if self.rows.process is not None and not self.sheet.is_covered:
            self.rows.tags.turn(self.rows.process)
            self._move(1)

    def do_untag(self) -> None:
        """Remove all tags."""
        self.rows.tags.clear()

    def do_open(self) -> None:
        """Open the row under the cursor; for a user, show the user's processes."""
        self.sheet.open()

    def open_selected(self) -> None:
        """Open the process that another page has selected."""
        self.rows.follow()
        if self.rows.process is not None:
            self.sheet.detail.open(self.rows.process)

    def do_close(self) -> None:
        """Close what was opened last."""
        self.sheet.close()

    def do_copy(self) -> None:
        """Copy the tagged rows, or the row under the cursor, to the terminal's clipboard."""
        text = self.sheet.rows_text()
        if text:
            self.app.copy_to_clipboard(text)
            self.sheet.said = COPIED
        elif self.rows.tags_unseen:
            self.sheet.said = not_on_page(self.rows.tags_unseen, is_by_user=self.rows.is_by_user)

    def forget(self) -> None:
        """Close everything that is open."""
        self.sheet.forget()
