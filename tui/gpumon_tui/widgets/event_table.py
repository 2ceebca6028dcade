"""The table of events, and the preview of one event.

The events come from the log, and from the frames since the view started.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from math import nan
from typing import TYPE_CHECKING, NamedTuple

from rich.segment import Segment

from gpumon.common.numbers import is_known
from gpumon.model import units
from gpumon.model.metrics import BY_NAME
from gpumon.model.origin import Capability
from gpumon.storage.history.recent import KEEP
from gpumon_tui import theme
from gpumon_tui.cache import Cache
from gpumon_tui.freshness import is_of_daemon
from gpumon_tui.render.axis import value_axis
from gpumon_tui.render.cells import draw_cursor, draw_text, to_line
from gpumon_tui.render.event_rows import (
    ALL,
    GROUPS,
    EventRow,
    filter_rows,
    group_counts,
    index_of,
    merged_rows,
    time_text,
)
from gpumon_tui.render.gpu_charts import ROLES
from gpumon_tui.render.line_plot import Columns, plot
from gpumon_tui.render.strip import GAP
from gpumon_tui.render.table import (
    Cell,
    PlacedColumn,
    Row,
    TableColumn,
    fit_columns,
    hidden_counts,
    keys,
    margin,
    section,
)
from gpumon_tui.render.text_width import SENTENCE, SHOW_ALL, Line, fit, hidden_text, safe, wrap_limited
from gpumon_tui.render.time_axis import draw_history_start, past_columns, times_below
from gpumon_tui.state import View
from gpumon_tui.widgets.lines import Lines
from gpumon_tui.widgets.live_table import LiveTable

if TYPE_CHECKING:
    from gpumon.model.events import Event
    from gpumon.storage.events.query import LoggedEvent


MAX_IMMEDIATE = 500
"""Maximum number of events whose rows are built immediately; larger tables are built in the background thread."""
_DIM, _TEXT, _KEY = theme.ink("dim"), theme.ink("text"), theme.ink("key")
_BOLD = ("crit", "warn")
"""Roles of marks in bold."""


class EventRows(NamedTuple):
    """Rows of all events, newest first, and the number of rows in each group."""

    rows: Sequence[EventRow] = ()
    counts: Mapping[str, int] = {}


class EventSource:
    """The events of a view as rows. Thousands of rows are built in the background and appear with a short delay."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._rows = EventRows()
        self._inputs: tuple[Hashable, object] = None, None
        self._number = 0
        self._pending: tuple[Hashable, tuple[Hashable, object]] | None = None
        """The pending query and the input it is for."""

    def get(self, logged: Sequence[LoggedEvent], frame_events: Sequence[Event]) -> EventRows:
        """Return the rows of the log and of the frames; the same object while nothing has changed.

        GPUs keep their numbers when frames no longer contain them, for example after the driver has gone. Events open
        in the log count as open only while frames come from the daemon that writes the log.
        """
        view, history = self._view, self._view.events
        queries, now, labels = view.ledger_runs.queries, view.now, dict(history.labels)
        is_of_now = is_of_daemon(view.state) and not view.age > 0
        runs = {ranks.first.id: ranks.gpus for ranks in view.ranks}
        version = (
            id(logged), len(frame_events), frame_events[-1:], history.corrections, tuple(labels.items()),
            tuple((run, tuple(uuids)) for run, uuids in runs.items()), is_of_now, now // 60,
        )  # fmt: skip

        def build() -> EventRows:
            rows = merged_rows(logged, frame_events, labels, is_of_now=is_of_now, now=now, runs=runs)
            return EventRows(rows, group_counts(rows))

        if self._pending is not None and (rows := queries.cached(self._pending[0]).result) is not None:
            self._rows, self._inputs = rows, self._pending[1]
            queries.drop(self._pending[0])
            self._pending = None
        inputs = version, logged
        if version == self._inputs[0] and logged is self._inputs[1]:
            return self._rows
        if len(logged) + len(frame_events) <= MAX_IMMEDIATE:
            self._rows, self._inputs, self._pending = build(), inputs, None
        elif self._pending is None or not queries.is_pending(self._pending[0]):
            self._number += 1
            query = "event rows", id(self), self._number
            self._pending = query, inputs
            queries.get(query, build, float("inf"))
        return self._rows


