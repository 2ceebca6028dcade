"""Text in terminal cells: sanitizing, width, fitting, wrapping and placing; and texts shown in place of rows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from operator import itemgetter
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style

from gpumon.common.text import clean

NO_PROCESS_DATA = "this recording has no process data"
NO_RUN_DATA = "this recording has no run data"
NO_RUN_SIMULATED = "no run in this simulation"
"""For simulations without runs; a training started now does not appear in a simulation."""
READING_LEDGER = "reading the ledger …"
READING_OLDER = "no match so far; older runs are still being read …"
READING_HISTORY = "reading history …"
SHOW_ALL = "Esc shows all"


def hidden_text(item: str, count: int, reason: str = "all are hidden") -> str:
    """Return why none of `count` items is listed; `reason` names the filter that hides them."""
    return f"no {item} matches: of {count}, {reason}"


Line = list[Segment]


class ClickRange(NamedTuple):
    """A clickable range of cells."""

    begin: int
    end: int
    """The cell after the last one."""
    action: str
    """What a click does: an action, or Textual's name of the equivalent key."""
    row: int = 0


SENTENCE = 400
"""Maximum length of a sentence, longer than the widest screen."""

# Latin letters, dashes, dots, arrows, lines, blocks and braille: one cell each, none of them combining.
_NARROW = re.compile("[ -\u02ff\u2010-\u2026\u2190-\u2193\u2500-\u259f\u25cf\u2800-\u28ff]*")


@lru_cache(maxsize=2048)
def safe(text: str, letters: int = 128) -> str:
    """Sanitize and truncate untrusted text for a terminal; every text from a frame passes through here."""
    return clean(text, letters)


@lru_cache(maxsize=4096)  # most texts were already on screen a second ago
def width(text: str) -> int:
    """Return the number of cells of `text`."""
    return len(text) if text.isascii() else cell_len(text)


@lru_cache(maxsize=4096)
def is_narrow(text: str) -> bool:
    """Whether every character of `text` is one cell wide, so that characters can be counted instead."""
    return _NARROW.fullmatch(text) is not None


def fit(text: str, cells: int, right: bool = False) -> str:
    """Return `text` in exactly `cells` cells: padded, or truncated with an ellipsis."""
    if cells <= 0:
        return ""
    room = cells - width(text)
    if room >= 0:
        return " " * room + text if right else text + " " * room
    return (text[: cells - 1] if text.isascii() else set_cell_size(text, cells - 1)) + "…"


def spread(left: Line, right: Line, cells: int, style: Style | None = None) -> Line:
    """Return `left` and `right` at the ends of a line; if there is no room, the left one is truncated."""
    room = cells - length(right)
    if room < 0:
        return cut(right, cells)
    used = length(left)
    if used > room:
        return [*cut(left, room), *right]
    return [*left, Segment(" " * (room - used), style), *right]


def cut(line: Line, cells: int) -> Line:
    """Return the first `cells` cells of a line, with an ellipsis if it is truncated."""
    result: Line = []
    for text, style, _ in line:
        text_cells = width(text)
        if text_cells > cells:
            return [*result, Segment(fit(text, cells), style)] if cells > 0 else result
        result.append(Segment(text, style))
        cells -= text_cells
    return result


def wrap_words(text: str, cells: int) -> Iterator[str]:
    """Wrap `text` into lines of at most `cells` cells, at least one. Longer words, such as ids, are split."""
    cells = max(1, cells)
    line = ""
    for word in text.split():
        longer = f"{line} {word}" if line else word
        if line and width(longer) > cells:
            yield line
            longer = word
        while width(longer) > cells:
            end = next(
                length
                for length in range(1, len(longer) + 1)
                if length == len(longer) or width(longer[: length + 1]) > cells
            )
            yield longer[:end]
            longer = longer[end:]
        line = longer
    if line:
        yield line


def wrap_limited(text: str, cells: int, max_lines: int) -> list[str]:
    """Wrap `text` into at most `max_lines` lines; an ellipsis marks truncated text."""
    lines = list(wrap_words(text, cells))
    if len(lines) <= max_lines:
        return lines
    last = lines[max_lines - 1]
    while last and width(last) > cells - 2:
        last = last.rpartition(" ")[0]
    return [*lines[: max_lines - 1], f"{last} …".lstrip()]


def length(line: Line) -> int:
    """Return the number of cells of a line."""
    return sum([width(text) for text, _, _ in line])


class LineBuilder:
    """Texts at cell positions, in any order."""

    def __init__(self) -> None:
        self._pieces: list[tuple[int, str, Style | None]] = []
        """First cell, text, style."""

    def put(self, cell: int, text: str, style: Style | None) -> int:
        """Put `text` at a cell; return the cell after it."""
        if text:
            self._pieces.append((cell, text, style))
        return cell + width(text)

    def right(self, end: int, text: str, style: Style) -> int:
        """Put `text` so that it ends before cell `end`; return its first cell."""
        begin = end - width(text)
        self.put(begin, text, style)
        return begin

    def segments(self, cell: int, line: Line) -> int:
        """Put the segments of a line one after another; return the cell after them."""
        for text, style, _ in line:
            cell = self.put(cell, text, style)
        return cell

    def line(self, cells: int) -> Line:
        """Return a line of at most `cells` cells; no text overwrites the text before it."""
        line: Line = []
        position = 0
        for begin, text, style in sorted(self._pieces, key=itemgetter(0)):
            if begin < position:
                text, begin = text[position - begin :], position
            if not text or begin >= cells:
                continue
            if begin > position:
                line.append(Segment(" " * (begin - position)))
            line.append(Segment(text, style))
            position = begin + width(text)
        return cut(line, cells) if position > cells else line
