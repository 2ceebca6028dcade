"""Preview of the event under the cursor: its meaning, and small charts of its GPU around that time on one time grid."""

from __future__ import annotations

from math import nan

from rich.segment import Segment

from gpumon.common.numbers import is_known
from gpumon.model import units
from gpumon.model.metrics import BY_NAME
from gpumon_tui import palette
from gpumon_tui.memo import Memo
from gpumon_tui.render.axis import value_axis
from gpumon_tui.render.cells import draw_cursor, draw_text, to_line
from gpumon_tui.render.event_rows import EventRow
from gpumon_tui.render.findings import wrap_limited
from gpumon_tui.render.gpu_charts import ROLES
from gpumon_tui.render.line_plot import plot
from gpumon_tui.render.section import keys, margin, section
from gpumon_tui.render.strip import GAP
from gpumon_tui.render.text_width import SENTENCE, Line, fit, safe
from gpumon_tui.render.time_columns import past_columns
from gpumon_tui.render.time_marks import draw_history_start, times_below
from gpumon_tui.state import View
from gpumon_tui.widgets.chart_columns import Columns

ROWS_FROM, CELLS_FROM = 34, 80
"""Page size (rows, cells) from which the preview always has charts."""
TEXT_FROM, TEXT_ROWS = 16, 2
"""Rows of the page from which at least the text is shown, and its number of lines."""
LONG_AGO = 3600.0
"""Age in seconds from which a window of the same length is shown, because older values are stored at a coarser
resolution.
"""
WINDOW = 600.0
"""Length in seconds of the window around a recent event."""
_LABEL = 14
"""Cells for the values at the time of the event."""
_AXIS = 6
"""Cells for the numbers of the scale."""
_BEFORE = _LABEL + _AXIS + 1
_AROUND = 5
"""Rows in addition to the charts: blank, title, meaning, time of the event, and time axis."""
_ONE_LINE = 130
"""Width from which a meaning fits in one line; narrower pages use a second line if there is room."""
_TALLER = ((60, 5), (44, 3), (0, 2))
"""Minimum rows of a chart, by the rows of the page."""
_TALLEST = 12
"""Maximum rows of a chart when few events leave more room."""
_OF_HEAT = ("gpu.temperature", "gpu.clock_sm", "gpu.power")
_USUAL = ("gpu.utilization", "gpu.memory_used", "gpu.power")
_DIM, _FAINT, _TEXT = palette.ink("dim"), palette.ink("faint"), palette.ink("text")
_CHIP, _NUMBER = palette.ink("ground", "key", bold=True), palette.ink("strong", bold=True)
_FREE = " ▁▂▃▄▅▆▇█▌·─"
"""Glyphs that the cursor line may replace."""


def gpu_of(row: EventRow, view: View) -> str:
    """Return the UUID of the GPU on screen that an event concerns, the first of several; empty if there is none."""
    known = {sample.device.uuid for sample in view.samples}
    gpus = row.event.details.get("gpus")
    uuids = [row.event.subject.device, *(gpus if isinstance(gpus, list) else ())]
    return next((uuid for uuid in uuids if isinstance(uuid, str) and uuid in known), "")


