"""The widget of the processes page: its lines and clickable areas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.segment import Segment
from textual import events

from gpumon.common.text import clean
from gpumon.model import units
from gpumon_tui import palette
from gpumon_tui.cache import Cache
from gpumon_tui.data.process_filters import count_hidden
from gpumon_tui.data.process_tree import ParentProcess
from gpumon_tui.render.overlay import overlay
from gpumon_tui.render.process_columns import ProcessColumn, fit_epoch_column, needed_columns
from gpumon_tui.render.process_detail import SPLIT_ROWS
from gpumon_tui.render.process_head import (
    ClickRange,
    HeadContent,
    are_processes_known,
    empty_text,
    head_line,
    sums_line,
    unknown_text,
)
from gpumon_tui.render.process_lines import PlacedColumn, fit_columns, heading, margin, row_line
from gpumon_tui.render.signal_dialog import dialog_lines
from gpumon_tui.render.table import Cell
from gpumon_tui.render.text_width import NO_PROCESS_DATA, SHOW_ALL, Line, fit, hidden_text, safe
from gpumon_tui.screens.page import TerminalPage
from gpumon_tui.screens.process_detail import ProcessDetail
from gpumon_tui.screens.process_rows import ProcessSelection
from gpumon_tui.screens.signal_dialog import SignalQuestion
from gpumon_tui.screens.text_input import FilterField, OrderChooser
from gpumon_tui.state import View
from gpumon_tui.widgets.lines import Lines

BLANKS_FROM = 28
"""Rows of the page from which a blank row follows the title."""
SPLIT_FROM = 28
"""Rows of the page from which an opened process is shown below the table instead of covering it."""
PREVIEW_FROM = 9
"""Free rows below the table from which the process under the cursor is previewed there."""
MAX_PREVIEW_ROWS = 30
"""Maximum rows of that preview."""
TABLE_ROWS = 5
"""Rows of the table in addition to the processes, including the blank row below."""
SUMS_FROM = 12
"""Rows of the page from which totals by user are shown below the table."""
_DIM, _TEXT, _KEY, _SELECT = (
    palette.ink("dim"), palette.ink("text"), palette.ink("key"), palette.ink("strong", "select", bold=True),
)  # fmt: skip
_PARENT = palette.ink("faint")
TREE_BRANCH = "└ "


class ProcessesWidget(Lines):
    """The widget that draws the whole page."""

    DEFAULT_CSS = "ProcessesWidget { height: 1fr; }"

    def __init__(self, view: View) -> None:
        super().__init__(view, id="processes-widget")
        self.rows = ProcessSelection(view)
        self.filter_field = FilterField(self.rows)
        self.orders = OrderChooser(self.rows)
        self.page = 1
        """Rows of the table on screen."""
        self._top = 0
        self._first = 0
        """Line number of the first row."""
        self.question = SignalQuestion(view, self.rows.tags.drop)
        self.detail = ProcessDetail(view, self.rows)
        self.has_detail = False
        """Whether process details are shown, next to the table or in its place."""
        self.is_covered = False
        """Whether an opened process covers the table."""
        self.message = ""
        """Message below the table, shown until the next key."""
        self._columns: Sequence[PlacedColumn] = ()
        self._heading_at = 0
        self._click_ranges: Sequence[ClickRange] = ()
        self._box = (0, 0)
        self._buttons: Sequence[tuple[int, ClickRange]] = ()
        self._row_cache: Cache[Line] = Cache()

    def open(self) -> None:
        """Open the row under the cursor."""
        rows = self.rows
        if rows.is_by_user and rows.cursor < len(rows.totals):
            name = safe(rows.totals[rows.cursor].user).partition(" ")[0]
            rows.filter, rows.is_by_user = f"user:{name}" if name else "", False
        elif rows.process is not None:
            opened = self.detail.process
            if self.detail.is_open and opened is not None and opened[:2] == rows.process[:2]:
                self.detail.close()
            else:
                self.detail.open(rows.process)

    def close(self) -> None:
        """Close what was opened last; then clear the filter, the tags, and the tree or totals, one per call."""
        rows = self.rows
        if self.detail.is_open:
            self.detail.close()
        elif rows.filter:
            rows.filter = ""
        elif rows.tags:
            rows.tags.clear()
        else:
            rows.is_by_user = rows.is_tree = False

    def forget(self) -> None:
        """Close everything that is open."""
        self.rows.columns = needed_columns(())
        self.orders.is_open = self.filter_field.is_active = False
        self.question.forget()
        self.detail.close()
        self.message = ""

    def rows_text(self) -> str:
        """Return the cells of the tagged rows, or of the row under the cursor, separated by tabs."""
        rows, facts = self.rows, self.view.process_facts()
        if rows.is_by_user:
            chosen = [[column.cell(total, facts) for column in rows.user_columns if column.title]
                      for total in rows.totals[rows.cursor : rows.cursor + 1]]  # fmt: skip
        else:
            columns = [column for column in rows.columns if column.title]
            chosen = [[column.cell(process, facts) for column in columns] for process in rows.targets]
        return "\n".join("\t".join(cell.text for cell in cells) for cells in chosen)

    def lines(self) -> list[Line]:
        """Return the title, headings, rows and totals, with open dialogs on top."""
        cells, height = self.size
        self.rows.follow()
        lines = self._page(cells, height)
        padded = [*lines, *([[]] * (height - len(lines)))]
        if self.orders.is_open:
            lines, left, top = overlay(padded, self._order_lines(height), cells)
            self._box = left, top
        elif self.question.is_open:
            box, self._buttons = self._question(cells - 6, height - 2)
            lines, left, top = overlay(padded, box, cells, "crit")
            self._box = left, top
        return lines

    def _question(self, cells: int, rows: int) -> tuple[list[Line], list[tuple[int, ClickRange]]]:
        question = self.question
        return dialog_lines(
            *question.title,
            question.sentences(rows),
            question.choices,
            chosen=question.choice,
            is_yes=question.is_yes,
            cells=cells,
            rows=rows,
        )

    def _page(self, cells: int, height: int) -> list[Line]:
        """Return the table with the process under the cursor below it; an opened process uses all that room, or the
        whole page.
        """
        free_rows = height - max(1, len(self.rows)) - TABLE_ROWS
        self.has_detail = self.detail.is_open or (free_rows >= PREVIEW_FROM and self.rows.process is not None)
        self.is_covered = self.detail.is_open and (height < SPLIT_FROM or free_rows >= PREVIEW_FROM)
        if not self.has_detail:
            return self._table(cells, height)
        if not self.detail.is_open and self.rows.process is not None:
            self.detail.preview(self.rows.process)
            table_lines = self._table(cells, height - free_rows - 1)
            return [*table_lines, [], *self.detail.lines(cells, min(MAX_PREVIEW_ROWS, height - len(table_lines) - 1))]
        if self.is_covered:
            self.page, self._heading_at, self._first = 1, -1, height
            self._click_ranges = ()
            return [*self.detail.lines(cells, height - 1), *self._result(cells)]
        free_rows = min(MAX_PREVIEW_ROWS, max(SPLIT_ROWS, height - len(self.rows) - 6))
        table_lines = self._table(cells, height - free_rows - 1)
        return [*table_lines, [], *self.detail.lines(cells, height - len(table_lines) - 1)]

    def _result(self, cells: int) -> list[Line]:
        """Return the result of the last action, if the table has no line for it."""
        self.question.watch()
        message = self.question.message or self.message
        return [[Segment(" "), Segment(fit(clean(message), cells - 2), _KEY)]] if message else []

    def _table(self, cells: int, height: int) -> list[Line]:
        view, rows = self.view, self.rows
        title, self._click_ranges = self._head(cells)
        lines: list[Line] = [title]
        if height >= BLANKS_FROM:
            lines.append([])
        if not view.has_processes:  # there will never be rows, so headings would be pointless
            self._heading_at, self._first = -1, len(lines)
            return [*lines, *self._empty_lines(cells)][:height]
        columns: tuple[ProcessColumn[Any], ...] = rows.user_columns
        if not rows.is_by_user:
            columns = fit_epoch_column(rows.columns, view.process_facts())
        self._columns = fit_columns(columns, cells, rows.order.name)
        self._heading_at = len(lines)
        lines.append(heading(self._columns, cells, *rows.order))
        self._first = len(lines)
        self.question.watch()
        has_sums = height >= SUMS_FROM or bool(self.message or self.question.message)
        self.page = max(1, height - len(lines) - has_sums)
        self._scroll()
        if not len(rows):
            lines += self._empty_lines(cells)[: self.page]
        visible = range(self._top, min(self._top + self.page, len(rows)))
        lines += [self._row(index, cells) for index in visible]
        if has_sums:
            hidden = len(rows) - visible.stop
            lines.append(self._bottom_line(hidden, cells))
        return lines[:height]

    def _head(self, cells: int) -> tuple[Line, Sequence[ClickRange]]:
        view, rows = self.view, self.rows
        from_history = len(rows.left_out.processes)
        content = HeadContent(
            shown=len(rows.matched),
            total=len(rows.all),
            tagged=len(rows.tags),
            hidden_tags=rows.hidden_tags,
            is_complete=view.frame is not None and are_processes_known(view.samples) and not view.age > 0,
            left_out=max(0, view.frame.dropped - from_history) if view.frame else 0,
            from_history=from_history,
            history_age=view.now - rows.left_out.until,
            text=rows.filter,
            is_typing=self.filter_field.is_active,
            is_tree=rows.is_tree and not rows.is_by_user,
            is_by_user=rows.is_by_user,
            unknown=unknown_text(view.samples, view.freshness.frame_age) if view.has_processes and rows.all else "",
            notice=view.origin.notice,
        )
        return head_line(content, margin(cells), cells)

    def _bottom_line(self, hidden: int, cells: int) -> Line:
        rows, edge = self.rows, margin(cells)
        if message := self.question.message or self.message:
            return [Segment(" " * edge), Segment(fit(clean(message), cells - 2 * edge), _KEY)]
        gpus = [sample for sample in self.view.samples if not sample.device.is_instance]
        total = sum(sample.value("gpu.memory_total") for sample in gpus)
        return sums_line(rows.memory, total, hidden, edge, cells)

    def _empty_lines(self, cells: int) -> list[Line]:
        return [[Segment(" " * margin(cells) + line, _DIM)] for line in self._empty()]

    def _empty(self) -> list[str]:
        """Return the sentences shown in place of rows."""
        view, rows = self.view, self.rows
        if view.frame is None:
            return [view.freshness.text]
        if not view.has_processes:
            return [NO_PROCESS_DATA]
        if not rows.all:
            last_time = units.clock(view.now) if view.age > 0 else ""
            sentence = empty_text(view.samples, view.origin.problem, last_time)
            return [sentence, view.origin.notice] if view.origin.notice else [sentence]
        hidden = count_hidden(rows.all, rows.terms, view.process_facts())
        reasons = ", ".join(f"{safe(text)} hides {number}" for text, number in hidden)
        return [hidden_text("process", len(rows.all), reasons), SHOW_ALL]

    def _row(self, index: int, cells: int) -> Line:
        rows, facts = self.rows, self.view.process_facts()
        is_tagged = False
        if rows.is_by_user:
            content = [column.cell(rows.totals[index], facts) for column, _, _ in self._columns]
        else:
            depth, process, parent = rows.row(index)
            branch = "  " * (depth - 1) + TREE_BRANCH if depth else ""
            if process is not None:
                content = [column.cell(process, facts) for column, _, _ in self._columns]
                is_tagged = process in rows.tags
            else:
                content = [_parent_cell(column.name, parent) for column, _, _ in self._columns]
            if branch:
                content[-1] = content[-1]._replace(text=branch + content[-1].text)
        is_selected = index == rows.cursor
        marked = is_selected, is_tagged
        inputs = self._columns, tuple(content), cells, *marked
        return self._row_cache.get(index - self._top, inputs, lambda: row_line(content, self._columns, cells, *marked))

    def _scroll(self) -> None:
        max_top = max(0, len(self.rows) - self.page)
        self._top = max(0, min(self._top, self.rows.cursor, max_top), self.rows.cursor - self.page + 1)

    def _order_lines(self, height: int) -> list[Line]:
        """Return the list of sort columns."""
        order, cursor = self.rows.order, self.orders.cursor
        room = max(1, height - 5)
        first = max(0, cursor - room + 1)
        lines: list[Line] = [[Segment("Sort by", palette.ink("strong", bold=True))]]
        for index, column in enumerate(self.rows.orders[first : first + room], first):
            arrow = ("▼" if order.falls else "▲") if column.name == order.name else " "
            style = _SELECT if index == cursor else _TEXT
            lines.append([Segment(f" {fit(column.title, 18)}{arrow} ", style)])
        return lines

    def on_click(self, event: events.Click) -> None:
        """Sort by a clicked heading, select the clicked row, or run what was clicked."""
        rows = self.rows
        if self.orders.is_open:
            left, top = self._box
            self.orders.choose(event.y - top - 1 if left <= event.x < left + 22 else -1)
        elif self.question.is_open:
            self._press_button(event.x - self._box[0], event.y - self._box[1])
        elif event.y == 0:
            self._press_title(event.x)
        elif event.y == self._heading_at:
            self._sort_at(event.x)
        elif self._first <= event.y < self._first + self.page and event.y - self._first + self._top < len(rows):
            index = event.y - self._first + self._top
            if index == rows.cursor:
                self.open()
            rows.move(index - rows.cursor)
        self.post_message(TerminalPage.Changed())

    def _press_title(self, cell: int) -> None:
        action = next(
            (click_range.action for click_range in self._click_ranges if click_range.begin <= cell < click_range.end),
            "",
        )
        if action == "filter":
            self.filter_field.begin()
        elif action == "by_user":
            self.rows.is_by_user = not self.rows.is_by_user
        elif action == "tree":
            self.rows.is_tree, self.rows.is_by_user = not self.rows.is_tree, False

    def _press_button(self, cell: int, row: int) -> None:
        actions = (
            click_range.action
            for button_row, click_range in self._buttons
            if button_row == row and click_range.begin <= cell < click_range.end
        )
        action, _, number = next(actions, "").partition(" ")
        if action == "choice":
            self.question.choice = int(number)
        elif action:
            self.question.answer(action == "yes")

    def _sort_at(self, cell: int) -> None:
        column = next(
            (
                candidate
                for candidate, begin, room in self._columns
                if begin <= cell <= begin + room and candidate.order
            ),
            None,
        )
        if column:
            self.rows.sort_by(column.name)

    def on_mouse_scroll_down(self) -> None:
        """Move the cursor down by three rows."""
        self._wheel(3)

    def on_mouse_scroll_up(self) -> None:
        """Move the cursor up by three rows."""
        self._wheel(-3)

    def _wheel(self, step: int) -> None:
        self.rows.move(step)
        self.show()


def _parent_cell(name: str, parent: ParentProcess | None) -> Cell:
    """Return a cell for a parent of several processes, which is on no GPU itself; its name is readable by every
    user.
    """
    texts = {"pid": str(parent.pid), "program": safe(parent.name)} if parent else {}
    return Cell(texts.get(name, ""), _PARENT)
