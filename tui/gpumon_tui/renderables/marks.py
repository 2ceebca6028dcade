"""Epoch lines and their labels, kept sparse enough to read; out-of-memory errors stand before them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.segment import Segment
from rich.style import Style

from gpumon.analysis.epochs import EpochMark
from gpumon.frame import Boundary
from gpumon.history.grid import Grid
from gpumon_tui import theme
from gpumon_tui.renderables.text_width import Line

CROWDED, SPARSE = 8, 10
"""With more than one line in so many cells the lines would bury the picture: only ticks remain, until there is less
than one in so many again; between the two it stays as it is."""
FAULT = "OOM"
Labels = dict[int, tuple[str, Style]]
"""Text by its first cell."""


class EpochAxis(NamedTuple):
    """Where epochs begin on a chart, and where memory ran out."""

    crowded: bool
    """Whether epochs have ticks alone."""
    labels: Line
    """The row above the area: `e7   e8   OOM  e9`."""
    lines: list[tuple[int, Segment]]
    """Cells of the vertical lines, ascending; those of epochs only where they do not crowd."""


def epoch_row(
    marks: Sequence[EpochMark], columns: Grid, cells: int, faults: Sequence[Boundary] = (), crowded: bool = False
) -> EpochAxis:
    """Marks of the window, by cell. A label that would touch another is left out, never its line.

    `crowded`: whether they were when this was last drawn.
    """
    runs: dict[str, Style] = {}
    at: Labels = {}
    for mark in marks:
        style = runs.setdefault(mark.run, theme.EPOCH[len(runs) % len(theme.EPOCH)])
        cell = columns.at(mark.time) // 2
        if 0 <= cell < cells:
            at[cell] = (f"e{mark.epoch}", style)
    broken = sorted({cell for fault in faults if 0 <= (cell := columns.at(fault.time_ns / 1e9) // 2) < cells})
    if not at and not broken:
        return EpochAxis(False, [Segment(" " * cells)], [])
    crowded = len(at) * (SPARSE if crowded else CROWDED) > cells
    lines = {} if crowded else {cell: Segment("│", style) for cell, (_, style) in at.items()}
    lines |= {cell: Segment("╳", theme.CRITICAL) for cell in broken}
    return EpochAxis(crowded, _labels(at, broken, cells, crowded), sorted(lines.items()))


def _labels(at: Labels, broken: Sequence[int], cells: int, crowded: bool) -> Line:
    """Problems first, then as many epochs as have room; a gap separates texts."""
    row: list[tuple[str, Style | None]] = [(" ", None)] * cells
    taken = [False] * (cells + 1)

    def put(cell: int, text: str, style: Style) -> bool:
        end = cell + len(text)
        if cell < 0 or end > cells or any(taken[max(0, cell - 1) : end + 1]):
            return False
        row[cell:end] = [(letter, style) for letter in text]
        taken[cell:end] = [True] * len(text)
        return True

    for cell in broken:
        put(min(cell, cells - len(FAULT)), FAULT, theme.CRITICAL)
    if crowded:
        _ticks(at, row, taken)
    free = 0
    for cell in sorted(at):
        text, style = at[cell]
        if cell < free:
            continue
        if crowded:
            # A label now and then, with a gap on both sides.
            padded = f" {text} "
            begin = max(0, cell - 1)
            if put(begin, padded, style):
                free = begin + len(padded) + 12
        elif put(cell, text, style):
            free = cell + len(text) + 1
        elif cell + len(text) > cells:
            put(cell, "╷", style)
    return _line(row)


def _ticks(at: Labels, row: list[tuple[str, Style | None]], taken: Sequence[bool]) -> None:
    """A tick for each epoch, all in one style: each change of style costs bytes on the line to the terminal."""
    style = next(iter(at.values()))[1]
    for cell in at:
        if not taken[cell]:
            row[cell] = ("╷", style)


def _line(row: Sequence[tuple[str, Style | None]]) -> Line:
    line: Line = []
    begin = 0
    for end in range(1, len(row) + 1):
        if end == len(row) or row[end][1] is not row[begin][1]:
            line.append(Segment("".join(letter for letter, _ in row[begin:end]), row[begin][1]))
            begin = end
    return line
