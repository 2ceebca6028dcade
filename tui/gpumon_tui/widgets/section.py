"""A scrollable section of a page; rows that do not fit are counted."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import partial

from rich.segment import Segment
from textual import events
from textual.message import Message

from gpumon.model import units
from gpumon_tui import theme
from gpumon_tui.memo import Memo
from gpumon_tui.render.findings import wrap_words
from gpumon_tui.render.overview_section import section_head
from gpumon_tui.render.text_width import Line, LineBuilder, join_pieces
from gpumon_tui.state import View
from gpumon_tui.widgets.lines import Lines, Picture

MARK = "▌"


class SectionPicture(Picture):
    """Rows of a view, by key, with an optional cursor."""

    name_shown = ""
    opens: tuple[str, str] = ("", "")
    """The key that opens more, and its description."""

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self.active = False
        self.left = 1
        """Cells left of the section name."""
        self.top = 0
        self.keys: Sequence[Hashable] = ()
        self._followed: tuple[Hashable, int] = (None, 0)
        self._memo: Memo[Line] = Memo()

    @property
    def selected(self) -> Hashable:
        """The key of the row under the cursor, or None."""
        return None

    def select(self, key: Hashable) -> None:
        """Move the cursor."""

    def detail(self) -> Line:
        """Return the text next to the name."""
        return []

    def heading(self) -> LineBuilder | None:
        """Return the column headings, if the rows have columns."""
        return None

    def rows(self) -> Sequence[Hashable]:
        """Return the keys of all rows, in order."""
        raise NotImplementedError

    def row(self, place: int) -> LineBuilder:
        """Return the texts of a row."""
        raise NotImplementedError

    def left_out(self, shown: Sequence[Hashable]) -> str:
        """Return a text about rows that are not on screen."""
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
            told = [Segment(" " * (self.left + 1) + part, theme.DIM) for part in wrap_words(text, room)]
            return [*lines, *([one] for one in told)][:height]
        titles = self.heading() if self._has_titles else None
        room = height - 1 - (titles is not None)
        has_mark = len(self.keys) > room > (1 if titles is None else 2)
        room -= has_mark
        self._follow(room)
        on_screen = range(self.top, min(self.top + room, len(self.keys)))
        detail = self.detail()
        if titles is not None and not has_mark and (counts := self._counts(on_screen)):
            detail = [*detail, Segment(f"  {counts}", theme.TITLE)]
        lines = [self._head(detail)]
        if titles is not None:
            lines.append(self._memo.get("titles", titles.pieces, partial(join_pieces, titles.pieces, cells)))
        lines += [self._drawn(place, cells) for place in on_screen]
        if has_mark:
            lines.append(self._mark(on_screen, cells))
        return lines[:height]

    def move(self, step: int) -> None:
        """Move the cursor within the rows."""
        keys = self.rows()
        if keys:
            at = keys.index(self.selected) if self.selected in keys else -1 if step > 0 else len(keys)
            self.select(keys[max(0, min(len(keys) - 1, at + step))])

    def row_text(self) -> str:
        """Return the texts of the row under the cursor, separated by tabs; empty if there is none."""
        keys = self.rows()
        if self.selected not in keys:
            return ""
        pieces = sorted(self.row(keys.index(self.selected)).pieces, key=lambda piece: piece[0])
        texts = (text.strip() for _, text, _ in pieces)
        return "\t".join(text for text in texts if text == units.MISSING or any(map(str.isalnum, text)))  # no bars

    @property
    def page(self) -> int:
        """Rows on screen."""
        return max(1, self.size.height - 3)

    def take(self, row: int) -> bool:
        """Move the cursor to the row at a line of the picture, if there is one; return whether it was already there."""
        begin = 1 + (self.heading() is not None and self._has_titles)
        place = self.top + row - begin
        if row < begin or place >= len(self.keys):
            return False
        stood_there = self.active and self.selected == self.keys[place]
        self.select(self.keys[place])
        return stood_there

    @property
    def _has_titles(self) -> bool:
        """Whether there is room for headings.

        Numbers without a heading are meaningless, so headings precede a second row.
        """
        return self.size.height >= 3

    def _head(self, detail: Line) -> Line:
        head = section_head(self.name_shown, detail, self._more(), self.size.width, self.left)
        return self._memo.get("head", head, lambda: head)

    def _more(self) -> Line:
        key, what = self.opens
        return [Segment(key, theme.TITLE), Segment(f" {what}", theme.DIM)] if key else []

    def _follow(self, room: int) -> None:
        """Scroll to the row under the cursor when the cursor moves; after that, the mouse wheel may scroll it away."""
        selected = self.selected
        at = self.keys.index(selected) if selected is not None and selected in self.keys else -1
        if (self.selected, room) != self._followed and at >= 0 and self.active:
            self._followed = self.selected, room
            self.top = min(max(self.top, at - room + 1), at)
        self.top = max(0, min(self.top, len(self.keys) - room))

    def _drawn(self, place: int, cells: int) -> Line:
        pieces, ground = self.row(place).pieces, None
        if self.active and self.keys[place] == self.selected:
            pieces, ground = [(0, MARK, theme.TITLE), *pieces], theme.CURSOR
        return self._memo.get(place - self.top, (pieces, cells, ground), partial(join_pieces, pieces, cells, ground))

    def _mark(self, on_screen: range, cells: int) -> Line:
        row = LineBuilder()
        row.put(self.left + 1, self.left_out(self.keys[on_screen.start : on_screen.stop]), theme.FAINT)
        row.right(cells - self.left, self._counts(on_screen), theme.TITLE)
        return self._memo.get("mark", row.pieces, partial(join_pieces, row.pieces, cells))

    def _counts(self, on_screen: range) -> str:
        """Return the numbers of rows above and below the visible ones: `+2 ▲  +5 ▼`."""
        above, below = on_screen.start, len(self.keys) - on_screen.stop
        return "  ".join(f"+{many} {arrow}" for many, arrow in ((above, "▲"), (below, "▼")) if many)


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
        is_again = self._section.take(event.y)
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
