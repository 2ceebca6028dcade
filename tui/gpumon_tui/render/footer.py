"""The last line of the screen: pages at the left, keys that apply at the right."""

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


BAR_FROM, TEXT_FROM = 100, 60
"""Cells of the screen from which there is a bar, and from which there is anything."""
_WIDE, _BAR, _WIDE_BAR = 160, 8, 24
_DONE, _REST = palette.ink("key", "panel"), palette.ink("track", "panel")


class Playing(NamedTuple):
    """A place in a recording."""

    at: float
    """Seconds since its begin: whole ones, but at its end."""
    whole: float
    """Seconds that it lasts; NaN where that is not known."""


def playing(view: View) -> Playing | None:
    """Return the place that is on screen; None where that is no recording."""
    begin, end = view.played
    if view.frame is None or Capability.NOW in view.origin.capabilities or not is_known(begin):
        return None
    whole = end - begin  # the last frame is up to a tick before the end
    is_over = view.freshness.edge == END and is_known(whole)
    return Playing(whole if is_over else floor(max(0.0, view.now - begin)), whole)


def played_line(of: Playing, cells: int) -> Line:
    """Return the place in words, with a bar where the screen has room for one and the end is known."""
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
