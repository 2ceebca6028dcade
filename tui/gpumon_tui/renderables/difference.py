"""Cells of a line that differ from the screen.

A terminal is often a slow line away: repainting only what changed is a tenth of the bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.style import Style

from gpumon_tui.renderables.text_width import Line, is_narrow, width

NEAR = 12
"""Ranges this close are sent as one: each costs a move of the cursor and its colors anew."""
Ranges = list[tuple[int, int]]
Cell = tuple[str, Style | None]


def changed(old: Line, new: Line, cells: int) -> Ranges:
    """Ranges of cells that differ, each from its first to one past its last."""
    if old == new:
        return []
    ranges: Ranges = []
    place = 0
    for before, after in zip(old, new, strict=False):
        taken = width(after.text)
        if before != after:
            if width(before.text) != taken:
                return _ranges(_cells(old), _cells(new), 0, cells, [])
            if before.style == after.style and is_narrow(before.text) and is_narrow(after.text):
                _ranges(before.text, after.text, place, cells, ranges)  # letters alone are cells of one style
            else:
                _ranges(_cells([before]), _cells([after]), place, cells, ranges)
        place += taken
    return ranges if len(old) == len(new) else _ranges(_cells(old), _cells(new), 0, cells, [])


def _ranges(old: Sequence[object], new: Sequence[object], place: int, cells: int, into: Ranges) -> Ranges:
    """Add the ranges of the cells from `place` on; what one side lacks differs."""
    differing = [at for at, (one, other) in enumerate(zip(old, new, strict=False), place) if one != other]
    if len(old) != len(new):
        differing += range(place + min(len(old), len(new)), place + max(len(old), len(new)))
    for at in differing:
        if at >= cells:
            break
        if into and at - into[-1][1] < NEAR:
            into[-1] = (into[-1][0], at + 1)
        else:
            into.append((at, at + 1))
    return into


def _cells(line: Line) -> list[Cell]:
    """A letter with its marks is one cell; a wide one is two that differ together."""
    cells: list[Cell] = []
    for text, style, _ in line:
        if is_narrow(text):
            cells += [(letter, style) for letter in text]
            continue
        for letter in text:
            taken = cell_len(letter)
            if taken == 0 and cells:
                cells[-1] = (cells[-1][0] + letter, style)
            else:
                cells += [(letter, style)] * taken
    return cells
