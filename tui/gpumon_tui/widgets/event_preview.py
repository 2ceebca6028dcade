"""Preview of the event under the cursor: its meaning, and small charts of its GPU around that time on one time grid."""

from __future__ import annotations

from math import nan

from rich.segment import Segment

from gpumon.common.numbers import is_known
from gpumon.model import units
from gpumon.model.metrics import BY_NAME
from gpumon_tui import palette
from gpumon_tui.cache import Cache
from gpumon_tui.render.axis import value_axis
from gpumon_tui.render.cells import draw_cursor, draw_text, to_line
from gpumon_tui.render.event_rows import EventRow
from gpumon_tui.render.findings import wrap_limited
from gpumon_tui.render.gpu_charts import ROLES
from gpumon_tui.render.line_plot import plot
from gpumon_tui.render.section import keys, section
from gpumon_tui.render.strip import GAP
from gpumon_tui.render.table import margin
from gpumon_tui.render.text_width import SENTENCE, Line, fit, safe
from gpumon_tui.render.time_columns import past_columns
from gpumon_tui.render.time_marks import draw_history_start, times_below
from gpumon_tui.state import View
from gpumon_tui.widgets.chart_columns import Columns
from gpumon_tui.widgets.lines import Lines

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
_DIM, _FAINT, _TEXT = palette.ink("dim"), palette.ink("faint"), palette.ink("text")
_CHIP, _NUMBER = palette.ink("ground", "key", bold=True), palette.ink("strong", bold=True)
_REPLACEABLE = " ▁▂▃▄▅▆▇█▌·─"
"""Glyphs that the cursor line may replace."""


def gpu_of(row: EventRow, view: View) -> str:
    """Return the UUID of the GPU on screen that an event concerns, the first of several; empty if there is none."""
    uuids_here = {sample.device.uuid for sample in view.samples}
    gpus = row.event.details.get("gpus")
    uuids = [row.event.subject.device, *(gpus if isinstance(gpus, list) else ())]
    return next((uuid for uuid in uuids if isinstance(uuid, str) and uuid in uuids_here), "")


class EventPreview(Lines):
    """Charts are updated only when another event is selected or time advances within the window."""

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
                    draw_history_start(line, left_cells, grid, view.history.begin, curve) if has_note else line
                )
        return [*lines, [Segment(" " * left_cells), *times_below(grid, view.now, view.freshness.edge)]]