def event_columns(cells: int) -> tuple[TableColumn, ...]:
    """Return the columns for a width; narrow tables show the user or the duration only within the text."""
    time, label, gpu = (5, 13, 5) if cells < 60 else (11, 18, 8)
    user, took = (0, 0) if cells < 60 else (8, 0) if cells < 100 else (10, 15)
    has_column = True, True, True, bool(user), True, bool(took)
    columns = (
        TableColumn(fit("time", time, right=cells >= 60), time, keep=9, key="time"),
        TableColumn("  what", label + 2, keep=10, key="what"), TableColumn("GPU", gpu, keep=8, key="gpu"),
        TableColumn("user", user, keep=6, key="user"), TableColumn("", 0, keep=7, minimum=4, key="text"),
        TableColumn("took", took, right=True, keep=5, key="took"),
    )  # fmt: skip
    return tuple(column for column, is_shown in zip(columns, has_column, strict=True) if is_shown)


class EventTable(LiveTable):
    """The newest events first. The cursor stays on its event, or on the newest row if it is there."""

    def __init__(self, view: View) -> None:
        super().__init__(view, id="events-table")
        self.filter = ""
        self.group = ALL
        self.gpu = ""
        """Number of the GPU whose events are shown; empty for all."""
        self.rows: Sequence[EventRow] = ()
        self.all: Sequence[EventRow] = ()
        """All rows, including filtered ones."""
        self.counts: Mapping[str, int] = {}
        """Number of rows in each group."""
        self.problem = ""
        """Why there is no log; empty if there is one."""
        self._source = EventSource(view)
        self._row_filters: Hashable = None

    @property
    def row_count(self) -> int:
        return len(self.rows)

    @property
    def selected(self) -> EventRow | None:
        """The row under the cursor."""
        return self.rows[self.cursor] if self.cursor < len(self.rows) else None

    def place(self, cells: int) -> Sequence[PlacedColumn]:
        side = margin(cells)
        return fit_columns(event_columns(cells), side, cells - side, gap=side)

    def row(self, index: int) -> Row:
        view, event = self.view, self.rows[index]
        glyph, role = event.mark
        own_user = view.process_facts().me
        mark_style = theme.ink(role, bold=role in _BOLD)
        text_style = _DIM if role == "dim" else _TEXT
        widths = {placed.column.key: placed.column.cells for placed in self.placed}
        words = event.text if "took" in widths or not event.duration else ", ".join(
            filter(None, (event.text, event.duration))
        )  # fmt: skip
        time_cells = widths.get("time", 0)
        cells = {
            "time": Cell(fit(time_text(event.time, view.now, time_cells), time_cells, right=True), _DIM),
            "what": Cell("", parts=(Segment(glyph, mark_style), Segment(f" {event.event.kind.label}", mark_style))),
            "gpu": Cell(
                event.gpu if widths.get("gpu", 0) > 5 else event.gpu.removeprefix("GPU "),
                _DIM if role == "dim" else theme.ink("strong"),
            ),
            "user": Cell(event.user, _TEXT if own_user and event.user == own_user else _DIM),
            "text": Cell(words, text_style),
            "took": Cell(event.duration, mark_style if event.is_open else _DIM),
        }
        return tuple(cells[placed.column.key] for placed in self.placed)

    def empty(self, cells: int) -> list[Line]:
        if self.all:
            texts = [hidden_text("event", len(self.all)), SHOW_ALL]
        elif self.view.frame is None:
            texts = [f"events not read yet: {self.view.freshness.text}"]
        elif self.view.is_loading:
            texts = ["loading events …"]
        else:
            since = self.view.events.since
            texts = ["nothing has happened" + (f" since {units.clock(since)}" if self.problem and since else "")]
        return [[Segment(" " * margin(cells) + text, _DIM)] for text in texts]

    def foot_rows(self, room: int) -> int:
        return int(self.row_count > room)

    def foot(self, above: int, below: int, cells: int) -> Line:
        return [Segment(fit(hidden_counts(0, below), cells - margin(cells), right=True), _KEY)] if below else []

    def next_of_kind(self, step: int) -> None:
        """Move to the next event of the same kind, if there is one."""
        row = self.selected
        index = self.cursor + step
        while row and 0 <= index < len(self.rows):
            if self.rows[index].event.kind == row.event.kind:
                self.cursor = index
                return
            index += step

    @property
    def groups(self) -> list[str]:
        """Groups that have events, plus "all" and the group on screen."""
        return [name for name in GROUPS if self.counts.get(name) or name in (ALL, self.group)]

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
        """Update the rows from the events so far."""
        view, history = self.view, self.view.events
        frame_events = history.all_recorded()
        is_live = Capability.LIVE in view.origin.capabilities
        answer = history.logged(view.history_path) if is_live else None
        table = self._source.get((answer.result if answer else None) or (), frame_events)
        if table.rows is not self.all:
            self.all, self.counts = table.rows, table.counts
            self._row_filters = None
        self.problem = self._missing_log_text(
            is_live, answer.problem if answer else "", answer is None or answer.result is None
        )
        filters = self.filter, self.group, self.gpu
        if filters != self._row_filters:
            row = self.selected if self.cursor else None
            self._row_filters = filters
            self.rows = filter_rows(self.all, self.group, self.gpu, self.filter)
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

    @property
    def covered_time(self) -> str:
        """The time that the rows cover without a log, as text; events that began earlier but were reported later may
        be included.
        """
        since, last_time = self.view.events.since, self.view.events.until
        if not since:
            return ""
        capabilities = self.view.origin.capabilities
        older_note = ", earlier rows as reported then" if self.all and self.all[-1].time < since - 1.0 else ""
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


