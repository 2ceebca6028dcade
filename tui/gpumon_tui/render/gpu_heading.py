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
from gpumon_tui.render.gpu_columns import NUMBERS, GpuColumns
from gpumon_tui.render.gpu_row import FREE
from gpumon_tui.render.text_width import READING_HISTORY, Line, LineBuilder, cut, join_pieces, length, width
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
    pieces = LineBuilder()
    ink = theme.HEADING
    if not columns.is_short:
        pieces.put(columns.begin, first_title, ink)
    window_forms = window_texts(window_text(window), edge) if is_read else (READING_HISTORY, "reading …")
    for text in (f"{GPU_BY_KEY['history'].short}, {window_forms[0]}", *window_forms):
        if width(text) <= columns.strip_cells + 1:
            pieces.put(columns.strip, text, ink if is_read else theme.FAINT)
            break
    if columns.cells >= 100 and edge in (NOW, END):
        pieces.right(columns.percent, edge, ink)
    size = f"{next(iter(sizes)):.1f}".removesuffix(".0") if len(sizes) == 1 else ""
    memory = GPU_BY_KEY["memory_used"].heading_with_unit
    title = f"{memory} of {size}" if size else memory
    pieces.put(columns.bar, title, ink) if columns.bar_cells else pieces.right(columns.used, memory, ink)
    for key in NUMBERS:
        if end := getattr(columns, key):
            pieces.right(end, GPU_BY_KEY[key].heading_with_unit, ink)
    if columns.throttled:
        pieces.put(columns.throttled, GPU_BY_KEY["throttled"].short, ink)
    if columns.is_short:
        return join_pieces(pieces.pieces, columns.cells)
    if not columns.has_holders:
        pieces.right(columns.end, GPU_BY_KEY["state"].short, ink)
        return join_pieces(pieces.pieces, columns.cells)
    pieces.put(columns.user, GPU_BY_KEY["user"].short, ink)
    run = GPU_BY_KEY["run"].short
    pieces.put(columns.run, run if columns.cells >= 100 else run.replace(" or", ","), ink)
    pieces.right(columns.epoch, GPU_BY_KEY["epoch"].short, ink)
    if columns.epoch < columns.end:
        pieces.right(columns.end, GPU_BY_KEY["left"].short, ink)
    return join_pieces(pieces.pieces, columns.cells)


def epoch_ticks(columns: GpuColumns, grid: Grid, marks: Sequence[EpochMark], name: str) -> Line:
    """Return the epoch starts of a run, aligned with the strips."""
    visible = marks_within(marks, grid.begin, grid.begin + columns.strip_cells * grid.step)
    if not visible:
        return []
    step = next((candidate for candidate in MARK_STEPS if _is_apart(visible, candidate, grid)), MARK_STEPS[-1])
    pieces, next_free = LineBuilder(), 0
    for mark in every_nth(visible, step):
        text, cell = f"╵e{mark.epoch}", grid.at(mark.time)
        if cell >= next_free and cell + width(text) <= columns.strip_cells:
            pieces.put(columns.strip + cell, text, theme.RUN)
            next_free = cell + width(text) + 1
    pieces.put(columns.strip + columns.strip_cells + 1, f"epochs of {name}", theme.FAINT)
    return join_pieces(pieces.pieces, columns.cells)


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
