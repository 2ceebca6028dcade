"""A scrollable section of a page; rows that do not fit are counted."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import partial

from rich.segment import Segment
from textual import events
from textual.message import Message

from gpumon_tui import theme
from gpumon_tui.cache import Cache
from gpumon_tui.render.findings import wrap_words
from gpumon_tui.render.section import section_head
from gpumon_tui.render.table import BLANK, PlacedColumn, Row, hidden_counts, plain_heading, row_line
from gpumon_tui.render.text_width import Line, spread
from gpumon_tui.state import View
from gpumon_tui.widgets.lines import Lines, Picture

MARK = Segment("▌", theme.TITLE)


class SectionPicture(Picture):
    """Rows of a view, by key, with an optional cursor."""

    section_name = ""
    opens: tuple[str, str] = ("", "")
    """The key that opens more, and its description."""

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self.active = False
        self.left = 1
        """Cells left of the section name."""
        self.top = 0
        self.keys: Sequence[Hashable] = ()
        self.placed: Sequence[PlacedColumn] = ()
        """Columns on screen."""
        self._followed_selection: tuple[Hashable, int] = (None, 0)
        self._cache: Cache[Line] = Cache()

    @property
    def selected(self) -> Hashable:
        """The key of the row under the cursor, or None."""
        return None

    def select(self, key: Hashable) -> None:
        """Move the cursor."""

    def detail(self) -> Line:
        """Return the text next to the name."""
        return []

    def place(self, cells: int) -> Sequence[PlacedColumn]:
        """Return the columns that fit in a width."""
        return ()

    @property
    def has_heading(self) -> bool:
        """Whether the columns have headings."""
        return True

    def rows(self) -> Sequence[Hashable]:
        """Return the keys of all rows, in order."""
        raise NotImplementedError

    def row(self, index: int) -> Row:
        """Return the cells of a row, one for each of `placed`."""
        raise NotImplementedError

    def left_out(self, visible: Sequence[Hashable]) -> str:
        """Return text about rows that are not on screen."""
        return ""

    def empty(self) -> str:
        """Return the text shown if there are no rows."""
        return ""

    def lines(self) -> list[Line]:
        cells, height = self.size
        if height < 1:
            return []
        self.keys = self.rows()
        if not self.keys:
            lines = [self._head(self.detail())]
            text = self.empty()
            room = max(20, cells - 2 * self.left - 1)
            text_lines = [Segment(" " * (self.left + 1) + text_line, theme.DIM) for text_line in wrap_words(text, room)]
            return [*lines, *([text_line] for text_line in text_lines)][:height]
        self.placed = placed = self.place(cells)
        has_titles = self._has_titles
        room = height - 1 - has_titles
        has_mark = len(self.keys) > room > 1 + has_titles
        room -= has_mark
        self._follow(room)
        visible = range(self.top, min(self.top + room, len(self.keys)))
        detail = self.detail()
        if has_titles and not has_mark and (counts := self._counts(visible)):
            detail = [*detail, Segment(f"  {counts}", theme.TITLE)]
        lines = [self._head(detail)]
        if has_titles:
            lines.append(self._cache.get("titles", (placed, cells), partial(plain_heading, placed, cells)))
        lines += [self._row_line(index, cells) for index in visible]
        if has_mark:
            lines.append(self._mark(visible, cells))
        return lines[:height]

    def move(self, step: int) -> None:
        """Move the cursor within the rows."""
        keys = self.rows()
        if keys:
            index = keys.index(self.selected) if self.selected in keys else -1 if step > 0 else len(keys)
            self.select(keys[max(0, min(len(keys) - 1, index + step))])

    def row_text(self) -> str:
        """Return the texts of the row under the cursor, separated by tabs; empty if there is none."""
        keys = self.rows()
        if self.selected not in keys:
            return ""
        texts = (cell.text.strip() for cell in self.row(keys.index(self.selected)) if not cell.parts)
        return "\t".join(text for text in texts if text)

    @property
    def page(self) -> int:
        """Rows on screen."""
        return max(1, self.size.height - 3)

    def select_line(self, row: int) -> bool:
        """Move the cursor to the row at a line of the picture, if there is one; return whether it was already there."""
        first_row = 1 + self._has_titles
        index = self.top + row - first_row
        if row < first_row or index >= len(self.keys):
            return False
        was_selected = self.active and self.selected == self.keys[index]
        self.select(self.keys[index])
        return was_selected

    @property
    def _has_titles(self) -> bool:
        """Whether there is room for headings.

        Numbers without a heading are meaningless, so headings precede a second row.
        """
        return bool(self.placed) and self.has_heading and self.size.height >= 3

    def _head(self, detail: Line) -> Line:
        head = section_head(self.section_name, detail, self._key_hint(), self.size.width, self.left)
        return self._cache.get("head", head, lambda: head)

    def _key_hint(self) -> Line:
        key, description = self.opens
        return [Segment(key, theme.TITLE), Segment(f" {description}", theme.DIM)] if key else []

    def _follow(self, room: int) -> None:
        """Scroll to the row under the cursor when the cursor moves; after that, the mouse wheel may scroll it away."""
        selected = self.selected
        index = self.keys.index(selected) if selected is not None and selected in self.keys else -1
        if (self.selected, room) != self._followed_selection and index >= 0 and self.active:
            self._followed_selection = self.selected, room
            self.top = min(max(self.top, index - room + 1), index)
        self.top = max(0, min(self.top, len(self.keys) - room))

    def _row_line(self, index: int, cells: int) -> Line:
        row, placed, is_selected = self.row(index), self.placed, self.active and self.keys[index] == self.selected
        mark, background = (MARK, theme.CURSOR) if is_selected else (BLANK, None)
        return self._cache.get(
            index - self.top, (row, placed, cells, mark),
            lambda: row_line(row, placed, cells - 1, mark=mark, background=background),
        )  # fmt: skip

    def _mark(self, visible: range, cells: int) -> Line:
        left: Line = [
            Segment(" " * (self.left + 1)),
            Segment(self.left_out(self.keys[visible.start : visible.stop]), theme.FAINT),
        ]
        right: Line = [Segment(self._counts(visible), theme.TITLE), Segment(" " * self.left)]
        return spread(left, right, cells)

    def _counts(self, visible: range) -> str:
        """Return the numbers of rows above and below the visible ones: `+2 ▲  +5 ▼`."""
        return hidden_counts(visible.start, len(self.keys) - visible.stop, gap="  ")


WHEEL = 3
"""Rows per step of the mouse wheel."""


class Section(Lines):
    """The widget; a click on a row selects it."""

    class Chosen(Message):
        """Posted when a row was clicked; its section gets the focus."""

        def __init__(self, picture: SectionPicture, *, opens: bool, is_again: bool) -> None:
            super().__init__()
            self.picture = picture
            self.opens = opens
            """Whether the section name was clicked, to open more."""
            self.is_again = is_again
            """Whether the row was already under the cursor."""

    def __init__(self, view: View, picture: SectionPicture, *, id: str) -> None:
        super().__init__(view, picture, id=id)
        self._section = picture

    def on_click(self, event: events.Click) -> None:
        """Select the clicked row."""
        is_again = self._section.select_line(event.y)
        self.post_message(self.Chosen(self._section, opens=event.y == 0, is_again=is_again))

    def on_mouse_scroll_down(self) -> None:
        """Scroll down."""
        self._scroll(WHEEL)

    def on_mouse_scroll_up(self) -> None:
        """Scroll up."""
        self._scroll(-WHEEL)

    def _scroll(self, rows: int) -> None:
        self._section.top += rows
        self.show()
