"""A section of the overview: its name on a hairline, and rows whose columns are dropped if they do not fit."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from rich.segment import Segment
from rich.style import Style

from gpumon_tui import palette, theme
from gpumon_tui.render.table import TableColumn
from gpumon_tui.render.text_width import Line, LineBuilder, cut, fit, length

NAME = palette.ink("strong", bold=True)
WIDE = 100
"""Page width from which the margins are two cells."""


class FittedColumn(NamedTuple):
    """A column that fits."""

    column_index: int
    """Its index among all columns."""
    begin: int
    column: TableColumn


def margin(page: int) -> int:
    """Return the margin at both sides of a page of the given width."""
    return 2 if page >= WIDE else 1


def section_head(name: str, detail: Line, key_hint: Line, cells: int, left_margin: int) -> Line:
    """Return the line with a section's name, `left_margin` cells from the edges; `key_hint`: key that opens more."""
    head: Line = [Segment(" " * left_margin), Segment(name, NAME)]
    if detail:
        head += [Segment("  "), *detail]
    end = cells - left_margin
    room = end - length(head) - length(key_hint) - 1
    if room < 3:
        key_hint, room = [], end - length(head) - 1
    if room < 1:
        return cut(head, end)
    if not key_hint:
        return [*head, Segment(" "), Segment("─" * room, theme.RULE)]
    return [*head, Segment(" "), Segment("─" * (room - 1), theme.RULE), Segment(" "), *key_hint]


@lru_cache(maxsize=64)
def fit_columns(
    columns: tuple[TableColumn, ...], begin: int, end: int, empty: frozenset[str] = frozenset()
) -> tuple[FittedColumn, ...]:
    """Return the columns that fit from cell `begin` to `end`, two cells apart.

    `empty`: titles of columns for which no row has a value.
    """
    chosen = [item for item in enumerate(columns) if item[1].title not in empty]
    while len(chosen) > 1 and sum((column.cells or column.minimum) + 2 for _, column in chosen) - 2 > end - begin:
        chosen.remove(min(chosen, key=lambda item: item[1].keep))
    room = end - begin + 2
    spare = room - sum((column.cells or max(column.minimum, column.preferred)) + 2 for _, column in chosen)
    for position, (index, column) in enumerate(chosen):
        if column.cells and (extra := max(0, min(spare, column.preferred - column.cells))):
            chosen[position], spare = (index, column._replace(cells=column.cells + extra)), spare - extra
    spare = room - sum(column.cells + 2 for _, column in chosen)
    fitted, position = [], begin
    for index, column in chosen:
        item = column if column.cells else column._replace(cells=max(1, spare))
        fitted.append(FittedColumn(index, position, item))
        position += item.cells + 2
    return tuple(fitted)


def headings(columns: Sequence[FittedColumn]) -> LineBuilder:
    """Return the column headings at their positions."""
    pieces = LineBuilder()
    for _, begin, column in columns:
        pieces.put(begin, fit(column.title, column.cells, column.right), theme.HEADING)
    return pieces


StyledText = tuple[str, Style]


def add_row(pieces: LineBuilder, columns: Sequence[FittedColumn], texts: Sequence[StyledText | Line]) -> None:
    """Put the texts of a row at their columns; a line of segments is drawn unchanged."""
    for index, begin, column in columns:
        content = texts[index]
        if isinstance(content, list):
            pieces.segments(begin, content)
        elif content[0]:
            pieces.put(begin, fit(content[0], column.cells, column.right), content[1])