class EventPreview:
    """Draws the preview. Charts are updated only when another event is selected or time advances within the window."""

    def __init__(self, view: View) -> None:
        self.view = view
        self._each = _TALLER[-1][1]
        """Rows of each chart; 0 if there is room only for the text."""
        self._told = 1
        """Number of lines of the meaning above the charts."""
        self._columns = Columns()
        self._memo: Memo[list[Line]] = Memo()

    def rows(self, cells: int, height: int, spare: int) -> int:
        """Return the rows of the preview on a page where the other parts leave `spare` rows; 0 if it is not shown."""
        least = next(rows for of, rows in _TALLER if height >= of)
        if cells < CELLS_FROM or (height < ROWS_FROM and spare < _AROUND + len(_USUAL) * least):
            self._each = 0
            return 1 + TEXT_ROWS if height >= TEXT_FROM else 0
        self._told = 1 + (cells < _ONE_LINE and spare > _AROUND + len(_USUAL) * least)
        around = _AROUND + self._told - 1
        self._each = max(least, min(_TALLEST, (spare - around) // len(_USUAL)))
        return around + len(_USUAL) * self._each

    def forget(self) -> None:
        """Drop the cached charts."""
        self._columns.forget()

    def lines(self, row: EventRow, cells: int) -> list[Line]:
        """Return the preview of an event, with the number of rows that `rows` returned."""
        view = self.view
        gpu, side = gpu_of(row, view), margin(cells)
        window = LONG_AGO if view.now - row.time >= LONG_AGO else WINDOW
        grid = past_columns(window, max(1, cells - 2 * side - _BEFORE), min(row.time + window / 2, view.now))
        last = min(grid.at(view.now), grid.buckets)
        shows = (row.key, row.words, gpu, cells, self._each, self._told, grid, last, view.filling, view.look.is_ascii)
        return self._memo.get(0, shows, lambda: self._drawn(row, gpu, cells, window))

    def _drawn(self, row: EventRow, gpu: str, cells: int, window: float) -> list[Line]:
        view, side = self.view, margin(cells)
        about = " ".join(filter(None, (row.gpu, row.event.kind.label)))
        detail: Line = [Segment(safe(about), _TEXT)]
        title = section(units.clock(row.time), detail, keys((view.look.key("↵"), "open on the chart")), cells)
        told_of_kind = row.event.kind.help.replace("`", "")  # contains Markdown, for the documentation
        meaning = safe(f"{row.words}. {told_of_kind}" if row.words else told_of_kind, SENTENCE)
        if not self._each:
            told = wrap_limited(meaning, cells - 2 * side, TEXT_ROWS)
            return [title, *([Segment(" " * side + part, _DIM)] for part in told)]
        told = wrap_limited(meaning, cells - 2 * side, self._told)
        told += [""] * (self._told - len(told))  # keeps the position of the charts fixed
        lines: list[Line] = [[], title, *([Segment(" " * side + part, _DIM)] for part in told)]
        if not gpu:
            return [*lines, [Segment(" " * side + "of no GPU that is on screen: nothing to draw", _FAINT)]]
        grid = past_columns(window, max(1, cells - 2 * side - _BEFORE), min(row.time + window / 2, view.now))
        names = _OF_HEAT if row.event.kind.name.startswith("throttling") else _USUAL
        sample = next((one for one in view.samples if one.device.uuid == gpu), None)
        interval = view.interval
        curves = self._columns.get(view.history, gpu, names, grid, until=min(view.now, grid.end), interval=interval)
        at = grid.at(row.time)
        chip = f" {units.clock(row.time)} "
        begin = max(0, min(grid.buckets - len(chip), at - len(chip) // 2))
        before = side + _BEFORE
        lines.append(draw_text([Segment(" " * before)], before + begin, chip, _CHIP))
        for name in names:
            metric, curve = BY_NAME[name], curves[name]
            limit = sample.value(metric.limit) if sample is not None and metric.limit else nan
            axis = value_axis(metric, max((high for high in curve.high if is_known(high)), default=nan), limit)
            is_seen = any(is_known(one) for one in curve.mean)
            now = next((one for one in curve.mean[2 * at : 2 * at + 2] if is_known(one)), nan)
            numbers = axis.labels(self._each, _AXIS) if is_seen else {}
            for place, cells_of in enumerate(plot(curve, axis, self._each, ROLES[name])):
                label = (units.number(now, metric.unit), metric.title)[place] if place < 2 else ""
                said = Segment(fit(" " * side + label, side + _LABEL), _DIM if place else _NUMBER)
                number = Segment(fit(numbers.get(place, ""), _AXIS, right=True) + " ", _FAINT)
                gap = GAP if view.has_read else " "
                drawn = to_line(cells_of) if is_seen or place else [Segment(gap * grid.buckets, _FAINT)]
                line = [said, number, *draw_cursor(drawn, at, _FREE)]
                is_told = is_seen and name == names[0] and place == self._each // 2
                lines.append(draw_history_start(line, before, grid, view.history.begin, curve) if is_told else line)
        return [*lines, [Segment(" " * before), *times_below(grid, view.now, view.freshness.edge)]]
