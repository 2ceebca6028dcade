"""The line above and the line below."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.message import Message

from gpumon_tui.memo import Memo
from gpumon_tui.renderables import footer, header
from gpumon_tui.renderables.text_width import Line
from gpumon_tui.view import View
from gpumon_tui.widgets.lines import Lines


class HeaderBar(Lines):
    """Source, host, freshness and time; asked for more often than there are frames."""

    dims = False
    ground = "panel"

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._memo: Memo[list[Line]] = Memo()

    def lines(self) -> list[Line]:
        view, cells = self.view, self.size.width
        times = view.freshness, view.paused, view.shown.is_past
        shows = (view.origin, view.driver, view.hostname, times, view.frame, cells)
        return self._memo.get(0, shows, lambda: [header.header(view, cells)])


class ReasonLine(Lines):
    """Why nothing newer comes, below the header; it has a row only while that is so."""

    DEFAULT_CSS = "ReasonLine { display: none; }"
    dims = False

    def lines(self) -> list[Line]:
        return [header.reason(self.view, self.size.width)]


class Footer(Lines):
    """The pages, and the keys that apply on the one on screen; each can be clicked."""

    dims = False
    ground = "panel"

    class Pressed(Message):
        """Something at the foot was clicked; `key` is Textual's name of the key that does the same."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    def __init__(self, view: View, pages: Sequence[str]) -> None:
        super().__init__(view)
        self.page = ""
        """The page on screen."""
        self.bindings: Sequence[tuple[str, str]] = ()
        self.offered: Sequence[tuple[str, str]] = ()
        """Keys that do something only at times."""
        self._pages = pages
        self._memo: Memo[list[Line]] = Memo()

    def lines(self) -> list[Line]:
        bindings, cells = (*self.offered, *self.bindings), self.size.width
        said, is_ascii = self.view.said, self.view.look.is_ascii
        shows = (self.page, bindings, cells, said, is_ascii)
        return self._memo.get(0, shows, lambda: [self._line(bindings, cells)])

    def on_click(self, event: events.Click) -> None:
        """Press the key under the mouse."""
        for begin, end, key in self._places:
            if begin <= event.x < end:
                self.post_message(self.Pressed(key))

    def _line(self, bindings: Sequence[tuple[str, str]], cells: int) -> Line:
        view = self.view
        line, self._places = footer.footer(
            self._pages, self.page, bindings, cells, said=view.said, is_ascii=view.look.is_ascii
        )
        return line
