"""The line above and the line below."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon_tui.memo import Memo
from gpumon_tui.renderables import header
from gpumon_tui.renderables.text_width import Line
from gpumon_tui.view import View
from gpumon_tui.widgets.lines import Lines


class HeaderBar(Lines):
    """Source, host, freshness and time; asked for more often than there are frames."""

    dims = False

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._memo: Memo[list[Line]] = Memo()

    def lines(self) -> list[Line]:
        view, cells = self.view, self.size.width
        times = view.freshness, view.paused, view.shown.is_past
        shows = (view.origin, view.driver, view.hostname, times, view.frame, cells)
        return self._memo.get(0, shows, lambda: [header.header(view, cells)])


class Keys(Lines):
    """The keys that can be pressed."""

    dims = False

    def __init__(self, view: View, bindings: Sequence[tuple[str, str]]) -> None:
        super().__init__(view)
        self.bindings = bindings
        self.offered: tuple[tuple[str, str], ...] = ()
        """Keys that do something only at times."""

    def lines(self) -> list[Line]:
        return [header.keys((*self.offered, *self.bindings), self.size.width)]
