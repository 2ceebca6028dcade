"""The last line of the screen: pages at the left, keys that apply at the right."""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment

from gpumon_tui import theme
from gpumon_tui.keys import PAGES
from gpumon_tui.renderables.text_width import Line, cut, length, safe, spread

NAMED_FROM = 80
"""Cells from which all pages stand with their names."""
KEY_NAMES = {
    "?": "question_mark", "+": "plus", "-": "minus", "/": "slash", "!": "exclamation_mark", "Esc": "escape",
    "↵": "enter", "[": "left_square_bracket", "]": "right_square_bracket", "{": "left_curly_bracket",
    "^Z": "ctrl+z", "F2": "f2", ":": "colon",
}  # fmt: skip
"""Textual's names of keys that are shown as they are written."""
Place = tuple[int, int, str]
"""First cell, cell after the last, and Textual's name of the key that does the same."""


def footer(
    pages: Sequence[str], page: str, bindings: Sequence[tuple[str, str]], cells: int, said: str = ""
) -> tuple[Line, list[Place]]:
    """The pages at the left, as many keys as fit at the right or what is `said` to the user, and where to click."""
    line: Line = [Segment(" ", theme.BAR)]
    places: list[Place] = []
    at = 1
    for digit, name in enumerate(PAGES, 1):
        if name not in pages or len(pages) < 2:
            continue
        is_shown = name == page
        text = f" {digit} {name} " if cells >= NAMED_FROM or is_shown else f" {digit} "
        if is_shown:
            line.append(Segment(text, theme.PAGE))
        else:
            line += [Segment(text[:2], theme.KEY), Segment(text[2:], theme.BAR_DIM)]
        places.append((at, at + len(text), str(digit)))
        at += len(text)
    if said:
        return spread(line, cut([Segment(f" {safe(said)} ", theme.BAR_STRONG)], cells - at), cells, theme.BAR), places
    keys: Line = []
    room = cells - at - 1
    told: list[Place] = []
    for key, what in bindings:
        more: Line = [Segment(" ", theme.BAR), Segment(key, theme.KEY), Segment(f" {what} ", theme.BAR_DIM)]
        begin = length(keys)
        if begin + length(more) <= room:
            keys += more
            first = key.split(" ")[0]
            told.append((begin, length(keys), KEY_NAMES.get(first, first)))
    first_cell = cells - length(keys)
    places += [(first_cell + begin, first_cell + end, name) for begin, end, name in told]
    return spread(line, keys, cells, theme.BAR), places
