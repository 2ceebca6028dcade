"""The events page: the head with groups, filter and the strip of the last day, the table, and the preview."""

from __future__ import annotations

from typing import ClassVar

from rich.segment import Segment
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size

from gpumon.common.numbers import is_known
from gpumon.model import units
from gpumon.model.origin import Capability
from gpumon_tui import theme
from gpumon_tui.cache import Cache
from gpumon_tui.chart_window import ReturnTarget
from gpumon_tui.keybindings import CHART, EVENTS, PAGES
from gpumon_tui.render.event_rows import (
    ALL,
    STRIP_FROM,
    StripSpan,
    event_strip,
    last_day_span,
    observed_columns,
    recording_span,
    strip_cells,
)
from gpumon_tui.render.table import margin
from gpumon_tui.render.text_width import ClickRange, Line, cut, length, safe, wrap_limited
from gpumon_tui.screens.page import TablePage, TerminalPage
from gpumon_tui.state import View
from gpumon_tui.widgets.event_table import COARSE_AFTER, EventPreview, EventTable, gpu_of
from gpumon_tui.widgets.filter_field import FilterField
from gpumon_tui.widgets.lines import Lines

_TITLE, _CHOSEN = theme.ink("strong", bold=True), theme.ink("strong", "select", bold=True)
_TEXT, _DIM, _WARN, _KEY = theme.ink("text"), theme.ink("dim"), theme.ink("warn"), theme.ink("key", bold=True)
_FILTER = "filter"
"""Action of a click that starts typing a filter; the other actions are names of groups."""
_BLANKS_FROM = 24
"""Rows of the page from which blank rows separate the parts."""
_MAX_REASON_LINES = 3
"""Maximum number of lines for the reason why there is no log."""
_DAY_FROM = 20
"""Rows of the page from which the strip of the day is drawn."""


