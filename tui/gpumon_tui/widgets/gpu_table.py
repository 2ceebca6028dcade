"""Table of all GPUs, one line each; unchanged lines are not redrawn."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from rich.segment import Segment
from textual import events
from textual.message import Message

from gpumon.analysis.gpu_state import GpuState
from gpumon.analysis.gpu_status import GpuStatus
from gpumon.analysis.progress import progress
from gpumon.analysis.ranks import Ranks
from gpumon.common.numbers import NAN, is_known
from gpumon.model import units
from gpumon.model.columns import GPU_BY_KEY
from gpumon.model.frame import Frame
from gpumon.storage.history.buckets import Grid
from gpumon.storage.history.query import HOST
from gpumon_tui import theme
from gpumon_tui.cache import Cache
from gpumon_tui.render import gpu_heading, no_gpu
from gpumon_tui.render.gpu_columns import (
    COLUMN_METRICS,
    GAP,
    HOLDERS,
    OPTIONAL_COLUMNS,
    VERY_WIDE,
    GpuArrangement,
    GpuColumns,
    arrange_gpus,
    gpu_columns,
)
from gpumon_tui.render.gpu_row import BRACKET, GpuLine, gpu_row, host_row
from gpumon_tui.render.gpu_status import holder
from gpumon_tui.render.strip import StripHistory, strip, strip_grid
from gpumon_tui.render.text_width import Line, Piece, cut, join_pieces, length, safe, spread
from gpumon_tui.state import View
from gpumon_tui.widgets.lines import Lines, Picture

HOST_ROWS = 4
"""Rows for the host when there is no GPU: a blank row, headings, its line, and epochs."""


class GpuTablePicture(Picture):
    """One line per GPU; without GPUs, the reason why there are none."""

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self.active = True
        """Whether this table has the focus; then the selected line is highlighted."""
        self.top = 0
        """First row on screen."""
        self._problem_room = 0
        """Rows for the explanation on a page without GPUs."""
        self._followed_selection: tuple[str, int, int] = ("", 0, 0)
        self._recent = StripHistory()
        self._pictures: Cache[Line] = Cache()
        self._rows: Cache[Line] = Cache()
        self._unmeasured: Cache[frozenset[str]] = Cache()
        self._reported: set[str] = set()
        """Columns of `OPTIONAL_COLUMNS` for which any GPU has or had a value; a column is not removed when its values
        disappear.
        """
        self._sizes: dict[str, float] = {}
        """Last known memory size of each GPU in GiB, so that a lost GPU keeps its size."""
        self._seconds_left: tuple[Frame | None, dict[str, float]] = None, {}
        self._history_version: tuple[tuple[Frame | None, float], tuple[float, float]] = (None, NAN), (NAN, NAN)
        """Cached start of the history for a frame, and the end of the history while it is loading."""

    def lines(self) -> list[Line]:
        view, samples = self.view, self.view.samples
        cells, height = self.size
        if not samples:
            return self._problem(cells, self._problem_room)[:height]
        arrangement, columns, grid = self._arrangement, self._columns, self._grid
        self._follow(arrangement)
        statuses = view.statuses
        self._recent.keep({sample.device.uuid for sample in samples})
        self._pictures.keep({sample.device.uuid for sample in samples})
        lines = self._head(statuses, arrangement, columns)
        runs = [self._run_of(status) for status in statuses]
        for row in range(self.top, self.top + arrangement.rows):
            row_parts: list[Line] = []
            for index in range(row, len(samples), arrangement.needed_rows):
                first_index = index - row + self.top
                bracket = _bracket(runs, index, first_index, min(len(samples), first_index + arrangement.rows))
                row_parts.append(self._line(statuses[index], bracket, columns, grid))
            lines.append(self._join(row, row_parts, arrangement))
        if arrangement.has_hidden:
            mark = self._mark(statuses, arrangement)
            if len(lines) < height:
                lines.append(spread([], mark, cells))
            else:
                lines[-1] = spread(lines[-1], mark, cells)
        elif arrangement.has_epochs:
            is_on_gpu = any(ranks.first.id == view.selected_run and ranks.gpus for ranks in view.ranks)
            lines.append(self._epochs(columns, grid) if is_on_gpu else [])
        return lines[:height]

    def forget(self) -> None:
        """Reset for frames of another source."""
        self._reported, self._sizes = set(), {}

    def problem_rows(self, cells: int, rows: int) -> int:
        """Return the rows needed to explain why there is no GPU, at most `rows`."""
        return len(self._problem(cells, rows))

    def move(self, step: int) -> None:
        """Select another GPU, stopping at the first and last."""
        uuids = [sample.device.uuid for sample in self.view.samples]
        if uuids:
            index = uuids.index(self.view.subject) if self.view.subject in uuids else -1 if step > 0 else len(uuids)
            self.view.select(uuids[max(0, min(len(uuids) - 1, index + step))])

    def row_text(self) -> str:
        """Return the selected GPU as text separated by tabs; empty if there is none."""
        from gpumon_tui.render.gpu_row import gpu_text  # imported late: most sessions never use it

        view = self.view
        status = next((candidate for candidate in view.statuses if candidate.sample.device.uuid == view.subject), None)
        if status is None:
            return ""
        label = view.label(status)
        return gpu_text(status, view.run_on(status.sample), label.word)

    @property
    def has_strips(self) -> bool:
        """Whether the lines have room for history strips."""
        return self._columns.strip_cells > 0

    @property
    def page(self) -> int:
        """Number of GPUs on screen in one column."""
        return self._arrangement.rows

    def at(self, row: int, cell: int) -> str:
        """Return the UUID of the GPU at a row and cell; empty if there is none."""
        arrangement, samples = self._arrangement, self.view.samples
        row, column = row - arrangement.first_row, cell // (arrangement.cells + GAP)
        index = self.top + row + column * arrangement.needed_rows
        is_gpu = 0 <= row < arrangement.rows and column < arrangement.columns and index < len(samples)
        return samples[index].device.uuid if is_gpu else ""

    def is_mark(self, row: int) -> bool:
        """Whether a row shows the count of GPUs that are not on screen."""
        return self._arrangement.has_hidden and row >= self._arrangement.first_row + self._arrangement.rows

    @property
    def _arrangement(self) -> GpuArrangement:
        return arrange_gpus(self.size.width, self.size.height, len(self.view.samples))

    @property
    def _columns(self) -> GpuColumns:
        samples = self.view.samples
        if not samples:
            return gpu_columns(self.size.width, len("CPU"))
        longest = max((len(sample.device.label) for sample in samples), default=1)
        cells = self._arrangement.cells
        optional = OPTIONAL_COLUMNS if cells >= VERY_WIDE else ()
        self._reported.update(
            name for name in optional if any(isfinite(sample.value(GPU_BY_KEY[name].metric)) for sample in samples)
        )
        totals = len(self._totals()) > 1
        return gpu_columns(cells, longest, totals=totals, reported=frozenset(self._reported), missing=self._missing())

    def _totals(self) -> set[float]:
        """Return the distinct memory sizes of the GPUs on screen, using last known sizes if needed."""
        samples = [sample for sample in self.view.samples if not sample.device.is_divided]
        for sample in samples:
            if isfinite(total := sample.value("gpu.memory_total")):
                self._sizes[sample.device.uuid] = round(total / 2**30, 1)
        return {self._sizes[sample.device.uuid] for sample in samples if sample.device.uuid in self._sizes}

    def _missing(self) -> frozenset[str]:
        """Columns for which no GPU has a sensor; determined once per GPU, so that columns do not come and go with
        values.
        """
        view = self.view
        devices = [sample.device for sample in view.samples]
        inputs = tuple(id(device.missing) for device in devices), view.has_holders

        def missing_columns() -> frozenset[str]:
            names = {
                name for name, metric in COLUMN_METRICS.items() if all(metric in device.missing for device in devices)
            }
            return frozenset(names if view.has_holders else names | {HOLDERS})

        return self._unmeasured.get(0, inputs, missing_columns)

    @property
    def _grid(self) -> Grid:
        return strip_grid(self.view.overview_window, max(1, self._columns.strip_cells), self.view.now)

    def _problem(self, cells: int, rows: int) -> list[Line]:
        self._problem_room = rows
        view = self.view
        if view.frame is None:
            lines = no_gpu.waiting_lines(view.origin.problem or view.freshness.text, cells)
        else:
            other_rows = HOST_ROWS + (2 + len(view.ranks) if view.ranks else 0)
            lines = no_gpu.problem_lines(
                view.origin, hostname=view.hostname, simulation=view.has_simulation, run_count=len(view.past_runs),
                cells=cells,
                rows=max(5, rows - other_rows),
            )  # fmt: skip
            lines += [[], *self._host(cells)]
            past = no_gpu.past_runs(view.past_runs, view.now, cells)
            lines += [[], *past] if past and len(lines) + 1 + len(past) + other_rows <= rows else []
        return [cut(line, cells) for line in lines]

    def _host(self, cells: int) -> list[Line]:
        """Return the line of the host with headings, and the epochs of the selected run."""
        view = self.view
        columns, grid = gpu_columns(cells, len("CPU")), self._grid
        version, edge = (view.history.begin, view.is_loading and view.history.end), view.freshness.edge
        shares = self._recent.shares(
            view.history, HOST, "host.cpu_utilization", grid=grid, interval=view.interval, version=version
        )
        total = view.host("host.memory_total")
        sizes = {round(total / 2**30, 1)} if is_known(total) else set()
        line = host_row(strip(shares, is_read=view.has_full_history), view.host, safe(view.hostname), columns)
        heading = gpu_heading.heading(
            columns, self.view.overview_window, sizes, edge, "", is_read=view.has_full_history
        )
        return [heading, join_pieces(line, cells), self._epochs(columns, grid)]

    def _head(self, statuses: Sequence[GpuStatus], arrangement: GpuArrangement, columns: GpuColumns) -> list[Line]:
        if arrangement.has_summary:
            edge = self.view.freshness.edge
            summary = gpu_heading.free_summary(statuses, columns.cells, edge) if not self.view.age else []
            return [self._rows.get("answer", summary, lambda: summary), []]
        if not arrangement.has_heading:
            return []
        sizes = self._totals()
        edge = self.view.freshness.edge
        inputs = columns, self.view.overview_window, sizes, edge, self.view.has_full_history

        def head() -> Line:
            return gpu_heading.heading(
                columns, self.view.overview_window, sizes, edge, is_read=self.view.has_full_history
            )

        line = self._rows.get("heading", inputs, head)
        return [self._join(-1, [line] * arrangement.columns, arrangement)]

    def _line(self, status: GpuStatus, bracket: str, columns: GpuColumns, grid: Grid) -> Line:
        view, sample, state = self.view, status.sample, status.state
        uuid = sample.device.uuid
        run = view.run_on(sample)
        since = status.since
        idle = ""
        if state is GpuState.HELD and since is not None and since.seconds >= 60:
            idle = f"{'> ' if since.at_least else ''}{units.short_duration(since.seconds)}"
        gpu = GpuLine(
            sample=sample, state=state, idle=idle,
            label=view.label(status),
            holder=holder(sample, run, status.processes, len(status.runs)),
            left=self._seconds_until_end(run.id) if run else NAN,
            received=view.rate(uuid, "gpu.pcie_received") if columns.pcie_received else NAN,
            sent=view.rate(uuid, "gpu.pcie_sent") if columns.pcie_sent else NAN, history=self._history(uuid, grid),
            bracket=bracket, is_selected=uuid == view.subject,
        )  # fmt: skip
        ground = theme.CURSOR if gpu.is_selected and self.active else None
        pieces: list[Piece] = gpu_row(gpu, columns)
        return self._rows.get(uuid, (pieces, columns, ground), lambda: join_pieces(pieces, columns.cells, ground))

    def _history(self, uuid: str, grid: Grid) -> Line:
        view = self.view
        inputs = view.frame, view.is_loading and view.history.end
        if self._history_version[0] != inputs:
            self._history_version = inputs, (view.history.begin, inputs[1])
        shares = self._recent.shares(
            view.history, uuid, "gpu.utilization", grid=grid, interval=view.interval, version=self._history_version[1]
        )
        is_read = view.has_full_history
        return self._pictures.get(uuid, (shares, is_read), lambda: strip(shares, is_read=is_read))

    def _seconds_until_end(self, run: str) -> float:
        """Return the seconds until a run ends, computed once per frame."""
        view = self.view
        if self._seconds_left[0] is not view.frame:
            self._seconds_left = view.frame, {}
        seconds_left = self._seconds_left[1]
        if run not in seconds_left:
            ranks: Ranks | None = next((candidate for candidate in view.ranks if candidate.first.id == run), None)
            seconds_left[run] = progress(ranks, view.epochs, view.now, view.monotonic_ns).left if ranks else NAN
        return seconds_left[run]

    def _run_of(self, status: GpuStatus) -> str:
        run = self.view.run_on(status.sample)
        return run.id if run else ""

    def _join(self, row: int, parts: list[Line], arrangement: GpuArrangement) -> Line:
        """Join the lines of a row; returns the same object while all lines are unchanged."""
        if len(parts) == 1:
            return parts[0]

        def join() -> Line:
            line: Line = []
            for part in parts:
                line += [*part, Segment(" " * (arrangement.cells - length(part) + GAP))]
            return line

        return self._rows.get(("row", row), (parts, arrangement), join)

    def _epochs(self, columns: GpuColumns, grid: Grid) -> Line:
        """Return the epoch starts of the selected run."""
        view = self.view
        ranks = next((candidate for candidate in view.ranks if candidate.first.id == view.selected_run), None)
        if ranks is None:
            return []
        marks, name = view.epochs.chart_marks([run.key for run in ranks.all]).marks, safe(ranks.first.name)
        inputs = marks, name, columns, grid
        return self._rows.get("epochs", inputs, lambda: gpu_heading.epoch_ticks(columns, grid, marks, name))

    def _follow(self, arrangement: GpuArrangement) -> None:
        """Scroll to a GPU when it becomes selected; after that, the mouse wheel may scroll it away."""
        subject = self.view.subject
        selection = subject, arrangement.rows, arrangement.needed_rows
        if selection != self._followed_selection:
            self._followed_selection = selection
            selected = next(
                (index for index, sample in enumerate(self.view.samples) if sample.device.uuid == subject), -1
            )
            row = selected % arrangement.needed_rows if selected >= 0 else self.top
            self.top = min(max(self.top, row - arrangement.rows + 1), row)
        self.top = max(0, min(self.top, arrangement.needed_rows - arrangement.rows))

    def _mark(self, statuses: Sequence[GpuStatus], arrangement: GpuArrangement) -> Line:
        """Return the number of GPUs above and below the visible ones, and the names of free GPUs among them."""
        above = [status for index, status in enumerate(statuses) if index % arrangement.needed_rows < self.top]
        below = [
            status
            for index, status in enumerate(statuses)
            if index % arrangement.needed_rows >= self.top + arrangement.rows
        ]
        free = [status.sample.device.label for status in (*above, *below) if status.state is GpuState.FREE]
        return gpu_heading.hidden_gpus(len(above), len(below), free, self.size.width)


def _bracket(runs: Sequence[str], index: int, first: int, end: int) -> str:
    """Return the bracket glyph of a GPU, which joins it with visible neighbors (`first` to `end`) of the same run."""
    run = runs[index]
    if not run:
        return ""
    has_above = index > first and runs[index - 1] == run
    has_below = index + 1 < end and runs[index + 1] == run
    if not has_above and not has_below:
        return ""
    return BRACKET[0] if not has_above else BRACKET[1] if has_below else BRACKET[2]


WHEEL = 3
"""Rows per step of the mouse wheel."""


class GpuTable(Lines):
    """The widget; a click on a GPU selects it."""

    class Selected(Message):
        """Posted when a GPU was clicked."""

        def __init__(self, uuid: str) -> None:
            super().__init__()
            self.uuid = uuid

    def __init__(self, view: View, picture: GpuTablePicture, *, id: str) -> None:
        super().__init__(view, picture, id=id)
        self._table = picture

    def on_click(self, event: events.Click) -> None:
        """Select the clicked GPU, or scroll to GPUs that are not on screen."""
        if self._table.is_mark(event.y):
            self._scroll(self._table.page)
        elif uuid := self._table.at(event.y, event.x):
            self.post_message(self.Selected(uuid))

    def on_mouse_scroll_down(self) -> None:
        """Scroll down."""
        self._scroll(WHEEL)

    def on_mouse_scroll_up(self) -> None:
        """Scroll up."""
        self._scroll(-WHEEL)

    def _scroll(self, rows: int) -> None:
        self._table.top += rows
        self.show()
