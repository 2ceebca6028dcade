"""Plain-text tables that drop their least important columns if the width is not sufficient."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from gpumon.common.text import cut, text_width, wrap_words
from gpumon.model import units
from gpumon.model.columns import Column

GAP = "  "


@dataclass(frozen=True, slots=True)
class TextColumn:
    """A column of a table."""

    heading: str
    keep: int
    """Priority of the column. Columns with the lowest priority are dropped first."""
    right: bool = True
    """True if cells are aligned to the right, as for numbers."""
    max_width: int = 0
    """Maximum width in terminal columns. 0 means the width of the widest cell."""
    min_width: int = 0
    """Cells are shortened to this width before a column is dropped. 0: cells are not shortened."""
    shorten: Callable[[str, int], str] = cut
    """Function that shortens a cell to a given width."""
    title: str = ""
    """Longer heading that is used if there is room for it. If empty, `heading` is used."""
    help: str = ""


def text_column(column: Column, max_width: int = 0, min_width: int = 0) -> TextColumn:
    """Convert a column of `model.columns` to a text column."""
    return TextColumn(
        column.heading, column.keep, column.is_number, max_width, min_width, title=column.title, help=column.help
    )  # fmt: skip


def draw(columns: Sequence[TextColumn], rows: Sequence[Sequence[str]], width: int = 0) -> Iterator[str]:
    """Yield a heading and the rows as lines, at most `width` columns wide (0: unlimited).

    Columns in which all cells are empty are left out.
    """
    kept, widths = fitting(columns, rows, width)
    yield _line([columns[i] for i in kept], [columns[i].heading for i in kept], [widths[i] for i in kept])
    for row in rows:
        yield _line([columns[i] for i in kept], [row[i] for i in kept], [widths[i] for i in kept])


def fitting(columns: Sequence[TextColumn], rows: Sequence[Sequence[str]], width: int) -> tuple[list[int], list[int]]:
    """Return the indexes of the columns that fit into `width`, and the width of every column."""
    widths = []
    for i, column in enumerate(columns):
        widest = max((text_width(row[i]) for row in rows), default=0)
        wanted = max(text_width(column.heading), widest)
        widths.append(min(wanted, column.max_width) if column.max_width else wanted)
    kept = [i for i in range(len(columns)) if not rows or any(row[i] for row in rows)]
    if not width:
        return kept, widths
    smallest = [
        min(wide, column.min_width) if column.min_width else wide for wide, column in zip(widths, columns, strict=True)
    ]
    while len(kept) > 1 and _total(kept, smallest) > width:
        kept.remove(min(kept, key=lambda i: (columns[i].keep, -i)))
    for i in sorted(kept, key=lambda i: columns[i].keep):
        widths[i] = max(smallest[i], widths[i] - max(0, _total(kept, widths) - width))
    return kept, widths


def _total(kept: Sequence[int], widths: Sequence[int]) -> int:
    return sum(widths[i] for i in kept) + len(GAP) * (len(kept) - 1)


def distinct(names: Sequence[str], width: int) -> list[str]:
    """Shorten names to `width`.

    If two names would become equal, they are shortened in the middle instead of at the end.
    """
    shortened = [cut(name, width) for name in names]
    for tail in range(width // 2, width - 1):
        duplicates = {text for text, count in Counter(shortened).items() if count > 1}
        if not duplicates:
            break
        for index, (name, text) in enumerate(zip(names, shortened, strict=True)):
            if text in duplicates and text_width(name) > width:
                shortened[index] = cut(name, width - tail) + _end_of(name, tail)
    return shortened


def _end_of(text: str, width: int) -> str:
    """Return as much of the end of a string as fits into `width` terminal columns."""
    while text_width(text) > width:
        text = text[1:]
    return text


def _line(columns: Sequence[TextColumn], texts: Sequence[str], widths: Sequence[int]) -> str:
    padded = []
    for column, text, width in zip(columns, texts, widths, strict=True):
        text = column.shorten(text, width)
        space = " " * (width - text_width(text))
        padded.append(space + text if column.right else text + space)
    return GAP.join(padded).rstrip()


SEPARATOR = "  ·  "
"""Separates the parts of a line."""
MAX_ROWS = 12
"""Maximum number of rows of a table if the height is limited. A line below the table says how many more there are."""
MIN_ROWS = 3
"""All tables are shortened to this number of rows before any table is shortened further."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table that can be shown with fewer rows if there is not enough room."""

    columns: Sequence[TextColumn]
    rows: Sequence[Sequence[str]]
    title: str = ""
    below: str = ""
    """A sentence below the rows; may be empty."""
    min_rows: int = MIN_ROWS
    """The table is shortened to no fewer rows than this. If it is greater than `MIN_ROWS`, these rows are always
    shown."""


def wrapped(parts: Iterable[str], width: int, separator: str = SEPARATOR) -> Iterator[str]:
    """Yield the parts of a line, joined by `separator` and wrapped to `width` columns (0: not wrapped).

    Lines are broken between parts if possible, else between words. Words are never broken, so a line with a
    long word can be wider than `width`.
    """
    line = ""
    for part in parts:
        if line and width and text_width(line + separator + part) > width:
            yield line
            line = ""
        line = line + separator + part if line else part
        if width and text_width(line) > width:
            *full, line = wrap_words(line, width)
            yield from full
    if line:
        yield line


def sentence(text: str, width: int) -> Iterator[str]:
    """Yield a sentence wrapped to `width` columns."""
    return wrapped([text], width)


def draw_tables(tables: Sequence[Table], width: int, height: int) -> Iterator[str]:
    """Yield all tables that have rows, each after an empty line, in at most `height` lines (0: unlimited).

    The longest table is shortened first, to no fewer rows than its `min_rows`. If this is not sufficient, tables with
    the default `min_rows` are shortened to one row. Even then, the result may have more than `height` lines.
    """
    shown = [table for table in tables if table.rows]
    counts = [min(len(table.rows), MAX_ROWS) if height else len(table.rows) for table in shown]
    for floor in (0, 1):
        minimums = [table.min_rows if table.min_rows > MIN_ROWS or not floor else floor for table in shown]
        while height and sum(map(_height, shown, counts, [width] * len(shown))) > height:
            candidates = [i for i, count in enumerate(counts) if count > minimums[i]]
            if not candidates:
                break
            counts[max(candidates, key=lambda i: (counts[i], i))] -= 1
    for table, count in zip(shown, counts, strict=True):
        yield ""
        yield from _draw_table(table, count, width)


def _height(table: Table, count: int, width: int) -> int:
    texts = sum(1 for _ in sentence(table.title, width)) + sum(1 for _ in sentence(table.below, width))
    return 1 + texts + 1 + count + (count < len(table.rows))


def _draw_table(table: Table, count: int, width: int) -> Iterator[str]:
    yield from sentence(table.title, width)
    yield from draw(table.columns, table.rows[:count], width)
    if count < len(table.rows):
        yield f"and {units.count(len(table.rows) - count)} more"
    yield from sentence(table.below, width)
