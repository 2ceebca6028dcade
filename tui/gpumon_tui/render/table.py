"""Tables: the columns that fit, their headings, rows as lines, title lines of sections, and blocks side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from rich.segment import Segment
from rich.style import Style

from gpumon.model.columns import Column
from gpumon.model.metrics import Unit
from gpumon_tui import theme
from gpumon_tui.render.text_width import Line, cut, fit, length, width

GAP = 2
"""Cells between columns."""
FLEXIBLE = 12
"""Minimum width of a column that takes the remaining room."""
WIDE = 100
"""Minimum width, in columns, at which margins are two cells wide."""
BLANK = Segment(" ")
MARK = Segment("▌", theme.TITLE)
"""First cell of the row under the cursor."""
PANEL = Style(bgcolor=theme.color("panel"))
_HEADING, _SORTED = theme.ink("dim", "panel"), theme.ink("strong", "panel", bold=True)
_ARROW = theme.ink("key", "panel", bold=True)


class TableColumn(NamedTuple):
    """A column; a `cells` of 0 takes the remaining room."""

    title: str
    cells: int
    right: bool = False
    keep: float = 0
    """Priority: the larger, the longer it is kept when there is no room."""
    preferred: int = 0
    """Preferred width if there is room; for a flexible column, the width it leaves to others with a preferred width."""
    minimum: int = FLEXIBLE
    """Minimum width of a flexible column; others are dropped to reach it."""
    key: str = ""
    joins: bool = False
    """Whether it touches the column after it, as a bar touches its number."""
    overhangs: bool = False
    """Whether a long heading extends to the left over an empty part of the heading before it."""
    displaces: float = -1
    """Columns with a `keep` up to this value are dropped for the preferred width of this flexible column."""


class PlacedColumn(NamedTuple):
    """A column that fits, with its final width."""

    column_index: int
    """Its index among all columns."""
    begin: int
    """Its first cell."""
    column: TableColumn

    @property
    def end(self) -> int:
        """The cell after its last one."""
        return self.begin + self.column.cells


_CELLS: Mapping[Unit | None, int] = {
    Unit.RATIO: 5, Unit.BYTES: 9, Unit.SECONDS: 8, Unit.JOULES: 9, Unit.PER_SECOND: 7, Unit.COUNT: 7,
}  # fmt: skip
"""Width of the largest number of a unit, including a sign."""


def table_column(column: Column, cells: int = 0, wish: int = 0) -> TableColumn:
    """Return a column of `model.columns`, as wide as its numbers and heading, or `cells` wide."""
    width_cells = cells or max(_CELLS.get(column.unit, 9), width(column.short))
    return TableColumn(column.short, width_cells, column.is_number, column.keep, wish, key=column.key)


class Cell(NamedTuple):
    """Content of a row in one column."""

    text: str
    style: Style = theme.PLAIN
    parts: Sequence[Segment] = ()
    """Used instead of `text` for content with several styles, such as a bar, or that starts with a glyph."""


Row = Sequence[Cell]
"""One cell per column."""


def margin(cells: int) -> int:
    """Return the margin at each side of a table; its first cell is for the mark of the selected row."""
    return GAP if cells >= WIDE else 1


@lru_cache(maxsize=128)
def fit_columns(
    columns: tuple[TableColumn, ...], begin: int, end: int, *, gap: int = GAP, sorted_by: str | None = None,
    empty: frozenset[str] = frozenset(),
) -> tuple[PlacedColumn, ...]:  # fmt: skip
    """Return the columns that fit from cell `begin` to `end`, dropping the least important first.

    `sorted_by`: key of the sort column, which is always kept, because its heading shows the direction; None if the
    table cannot be sorted. `empty`: keys of columns for which no row has a value.
    """
    room = end - begin
    chosen = [item for item in enumerate(columns) if item[1].key not in empty]

    def gap_between(left: TableColumn, column: TableColumn) -> int:
        if left.joins:
            return 0
        is_tight = gap == 1 and left.right and not column.right  # no room for the sort mark
        return gap + (is_tight and sorted_by is not None)

    def spare_cells() -> int:
        """Return the cells that columns of minimum width leave."""
        gaps = sum(gap_between(left[1], item[1]) for left, item in pairwise(chosen))
        return room - gaps - sum(column.cells or column.minimum for _, column in chosen)

    while len(chosen) > 1 and spare_cells() < 0:
        chosen.remove(min(chosen, key=lambda item: (bool(sorted_by) and item[1].key == sorted_by, item[1].keep)))
    flexible = next((column for _, column in chosen if not column.cells), None)
    reserved = max(0, flexible.preferred - flexible.minimum) if flexible else 0
    while flexible and spare_cells() < reserved:
        droppable = [item for item in chosen if item[1].keep <= flexible.displaces and item[1].key != sorted_by]
        if not droppable:
            break
        chosen.remove(min(droppable, key=lambda item: item[1].keep))
    spare = spare_cells() - reserved
    for position, (index, column) in enumerate(chosen):
        if column.cells and (extra := max(0, min(spare, column.preferred - column.cells))):
            chosen[position], spare = (index, column._replace(cells=column.cells + extra)), spare - extra
    spare = spare_cells()
    placed: list[PlacedColumn] = []
    for index, column in chosen:
        first = placed[-1].end + gap_between(placed[-1].column, column) if placed else begin
        cells = column.cells or max(1, column.minimum + spare)
        placed.append(PlacedColumn(index, first, column._replace(cells=cells)))
    return tuple(placed)


def preferred_width(columns: Iterable[TableColumn]) -> int:
    """Return the width of a table in which nothing is truncated."""
    return sum((max(column.cells, column.preferred) or FLEXIBLE) + GAP for column in columns) - GAP


def plain_heading(columns: Sequence[PlacedColumn], cells: int) -> Line:
    """Return faint headings without a background."""
    return row_line([Cell(placed.column.title, theme.HEADING) for placed in columns], columns, cells)


def heading(columns: Sequence[PlacedColumn], cells: int, sorted_by: str = "", *, falls: bool = True) -> Line:
    """Return the headings on a panel background; the sort column's heading is bold, with its direction after it."""
    line: Line = []
    position = 0
    for _, begin, column in columns:
        if not column.title:
            continue
        title = fit(column.title, column.cells, column.right)
        is_sorted = bool(sorted_by) and column.key == sorted_by
        if column.right and column.overhangs and (excess := width(column.title) - column.cells) > 0:
            title, begin = column.title, max(position, begin - excess)
        elif not column.right:
            title = title.rstrip()
        line += [Segment(" " * (begin - position), PANEL), Segment(title, _SORTED if is_sorted else _HEADING)]
        position = max(begin, position) + width(title)
        if is_sorted:  # in the gap, so that the heading stays above its numbers
            line.append(Segment("▼" if falls else "▲", _ARROW))
            position += 1
    return cut([*line, Segment(" " * max(0, cells - position), PANEL)], cells)


