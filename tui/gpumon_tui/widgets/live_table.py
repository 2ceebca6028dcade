"""`LiveTable`, the widget of every list that moves."""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment
from textual import events
from textual.message import Message

from gpumon_tui import theme
from gpumon_tui.cache import Cache
from gpumon_tui.render.table import BLANK, MARK, PlacedColumn, Row, column_at, heading, row_line
from gpumon_tui.render.text_width import Line
from gpumon_tui.state import View
from gpumon_tui.widgets.lines import Lines

WHEEL = 3
"""Rows per step of the mouse wheel."""


class LiveTable(Lines):
    """Headings, the rows on screen, and the number of rows that do not fit.

    A subclass defines columns and rows. Only rows on screen are built, so the time to draw does not depend on the
    number of rows, and only cells that differ are painted.
    """

    DEFAULT_CSS = "LiveTable { height: 1fr; }"

    class Moved(Message):
        """Posted when the cursor or the order was changed with the mouse."""

        def __init__(self, *, is_row: bool) -> None:
            super().__init__()
            self.is_row = is_row
            """Whether a row was clicked, or the wheel moved the cursor."""

    class Opened(Message):
        """Posted when the row under the cursor was clicked."""

    def __init__(self, view: View, *, id: str | None = None) -> None:
        super().__init__(view, id=id)
        self.cursor = 0
        """Index of the row under the cursor."""
        self.page = 1
        """Number of rows on screen."""
        self.top = 0
        """Index of the first row on screen."""
        self.placed: Sequence[PlacedColumn] = ()
        """Columns on screen."""
        self._first = 0
        """Line of the first row."""
        self._row_cache: Cache[Line] = Cache()
        self._heading_cache: Cache[Line] = Cache()

    @property
    def row_count(self) -> int:
        """Number of rows, including those that are not on screen."""
        raise NotImplementedError

    def place(self, cells: int) -> Sequence[PlacedColumn]:
        """Return the columns that fit in a width; none for a list without headings."""
        raise NotImplementedError

    def row(self, index: int) -> Row:
        """Return the cells of a row, one for each of `placed`."""
        raise NotImplementedError

    @property
    def order(self) -> tuple[str, bool]:
        """Key of the sort column, empty for none, and whether the largest value comes first."""
        return "", True

    def mark(self, index: int) -> Segment:
        """Return the first cell of a row."""
        return MARK if index == self.cursor else BLANK

    def head(self, cells: int) -> list[Line]:
        """Return the lines above the headings."""
        return []

    def empty(self, cells: int) -> list[Line]:
        """Return the lines in place of rows."""
        return []

    def foot_rows(self, room: int) -> int:
        """Return the number of lines reserved below the rows, of `room` lines for both."""
        return 0

    def foot(self, above: int, below: int, cells: int) -> Line:
        """Return the line below the rows, if one is reserved; `above` and `below` are the numbers of hidden rows."""
        return []

    def sort_by(self, key: str) -> None:
        """Sort by the column whose heading was clicked."""

    def move(self, step: int) -> None:
        """Move the cursor within the rows."""
        self.cursor = max(0, min(self.row_count - 1, self.cursor + step))

    def lines(self) -> list[Line]:
        """Return the head, the headings, the rows on screen and the line below them."""
        cells, height = self.size
        self.placed = self.place(cells)
        lines = self.head(cells)
        if self.placed:
            name, falls = self.order
            lines.append(self._heading_cache.get(
                0, (self.placed, cells, name, falls), lambda: heading(self.placed, cells, name, falls=falls)
            ))  # fmt: skip
        self._first = len(lines)
        room, count = max(1, height - len(lines)), self.row_count
        foot_rows = self.foot_rows(room)
        self.page = max(1, room - foot_rows)
        self.top = max(0, min(self.top, self.cursor, count - self.page), self.cursor - self.page + 1)
        visible = range(self.top, min(self.top + self.page, count))
        lines += [self._line(index, cells) for index in visible]
        if not count:
            lines += self.empty(cells)[: self.page]
        if foot_rows:
            lines.append(self.foot(visible.start, count - visible.stop, cells))
        return lines[:height]

    def _line(self, index: int, cells: int) -> Line:
        row, mark, placed = self.row(index), self.mark(index), self.placed
        background = theme.CURSOR if index == self.cursor else None
        return self._row_cache.get(
            index - self.top, (row, placed, cells, mark, background),
            lambda: row_line(row, placed, cells, mark=mark, background=background),
        )  # fmt: skip

    def on_click(self, event: events.Click) -> None:
        """Sort by the clicked heading, select the clicked row, or open it if the cursor is already there."""
        line, visible = event.y - self._first, range(self.top, min(self.top + self.page, self.row_count))
        is_row = 0 <= line < len(visible)
        if is_row:
            index = visible[line]
            if index == self.cursor:
                self.post_message(self.Opened())
            self.move(index - self.cursor)
        elif line == -1 and (key := column_at(self.placed, event.x)):
            self.sort_by(key)
        self.post_message(self.Moved(is_row=is_row))

    def on_mouse_scroll_down(self) -> None:
        """Move the cursor down by three rows."""
        self._wheel(WHEEL)

    def on_mouse_scroll_up(self) -> None:
        """Move the cursor up by three rows."""
        self._wheel(-WHEEL)

    def _wheel(self, step: int) -> None:
        self.move(step)
        self.post_message(self.Moved(is_row=True))