ROWS_FROM, CELLS_FROM = 34, 80
"""Page size (rows, cells) from which the preview always has charts."""
TEXT_FROM, TEXT_ROWS = 16, 2
"""Rows of the page from which at least the text is shown, and its number of lines."""
COARSE_AFTER = 3600.0
"""Age in seconds from which a window of the same length is shown, because older values are stored at a coarser
resolution.
"""
WINDOW = 600.0
"""Length in seconds of the window around a recent event."""
_LABEL = 14
"""Cells for the values at the time of the event."""
_AXIS = 6
"""Cells for the numbers of the scale."""
_LEFT_CELLS = _LABEL + _AXIS + 1
_OTHER_ROWS = 5
"""Rows in addition to the charts: blank, title, meaning, time of the event, and time axis."""
_ONE_LINE = 130
"""Minimum width, in columns, at which a meaning fits in one line. Narrower pages use a second line if there is room."""
_MIN_CHART_ROWS = ((60, 5), (44, 3), (0, 2))
"""Minimum rows of a chart, by the rows of the page."""
_MAX_CHART_ROWS = 12
"""Maximum rows of a chart when few events leave more room."""
_HEAT_METRICS = ("gpu.temperature", "gpu.clock_sm", "gpu.power")
_METRICS = ("gpu.utilization", "gpu.memory_used", "gpu.power")
_FAINT = theme.ink("faint")
_CHIP, _NUMBER = theme.ink("ground", "key", bold=True), theme.ink("strong", bold=True)
_REPLACEABLE = " ▁▂▃▄▅▆▇█▌·─"
"""Glyphs that the cursor line may replace."""


def gpu_of(row: EventRow, view: View) -> str:
    """Return the UUID of the GPU on screen that an event concerns, the first of several; empty if there is none."""
    uuids_here = {sample.device.uuid for sample in view.samples}
    gpus = row.event.details.get("gpus")
    uuids = [row.event.subject.device, *(gpus if isinstance(gpus, list) else ())]
    return next((uuid for uuid in uuids if isinstance(uuid, str) and uuid in uuids_here), "")


