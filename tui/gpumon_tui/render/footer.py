"""The footer: pages at the left, applicable keys at the right, and the position in a recording."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import floor
from typing import TYPE_CHECKING, NamedTuple

from rich.segment import Segment

from gpumon.common.numbers import is_known
from gpumon.model import units
from gpumon.model.origin import Capability
from gpumon_tui import palette, theme
from gpumon_tui.freshness import END
from gpumon_tui.glyphs import spelled
from gpumon_tui.keybindings import PAGES
from gpumon_tui.render.text_width import Line, cut, length, safe, spread

if TYPE_CHECKING:
    from gpumon_tui.state import View


NAMED_FROM, ONE_NAMED_FROM = 100, 60
"""Widths from which all pages, and from which the current page, are shown with names; below, the keys need the room."""
_CELLS_PER_PAGE = 8
"""With fewer cells per page, the digits are set closer together, to leave room for the number of findings."""
KEY_NAMES = {
    "?": "question_mark", "+": "plus", "-": "minus", "/": "slash", "!": "exclamation_mark", "Esc": "escape",
    "↵": "enter", "[": "left_square_bracket", "]": "right_square_bracket", "{": "left_curly_bracket",
    "^Z": "ctrl+z", "F2": "f2", ":": "colon", "Space": "space", "Tab": "tab",
}  # fmt: skip
"""Textual's names of keys, by their displayed symbols."""
PINNED = ("q", "?")
"""Keys that are always shown, at the end; help is the last."""
Place = tuple[int, int, str]
"""First cell, end cell (exclusive), and Textual's name of the equivalent key."""


def footer(
    pages: Sequence[str], page: str, bindings: Sequence[tuple[str, str]], cells: int, said: str = "",
    is_ascii: bool = False, played: Line | None = None, briefs: Mapping[str, str] | None = None,
) -> tuple[Line, list[Place]]:  # fmt: skip
    """Return the pages at the left, as many keys as fit at the right or the message `said`, and the clickable ranges.

    `played`, the position in a recording, follows the pages. `briefs`: short descriptions used for keys that would not
    fit otherwise.
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
    """Return the line with a message, and as many pages as fit next to the complete message."""
    named, places = _pages(pages, page, cells)
    digits, narrow = _pages(pages, page, 0)
    nothing: tuple[Line, list[Place]] = [], []
    forms = (([*named, *played], places), (named, places), (digits, narrow), nothing)
    line, told = next((one for one in forms if length(one[0]) + length(said) <= cells), nothing)
    return spread(line, cut(said, cells - length(line)), cells, theme.BAR), told


def _pages(pages: Sequence[str], page: str, cells: int) -> tuple[Line, list[Place]]:
    """Return digits and names of the pages; the current one is highlighted."""
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


BAR_FROM, TEXT_FROM = 100, 60
"""Widths from which the position has a bar, and from which it is shown."""
_WIDE, _BAR, _WIDE_BAR = 160, 8, 24
_DONE, _REST = palette.ink("key", "panel"), palette.ink("track", "panel")


class Playing(NamedTuple):
    """A position in a recording."""

    at: float
    """Seconds since the start, rounded down except at the end."""
    whole: float
    """Duration in seconds; NaN if unknown."""


def playing(view: View) -> Playing | None:
    """Return the position on screen; None if it is not a recording."""
    begin, end = view.played
    if view.frame is None or Capability.NOW in view.origin.capabilities or not is_known(begin):
        return None
    whole = end - begin  # the last frame is up to one tick before the end
    is_over = view.freshness.edge == END and is_known(whole)
    return Playing(whole if is_over else floor(max(0.0, view.now - begin)), whole)


def played_line(of: Playing, cells: int) -> Line:
    """Return the position as text, with a bar if there is room and the end is known."""
    if cells < TEXT_FROM:
        return []
    at, whole = units.duration(of.at), units.duration(of.whole) if is_known(of.whole) else ""
    line: Line = [Segment(f"  {at}", theme.BAR_STRONG)]
    if not whole:
        return [*line, Segment(" played ", theme.BAR_DIM)]
    if cells < BAR_FROM:
        return [*line, Segment(f" of {whole} ", theme.BAR_DIM)]
    room = _WIDE_BAR if cells >= _WIDE else _BAR
    halves = round(2 * room * min(1.0, of.at / of.whole)) if of.whole > 0 else 2 * room
    done = "━" * (halves // 2) + "╸" * (halves % 2)
    bar = [Segment(" ", theme.BAR), Segment(done, _DONE), Segment("━" * (room - len(done)), _REST)]
    return [*line, *bar, Segment(f" {whole} ", theme.BAR_DIM)]
