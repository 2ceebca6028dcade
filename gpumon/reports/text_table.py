"""Tables of plain text that fit a width: the least important columns go first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from gpumon.common.text import cut, text_width

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
