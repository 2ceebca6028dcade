"""The opened run: its table of epochs with a cursor, its curves, and the link from an epoch to the charts."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.segment import Segment

from gpumon.common.numbers import NAN, is_known
from gpumon.model import units
from gpumon.model.frame import RunState
from gpumon.storage.history.buckets import SHORT_WINDOWS, WINDOWS
from gpumon_tui import theme
from gpumon_tui.background_queries import Answer
from gpumon_tui.cache import Cache
from gpumon_tui.chart_window import ReturnTarget
from gpumon_tui.data.run_ledger import FRESH
from gpumon_tui.keybindings import RUNS
from gpumon_tui.render import run_detail
from gpumon_tui.render.run_curves import RunCurves, curves, with_cursor
from gpumon_tui.render.run_detail import RowScale
from gpumon_tui.render.table import (
    PlacedColumn,
    Row,
    fit_columns,
    hidden_rows,
    keys,
    margin,
    placed_cells,
    preferred_width,
    row_line,
    section,
    side_by_side,
)
from gpumon_tui.render.text_width import READING_LEDGER, Line, cut, safe
from gpumon_tui.state import View
from gpumon_tui.widgets.live_table import LiveTable

if TYPE_CHECKING:
    from gpumon.storage.ledger.summary import EpochSummary
    from gpumon_tui.data.run_rows import OpenRun, StretchRow


MIN_WINDOW_RATIO = 1.2
"""Minimum ratio of the charts' window to the epoch, so that start and end of the epoch are visible."""


def epoch_on_chart(view: View, run: OpenRun, row: StretchRow) -> tuple[ReturnTarget | None, str]:
    """Show an epoch in the charts; return the return target, or None and the reason why nothing can be shown."""
    begin, end = row.summary.begun, row.summary.ended
    end = end if is_known(end) else begin + row.summary.seconds
    devices = [device.uuid for device in run.record.devices]
    devices_here = [sample.device.uuid for sample in view.samples if sample.device.uuid in devices]
    name = safe(run.record.run.name)
    if not (is_known(begin) and is_known(end)):
        return None, f"the time of {row.title} of {name} is unknown"
    if not devices_here:
        return None, f"no GPU of {name} is on this machine" if devices else f"{name} used no GPU"
    oldest = view.history.begin
    if not end > oldest:
        since = f": history begins {units.moment(oldest)[:16]}" if is_known(oldest) else ""
        return None, f"no history of {row.title} is stored{since}"
    previous_window = view.chart_time.state()
    if view.subject not in devices_here:
        view.select(devices_here[0])
    view.selected_run = run.record.run.id
    window = next(
        (
            chart_window.seconds
            for chart_window in (*SHORT_WINDOWS, *WINDOWS)
            if chart_window.seconds >= MIN_WINDOW_RATIO * (end - begin)
        ),
        None,
    )
    window = window or WINDOWS[-1].seconds
    end_of_window = (begin + end + window) / 2
    view.chart_time.fix(end_of_window if end_of_window < view.now else NAN, window)
    view.chart_time.cursor = min((max(begin, oldest) + end) / 2, view.now)
    last_end = run.rows[-1].summary.ended
    return ReturnTarget(RUNS, previous_window, name, run.record.run.id, frozenset(devices), run.marks, last_end), ""


CURVES_FROM = 130
"""Minimum width, in columns, at which curves are shown next to the table of epochs."""
MIN_CURVES, MAX_CURVES = 42, 170
"""Minimum and maximum width of the curves."""
MAX_HEIGHT = 48
"""Maximum rows of the curves; taller ones show no more detail."""
NOT_RECORDED = "No ledger has the epochs of a simulation or a recording."
RUNNING = RunState.RUNNING.name.lower()
"""State of an active run, in the form used by the ledger."""
LEGEND_FROM = 20
"""Rows of the curves area from which the legend of the bars is shown below."""
TABLE = 150
"""Width of a table with all columns."""


