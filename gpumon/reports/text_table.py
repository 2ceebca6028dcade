"""Tables of plain text that fit a width: the least important columns go first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from gpumon.common.text import cut, text_width
from gpumon.model import units
from gpumon.model.columns import Column

GAP = "  "


class TextColumn(NamedTuple):
    """A column of a table."""

    heading: str
    keep: int
    """The higher, the longer it stays when there is little room."""
    right: bool = True
    """Numbers stand to the right."""
    most: int = 0
    """The widest it becomes, in cells of the terminal; 0 for as wide as its cells are."""
    least: int = 0
    """The narrowest it gets before a column is dropped; 0 for never narrower."""
    shorten: Callable[[str, int], str] = cut
    """Gives a text in at most so many cells."""
    title: str = ""
    """Heading where there is more room; `heading` where it is empty."""
    help: str = ""


def text_column(column: Column, most: int = 0, least: int = 0) -> TextColumn:
    """A column of `model.columns` in a table of text."""
    return TextColumn(column.heading, column.keep, column.is_number, most, least, title=column.title, help=column.help)


def draw(columns: Sequence[TextColumn], rows: Sequence[Sequence[str]], width: int = 0) -> Iterator[str]:
    """The heading and the rows as lines, at most `width` cells wide (0: as wide as it gets).

    Columns in which no row has anything are left out.
    """
    kept, widths = fitting(columns, rows, width)
    yield _line([columns[i] for i in kept], [columns[i].heading for i in kept], [widths[i] for i in kept])
    for row in rows:
        yield _line([columns[i] for i in kept], [row[i] for i in kept], [widths[i] for i in kept])


def fitting(columns: Sequence[TextColumn], rows: Sequence[Sequence[str]], width: int) -> tuple[list[int], list[int]]:
    """Places of the columns that are drawn, and the width of every column."""
    widths = []
    for i, column in enumerate(columns):
        widest = max((text_width(row[i]) for row in rows), default=0)
        wanted = max(text_width(column.heading), widest)
        widths.append(min(wanted, column.most) if column.most else wanted)
    kept = [i for i in range(len(columns)) if not rows or any(row[i] for row in rows)]
    if not width:
        return kept, widths
    least = [min(wide, column.least) if column.least else wide for wide, column in zip(widths, columns, strict=True)]
    while len(kept) > 1 and _total(kept, least) > width:
        kept.remove(min(kept, key=lambda i: (columns[i].keep, -i)))
    for i in sorted(kept, key=lambda i: columns[i].keep):
        widths[i] = max(least[i], widths[i] - max(0, _total(kept, widths) - width))
    return kept, widths


def _total(kept: Sequence[int], widths: Sequence[int]) -> int:
    return sum(widths[i] for i in kept) + len(GAP) * (len(kept) - 1)


def distinct(names: Sequence[str], width: int) -> list[str]:
    """Names in at most `width` cells each; of those that begin alike, the middle is left out, so that they differ."""
    ends = [cut(name, width) for name in names]
    for tail in range(width // 2, width - 1):
        alike = {end for end in ends if ends.count(end) > 1}
        if not alike:
            break
        for place, (name, end) in enumerate(zip(names, ends, strict=True)):
            if end in alike and text_width(name) > width:
                ends[place] = cut(name, width - tail) + end_of(name, tail)
    return ends


def end_of(text: str, width: int) -> str:
    """Return the last letters of a text, in at most so many cells."""
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


BETWEEN = "  ·  "
"""Between two parts of a line."""
MOST = 12
"""Rows of a table where there is a height; the rest is counted."""
LEAST = 3
"""The same in little room."""


class Table(NamedTuple):
    """A table that may show fewer rows than it has."""

    columns: Sequence[TextColumn]
    rows: Sequence[Sequence[str]]
    title: str = ""
    below: str = ""
    """A sentence behind its rows; empty for none."""
    least: int = LEAST
    """Rows that it keeps as long as another table has more than its own; more than usual: also in the least room."""


def wrapped(parts: Iterable[str], width: int, between: str = BETWEEN) -> Iterator[str]:
    """Yield parts beside each other, on as many lines as they need at `width` cells (0: on one).

    A part goes onto a line of its own before it is broken, which happens between words; only a word that is wider than
    a line is cut.
    """
    here = ""
    for part in parts:
        if here and width and text_width(here + between + part) > width:
            yield here
            here = ""
        here = here + between + part if here else part
        if width and text_width(here) > width:
            *full, here = _words(here, width)
            yield from full
    if here:
        yield here


def sentence(text: str, width: int) -> Iterator[str]:
    """Yield a sentence, on as many lines as it needs."""
    return wrapped([text], width)


def shared(tables: Sequence[Table], width: int, height: int) -> Iterator[str]:
    """Yield tables that have rows, each behind an empty line, in at most `height` lines (0: each whole).

    The longest gives way first, down to its `least` rows; where that does not do, those that are like others down to a
    row. What has no room even then is left to the caller.
    """
    found = [one for one in tables if one.rows]
    counts = [min(len(one.rows), MOST) if height else len(one.rows) for one in found]
    for floor in (0, 1):
        least = [one.least if one.least > LEAST or not floor else floor for one in found]
        while height and sum(map(_height, found, counts, [width] * len(found))) > height:
            able = [at for at, count in enumerate(counts) if count > least[at]]
            if not able:
                break
            counts[max(able, key=lambda at: (counts[at], at))] -= 1
    for one, count in zip(found, counts, strict=True):
        yield ""
        yield from _drawn(one, count, width)


def _height(one: Table, count: int, width: int) -> int:
    titles = sum(1 for _ in sentence(one.title, width)) + sum(1 for _ in sentence(one.below, width))
    return 1 + titles + 1 + count + (count < len(one.rows))


def _drawn(one: Table, count: int, width: int) -> Iterator[str]:
    yield from sentence(one.title, width)
    yield from draw(one.columns, one.rows[:count], width)
    if count < len(one.rows):
        yield f"and {units.count(len(one.rows) - count)} more"
    yield from sentence(one.below, width)


def _words(text: str, width: int) -> list[str]:
    """Lines of a text that is broken between its words."""
    lines = [""]
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}" if lines[-1] else word
        if lines[-1] and text_width(longer) > width:
            lines.append(cut(word, width))
        else:
            lines[-1] = cut(longer, width)
    return lines
