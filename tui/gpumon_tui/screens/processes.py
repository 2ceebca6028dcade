"""The processes page: a sorted and filtered list, a tree, or totals by user, and the opened process."""

from __future__ import annotations

from typing import ClassVar

from rich.segment import Segment
from textual import events
from textual.binding import Binding, BindingType
from textual.events import Key as Press
from textual.geometry import Size

from gpumon.model import units
from gpumon_tui import theme
from gpumon_tui.data.processes import HINTS
from gpumon_tui.keybindings import PROCESSES, action_name, key_binding
from gpumon_tui.render.process_columns import needed_columns
from gpumon_tui.render.process_head import are_processes_known, unknown_text
from gpumon_tui.render.table import margin
from gpumon_tui.render.text_width import ClickRange, Line, fit, length, safe
from gpumon_tui.screens.page import COPIED_MESSAGE, TablePage, TerminalPage
from gpumon_tui.screens.signal_dialog import SignalQuestion, SignalWindow, not_on_page
from gpumon_tui.screens.window import ListWindow, open_window
from gpumon_tui.state import View
from gpumon_tui.widgets.filter_field import FIELD, FilterField
from gpumon_tui.widgets.lines import Lines
from gpumon_tui.widgets.process_detail import SPLIT_ROWS, ProcessDetail
from gpumon_tui.widgets.process_table import ProcessTable

_ROW_KEYS = frozenset(("Space", "o", "↵", "y", "u", "t"))
_TABLE_KEYS = frozenset(("Space", "/", "o", "↵", "u", "t"))
"""Keys of the table; they have no effect while an opened process covers it."""
_CHART_KEYS = frozenset(("+ -",))
_TABLE_ACTIONS = frozenset((
    "filter", "order", "reverse", "by_memory", "by_cpu", "by_time", "next_order", "by_user", "tree", "tag", "untag",
))  # fmt: skip
"""Actions that change the table."""
COVERED_HINT = "Esc closes the process first"
BLANKS_FROM = 28
"""Rows for head and table from which a blank row separates them."""
SPLIT_FROM = 28
"""Rows of the page from which an opened process is shown below the table instead of covering it."""
PREVIEW_FROM = 9
"""Free rows below the table from which the process under the cursor is previewed there."""
MAX_PREVIEW_ROWS = 30
"""Maximum rows of that preview."""
TABLE_ROWS = 5
"""Rows of the table in addition to the processes, including the blank row below."""
SUMS_FROM = 12
"""Rows for head and table from which totals by user are shown below the table."""
NARROW = 80
"""Width of the page below which counts are brief."""
FIELD_CELLS = 26
"""Width of the filter field."""
ORDER_CELLS = 27
"""Width of the list of sort columns."""
_TITLE, _TEXT, _DIM, _FAINT = (
    theme.ink("strong", bold=True), theme.ink("text"), theme.ink("dim"), theme.ink("faint"),
)  # fmt: skip
_KEY, _WARN, _STRONG = theme.ink("key", bold=True), theme.ink("warn"), theme.ink("strong")


