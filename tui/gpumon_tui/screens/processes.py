"""The processes page: a sorted and filtered list, a tree, or totals by user."""

from __future__ import annotations

from typing import ClassVar

from textual.events import Key as Press
from textual.geometry import Size

from gpumon_tui.keybindings import PROCESSES, key_binding
from gpumon_tui.screens.page import COPIED_MESSAGE, TerminalPage, half_pages
from gpumon_tui.screens.processes_widget import ProcessesWidget
from gpumon_tui.screens.signal_dialog import not_on_page
from gpumon_tui.state import View
from gpumon_tui.widgets.lines import Lines

_ROW_KEYS = frozenset(("Space", "o", "↵", "y", "u", "t"))
_TABLE_KEYS = frozenset(("Space", "/", "o", "↵", "u", "t"))
"""Keys of the table; they have no effect while an opened process covers it."""
_CHART_KEYS = frozenset(("+ -",))
_TABLE_ACTIONS = frozenset((
    "filter", "order", "reverse", "by_memory", "by_cpu", "by_time", "next_order", "by_user", "tree", "tag", "untag",
))  # fmt: skip
"""Actions that change the table."""
COVERED_HINT = "Esc closes the process first"


class ProcessesPage(TerminalPage):
    """The page: one widget and the actions of its keys."""

    page_name: ClassVar[str] = PROCESSES

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self.content = ProcessesWidget(view)
        self.rows = self.content.rows

    @property
    def line_widgets(self) -> tuple[Lines, ...]:
        return (self.content,)

    def lay_out(self, size: Size) -> None:
        """Update the rows from the frame on screen."""
        self.rows.follow()
        self.set_top_padding(size)

    @property
    def extra_keys(self) -> tuple[tuple[str, str], ...]:
        """Keys for closing an opened process, ending a process (if allowed), and the accounts screen."""
        close_key = (("Esc", "close"),) if self.content.detail.is_open else ()
        accounts_key = (("A", "accounts"),) if self.rows.is_by_user else ()
        signal_key = (("K", "end…"),) if self.view.can_signal and self.rows.process is not None else ()
        return (*close_key, *signal_key, *accounts_key)

    @property
    def hidden_keys(self) -> frozenset[str]:
        """Keys without effect, because they need a row or the charts of a process."""
        zoom_key = frozenset() if self.content.has_detail else _CHART_KEYS
        opened_keys = frozenset(("↵",)) if self.content.detail.is_open else frozenset()
        opened_keys |= frozenset(("Space",)) if self.rows.is_by_user else frozenset()
        covered_keys = _TABLE_KEYS if self.content.is_covered else opened_keys
        filter_key = frozenset() if self.rows.all or self.rows.filter or self.rows.is_by_user else frozenset(("/",))
        return (
            zoom_key | covered_keys | filter_key if len(self.rows) else zoom_key | covered_keys | filter_key | _ROW_KEYS
        )

    def take_key(self, press: Press) -> bool:
        """Handle typing in the filter, and keys of dialogs above the table."""
        self.content.question.message = self.content.message = ""
        if self.content.question.is_open:
            return self.content.question.handle(press.key)
        if self.content.orders.is_open:
            return self.content.orders.handle(press.key)
        return self.content.filter_field.handle(press) or self._refuse_covered(press.key)

    def paste(self, text: str) -> None:
        """Paste text into the filter."""
        if not (self.content.question.is_open or self.content.orders.is_open):
            self.content.filter_field.paste(text)

    def _refuse_covered(self, name: str) -> bool:
        """Whether a key would change a table covered by an opened process; if so, show a hint instead."""
        key = key_binding(PROCESSES, name)
        is_covered = self.content.is_covered and key is not None and key.action in _TABLE_ACTIONS
        if is_covered:
            self.view.show_message(COVERED_HINT)
        return is_covered

    def do_filter(self) -> None:
        """Start typing a filter."""
        self.content.filter_field.begin()

    def do_order(self) -> None:
        """Choose the sort column."""
        self.content.orders.open()

    def do_reverse(self) -> None:
        """Reverse the sort order."""
        self.rows.sort_by(self.rows.order.name)

    def do_by_memory(self) -> None:
        """Sort by GPU memory."""
        self.rows.sort_by("mem", default_direction=True)

    def do_by_cpu(self) -> None:
        """Sort by CPU use."""
        self.rows.sort_by("cpu", default_direction=True)

    def do_by_time(self) -> None:
        """Sort by age."""
        self.rows.sort_by("time", default_direction=True)

    def do_next_order(self, step: int) -> None:
        """Sort by the next or previous column."""
        self.rows.sort_by_neighbor(step)

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
        self._move(half_pages(halves, self.content.page))

    def _move(self, step: int) -> None:
        """Move the cursor; an opened process follows it."""
        self.rows.move(step)
        if self.content.detail.is_open and self.rows.process is not None:
            self.content.detail.open(self.rows.process)

    def do_zoom(self, step: int) -> None:
        """Show a shorter or longer window, starting from the window of the process charts."""
        self.view.chart_time.length = self.view.chart_time.length or self.content.detail.window
        self.view.zoom(step)

    def do_table(self) -> None:
        """Toggle between No and Yes in an open question."""
        if self.content.question.is_open:
            self.content.question.handle("tab")

    def do_signal(self) -> None:
        """Ask whether to end the tagged processes, or the one under the cursor."""
        self.content.question.ask(*self.rows.targets, unseen=self.rows.hidden_tags, is_by_user=self.rows.is_by_user)

    def do_tag(self) -> None:
        """Toggle the tag of the process under the cursor and move to the next; no effect while the rows are hidden."""
        if self.rows.process is not None and not self.content.is_covered:
            self.rows.tags.turn(self.rows.process)
            self._move(1)

    def do_untag(self) -> None:
        """Remove all tags."""
        self.rows.tags.clear()

    def do_open(self) -> None:
        """Open the row under the cursor; for a user, show the user's processes."""
        self.content.open()

    def open_selected(self) -> None:
        """Open the process that another page has selected."""
        self.rows.follow()
        if self.rows.process is not None:
            self.content.detail.open(self.rows.process)

    def do_close(self) -> None:
        """Close what was opened last."""
        self.content.close()

    def do_copy(self) -> None:
        """Copy the tagged rows, or the row under the cursor, to the terminal's clipboard."""
        text = self.content.rows_text()
        if text:
            self.app.copy_to_clipboard(text)
            self.content.message = COPIED_MESSAGE
        elif self.rows.hidden_tags:
            self.content.message = not_on_page(self.rows.hidden_tags, is_by_user=self.rows.is_by_user)

    def forget(self) -> None:
        """Close everything that is open."""
        self.content.forget()
