"""The time axis of charts: its columns, history values in them, and the marks above and below a chart."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import ceil, floor, inf
from operator import attrgetter

from rich.segment import Segment

from gpumon.analysis.rank_epochs import Span
from gpumon.analysis.run_epochs import EpochMark, every_nth, marks_within
from gpumon.common.numbers import is_known
from gpumon.model import units
from gpumon.model.frame import EVALUATION, Boundary
from gpumon.storage.history.buckets import SHORT_WINDOWS, WINDOWS, Grid
from gpumon.storage.history.query import History, Query, Series
from gpumon_tui import theme
from gpumon_tui.render.axis import clock_labels, place_labels
from gpumon_tui.render.cells import EMPTY, PaintedCell, Row, Tint, draw_text, to_line
from gpumon_tui.render.text_width import Line

HOLD = 2.2
"""Number of intervals for which a sample stays valid, so that columns finer than the sampling have no gaps."""


def read(history: History, subject: str, metric: str, grid: Grid, interval: float, end: float = inf) -> Series:
    """Return the history of a metric in each column, up to `end`; samples are `interval` seconds apart."""
    query = Query(subject, (metric,), grid.begin, end, grid=grid, hold=HOLD * interval)
    return history.query(query)[metric]


MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
MAX_EXCESS = 0.1
"""Maximum share by which columns may exceed the window, so that its name is still correct."""
_ROUND_UNITS = (
    *(number * DAY for number in (1, 0.5)), *(number * HOUR for number in (6, 3, 2, 1)),
    *(number * MINUTE for number in (30, 20, 15, 10, 5, 2, 1)), 30.0, 20.0, 10.0, 5.0, 2.0, 1.0,
    0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001,
)  # fmt: skip
"""Units in seconds for the length of a column, roundest first."""
_SCROLL_STEPS = 24
"""The chart moves by this fraction of the window, because moving by single columns would repaint everything each
time.
"""
_ROUNDING = 1e-6
_HALF_TOLERANCE = 0.01
"""Tolerance as a share of half a column, because times are rounded."""


def step_of(window: float, cells: int) -> float:
    """Return the duration of a column in seconds: the roundest one with which `cells` columns just cover `window`."""
    min_step = window / max(1, cells) * (1 - _ROUNDING)
    for unit in _ROUND_UNITS:
        count = ceil(min_step / unit)
        if count * unit <= min_step * (1 + MAX_EXCESS):
            # Multiplying a decimal fraction would accumulate its error.
            return count * unit if unit >= 1 else count / round(1 / unit)
    return min_step


def window_text(window: float) -> str:
    """Return the displayed name of a window; the columns match it to within a tenth."""
    title = next(
        (window_name.title for window_name in (*SHORT_WINDOWS, *WINDOWS) if window_name.seconds == window), None
    )
    return title or units.long_duration(window)


def column_text(step: float) -> str:
    """Return the exact length of a column: `12 min`, `1 h 50 min`, `6.5 s`."""
    parts, remainder = [], step
    for size, name in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min")):
        if count := int((remainder + _ROUNDING) // size):
            parts.append(f"{count} {name}")
            remainder -= count * size
    if remainder > _ROUNDING or not parts:
        parts.append(f"{remainder:.3g} s")
    return " ".join(parts)


def live_columns(window: float, cells: int, now: float) -> Grid:
    """Return `cells` columns up to now; columns for the next 24th of the window stay empty until then."""
    cells = max(1, cells)
    step, scroll_columns = step_of(window, cells), max(1, cells // _SCROLL_STEPS)
    return Grid((floor(now / (scroll_columns * step) + _ROUNDING) + 1) * scroll_columns - cells, step, cells)


def past_columns(window: float, cells: int, end: float) -> Grid:
    """Return `cells` columns; the last column contains `end` (s since 1970)."""
    cells = max(1, cells)
    step = step_of(window, cells)
    return Grid(ceil(end / step - _ROUNDING) - cells, step, cells)


def observed_halves(grid: Grid, oldest: float, newest: float) -> slice:
    """Return the half columns between the times `oldest` and `newest` (s since 1970); values missing outside are not
    gaps.
    """
    first = min(grid.buckets, max(0, grid.at(oldest))) if is_known(oldest) else 0
    last = min(2 * grid.buckets, ceil(2 * (newest - grid.begin) / grid.step - _HALF_TOLERANCE))
    return slice(2 * first, max(2 * first, last))


def halves(grid: Grid) -> Grid:
    """Return the same time with two buckets per column, because lines have two points per column."""
    return Grid(2 * grid.first, grid.step / 2, 2 * grid.buckets)


HISTORY_START = "history begins here"


def draw_history_start(line: Line, first_cell: int, grid: Grid, begin: float, mean: Sequence[float]) -> Line:
    """Return a line of a chart with a note before `begin` of the history (s since 1970, or NaN); unchanged if there is
    no room.

    `first_cell` is the cell of the first column; `mean` has two values per column.
    """
    free_cells = grid.at(begin) if is_known(begin) else 0
    if free_cells <= len(HISTORY_START) + 1:
        return line
    note_end = min(free_cells, grid.buckets)
    if any(map(is_known, mean[: 2 * note_end])):
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
    """Return the starts and ends of the spans, with overlapping spans merged.

    Spans overlap because the ranks of a run enter a phase at the same time.
    """
    merged: list[tuple[float, float]] = []
    for begin, end, _ in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((begin, end))
    return merged


def times_below(grid: Grid, now: float, edge: str = "") -> Line:
    """Return rounded times of day; the label `edge` is placed at `now`, if given and within the chart."""
    cells, faint = grid.buckets, theme.ink("faint")
    labels = clock_labels(grid, cells, _LABEL_DISTANCE)
    if edge and grid.begin <= now <= grid.end + grid.step:
        begin = max(0, min(cells, grid.at(now) + 1) - len(edge))
        labels = [label for label in labels if label[0] + len(label[1]) < begin]
        return draw_text([Segment(place_labels(labels, " " * cells), faint)], begin, edge, faint)
    return [Segment(place_labels(labels, " " * cells), faint)]