class ProcessHead(Lines):
    """Number of processes, filter and switches; a blank row follows if there is room."""

    def __init__(self, view: View, table: ProcessTable, filter_field: FilterField) -> None:
        super().__init__(view, id="process-head")
        self._table = table
        self._filter_field = filter_field

    def lines(self) -> list[Line]:
        """Return the line, and update its clickable ranges."""
        table, cells = self._table, self.size.width
        edge, line = margin(cells), self._counts(cells)
        switches, switch_ranges = self._switches()
        room = cells - edge - length(switches)
        ranges: list[ClickRange] = []
        if table.filter or self._filter_field.is_active:
            begin = max(length(line) + 2, min(34, cells // 2 - FIELD_CELLS // 2))
            field_cells = min(FIELD_CELLS, cells - begin - 3 - edge)
            if begin + field_cells + 3 > room - 2:
                switches, room = [], cells
            if field_cells < 4:
                line, begin, field_cells = [Segment(" " * edge)], edge, cells - 2 * edge - 2
            field = self._filter_field.line(field_cells)
            line += [Segment(" " * max(0, begin - length(line))), Segment("/ ", _KEY), *field]
            line.append(Segment(" " * (field_cells - length(field)), FIELD))
            hint_cells = room - length(line) - 4
            hints: Line = []
            for hint in HINTS:
                if self._filter_field.is_active and length(hints) + len(hint) + 2 <= hint_cells:
                    hints.append(Segment(f"  {hint}", _FAINT))
            line += hints
            ranges.append(ClickRange(begin, begin + field_cells + 2, "filter"))
        elif (notice := self.view.origin.notice) and room - length(line) > 16:
            line.append(Segment("  " + fit(safe(notice), room - length(line) - 4).rstrip(), _DIM))
        if switches and length(line) + 2 <= room:
            line += [Segment(" " * (room - length(line))), *switches]
            ranges += [ClickRange(room + begin, room + end, action) for begin, end, action, _ in switch_ranges]
        self.click_ranges = ranges
        return [line]

    def _counts(self, cells: int) -> Line:
        """Return the name of the page, and how many processes there are, are tagged and are not known."""
        view, table, edge = self.view, self._table, margin(cells)
        is_wide, total, from_history = cells >= NARROW, len(table.all), len(table.left_out.processes)
        is_complete = view.frame is not None and are_processes_known(view.samples) and not view.age > 0
        line: Line = [Segment(" " * edge), Segment("Processes", _TITLE), Segment("  ")]
        if table.filter:
            line += [Segment(str(len(table.matched)), _TEXT), Segment(f" of {total}", _DIM)]
        else:
            line.append(Segment(str(total) if is_complete or total else units.MISSING, _TEXT))
        if from_history and is_wide:
            age = units.long_duration(view.now - table.left_out.until)
            line.append(Segment(f"  {from_history} of history, {age} old", _WARN))
        if left_out := self._left_out:
            line.append(Segment(f"  {left_out} more have no room" if is_wide else f" +{left_out}", _WARN))
        unknown = unknown_text(view.samples, view.freshness.frame_age) if view.has_processes and total else ""
        if unknown and (is_wide or not (table.filter or self._filter_field.is_active)):
            line.append(Segment("  " + fit(unknown, cells - edge - length(line) - 2).rstrip(), _WARN))
        if table.tags:
            unseen = f", {table.hidden_tags} unseen" if table.hidden_tags else ""
            line.append(Segment(f"  {len(table.tags)} tagged{unseen}", _KEY))
        return line

    @property
    def _left_out(self) -> int:
        """Number of further processes that frames have no room for."""
        frame = self.view.frame
        return max(0, frame.dropped - len(self._table.left_out.processes)) if frame else 0

    def _switches(self) -> tuple[Line, list[ClickRange]]:
        """Return the switches between list, tree and totals, and their ranges of cells."""
        table, line, ranges = self._table, list[Segment](), list[ClickRange]()
        if not (table.all or self._left_out or table.is_by_user or table.is_tree):
            return line, ranges
        is_tree = table.is_tree and not table.is_by_user
        switches = (("u", "by user", "by_user", table.is_by_user), ("t", "tree", "tree", is_tree))
        for hotkey, name, action, is_on in switches:
            style = _STRONG if is_on else _DIM
            line += [Segment("   " if line else ""), Segment(hotkey, _KEY), Segment(f" {name}", style)]
            end = length(line)
            ranges.append(ClickRange(end - len(name) - 2, end, action))
        return line, ranges

    def on_click(self, event: events.Click) -> None:
        """Run what was clicked."""
        action, table = self.action_at(event.x, event.y), self._table
        if action == "filter":
            self._filter_field.begin()
        elif action == "by_user":
            table.is_by_user = not table.is_by_user
        elif action == "tree":
            table.is_tree, table.is_by_user = not table.is_tree, False
        self.post_message(TerminalPage.Changed())


class ProcessesPage(TablePage):
    """The page and the actions of its keys."""

    table: ProcessTable
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("minus", "zoom(-1)"),
        Binding("slash,f3,f4,backslash", "filter", "filter", key_display="/",
            tooltip="filter: words, user: gpu: run:, mem> cpu> time> idle>"),
        Binding("n", "move(1)"),
        Binding("N", "move(-1)"),
        Binding("space", "tag", "tag", key_display="Space",
            tooltip="tag a process: one signal or copy for all tagged; U untags all"),
        Binding("U", "untag"),
        Binding("o,f6", "order", "sort", key_display="o", tooltip="sort by a column; also a click on its heading"),
        Binding("I", "reverse", key_display="I", tooltip="reverse the order"),
        Binding("M", "by_memory", key_display="M P T",
            tooltip="sort by GPU memory, CPU, time; , . by the column to the left, right"),
        Binding("P", "by_cpu"),
        Binding("T", "by_time"),
        Binding("comma,less_than_sign", "next_order(-1)"),
        Binding("full_stop,greater_than_sign", "next_order(1)"),
        Binding("enter", "open", "open", key_display="↵", tooltip="open a process: what it uses, and its history"),
        Binding("K,f9", "signal", key_display="K", tooltip="end a process or send a signal, after a confirmation"),
        Binding("y", "copy", "copy", key_display="y", tooltip="copy the row"),
        Binding("u", "by_user", "by user", key_display="u", tooltip="totals by user"),
        Binding("A", "app.accounts", "accounts", key_display="A",
            tooltip="accounts: GPU hours by user in a day, a week or a month, and their cost"),
        Binding("t,f5", "tree", "tree", key_display="t", tooltip="process tree: each process below its parent"),
        Binding("p", "app.pause", "pause", key_display="p", tooltip="pause the display, as space does on other pages"),
        Binding("plus,equals_sign", "zoom(1)", "zoom", key_display="+ -",
            tooltip="longer or shorter time window, 2 seconds to 31 days"),
        Binding("g", "move(-1_000_000)", key_display="g G", tooltip="the first or last row"),
        Binding("G", "move(1_000_000)"),
        Binding("escape", "close", key_display="Esc", tooltip="close what was opened last, then the filter"),
    ]  # fmt: skip
    page_name: ClassVar[str] = PROCESSES

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self.table = ProcessTable(view)
        self.filter_field = FilterField(self.table)
        self.head = ProcessHead(view, self.table, self.filter_field)
        self.detail = ProcessDetail(view, self.table)
        self.question = SignalQuestion(view, self.table.tags.drop)
        self.has_detail = False
        """Whether process details are shown, next to the table or in its place."""
        self.is_covered = False
        """Whether an opened process covers the table."""
        self.message = ""
        """Message below the table, shown until the next key."""

    @property
    def line_widgets(self) -> tuple[Lines, ...]:
        return self.head, self.table, self.detail

    def lay_out(self, size: Size) -> None:
        """Update the rows, and divide the page: an opened process uses the room below the table, or the whole page."""
        self.set_top_padding(size)
        table, detail, height = self.table, self.detail, size.height - self.body.styles.padding.top
        table.follow()
        self.question.watch()
        table.message = detail.message = self.question.message or self.message
        free_rows = height - max(1, table.row_count) - TABLE_ROWS
        has_preview_room = free_rows >= PREVIEW_FROM
        self.has_detail = detail.is_open or (has_preview_room and table.process is not None)
        self.is_covered = detail.is_open and (height < SPLIT_FROM or has_preview_room)
        detail.is_below = not self.is_covered
        if self.is_covered:
            self.set_heights((self.head, 0), (table, 0), (detail, height))
            return
        if not self.has_detail:
            head_rows, table_rows = self._table_rows(height)
            self.set_heights((self.head, head_rows), (table, table_rows), (detail, 0))
            return
        if not detail.is_open and table.process is not None:
            detail.preview(table.process)
            head_rows, table_rows = self._table_rows(height - free_rows - 1)
            detail_rows = min(MAX_PREVIEW_ROWS + 1, height - head_rows - table_rows)
        else:
            wanted_rows = min(MAX_PREVIEW_ROWS, max(SPLIT_ROWS, height - table.row_count - 6))
            head_rows, table_rows = self._table_rows(height - wanted_rows - 1)
            detail_rows = height - head_rows - table_rows
        self.set_heights((self.head, head_rows), (table, table_rows), (detail, detail_rows))

    def _table_rows(self, height: int) -> tuple[int, int]:
        """Return the rows of the head and of the table, in at most `height` rows for both."""
        table, head_rows = self.table, 1 + (height >= BLANKS_FROM)
        table.has_sums = height >= SUMS_FROM or bool(table.message)
        room = max(0, height - head_rows)
        self._page_rows = max(1, room - 1 - table.has_sums)
        return head_rows, min(room, 1 + max(1, table.row_count) + table.has_sums) if self.has_detail else room

    @property
    def extra_keys(self) -> tuple[tuple[str, str], ...]:
        """Keys for closing an opened process, ending a process (if allowed), and the accounts screen."""
        close_key = (("Esc", "close"),) if self.detail.is_open else ()
        accounts_key = (("A", "accounts"),) if self.table.is_by_user else ()
        signal_key = (("K", "end…"),) if self.view.can_signal and self.table.process is not None else ()
        return (*close_key, *signal_key, *accounts_key)

    @property
    def hidden_keys(self) -> frozenset[str]:
        """Keys without effect, because they need a row or the charts of a process."""
        zoom_key = frozenset() if self.has_detail else _CHART_KEYS
        opened_keys = frozenset(("↵",)) if self.detail.is_open else frozenset()
        opened_keys |= frozenset(("Space",)) if self.table.is_by_user else frozenset()
        covered_keys = _TABLE_KEYS if self.is_covered else opened_keys
        filter_key = frozenset() if self.table.all or self.table.filter or self.table.is_by_user else frozenset(("/",))
        hidden = zoom_key | covered_keys | filter_key
        return hidden if self.table.row_count else hidden | _ROW_KEYS

    def take_key(self, press: Press) -> bool:
        """Handle typing in the filter."""
        self.question.message = self.message = ""
        return super().take_key(press) or self._refuse_covered(press.key)

    def _refuse_covered(self, name: str) -> bool:
        """Whether a key would change a table covered by an opened process; if so, show a hint instead."""
        key = key_binding(PROCESSES, name)
        is_covered = self.is_covered and key is not None and action_name(key) in _TABLE_ACTIONS
        if is_covered:
            self.view.show_message(COVERED_HINT)
        return is_covered

    def action_order(self) -> None:
        """Choose the sort column."""
        table = self.table
        names = [column.name for column in table.orders]

        def rows() -> list[tuple[str, str]]:
            arrow = "▼" if table.order.falls else "▲"
            return [(column.title, arrow if column.name == table.order.name else "") for column in table.orders]

        # a stored column may have no values for any process
        cursor = names.index(table.order.name) if table.order.name in names else 0
        window = ListWindow(
            self.view, "Sort by", rows, cursor, lambda index: table.sort_by(names[index]), cells=ORDER_CELLS
        )
        open_window(self.app, window)

    def action_reverse(self) -> None:
        """Reverse the sort order."""
        self.table.sort_by(self.table.order.name)

    def action_by_memory(self) -> None:
        """Sort by GPU memory."""
        self.table.sort_by("mem", default_direction=True)

    def action_by_cpu(self) -> None:
        """Sort by CPU use."""
        self.table.sort_by("cpu", default_direction=True)

    def action_by_time(self) -> None:
        """Sort by age."""
        self.table.sort_by("time", default_direction=True)

    def action_next_order(self, step: int) -> None:
        """Sort by the next or previous column."""
        self.table.sort_by_neighbor(step)

    def action_by_user(self) -> None:
        """Toggle between totals by user and processes."""
        self.table.is_by_user = not self.table.is_by_user

    def action_tree(self) -> None:
        """Toggle between the process tree and the list."""
        self.table.is_by_user = False
        self.table.is_tree = not self.table.is_tree

    def action_move(self, step: int) -> None:
        """Move the cursor; an opened process follows it."""
        super().action_move(step)
        if self.detail.is_open and self.table.process is not None:
            self.detail.open(self.table.process)

    def action_zoom(self, step: int) -> None:
        """Show a shorter or longer window, starting from the window of the process charts."""
        self.view.chart_time.length = self.view.chart_time.length or self.detail.window
        self.view.zoom(step)

    def action_signal(self) -> None:
        """Ask whether to end the tagged processes, or the one under the cursor."""
        self.question.ask(*self.table.targets, unseen=self.table.hidden_tags, is_by_user=self.table.is_by_user)
        if self.question.is_open:
            open_window(self.app, SignalWindow(self.view, self.question))

    def action_tag(self) -> None:
        """Toggle the tag of the process under the cursor and move to the next; no effect while the rows are hidden."""
        if self.table.process is not None and not self.is_covered:
            self.table.tags.turn(self.table.process)
            self.action_move(1)

    def action_untag(self) -> None:
        """Remove all tags."""
        self.table.tags.clear()

    def action_open(self) -> None:
        """Open the row under the cursor; for a user, show the user's processes."""
        table = self.table
        if table.is_by_user and table.cursor < table.row_count:
            name = safe(table.totals[table.cursor].user).partition(" ")[0]
            table.filter, table.is_by_user = f"user:{name}" if name else "", False
        elif table.process is not None:
            opened = self.detail.process
            if self.detail.is_open and opened is not None and opened[:2] == table.process[:2]:
                self.detail.close()
            else:
                self.detail.open(table.process)

    def open_selected(self) -> None:
        """Open the process that another page has selected."""
        self.table.follow()
        if self.table.process is not None:
            self.detail.open(self.table.process)

    def action_close(self) -> None:
        """Close what was opened last; then clear the filter, the tags, and the tree or totals, one per call."""
        table = self.table
        if self.detail.is_open:
            self.detail.close()
        elif table.filter:
            table.filter = ""
        elif table.tags:
            table.tags.clear()
        else:
            table.is_by_user = table.is_tree = False

    def action_copy(self) -> None:
        """Copy the tagged rows, or the row under the cursor, to the terminal's clipboard."""
        text = self.table.text
        if text:
            self.app.copy_to_clipboard(text)
            self.message = COPIED_MESSAGE
        elif self.table.hidden_tags:
            self.message = not_on_page(self.table.hidden_tags, is_by_user=self.table.is_by_user)

    def forget(self) -> None:
        """Close everything that is open."""
        self.table.columns = needed_columns(())
        self.filter_field.is_active = False
        self.question.forget()
        self.detail.close()
        self.message = ""
