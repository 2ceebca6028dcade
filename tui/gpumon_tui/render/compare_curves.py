"""Charts of a metric that two compared runs both logged, by epoch and by time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import takewhile
from math import isfinite
from typing import TYPE_CHECKING

from rich.segment import Segment

from gpumon.common.numbers import NAN
from gpumon.model import units
from gpumon_tui import theme
from gpumon_tui.render.axis import ValueAxis, logged_axis
from gpumon_tui.render.compare_settings import LETTERS
from gpumon_tui.render.line_plot import OverlaidLine, PlotCurve
from gpumon_tui.render.run_curves import LABELS, epoch_cell, interpolated_points, labeled_plot
from gpumon_tui.render.section import NAME
from gpumon_tui.render.table import margin
from gpumon_tui.render.text_width import Line, fit, length, safe

if TYPE_CHECKING:
    from gpumon_tui.data.run_rows import ComparedRuns, EpochCurve

TWO_CHARTS_FROM = 100
"""Minimum width, in columns, at which both charts are shown side by side."""
MIN_DISTANCE = 10
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
    step = next(step for step in decades if step * plot_cells >= MIN_DISTANCE * count or step >= count)
    return [
        (epoch_cell(number - 1, count, plot_cells), str(number))
        for number in (1, *range(step, count + 1, step))
        if number
    ]


def _time_marks(longest_time: float, plot_cells: int) -> list[tuple[int, str]]:
    """Return axis marks with rounded times since the start."""
    step = next((step for step in _TIME_STEPS if step * plot_cells >= (MIN_DISTANCE + 2) * longest_time), 0)
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
