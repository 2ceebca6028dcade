"""The events page: the table of events with its filters, the strip of the last day, the preview, and its keys."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import ClassVar

from rich.segment import Segment
from textual import events
from textual.events import Key as Press
from textual.geometry import Size
from textual.message import Message

from gpumon.common.numbers import is_known
from gpumon.model import units
from gpumon.model.origin import Capability
from gpumon.storage.history.recent import KEEP
from gpumon_tui import palette
from gpumon_tui.keybindings import CHART, EVENTS, PAGES
from gpumon_tui.memo import Memo
from gpumon_tui.render.event_lines import EventButton, EventHead, columns, edge, head_line, heading_line, row_line
from gpumon_tui.render.event_rows import ALL, GROUPS, EventRow, filter_rows, index_of
from gpumon_tui.render.event_strip import (
    STRIP_FROM,
    StripSpan,
    event_strip,
    last_day_span,
    observed_columns,
    recording_span,
    strip_cells,
)
from gpumon_tui.render.findings import wrap_limited
from gpumon_tui.render.text_width import SHOW_ALL, Line, fit, hidden_text, safe
from gpumon_tui.screens.event_preview import LONG_AGO, EventPreview, gpu_of
from gpumon_tui.screens.page import TerminalPage, half_pages
from gpumon_tui.screens.text_input import FilterField
from gpumon_tui.state import View
from gpumon_tui.way_back import WayBack
from gpumon_tui.widgets.event_tables import EventTables
from gpumon_tui.widgets.lines import Lines

_DIM, _KEY, _WARN = palette.ink("dim"), palette.ink("key"), palette.ink("warn")
_ROOMY = 24
"""Rows of the page from which blank rows separate the parts."""
_MOST_SAID = 3
"""Maximum number of lines for the reason why there is no log."""
_DAY_FROM = 20
"""Rows of the page from which the strip of the day is drawn."""


class EventChosen(Message):
    """Posted when an event is to be shown on the chart."""


class EventSheet(Lines):
    """The widget that draws the whole page."""

    DEFAULT_CSS = "EventSheet { height: 1fr; }"

    def __init__(self, view: View) -> None:
        super().__init__(view, id="event-sheet")
        self.filter = ""
        self.group = ALL
        self.gpu = ""
        """Number of the GPU whose events are shown; empty for all."""
        self.cursor = 0
        self.rows: Sequence[EventRow] = ()
        self.problem = ""
        """Why there is no log; empty if there is one."""
        self.page = 1
        """Rows of the table on screen."""
        self.typing = FilterField(self)
        self.preview = EventPreview(view)
        self._all: Sequence[EventRow] = ()
        self._counts: Mapping[str, int] = {}
        self._tables = EventTables(view)
        self._chosen_of: Hashable = None
        self._top = 0
        self._first = 0
        self._places: Sequence[EventButton] = ()
        self._drawn: Memo[Line] = Memo()
        self._head: Memo[tuple[Line, list[EventButton]]] = Memo()
        self._time_row: Memo[list[Line]] = Memo()

    @property
    def row(self) -> EventRow | None:
        """The row under the cursor."""
        return self.rows[self.cursor] if self.cursor < len(self.rows) else None

    @property
    def knows_any(self) -> bool:
        """Whether there is any event, including filtered ones."""
        return bool(self._all)

    def move(self, step: int) -> None:
        """Move the cursor, and select the GPU of its event."""
        self.cursor = max(0, min(len(self.rows) - 1, self.cursor + step))

    def next_alike(self, step: int) -> None:
        """Move to the next event of the same kind, if there is one."""
        row = self.row
        place = self.cursor + step
        while row and 0 <= place < len(self.rows):
            if self.rows[place].event.kind == row.event.kind:
                self.cursor = place
                return
            place += step

    @property
    def groups(self) -> list[str]:
        """Groups that have events, plus "all" and the group on screen."""
        return [name for name in GROUPS if self._counts.get(name) or name in (ALL, self.group)]

    def next_group(self, step: int) -> None:
        """Show the next group."""
        names = self.groups
        self.group = names[(names.index(self.group) + step) % len(names)]

    def next_gpu(self, step: int) -> None:
        """Show the events of the next GPU, or of all."""
        labels = ["", *[sample.device.label for sample in self.view.samples]]
        place = labels.index(self.gpu) if self.gpu in labels else 0
        self.gpu = labels[(place + step) % len(labels)]

    def show_all(self) -> None:
        """Clear the filter; if there is none, clear the group and the GPU."""
        if self.filter:
            self.filter = ""
        else:
            self.group, self.gpu = ALL, ""

    def follow(self) -> None:
        """Update the rows from the events so far.

        The cursor stays on its event, or on the newest row if it is there.
        """
        view, happened = self.view, self.view.happened
        seen = happened.all_seen()
        is_here = Capability.LIVE in view.origin.capabilities
        self._how_bad = _WARN if Capability.NOW in view.origin.capabilities else _DIM
        answer = happened.logged(view.history_path) if is_here else None
        logged = (answer.found if answer else None) or ()
        table = self._tables.get(logged, seen)
        if table.rows is not self._all:
            self._all, self._counts = table.rows, table.counts
            self._chosen_of = None
        self.problem = self._why(is_here, answer.problem if answer else "", answer is None or answer.found is None)
        chosen_of = self.filter, self.group, self.gpu
        if chosen_of != self._chosen_of:
            row = self.row if self.cursor else None
            self._chosen_of = chosen_of
            self.rows = filter_rows(self._all, self.group, self.gpu, self.filter)
            self.cursor = index_of(row, self.rows) if row else 0

    def _why(self, is_here: bool, problem: str, is_missing: bool) -> str:
        """Return why the rows do not include the log."""
        if Capability.NOW not in self.view.origin.capabilities:
            return "a recording keeps no log of events: these are of what was read of it"
        if not is_here:
            return "no log is kept of values that are not of this machine"
        if problem:
            return problem
        if not self.view.happened.can_read:
            return "no event log here"
        return "reading the log" if is_missing else ""

    def lines(self) -> list[Line]:
        """Return the title, the day, headings, rows and preview."""
        cells, height = self.size
        self.follow()
        view, rows, side = self.view, self.rows, edge(cells)
        of = EventHead(
            shown=len(rows), there=len(self._all), group=self.group, counts=dict(self._counts), gpu=self.gpu,
            text=self.filter, is_typed=self.typing.is_typed,
        )  # fmt: skip
        title, self._places = self._head.get(0, (of, cells), lambda: head_line(of, cells))
        blank: list[Line] = [[]] if height >= _ROOMY else []
        lines: list[Line] = [title, *blank]
        if height >= _DAY_FROM and cells >= STRIP_FROM:
            span = self._span(cells, side)
            shows = (
                id(rows), len(rows), rows[:1], span.grid, span.grid.at(span.now), view.history.first_frame, cells,
                view.happened.since, bool(self.problem), view.has_read,
            )  # fmt: skip
            lines += [*self._time_row.get(0, shows, lambda: self._over_time(span, cells, side)), *blank]
        if self.problem:
            told = wrap_limited(safe(self.problem) + self._since(), cells - 2 * side, _MOST_SAID)
            lines += [[Segment(" " * side + part, self._how_bad)] for part in told]
        room = columns(cells)
        lines.append(heading_line(room, cells))
        self._first = len(lines)
        below_rows = self.preview.rows(cells, height, height - len(lines) - 1 - len(rows)) if rows else 0
        self.page = max(1, height - len(lines) - 1 - below_rows)
        most = max(0, len(rows) - self.page)
        self._top = max(0, min(self._top, self.cursor, most), self.cursor - self.page + 1)
        shown = range(self._top, min(self._top + self.page, len(rows)))
        me = view.process_facts().me
        for place in shown:
            row, chosen = rows[place], place == self.cursor
            own = bool(me) and row.user == me
            look = row, cells, chosen, own, int(view.now // 86400)
            lines.append(self._drawn.get(place - self._top, look, lambda look=look: row_line(  # type: ignore[misc]
                look[0], room, cells, view.now, chosen=look[2], own=look[3])))  # fmt: skip
        if not rows:
            lines += [[Segment(" " * side + text, _DIM)] for text in self._empty()]
        below = len(rows) - shown.stop
        if below > 0:
            lines.append([Segment(fit(f"+{below} ▼", cells - side, right=True), _KEY)])
        if below_rows and self.row is not None:
            lines += self.preview.lines(self.row, cells)
        return lines[:height]

    def _empty(self) -> list[str]:
        """Return the sentences shown in place of rows."""
        if self._all:
            return [hidden_text("event", len(self._all)), SHOW_ALL]
        if self.view.frame is None:
            return [f"no event is known yet: {self.view.freshness.text}"]
        if self.view.filling:
            return ["reading the last frames …"]
        since = self.view.happened.since
        return ["nothing has happened" + (f" since {units.clock(since)}" if self.problem and since else "")]

    def _since(self) -> str:
        """Return the text for the time covered without a log; events that began earlier but were reported later may
        be included.
        """
        since, until = self.view.happened.since, self.view.happened.until
        if not since:
            return ""
        can = self.view.origin.capabilities
        older = ", earlier rows from what was known then" if self._all and self._all[-1].time < since - 1.0 else ""
        if Capability.NOW not in can:
            return f", {units.clock(since)} to {units.clock(until)}{older}"
        if Capability.LIVE in can:
            return f"; watched since {units.clock(since)}{older}"
        return f"; {self._simulated(since)}{older}"

    def _simulated(self, since: float) -> str:
        """Return since when the simulation runs and since when events are recorded; the latter covers less time."""
        view, first = self.view, self.view.history.begin
        told = f"events told since {units.clock(since)}"
        if view.filling or view.frame is None or not is_known(first) or first > since - 1.0:
            return told
        or_before = " or before" if view.frame.number > KEEP else ""
        return f"simulated since {units.clock(first)}{or_before}, {told}"

    def _span(self, cells: int, side: int) -> StripSpan:
        """Return the time span of the strip: the last day, or the duration of a recording."""
        view, room = self.view, strip_cells(cells, side)
        if Capability.NOW in view.origin.capabilities:
            return last_day_span(view.now, room)
        begin, end = view.played
        return recording_span(begin, end, view.now, room)

    def _over_time(self, span: StripSpan, cells: int, side: int) -> list[Line]:
        view, grid = self.view, span.grid
        gpus = [sample.device.uuid for sample in view.samples]
        seen = observed_columns(view.history, gpus, grid, view.interval)
        first, oldest = grid.at(view.happened.since), view.history.first_frame
        if not span.ends_now and is_known(oldest):  # the history of a recording contains only its last frames
            until = grid.at(oldest)
            seen = [known or first <= place < until for place, known in enumerate(seen)]
        if self.problem:  # values before this time are known, but events were not recorded
            seen = [known and place >= first for place, known in enumerate(seen)]
        return event_strip(self.rows, span, seen, cells, side, is_read=view.has_read)

    def on_click(self, event: events.Click) -> None:
        """Select the row under the mouse, open it if already selected, or run what was clicked in the title."""
        if event.y == 0:
            for begin, end, group in self._places:
                if begin <= event.x < end:
                    if group:
                        self.group = group
                    else:
                        self.typing.begin()
        elif self._first <= event.y < self._first + self.page:
            place = event.y - self._first + self._top
            if place < len(self.rows):
                if place == self.cursor:
                    self.post_message(EventChosen())
                self.cursor = place
        self.post_message(TerminalPage.Changed())

    def on_mouse_scroll_down(self) -> None:
        """Move the cursor down by three rows."""
        self.move(3)
        self.show()

    def on_mouse_scroll_up(self) -> None:
        """Move the cursor up by three rows."""
        self.move(-3)
        self.show()


class EventsPage(TerminalPage):
    """The page: one sheet and the actions of its keys."""

    name_shown: ClassVar[str] = EVENTS

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self.sheet = EventSheet(view)

    @property
    def drawn(self) -> tuple[Lines, ...]:
        return (self.sheet,)

    def share_out(self, size: Size) -> None:
        """Give the sheet the whole page except a blank row, and update its rows first, because the footer depends on
        them.
        """
        self.leave_air(size)
        self.sheet.follow()

    @property
    def withheld(self) -> frozenset[str]:
        """Keys without effect: no event, no other group, or no GPU."""
        found = set() if self.sheet.rows else {"↵", "n p", "y"}
        if len(self.sheet.groups) < 2:
            found.add("Tab")
        if not self.view.samples or not self.sheet.knows_any:
            found.add("g G")
        if not self.sheet.knows_any and not self.sheet.filter:
            found.add("/")
        return frozenset(found)

    def take(self, press: Press) -> bool:
        """Handle typing in the filter."""
        return self.sheet.typing.take(press)

    def paste(self, text: str) -> None:
        """Paste text into the filter."""
        self.sheet.typing.paste(text)

    def do_filter(self) -> None:
        """Start typing a filter."""
        self.sheet.typing.begin()

    def do_group(self, step: int) -> None:
        """Show the next group."""
        self.sheet.next_group(step)

    def do_only_gpu(self, step: int) -> None:
        """Show the events of one GPU, or of all."""
        self.sheet.next_gpu(step)

    def do_alike(self, step: int) -> None:
        """Move to the next event of the same kind."""
        self.sheet.next_alike(step)

    def do_move(self, step: int) -> None:
        """Move the cursor."""
        self.sheet.move(step)

    def do_page(self, halves: int) -> None:
        """Move the cursor by half pages."""
        self.sheet.move(half_pages(halves, self.sheet.page))

    def do_close(self) -> None:
        """Clear the filter."""
        self.sheet.show_all()

    def do_open(self) -> None:
        """Show the time of the event on the chart of its GPU, if the GPU is known."""
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
        """Open an event that was clicked twice."""
        self.do_open()

    def do_copy(self) -> None:
        """Copy the row under the cursor to the terminal's clipboard."""
        row = self.sheet.row
        if row is not None:
            cells = (units.moment(row.time), row.event.kind.label, row.gpu, row.user, row.words, row.took)
            self.copy("\t".join(cells))

    def forget(self) -> None:
        """Close the filter."""
        self.sheet.typing.is_typed = False
        self.sheet.preview.forget()
