"""A section of a page: a title line with a hairline, and the rows of a table below."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import partial

from rich.segment import Segment
from rich.style import Style

from gpumon_tui import palette, theme
from gpumon_tui.cache import Cache
from gpumon_tui.render.table import FLEXIBLE, Cell, Row, TableColumn
from gpumon_tui.render.text_width import Line, cut, fit, length

GAP = 2
NAME = palette.ink("strong", bold=True)
HEAD = palette.ink("dim", "panel")
SORTED = palette.ink("strong", "panel", bold=True)
SORT_MARK = palette.ink("key", "panel", bold=True)
MARK = palette.ink("key", bold=True)
KEY = palette.ink("key", bold=True)
WIDE = 100
"""Minimum width, in columns, at which margins are two cells wide."""


def margin(cells: int) -> int:
    """Return the margin at each side; its first cell is for the mark of the selected row."""
    return GAP if cells >= WIDE else 1


def section(name: str, detail: Line, right: Line, cells: int, *, hairline: bool = True) -> Line:
    """Return a title line: name, details, a hairline, and keys at the right."""
    left_margin = margin(cells)
    left: Line = [Segment(" " * left_margin), Segment(name, NAME), *([Segment("  "), *detail] if detail else [])]
    room = cells - 2 * left_margin - length(left) + left_margin - (length(right) + GAP if right else 0)
    if room < 0 and right:
        return section(name, detail, [], cells, hairline=hairline)
    if room < 0:
        return cut(left, cells - left_margin)
    hairline_segment = Segment(" " + "─" * (room - 1) + " " if hairline and room > 2 else " " * (room + 1), theme.RULE)
    return [*left, hairline_segment, *([Segment(" " * (GAP - 1)), *right] if right else [])]


def keys(*pairs: tuple[str, str]) -> Line:
    """Return keys with their descriptions, for a title line."""
    line: Line = []
    for key, description in pairs:
        line += [Segment("   " if line else ""), Segment(key, KEY), Segment(f" {description}", theme.DIM)]
    return line


def fit_columns(
    columns: Sequence[TableColumn], cells: int, empty: Collection[int] = ()
) -> tuple[tuple[int, TableColumn], ...]:
    """Return the columns that fit, dropping the least important first; the flexible one takes the remaining room.

    `empty`: indexes of columns for which no row has a value.
    """
    room = cells - 2 * margin(cells)
    chosen = [item for item in enumerate(columns) if item[0] not in empty]
    while len(chosen) > 1 and sum((column.cells or FLEXIBLE) + GAP for _, column in chosen) - GAP > room:
        chosen.remove(min(chosen, key=lambda item: item[1].keep))
    spare = room - preferred_cells(chosen, by_wish=False)
    for position, (index, column) in enumerate(chosen):
        if column.cells and (extra := max(0, min(spare, column.preferred - column.cells))):
            chosen[position], spare = (index, column._replace(cells=column.cells + extra)), spare - extra
    spare = room - sum(column.cells + GAP for _, column in chosen) + GAP
    return tuple((index, column if column.cells else column._replace(cells=max(1, spare))) for index, column in chosen)


def preferred_cells(columns: Iterable[tuple[int, TableColumn]], *, by_wish: bool = True) -> int:
    """Return the total width of columns at their preferred widths; without `by_wish`, only the flexible one has its
    preferred width.
    """
    widths = (
        (max(column.cells, column.preferred) if by_wish or not column.cells else column.cells) for _, column in columns
    )
    return sum((cells or FLEXIBLE) + GAP for cells in widths) - GAP


def heading(columns: Sequence[tuple[int, TableColumn]], cells: int, sorted_by: int = -1, *, falls: bool = True) -> Line:
    """Return the column headings; the sort column's heading is highlighted, with a mark after it."""
    left_margin = margin(cells)
    line: Line = [Segment(" " * left_margin, HEAD)]
    for position, (index, column) in enumerate(columns):
        if position:
            line.append(
                Segment(" " * (position * GAP + left_margin + _total_cells(columns[:position]) - length(line)), HEAD)
            )
        if index != sorted_by:
            line.append(Segment(fit(column.title, column.cells, column.right), HEAD))
            continue
        # The mark follows the name, or goes in the gap if the name fills its column, so that the heading stays above
        # its numbers.
        title = fit(column.title, column.cells, True) if column.right else column.title
        line += [Segment(title, SORTED), Segment("▼" if falls else "▲", SORT_MARK)]
    return [*line, Segment(" " * max(0, cells - length(line)), HEAD)]


