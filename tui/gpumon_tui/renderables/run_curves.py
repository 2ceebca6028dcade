"""Curves of a run: the first metric it logged, and how busy its GPUs were, on one axis of epochs."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import TYPE_CHECKING

from rich.segment import Segment

from gpumon import units
from gpumon.frame import NAN
from gpumon.missing import is_known
from gpumon_tui import palette, theme
from gpumon_tui.renderables.run_plot import extremes, numbers, plot, resampled, round_scale, scaled
from gpumon_tui.renderables.section import NAME
from gpumon_tui.renderables.text_width import Line, fit, length, safe

if TYPE_CHECKING:
    from gpumon_tui.run_reading import OpenRun

LABELS = 7
"""Cells of the numbers beside a curve."""
APART = 8
"""Fewest cells between two marks of epochs."""
STEPS = (1, 2, 5)
CHIP = palette.ink("ground", "key", bold=True)


def curves(run: OpenRun, cells: int, rows: int, selected: int) -> list[Line]:
    """Both curves in exactly `rows` lines of `cells`; `selected`: place of the epoch under the cursor, -1 for none."""
    wide = cells - LABELS
    if wide < 8 or rows < 8 or not run.rows:
        return []
    many = len(run.rows)
    cursor = -1 if selected < 0 else round(selected * (wide - 1) / max(1, many - 1))
    names = [name for name in run.metrics if any(name in one.of.metrics for one in run.rows)][:1]
    is_measured = any(is_known(one.of.value("utilization_mean")) for one in run.rows)
    if not (names or is_measured):
        return []
    each = (rows - 3) // 2 if names and is_measured else rows - 2
    lines: list[Line] = []
    if names:
        lines += _logged(run, names[0], wide, each - 1, cursor)
    if is_measured:
        lines += _used(run, wide, rows - 3 - len(lines), cursor)
    lines += [_axis(run, wide), _chip(run, wide, selected, cursor)]
    return [*lines, *([[]] * (rows - len(lines)))][:rows]


def _logged(run: OpenRun, name: str, wide: int, rows: int, cursor: int) -> list[Line]:
    values = [one.of.metrics.get(name, NAN) for one in run.rows]
    low, high, step = round_scale(values)
    odd = sum(not isfinite(one.of.metrics.get(name, 0.0)) for one in run.rows)
    title: Line = [Segment(safe(name).capitalize(), NAME), Segment(" ⠒⠒ by epoch", theme.DIM)]
    if odd:
        title.append(Segment(f"  diverged in {units.counted(odd, 'epoch')}", palette.ink("crit")))
    dots = resampled(scaled(values, low, high), 2 * wide)
    drawn = plot([(dots, theme.RUN)], wide, rows, role="run", cursor=cursor)
    return [title, *_labeled(drawn, numbers(low, high, step, rows), units.plain)]


def _used(run: OpenRun, wide: int, rows: int, cursor: int) -> list[Line]:
    mean = [one.of.value("utilization_mean") for one in run.rows]
    low = [one.of.value("utilization_p5") for one in run.rows]
    high = [one.of.value("utilization_p95") for one in run.rows]
    title: Line = [
        Segment("Utilization", NAME), Segment(" ⠒⠒", theme.GOOD), Segment(" mean  ", theme.DIM),
        Segment("▆▆", palette.tinted("util", 0.15)), Segment(" 5th to 95th percentile", theme.DIM),
    ]  # fmt: skip
    if len(run.rows) > wide:
        below, above = extremes(low, wide, highest=False), extremes(high, wide, highest=True)
    else:
        below, above = resampled(low, wide), resampled(high, wide)
    drawn = plot(
        [(resampled(mean, 2 * wide), theme.GOOD)], wide, rows - 1, role="util", low=below, high=above, filled=True,
        cursor=cursor,
    )  # fmt: skip
    return [title, *_labeled(drawn, numbers(0.0, 1.0, 0.5, rows - 1), units.percent)]


def _labeled(drawn: list[Line], values: dict[int, float], write: Callable[[float], str]) -> list[Line]:
    texts = {row: write(value) for row, value in values.items()}
    return [
        [Segment(fit(texts.get(row, ""), LABELS - 1, right=True) + " ", theme.FAINT), *line]
        for row, line in enumerate(drawn)
    ]


def _axis(run: OpenRun, wide: int) -> Line:
    """Titles of epochs below the curves, at round numbers of them."""
    many = len(run.rows)
    step, power = 1, 0
    while step * (wide - 1) / max(1, many - 1) < APART + (4 if run.is_by_steps else 0) and step < many:
        power += 1
        step = STEPS[power % 3] * 10 ** (power // 3)
    text = [" "] * wide
    free = 0
    for place, one in enumerate(run.rows):
        if place and (one.of.epoch % step if not run.is_by_steps else place % step):
            continue
        at = round(place * (wide - 1) / max(1, many - 1))
        title = one.title
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
