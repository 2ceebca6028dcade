"""The last line of the screen: pages at the left, keys that apply at the right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.segment import Segment

from gpumon_tui import theme
from gpumon_tui.glyphs import spelled
from gpumon_tui.keys import PAGES
from gpumon_tui.renderables.text_width import Line, cut, length, safe, spread

NAMED_FROM, ONE_NAMED_FROM = 100, 60
"""Cells from which all pages stand with their names, and from which the one on screen does: keys need the room."""
_CELLS_PER_PAGE = 8
"""On a line with fewer, digits stand closer together, so that the count of findings has room."""
KEY_NAMES = {
    "?": "question_mark", "+": "plus", "-": "minus", "/": "slash", "!": "exclamation_mark", "Esc": "escape",
    "↵": "enter", "[": "left_square_bracket", "]": "right_square_bracket", "{": "left_curly_bracket",
    "^Z": "ctrl+z", "F2": "f2", ":": "colon", "Space": "space", "Tab": "tab",
}  # fmt: skip
"""Textual's names of keys that are shown as they are written."""
PINNED = ("q", "?")
"""Keys that are always there, at the end; the help is the last."""
Place = tuple[int, int, str]
"""First cell, cell after the last, and Textual's name of the key that does the same."""


def footer(
    pages: Sequence[str], page: str, bindings: Sequence[tuple[str, str]], cells: int, said: str = "",
    is_ascii: bool = False, played: Line | None = None, briefs: Mapping[str, str] | None = None,
) -> tuple[Line, list[Place]]:  # fmt: skip
    """The pages at the left, as many keys as fit at the right or what is `said` to the user, and where to click.

    `played` stands behind the pages: the place in a recording. `briefs`: words of keys that stand there briefly rather
    than not at all.
    """
    if said:
        return _said(pages, page, cells, [Segment(f" {safe(said)} ", theme.BAR_STRONG)], played or [])
    line, places = _pages(pages, page, cells)
    line += played or []
    at = length(line)
    shown = [(key, _key(spelled(key) if is_ascii else key, what)) for key, what in bindings]
    last = [one for pinned in PINNED for one in shown if one[0] == pinned]
    room = cells - at - 1 - sum(length(text) for _, text in last)
    first = []
    for one in shown:
        if one in last:
            continue
        key, text = one
        if length(text) > room and briefs and (brief := briefs.get(key)):
            text = _key(key, brief)
        room -= length(text)
        if room < 0:
            break
        first.append((key, text))
    keys: Line = []
    told: list[Place] = []
    for key, text in (*first, *last):
        begin = length(keys)
        keys += text
        name = key.split(" ")[0]
        told.append((begin, length(keys), KEY_NAMES.get(name, name)))
    first_cell = cells - length(keys)
    places += [(first_cell + begin, first_cell + end, name) for begin, end, name in told if first_cell + begin >= at]
    return spread(line, keys, cells, theme.BAR), places


def _said(pages: Sequence[str], page: str, cells: int, said: Line, played: Line) -> tuple[Line, list[Place]]:
    """Return what is said to the user for some seconds, and beside it as much as leaves it whole."""
    named, places = _pages(pages, page, cells)
    digits, narrow = _pages(pages, page, 0)
    nothing: tuple[Line, list[Place]] = [], []
    forms = (([*named, *played], places), (named, places), (digits, narrow), nothing)
    line, told = next((one for one in forms if length(one[0]) + length(said) <= cells), nothing)
    return spread(line, cut(said, cells - length(line)), cells, theme.BAR), told


def _pages(pages: Sequence[str], page: str, cells: int) -> tuple[Line, list[Place]]:
    """Digits and names of the pages; the one on screen stands out."""
    line: Line = [Segment(" ", theme.BAR)]
    places: list[Place] = []
    is_tight = 0 < cells < _CELLS_PER_PAGE * len(pages)
    for digit, name in enumerate(PAGES, 1):
        if name not in pages or len(pages) < 2:
            continue
        is_shown = name == page
        at = length(line)
        is_named = cells >= NAMED_FROM or (is_shown and cells >= ONE_NAMED_FROM)
        text = f" {digit} {name} " if is_named else f"{digit} " if is_tight else f" {digit} "
        if is_shown:
            line.append(Segment(text, theme.PAGE))
        else:
            line += [Segment(text[:2], theme.KEY), Segment(text[2:], theme.BAR_DIM)]
        places.append((at, at + len(text), str(digit)))
    return line, places


def _key(key: str, what: str) -> Line:
    return [Segment(" ", theme.BAR), Segment(key, theme.KEY), Segment(f" {what} ", theme.BAR_DIM)]