class EventHead(Lines):
    """Number of events, groups and filter; the strip of the day; and the reason why there is no log."""

    def __init__(self, view: View, table: EventTable, filter_field: FilterField) -> None:
        super().__init__(view, id="event-head")
        self._table = table
        self._filter_field = filter_field
        self.page_rows = 0
        """Rows of the page, which decide what is shown."""
        self._strip_cache: Cache[list[Line]] = Cache()

    def needed_rows(self, cells: int, page_rows: int) -> int:
        """Return the rows needed on a page of a size."""
        self.page_rows = page_rows
        has_blanks = page_rows >= _BLANKS_FROM
        strip_rows = (2 + has_blanks) * self._has_strip(cells)
        return 1 + has_blanks + strip_rows + len(self._reason_lines(cells))

    def _has_strip(self, cells: int) -> bool:
        return self.page_rows >= _DAY_FROM and cells >= STRIP_FROM

    def lines(self) -> list[Line]:
        """Return the title, the day and the reason."""
        table, cells = self._table, self.size.width
        title, self.click_ranges = self._title(cells)
        blank: list[Line] = [[]] if self.page_rows >= _BLANKS_FROM else []
        lines: list[Line] = [title, *blank]
        if self._has_strip(cells):
            view, rows = self.view, table.rows
            span = self._span(cells)
            shows = (
                id(rows), len(rows), rows[:1], span.grid, span.grid.at(span.now), view.history.first_frame, cells,
                view.events.since, bool(table.problem), view.has_full_history,
            )  # fmt: skip
            lines += [*self._strip_cache.get(0, shows, lambda: self._day_lines(span, cells)), *blank]
        return [*lines, *self._reason_lines(cells)]

    def _reason_lines(self, cells: int) -> list[Line]:
        table, side = self._table, margin(cells)
        if not table.problem:
            return []
        style = _WARN if Capability.NOW in self.view.origin.capabilities else _DIM
        parts = wrap_limited(safe(table.problem) + table.covered_time, cells - 2 * side, _MAX_REASON_LINES)
        return [[Segment(" " * side + part, style)] for part in parts]

    def _title(self, cells: int) -> tuple[Line, list[ClickRange]]:
        """Return the number of events, the groups and the filter, and their clickable ranges."""
        table, side = self._table, margin(cells)
        shown, total, is_typing = len(table.rows), len(table.all), self._filter_field.is_active
        count = f"{shown} of {total}" if shown != total else str(total)
        line: Line = [Segment(" " * side), Segment("Events", _TITLE), Segment(f"  {count}", _TEXT)]
        if table.gpu:
            line.append(Segment(f"  GPU {table.gpu} only", theme.ink("key")))
        right: Line = [Segment("/", _KEY), Segment(" filter", _DIM), Segment(" " * side)] if total else []
        if table.filter or is_typing:
            field = self._filter_field.line(max(4, min(30, cells // 3)) + 2)
            right = [Segment("/ ", _KEY), *field, Segment(" " * side)]
        room = cells - length(line) - length(right) - 3
        names = [name for name in table.counts if table.counts[name] or name in (ALL, table.group)]
        while len(names) > 1 and sum(len(f" {name} {table.counts[name]} ") for name in names) > room:
            removable = [name for name in names if name != table.group]
            names.remove(removable[-1])
        ranges: list[ClickRange] = []
        line.append(Segment("   "))
        for name in names:
            text = f" {name} {table.counts[name]} "
            if length(line) + len(text) > cells - length(right):
                break
            ranges.append(ClickRange(length(line), length(line) + len(text), name))
            line.append(Segment(text, _CHOSEN if name == table.group else _DIM))
        free_cells = cells - length(line) - length(right)
        if free_cells < 0:
            return cut(line, cells), ranges
        line += [Segment(" " * free_cells), *right]
        ranges.append(ClickRange(cells - length(right), cells, _FILTER))
        return line, ranges

    def _span(self, cells: int) -> StripSpan:
        """Return the time span of the strip: the last day, or the duration of a recording."""
        view, columns = self.view, strip_cells(cells, margin(cells))
        if Capability.NOW in view.origin.capabilities:
            return last_day_span(view.now, columns)
        begin, end = view.recording_span
        return recording_span(begin, end, view.now, columns)

    def _day_lines(self, span: StripSpan, cells: int) -> list[Line]:
        view, grid, has_log = self.view, span.grid, not self._table.problem
        gpus = [sample.device.uuid for sample in view.samples]
        observed = observed_columns(view.history, gpus, grid, view.interval)
        first, oldest = grid.at(view.events.since), view.history.first_frame
        if not span.ends_now and is_known(oldest):  # the history of a recording contains only its last frames
            end = grid.at(oldest)
            observed = [is_observed or first <= index < end for index, is_observed in enumerate(observed)]
        if not has_log:  # there are values before this time, but events were not recorded
            observed = [is_observed and index >= first for index, is_observed in enumerate(observed)]
        return event_strip(self._table.rows, span, observed, cells, margin(cells), is_read=view.has_full_history)

    def on_click(self, event: events.Click) -> None:
        """Show the clicked group, or start typing a filter."""
        action = self.action_at(event.x, event.y)
        if action == _FILTER:
            self._filter_field.begin()
        elif action:
            self._table.group = action
        self.post_message(TerminalPage.Changed())


class EventsPage(TablePage):
    """The page and the actions of its keys."""

    table: EventTable
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "moment", key_display="↵", tooltip="show the time of an event on the chart"),
        Binding("slash,f3,f4,backslash", "filter", "filter", key_display="/",
            tooltip="filter events: words, gpu: user:"),
        Binding("tab", "group(1)", "group", key_display="Tab",
            tooltip="the next group of events: by severity, runs, throttling, GPUs, idle"),
        Binding("shift+tab", "group(-1)"),
        Binding("g", "only_gpu(1)", "GPU", key_display="g G", tooltip="events of one GPU, or of all"),
        Binding("G", "only_gpu(-1)"),
        Binding("n", "alike(1)", "next of kind", key_display="n p", tooltip="next or previous event of the same kind"),
        Binding("p,N", "alike(-1)"),
        Binding("y", "copy", "copy", key_display="y", tooltip="copy the event"),
        Binding("escape", "close", key_display="Esc", tooltip="close the filter, then show all events"),
    ]  # fmt: skip
    page_name: ClassVar[str] = EVENTS

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self.table = EventTable(view)
        self.filter_field = FilterField(self.table)
        self.head = EventHead(view, self.table, self.filter_field)
        self.preview = EventPreview(view)

    @property
    def line_widgets(self) -> tuple[Lines, ...]:
        return self.head, self.table, self.preview

    def lay_out(self, size: Size) -> None:
        """Update the rows, and divide the page: the table has as many lines as rows if there is a preview below."""
        self.set_top_padding(size)
        table, cells, height = self.table, size.width, size.height - self.body.styles.padding.top
        table.follow()
        count = len(table.rows)
        head_rows = self.head.needed_rows(cells, height)
        spare_rows = height - head_rows - 2 - count
        preview_rows = self.preview.needed_rows(cells, height, spare_rows) if count else 0
        table_rows = height - head_rows - preview_rows
        self._page_rows = max(1, table_rows - 2)
        if preview_rows:
            table_rows = max(2, min(table_rows, count + 1))
        self.set_heights((self.head, head_rows), (table, table_rows), (self.preview, preview_rows))

    def show(self) -> None:
        """Draw the current state of the view."""
        self.preview.event = self.table.selected
        super().show()

    @property
    def hidden_keys(self) -> frozenset[str]:
        """Keys without effect: no event, no other group, or no GPU."""
        hidden = set() if self.table.rows else {"↵", "n p", "y"}
        if len(self.table.groups) < 2:
            hidden.add("Tab")
        if not self.view.samples or not self.table.all:
            hidden.add("g G")
        if not self.table.all and not self.table.filter:
            hidden.add("/")
        return frozenset(hidden)

    def action_group(self, step: int) -> None:
        """Show the next group."""
        self.table.next_group(step)

    def action_only_gpu(self, step: int) -> None:
        """Show the events of one GPU, or of all."""
        self.table.next_gpu(step)

    def action_alike(self, step: int) -> None:
        """Move to the next event of the same kind."""
        self.table.next_of_kind(step)

    def action_close(self) -> None:
        """Clear the filter."""
        self.table.show_all()

    def action_open(self) -> None:
        """Show the time of the event on the chart of its GPU, if the GPU is on screen."""
        row, view = self.table.selected, self.view
        if row is None:
            return
        if subject := gpu_of(row, view):
            view.select(subject)
        previous_window = view.chart_time.state()
        window = max(view.window, int(COARSE_AFTER)) if view.now - row.time >= COARSE_AFTER else view.window
        view.chart_time.set_cursor(row.time, window, view.history.begin, view.now)
        self.post_message(self.OpenRequested(PAGES.index(CHART) + 1, ReturnTarget(EVENTS, previous_window)))

    def action_copy(self) -> None:
        """Copy the row under the cursor to the terminal's clipboard."""
        row = self.table.selected
        if row is not None:
            cells = (units.moment(row.time), row.event.kind.label, row.gpu, row.user, row.text, row.duration)
            self.copy("\t".join(cells))

    def forget(self) -> None:
        """Close the filter."""
        self.filter_field.is_active = False
        self.preview.forget()