def _total_cells(columns: Sequence[tuple[int, TableColumn]]) -> int:
    return sum(column.cells for _, column in columns)


def row_lines(
    columns: Sequence[tuple[int, TableColumn]], table_rows: Sequence[Row], cells: int, *, top: int, height: int,
    cursor: int, has_keys: bool, cache: Cache[Line],
) -> list[Line]:  # fmt: skip
    """Return the rows from `top` on. `cursor`: the selected row, -1 for none; `has_keys`: the table has the focus."""
    lines = []
    for index in range(top, min(top + height, len(table_rows))):
        content = tuple(columns), tuple(table_rows[index]), index == cursor, has_keys, cells
        lines.append(cache.get(index - top, content, partial(_row, *content)))
    return lines


def _row(
    columns: Sequence[tuple[int, TableColumn]], row: Row, is_marked: bool, has_keys: bool, cells: int
) -> Line:  # fmt: skip
    left_margin = margin(cells)
    background = theme.CURSOR if is_marked else None
    line: Line = [Segment("▌" if is_marked and has_keys else " ", MARK), Segment(" " * (left_margin - 1), background)]
    for position, (index, column) in enumerate(columns):
        if position:
            _add(line, " " * GAP, None, background)
        cell: Cell = row[index]
        if cell.parts:
            part = cut(list(cell.parts), column.cells)
            for text, style, _ in part:
                _add(line, text, style, background)
            _add(line, " " * (column.cells - length(part)), None, background)
        else:
            _add(line, fit(cell.text, column.cells, column.right), cell.style, background)
    used = length(line)
    _add(line, " " * (cells - used), None, background)
    return line


def _add(line: Line, text: str, style: Style | None, background: Style | None) -> None:
    """Add text to the line, joined with a neighbor of the same style, because each segment costs bytes of output."""
    combined = style + background if style and background else style or background
    if not text:
        return
    if len(line) > 1 and line[-1].style == combined:
        line[-1] = Segment(line[-1].text + text, combined)
    else:
        line.append(Segment(text, combined))


def column_at(columns: Sequence[tuple[int, TableColumn]], cells: int, x: int) -> int:
    """Return the index of the column at a cell, or -1."""
    begin = margin(cells)
    for index, column in columns:
        if begin <= x < begin + column.cells + 1:
            return index
        begin += column.cells + GAP
    return -1


def hidden_rows(below: int, above: int, cells: int) -> Line:
    """Return the numbers of rows above and below the visible ones."""
    text = "   ".join(
        text_part for text_part in (f"+{above} ▲" if above > 0 else "", f"+{below} ▼" if below > 0 else "") if text_part
    )
    return [Segment(" " * (margin(cells) + 1)), Segment(text, theme.TITLE)]


def side_by_side(left: Sequence[Line], right: Sequence[Line], cells: int, right_cells: int) -> list[Line]:
    """Join two blocks: the left one of width `cells`, the right one of at most `right_cells`."""
    lines = []
    for row in range(max(len(left), len(right))):
        left_line = left[row] if row < len(left) else []
        right_line = right[row] if row < len(right) else []
        lines.append(
            [*left_line, Segment(" " * (cells - length(left_line))), *cut(right_line, right_cells)]
            if right_line
            else left_line
        )
    return lines