def placed_cells(row: Row, columns: Sequence[PlacedColumn]) -> Row:
    """Return the cells of a complete row for the columns that fit."""
    return tuple(row[placed.column_index] for placed in columns)


def row_line(
    row: Row, columns: Sequence[PlacedColumn], cells: int, *, mark: Segment = BLANK, background: Style | None = None
) -> Line:
    """Return a row with one cell per placed column; `mark` is the first cell, before the background."""
    line, position = [mark], 1
    style: Style | None = None
    for (_, begin, column), cell in zip(columns, row, strict=True):
        _add(line, " " * (begin - position), style, background)  # joined with the cell before it
        if cell.parts:
            parts = cut(list(cell.parts), column.cells)
            line += [Segment(text, _combined(part_style, background)) for text, part_style, _ in parts]
            _add(line, " " * (column.cells - length(parts)), None, background)
        else:
            _add(line, fit(cell.text, column.cells, column.right), cell.style, background)
        style = None if cell.parts else cell.style
        position = begin + column.cells
    _add(line, " " * (cells - position), None, background)
    return line


def _add(line: Line, text: str, style: Style | None, background: Style | None) -> None:
    """Add text to the line, joined with a neighbor of the same style, because each segment costs bytes of output."""
    if not text:
        return
    combined = _combined(style, background)
    if len(line) > 1 and line[-1].style == combined:
        line[-1] = Segment(line[-1].text + text, combined)
    else:
        line.append(Segment(text, combined))


@lru_cache(maxsize=512)
def _combined(style: Style | None, background: Style | None) -> Style | None:
    return style + background if style and background else background or style


def column_at(columns: Sequence[PlacedColumn], cell: int) -> str:
    """Return the key of the column at a cell of the heading; empty if there is none."""
    return next((placed.column.key for placed in columns if placed.begin <= cell <= placed.end), "")


def hidden_counts(above: int, below: int, gap: str = "   ") -> str:
    """Return the numbers of rows above and below the visible ones: `+2 ▲   +5 ▼`."""
    return gap.join(f"+{count} {arrow}" for count, arrow in ((above, "▲"), (below, "▼")) if count > 0)


NAME = theme.ink("strong", bold=True)
HEAD = theme.ink("dim", "panel")
KEY = theme.ink("key", bold=True)


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


def keys(*pairs: tuple[str, str]) -> Line:
    """Return keys with their descriptions, for a title line."""
    line: Line = []
    for key, description in pairs:
        line += [Segment("   " if line else ""), Segment(key, KEY), Segment(f" {description}", theme.DIM)]
    return line


def hidden_rows(below: int, above: int, cells: int) -> Line:
    """Return the numbers of rows above and below the visible ones."""
    return [Segment(" " * (margin(cells) + 1)), Segment(hidden_counts(above, below), theme.TITLE)]


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
