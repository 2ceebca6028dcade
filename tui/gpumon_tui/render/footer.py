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
from gpumon_tui.glyphs import spell_keys
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
PINNED_KEYS = ("q", "?")
"""Keys that are always shown, at the end; help is the last."""
KeyRange = tuple[int, int, str]
"""First cell, end cell (exclusive), and Textual's name of the equivalent key."""


def footer(
    pages: Sequence[str], page: str, bindings: Sequence[tuple[str, str]], cells: int, message: str = "",
    is_ascii: bool = False, played: Line | None = None, briefs: Mapping[str, str] | None = None,
) -> tuple[Line, list[KeyRange]]:  # fmt: skip
    """Return the pages at the left, as many keys as fit at the right or `message`, and the clickable ranges.

    `played`, the position in a recording, follows the pages. `briefs`: short descriptions used for keys that would not
    fit otherwise.
    """
    if message:
        return _message_line(pages, page, cells, [Segment(f" {safe(message)} ", theme.BAR_STRONG)], played or [])
    line, ranges = _pages(pages, page, cells)
    line += played or []
    pages_end = length(line)
    key_texts = [(key, _key(spell_keys(key) if is_ascii else key, description)) for key, description in bindings]
    pinned_texts = [key_text for pinned in PINNED_KEYS for key_text in key_texts if key_text[0] == pinned]
    free_cells = cells - pages_end - 1 - sum(length(text) for _, text in pinned_texts)
    fitting = []
    for key_text in key_texts:
        if key_text in pinned_texts:
            continue
        key, text = key_text
        if length(text) > free_cells and briefs and (brief := briefs.get(key)):
            text = _key(key, brief)
        free_cells -= length(text)
        if free_cells < 0:
            break
        fitting.append((key, text))
    keys: Line = []
    key_ranges: list[KeyRange] = []
    for key, text in (*fitting, *pinned_texts):
        begin = length(keys)
        keys += text
        name = key.split(" ")[0]
        key_ranges.append((begin, length(keys), KEY_NAMES.get(name, name)))
    first_cell = cells - length(keys)
    ranges += [
        (first_cell + begin, first_cell + end, name)
        for begin, end, name in key_ranges
        if first_cell + begin >= pages_end
    ]
    return spread(line, keys, cells, theme.BAR), ranges


def _message_line(
    pages: Sequence[str], page: str, cells: int, message: Line, position: Line
) -> tuple[Line, list[KeyRange]]:
    """Return the line with a message, and as many pages as fit next to the complete message."""
    named, ranges_of_pages = _pages(pages, page, cells)
    digits, narrow = _pages(pages, page, 0)
    nothing: tuple[Line, list[KeyRange]] = [], []
    forms = (([*named, *position], ranges_of_pages), (named, ranges_of_pages), (digits, narrow), nothing)
    line, ranges = next((form for form in forms if length(form[0]) + length(message) <= cells), nothing)
    return spread(line, cut(message, cells - length(line)), cells, theme.BAR), ranges


def _pages(pages: Sequence[str], page: str, cells: int) -> tuple[Line, list[KeyRange]]:
    """Return digits and names of the pages; the current one is highlighted."""
    line: Line = [Segment(" ", theme.BAR)]
    ranges: list[KeyRange] = []
    is_narrow = 0 < cells < _CELLS_PER_PAGE * len(pages)
    for digit, name in enumerate(PAGES, 1):
        if name not in pages or len(pages) < 2:
            continue
        is_current = name == page
        begin = length(line)
        is_named = cells >= NAMED_FROM or (is_current and cells >= ONE_NAMED_FROM)
        text = f" {digit} {name} " if is_named else f"{digit} " if is_narrow else f" {digit} "
        if is_current:
            line.append(Segment(text, theme.PAGE))
        else:
            line += [Segment(text[:2], theme.KEY), Segment(text[2:], theme.BAR_DIM)]
        ranges.append((begin, begin + len(text), str(digit)))
    return line, ranges


def _key(key: str, description: str) -> Line:
    return [Segment(" ", theme.BAR), Segment(key, theme.KEY), Segment(f" {description} ", theme.BAR_DIM)]


BAR_FROM, TEXT_FROM = 100, 60
"""Widths from which the position has a bar, and from which it is shown."""
_WIDE, _BAR, _WIDE_BAR = 160, 8, 24
_DONE, _REST = palette.ink("key", "panel"), palette.ink("track", "panel")


class PlaybackPosition(NamedTuple):
    """A position in a recording."""

    elapsed: float
    """Seconds since the start, rounded down except at the end."""
    duration: float
    """Duration in seconds; NaN if unknown."""


def playback_position(view: View) -> PlaybackPosition | None:
    """Return the position on screen; None if it is not a recording."""
    begin, end = view.recording_span
    if view.frame is None or Capability.NOW in view.origin.capabilities or not is_known(begin):
        return None
    duration = end - begin  # the last frame is up to one tick before the end
    is_over = view.freshness.edge == END and is_known(duration)
    return PlaybackPosition(duration if is_over else floor(max(0.0, view.now - begin)), duration)


def position_line(position: PlaybackPosition, cells: int) -> Line:
    """Return the position as text, with a bar if there is room and the end is available."""
    if cells < TEXT_FROM:
        return []
    elapsed, duration = (
        units.duration(position.elapsed),
        units.duration(position.duration) if is_known(position.duration) else "",
    )
    line: Line = [Segment(f"  {elapsed}", theme.BAR_STRONG)]
    if not duration:
        return [*line, Segment(" played ", theme.BAR_DIM)]
    if cells < BAR_FROM:
        return [*line, Segment(f" of {duration} ", theme.BAR_DIM)]
    bar_cells = _WIDE_BAR if cells >= _WIDE else _BAR
    halves = (
        round(2 * bar_cells * min(1.0, position.elapsed / position.duration))
        if position.duration > 0
        else 2 * bar_cells
    )
    played = "━" * (halves // 2) + "╸" * (halves % 2)
    bar = [Segment(" ", theme.BAR), Segment(played, _DONE), Segment("━" * (bar_cells - len(played)), _REST)]
    return [*line, *bar, Segment(f" {duration} ", theme.BAR_DIM)]
