"""A section of a page: a title line with a hairline, and the rows of a table below."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import partial

from rich.segment import Segment
from rich.style import Style

from gpumon_tui import palette, theme
from gpumon_tui.memo import Memo
from gpumon_tui.render.table import FLEXIBLE, Cell, Row, TableColumn
from gpumon_tui.render.text_width import Line, cut, fit, length

GAP = 2
NAME = palette.ink("strong", bold=True)
HEAD = palette.ink("dim", "panel")
SORTED = palette.ink("strong", "panel", bold=True)
SORT_MARK = palette.ink("key", "panel", bold=True)
MARK = palette.ink("key", bold=True)
PRESS = palette.ink("key", bold=True)
WIDE = 100
"""Width from which margins are two cells."""


def margin(cells: int) -> int:
    """Return the margin at each side; its first cell is for the mark of the selected row."""
    return GAP if cells >= WIDE else 1


def section(name: str, detail: Line, right: Line, cells: int, *, hairline: bool = True) -> Line:
    """Return a title line: name, details, a hairline, and keys at the right."""
    side = margin(cells)
    left: Line = [Segment(" " * side), Segment(name, NAME), *([Segment("  "), *detail] if detail else [])]
    room = cells - 2 * side - length(left) + side - (length(right) + GAP if right else 0)
    if room < 0 and right:
        return section(name, detail, [], cells, hairline=hairline)
    if room < 0:
        return cut(left, cells - side)
    between = Segment(" " + "─" * (room - 1) + " " if hairline and room > 2 else " " * (room + 1), theme.RULE)
    return [*left, between, *([Segment(" " * (GAP - 1)), *right] if right else [])]


def keys(*pairs: tuple[str, str]) -> Line:
    """Return keys with their descriptions, for a title line."""
    line: Line = []
    for key, what in pairs:
        line += [Segment("   " if line else ""), Segment(key, PRESS), Segment(f" {what}", theme.DIM)]
    return line


def placed(
    columns: Sequence[TableColumn], cells: int, empty: Collection[int] = ()
) -> tuple[tuple[int, TableColumn], ...]:
    """Return the columns that fit, dropping the least important first; the flexible one takes the remaining room.

    `empty`: indexes of columns for which no row has a value.
    """
    room = cells - 2 * margin(cells)
    chosen = [one for one in enumerate(columns) if one[0] not in empty]
    while len(chosen) > 1 and sum((column.cells or FLEXIBLE) + GAP for _, column in chosen) - GAP > room:
        chosen.remove(min(chosen, key=lambda one: one[1].keep))
    spare = room - wished(chosen, by_wish=False)
    for at, (place, column) in enumerate(chosen):
        if column.cells and (more := max(0, min(spare, column.wish - column.cells))):
            chosen[at], spare = (place, column._replace(cells=column.cells + more)), spare - more
    spare = room - sum(column.cells + GAP for _, column in chosen) + GAP
    return tuple((place, column if column.cells else column._replace(cells=max(1, spare))) for place, column in chosen)


def wished(columns: Iterable[tuple[int, TableColumn]], *, by_wish: bool = True) -> int:
    """Return the total width of columns at their preferred widths; without `by_wish`, only the flexible one has its
    preferred width.
    """
    taken = ((max(column.cells, column.wish) if by_wish or not column.cells else column.cells) for _, column in columns)
    return sum((cells or FLEXIBLE) + GAP for cells in taken) - GAP


def heading(chosen: Sequence[tuple[int, TableColumn]], cells: int, sorted_by: int = -1, *, falls: bool = True) -> Line:
    """Return the column headings; that of the sort column is highlighted, with a mark after it."""
    side = margin(cells)
    line: Line = [Segment(" " * side, HEAD)]
    for at, (place, column) in enumerate(chosen):
        if at:
            line.append(Segment(" " * (at * GAP + side + _taken(chosen[:at]) - length(line)), HEAD))
        if place != sorted_by:
            line.append(Segment(fit(column.title, column.cells, column.right), HEAD))
            continue
        # The mark follows the name, or goes in the gap if the name fills its column, so that the heading stays above
        # its numbers.
        title = fit(column.title, column.cells, True) if column.right else column.title
        line += [Segment(title, SORTED), Segment("▼" if falls else "▲", SORT_MARK)]
    return [*line, Segment(" " * max(0, cells - length(line)), HEAD)]


def _taken(chosen: Sequence[tuple[int, TableColumn]]) -> int:
    return sum(column.cells for _, column in chosen)


def rows(
    chosen: Sequence[tuple[int, TableColumn]], of: Sequence[Row], cells: int, *, top: int, height: int, cursor: int,
    has_keys: bool, drawn: Memo[Line],
) -> list[Line]:  # fmt: skip
    """Return the rows from `top` on. `cursor`: the selected row, -1 for none; `has_keys`: the table has the focus."""
    found = []
    for place in range(top, min(top + height, len(of))):
        shows = tuple(chosen), tuple(of[place]), place == cursor, has_keys, cells
        found.append(drawn.get(place - top, shows, partial(_row, *shows)))
    return found


def _row(
    chosen: Sequence[tuple[int, TableColumn]], row: Row, is_marked: bool, has_keys: bool, cells: int
) -> Line:  # fmt: skip
    side = margin(cells)
    under = theme.CURSOR if is_marked else None
    line: Line = [Segment("▌" if is_marked and has_keys else " ", MARK), Segment(" " * (side - 1), under)]
    for at, (place, column) in enumerate(chosen):
        if at:
            _add(line, " " * GAP, None, under)
        cell: Cell = row[place]
        if cell.parts:
            part = cut(list(cell.parts), column.cells)
            for text, style, _ in part:
                _add(line, text, style, under)
            _add(line, " " * (column.cells - length(part)), None, under)
        else:
            _add(line, fit(cell.text, column.cells, column.right), cell.style, under)
    used = length(line)
    _add(line, " " * (cells - used), None, under)
    return line


def _add(line: Line, text: str, style: Style | None, under: Style | None) -> None:
    """Add a text, joining it with a neighbor of the same style, because each segment costs bytes of output."""
    whole = style + under if style and under else style or under
    if not text:
        return
    if len(line) > 1 and line[-1].style == whole:
        line[-1] = Segment(line[-1].text + text, whole)
    else:
        line.append(Segment(text, whole))


def column_at(chosen: Sequence[tuple[int, TableColumn]], cells: int, x: int) -> int:
    """Return the index of the column at a cell, or -1."""
    at = margin(cells)
    for place, column in chosen:
        if at <= x < at + column.cells + 1:
            return place
        at += column.cells + GAP
    return -1


def more(below: int, above: int, cells: int) -> Line:
    """Return the numbers of rows above and below the visible ones."""
    text = "   ".join(part for part in (f"+{above} ▲" if above > 0 else "", f"+{below} ▼" if below > 0 else "") if part)
    return [Segment(" " * (margin(cells) + 1)), Segment(text, theme.TITLE)]


def side_by_side(left: Sequence[Line], right: Sequence[Line], cells: int, beside: int) -> list[Line]:
    """Join two blocks: the left one of width `cells`, the right one of at most `beside`."""
    found = []
    for place in range(max(len(left), len(right))):
        one = left[place] if place < len(left) else []
        two = right[place] if place < len(right) else []
        found.append([*one, Segment(" " * (cells - length(one))), *cut(two, beside)] if two else one)
    return found
