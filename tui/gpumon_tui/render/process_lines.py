"""Heading and rows of a process table as lines; only the visible ones are built."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

from rich.segment import Segment
from rich.style import Style

from gpumon_tui import palette
from gpumon_tui.render.process_columns import VERY_WIDE, WIDE, ProcessColumn
from gpumon_tui.render.table import Cell
from gpumon_tui.render.text_width import Line, fit

LEAST_PROGRAM, LEAST = 14, 10
"""Minimum width of the flexible column: for programs, so that `jupyter-kernel` fits, and for others."""
NAME_CELLS = 20
"""Width at which most program names fit (`finetune_llama_8b.py`), in a wide table."""
LEAVES_FOR_NAME = 2
"""Columns with a `keep` up to this value are dropped to reach that width: the bar, and redundant numbers."""
MARK = Segment("▌", palette.ink("key"))
TAGGED = Segment("+", palette.ink("key", bold=True))
_SELECTED = Style(bgcolor=palette.color("select"))
_PANEL = Style(bgcolor=palette.color("panel"))
_HEADING, _SORTED = palette.ink("dim", "panel"), palette.ink("strong", "panel", bold=True)
_ARROW = palette.ink("key", "panel", bold=True)


class PlacedColumn(NamedTuple):
    """A column with its position and width."""

    column: ProcessColumn[Any]
    begin: int
    """Its first cell."""
    cells: int


def margin(cells: int) -> int:
    """Return the margin at each side in cells."""
    return 2 if cells >= WIDE else 1


@lru_cache(maxsize=64)
def placed(columns: tuple[ProcessColumn[Any], ...], cells: int, sorted_by: str = "") -> tuple[PlacedColumn, ...]:
    """Return the columns that fit in a table of the given width; the least important ones are dropped first.

    The sort column is always kept, because its heading shows the sort direction.
    """
    is_wide = cells >= WIDE
    gap, edge = (2, 2) if is_wide else (1, 1)

    def room(column: ProcessColumn[Any]) -> int:
        if cells >= VERY_WIDE and column.wide_cells:
            return column.wide_cells
        return (column.cells if is_wide else column.brief_cells or column.cells) or least(column)

    def least(column: ProcessColumn[Any]) -> int:
        return LEAST_PROGRAM if column.name == "program" else LEAST

    def apart(before: ProcessColumn[Any], column: ProcessColumn[Any]) -> int:
        """Return the cells between two columns; the sort mark fits in without touching a word."""
        if not before.title:  # the bar belongs to the number after it
            return 0
        return gap + (gap == 1 and before.right and not column.right)

    def taken(of: list[ProcessColumn[Any]]) -> int:
        return sum(map(room, of)) + sum(apart(before, one) for before, one in pairwise(of))

    chosen = [column for column in columns if column.from_cells <= cells or column.name == sorted_by]
    while len(chosen) > 1 and taken(chosen) > cells - 2 * edge:
        chosen.remove(min(chosen, key=lambda column: (column.name == sorted_by, column.keep)))
    fills = any(column.name == "program" for column in chosen)
    spare = cells - 2 * edge - taken(chosen)
    while is_wide and fills and LEAST_PROGRAM + spare < NAME_CELLS:
        leaving = [one for one in chosen if one.keep <= LEAVES_FOR_NAME and one.name != sorted_by]
        if not leaving:
            break
        chosen.remove(min(leaving, key=lambda column: column.keep))
        spare = cells - 2 * edge - taken(chosen)
    rooms = [room(column) for column in chosen]
    spare -= (name := min(spare, NAME_CELLS - LEAST_PROGRAM) if fills else 0)
    for place, column in enumerate(chosen):
        if is_wide and rooms[place] < column.wide_cells:
            spare -= (more := min(spare, column.wide_cells - rooms[place]))
            rooms[place] += more
    found: list[PlacedColumn] = []
    for column, own in zip(chosen, rooms, strict=True):
        at = found[-1].begin + found[-1].cells + apart(found[-1].column, column) if found else edge
        found.append(PlacedColumn(column, at, own if column.cells else least(column) + name + spare))
    return tuple(found)


def heading(columns: Sequence[PlacedColumn], cells: int, sorted_by: str, falls: bool) -> Line:
    """Return the headings on a panel background; that of the sort column is bold, with its direction."""
    line: Line = []
    at = 0
    for column, begin, room in columns:
        title = column.title if cells >= WIDE else column.brief or column.title
        is_sorted = column.name == sorted_by
        if column.right:  # may extend over a left neighbor without a heading, such as a bar
            begin = max(at, begin + min(0, room - len(title)))
            text = fit(title, max(room, len(title)), right=True)
        else:
            text = title
        line += [Segment(" " * (begin - at), _PANEL), Segment(text, _SORTED if is_sorted else _HEADING)]
        at = begin + len(text)
        if is_sorted:  # in the gap, so that the heading stays above its numbers
            line.append(Segment("▼" if falls else "▲", _ARROW))
            at += 1
    return [*line, Segment(" " * max(0, cells - at), _PANEL)]


def laid(
    content: Sequence[Cell], columns: Sequence[PlacedColumn], cells: int, selected: bool, tagged: bool = False
) -> Line:
    """Return cells in their columns; neighbors of the same style are joined, because each segment costs bytes of
    output.
    """
    under = _SELECTED if selected else None
    line: Line = [TAGGED if tagged else MARK if selected else Segment(" ")]
    text, style, at = "", None, 1
    for (column, begin, room), cell in zip(columns, content, strict=True):
        if cell.style is not style and text:
            line.append(Segment(text, _on(style, under)))
            text = ""
        style = cell.style
        text += " " * (begin - at) + fit(cell.text, room, column.right)
        at = begin + room
    if text:
        line.append(Segment(text, _on(style, under)))
    return [*line, Segment(" " * (cells - at), under)] if at < cells else line


@lru_cache(maxsize=256)
def _on(style: Style | None, under: Style | None) -> Style | None:
    return style + under if style and under else under or style
