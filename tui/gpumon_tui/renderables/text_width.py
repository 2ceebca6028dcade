"""Text measured in terminal cells, and the gate through which strangers' text comes."""

from __future__ import annotations

import re
from functools import lru_cache

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style

from gpumon.common.text import clean

Line = list[Segment]
SENTENCE = 400
"""Letters of a sentence: more than the widest screen has cells."""

# Latin letters, dashes, dots, arrows, lines, blocks and braille: one cell each, none combines.
_NARROW = re.compile("[ -\u02ff\u2010-\u2026\u2190-\u2193\u2500-\u259f\u25cf\u2800-\u28ff]*")


@lru_cache(maxsize=2048)
def safe(text: str, letters: int = 128) -> str:
    """Sanitize untrusted text for a terminal, and cut it; every text of a frame passes here."""
    return clean(text, letters)


@lru_cache(maxsize=4096)  # most of what is measured was on screen a second ago
def width(text: str) -> int:
    """Cells that `text` takes."""
    return len(text) if text.isascii() else cell_len(text)


@lru_cache(maxsize=4096)
def is_narrow(text: str) -> bool:
    """Whether each letter of `text` is one cell, so that letters can be counted for cells."""
    return _NARROW.fullmatch(text) is not None


def fit(text: str, cells: int, right: bool = False) -> str:
    """`text` in exactly `cells` cells: padded, or cut with an ellipsis."""
    if cells <= 0:
        return ""
    room = cells - width(text)
    if room >= 0:
        return " " * room + text if right else text + " " * room
    return (text[: cells - 1] if text.isascii() else set_cell_size(text, cells - 1)) + "…"


def spread(left: Line, right: Line, cells: int, style: Style | None = None) -> Line:
    """`left` and `right` at the ends of a line; what has no room is cut from the left one."""
    room = cells - length(right)
    if room < 0:
        return cut(right, cells)
    used = length(left)
    if used > room:
        return [*cut(left, room), *right]
    return [*left, Segment(" " * (room - used), style), *right]


def cut(line: Line, cells: int) -> Line:
    """The first `cells` cells of a line, with an ellipsis where something is lost."""
    kept: Line = []
    for text, style, _ in line:
        taken = width(text)
        if taken > cells:
            return [*kept, Segment(fit(text, cells), style)] if cells > 0 else kept
        kept.append(Segment(text, style))
        cells -= taken
    return kept


def length(line: Line) -> int:
    """Cells that a line takes."""
    return sum([width(text) for text, _, _ in line])
