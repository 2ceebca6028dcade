"""Table of all GPUs, one line each; unchanged lines are not redrawn."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import isfinite

from rich.segment import Segment

from gpumon.analysis.gpu_state import GpuState
from gpumon.analysis.progress import progress
from gpumon.analysis.ranks import Ranks
from gpumon.common.numbers import NAN, is_known
from gpumon.model import units
from gpumon.model.columns import GPU_BY_KEY
from gpumon.model.frame import Frame
from gpumon.storage.history.buckets import Grid
from gpumon.storage.history.query import HOST
from gpumon_tui.cache import Cache
from gpumon_tui.render import no_gpu
from gpumon_tui.render.gpu_columns import (
    COLUMN_METRICS,
    GAP,
    HOLDERS,
    OPTIONAL_COLUMNS,
    VERY_WIDE,
    GpuColumns,
    arrange_gpus,
    epoch_ticks,
    free_summary,
    gpu_columns,
    gpu_heading,
    hidden_gpus,
)
from gpumon_tui.render.gpu_row import BRACKET, GpuLine, gpu_row, gpu_text, host_row
from gpumon_tui.render.gpu_status import holder
from gpumon_tui.render.strip import strip, strip_grid
from gpumon_tui.render.table import BLANK, MARK, PlacedColumn, Row, row_line
from gpumon_tui.render.text_width import Line, cut, length, safe, spread
from gpumon_tui.render.time_axis import read
from gpumon_tui.state import View
from gpumon_tui.widgets.live_table import Section

HOST_ROWS = 4
"""Rows for the host when there is no GPU: a blank row, headings, its line, and epochs."""


class GpuTable(Section):
    """One line per GPU, side by side if there are too few rows; without GPUs, the reason why there are none.

    The keys are UUIDs. A row of the table is a line on screen, which may have several GPUs.
    """

    follows_always = True

    def __init__(self, view: View) -> None:
        super().__init__(view, id="gpus")
        self.active = True
        self._problem_room = 0
        """Rows for the explanation on a page without GPUs."""
        self._arrangement = arrange_gpus(0, 0, 0)
        self._columns = gpu_columns(0)
        self._grid = Grid(0, 1.0, 1)
        self._unmeasured: Cache[frozenset[str]] = Cache()
        self._reported: set[str] = set()
        """Columns of `OPTIONAL_COLUMNS` for which any GPU has or had a value; a column is not removed when its values
        disappear.
        """
        self._sizes: dict[str, float] = {}
        """Last known memory size of each GPU in GiB, so that a lost GPU keeps its size."""
        self._seconds_left: tuple[Frame | None, dict[str, float]] = None, {}

    def forget(self) -> None:
        """Reset for frames of another source."""
        self._reported, self._sizes = set(), {}

    def problem_rows(self, cells: int, rows: int) -> int:
        """Return the rows needed to explain why there is no GPU, at most `rows`."""
        self._problem_room = rows
        return len(self.empty(cells))

    @property
    def has_strips(self) -> bool:
        """Whether the lines have room for history strips."""
        return self._columns.strip_cells > 0

    @property
    def selected(self) -> Hashable:
        return self.view.subject

    def select_key(self, key: Hashable) -> None:
        self.view.select(str(key))

    def keys_of_rows(self) -> Sequence[Hashable]:
        return [sample.device.uuid for sample in self.view.samples]

    @property
    def row_count(self) -> int:
        return self._arrangement.needed_rows if self.keys else 0

    def row_of(self, index: int) -> int:
        return index % self._arrangement.needed_rows

    def row_text(self) -> str:
        view = self.view
        status = next((candidate for candidate in view.statuses if candidate.sample.device.uuid == view.subject), None)
        return gpu_text(status, view.run_on(status.sample), view.label(status).word) if status is not None else ""

    def draw(self, cells: int, height: int) -> list[Line]:
        self._arrangement = arrangement = arrange_gpus(cells, height, len(self.view.samples))
        self.head_rows = arrangement.first_row if self.view.samples else 0
        lines = super().draw(cells, height)
        if arrangement.has_hidden and not self.has_foot and lines:
            lines[-1] = spread(lines[-1], self._hidden(), cells)
        return lines

    def place(self, cells: int) -> Sequence[PlacedColumn]:
        self._columns = columns = self._fit_columns(self._arrangement.cells)
        self._grid = strip_grid(self.view.overview_window, max(1, columns.strip_cells), self.view.now)
        return columns.placed if self.keys else ()

    @property
    def has_heading(self) -> bool:
        return False  # the headings show the window of the strips too, so they are part of the head

    def head(self, cells: int) -> list[Line]:
        view, arrangement = self.view, self._arrangement
        if not self.head_rows:
            return []
        if arrangement.has_summary:
            summary = [] if view.age else free_summary(view.statuses, cells, view.freshness.edge)
            return [summary, []]
        inputs = view.overview_window, self._totals(), view.freshness.edge
        heading = gpu_heading(self._columns, *inputs, is_read=view.has_full_history)
        return [self._join([heading] * arrangement.columns)]

    def row_line(self, index: int, cells: int) -> Line:
        arrangement = self._arrangement
        gpus = range(index, len(self.keys), arrangement.needed_rows)
        return self._join([super(GpuTable, self).row_line(gpu, arrangement.cells) for gpu in gpus])

    def mark(self, index: int) -> Segment:
        return MARK if self.keys[index] == self.selected else BLANK

    def row(self, index: int) -> Row:
        view, status = self.view, self.view.statuses[index]
        sample = status.sample
        uuid, run, since = sample.device.uuid, view.run_on(sample), status.since
        idle = ""
        if status.state is GpuState.HELD and since is not None and since.seconds >= 60:
            idle = f"{'> ' if since.at_least else ''}{units.short_duration(since.seconds)}"
        has_rates = self._columns.has("pcie_received"), self._columns.has("pcie_sent")
        gpu = GpuLine(
            sample=sample, state=status.state, idle=idle, label=view.label(status),
            holder=holder(sample, run, status.processes, len(status.runs)),
            left=self._seconds_until_end(run.id) if run else NAN,
            received=view.rate(uuid, "gpu.pcie_received") if has_rates[0] else NAN,
            sent=view.rate(uuid, "gpu.pcie_sent") if has_rates[1] else NAN,
            history=self._history(uuid, "gpu.utilization", self._grid), bracket=self._bracket(index),
        )  # fmt: skip
        return gpu_row(gpu, self._columns)

    def empty(self, cells: int) -> list[Line]:
        view = self.view
        if view.frame is None:
            lines = no_gpu.waiting_lines(view.origin.problem or view.freshness.text, cells)
        else:
            other_rows = HOST_ROWS + (2 + len(view.ranks) if view.ranks else 0)
            lines = no_gpu.problem_lines(
                view.origin, hostname=view.hostname, simulation=view.has_simulation, run_count=len(view.past_runs),
                cells=cells,
                rows=max(5, self._problem_room - other_rows),
            )  # fmt: skip
            lines += [[], *self._host(cells)]
            past = no_gpu.past_runs(view.past_runs, view.now, cells)
            lines += [[], *past] if past and len(lines) + 1 + len(past) + other_rows <= self._problem_room else []
        return [cut(line, cells) for line in lines]

    def foot_rows(self, room: int) -> int:
        arrangement = self._arrangement
        if not self.keys:
            return 0
        return int(room > arrangement.rows if arrangement.has_hidden else arrangement.has_epochs)

    def foot(self, above: int, below: int, cells: int) -> Line:
        view = self.view
        if self._arrangement.has_hidden:
            return spread([], self._hidden(), cells)
        is_on_gpu = any(ranks.first.id == view.selected_run and ranks.gpus for ranks in view.ranks)
        return self._epochs(self._columns, self._grid) if is_on_gpu else []

    def press(self, y: int, x: int) -> None:
        """Select the clicked GPU, or scroll to GPUs that are not on screen."""
        arrangement, row = self._arrangement, y - self._first
        column = x // (arrangement.cells + GAP)
        index = self.top + row + column * arrangement.needed_rows
        if arrangement.has_hidden and row >= arrangement.rows:
            self._wheel(arrangement.rows)
        elif 0 <= row < arrangement.rows and column < arrangement.columns and index < len(self.keys):
            is_again = self.is_selected(index)
            self.select_key(self.keys[index])
            self.post_message(self.Chosen(self, opens=False, is_again=is_again))

    def _fit_columns(self, cells: int) -> GpuColumns:
        samples = self.view.samples
        if not samples:
            return gpu_columns(cells, len("CPU"))
        longest = max((len(sample.device.label) for sample in samples), default=1)
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

    def _host(self, cells: int) -> list[Line]:
        """Return the line of the host with headings, and the epochs of the selected run."""
        view = self.view
        columns = gpu_columns(cells, len("CPU"))
        grid = strip_grid(view.overview_window, max(1, columns.strip_cells), view.now)
        total, edge = view.host("host.memory_total"), view.freshness.edge
        sizes = {round(total / 2**30, 1)} if is_known(total) else set()
        row = host_row(self._history(HOST, "host.cpu_utilization", grid), view.host, safe(view.hostname), columns)
        heading = gpu_heading(columns, view.overview_window, sizes, edge, "", is_read=view.has_full_history)
        return [heading, row_line(row, columns.placed, cells), self._epochs(columns, grid)]

    def _history(self, subject: str, metric: str, grid: Grid) -> Line:
        """Return the strip of a metric of a GPU or of the host."""
        view = self.view
        return strip(read(view.history, subject, metric, grid, view.interval).mean, is_read=view.has_full_history)

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

    def _bracket(self, index: int) -> str:
        """Return the bracket glyph of a GPU, which joins it with its visible neighbors of the same run."""

        def run_of(other: int) -> str:
            run = self.view.run_on(statuses[other].sample)
            return run.id if run else ""

        statuses, arrangement = self.view.statuses, self._arrangement
        if not (run := run_of(index)):
            return ""
        first = index - self.row_of(index) + self.top
        end = min(len(statuses), first + arrangement.rows)
        has_above = index > first and run_of(index - 1) == run
        has_below = index + 1 < end and run_of(index + 1) == run
        if not has_above and not has_below:
            return ""
        return BRACKET[0] if not has_above else BRACKET[1] if has_below else BRACKET[2]

    def _join(self, parts: list[Line]) -> Line:
        """Join the lines of GPUs side by side."""
        if len(parts) == 1:
            return parts[0]
        cells, line = self._arrangement.cells + GAP, list[Segment]()
        for part in parts:
            line += [*part, Segment(" " * (cells - length(part)))]
        return line

    def _epochs(self, columns: GpuColumns, grid: Grid) -> Line:
        """Return the epoch starts of the selected run."""
        view = self.view
        ranks = next((candidate for candidate in view.ranks if candidate.first.id == view.selected_run), None)
        if ranks is None:
            return []
        marks, name = view.epochs.chart_marks([run.key for run in ranks.all]).marks, safe(ranks.first.name)
        return epoch_ticks(columns, grid, marks, name)

    def _hidden(self) -> Line:
        """Return the number of GPUs above and below the visible ones, and the names of free GPUs among them."""
        statuses, end = self.view.statuses, self.top + self._arrangement.rows
        above = [status for index, status in enumerate(statuses) if self.row_of(index) < self.top]
        below = [status for index, status in enumerate(statuses) if self.row_of(index) >= end]
        free = [status.sample.device.label for status in (*above, *below) if status.state is GpuState.FREE]
        return hidden_gpus(len(above), len(below), free, self.cells)
