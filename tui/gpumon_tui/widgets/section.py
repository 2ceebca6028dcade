"""Sections of the overview: tables below a name, whose cursor is a selection of the view."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from rich.segment import Segment
from textual.message import Message

from gpumon_tui import theme
from gpumon_tui.cache import Cache
from gpumon_tui.render.findings import wrap_words
from gpumon_tui.render.section import section_head
from gpumon_tui.render.table import BLANK, hidden_counts, plain_heading
from gpumon_tui.render.text_width import Line, spread
from gpumon_tui.state import View
from gpumon_tui.widgets.live_table import LiveTable

MARK = Segment("▌", theme.TITLE)


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
        self._head_cache: Cache[Line] = Cache()

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

    def mark(self, index: int) -> Segment:
        return MARK if self.is_selected(index) else BLANK

    def head(self, cells: int) -> list[Line]:
        detail = self.detail()
        if self.placed and self.has_heading and not self.has_foot and (counts := self._counts()):
            detail = [*detail, Segment(f"  {counts}", theme.TITLE)]
        key, description = self.opens
        key_hint: Line = [Segment(key, theme.TITLE), Segment(f" {description}", theme.DIM)] if key else []
        head = section_head(self.section_name, detail, key_hint, cells, self.left)
        return [self._head_cache.get(0, head, lambda: head)]

    def empty(self, cells: int) -> list[Line]:
        parts = wrap_words(self.empty_text(), max(20, cells - 2 * self.left - 1))
        return [[Segment(" " * (self.left + 1) + part, theme.DIM)] for part in parts]

    def foot_rows(self, room: int) -> int:
        return int(len(self.keys) > room > 1 + (self._first > self.head_rows))

    def foot(self, above: int, below: int, cells: int) -> Line:
        left: Line = [Segment(" " * (self.left + 1)), Segment(self.left_out(), theme.FAINT)]
        right: Line = [Segment(self._counts(), theme.TITLE), Segment(" " * self.left)]
        line = spread(left, right, cells)
        return self._head_cache.get(1, line, lambda: line)

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
