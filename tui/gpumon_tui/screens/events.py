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
from gpumon_tui.cache import Cache
from gpumon_tui.chart_window import ReturnTarget
from gpumon_tui.keybindings import CHART, EVENTS, PAGES
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
from gpumon_tui.screens.event_preview import COARSE_AFTER, EventPreview, gpu_of
from gpumon_tui.screens.page import TerminalPage, half_pages
from gpumon_tui.screens.text_input import FilterField
from gpumon_tui.state import View
from gpumon_tui.widgets.event_tables import EventTables
from gpumon_tui.widgets.lines import Lines

_DIM, _KEY, _WARN = palette.ink("dim"), palette.ink("key"), palette.ink("warn")
_BLANKS_FROM = 24
"""Rows of the page from which blank rows separate the parts."""
_MAX_REASON_LINES = 3
"""Maximum number of lines for the reason why there is no log."""
_DAY_FROM = 20
"""Rows of the page from which the strip of the day is drawn."""


class EventChosen(Message):
    """Posted when an event is to be shown on the chart."""


class EventsWidget(Lines):
    """The widget that draws the whole page."""

    DEFAULT_CSS = "EventsWidget { height: 1fr; }"

    def __init__(self, view: View) -> None:
        super().__init__(view, id="events-widget")
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
        self.filter_field = FilterField(self)
        self.preview = EventPreview(view)
        self._all: Sequence[EventRow] = ()
        self._counts: Mapping[str, int] = {}
        self._tables = EventTables(view)
        self._row_filters: Hashable = None
        self._top = 0
        self._first = 0
        self._title_buttons: Sequence[EventButton] = ()
        self._row_cache: Cache[Line] = Cache()
        self._head: Cache[tuple[Line, list[EventButton]]] = Cache()
        self._time_row: Cache[list[Line]] = Cache()

    @property
    def row(self) -> EventRow | None:
        """The row under the cursor."""
        return self.rows[self.cursor] if self.cursor < len(self.rows) else None

    @property
    def has_events(self) -> bool:
        """Whether there is any event, including filtered ones."""
        return bool(self._all)

    def move(self, step: int) -> None:
        """Move the cursor, and select the GPU of its event."""
        self.cursor = max(0, min(len(self.rows) - 1, self.cursor + step))

    def next_of_kind(self, step: int) -> None:
        """Move to the next event of the same kind, if there is one."""
        row = self.row
        index = self.cursor + step
        while row and 0 <= index < len(self.rows):
            if self.rows[index].event.kind == row.event.kind:
                self.cursor = index
                return
            index += step

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
        index = labels.index(self.gpu) if self.gpu in labels else 0
        self.gpu = labels[(index + step) % len(labels)]

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
        view, history = self.view, self.view.events
        frame_events = history.all_recorded()
        is_live = Capability.LIVE in view.origin.capabilities
        self._reason_style = _WARN if Capability.NOW in view.origin.capabilities else _DIM
        answer = history.logged(view.history_path) if is_live else None
        logged = (answer.result if answer else None) or ()
        table = self._tables.get(logged, frame_events)
        if table.rows is not self._all:
            self._all, self._counts = table.rows, table.counts
            self._row_filters = None
        self.problem = self._missing_log_text(
            is_live, answer.problem if answer else "", answer is None or answer.result is None
        )
        filters = self.filter, self.group, self.gpu
        if filters != self._row_filters:
            row = self.row if self.cursor else None
            self._row_filters = filters
            self.rows = filter_rows(self._all, self.group, self.gpu, self.filter)
            self.cursor = index_of(row, self.rows) if row else 0

    def _missing_log_text(self, is_live: bool, problem: str, is_missing: bool) -> str:
        """Return why the rows do not include the log."""
        if Capability.NOW not in self.view.origin.capabilities:
            return "a recording has no event log: these events come from its frames"
        if not is_live:
            return "no event log: the values are not from this machine"
        if problem:
            return problem
        if not self.view.events.can_read:
            return "no event log here"
        return "reading the log" if is_missing else ""

    def lines(self) -> list[Line]:
        """Return the title, the day, headings, rows and preview."""
        cells, height = self.size
        self.follow()
        view, rows, left_margin = self.view, self.rows, edge(cells)
        head = EventHead(
            shown=len(rows), total=len(self._all), group=self.group, counts=dict(self._counts), gpu=self.gpu,
            text=self.filter, is_typing=self.filter_field.is_active,
        )  # fmt: skip
        title, self._title_buttons = self._head.get(0, (head, cells), lambda: head_line(head, cells))
        blank: list[Line] = [[]] if height >= _BLANKS_FROM else []
        lines: list[Line] = [title, *blank]
        if height >= _DAY_FROM and cells >= STRIP_FROM:
            span = self._span(cells, left_margin)
            shows = (
                id(rows), len(rows), rows[:1], span.grid, span.grid.at(span.now), view.history.first_frame, cells,
                view.events.since, bool(self.problem), view.has_full_history,
            )  # fmt: skip
            lines += [*self._time_row.get(0, shows, lambda: self._time_lines(span, cells, left_margin)), *blank]
        if self.problem:
            reason_lines = wrap_limited(safe(self.problem) + self._since(), cells - 2 * left_margin, _MAX_REASON_LINES)
            lines += [[Segment(" " * left_margin + part, self._reason_style)] for part in reason_lines]
        widths = columns(cells)
        lines.append(heading_line(widths, cells))
        self._first = len(lines)
        below_rows = self.preview.rows(cells, height, height - len(lines) - 1 - len(rows)) if rows else 0
        self.page = max(1, height - len(lines) - 1 - below_rows)
        max_top = max(0, len(rows) - self.page)
        self._top = max(0, min(self._top, self.cursor, max_top), self.cursor - self.page + 1)
        visible = range(self._top, min(self._top + self.page, len(rows)))
        own_user = view.process_facts().me
        for index in visible:
            row, chosen = rows[index], index == self.cursor
            is_own = bool(own_user) and row.user == own_user
            inputs = row, cells, chosen, is_own, int(view.now // 86400)
            lines.append(self._row_cache.get(index - self._top, inputs, lambda inputs=inputs: row_line(  # type: ignore[misc]
                inputs[0], widths, cells, view.now, chosen=inputs[2], is_own=inputs[3])))  # fmt: skip
        if not rows:
            lines += [[Segment(" " * left_margin + text, _DIM)] for text in self._empty()]
        hidden = len(rows) - visible.stop
        if hidden > 0:
            lines.append([Segment(fit(f"+{hidden} ▼", cells - left_margin, right=True), _KEY)])
        if below_rows and self.row is not None:
            lines += self.preview.lines(self.row, cells)
        return lines[:height]

    def _empty(self) -> list[str]:
        """Return the sentences shown in place of rows."""
        if self._all:
            return [hidden_text("event", len(self._all)), SHOW_ALL]
        if self.view.frame is None:
            return [f"events not read yet: {self.view.freshness.text}"]
        if self.view.is_loading:
            return ["reading the last frames …"]
        since = self.view.events.since
        return ["nothing has happened" + (f" since {units.clock(since)}" if self.problem and since else "")]

    def _since(self) -> str:
        """Return the text for the time covered without a log; events that began earlier but were reported later may
        be included.
        """
        since, last_time = self.view.events.since, self.view.events.until
        if not since:
            return ""
        capabilities = self.view.origin.capabilities
        older_note = ", earlier rows as reported then" if self._all and self._all[-1].time < since - 1.0 else ""
        if Capability.NOW not in capabilities:
            return f", {units.clock(since)} to {units.clock(last_time)}{older_note}"
        if Capability.LIVE in capabilities:
            return f"; watched since {units.clock(since)}{older_note}"
        return f"; {self._simulated(since)}{older_note}"

    def _simulated(self, since: float) -> str:
        """Return since when the simulation runs and since when events are recorded; the latter covers less time."""
        view, begin = self.view, self.view.history.begin
        events_text = f"events since {units.clock(since)}"
        if view.is_loading or view.frame is None or not is_known(begin) or begin > since - 1.0:
            return events_text
        earlier = " or before" if view.frame.number > KEEP else ""
        return f"simulated since {units.clock(begin)}{earlier}, {events_text}"

    def _span(self, cells: int, side: int) -> StripSpan:
        """Return the time span of the strip: the last day, or the duration of a recording."""
        view, columns_of_strip = self.view, strip_cells(cells, side)
        if Capability.NOW in view.origin.capabilities:
            return last_day_span(view.now, columns_of_strip)
        begin, end = view.recording_span
        return recording_span(begin, end, view.now, columns_of_strip)

    def _time_lines(self, span: StripSpan, cells: int, side: int) -> list[Line]:
        view, grid = self.view, span.grid
        gpus = [sample.device.uuid for sample in view.samples]
        observed = observed_columns(view.history, gpus, grid, view.interval)
        first, oldest = grid.at(view.events.since), view.history.first_frame
        if not span.ends_now and is_known(oldest):  # the history of a recording contains only its last frames
            end = grid.at(oldest)
            observed = [is_observed or first <= index < end for index, is_observed in enumerate(observed)]
        if self.problem:  # there are values before this time, but events were not recorded
            observed = [is_observed and index >= first for index, is_observed in enumerate(observed)]
        return event_strip(self.rows, span, observed, cells, side, is_read=view.has_full_history)

    def on_click(self, event: events.Click) -> None:
        """Select the row under the mouse, open it if already selected, or run what was clicked in the title."""
        if event.y == 0:
            for begin, end, group in self._title_buttons:
                if begin <= event.x < end:
                    if group:
                        self.group = group
                    else:
                        self.filter_field.begin()
        elif self._first <= event.y < self._first + self.page:
            index = event.y - self._first + self._top
            if index < len(self.rows):
                if index == self.cursor:
                    self.post_message(EventChosen())
                self.cursor = index
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
    """The page: one widget and the actions of its keys."""

    page_name: ClassVar[str] = EVENTS

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self.content = EventsWidget(view)

    @property
    def line_widgets(self) -> tuple[Lines, ...]:
        return (self.content,)

    def lay_out(self, size: Size) -> None:
        """Give the widget the whole page except a blank row, and update its rows first, because the footer depends on
        them.
        """
        self.set_top_padding(size)
        self.content.follow()

    @property
    def hidden_keys(self) -> frozenset[str]:
        """Keys without effect: no event, no other group, or no GPU."""
        hidden = set() if self.content.rows else {"↵", "n p", "y"}
        if len(self.content.groups) < 2:
            hidden.add("Tab")
        if not self.view.samples or not self.content.has_events:
            hidden.add("g G")
        if not self.content.has_events and not self.content.filter:
            hidden.add("/")
        return frozenset(hidden)

    def take_key(self, press: Press) -> bool:
        """Handle typing in the filter."""
        return self.content.filter_field.handle(press)

    def paste(self, text: str) -> None:
        """Paste text into the filter."""
        self.content.filter_field.paste(text)

    def do_filter(self) -> None:
        """Start typing a filter."""
        self.content.filter_field.begin()

    def do_group(self, step: int) -> None:
        """Show the next group."""
        self.content.next_group(step)

    def do_only_gpu(self, step: int) -> None:
        """Show the events of one GPU, or of all."""
        self.content.next_gpu(step)

    def do_alike(self, step: int) -> None:
        """Move to the next event of the same kind."""
        self.content.next_of_kind(step)

    def do_move(self, step: int) -> None:
        """Move the cursor."""
        self.content.move(step)

    def do_page(self, halves: int) -> None:
        """Move the cursor by half pages."""
        self.content.move(half_pages(halves, self.content.page))

    def do_close(self) -> None:
        """Clear the filter."""
        self.content.show_all()

    def do_open(self) -> None:
        """Show the time of the event on the chart of its GPU, if the GPU is on screen."""
        row, view = self.content.row, self.view
        if row is None:
            return
        if subject := gpu_of(row, view):
            view.select(subject)
        previous_window = view.chart_time.state()
        window = max(view.window, int(COARSE_AFTER)) if view.now - row.time >= COARSE_AFTER else view.window
        view.chart_time.set_cursor(row.time, window, view.history.begin, view.now)
        self.post_message(self.OpenRequested(PAGES.index(CHART) + 1, ReturnTarget(EVENTS, previous_window)))

    def on_event_chosen(self) -> None:
        """Open an event that was clicked twice."""
        self.do_open()

    def do_copy(self) -> None:
        """Copy the row under the cursor to the terminal's clipboard."""
        row = self.content.row
        if row is not None:
            cells = (units.moment(row.time), row.event.kind.label, row.gpu, row.user, row.text, row.duration)
            self.copy("\t".join(cells))

    def forget(self) -> None:
        """Close the filter."""
        self.content.filter_field.is_active = False
        self.content.preview.forget()
