"""The page of events: what happened when, and the way to its moment on the chart."""

from __future__ import annotations

from typing import ClassVar

from textual.events import Key as Press
from textual.geometry import Size

from gpumon.model import units
from gpumon_tui.keys import CHART, EVENTS, PAGES
from gpumon_tui.pages.event_preview import LONG_AGO, gpu_of
from gpumon_tui.pages.event_sheet import EventSheet
from gpumon_tui.pages.page import TerminalPage, half_pages
from gpumon_tui.view import View
from gpumon_tui.way_back import WayBack
from gpumon_tui.widgets.lines import Lines


class EventsPage(TerminalPage):
    """One sheet of lines, and its keys."""

    name_shown: ClassVar[str] = EVENTS

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self.sheet = EventSheet(view)

    @property
    def drawn(self) -> tuple[Lines, ...]:
        return (self.sheet,)

    def share_out(self, size: Size) -> None:
        """Leave the sheet all but a row of air, and let it take what is known by now: the footer asks for its rows."""
        self.leave_air(size)
        self.sheet.follow()

    @property
    def withheld(self) -> frozenset[str]:
        """Keys that need an event, another group, or a GPU."""
        found = set() if self.sheet.rows else {"↵", "n p", "y"}
        if len(self.sheet.groups) < 2:
            found.add("Tab")
        if not self.view.samples or not self.sheet.knows_any:
            found.add("g G")
        if not self.sheet.knows_any and not self.sheet.filter:
            found.add("/")
        return frozenset(found)

    def take(self, press: Press) -> bool:
        """Take what is typed into the filter."""
        return self.sheet.typing.take(press)

    def paste(self, text: str) -> None:
        """Take a text into the filter."""
        self.sheet.typing.paste(text)

    def do_filter(self) -> None:
        """Type a filter."""
        self.sheet.typing.begin()

    def do_group(self, step: int) -> None:
        """Show another group."""
        self.sheet.next_group(step)

    def do_only_gpu(self, step: int) -> None:
        """Show one GPU's events, or all."""
        self.sheet.next_gpu(step)

    def do_alike(self, step: int) -> None:
        """Move to the next event of the same kind."""
        self.sheet.next_alike(step)

    def do_move(self, step: int) -> None:
        """Move the cursor."""
        self.sheet.move(step)

    def do_page(self, halves: int) -> None:
        """Move it by half pages."""
        self.sheet.move(half_pages(halves, self.sheet.page))

    def do_close(self) -> None:
        """Take the filter back."""
        self.sheet.show_all()

    def do_open(self) -> None:
        """Show the moment of the event on the chart, of its GPU where that is known."""
        row, view = self.sheet.row, self.view
        if row is None:
            return
        if subject := gpu_of(row, view):
            view.select(subject)
        before = view.shown.state()
        window = max(view.window, int(LONG_AGO)) if view.now - row.time >= LONG_AGO else view.window
        view.shown.point(row.time, window, view.history.begin, view.now)
        self.post_message(self.Wanted(PAGES.index(CHART) + 1, WayBack(EVENTS, before)))

    def on_event_chosen(self) -> None:
        """An event was clicked twice."""
        self.do_open()

    def do_copy(self) -> None:
        """Copy the row under the cursor to the clipboard of the terminal."""
        row = self.sheet.row
        if row is not None:
            cells = (units.moment(row.time), row.event.kind.label, row.gpu, row.user, row.words, row.took)
            self.copy("\t".join(cells))

    def forget(self) -> None:
        """Close the filter."""
        self.sheet.typing.is_typed = False
        self.sheet.preview.forget()
