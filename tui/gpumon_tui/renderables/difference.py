"""Which cells of a line differ from what is on screen.

A terminal is often a slow line away: repainting only what changed is a tenth of the bytes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.cells import cell_len
from rich.style import Style

from gpumon_tui.renderables.cells import Line, width

NEAR = 12
"""Ranges this close are sent as one: each costs a move of the cursor and its colours anew."""
Ranges = list[tuple[int, int]]
Cell = tuple[str, Style | None]

# Latin letters, dashes, dots, arrows, lines, blocks and braille: one cell each, none combines.
_NARROW = re.compile("[ -\u02ff\u2010-\u2026\u2190-\u2193\u2500-\u259f\u25cf\u2800-\u28ff]*")


def changed(old: Line, new: Line, cells: int) -> Ranges:
    """Ranges of cells that differ, each from its first to one past its last."""
    if old == new:
        return []
    if [width(segment.text) for segment in old] != [width(segment.text) for segment in new]:
        return _ranges(_cells(old), _cells(new), 0, cells, [])
    ranges: Ranges = []
    place = 0
    for before, after in zip(old, new, strict=True):
        if before != after:
            _ranges(_cells([before]), _cells([after]), place, cells, ranges)
        place += width(after.text)
    return ranges


def _ranges(old: Sequence[Cell], new: Sequence[Cell], place: int, cells: int, into: Ranges) -> Ranges:
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
        if _NARROW.fullmatch(text):
            cells += [(letter, style) for letter in text]
            continue
        for letter in text:
            taken = cell_len(letter)
            if taken == 0 and cells:
                cells[-1] = (cells[-1][0] + letter, style)
            else:
                cells += [(letter, style)] * taken
    return cells
