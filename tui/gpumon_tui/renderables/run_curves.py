"""Curves of a run: the first metric it logged, and how busy its GPUs were, on one axis of epochs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from rich.segment import Segment

from gpumon.common.numbers import is_known
from gpumon.model import units
from gpumon_tui import palette, theme
from gpumon_tui.renderables.by_epoch import extremes, joined, levels, stretch_of
from gpumon_tui.renderables.cells import crossed, painted
from gpumon_tui.renderables.plot import BAND, Overlaid, PlotCurve, plot
from gpumon_tui.renderables.section import NAME
from gpumon_tui.renderables.text_width import Line, fit, length, safe
from gpumon_tui.renderables.value_axis import Shown, ValueAxis, axis_around

if TYPE_CHECKING:
    from gpumon_tui.run_reading.rows import OpenRun

LABELS = 7
"""Cells of the numbers beside a curve."""
APART = 8
"""Fewest cells between two marks of epochs."""
STEPS = (1, 2, 5)
CROSSED = " ▁▂▃▄▅▆▇█"
"""Glyphs over which the cursor goes: all but the line itself."""
_ROOMY = 44
"""Cells of the curves from which their legend is in words."""
SHARES = ValueAxis(0.0, 1.0, 2, Shown(0.01, "%", 0))
CHIP = palette.ink("ground", "key", bold=True)


class RunCurves(NamedTuple):
    """Both curves without a cursor: with thousands of epochs they take a while, and the cursor moves often."""

    lines: list[Line]
    pictures: Sequence[range]
    """Lines through which a cursor goes."""
    wide: int
    """Cells of the curves; 0 where there are none."""


def curves(run: OpenRun, cells: int, rows: int) -> RunCurves:
    """Return both curves in exactly `rows` lines of `cells`, with the last one free for the epoch under a cursor."""
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
    """Return the curves with a line at an epoch, by its place, and its name below; -1 for none."""
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
    curve = PlotCurve((), joined(totals.logged, 2 * wide), ())  # a band or an area would lie about ratios
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
    """Draw a curve with the numbers of its axis before it, in a segment of their own; `mark` as of `plot`."""
    texts = axis.labels(rows, LABELS - 1)
    return [
        [Segment(fit(texts.get(at, ""), LABELS - 1, right=True) + " ", theme.FAINT), *painted(row)]
        for at, row in enumerate(plot(curve, axis, rows, role, others, mark=mark))
    ]


def _axis(run: OpenRun, wide: int) -> Line:
    """Titles of epochs below the curves, at round numbers of them."""
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
    """The epoch under the cursor, below its line."""
    if cursor < 0 or not 0 <= selected < len(run.rows):
        return []
    text = f" {run.rows[selected].title} "
    begin = max(0, min(wide - len(text), cursor - len(text) // 2))
    line: Line = [Segment(" " * (LABELS + begin)), Segment(text, CHIP)]
    return line if length(line) <= LABELS + wide else []
