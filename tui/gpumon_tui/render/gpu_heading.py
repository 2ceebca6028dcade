"""Lines around the GPU table: headings, epochs, the summary of free GPUs, and the count of hidden ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from math import isfinite

from rich.segment import Segment

from gpumon.analysis.gpu_state import FREE_OR_NOT, GpuState
from gpumon.analysis.gpu_status import GpuStatus, busy_counts, countable_statuses
from gpumon.analysis.run_epochs import EpochMark, every_nth, marks_within
from gpumon.model import units
from gpumon.model.columns import GPU_BY_KEY
from gpumon.storage.history.buckets import Grid
from gpumon_tui import theme
from gpumon_tui.freshness import END, NOW, window_texts
from gpumon_tui.render.gpu_columns import WIDE, GpuColumns
from gpumon_tui.render.gpu_row import FREE
from gpumon_tui.render.text_width import READING_HISTORY, Line, LineBuilder, cut, length, width
from gpumon_tui.render.time_columns import window_text

MARK_STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
"""Steps between epoch marks; the smallest that keeps marks at least `MIN_DISTANCE` cells apart is used."""
MIN_DISTANCE = 8


def heading(
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
