"""Epoch lines and their labels, kept sparse enough to read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.segment import Segment
from rich.style import Style

from gpumon_tui import theme
from gpumon_tui.epochs import EpochMark
from gpumon_tui.renderables.buckets import Columns
from gpumon_tui.renderables.cells import Line

CROWDED = 3
"""With more than one line in so many cells the lines would be the picture: only ticks remain."""


class EpochRow(NamedTuple):
    """Where epochs begin on a chart."""

    labels: Line
    """The row above the area: `e7   e8   e9`."""
    lines: list[tuple[int, Style]]
    """Cells of the vertical lines, ascending; none when they would crowd."""


def epoch_row(marks: Sequence[EpochMark], columns: Columns, cells: int) -> EpochRow:
    """Marks of the window, by cell. A label that would touch another is left out, never its line."""
    runs: dict[str, Style] = {}
    at: dict[int, tuple[str, Style]] = {}
    for mark in marks:
        style = runs.setdefault(mark.run, theme.EPOCH[len(runs) % len(theme.EPOCH)])
        cell = columns.at(mark.time) // 2
        if 0 <= cell < cells:
            at[cell] = (f"e{mark.epoch}", style)
    crowded = len(at) * CROWDED > cells
    line: Line = []
    free = 0
    for cell in sorted(at):
        text, style = at[cell]
        if cell < free:
            continue
        if cell + len(text) > cells:
            text = "╷"[: cells - cell]
        line += [Segment(" " * (cell - free)), Segment(text, style)] if cell > free else [Segment(text, style)]
        free = cell + len(text)
        if not crowded and free < cells:
            line.append(Segment(" "))
            free += 1
    if crowded:
        line = _ticks(at, cells)
    elif free < cells:
        line.append(Segment(" " * (cells - free)))
    return EpochRow(line, [] if crowded else [(cell, at[cell][1]) for cell in sorted(at)])


def _ticks(at: dict[int, tuple[str, Style]], cells: int) -> Line:
    """A tick for each epoch and a label now and then."""
    row = ["╷" if cell in at else " " for cell in range(cells)]
    free = 0
    for cell in sorted(at):
        text = f" {at[cell][0]} "
        begin = max(0, cell - 1)
        if begin >= free and begin + len(text) <= cells:
            row[begin : begin + len(text)] = text
            free = begin + len(text) + 12
    style = next(iter(at.values()))[1] if at else theme.EPOCH[0]
    return [Segment("".join(row), style)]
