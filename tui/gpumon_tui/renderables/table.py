"""A table as lines: columns that leave when there is no room, a cursor, and where one is in it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from textwrap import wrap
from typing import NamedTuple

from rich.segment import Segment
from rich.style import Style

from gpumon import units
from gpumon_tui import theme
from gpumon_tui.memo import Memo
from gpumon_tui.renderables.text_width import Line, fit, rule


class TableColumn(NamedTuple):
    """A column; `cells` of 0 takes what room is left."""

    title: str
    cells: int
    right: bool = False
    keep: int = 0
    """The larger, the longer it stays when there is no room."""


class Cell(NamedTuple):
    """The content of a row in one column."""

    text: str
    style: Style = theme.PLAIN
    parts: Sequence[Segment] = ()
    """In place of the text, where it has several styles, as a bar has."""


Row = Sequence[Cell]
"""A cell for each column; a single one stands across all of them."""
FLEXIBLE = 12
"""Fewest cells of a column that takes what is left."""


@lru_cache(maxsize=32)
def fitting(columns: tuple[TableColumn, ...], cells: int) -> tuple[tuple[int, TableColumn], ...]:
    """The columns that have room, with their places and their cells."""
    chosen = list(enumerate(columns))
    while len(chosen) > 1 and sum((column.cells or FLEXIBLE) + 1 for _, column in chosen) > cells:
        chosen.remove(min(chosen, key=lambda placed: placed[1].keep))
    spare = cells - sum(column.cells + 1 for _, column in chosen)
    return tuple((place, column if column.cells else column._replace(cells=max(1, spare))) for place, column in chosen)


def table(
    title: str, columns: tuple[TableColumn, ...], rows: Sequence[Row], *,
    cursor: int, top: int, cells: int, height: int, active: bool, empty: str, aside: str = "",
    count: float | None = None, drawn: Memo[Line] | None = None,
) -> list[Line]:  # fmt: skip
    """Title, headings and the rows from `top` on; `cursor` of -1 marks none, `aside` stands after the title.

    `count`: what there is, where that is another number than that of the rows; NaN where it is not known. `drawn` keeps
    rows that are the same a second later.
    """
    shown = max(0, height - 2)
    chosen = fitting(columns, cells - 1)
    head = theme.TITLE if active else theme.DIM
    position = units.whole(len(rows) if count is None else count)
    if len(rows) > shown > 0 and count is None:
        position = f"{top + 1}–{min(top + shown, len(rows))} of {position}"
    elif len(rows) > shown > 0:
        position = f"{position} · rows {top + 1}–{min(top + shown, len(rows))} of {len(rows)}"
    name: Line = [Segment(title, head), Segment(f"  {aside}" if aside else "", theme.DIM)]
    lines = [rule(name, [Segment(position, theme.DIM)], cells, theme.RULE)]
    headings = "".join(" " + fit(column.title, column.cells, column.right) for _, column in chosen)
    lines.append([Segment(fit(headings, cells), theme.HEADING)])
    for place in range(top, min(top + shown, len(rows))):
        shows = chosen, rows[place], theme.CURSOR if place == cursor else None, cells
        lines.append(_row(*shows) if drawn is None else drawn.get(place - top, shows, partial(_row, *shows)))
    if not rows and shown:
        lines += [[Segment(fit(f" {text}", cells), theme.DIM)] for text in wrap(empty, max(20, cells - 2))[:shown]]
    return lines[:height]


def _row(chosen: Sequence[tuple[int, TableColumn]], row: Row, under: Style | None, cells: int) -> Line:
    """One segment for neighbors of one style: each costs bytes on the line to the terminal."""
    if len(row) == 1:
        text, style, _ = row[0]
        return [Segment(fit(" " + text, cells), style + under if under else style)]
    line: Line = []
    text, style = "", Style.null()
    for place, column in chosen:
        cell = row[place]
        if cell.style is not style and text:
            line.append(Segment(text, style + under if under else style))
            text = ""
        style = cell.style
        text += " " + fit(cell.text, column.cells, column.right)
    line.append(Segment(text, style + under if under else style))
    used = sum(column.cells + 1 for _, column in chosen)
    return [*line, Segment(" " * (cells - used), under)] if used < cells else line
