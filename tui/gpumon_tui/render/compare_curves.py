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
from gpumon_tui.render.axis import ValueAxis, axis_around
from gpumon_tui.render.compare_settings import LETTERS
from gpumon_tui.render.line_plot import Overlaid, PlotCurve
from gpumon_tui.render.run_curves import LABELS, joined, labeled, stretch_of
from gpumon_tui.render.section import NAME, margin
from gpumon_tui.render.text_width import Line, fit, length, safe

if TYPE_CHECKING:
    from gpumon_tui.data.run_rows import ComparedRuns, EpochCurve

BOTH_FROM = 100
"""Width from which both charts are shown side by side."""
APART = 10
"""Minimum distance in cells between axis marks."""
_LENGTHS = (
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
    axis = axis_around((*base.range, *other.range))
    side, both = margin(cells), cells >= BOTH_FROM
    wide = ((cells - 2 * side - 4) // 2 if both else cells - 2 * side) - LABELS
    height = rows - 2
    name, longest = safe(runs.metric).capitalize(), max(len(base.values), len(other.values))
    by_epoch = [_by_epoch(curve, longest, wide) for curve in (other, base)]
    marks = (LETTERS[1], LETTERS[0]) if has_letters else ("", "")
    left = _panel(f"{name} by epoch", by_epoch, wide, height, axis, marks)
    left.append(_marks(_epochs(longest, wide), wide))
    if not both:
        return [[Segment(" " * side), *line] for line in left]
    most = max(curve.times[-1] for curve in (base, other))
    by_time = [_by_time(curve, most, wide) for curve in (other, base)]
    right = _panel(f"{name} by time", by_time, wide, height, axis, marks)
    right.append(_marks(_times(most, wide), wide))
    return [
        [Segment(" " * side), *one, Segment(" " * (wide + LABELS + 4 - length(one))), *two]
        for one, two in zip(left, right, strict=True)
    ]


def _panel(
    title: str, curves: Sequence[Sequence[float]], wide: int, rows: int, axis: ValueAxis, marks: tuple[str, str]
) -> list[Line]:
    own, baseline = curves
    drawn = labeled(PlotCurve((), own, ()), axis, rows, "run", [Overlaid(baseline, "dim", marks[1])], marks[0])
    return [[Segment(fit(title, wide + LABELS), NAME)], *drawn]


def _by_epoch(curve: EpochCurve, longest: int, wide: int) -> list[float]:
    """Return the points of a run by epoch; the longest run takes the full width."""
    return joined([*curve.values, *[NAN] * (longest - len(curve.values))], 2 * wide)


def _by_time(curve: EpochCurve, most: float, wide: int) -> list[float]:
    """Return the points of a run by time, interpolated between the ends of epochs."""
    last = 2 * wide - 1

    def point(place: int) -> int:
        return min(last, round(curve.times[place] / most * last)) if most > 0 else 0

    found = []
    for at in range(last + 1):
        # Bisection finds the last epoch before a time; a run may have thousands.
        place = bisect_right(range(len(curve.times)), at, key=point) - 1
        if place >= 0 and point(place) == at:
            here = takewhile(lambda own, at=at: point(own) == at, range(place, -1, -1))  # type: ignore[misc]
            found.append(next((curve.values[own] for own in here if isfinite(curve.values[own])), NAN))
        elif 0 <= place < len(curve.times) - 1:
            begin, end = point(place), point(place + 1)
            before, after = curve.values[place : place + 2]
            value = before + (after - before) * (at - begin) / (end - begin)
            found.append(value if isfinite(value) else NAN)
        else:
            found.append(NAN)
    return found


def _epochs(many: int, wide: int) -> list[tuple[int, str]]:
    """Return axis marks with epoch numbers, counted from the first epoch of a run."""
    decades = [n * 10**power for power in range(9) for n in (1, 2, 5)]
    step = next(step for step in decades if step * wide >= APART * many or step >= many)
    return [(stretch_of(number - 1, many, wide), str(number)) for number in (1, *range(step, many + 1, step)) if number]


def _times(most: float, wide: int) -> list[tuple[int, str]]:
    """Return axis marks with rounded times since the start."""
    step = next((step for step in _LENGTHS if step * wide >= (APART + 2) * most), 0)
    if not step or not most > 0:
        return [(0, "0")]
    return [
        (round(n * step / most * (wide - 1)), units.long_duration(n * step) if n else "0")
        for n in range(int(most / step) + 1)
    ]


def _marks(marks: Sequence[tuple[int, str]], wide: int) -> Line:
    text, free = [" "] * wide, 0
    for at, word in marks:
        if at >= free and at + len(word) <= wide:
            text[at : at + len(word)] = word
            free = at + len(word) + 2
    return [Segment(" " * LABELS), Segment("".join(text), theme.FAINT)]
