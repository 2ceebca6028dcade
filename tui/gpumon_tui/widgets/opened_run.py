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
from gpumon_tui.render.run_list import MARK
from gpumon_tui.render.section import hidden_rows, keys, section, side_by_side
from gpumon_tui.render.table import (
    BLANK,
    Row,
    fit_columns,
    heading,
    margin,
    placed_cells,
    preferred_width,
    row_line,
)
from gpumon_tui.render.text_width import READING_LEDGER, Line, cut, safe
from gpumon_tui.state import View

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


class OpenedRun:
    """The opened run, if any. The newest epoch comes first and is selected until the cursor is moved."""

    def __init__(self, view: View, *, is_preview: bool = False) -> None:
        self.view = view
        self._is_preview = is_preview
        """Whether this is a preview below the list, without its own cursor."""
        self.id = ""
        """Id of the run; empty while none is open."""
        self.curves_only = False
        """Whether curves replace the table, if there is no room for both."""
        self.rows_at = 0
        """Line of the table's first row, and (`page`) number of rows on screen; 0 while there is no table."""
        self.page = 0
        self._is_over = True
        self._epoch: int | None = None
        """Ordinal of the selected epoch; None for the newest."""
        self._top = 0
        self._row_cache: Cache[Line] = Cache()
        self._pictures: Cache[list[Line]] = Cache()
        self._curve_cache: Cache[RunCurves] = Cache()
        self._scales: Cache[RowScale] = Cache()

    def open(self, run_id: str) -> None:
        """Open a run; an empty id closes the current one."""
        if self.id != run_id:
            self.id, self._epoch, self._top = run_id, None, 0
            if not self._is_preview:
                self.view.ledger_runs.expire(run_id)

    def move(self, step: int) -> None:
        """Move the cursor down, to older epochs."""
        run = self._answer().result
        if run is not None and run.rows:
            index = max(0, min(len(run.rows) - 1, self._index(run) - step))
            self._epoch = run.rows.stretches[index].ordinal

    def press(self, row: int) -> None:
        """Select a clicked row, counted from the first row on screen."""
        run = self._answer().result
        index = len(run.rows) - 1 - self._top - row if run is not None else -1
        if run is not None and 0 <= index < len(run.rows):
            self._epoch = run.rows.stretches[index].ordinal

    @property
    def detail(self) -> OpenRun | None:
        """The run, once it has been read."""
        return self._answer().result if self.id else None

    @property
    def row(self) -> StretchRow | None:
        """The epoch under the cursor."""
        run = self.detail
        return run.rows[self._index(run)] if run is not None and run.rows else None

    def row_text(self) -> Row:
        """The row under the cursor; empty if there is none."""
        run = self._answer().result
        index = self._index(run) if run is not None else -1
        if run is None or index < 0:
            return ()
        return run_detail.row(run.rows[index], self._scale(run), is_old=self._is_unseen(run))

    def lines(
        self, cells: int, height: int, live: list[Line], *, name: str, is_over: bool, has_keys: bool
    ) -> list[Line]:
        """Return the run in at most `height` lines; `has_keys`: its table has the focus.

        `live`: lines from the run's processes, shown above its table.
        """
        self._is_over = is_over
        answer, enter_key = self._answer(), self.view.appearance.key("↵")
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
        return [*lines, *self._body(run, answer.expires, cells, height - len(lines), has_keys=has_keys)]

    def _state(self, run: OpenRun) -> str:
        """Return the state in the ledger, qualified if the frames that show the run are outdated."""
        view = self.view
        is_in_frame = any(ranks.first.id == self.id for ranks in view.ranks)
        return view.running_text if is_in_frame and run.state == RUNNING else run.state

    def _is_unseen(self, run: OpenRun) -> bool:
        """True if the frames that show the run are stale, so that it may have ended."""
        return self.view.age > 0 and self._state(run) != run.state

    def _answer(self) -> Answer[OpenRun]:
        return self.view.ledger_runs.opened(self.id, is_over=self._is_over, valid_for=FRESH)

    def _body(self, run: OpenRun, version: float, cells: int, height: int, *, has_keys: bool) -> list[Line]:
        """Return the table, the curves, or both; `version` changes when the run is read again, to invalidate caches."""
        index = self._index(run)
        selected = index if has_keys or self._epoch is not None else -1
        has_room = cells >= CURVES_FROM and bool(run.rows)
        curve_cells = max(MIN_CURVES, min(MAX_CURVES, cells - self._preferred_cells(run))) if has_room else 0
        if not curve_cells and self.curves_only and run.rows:
            left_margin, inputs = margin(cells), (version, self.id, cells, height, selected)
            inner = cells - 2 * left_margin
            curve_lines = self._pictures.get(
                "curves", inputs, lambda: self._curves(run, version, inner, height, selected)
            )
            return [[Segment(" " * left_margin), *line] for line in curve_lines]
        table_cells = cells - curve_cells
        table_inputs = version, self.id, table_cells, height, index, has_keys, self._top, self._is_unseen(run)
        body = self._pictures.get(
            "table", table_inputs, lambda: self._table(run, version, table_cells, height, index, has_keys=has_keys)
        )
        self.page = min(self._rows, len(run.rows))
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

    _rows = 0

    def _curves(self, run: OpenRun, version: float, cells: int, height: int, selected: int) -> list[Line]:
        inputs = version, self.id, cells, height
        return with_cursor(self._curve_cache.get(0, inputs, lambda: curves(run, cells, height)), run, selected)

    def _side_curves(self, run: OpenRun, version: float, cells: int, height: int, selected: int) -> list[Line]:
        """Return the curves, with the legend of the table's bars below."""
        if height < LEGEND_FROM:
            return self._curves(run, version, cells, height, selected)
        legend = self._pictures.get("legend", (version, self.id, cells), lambda: run_detail.legend(run, cells))
        return [*self._curves(run, version, cells, height - 1 - len(legend), selected), [], *legend]

    def _table(
        self, run: OpenRun, version: float, cells: int, height: int, index: int, *, has_keys: bool
    ) -> list[Line]:
        """Return the table of epochs, newest first, and the rows of the remaining time."""
        count = len(run.rows)
        scale, is_old = self._scale(run), self._is_unseen(run)
        side = margin(cells)
        placed = fit_columns(run_detail.columns(run, cells), side, cells - side, empty=scale.empty)
        summaries = (
            run.other_rows if height >= 22 else [*run.other_rows[:1], run.whole] if height >= 12 else [run.whole]
        )
        summaries = summaries[-1:] if len(run.other_rows) == 1 else summaries[-6:]
        rule_rows = 1 if height >= 10 else 0
        room = max(1, height - 1 - len(summaries) - rule_rows)
        has_hidden = count > room
        room -= has_hidden and room > 1
        row_index = count - 1 - index
        self._top = max(0, min(self._top, row_index, count - room), row_index - room + 1)
        self._rows = room
        lines = [heading(placed, cells)]
        for position in range(self._top, min(self._top + room, count)):
            row = run_detail.row(run.rows[count - 1 - position], scale, is_old=is_old)
            is_selected = position == row_index and not self._is_preview
            mark = MARK if is_selected and has_keys else BLANK
            content = placed_cells(row, placed), placed, cells, mark, theme.CURSOR if is_selected else None
            lines.append(self._row_cache.get(position - self._top, content, lambda content=content: row_line(  # type: ignore[misc]
                *content[:3], mark=content[3], background=content[4])))  # fmt: skip
        if has_hidden:
            lines.append(hidden_rows(count - self._top - room, self._top, cells))
        if rule_rows and count:
            left_margin = margin(cells)
            lines.append([Segment(" " * left_margin + "─" * (cells - 2 * left_margin), theme.RULE)])
        for summary in summaries:
            row = run_detail.summary_row(summary, scale, cells, is_whole=summary is run.whole)
            lines.append(row_line(placed_cells(row, placed), placed, cells))
        return lines

    def _preferred_cells(self, run: OpenRun) -> int:
        """Return the width of a table in which nothing is truncated."""
        empty = self._scale(run).empty
        columns = (column for column in run_detail.columns(run, TABLE) if column.key not in empty)
        return max(TABLE, preferred_width(columns) + 2 * margin(TABLE))

    def _scale(self, run: OpenRun) -> RowScale:
        return self._scales.get(0, (self._answer().expires, self.id), lambda: run_detail.row_scale(run))

    def _index(self, run: OpenRun) -> int:
        """Return the index of the selected epoch among the rows; the newest if none is selected."""
        index = -1 if self._epoch is None else _index_by_ordinal(run.rows.stretches, self._epoch)
        return index if index >= 0 else len(run.rows) - 1


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
