"""A table with a cursor that stays on its row when the rows are sorted anew."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import overload

from textual import events
from textual.message import Message

from gpumon.frame import NAN
from gpumon.text import cut
from gpumon_tui.memo import Memo
from gpumon_tui.renderables.table import Row, TableColumn, table
from gpumon_tui.renderables.text_width import Line, safe
from gpumon_tui.view import View
from gpumon_tui.widgets.lines import Lines

HEAD_ROWS = 2


class LazyRows(Sequence[Row]):
    """Rows that are made when they are asked for: most are not on screen."""

    def __init__(self, many: int, make: Callable[[int], Row]) -> None:
        self._many = many
        self._make = make

    def __len__(self) -> int:
        return self._many

    @overload
    def __getitem__(self, place: int) -> Row: ...

    @overload
    def __getitem__(self, place: slice) -> list[Row]: ...

    def __getitem__(self, place: int | slice) -> Row | list[Row]:
        if isinstance(place, slice):
            return [self._make(at) for at in range(self._many)[place]]
        return self._make(place)


_WORDS = 12
"""Fewest cells in which a sentence next to a title says something."""
_BESIDE = 24
"""Cells of a title's line beside its texts: its ends, and where one is in the table."""


class Table(Lines):
    """Rows of a view, by key."""

    title = ""

    class Activated(Message):
        """The table was clicked: keys go to it from now on."""

        def __init__(self, table: Table) -> None:
            super().__init__()
            self.table = table

    @property
    def columns(self) -> tuple[TableColumn, ...]:
        """Its columns, from left to right."""
        return ()

    @property
    def empty(self) -> str:
        """The text in place of rows if there are none."""
        return ""

    @property
    def left_out(self) -> int:
        """Number of things without a row, because a frame has no room for them."""
        return 0

    @property
    def notice(self) -> str:
        """A sentence about all rows, next to the title."""
        return ""

    @property
    def is_told(self) -> bool:
        """Whether no row means that there is nothing, and not that nobody knows."""
        return self.view.frame is not None and self.view.tells_processes

    @property
    def count(self) -> int | None:
        """Number of things that the rows belong to, if one can have several; None if each has one."""
        return None

    def __init__(self, view: View, *, id: str) -> None:
        super().__init__(view, id=id)
        self.active = False
        self.aside = ""
        """Names the other table where only one has room."""
        self.cursor = 0
        self.top = 0
        self._keys: list[Hashable] = []
        self._drawn: Memo[Line] = Memo()

    def rows(self) -> tuple[list[Hashable], LazyRows]:
        """Keys and rows in the order they are shown."""
        raise NotImplementedError

    def lines(self) -> list[Line]:
        keys, rows = self.rows()
        self._follow(keys)
        self._scroll()
        cursor = self.cursor if self.active else -1
        more = f"and {self.left_out} more" if self.left_out else ""
        room = self.size.width - len(self.title) - len(more) - len(self.aside) - _BESIDE
        notice = cut(safe(self.notice), room) if keys and room >= _WORDS else ""
        aside = "  ".join(text for text in (more, self.aside, notice) if text)
        empty = "" if keys else self.empty
        count = self.count if keys or self.is_told else NAN
        cells, height = self.size
        return table(
            self.title, self.columns, rows, cursor=cursor, top=self.top, cells=cells, height=height,
            active=self.active, empty=empty, aside=aside, count=count, drawn=self._drawn,
        )  # fmt: skip

    def move(self, step: int) -> None:
        """Move the cursor; it stays within the rows."""
        self.cursor = max(0, min(len(self._keys) - 1, self.cursor + step))
        self.show()

    @property
    def page(self) -> int:
        """Rows on screen."""
        return max(1, self.size.height - HEAD_ROWS)

    @property
    def key(self) -> Hashable | None:
        """The key under the cursor."""
        return self._keys[self.cursor] if self.cursor < len(self._keys) else None

    def on_click(self, event: events.Click) -> None:
        """Take the row under the mouse."""
        place = self.top + event.y - HEAD_ROWS
        if event.y >= HEAD_ROWS and place < len(self._keys):
            self.cursor = place
        self.post_message(self.Activated(self))

    def on_mouse_scroll_down(self) -> None:
        """Three rows, as elsewhere."""
        self.move(3)

    def on_mouse_scroll_up(self) -> None:
        """Three rows, as elsewhere."""
        self.move(-3)

    def _follow(self, keys: list[Hashable]) -> None:
        key = self.key
        if key in keys:
            self.cursor = keys.index(key)
        self._keys = keys
        self.cursor = max(0, min(self.cursor, len(keys) - 1))

    def _scroll(self) -> None:
        page = self.page
        most = max(0, len(self._keys) - page)
        self.top = max(min(self.top, self.cursor, most), self.cursor - page + 1)
