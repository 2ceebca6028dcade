"""Marks along the time axis: start of the history, epochs above a chart, phases and times below."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import ceil
from operator import attrgetter

from rich.segment import Segment

from gpumon.analysis.rank_epochs import Span
from gpumon.analysis.run_epochs import EpochMark, every_nth, marks_within
from gpumon.common.numbers import is_known
from gpumon.model.frame import EVALUATION, Boundary
from gpumon.storage.history.buckets import Grid
from gpumon_tui import palette, theme
from gpumon_tui.render.axis import clock_labels, place_labels
from gpumon_tui.render.cells import EMPTY, PaintedCell, Row, Tint, draw_text, to_line
from gpumon_tui.render.line_plot import PlotCurve
from gpumon_tui.render.text_width import Line

HISTORY_START = "history begins here"


def draw_history_start(line: Line, first_cell: int, grid: Grid, begin: float, curve: PlotCurve) -> Line:
    """Return a line of a chart with a note before `begin` of the history (s since 1970, or NaN); unchanged if there is
    no room.

    `first_cell` is the cell of the first column.
    """
    free_cells = grid.at(begin) if is_known(begin) else 0
    if free_cells <= len(HISTORY_START) + 1:
        return line
    note_end = min(free_cells, grid.buckets)
    if any(map(is_known, curve.mean[: 2 * note_end])):
        return line
    return draw_text(line, first_cell + note_end - len(HISTORY_START) - 1, HISTORY_START, theme.DIM)


MAX_OUTSIDE = 500
"""Number of epochs on each side of the window that count when choosing how many are named."""
MIN_DISTANCE = 8
"""Minimum distance in cells between named epochs."""
FAULT = "▲ OOM"
MARK_STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
MIN_PHASE_SHARE = 0.5
"""Share of a cell from which it is drawn as a phase."""
_LABEL_DISTANCE = 14


def epochs_above(marks: Sequence[EpochMark], grid: Grid, faults: Iterable[Boundary] = ()) -> Line:
    """Return the row of epoch marks, `╷e6`; if they are too close, every 2nd, 5th, 10th.

    Out-of-memory marks take precedence.
    """
    row: Row = [EMPTY] * grid.buckets
    fault_cells = sorted({cell for fault in faults if 0 <= (cell := grid.at(fault.time_ns / 1e9)) < grid.buckets})
    for cell, next_cell in pairwise((*fault_cells, grid.buckets + 1)):
        _put(row, cell, FAULT if cell + len(FAULT) < next_cell else FAULT[0], "crit")
    next_free = 0
    visible = marks_within(marks, grid.begin - grid.step, grid.end + grid.step)
    for mark in every_nth(visible, _mark_step(marks, grid)):
        cell = grid.at(mark.time)
        if not next_free <= cell < grid.buckets:
            continue
        text = f"╷e{mark.epoch}"
        if any(painted.glyph != " " for painted in row[cell : cell + len(text) + 1]):
            continue
        next_free = _put(row, cell, text if cell + len(text) <= grid.buckets else "╷", "run")
    return to_line(row)


def _put(row: Row, cell: int, text: str, role: str) -> int:
    """Write `text`, and return the first cell after it."""
    for index, letter in enumerate(text[: len(row) - cell], cell):
        row[index] = PaintedCell(letter, Tint(role))
    return cell + len(text) + 1


def _mark_step(marks: Sequence[EpochMark], grid: Grid) -> int:
    """Return the step between named epochs, from the typical epoch duration of the runs in the window.

    Epochs outside the window count too, so that the step does not change while epochs scroll through it.
    """
    first, last = (bisect_left(marks, time, key=attrgetter("time")) for time in (grid.begin, grid.end))
    if first == last:
        return 1
    earlier = [mark for mark in marks[max(0, first - MAX_OUTSIDE) : first] if mark.run == marks[first].run]
    later = [mark for mark in marks[last : last + MAX_OUTSIDE] if mark.run == marks[last - 1].run]
    count = len(earlier) + last - first + len(later)
    if count < 2:
        return 1
    begin = earlier[0].time if earlier else marks[first].time
    end = later[-1].time if later else marks[last - 1].time
    distance = max(1e-9, (end - begin) / (count - 1) / grid.step)
    return next((step for step in MARK_STEPS if distance * step >= MIN_DISTANCE), MARK_STEPS[-1])


def phase_role(phase: str) -> str:
    """Return the color role of a phase."""
    return "power" if phase in EVALUATION else "temp" if phase == "checkpoint" else "dim"


def phases_below(spans: Sequence[Span], grid: Grid, now: float) -> Line:
    """Return the row of `▀`, drawn where at least half of a cell belongs to one kind of phase."""
    shares: list[dict[str, float]] = [{} for _ in range(grid.buckets)]
    for role in {phase_role(span.phase) for span in spans}:
        for first, last in _merged(span for span in spans if phase_role(span.phase) == role):
            begin = max(0.0, (first - grid.begin) / grid.step)
            end = min(float(grid.buckets), (min(last, now) - grid.begin) / grid.step)
            for cell in range(int(begin), ceil(end)):
                share = min(end, cell + 1) - max(begin, cell)
                shares[cell][role] = shares[cell].get(role, 0.0) + share
    row: Row = []
    for cell_shares in shares:
        role = max(cell_shares, key=cell_shares.__getitem__, default="")
        row.append(PaintedCell("▀", Tint(role)) if role and cell_shares[role] >= MIN_PHASE_SHARE - 1e-6 else EMPTY)
    return to_line(row)


def _merged(spans: Iterable[Span]) -> list[tuple[float, float]]:
    """Return starts and ends without overlaps; the ranks of a run validate at the same time."""
    merged: list[tuple[float, float]] = []
    for begin, end, _ in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((begin, end))
    return merged


def times_below(grid: Grid, now: float, edge: str = "") -> Line:
    """Return rounded times of day; the label `edge` is placed at `now`, if given and within the chart."""
    cells, faint = grid.buckets, palette.ink("faint")
    labels = clock_labels(grid, cells, _LABEL_DISTANCE)
    if edge and grid.begin <= now <= grid.end + grid.step:
        begin = max(0, min(cells, grid.at(now) + 1) - len(edge))
        labels = [label for label in labels if label[0] + len(label[1]) < begin]
        return draw_text([Segment(place_labels(labels, " " * cells), faint)], begin, edge, faint)
    return [Segment(place_labels(labels, " " * cells), faint)]