class EpochTable(LiveTable):
    """Epochs of a run, newest first, and below them the rows of the remaining time.

    The newest epoch is selected until the cursor is moved.
    """

    def __init__(self, view: View, *, is_preview: bool) -> None:
        super().__init__(view)
        self._is_preview = is_preview
        self.run: OpenRun | None = None
        self.is_old = False
        """Whether the frames that show the run are outdated. If so, the run may have ended in the meantime."""
        self.ordinal: int | None = None
        """Ordinal of the selected epoch; None for the newest."""
        self._scales: Cache[RowScale] = Cache()
        self.scale = RowScale(0.0, {}, frozenset())

    def update(self, run: OpenRun, version: float, *, is_old: bool) -> None:
        """Set the run to show; `version` changes when it is read again."""
        self.run, self.is_old = run, is_old
        self.scale = self._scales.get(0, (version, run.record.run.id), lambda: run_detail.row_scale(run))
        index = -1 if self.ordinal is None else _index_by_ordinal(run.rows.stretches, self.ordinal)
        self.cursor = len(run.rows) - 1 - index if index >= 0 else 0

    def reset(self) -> None:
        """Select the newest epoch."""
        self.ordinal, self.top, self.run = None, 0, None

    @property
    def index(self) -> int:
        """Index of the selected epoch among the rows, oldest first; -1 if there is none."""
        return self.row_count - 1 - self.cursor

    @property
    def row_count(self) -> int:
        return len(self.run.rows) if self.run is not None else 0

    def move(self, step: int) -> None:
        if self.run is not None and self.run.rows:
            super().move(step)
            self.ordinal = self.run.rows.stretches[self.index].ordinal

    def all_cells(self) -> Row:
        """Return the cells of the row under the cursor in all columns; empty if there is none."""
        return self._cells(self.cursor) if self.row_count else ()

    def place(self, cells: int) -> Sequence[PlacedColumn]:
        side = margin(cells)
        assert self.run is not None
        return fit_columns(run_detail.columns(self.run, cells), side, cells - side, empty=self.scale.empty)

    def preferred_cells(self) -> int:
        """Return the width of a table in which nothing is truncated."""
        assert self.run is not None
        columns = (column for column in run_detail.columns(self.run, TABLE) if column.key not in self.scale.empty)
        return max(TABLE, preferred_width(columns) + 2 * margin(TABLE))

    def row(self, index: int) -> Row:
        return placed_cells(self._cells(index), self.placed)

    def is_selected(self, index: int) -> bool:
        return index == self.cursor and not self._is_preview

    def foot_rows(self, room: int) -> int:
        return int(self.row_count > room > 1)

    def foot(self, above: int, below: int, cells: int) -> Line:
        return hidden_rows(below, above, cells)

    def draw(self, cells: int, height: int) -> list[Line]:
        run = self.run
        if run is None:
            return []
        summaries = (
            run.other_rows if height >= 22 else [*run.other_rows[:1], run.whole] if height >= 12 else [run.whole]
        )
        summaries = summaries[-1:] if len(run.other_rows) == 1 else summaries[-6:]
        has_rule = height >= 10
        lines = super().draw(cells, max(2, height - len(summaries) - has_rule))
        if has_rule and run.rows:
            left_margin = margin(cells)
            lines.append([Segment(" " * left_margin + "─" * (cells - 2 * left_margin), theme.RULE)])
        for summary in summaries:
            row = run_detail.summary_row(summary, self.scale, cells, is_whole=summary is run.whole)
            lines.append(row_line(placed_cells(row, self.placed), self.placed, cells))
        return lines

    def _cells(self, index: int) -> Row:
        assert self.run is not None
        return run_detail.row(self.run.rows[self.row_count - 1 - index], self.scale, is_old=self.is_old)


