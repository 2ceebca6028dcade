"""Curves of an opened run by epoch, and of a metric that two compared runs both logged, by epoch and by time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import takewhile
from math import floor, isfinite
from typing import TYPE_CHECKING, NamedTuple

from rich.segment import Segment

from gpumon.common.numbers import NAN, is_known
from gpumon.model import units
from gpumon_tui import theme
from gpumon_tui.render.axis import NumberFormat, ValueAxis, logged_axis
from gpumon_tui.render.cells import draw_cursor, to_line
from gpumon_tui.render.line_plot import BAND, OverlaidLine, PlotCurve, plot
from gpumon_tui.render.table import NAME, margin
from gpumon_tui.render.text_width import Line, fit, length, safe

if TYPE_CHECKING:
    from gpumon_tui.data.run_rows import ComparedRuns, EpochCurve, OpenRun


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
CHIP = theme.ink("ground", "key", bold=True)


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
        title.append(Segment(f"  diverged in {units.counted(totals.diverged, 'epoch')}", theme.ink("crit")))
    curve = PlotCurve(
        (), interpolated_points(totals.logged, 2 * plot_cells), ()
    )  # a band or an area would misrepresent ratios
    return [title, *labeled_plot(curve, logged_axis(totals.logged_range), rows, "run")]


def _utilization(run: OpenRun, plot_cells: int, rows: int) -> list[Line]:
    low, mean, high = run.totals.utilization
    legend = " 5th to 95th percentile" if plot_cells >= _LONG_LEGEND_FROM else " p5 to p95"
    title: Line = [
        Segment("Utilization", NAME), Segment(" ⠒⠒", theme.GOOD), Segment(" mean  ", theme.DIM),
        Segment("▆▆", theme.tint("util", BAND)), Segment(legend, theme.DIM),
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


TWO_CHARTS_FROM = 100
"""Minimum width, in columns, at which both charts are shown side by side."""
LETTERS = ("A", "B")
"""Letters of the runs in sentences about both, baseline first."""
MIN_MARK_DISTANCE = 10
"""Minimum distance in cells between axis marks."""
_TIME_STEPS = (
    1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 40, *(60 * many for many in (1, 2, 3, 4, 5, 10, 15, 20, 30)),
    *(3600 * many for many in (1, 2, 3, 4, 6, 8, 12)), *(86400 * many for many in (1, 2, 5, 10)),
)  # fmt: skip
"""Intervals in seconds between marks of the time axis."""


def compared_curves(runs: ComparedRuns, cells: int, rows: int, *, has_letters: bool = False) -> list[Line]:
    """Return the charts in `rows` lines; the baseline is dim. Empty if the runs logged no common metric.

    `has_letters`: lines have no colors, so each is marked with the letter of its run.
    """
    if not runs.metric or not all(curve.values for curve in runs.curves):
        return []
    base, other = runs.curves
    axis = logged_axis((*base.range, *other.range))
    left_margin, has_two_charts = margin(cells), cells >= TWO_CHARTS_FROM
    plot_cells = ((cells - 2 * left_margin - 4) // 2 if has_two_charts else cells - 2 * left_margin) - LABELS
    height = rows - 2
    name, epochs = safe(runs.metric).capitalize(), max(len(base.values), len(other.values))
    epoch_points = [_epoch_points(curve, epochs, plot_cells) for curve in (other, base)]
    marks = (LETTERS[1], LETTERS[0]) if has_letters else ("", "")
    left = _panel(f"{name} by epoch", epoch_points, plot_cells, height, axis, marks)
    left.append(_mark_line(_epoch_marks(epochs, plot_cells), plot_cells))
    if not has_two_charts:
        return [[Segment(" " * left_margin), *line] for line in left]
    longest_time = max(curve.times[-1] for curve in (base, other))
    time_points = [_time_points(curve, longest_time, plot_cells) for curve in (other, base)]
    right = _panel(f"{name} by time", time_points, plot_cells, height, axis, marks)
    right.append(_mark_line(_time_marks(longest_time, plot_cells), plot_cells))
    return [
        [
            Segment(" " * left_margin),
            *left_line,
            Segment(" " * (plot_cells + LABELS + 4 - length(left_line))),
            *right_line,
        ]
        for left_line, right_line in zip(left, right, strict=True)
    ]


def _panel(
    title: str, curves: Sequence[Sequence[float]], plot_cells: int, rows: int, axis: ValueAxis, marks: tuple[str, str]
) -> list[Line]:
    other, baseline = curves
    plot_lines = labeled_plot(
        PlotCurve((), other, ()), axis, rows, "run", [OverlaidLine(baseline, "dim", marks[1])], marks[0]
    )
    return [[Segment(fit(title, plot_cells + LABELS), NAME)], *plot_lines]


def _epoch_points(curve: EpochCurve, epochs: int, plot_cells: int) -> list[float]:
    """Return the points of a run by epoch; the longest run takes the full width."""
    return interpolated_points([*curve.values, *[NAN] * (epochs - len(curve.values))], 2 * plot_cells)


def _time_points(curve: EpochCurve, longest_time: float, plot_cells: int) -> list[float]:
    """Return the points of a run by time, interpolated between the ends of epochs."""
    last = 2 * plot_cells - 1

    def position_of(epoch: int) -> int:
        return min(last, round(curve.times[epoch] / longest_time * last)) if longest_time > 0 else 0

    points = []
    for position in range(last + 1):
        # Bisection finds the last epoch before a time; a run may have thousands.
        epoch = bisect_right(range(len(curve.times)), position, key=position_of) - 1
        if epoch >= 0 and position_of(epoch) == position:
            same_position = takewhile(lambda index: position_of(index) == position, range(epoch, -1, -1))  # noqa: B023
            points.append(next((curve.values[index] for index in same_position if isfinite(curve.values[index])), NAN))
        elif 0 <= epoch < len(curve.times) - 1:
            begin, end = position_of(epoch), position_of(epoch + 1)
            first, second = curve.values[epoch : epoch + 2]
            value = first + (second - first) * (position - begin) / (end - begin)
            points.append(value if isfinite(value) else NAN)
        else:
            points.append(NAN)
    return points


def _epoch_marks(count: int, plot_cells: int) -> list[tuple[int, str]]:
    """Return axis marks with epoch numbers, counted from the first epoch of a run."""
    decades = [n * 10**power for power in range(9) for n in (1, 2, 5)]
    step = next(step for step in decades if step * plot_cells >= MIN_MARK_DISTANCE * count or step >= count)
    return [
        (epoch_cell(number - 1, count, plot_cells), str(number))
        for number in (1, *range(step, count + 1, step))
        if number
    ]


def _time_marks(longest_time: float, plot_cells: int) -> list[tuple[int, str]]:
    """Return axis marks with rounded times since the start."""
    step = next((step for step in _TIME_STEPS if step * plot_cells >= (MIN_MARK_DISTANCE + 2) * longest_time), 0)
    if not step or not longest_time > 0:
        return [(0, "0")]
    return [
        (round(n * step / longest_time * (plot_cells - 1)), units.long_duration(n * step) if n else "0")
        for n in range(int(longest_time / step) + 1)
    ]


def _mark_line(marks: Sequence[tuple[int, str]], plot_cells: int) -> Line:
    text, next_free = [" "] * plot_cells, 0
    for begin, label in marks:
        if begin >= next_free and begin + len(label) <= plot_cells:
            text[begin : begin + len(label)] = label
            next_free = begin + len(label) + 2
    return [Segment(" " * LABELS), Segment("".join(text), theme.FAINT)]
