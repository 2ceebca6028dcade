"""Cells of a picture (glyph, ink and background), conversion to lines, differences between lines, and escape sequences
for changed cells."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from rich.cells import cell_len
from rich.color import Color, ColorSystem
from rich.segment import Segment
from rich.style import Style

from gpumon_tui import theme
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


def to_line(row: Sequence[PaintedCell]) -> Line:
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
    return theme.color(tint.role, tint.share) if tint else None


def draw_cursor(line: Line, cell: int, replaceable: str) -> Line:
    """Return a line with the cursor in a cell if its glyph is one of `replaceable`; otherwise the line unchanged."""
    begin = 0
    for index, (text, style, _) in enumerate(line):
        if cell < begin + len(text):
            offset = cell - begin
            if text[offset] not in replaceable:
                return line
            parts = (Segment(text[:offset], style), Segment("│", _cursor(style)), Segment(text[offset + 1 :], style))
            return [*line[:index], *(part for part in parts if part.text), *line[index + 1 :]]
        begin += len(text)
    return [*line, Segment(" " * (cell - begin)), Segment("│", _cursor(None))]


@lru_cache(maxsize=512)
def _cursor(under: Style | None) -> Style:
    ground = under.bgcolor if under else None
    _, share = (theme.role_of(ground.name) if ground else None) or ("ground", 0.0)
    role = "strong" if _MIN_FILLED <= share < 1.0 else "key"  # the cursor color would be hard to see on a strong tint
    return Style(color=theme.color(role), bgcolor=ground)


_MIN_FILLED = 0.2
"""Share of a color from which a background counts as filled."""


def draw_text(line: Line, cell: int, text: str, style: Style | None) -> Line:
    """Return a line with `text` drawn over it; all characters of both must be one cell wide."""
    letters = [(letter, letter_style) for part, letter_style, _ in line for letter in part]
    letters += [(" ", None)] * (cell + len(text) - len(letters))
    letters[cell : cell + len(text)] = [(letter, style) for letter in text]
    return [
        Segment("".join([letter for letter, _ in group]), letter_style)
        for letter_style, group in groupby(letters, itemgetter(1))
    ]


MAX_GAP = 12
"""Ranges no further apart than this are sent as one, because each costs a cursor movement and its colors."""
Ranges = list[tuple[int, int]]
Cell = tuple[str, Style | None]


def changed_ranges(old: Line, new: Line, cells: int) -> Ranges:
    """Return the ranges of cells that differ, as first and end cell."""
    if old == new:
        return []
    ranges: Ranges = []
    position = 0
    for old_segment, new_segment in zip(old, new, strict=False):
        cell_count = width(new_segment.text)
        if old_segment != new_segment:
            if width(old_segment.text) != cell_count:
                return _ranges(_cells(old), _cells(new), 0, cells, [])
            if old_segment.style == new_segment.style and is_narrow(old_segment.text) and is_narrow(new_segment.text):
                _ranges(
                    old_segment.text, new_segment.text, position, cells, ranges
                )  # plain characters are cells of one style
            else:
                _ranges(_cells([old_segment]), _cells([new_segment]), position, cells, ranges)
        position += cell_count
    return ranges if len(old) == len(new) else _ranges(_cells(old), _cells(new), 0, cells, [])


def _ranges(old: Sequence[object], new: Sequence[object], begin: int, cells: int, ranges: Ranges) -> Ranges:
    """Append the ranges of differing cells to `ranges`; `old` and `new` start at cell `begin`.

    Cells missing on one side count as different.
    """
    differing = [
        position
        for position, (old_cell, new_cell) in enumerate(zip(old, new, strict=False), begin)
        if old_cell != new_cell
    ]
    if len(old) != len(new):
        differing += range(begin + min(len(old), len(new)), begin + max(len(old), len(new)))
    for position in differing:
        if position >= cells:
            break
        if ranges and position - ranges[-1][1] < MAX_GAP:
            ranges[-1] = (ranges[-1][0], position + 1)
        else:
            ranges.append((position, position + 1))
    return ranges


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
            cell_count = cell_len(letter)
            if cell_count == 0 and cells:
                cells[-1] = (cells[-1][0] + letter, style)
            else:
                cells += [(letter, style)] * cell_count
    return cells


PLAIN = Style.null()
ATTRIBUTES = {"bold": "1", "dim": "2", "italic": "3", "underline": "4", "blink": "5", "reverse": "7", "strike": "9"}
"""Text attributes used by styles of gpumon and of its help, with their SGR codes."""
Pieces = Iterable[tuple[str, Style | None]]


class CellWriter:
    """Writes cells at positions on the screen."""

    def __init__(self, colors: ColorSystem) -> None:
        self._colors = colors
        self._parts: list[str] = []
        self._style = PLAIN

    def write(self, row: int, column: int, pieces: Pieces, first: int, last: int) -> None:
        """Write the cells from `first` up to `last` of some pieces at a row and column, counted from 0."""
        parts, current = self._parts, self._style
        parts.append(f"\x1b[{row + 1};{column + 1}H")
        for text, style in _pieces_within(pieces, first, last):
            next_style = style or PLAIN
            if next_style is not current:
                parts.append(_style_change(current, next_style, self._colors))
                current = next_style
            parts.append(text)
        self._style = current

    def output(self) -> str:
        """Return the output, ending with a reset of the style."""
        return "".join(self._parts) + ("" if self._style is PLAIN else "\x1b[0m")


@lru_cache(maxsize=1024)
def _style_change(old_style: Style, new_style: Style, colors: ColorSystem) -> str:
    """Return the change between two styles. Colors are most of the output, and often one of the two stays the same."""
    if old_style == new_style:
        return ""
    if (
        _attributes(old_style) != _attributes(new_style)
        or (old_style.color and not new_style.color)
        or (old_style.bgcolor and not new_style.bgcolor)
    ):
        codes = ["0", *(code for name, code in ATTRIBUTES.items() if getattr(new_style, name))]
        old_style = PLAIN
    else:
        codes = []
    if new_style.color and new_style.color != old_style.color:
        codes += new_style.color.downgrade(colors).get_ansi_codes()
    if new_style.bgcolor and new_style.bgcolor != old_style.bgcolor:
        codes += new_style.bgcolor.downgrade(colors).get_ansi_codes(foreground=False)
    return f"\x1b[{';'.join(codes)}m" if codes else ""


def _attributes(style: Style) -> tuple[bool, ...]:
    """Return the text attributes: bold, underline and so on."""
    return tuple(bool(getattr(style, name)) for name in ATTRIBUTES)


def _pieces_within(pieces: Pieces, first: int, last: int) -> Iterator[tuple[str, Style | None]]:
    """Return the pieces within a range of cells; `Strip.crop` would create a strip with all its caches for each
    range.
    """
    begin = 0
    for text, style in pieces:
        end = begin + width(text)
        if end > first:
            if begin < first or end > last:
                text = _part(text, max(0, first - begin), last - begin)
            yield text, style
        if end >= last:
            return
        begin = end


def _part(text: str, first: int, last: int) -> str:
    """Return the text within a range of cells; if every character is one cell wide, it is sliced without Rich."""
    if is_narrow(text):
        return text[first:last]
    return Segment(text).split_cells(last)[0].split_cells(first)[1].text
