"""Curves of an opened run by epoch; every epoch has an equal share of the width."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, isfinite
from typing import TYPE_CHECKING, NamedTuple

from rich.segment import Segment

from gpumon.common.numbers import NAN, is_known
from gpumon.model import units
from gpumon_tui import palette, theme
from gpumon_tui.render.axis import Shown, ValueAxis, axis_around
from gpumon_tui.render.cells import crossed, painted
from gpumon_tui.render.line_plot import BAND, Overlaid, PlotCurve, plot
from gpumon_tui.render.section import NAME
from gpumon_tui.render.text_width import Line, fit, length, safe

if TYPE_CHECKING:
    from gpumon_tui.data.run_rows import OpenRun


def stretch_of(place: int, many: int, cells: int) -> int:
    """Return the cell of one of `many` epochs: its middle, or with more epochs than cells the cell that contains it."""
    if many > 2 * cells:
        return ((place + 1) * cells - 1) // many
    return min(cells - 1, int((place + 0.5) * cells / max(1, many)))


def levels(values: Sequence[float], points: int) -> list[float]:
    """Return points for values that apply to a whole epoch, such as a mean: constant over its width, NaN if unknown.

    If several epochs share a point, their mean is used.
    """
    many = len(values)
    if many > points:
        return [_mean(_part(values, place, points)) for place in range(points)]
    return [_known(values[int((place + 0.5) * many / points)]) if many else NAN for place in range(points)]


def joined(values: Sequence[float], points: int) -> list[float]:
    """Return points for values at one time of each epoch, such as a loss, interpolated linearly.

    There is no line across an epoch without a finite value. If several epochs share a point, their mean is used.
    """
    many = len(values)
    if many > points or not many:
        return levels(values, points)
    found = []
    for place in range(points):
        at = (place + 0.5) * many / points - 0.5
        own = min(many - 1, max(0, floor(at + 0.5)))
        other = own + (1 if at > own else -1)
        value = _known(values[own])
        if 0 <= other < many and isfinite(values[other]):
            value += (values[other] - value) * abs(at - own)
        found.append(value)
    return found


def extremes(values: Sequence[float], points: int, *, highest: bool) -> list[float]:
    """Return the minimum or maximum of the epochs at each point; NaN if there is none."""
    if len(values) <= points:
        return levels(values, points)
    found = []
    for place in range(points):
        known = _finite(_part(values, place, points))
        found.append((max(known) if highest else min(known)) if known else NAN)
    return found


def _part(values: Sequence[float], place: int, points: int) -> Sequence[float]:
    return values[place * len(values) // points : (place + 1) * len(values) // points]


def _known(value: float) -> float:
    return value if isfinite(value) else NAN


def _mean(values: Sequence[float]) -> float:
    known = _finite(values)
    return sum(known) / len(known) if known else NAN


def _finite(values: Sequence[float]) -> Sequence[float]:
    # Fast path: most runs have thousands of values, all finite.
    return values if isfinite(sum(values)) else [value for value in values if isfinite(value)]


LABELS = 7
"""Width of the labels next to a curve."""
APART = 8
"""Minimum distance in cells between epoch marks."""
STEPS = (1, 2, 5)
CROSSED = " ▁▂▃▄▅▆▇█"
"""Glyphs that the cursor line may replace: everything except the line itself."""
_ROOMY = 44
"""Width of the curves from which the legend has words."""
SHARES = ValueAxis(0.0, 1.0, 2, Shown(0.01, "%", 0))
CHIP = palette.ink("ground", "key", bold=True)


class RunCurves(NamedTuple):
    """Both curves without a cursor, cached because thousands of epochs take a while and the cursor moves often."""

    lines: list[Line]
    pictures: Sequence[range]
    """Line ranges that the cursor crosses."""
    wide: int
    """Width of the curves; 0 if there are none."""


def curves(run: OpenRun, cells: int, rows: int) -> RunCurves:
    """Return both curves in exactly `rows` lines of `cells`; the last line is left free for the epoch under a
    cursor.
    """
    wide = cells - LABELS
    metric, is_measured = run.totals.metric, any(map(is_known, run.totals.utilization[1]))
    if wide < 8 or rows < 8 or not (metric or is_measured):
        return RunCurves([], (), 0)
    each = (rows - 3) // 2 if metric and is_measured else rows - 2
    lines: list[Line] = []
    pictures = []
    if metric:
        lines += _logged(run, wide, each - 1)
        pictures.append(range(1, len(lines)))
    if is_measured:
        first = len(lines) + 1
        lines += _used(run, wide, rows - 3 - len(lines))
        pictures.append(range(first, len(lines)))
    lines.append(_axis(run, wide))
    return RunCurves([*lines, *([[]] * (rows - len(lines)))][:rows], pictures, wide)


def with_cursor(drawn: RunCurves, run: OpenRun, selected: int) -> list[Line]:
    """Return the curves with a cursor at an epoch (by index) and its name below; -1 for none."""
    lines = list(drawn.lines)
    if not (drawn.wide and 0 <= selected < len(run.rows)):
        return lines
    cursor = stretch_of(selected, len(run.rows), drawn.wide)
    for row in (row for picture in drawn.pictures for row in picture):
        lines[row] = [lines[row][0], *crossed(lines[row][1:], cursor, CROSSED)]
    axis = drawn.pictures[-1].stop
    if axis + 1 < len(lines):
        lines[axis + 1] = _chip(run, drawn.wide, selected, cursor)
    return lines


def _logged(run: OpenRun, wide: int, rows: int) -> list[Line]:
    totals = run.totals
    title: Line = [Segment(safe(totals.metric).capitalize(), NAME), Segment(" ⠒⠒ by epoch", theme.DIM)]
    if totals.diverged:
        title.append(Segment(f"  diverged in {units.counted(totals.diverged, 'epoch')}", palette.ink("crit")))
    curve = PlotCurve((), joined(totals.logged, 2 * wide), ())  # a band or an area would misrepresent ratios
    return [title, *labeled(curve, axis_around(totals.logged_range), rows, "run")]


def _used(run: OpenRun, wide: int, rows: int) -> list[Line]:
    low, mean, high = run.totals.utilization
    words = " 5th to 95th percentile" if wide >= _ROOMY else " p5 to p95"
    title: Line = [
        Segment("Utilization", NAME), Segment(" ⠒⠒", theme.GOOD), Segment(" mean  ", theme.DIM),
        Segment("▆▆", palette.tinted("util", BAND)), Segment(words, theme.DIM),
    ]  # fmt: skip
    points = 2 * wide
    curve = PlotCurve(
        extremes(low, points, highest=False), levels(mean, points), extremes(high, points, highest=True)
    )  # fmt: skip
    return [title, *labeled(curve, SHARES, rows - 1, "util")]


def labeled(
    curve: PlotCurve, axis: ValueAxis, rows: int, role: str, others: Sequence[Overlaid] = (), mark: str = ""
) -> list[Line]:
    """Draw a curve with its axis labels in a separate segment before it; `mark` as in `plot`."""
    texts = axis.labels(rows, LABELS - 1)
    return [
        [Segment(fit(texts.get(at, ""), LABELS - 1, right=True) + " ", theme.FAINT), *painted(row)]
        for at, row in enumerate(plot(curve, axis, rows, role, others, mark=mark))
    ]


def _axis(run: OpenRun, wide: int) -> Line:
    """Return the axis below the curves, with round epoch numbers."""
    many = len(run.rows)
    step, power = 1, 0
    while step * wide / max(1, many) < APART + (4 if run.is_by_steps else 0) and step < many:
        power += 1
        step = STEPS[power % 3] * 10 ** (power // 3)
    text = [" "] * wide
    free = 0
    numbers = range(many) if run.is_by_steps else run.totals.numbers
    marked = [place for place, number in enumerate(numbers) if not number % step]
    for place in marked if marked[:1] == [0] else [0, *marked]:
        at = stretch_of(place, many, wide)
        title = run.rows[place].title
        if at >= free and at + len(title) <= wide:
            text[at : at + len(title)] = title
            free = at + len(title) + 2
    return [Segment(" " * LABELS), Segment("".join(text), theme.RUN)]


def _chip(run: OpenRun, wide: int, selected: int, cursor: int) -> Line:
    """Return the label of the epoch under the cursor."""
    if cursor < 0 or not 0 <= selected < len(run.rows):
        return []
    text = f" {run.rows[selected].title} "
    begin = max(0, min(wide - len(text), cursor - len(text) // 2))
    line: Line = [Segment(" " * (LABELS + begin)), Segment(text, CHIP)]
    return line if length(line) <= LABELS + wide else []