class OpenedRun:
    """The opened run, if any: a description, its table of epochs, and its curves."""

    def __init__(self, view: View, *, is_preview: bool = False) -> None:
        self.view = view
        self._is_preview = is_preview
        """Whether this is a preview below the list, without its own cursor."""
        self.table = EpochTable(view, is_preview=is_preview)
        self.id = ""
        """Id of the run; empty while none is open."""
        self.curves_only = False
        """Whether curves replace the table, if there is no room for both."""
        self.rows_at = 0
        """Line of the table's first row, and (`page`) number of rows on screen; 0 while there is no table."""
        self.page = 0
        self._is_over = True
        self._pictures: Cache[list[Line]] = Cache()
        self._curve_cache: Cache[RunCurves] = Cache()

    def open(self, run_id: str) -> None:
        """Open a run; an empty id closes the current one."""
        if self.id != run_id:
            self.id = run_id
            self.table.reset()
            if not self._is_preview:
                self.view.ledger_runs.expire(run_id)

    def move(self, step: int) -> None:
        """Move the cursor down, to older epochs."""
        if self.detail is not None:
            self.table.move(step)

    def press(self, row: int) -> None:
        """Select a clicked row, counted from the first row on screen."""
        self.move(self.table.top + row - self.table.cursor)

    @property
    def detail(self) -> OpenRun | None:
        """The run, once it has been read."""
        return self._update().result if self.id else None

    @property
    def row(self) -> StretchRow | None:
        """The epoch under the cursor."""
        run = self.detail
        return run.rows[self.table.index] if run is not None and run.rows else None

    def row_text(self) -> Row:
        """The row under the cursor; empty if there is none."""
        return self.table.all_cells() if self.detail is not None else ()

    def _update(self) -> Answer[OpenRun]:
        """Request the run, and show it in the table once it has been read."""
        answer = self.view.ledger_runs.opened(self.id, is_over=self._is_over, valid_for=FRESH)
        run = answer.result
        if run is not None:
            is_old = self.view.age > 0 and self._state(run) != run.state
            self.table.update(run, answer.expires, is_old=is_old)
        return answer

    def lines(
        self, cells: int, height: int, live: list[Line], *, name: str, is_over: bool, has_keys: bool
    ) -> list[Line]:
        """Return the run in at most `height` lines; `has_keys`: its table has the focus.

        `live`: lines from the run's processes, shown above its table.
        """
        self._is_over, self.table.has_keys = is_over, has_keys
        answer, enter_key = self._update(), self.view.appearance.key("↵")
        run = answer.result
        self.page = 0
        if run is None:
            text = answer.problem or READING_LEDGER
            if answer.problem and not self.view.is_recorded:
                text = NOT_RECORDED
            title = section(safe(name), [], keys((enter_key, "open") if self._is_preview else ("Esc", "close")), cells)
            return [title, cut([Segment(" " * (margin(cells) + 1)), Segment(safe(text), theme.DIM)], cells), *live]
        open_keys = (("v", "compare…"), ("r", "report"), ("Esc", "close"))
        key_hints = keys((enter_key, "open")) if self._is_preview else keys(*open_keys)
        has_blanks = height >= 30
        head = run_detail.head(run, self._state(run), cells, 6 if has_blanks else 2 if height < 18 else 3)
        lines = [section(safe(name), _about(run), key_hints, cells), *head, *live, *([[]] if has_blanks else [])]
        self.rows_at = len(lines) + 1
        return [*lines, *self._body(run, answer.expires, cells, height - len(lines))]

    def _state(self, run: OpenRun) -> str:
        """Return the state in the ledger, qualified if the frames that show the run are outdated."""
        view = self.view
        is_in_frame = any(ranks.first.id == self.id for ranks in view.ranks)
        return view.running_text if is_in_frame and run.state == RUNNING else run.state

    def _body(self, run: OpenRun, version: float, cells: int, height: int) -> list[Line]:
        """Return the table, the curves, or both; `version` changes when the run is read again, to invalidate caches."""
        table = self.table
        selected = table.index if table.has_keys or table.ordinal is not None else -1
        has_room = cells >= CURVES_FROM and bool(run.rows)
        curve_cells = max(MIN_CURVES, min(MAX_CURVES, cells - table.preferred_cells())) if has_room else 0
        if not curve_cells and self.curves_only and run.rows:
            left_margin, inputs = margin(cells), (version, self.id, cells, height, selected)
            inner = cells - 2 * left_margin
            curve_lines = self._pictures.get(
                "curves", inputs, lambda: self._curves(run, version, inner, height, selected)
            )
            return [[Segment(" " * left_margin), *line] for line in curve_lines]
        table_cells = cells - curve_cells
        table_inputs = version, self.id, table_cells, height, table.cursor, table.has_keys, table.is_old
        body = self._pictures.get("table", table_inputs, lambda: table.draw(table_cells, height))
        self.page = len(table.on_screen)
        if not curve_cells:
            return body
        curve_height = min(height, MAX_HEIGHT)
        curve_inputs = version, self.id, cells, curve_height, selected
        curve_lines = self._pictures.get(
            "beside", curve_inputs, lambda: self._side_curves(run, version, curve_cells - 4, curve_height, selected)
        )
        return self._pictures.get(
            "both",
            (table_inputs, curve_inputs),
            lambda: side_by_side(body, curve_lines, table_cells + 2, curve_cells - 2),
        )

    def _curves(self, run: OpenRun, version: float, cells: int, height: int, selected: int) -> list[Line]:
        inputs = version, self.id, cells, height
        return with_cursor(self._curve_cache.get(0, inputs, lambda: curves(run, cells, height)), run, selected)

    def _side_curves(self, run: OpenRun, version: float, cells: int, height: int, selected: int) -> list[Line]:
        """Return the curves, with the legend of the table's bars below."""
        if height < LEGEND_FROM:
            return self._curves(run, version, cells, height, selected)
        legend = self._pictures.get("legend", (version, self.id, cells), lambda: run_detail.legend(run, cells))
        return [*self._curves(run, version, cells, height - 1 - len(legend), selected), [], *legend]


def _about(run: OpenRun) -> Line:
    row = run.record.run
    resumes = f"resumes {row.resumes}" if row.resumes else ""
    # The ledger lags some seconds behind, so the whole section gives its own time instead of the header's.
    time_text = "" if run.is_over or not is_known(row.updated) else f"until {units.clock(row.updated)}"
    parts = [part for part in (row.user, time_text, row.id, row.framework, row.label, resumes) if part]
    return [Segment(safe(" · ".join(parts)), theme.DIM)]


def _index_by_ordinal(epochs: Sequence[EpochSummary], ordinal: int) -> int:
    """Return the index of an ordinal among the ascending ordinals of `epochs`; -1 if it is missing."""
    index = bisect_left(epochs, ordinal, key=lambda epoch: epoch.ordinal)
    return index if index < len(epochs) and epochs[index].ordinal == ordinal else -1