class EventPreview(Lines):
    """Text and charts of the selected event.

    They are drawn again only if another event is selected, or while the charts' time range still reaches the present.
    """

    def __init__(self, view: View) -> None:
        super().__init__(view, id="event-preview")
        self.event: EventRow | None = None
        self._chart_rows = _MIN_CHART_ROWS[-1][1]
        """Rows of each chart; 0 if there is room only for the text."""
        self._text_rows = 1
        """Number of lines of the meaning above the charts."""
        self._columns = Columns()
        self._cache: Cache[list[Line]] = Cache()

    def needed_rows(self, cells: int, height: int, spare_rows: int) -> int:
        """Return the rows of the preview on a page where the other parts leave `spare_rows`; 0 if it is not shown."""
        min_rows = next(rows for page_rows, rows in _MIN_CHART_ROWS if height >= page_rows)
        if cells < CELLS_FROM or (height < ROWS_FROM and spare_rows < _OTHER_ROWS + len(_METRICS) * min_rows):
            self._chart_rows = 0
            return 1 + TEXT_ROWS if height >= TEXT_FROM else 0
        self._text_rows = 1 + (cells < _ONE_LINE and spare_rows > _OTHER_ROWS + len(_METRICS) * min_rows)
        other_rows = _OTHER_ROWS + self._text_rows - 1
        self._chart_rows = max(min_rows, min(_MAX_CHART_ROWS, (spare_rows - other_rows) // len(_METRICS)))
        return other_rows + len(_METRICS) * self._chart_rows

    def forget(self) -> None:
        """Drop the cached charts."""
        self._columns.clear()

    def lines(self) -> list[Line]:
        """Return the preview of the event, with the number of rows that `needed_rows` returned."""
        view, row, cells = self.view, self.event, self.size.width
        if row is None:
            return []
        gpu, left_margin = gpu_of(row, view), margin(cells)
        window = COARSE_AFTER if view.now - row.time >= COARSE_AFTER else WINDOW
        grid = past_columns(window, max(1, cells - 2 * left_margin - _LEFT_CELLS), min(row.time + window / 2, view.now))
        last = min(grid.at(view.now), grid.buckets)
        inputs = (
            row.key,
            row.text,
            gpu,
            cells,
            self._chart_rows,
            self._text_rows,
            grid,
            last,
            view.is_loading,
            view.appearance.is_ascii,
        )
        return self._cache.get(0, inputs, lambda: self._draw(row, gpu, cells, window))

    def _draw(self, row: EventRow, gpu: str, cells: int, window: float) -> list[Line]:
        view, left_margin = self.view, margin(cells)
        about = " ".join(filter(None, (row.gpu, row.event.kind.label)))
        detail: Line = [Segment(safe(about), _TEXT)]
        title = section(units.clock(row.time), detail, keys((view.appearance.key("↵"), "open on the chart")), cells)
        help_text = row.event.kind.help.replace("`", "")  # contains Markdown, for the documentation
        meaning = safe(f"{row.text}. {help_text}" if row.text else help_text, SENTENCE)
        if not self._chart_rows:
            text_lines = wrap_limited(meaning, cells - 2 * left_margin, TEXT_ROWS)
            return [title, *([Segment(" " * left_margin + part, _DIM)] for part in text_lines)]
        text_lines = wrap_limited(meaning, cells - 2 * left_margin, self._text_rows)
        text_lines += [""] * (self._text_rows - len(text_lines))  # keeps the position of the charts fixed
        lines: list[Line] = [[], title, *([Segment(" " * left_margin + part, _DIM)] for part in text_lines)]
        if not gpu:
            return [*lines, [Segment(" " * left_margin + "no GPU on screen: nothing to draw", _FAINT)]]
        grid = past_columns(window, max(1, cells - 2 * left_margin - _LEFT_CELLS), min(row.time + window / 2, view.now))
        names = _HEAT_METRICS if row.event.kind.name.startswith("throttling") else _METRICS
        sample = next((candidate for candidate in view.samples if candidate.device.uuid == gpu), None)
        interval = view.interval
        curves = self._columns.get(view.history, gpu, names, grid, until=min(view.now, grid.end), interval=interval)
        column = grid.at(row.time)
        chip = f" {units.clock(row.time)} "
        begin = max(0, min(grid.buckets - len(chip), column - len(chip) // 2))
        left_cells = left_margin + _LEFT_CELLS
        lines.append(draw_text([Segment(" " * left_cells)], left_cells + begin, chip, _CHIP))
        for name in names:
            metric, curve = BY_NAME[name], curves[name]
            limit = sample.value(metric.limit) if sample is not None and metric.limit else nan
            axis = value_axis(metric, max((high for high in curve.high if is_known(high)), default=nan), limit)
            has_values = any(is_known(candidate) for candidate in curve.mean)
            value = next(
                (candidate for candidate in curve.mean[2 * column : 2 * column + 2] if is_known(candidate)), nan
            )
            numbers = axis.labels(self._chart_rows, _AXIS) if has_values else {}
            for chart_row, chart_cells in enumerate(plot(curve, axis, self._chart_rows, ROLES[name])):
                label = (units.number(value, metric.unit), metric.title)[chart_row] if chart_row < 2 else ""
                label_segment = Segment(
                    fit(" " * left_margin + label, left_margin + _LABEL), _DIM if chart_row else _NUMBER
                )
                axis_label = Segment(fit(numbers.get(chart_row, ""), _AXIS, right=True) + " ", _FAINT)
                gap = GAP if view.has_full_history else " "
                chart_line = to_line(chart_cells) if has_values or chart_row else [Segment(gap * grid.buckets, _FAINT)]
                line = [label_segment, axis_label, *draw_cursor(chart_line, column, _REPLACEABLE)]
                has_note = has_values and name == names[0] and chart_row == self._chart_rows // 2
                lines.append(
                    draw_history_start(line, left_cells, grid, view.history.begin, curve.mean) if has_note else line
                )
        return [*lines, [Segment(" " * left_cells), *times_below(grid, view.now, view.freshness.edge)]]
