"""Columns of the GPU table for a given width, their headings, the lines around the table, and the arrangement of GPUs
in several columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from math import ceil, isfinite
from typing import NamedTuple

from rich.segment import Segment

from gpumon.analysis.gpu_state import FREE_OR_NOT, GpuState
from gpumon.analysis.gpu_status import GpuStatus, busy_counts, countable_statuses
from gpumon.analysis.run_epochs import EpochMark, every_nth, marks_within
from gpumon.diagnosis.finding import ranges
from gpumon.model import units
from gpumon.model.columns import GPU_BY_KEY
from gpumon.storage.history.buckets import Grid
from gpumon_tui import theme
from gpumon_tui.freshness import END, NOW, window_texts
from gpumon_tui.render.gpu_status import FREE
from gpumon_tui.render.table import PlacedColumn, TableColumn
from gpumon_tui.render.text_width import READING_HISTORY, Line, LineBuilder, cut, length, width
from gpumon_tui.render.time_axis import window_text

SHORT = 56
"""Width below which a GPU has a short line."""
SHORT_CELLS = 39
"""Width of a short line when several are side by side."""
WIDE = 100
VERY_WIDE = 198
"""Minimum width, in columns, at which the table has columns for values that not every driver reports."""
OPTIONAL_COLUMNS = {"fan": 7, "performance_state": 4, "encoder_utilization": 7, "decoder_utilization": 7}
"""Width of each of these columns, with the gap before it."""
NUMBERS = ("temperature", "power", "clock_sm", "pcie_received", "pcie_sent", *OPTIONAL_COLUMNS)
"""Number columns to the right of the memory column, from left to right."""
THROTTLED = 11
"""Width of the throttling reasons."""
BAR = "bar"
COLUMN_METRICS = {
    BAR: "gpu.memory_total",
    **{key: GPU_BY_KEY[key].metric for key in (*NUMBERS, "throttled") if key not in OPTIONAL_COLUMNS},
}
"""Metrics of the columns that are hidden if no GPU reports them."""
HOLDERS = "holders"
"""Name of the columns that are hidden if the users of GPUs are not available."""
TAIL, SHORT_TAIL, BRIEF_TAIL, BRIEF = 43, 30, 27, 80
"""Width of the last column: from 100 cells on; below that, where `jupyter-kernel` still fits; and below `BRIEF`
cells.
"""
STATE_TAIL = 17
"""Width of the state alone."""
TOTAL = 6
"""Width of the memory size after the used memory."""
TIME_LEFT = 11
"""Width of the time left after the epoch."""


class GpuColumns(NamedTuple):
    """Columns of the GPU table in a width, and positions within the last one."""

    cells: int
    placed: tuple[PlacedColumn, ...]
    """The keys are from `model.columns`, except the last one, `holder`: the user, the run or program, its epoch and the
    time left, or the state.
    """
    strip_cells: int
    bar_cells: int
    """Width of the bar at the beginning of the memory column."""
    has_total: bool
    """Whether the memory column has the memory size."""
    user_cells: int
    """Width of the user, with a gap; it begins at the second cell of the last column."""
    epoch: int
    """The cell after the epoch."""
    end: int
    """The cell after the time left or the state."""
    has_holders: bool = True

    @property
    def is_short(self) -> bool:
        """Whether a single word replaces epoch and state."""
        return self.cells < SHORT

    @property
    def run(self) -> int:
        """First cell of the run or program in the last column."""
        return 1 + self.user_cells

    def has(self, key: str) -> bool:
        """Whether there is room for a column, and a GPU that reports it."""
        return any(placed.column.key == key for placed in self.placed)

    def begin(self, key: str) -> int:
        """Return the first cell of a column."""
        return next(placed.begin for placed in self.placed if placed.column.key == key)


@lru_cache(maxsize=64)
def gpu_columns(
    cells: int, label: int = 1, *, totals: bool = False, reported: frozenset[str] = frozenset(),
    missing: frozenset[str] = frozenset(),
) -> GpuColumns:  # fmt: skip
    """Divide `cells` into columns; `label` is the width of the longest GPU number.

    `totals`: memory sizes differ, so every row shows its total. `reported`: columns of `OPTIONAL_COLUMNS` that any
    driver reports; `missing`: columns of `COLUMN_METRICS` that no GPU reports, and possibly `HOLDERS`.
    """
    if cells < SHORT:
        return _short(cells, label)
    is_wide = cells >= WIDE
    margin = 1 + is_wide
    bar_cells = 0 if BAR in missing else 20 if cells >= 185 else 12 if is_wide else 8 if cells >= 66 else 0
    has_total = totals and cells >= 80
    number_cells = {
        "temperature": (4 + is_wide) * (cells >= 70), "power": (5 + is_wide) * (cells >= 76),
        "clock_sm": 8 * (cells >= 150), "pcie_received": 8 * (cells >= 185), "pcie_sent": 6 * (cells >= 185),
        **{key: width * (cells >= VERY_WIDE and key in reported) for key, width in OPTIONAL_COLUMNS.items()},
    }  # fmt: skip
    memory_cells = bar_cells + 6 + is_wide - (not bar_cells) + TOTAL * has_total
    has_holders = HOLDERS not in missing
    tail = TAIL + 4 * (cells >= 150) if is_wide else SHORT_TAIL if cells >= BRIEF else BRIEF_TAIL
    first = margin, _column("gpu", max(3, label))
    others = [
        (2 if bar_cells else 1, _column("memory_used", memory_cells)),
        *((1, _column(key, width - 1)) for key, width in number_cells.items() if width and key not in missing),
        *([(3, _column("throttled", THROTTLED))] if cells >= 150 and "throttled" not in missing else []),
        (1 + is_wide, TableColumn("", tail if has_holders else STATE_TAIL, key="holder")),
    ]
    utilization = _column("utilization", 4)
    room = cells - margin - sum(gap + column.cells for gap, column in (first, (3, utilization), *others))
    strip_cells = max(0, room if room <= 69 else 69 + (room - 69) * 2 // 3)
    strip = [(2, _column("history", strip_cells))] if strip_cells else []
    columns = [first, *strip, (1 if strip else 2, utilization), *others]
    placed = _place(columns, cells - margin)
    end = placed[-1].column.cells
    return GpuColumns(
        cells, placed, strip_cells, bar_cells, has_total,
        user_cells=0 if not has_holders else 10 if cells >= 150 else 8 if cells >= 120 else 7,
        epoch=end - TIME_LEFT if is_wide else end, end=end, has_holders=has_holders,
    )  # fmt: skip


def _short(cells: int, label: int) -> GpuColumns:
    strip_cells = max(0, min(8, cells - 30)) if cells >= 34 else 0
    columns = [
        (1, _column("gpu", max(2, label))),
        *([(1, _column("history", strip_cells))] if strip_cells else []),
        (1, _column("utilization", 4)),
        (1, _column("memory_used", 4)),
        (1, TableColumn("", 0, key="holder")),
    ]
    placed = _place(columns, cells - 1)
    end = placed[-1].column.cells
    return GpuColumns(cells, placed, strip_cells, bar_cells=0, has_total=False, user_cells=6, epoch=end, end=end)


def _column(key: str, cells: int) -> TableColumn:
    column = GPU_BY_KEY[key]
    return TableColumn(column.heading_with_unit, cells, right=column.is_number or key == "gpu", key=key)


def _place(columns: Sequence[tuple[int, TableColumn]], end: int) -> tuple[PlacedColumn, ...]:
    """Place columns, each with the gap before it; the last one ends at `end`."""
    placed: list[PlacedColumn] = []
    for index, (gap, column) in enumerate(columns):
        begin = gap + (placed[-1].end if placed else 0)
        placed.append(PlacedColumn(index, begin, column))
    last = placed[-1]
    return *placed[:-1], last._replace(column=last.column._replace(cells=max(0, end - last.begin)))


def numbers(uuids: Sequence[str], labels: Mapping[str, str]) -> str:
    """Return devices by their labels: `0–3`, `0,5`, for MIG instances `0:1`; empty if no label is available."""
    known_labels = [label for uuid in uuids if (label := labels.get(uuid))]
    indexes = ranges(int(label) for label in known_labels if label.isdecimal()).replace(", ", ",")
    return ",".join(filter(None, (indexes, *sorted(label for label in known_labels if not label.isdecimal()))))


GAP = 2
"""Cells between two GPUs side by side."""
SIDE_BY_SIDE_FROM = 80
"""Minimum width, in columns, at which GPUs are placed side by side if there are too few rows."""
MIN_MARKED_ROWS = 3
"""Rows from which the count of hidden GPUs has its own row; below, it is appended to the last row."""


class GpuArrangement(NamedTuple):
    """Arrangement of the GPUs, column by column."""

    columns: int
    cells: int
    """Width of each GPU."""
    rows: int
    """Rows of GPUs on screen."""
    needed_rows: int
    """Rows needed for all GPUs."""
    has_summary: bool
    """Whether there is a row with the number of free GPUs."""
    has_heading: bool
    has_epochs: bool
    """Whether there is a row for the epochs of a run."""

    @property
    def first_row(self) -> int:
        """Row of the first GPU."""
        return int(self.has_heading) + 2 * int(self.has_summary)

    @property
    def has_hidden(self) -> bool:
        """Whether some GPUs are not on screen."""
        return self.rows < self.needed_rows


def arrange_gpus(cells: int, rows: int, gpus: int) -> GpuArrangement:
    """Arrange `gpus` in a room of `rows` and `cells`; headings and epochs get the remaining rows."""
    rows = max(1, rows)
    column_count = 1
    if gpus > rows and cells >= SIDE_BY_SIDE_FROM:
        column_count = min(ceil(gpus / rows), (cells + GAP) // (SHORT_CELLS + GAP))
    needed_rows = ceil(gpus / column_count)
    gpu_cells = (cells - GAP * (column_count - 1)) // column_count
    spare = rows - needed_rows
    has_summary = gpu_cells < SHORT and column_count == 1 and spare >= 2
    heading = gpu_cells >= SHORT and spare >= 1
    epochs = gpu_cells >= SHORT and spare >= 2
    visible_rows = needed_rows if spare >= 0 else rows - 1 if rows >= MIN_MARKED_ROWS else rows
    return GpuArrangement(column_count, gpu_cells, visible_rows, needed_rows, has_summary, heading, epochs)


MARK_STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
"""Steps between epoch marks; the smallest that keeps marks at least `MIN_DISTANCE` cells apart is used."""
MIN_DISTANCE = 8


def gpu_heading(
    columns: GpuColumns,
    window: float,
    sizes: set[float],
    edge: str = NOW,
    first_title: str = GPU_BY_KEY["gpu"].short,
    *,
    is_read: bool = True,
) -> Line:
    """Return the column headings.

    `edge` labels the end of the strips of `window` seconds; `first_title` is the heading of the first column. Until
    history `is_read`, a note says that it is loading.
    """
    line, ink = LineBuilder(), theme.HEADING
    for _, begin, column in columns.placed:
        match column.key:
            case "gpu":
                line.put(begin, "" if columns.is_short else first_title, ink)
            case "history":
                span = window_text(window)
                forms = window_texts(span, edge) if is_read else (READING_HISTORY, "reading …")
                texts = (f"{column.title}, {forms[0]}", *forms)
                text = next((text for text in texts if width(text) <= column.cells + 1), "")
                line.put(begin, text, ink if is_read else theme.FAINT)
            case "utilization":
                if columns.cells >= WIDE and edge in (NOW, END):
                    line.right(begin + column.cells, edge, ink)
            case "memory_used":
                size = f"{next(iter(sizes)):.1f}".removesuffix(".0") if len(sizes) == 1 else ""
                if columns.bar_cells:
                    line.put(begin, f"{column.title} of {size}" if size else column.title, ink)
                else:
                    line.right(begin + column.cells, column.title, ink)
            case "throttled":
                line.put(begin, column.title, ink)
            case "holder":
                if not columns.is_short:
                    _holder_heading(line, begin, columns)
            case _:
                line.right(begin + column.cells, column.title, ink)
    return line.line(columns.cells)


def _holder_heading(line: LineBuilder, begin: int, columns: GpuColumns) -> None:
    titles = {key: GPU_BY_KEY[key].short for key in ("state", "user", "run", "epoch", "left")}
    if not columns.has_holders:
        line.right(begin + columns.end, titles["state"], theme.HEADING)
        return
    run = titles["run"] if columns.cells >= WIDE else titles["run"].replace(" or", ",")
    line.put(begin + 1, titles["user"], theme.HEADING)
    line.put(begin + columns.run, run, theme.HEADING)
    line.right(begin + columns.epoch, titles["epoch"], theme.HEADING)
    if columns.epoch < columns.end:
        line.right(begin + columns.end, titles["left"], theme.HEADING)


def epoch_ticks(columns: GpuColumns, grid: Grid, marks: Sequence[EpochMark], name: str) -> Line:
    """Return the epoch starts of a run, aligned with the strips."""
    visible = marks_within(marks, grid.begin, grid.begin + columns.strip_cells * grid.step)
    if not visible:
        return []
    step = next((candidate for candidate in MARK_STEPS if _is_apart(visible, candidate, grid)), MARK_STEPS[-1])
    line, next_free, begin = LineBuilder(), 0, columns.begin("history")
    for mark in every_nth(visible, step):
        text, cell = f"╵e{mark.epoch}", grid.at(mark.time)
        if cell >= next_free and cell + width(text) <= columns.strip_cells:
            line.put(begin + cell, text, theme.RUN)
            next_free = cell + width(text) + 1
    line.put(begin + columns.strip_cells + 1, f"epochs of {name}", theme.FAINT)
    return line.line(columns.cells)


def _is_apart(marks: Sequence[EpochMark], step: int, grid: Grid) -> bool:
    """Whether marks at every `step`-th epoch leave room for their names."""
    cells = (grid.at(mark.time) for mark in every_nth(marks, step))
    return all(next_cell - cell >= MIN_DISTANCE for cell, next_cell in pairwise(cells))


def free_summary(statuses: Sequence[GpuStatus], cells: int, edge: str = NOW) -> Line:
    """Return the summary in one line: `1 free  GPU 7  79.6 GiB  6 busy`; GPUs divided by MIG are not counted.

    `edge` labels the time if it is not now. If there is no room, busy GPUs are joined to one number, and then the
    memory size of the free GPU is dropped.
    """
    forms = ((False, True), (True, True), (True, False))
    lines = [_free_summary(statuses, edge, is_brief=is_brief, has_size=has_size) for is_brief, has_size in forms]
    return cut(next((line for line in lines if length(line) <= cells), lines[-1]), cells)


def _free_summary(statuses: Sequence[GpuStatus], edge: str, *, is_brief: bool, has_size: bool) -> Line:
    statuses = countable_statuses(statuses)
    counts: Counter[GpuState] = Counter(status.state for status in statuses)
    line: Line = [Segment(" ")] if edge == NOW else [Segment(f"  {edge} ", theme.WARN)]
    free = [status.sample for status in statuses if status.state is GpuState.FREE]
    if free or set(counts) <= FREE_OR_NOT:
        line.append(Segment(f" {len(free)} free ", FREE if free else theme.DIM))
    if free:
        names = " ".join(sample.device.label for sample in free[:4]) + (" …" if len(free) > 4 else "")
        line.append(Segment(f" GPU {names} ", theme.STRONG))
        if has_size and len(free) == 1 and isfinite(size := free[0].value("gpu.memory_total")):
            line += [Segment(f" {units.gibibytes(size)}", theme.PLAIN), Segment(" GiB ", theme.DIM)]
    other_counts = [(sum(counts[state] for state in states), name) for name, states in _OTHER_STATES.items()]
    for count, word in (*busy_counts(statuses, is_brief=is_brief), *other_counts):
        if count:
            line += [Segment(f" {count}", theme.PLAIN), Segment(f" {word}", theme.DIM)]
    unknown = sum(counts[state] for state in _UNKNOWN)
    if unknown:
        line += [Segment(f" {unknown}", theme.WARN), Segment(" unknown", theme.DIM)]
    return line


_OTHER_STATES = {"allocated": (GpuState.ALLOCATED,), "idle": (GpuState.HELD, GpuState.IDLE)}
_UNKNOWN = (GpuState.UNKNOWN, GpuState.STALE, GpuState.LOST, GpuState.UNREADABLE)


def hidden_gpus(above: int, below: int, free: Sequence[str], cells: int) -> Line:
    """Return the count of GPUs that do not fit on screen: `+5 ▼ · 2 free: GPU 27, 31`."""
    counts = "  ".join(f"+{count} {arrow}" for count, arrow in ((above, "▲"), (below, "▼")) if count)
    line: Line = [Segment(f"  {counts}", theme.TITLE)]
    if free:
        long_form = f" {len(free)} free: GPU {', '.join(free)} "
        text = long_form if width(long_form) + width(counts) + 6 <= cells else f" {len(free)} free "
        line += [Segment(" ·", theme.DIM), Segment(text, theme.GOOD)]
    return [*line, Segment(" ")]
