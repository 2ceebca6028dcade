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
from gpumon_tui.memo import Memo
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
        self._followed: tuple[str, int, int] = ("", 0, 0)
        self._recent = StripHistory()
        self._pictures: Memo[Line] = Memo()
        self._rows: Memo[Line] = Memo()
        self._unmeasured: Memo[frozenset[str]] = Memo()
        self._told: set[str] = set()
        """Columns of `SELDOM_TOLD` for which any GPU has or had a value; a column is not removed when its values
        disappear.
        """
        self._sizes: dict[str, float] = {}
        """Last known memory size of each GPU in GiB, so that a lost GPU keeps its size."""
        self._lefts: tuple[Frame | None, dict[str, float]] = None, {}
        self._known: tuple[tuple[Frame | None, float], tuple[float, float]] = (None, NAN), (NAN, NAN)
        """Cached start of the history for a frame, and the end of the history while it is loading."""

    def lines(self) -> list[Line]:
        view, samples = self.view, self.view.samples
        cells, height = self.size
        if not samples:
            return self._problem(cells, self._problem_room)[:height]
        rooms, columns, grid = self._rooms, self._columns, self._grid
        self._follow(rooms)
        statuses = view.statuses
        self._recent.keep({sample.device.uuid for sample in samples})
        self._pictures.keep({sample.device.uuid for sample in samples})
        lines = self._head(statuses, rooms, columns)
        runs = [self._run_of(status) for status in statuses]
        for row in range(self.top, self.top + rooms.rows):
            across: list[Line] = []
            for place in range(row, len(samples), rooms.down):
                first = place - row + self.top
                bracket = _bracket(runs, place, first, min(len(samples), first + rooms.rows))
                across.append(self._line(statuses[place], bracket, columns, grid))
            lines.append(self._join(row, across, rooms))
        if rooms.has_mark:
            mark = self._mark(statuses, rooms)
            if len(lines) < height:
                lines.append(spread([], mark, cells))
            else:
                lines[-1] = spread(lines[-1], mark, cells)
        elif rooms.epochs:
            is_on_gpu = any(one.first.id == view.selected_run and one.gpus for one in view.ranks)
            lines.append(self._epochs(columns, grid) if is_on_gpu else [])
        return lines[:height]

    def forget(self) -> None:
        """Reset for frames of another source."""
        self._told, self._sizes = set(), {}

    def problem_rows(self, cells: int, rows: int) -> int:
        """Return the rows needed to explain why there is no GPU, at most `rows`."""
        return len(self._problem(cells, rows))

    def move(self, step: int) -> None:
        """Select another GPU, stopping at the first and last."""
        uuids = [sample.device.uuid for sample in self.view.samples]
        if uuids:
            at = uuids.index(self.view.subject) if self.view.subject in uuids else -1 if step > 0 else len(uuids)
            self.view.select(uuids[max(0, min(len(uuids) - 1, at + step))])

    def row_text(self) -> str:
        """Return the selected GPU as text separated by tabs; empty if there is none."""
        from gpumon_tui.render.gpu_row import gpu_text  # imported late: most sessions never use it

        view = self.view
        status = next((one for one in view.statuses if one.sample.device.uuid == view.subject), None)
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
        return self._rooms.rows

    def at(self, row: int, cell: int) -> str:
        """Return the UUID of the GPU at a row and cell; empty if there is none."""
        rooms, samples = self._rooms, self.view.samples
        row, column = row - rooms.first, cell // (rooms.cells + GAP)
        place = self.top + row + column * rooms.down
        is_one = 0 <= row < rooms.rows and column < rooms.across and place < len(samples)
        return samples[place].device.uuid if is_one else ""

    def is_mark(self, row: int) -> bool:
        """Whether a row shows the count of GPUs that are not on screen."""
        return self._rooms.has_mark and row >= self._rooms.first + self._rooms.rows

    @property
    def _rooms(self) -> GpuArrangement:
        return arrange_gpus(self.size.width, self.size.height, len(self.view.samples))

    @property
    def _columns(self) -> GpuColumns:
        samples = self.view.samples
        if not samples:
            return gpu_columns(self.size.width, len("CPU"))
        longest = max((len(sample.device.label) for sample in samples), default=1)
        cells = self._rooms.cells
        seldom = OPTIONAL_COLUMNS if cells >= VERY_WIDE else ()
        self._told.update(
            name for name in seldom if any(isfinite(sample.value(GPU_BY_KEY[name].metric)) for sample in samples)
        )
        totals = len(self._totals()) > 1
        return gpu_columns(cells, longest, totals=totals, reported=frozenset(self._told), missing=self._missing())

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
        shows = tuple(id(device.missing) for device in devices), view.tells_holders

        def found() -> frozenset[str]:
            names = {name for name, metric in COLUMN_METRICS.items() if all(metric in of.missing for of in devices)}
            return frozenset(names if view.tells_holders else names | {HOLDERS})

        return self._unmeasured.get(0, shows, found)

    @property
    def _grid(self) -> Grid:
        return strip_grid(self.view.glance, max(1, self._columns.strip_cells), self.view.now)

    def _problem(self, cells: int, rows: int) -> list[Line]:
        self._problem_room = rows
        view = self.view
        if view.frame is None:
            lines = no_gpu.waiting_lines(view.origin.problem or view.freshness.text, cells)
        else:
            others = HOST_ROWS + (2 + len(view.ranks) if view.ranks else 0)
            lines = no_gpu.problem_lines(
                view.origin, hostname=view.hostname, simulation=view.has_simulation, run_count=len(view.past),
                cells=cells,
                rows=max(5, rows - others),
            )  # fmt: skip
            lines += [[], *self._host(cells)]
            past = no_gpu.past_runs(view.past, view.now, cells)
            lines += [[], *past] if past and len(lines) + 1 + len(past) + others <= rows else []
        return [cut(line, cells) for line in lines]

    def _host(self, cells: int) -> list[Line]:
        """Return the line of the host with headings, and the epochs of the selected run."""
        view = self.view
        columns, grid = gpu_columns(cells, len("CPU")), self._grid
        known, edge = (view.history.begin, view.filling and view.history.end), view.freshness.edge
        shares = self._recent.shares(
            view.history, HOST, "host.cpu_utilization", grid=grid, interval=view.interval, version=known
        )
        total = view.host("host.memory_total")
        sizes = {round(total / 2**30, 1)} if is_known(total) else set()
        line = host_row(strip(shares, is_read=view.has_read), view.host, safe(view.hostname), columns)
        heading = gpu_heading.heading(columns, self.view.glance, sizes, edge, "", is_read=view.has_read)
        return [heading, join_pieces(line, cells), self._epochs(columns, grid)]

    def _head(self, statuses: Sequence[GpuStatus], rooms: GpuArrangement, columns: GpuColumns) -> list[Line]:
        if rooms.answer:
            edge = self.view.freshness.edge
            told = gpu_heading.free_summary(statuses, columns.cells, edge) if not self.view.age else []
            return [self._rows.get("answer", told, lambda: told), []]
        if not rooms.heading:
            return []
        sizes = self._totals()
        edge = self.view.freshness.edge
        shows = columns, self.view.glance, sizes, edge, self.view.has_read

        def head() -> Line:
            return gpu_heading.heading(columns, self.view.glance, sizes, edge, is_read=self.view.has_read)

        line = self._rows.get("heading", shows, head)
        return [self._join(-1, [line] * rooms.across, rooms)]

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
            holder=holder(sample, run, status.processes, len(status.runs)), left=self._left(run.id) if run else NAN,
            received=view.rate(uuid, "gpu.pcie_received") if columns.pcie_received else NAN,
            sent=view.rate(uuid, "gpu.pcie_sent") if columns.pcie_sent else NAN, history=self._history(uuid, grid),
            bracket=bracket, is_selected=uuid == view.subject,
        )  # fmt: skip
        ground = theme.CURSOR if gpu.is_selected and self.active else None
        pieces: list[Piece] = gpu_row(gpu, columns)
        return self._rows.get(uuid, (pieces, columns, ground), lambda: join_pieces(pieces, columns.cells, ground))

    def _history(self, uuid: str, grid: Grid) -> Line:
        view = self.view
        of = view.frame, view.filling and view.history.end
        if self._known[0] != of:
            self._known = of, (view.history.begin, of[1])
        shares = self._recent.shares(
            view.history, uuid, "gpu.utilization", grid=grid, interval=view.interval, version=self._known[1]
        )
        is_read = view.has_read
        return self._pictures.get(uuid, (shares, is_read), lambda: strip(shares, is_read=is_read))

    def _left(self, run: str) -> float:
        """Return the seconds until a run ends, computed once per frame."""
        view = self.view
        if self._lefts[0] is not view.frame:
            self._lefts = view.frame, {}
        found = self._lefts[1]
        if run not in found:
            ranks: Ranks | None = next((one for one in view.ranks if one.first.id == run), None)
            found[run] = progress(ranks, view.epochs, view.now, view.monotonic_ns).left if ranks else NAN
        return found[run]

    def _run_of(self, status: GpuStatus) -> str:
        run = self.view.run_on(status.sample)
        return run.id if run else ""

    def _join(self, row: int, across: list[Line], rooms: GpuArrangement) -> Line:
        """Join the lines of a row; returns the same object while all lines are unchanged."""
        if len(across) == 1:
            return across[0]

        def join() -> Line:
            line: Line = []
            for part in across:
                line += [*part, Segment(" " * (rooms.cells - length(part) + GAP))]
            return line

        return self._rows.get(("row", row), (across, rooms), join)

    def _epochs(self, columns: GpuColumns, grid: Grid) -> Line:
        """Return the epoch starts of the selected run."""
        view = self.view
        ranks = next((one for one in view.ranks if one.first.id == view.selected_run), None)
        if ranks is None:
            return []
        marks, name = view.epochs.chart_marks([run.key for run in ranks.all]).marks, safe(ranks.first.name)
        shows = marks, name, columns, grid
        return self._rows.get("epochs", shows, lambda: gpu_heading.epoch_ticks(columns, grid, marks, name))

    def _follow(self, rooms: GpuArrangement) -> None:
        """Scroll to a GPU when it becomes selected; after that, the mouse wheel may scroll it away."""
        subject = self.view.subject
        selection = subject, rooms.rows, rooms.down
        if selection != self._followed:
            self._followed = selection
            selected = next((i for i, s in enumerate(self.view.samples) if s.device.uuid == subject), -1)
            row = selected % rooms.down if selected >= 0 else self.top
            self.top = min(max(self.top, row - rooms.rows + 1), row)
        self.top = max(0, min(self.top, rooms.down - rooms.rows))

    def _mark(self, statuses: Sequence[GpuStatus], rooms: GpuArrangement) -> Line:
        """Return the number of GPUs above and below the visible ones, and the names of free GPUs among them."""
        above = [one for at, one in enumerate(statuses) if at % rooms.down < self.top]
        below = [one for at, one in enumerate(statuses) if at % rooms.down >= self.top + rooms.rows]
        free = [one.sample.device.label for one in (*above, *below) if one.state is GpuState.FREE]
        return gpu_heading.hidden_gpus(len(above), len(below), free, self.size.width)


def _bracket(runs: Sequence[str], place: int, first: int, end: int) -> str:
    """Return the bracket glyph of a GPU, which joins it with visible neighbors (`first` to `end`) of the same run."""
    run = runs[place]
    if not run:
        return ""
    above = place > first and runs[place - 1] == run
    below = place + 1 < end and runs[place + 1] == run
    if not above and not below:
        return ""
    return BRACKET[0] if not above else BRACKET[1] if below else BRACKET[2]


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
