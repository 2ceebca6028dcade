"""Curves of an opened run by epoch; every epoch has an equal share of the width."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, isfinite
from typing import TYPE_CHECKING, NamedTuple

from rich.segment import Segment

from gpumon.common.numbers import NAN, is_known
from gpumon.model import units
from gpumon_tui import palette, theme
from gpumon_tui.render.axis import NumberFormat, ValueAxis, logged_axis
from gpumon_tui.render.cells import draw_cursor, to_line
from gpumon_tui.render.line_plot import BAND, OverlaidLine, PlotCurve, plot
from gpumon_tui.render.section import NAME
from gpumon_tui.render.text_width import Line, fit, length, safe

if TYPE_CHECKING:
    from gpumon_tui.data.run_rows import OpenRun


def epoch_cell(epoch: int, count: int, cells: int) -> int:
    """Return the cell of one of `count` epochs: its middle, or with more epochs than cells the one that contains it."""
    if count > 2 * cells:
        return ((epoch + 1) * cells - 1) // count
    return min(cells - 1, int((epoch + 0.5) * cells / max(1, count)))


def level_points(values: Sequence[float], points: int) -> list[float]:
    """Return points for values that apply to a whole epoch, such as a mean: constant over its width, NaN if unknown.

    If several epochs share a point, their mean is used.
    """
    count = len(values)
    if count > points:
        return [_mean(_part(values, point, points)) for point in range(points)]
    return [_finite_or_nan(values[int((point + 0.5) * count / points)]) if count else NAN for point in range(points)]


def interpolated_points(values: Sequence[float], points: int) -> list[float]:
    """Return points for values at one time of each epoch, such as a loss, interpolated linearly.

    There is no line across an epoch without a finite value. If several epochs share a point, their mean is used.
    """
    count = len(values)
    if count > points or not count:
        return level_points(values, points)
    points_found = []
    for point in range(points):
        position = (point + 0.5) * count / points - 0.5
        epoch = min(count - 1, max(0, floor(position + 0.5)))
        neighbor = epoch + (1 if position > epoch else -1)
        value = _finite_or_nan(values[epoch])
        if 0 <= neighbor < count and isfinite(values[neighbor]):
            value += (values[neighbor] - value) * abs(position - epoch)
        points_found.append(value)
    return points_found


def extreme_points(values: Sequence[float], points: int, *, is_maximum: bool) -> list[float]:
    """Return the minimum or maximum of the epochs at each point; NaN if there is none."""
    if len(values) <= points:
        return level_points(values, points)
    result = []
    for point in range(points):
        finite = _finite(_part(values, point, points))
        result.append((max(finite) if is_maximum else min(finite)) if finite else NAN)
    return result


def _part(values: Sequence[float], point: int, points: int) -> Sequence[float]:
    return values[point * len(values) // points : (point + 1) * len(values) // points]


def _finite_or_nan(value: float) -> float:
    return value if isfinite(value) else NAN


def _mean(values: Sequence[float]) -> float:
    finite = _finite(values)
    return sum(finite) / len(finite) if finite else NAN


def _finite(values: Sequence[float]) -> Sequence[float]:
    # Fast path: most runs have thousands of values, all finite.
    return values if isfinite(sum(values)) else [value for value in values if isfinite(value)]


LABELS = 7
"""Width of the labels next to a curve."""
MIN_DISTANCE = 8
"""Minimum distance in cells between epoch marks."""
STEPS = (1, 2, 5)
REPLACEABLE = " ▁▂▃▄▅▆▇█"
"""Glyphs that the cursor line may replace: everything except the line itself."""
_LONG_LEGEND_FROM = 44
"""Width of the curves from which the legend has words."""
SHARE_AXIS = ValueAxis(0.0, 1.0, 2, NumberFormat(0.01, "%", 0))
CHIP = palette.ink("ground", "key", bold=True)


class RunCurves(NamedTuple):
    """Both curves without a cursor, cached because thousands of epochs take a while and the cursor moves often."""

    lines: list[Line]
    pictures: Sequence[range]
    """Line ranges that the cursor crosses."""
    cells: int
    """Width of the curves; 0 if there are none."""


def curves(run: OpenRun, cells: int, rows: int) -> RunCurves:
    """Return both curves in exactly `rows` lines of `cells`; the last line is left free for the epoch under a
    cursor.
    """
    plot_cells = cells - LABELS
    metric, is_measured = run.totals.metric, any(map(is_known, run.totals.utilization[1]))
    if plot_cells < 8 or rows < 8 or not (metric or is_measured):
        return RunCurves([], (), 0)
    logged_rows = (rows - 3) // 2 if metric and is_measured else rows - 2
    lines: list[Line] = []
    pictures = []
    if metric:
        lines += _logged(run, plot_cells, logged_rows - 1)
        pictures.append(range(1, len(lines)))
    if is_measured:
        first = len(lines) + 1
        lines += _utilization(run, plot_cells, rows - 3 - len(lines))
        pictures.append(range(first, len(lines)))
    lines.append(_axis(run, plot_cells))
    return RunCurves([*lines, *([[]] * (rows - len(lines)))][:rows], pictures, plot_cells)


def with_cursor(curves: RunCurves, run: OpenRun, selected: int) -> list[Line]:
    """Return the curves with a cursor at an epoch (by index) and its name below; -1 for none."""
    lines = list(curves.lines)
    if not (curves.cells and 0 <= selected < len(run.rows)):
        return lines
    cursor = epoch_cell(selected, len(run.rows), curves.cells)
    for row in (row for picture in curves.pictures for row in picture):
        lines[row] = [lines[row][0], *draw_cursor(lines[row][1:], cursor, REPLACEABLE)]
    axis = curves.pictures[-1].stop
    if axis + 1 < len(lines):
        lines[axis + 1] = _chip(run, curves.cells, selected, cursor)
    return lines


def _logged(run: OpenRun, plot_cells: int, rows: int) -> list[Line]:
    totals = run.totals
    title: Line = [Segment(safe(totals.metric).capitalize(), NAME), Segment(" ⠒⠒ by epoch", theme.DIM)]
    if totals.diverged:
        title.append(Segment(f"  diverged in {units.counted(totals.diverged, 'epoch')}", palette.ink("crit")))
    curve = PlotCurve(
        (), interpolated_points(totals.logged, 2 * plot_cells), ()
    )  # a band or an area would misrepresent ratios
    return [title, *labeled_plot(curve, logged_axis(totals.logged_range), rows, "run")]


def _utilization(run: OpenRun, plot_cells: int, rows: int) -> list[Line]:
    low, mean, high = run.totals.utilization
    legend = " 5th to 95th percentile" if plot_cells >= _LONG_LEGEND_FROM else " p5 to p95"
    title: Line = [
        Segment("Utilization", NAME), Segment(" ⠒⠒", theme.GOOD), Segment(" mean  ", theme.DIM),
        Segment("▆▆", palette.tint("util", BAND)), Segment(legend, theme.DIM),
    ]  # fmt: skip
    points = 2 * plot_cells
    curve = PlotCurve(
        extreme_points(low, points, is_maximum=False),
        level_points(mean, points),
        extreme_points(high, points, is_maximum=True),
    )  # fmt: skip
    return [title, *labeled_plot(curve, SHARE_AXIS, rows - 1, "util")]


def labeled_plot(
    curve: PlotCurve, axis: ValueAxis, rows: int, role: str, overlaid: Sequence[OverlaidLine] = (), mark: str = ""
) -> list[Line]:
    """Draw a curve with its axis labels in a separate segment before it; `mark` as in `plot`."""
    texts = axis.labels(rows, LABELS - 1)
    return [
        [Segment(fit(texts.get(index, ""), LABELS - 1, right=True) + " ", theme.FAINT), *to_line(row)]
        for index, row in enumerate(plot(curve, axis, rows, role, overlaid, mark=mark))
    ]


def _axis(run: OpenRun, plot_cells: int) -> Line:
    """Return the axis below the curves, with round epoch numbers."""
    count = len(run.rows)
    step, power = 1, 0
    while step * plot_cells / max(1, count) < MIN_DISTANCE + (4 if run.is_by_steps else 0) and step < count:
        power += 1
        step = STEPS[power % 3] * 10 ** (power // 3)
    text = [" "] * plot_cells
    next_free = 0
    numbers = range(count) if run.is_by_steps else run.totals.numbers
    marked = [epoch for epoch, number in enumerate(numbers) if not number % step]
    for epoch in marked if marked[:1] == [0] else [0, *marked]:
        cell = epoch_cell(epoch, count, plot_cells)
        title = run.rows[epoch].title
        if cell >= next_free and cell + len(title) <= plot_cells:
            text[cell : cell + len(title)] = title
            next_free = cell + len(title) + 2
    return [Segment(" " * LABELS), Segment("".join(text), theme.RUN)]


def _chip(run: OpenRun, plot_cells: int, selected: int, cursor: int) -> Line:
    """Return the label of the epoch under the cursor."""
    if cursor < 0 or not 0 <= selected < len(run.rows):
        return []
    text = f" {run.rows[selected].title} "
    begin = max(0, min(plot_cells - len(text), cursor - len(text) // 2))
    line: Line = [Segment(" " * (LABELS + begin)), Segment(text, CHIP)]
    return line if length(line) <= LABELS + plot_cells else []
