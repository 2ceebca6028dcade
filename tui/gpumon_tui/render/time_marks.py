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
from gpumon_tui.render.axis import clock_labels, lay
from gpumon_tui.render.cells import EMPTY, PaintedCell, Row, Tint, laid, painted
from gpumon_tui.render.line_plot import PlotCurve
from gpumon_tui.render.text_width import Line

BEGINS = "history begins here"


def with_begin(line: Line, left: int, grid: Grid, begin: float, curve: PlotCurve) -> Line:
    """Return a line of a chart with a note before `begin` of the history (s since 1970, or NaN), if there is room; else
    the line.

    `left` is the cell of the first column.
    """
    free = grid.at(begin) if is_known(begin) else 0
    if free <= len(BEGINS) + 1:
        return line
    before = min(free, grid.buckets)
    if any(map(is_known, curve.mean[: 2 * before])):
        return line
    return laid(line, left + before - len(BEGINS) - 1, BEGINS, theme.DIM)


AROUND = 500
"""Number of epochs on each side of the window that count when choosing how many are named."""
APART = 8
"""Minimum distance in cells between named epochs."""
FAULT = "▲ OOM"
THINNED = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
PAINTED = 0.5
"""Share of a cell from which it is drawn as a phase."""
_LABELS_APART = 14


def epochs_above(marks: Sequence[EpochMark], grid: Grid, faults: Iterable[Boundary] = ()) -> Line:
    """Return the row of epoch marks, `╷e6`; if they are too close, every 2nd, 5th, 10th.

    Out-of-memory marks take precedence.
    """
    row: Row = [EMPTY] * grid.buckets
    broken = sorted({cell for fault in faults if 0 <= (cell := grid.at(fault.time_ns / 1e9)) < grid.buckets})
    for cell, behind in pairwise((*broken, grid.buckets + 1)):
        _put(row, cell, FAULT if cell + len(FAULT) < behind else FAULT[0], "crit")
    free = 0
    near = marks_within(marks, grid.begin - grid.step, grid.end + grid.step)
    for mark in every_nth(near, _every(marks, grid)):
        cell = grid.at(mark.time)
        if not free <= cell < grid.buckets:
            continue
        text = f"╷e{mark.epoch}"
        if any(one.glyph != " " for one in row[cell : cell + len(text) + 1]):
            continue
        free = _put(row, cell, text if cell + len(text) <= grid.buckets else "╷", "run")
    return painted(row)


def _put(row: Row, cell: int, text: str, role: str) -> int:
    """Write a text; return the first cell for the next one."""
    for place, letter in enumerate(text[: len(row) - cell], cell):
        row[place] = PaintedCell(letter, Tint(role))
    return cell + len(text) + 1


def _every(marks: Sequence[EpochMark], grid: Grid) -> int:
    """Return the step between named epochs, from the typical epoch duration of the runs in the window.

    Epochs outside the window count too, so that the step does not change while epochs scroll through it.
    """
    first, last = (bisect_left(marks, time, key=attrgetter("time")) for time in (grid.begin, grid.end))
    if first == last:
        return 1
    before = [mark for mark in marks[max(0, first - AROUND) : first] if mark.run == marks[first].run]
    after = [mark for mark in marks[last : last + AROUND] if mark.run == marks[last - 1].run]
    count = len(before) + last - first + len(after)
    if count < 2:
        return 1
    begin = before[0].time if before else marks[first].time
    end = after[-1].time if after else marks[last - 1].time
    apart = max(1e-9, (end - begin) / (count - 1) / grid.step)
    return next((every for every in THINNED if apart * every >= APART), THINNED[-1])


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
    for of_cell in shares:
        role = max(of_cell, key=of_cell.__getitem__, default="")
        row.append(PaintedCell("▀", Tint(role)) if role and of_cell[role] >= PAINTED - 1e-6 else EMPTY)
    return painted(row)


def _merged(spans: Iterable[Span]) -> list[tuple[float, float]]:
    """Return starts and ends without overlaps; the ranks of a run validate at the same time."""
    found: list[tuple[float, float]] = []
    for begin, end, _ in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((begin, end))
    return found


def times_below(grid: Grid, now: float, edge: str = "") -> Line:
    """Return rounded times of day; the label `edge` is placed at `now`, if given and within the chart."""
    cells, faint = grid.buckets, palette.ink("faint")
    labels = clock_labels(grid, cells, _LABELS_APART)
    if edge and grid.begin <= now <= grid.end + grid.step:
        begin = max(0, min(cells, grid.at(now) + 1) - len(edge))
        labels = [label for label in labels if label[0] + len(label[1]) < begin]
        return laid([Segment(lay(labels, " " * cells), faint)], begin, edge, faint)
    return [Segment(lay(labels, " " * cells), faint)]
