"""A section of the overview: its name on a hairline, and rows whose columns are dropped if they do not fit."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from rich.segment import Segment
from rich.style import Style

from gpumon_tui import palette, theme
from gpumon_tui.render.table import TableColumn
from gpumon_tui.render.text_width import Line, Placed, cut, fit, length

NAME = palette.ink("strong", bold=True)
WIDE = 100
"""Page width from which the margins are two cells."""


class LeanPlace(NamedTuple):
    """A column that fits."""

    at: int
    """Its index among all columns."""
    begin: int
    column: TableColumn


def margin(page: int) -> int:
    """Return the margin at both sides of a page of the given width."""
    return 2 if page >= WIDE else 1


def section_head(name: str, detail: Line, more: Line, cells: int, left: int) -> Line:
    """Return the line with a section's name, `left` cells from the edges; `more` shows how to open the rest."""
    head: Line = [Segment(" " * left), Segment(name, NAME)]
    if detail:
        head += [Segment("  "), *detail]
    end = cells - left
    room = end - length(head) - length(more) - 1
    if room < 3:
        more, room = [], end - length(head) - 1
    if room < 1:
        return cut(head, end)
    if not more:
        return [*head, Segment(" "), Segment("─" * room, theme.RULE)]
    return [*head, Segment(" "), Segment("─" * (room - 1), theme.RULE), Segment(" "), *more]


@lru_cache(maxsize=64)
def fitting(
    columns: tuple[TableColumn, ...], begin: int, end: int, empty: frozenset[str] = frozenset()
) -> tuple[LeanPlace, ...]:
    """Return the columns that fit from cell `begin` to `end`, two cells apart.

    `empty`: titles of columns for which no row has a value.
    """
    chosen = [one for one in enumerate(columns) if one[1].title not in empty]
    while len(chosen) > 1 and sum((column.cells or column.least) + 2 for _, column in chosen) - 2 > end - begin:
        chosen.remove(min(chosen, key=lambda placed: placed[1].keep))
    room = end - begin + 2
    spare = room - sum((column.cells or max(column.least, column.wish)) + 2 for _, column in chosen)
    for at, (place, column) in enumerate(chosen):
        if column.cells and (more := max(0, min(spare, column.wish - column.cells))):
            chosen[at], spare = (place, column._replace(cells=column.cells + more)), spare - more
    spare = room - sum(column.cells + 2 for _, column in chosen)
    found, at = [], begin
    for place, column in chosen:
        one = column if column.cells else column._replace(cells=max(1, spare))
        found.append(LeanPlace(place, at, one))
        at += one.cells + 2
    return tuple(found)


def headings(chosen: Sequence[LeanPlace]) -> Placed:
    """Return the column headings at their positions."""
    row = Placed()
    for _, begin, column in chosen:
        row.put(begin, fit(column.title, column.cells, column.right), theme.HEADING)
    return row


Told = tuple[str, Style]


def put_row(row: Placed, chosen: Sequence[LeanPlace], texts: Sequence[Told | Line]) -> None:
    """Put the texts of a row at their columns; a line of segments is drawn unchanged."""
    for place, begin, column in chosen:
        told = texts[place]
        if isinstance(told, list):
            row.segments(begin, told)
        elif told[0]:
            row.put(begin, fit(told[0], column.cells, column.right), told[1])
