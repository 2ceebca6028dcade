"""`LiveTable`, the widget of every list that moves, and `Section`, a table of the overview below a name."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from rich.segment import Segment
from textual import events
from textual.message import Message

from gpumon_tui import theme
from gpumon_tui.cache import Cache
from gpumon_tui.render.table import (
    BLANK,
    MARK,
    PlacedColumn,
    Row,
    column_at,
    heading,
    hidden_counts,
    plain_heading,
    row_line,
    section_head,
)
from gpumon_tui.render.text_width import Line, spread, wrap_words
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
    head_rows = 0
    """Number of lines above the headings."""
    right_margin = 0
    """Cells at the right that the background of the selected row leaves out."""
    has_keys = True
    """Whether its cursor moves with the keys, and is marked."""

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
        self.on_screen = range(0)
        """Indexes of the rows on screen."""
        self.has_foot = False
        """Whether a line is reserved below the rows."""
        self.cells = self.height = 0
        """Size for which it was last drawn."""
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

    @property
    def has_heading(self) -> bool:
        """Whether there are headings, if there are columns."""
        return True

    def is_selected(self, index: int) -> bool:
        """Whether the cursor is on a row."""
        return index == self.cursor

    def mark(self, index: int) -> Segment:
        """Return the first cell of a row."""
        return MARK if self.is_selected(index) and self.has_keys else BLANK

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

    def scroll(self, count: int) -> None:
        """Scroll so that the cursor is on screen; `count` is the number of rows."""
        self.top = max(0, min(self.top, self.cursor, count - self.page), self.cursor - self.page + 1)

    def draw(self, cells: int, height: int) -> list[Line]:
        """Return the head, the headings, the rows on screen and the line below them."""
        self.cells, self.height = cells, height
        self.placed = self.place(cells)
        has_heading, count = bool(self.placed) and self.has_heading, self.row_count
        self._first = self.head_rows + has_heading
        room = max(1, height - self._first)
        foot_rows = self.foot_rows(room)
        self.has_foot, self.page = foot_rows > 0, max(1, room - foot_rows)
        self.scroll(count)
        self.on_screen = range(self.top, min(self.top + self.page, count))
        lines = self.head(cells)
        if has_heading:
            lines.append(self._heading_cache.get(0, (self.placed, cells, *self.order), lambda: self.heading(cells)))
        lines += [self.row_line(index, cells) for index in self.on_screen]
        if not count:
            lines += self.empty(cells)[: self.page]
        if foot_rows:
            lines.append(self.foot(self.top, count - self.on_screen.stop, cells))
        return lines[:height]

    def heading(self, cells: int) -> Line:
        """Return the headings of the columns."""
        name, falls = self.order
        return heading(self.placed, cells, name, falls=falls)

    def row_line(self, index: int, cells: int) -> Line:
        """Return a row as a line; the same object while nothing has changed."""
        row, mark, placed = self.row(index), self.mark(index), self.placed
        background = theme.CURSOR if self.is_selected(index) else None
        return self._row_cache.get(
            index - self.top, (row, placed, cells, mark, background),
            lambda: row_line(row, placed, cells - self.right_margin, mark=mark, background=background),
        )  # fmt: skip

    def on_click(self, event: events.Click) -> None:
        """Sort by the clicked heading, select the clicked row, or open it if the cursor is already there."""
        self.press(event.y, event.x)

    def press(self, y: int, x: int) -> None:
        """Handle a click on a cell."""
        line = y - self._first
        is_row = 0 <= line < len(self.on_screen)
        if is_row:
            index = self.on_screen[line]
            if index == self.cursor:
                self.post_message(self.Opened())
            self.move(index - self.cursor)
        elif line == -1 and (key := column_at(self.placed, x)):
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


class Section(LiveTable):
    """Rows of a view, by key, with an optional cursor; rows that do not fit are counted."""

    section_name = ""
    opens: tuple[str, str] = ("", "")
    """The key that opens more, and its description."""
    head_rows = 1
    right_margin = 1
    follows_always = False
    """Whether it scrolls to its cursor even without the focus."""

    class Chosen(Message):
        """Posted when a row was clicked; its section gets the focus."""

        def __init__(self, section: Section, *, opens: bool, is_again: bool) -> None:
            super().__init__()
            self.section = section
            self.opens = opens
            """Whether the section name was clicked, to open more."""
            self.is_again = is_again
            """Whether the row was already under the cursor."""

    def __init__(self, view: View, *, id: str) -> None:
        super().__init__(view, id=id)
        self.active = False
        """Whether it has the focus."""
        self.left = 1
        """Cells left of the section name."""
        self.keys: Sequence[Hashable] = ()
        self._followed_selection: tuple[Hashable, int] = (None, 0)

    @property
    def selected(self) -> Hashable:
        """The key of the row under the cursor, or None."""
        return None

    def select_key(self, key: Hashable) -> None:
        """Move the cursor."""

    def detail(self) -> Line:
        """Return the text next to the name."""
        return []

    def keys_of_rows(self) -> Sequence[Hashable]:
        """Return the keys of all rows, in order."""
        raise NotImplementedError

    def row_of(self, index: int) -> int:
        """Return the row of a key."""
        return index

    def left_out(self) -> str:
        """Return text about rows that are not on screen."""
        return ""

    def empty_text(self) -> str:
        """Return the text shown if there are no rows."""
        return ""

    def draw(self, cells: int, height: int) -> list[Line]:
        self.keys = self.keys_of_rows()
        return super().draw(cells, height) if height > 0 else []

    @property
    def row_count(self) -> int:
        return len(self.keys)

    @property
    def has_heading(self) -> bool:
        """Whether there is room for headings.

        Numbers without a heading are meaningless, so headings precede a second row.
        """
        return bool(self.keys) and self.height >= 3

    def heading(self, cells: int) -> Line:
        return plain_heading(self.placed, cells)

    def is_selected(self, index: int) -> bool:
        return self.active and self.keys[index] == self.selected

    def head(self, cells: int) -> list[Line]:
        detail = self.detail()
        if self.placed and self.has_heading and not self.has_foot and (counts := self._counts()):
            detail = [*detail, Segment(f"  {counts}", theme.TITLE)]
        key, description = self.opens
        key_hint: Line = [Segment(key, theme.TITLE), Segment(f" {description}", theme.DIM)] if key else []
        return [section_head(self.section_name, detail, key_hint, cells, self.left)]

    def empty(self, cells: int) -> list[Line]:
        parts = wrap_words(self.empty_text(), max(20, cells - 2 * self.left - 1))
        return [[Segment(" " * (self.left + 1) + part, theme.DIM)] for part in parts]

    def foot_rows(self, room: int) -> int:
        return int(len(self.keys) > room > 1 + (self._first > self.head_rows))

    def foot(self, above: int, below: int, cells: int) -> Line:
        left: Line = [Segment(" " * (self.left + 1)), Segment(self.left_out(), theme.FAINT)]
        right: Line = [Segment(self._counts(), theme.TITLE), Segment(" " * self.left)]
        return spread(left, right, cells)

    def _counts(self) -> str:
        """Return the numbers of rows above and below the visible ones: `+2 ▲  +5 ▼`."""
        return hidden_counts(self.top, len(self.keys) - self.on_screen.stop, gap="  ")

    def scroll(self, count: int) -> None:
        """Scroll to the row under the cursor when the cursor moves; after that, the mouse wheel may scroll it away."""
        selected, room = self.selected, self.page
        index = self.keys.index(selected) if selected is not None and selected in self.keys else -1
        if (selected, room) != self._followed_selection and index >= 0 and (self.active or self.follows_always):
            self._followed_selection = selected, room
            row = self.row_of(index)
            self.top = min(max(self.top, row - room + 1), row)
        self.top = max(0, min(self.top, count - room))

    def move(self, step: int) -> None:
        keys = self.keys_of_rows()
        if keys:
            index = keys.index(self.selected) if self.selected in keys else -1 if step > 0 else len(keys)
            self.select_key(keys[max(0, min(len(keys) - 1, index + step))])

    def row_text(self) -> str:
        """Return the texts of the row under the cursor, separated by tabs; empty if there is none."""
        keys = self.keys_of_rows()
        if self.selected not in keys:
            return ""
        texts = (cell.text.strip() for cell in self.row(keys.index(self.selected)) if not cell.parts)
        return "\t".join(text for text in texts if text)

    def press(self, y: int, x: int) -> None:
        """Select the clicked row."""
        line, is_again = y - self._first, False
        if 0 <= line < len(self.on_screen):
            index = self.on_screen[line]
            is_again = self.is_selected(index)
            self.select_key(self.keys[index])
        self.post_message(self.Chosen(self, opens=y == 0, is_again=is_again))

    def _wheel(self, step: int) -> None:
        self.top += step
        self.show()
