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

MIN_PROGRAM, MIN_CELLS = 14, 10
"""Minimum width of the flexible column: for programs, so that `jupyter-kernel` fits, and for others."""
NAME_CELLS = 20
"""Width at which most program names fit (`finetune_llama_8b.py`), in a wide table."""
DROPPED_FOR_NAME = 2
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
def fit_columns(columns: tuple[ProcessColumn[Any], ...], cells: int, sorted_by: str = "") -> tuple[PlacedColumn, ...]:
    """Return the columns that fit in a table of the given width; the least important ones are dropped first.

    The sort column is always kept, because its heading shows the sort direction.
    """
    is_wide = cells >= WIDE
    gap, edge = (2, 2) if is_wide else (1, 1)

    def room(column: ProcessColumn[Any]) -> int:
        if cells >= VERY_WIDE and column.wide_cells:
            return column.wide_cells
        return (column.cells if is_wide else column.brief_cells or column.cells) or min_cells(column)

    def min_cells(column: ProcessColumn[Any]) -> int:
        return MIN_PROGRAM if column.name == "program" else MIN_CELLS

    def gap_between(left: ProcessColumn[Any], column: ProcessColumn[Any]) -> int:
        """Return the cells between two columns; the sort mark fits in without touching a word."""
        if not left.title:  # the bar belongs to the number after it
            return 0
        return gap + (gap == 1 and left.right and not column.right)

    def total_cells(columns_of: list[ProcessColumn[Any]]) -> int:
        return sum(map(room, columns_of)) + sum(gap_between(left, column) for left, column in pairwise(columns_of))

    chosen = [column for column in columns if column.from_cells <= cells or column.name == sorted_by]
    while len(chosen) > 1 and total_cells(chosen) > cells - 2 * edge:
        chosen.remove(min(chosen, key=lambda column: (column.name == sorted_by, column.keep)))
    fills = any(column.name == "program" for column in chosen)
    spare = cells - 2 * edge - total_cells(chosen)
    while is_wide and fills and MIN_PROGRAM + spare < NAME_CELLS:
        droppable = [column for column in chosen if column.keep <= DROPPED_FOR_NAME and column.name != sorted_by]
        if not droppable:
            break
        chosen.remove(min(droppable, key=lambda column: column.keep))
        spare = cells - 2 * edge - total_cells(chosen)
    rooms = [room(column) for column in chosen]
    spare -= (name_cells := min(spare, NAME_CELLS - MIN_PROGRAM) if fills else 0)
    for index, column in enumerate(chosen):
        if is_wide and rooms[index] < column.wide_cells:
            spare -= (extra := min(spare, column.wide_cells - rooms[index]))
            rooms[index] += extra
    fitted: list[PlacedColumn] = []
    for column, own_cells in zip(chosen, rooms, strict=True):
        begin = fitted[-1].begin + fitted[-1].cells + gap_between(fitted[-1].column, column) if fitted else edge
        fitted.append(
            PlacedColumn(column, begin, own_cells if column.cells else min_cells(column) + name_cells + spare)
        )
    return tuple(fitted)


def heading(columns: Sequence[PlacedColumn], cells: int, sorted_by: str, falls: bool) -> Line:
    """Return the headings on a panel background; the sort column's heading is bold, with its direction."""
    line: Line = []
    position = 0
    for column, begin, room in columns:
        title = column.title if cells >= WIDE else column.brief or column.title
        is_sorted = column.name == sorted_by
        if column.right:  # may extend over a left neighbor without a heading, such as a bar
            begin = max(position, begin + min(0, room - len(title)))
            text = fit(title, max(room, len(title)), right=True)
        else:
            text = title
        line += [Segment(" " * (begin - position), _PANEL), Segment(text, _SORTED if is_sorted else _HEADING)]
        position = begin + len(text)
        if is_sorted:  # in the gap, so that the heading stays above its numbers
            line.append(Segment("▼" if falls else "▲", _ARROW))
            position += 1
    return [*line, Segment(" " * max(0, cells - position), _PANEL)]


def row_line(
    content: Sequence[Cell], columns: Sequence[PlacedColumn], cells: int, selected: bool, tagged: bool = False
) -> Line:
    """Return cells in their columns; neighbors of the same style are joined, because each segment costs bytes of
    output.
    """
    background = _SELECTED if selected else None
    line: Line = [TAGGED if tagged else MARK if selected else Segment(" ")]
    text, style, position = "", None, 1
    for (column, begin, room), cell in zip(columns, content, strict=True):
        if cell.style is not style and text:
            line.append(Segment(text, _combined(style, background)))
            text = ""
        style = cell.style
        text += " " * (begin - position) + fit(cell.text, room, column.right)
        position = begin + room
    if text:
        line.append(Segment(text, _combined(style, background)))
    return [*line, Segment(" " * (cells - position), background)] if position < cells else line


@lru_cache(maxsize=256)
def _combined(style: Style | None, background: Style | None) -> Style | None:
    return style + background if style and background else background or style
