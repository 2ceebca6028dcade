"""Cells of a picture (glyph, ink and background), conversion to lines, and differences between lines."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from rich.cells import cell_len
from rich.color import Color
from rich.segment import Segment
from rich.style import Style

from gpumon_tui import palette
from gpumon_tui.render.text_width import Line, is_narrow, width


class Tint(NamedTuple):
    """A share of a role's color mixed with the background."""

    role: str
    share: float = 1.0


class PaintedCell(NamedTuple):
    """One character of width 1."""

    glyph: str
    ink: Tint | None = None
    ground: Tint | None = None


EMPTY = PaintedCell(" ")
Row = list[PaintedCell]


def painted(row: Sequence[PaintedCell]) -> Line:
    """Convert a row of cells to a line, joining neighbors of the same style."""
    line: Line = []
    for (ink, ground), group in groupby(row, itemgetter(1, 2)):
        line.append(Segment("".join([cell.glyph for cell in group]), style_of(ink, ground)))
    return line


@lru_cache(maxsize=2048)
def style_of(ink: Tint | None, ground: Tint | None) -> Style | None:
    """Return the style of an ink on a background; None for the default of the page."""
    if ink is None and ground is None:
        return None
    return Style(color=_color(ink), bgcolor=_color(ground))


def _color(tint: Tint | None) -> Color | None:
    return palette.color(tint.role, tint.share) if tint else None


def crossed(line: Line, cell: int, free: str) -> Line:
    """Return a line with the cursor in a cell if the glyph there is one of `free`; otherwise the line unchanged."""
    at = 0
    for place, (text, style, _) in enumerate(line):
        if cell < at + len(text):
            inner = cell - at
            if text[inner] not in free:
                return line
            parts = (Segment(text[:inner], style), Segment("│", _cursor(style)), Segment(text[inner + 1 :], style))
            return [*line[:place], *(part for part in parts if part.text), *line[place + 1 :]]
        at += len(text)
    return [*line, Segment(" " * (cell - at)), Segment("│", _cursor(None))]


@lru_cache(maxsize=512)
def _cursor(under: Style | None) -> Style:
    ground = under.bgcolor if under else None
    _, share = (palette.meant(ground.name) if ground else None) or ("ground", 0.0)
    role = "strong" if _FILLED <= share < 1.0 else "key"  # the cursor color would be hard to see on a strong tint
    return Style(color=palette.color(role), bgcolor=ground)


_FILLED = 0.2
"""Share of a color from which a background counts as filled."""


def laid(line: Line, cell: int, text: str, style: Style | None) -> Line:
    """Return a line with `text` drawn over it; all characters of both must be one cell wide."""
    letters = [(letter, own) for part, own, _ in line for letter in part]
    letters += [(" ", None)] * (cell + len(text) - len(letters))
    letters[cell : cell + len(text)] = [(letter, style) for letter in text]
    return [Segment("".join([one for one, _ in group]), own) for own, group in groupby(letters, itemgetter(1))]


NEAR = 12
"""Ranges no further apart than this are sent as one, because each costs a cursor movement and its colors."""
Ranges = list[tuple[int, int]]
Cell = tuple[str, Style | None]


def changed(old: Line, new: Line, cells: int) -> Ranges:
    """Return the ranges of cells that differ, as first and end cell."""
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
                _ranges(before.text, after.text, place, cells, ranges)  # plain characters are cells of one style
            else:
                _ranges(_cells([before]), _cells([after]), place, cells, ranges)
        place += taken
    return ranges if len(old) == len(new) else _ranges(_cells(old), _cells(new), 0, cells, [])


def _ranges(old: Sequence[object], new: Sequence[object], place: int, cells: int, into: Ranges) -> Ranges:
    """Add the ranges of differing cells from `place` on; cells missing on one side count as different."""
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
    """Return the cells of a line.

    A character with its combining marks is one cell; a wide one is two that change together.
    """
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
