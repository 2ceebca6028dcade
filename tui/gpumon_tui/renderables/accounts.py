"""Lines around the table of accounts: the choice of a window, sums of it, and keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.segment import Segment

from gpumon.reports.usage import Headlines
from gpumon.storage.usage.summary import WINDOW_PERIODS
from gpumon_tui import theme
from gpumon_tui.glyphs import spelled
from gpumon_tui.renderables.attention import wrapped
from gpumon_tui.renderables.text_width import Line, cut, fit, length, safe

TITLES = ("GPU-hours held", "Used", "Allocated, idle", "Not seen")
"""Of the headlines."""
NARROW = 60
"""Cells below which headlines are numbers alone, and the choice of a window has a line of its own."""
_LABEL, _VALUE = 17, 12
"""Cells of a headline's title and number."""


class AccountPlace(NamedTuple):
    """Cells that can be clicked."""

    row: int
    begin: int
    end: int
    key: str
    """Textual's name of the key that does the same."""


class Choice(NamedTuple):
    """Something that a key chooses."""

    key: str
    """As it is shown; empty for one that its neighbor's key leads to."""
    name: str
    press: str
    """Textual's name of the key."""
    is_chosen: bool = False


def window_lines(
    user: str, period: str, title: str, cells: int, *, is_newest: bool
) -> tuple[list[Line], list[AccountPlace]]:
    """Return the first lines: whose accounts, the choice of a period, and the window with arrows to its neighbors."""
    head: Line = [Segment(" Accounts ", theme.BAR_STRONG)]
    if user:
        head.append(Segment(f"› {safe(user)} ", theme.BAR_STRONG))
    choices = [Choice(one[0], one.title(), one[0], one == period) for one in WINDOW_PERIODS]
    turns: Line = [
        Segment("‹ ", theme.KEY), Segment(title, theme.BAR_STRONG),
        Segment(" › ", theme.BAR_DIM if is_newest else theme.KEY),
    ]  # fmt: skip
    at = cells - length(turns)
    places = [AccountPlace(0, at, at + 2, "left"), AccountPlace(0, cells - 3, cells, "right")]
    if cells >= NARROW:
        buttons, found = _choices(choices, length(head) + 2, 0)
        head = [*head, Segment("  ", theme.BAR), *buttons]
        if length(head) < at:
            return [_filled([*head, Segment(" " * (at - length(head)), theme.BAR), *turns], cells)], [*found, *places]
        head = head[: 1 + bool(user)]
    buttons, found = _choices(choices, 0, 1)
    room = max(0, at)
    first = [*cut(head, room), Segment(" " * (room - min(room, length(head))), theme.BAR), *turns]
    return [_filled(cut(first, cells), cells), _filled(buttons, cells)], [*places, *found]


def choice_line(choices: Sequence[Choice], row: int, cells: int) -> tuple[Line, list[AccountPlace]]:
    """Return a line of choices."""
    line, places = _choices(choices, 1, row, on_bar=False)
    return cut([Segment(" "), *line], cells), places


def _choices(
    choices: Sequence[Choice], at: int, row: int, *, on_bar: bool = True
) -> tuple[Line, list[AccountPlace]]:  # fmt: skip
    line: Line = []
    places = []
    key_style, name_style = (theme.KEY, theme.BAR_DIM) if on_bar else (theme.TITLE, theme.DIM)
    for one in choices:
        key, name = f" {one.key}" if one.key else "", f" {one.name} "
        begin = at + length(line)
        line += [Segment(key, theme.PAGE if one.is_chosen else key_style),
                 Segment(name, theme.PAGE if one.is_chosen else name_style)]  # fmt: skip
        places.append(AccountPlace(row, begin, at + length(line), one.press))
    return line, places


def headline_lines(told: Headlines, cells: int) -> list[Line]:
    """Return the sums of a window, each with its words where there is room for them."""
    lines: list[Line] = []
    for title, value, below in zip(TITLES, told[::2], told[1::2], strict=True):
        head: Line = [Segment(f" {title:<{_LABEL}}", theme.DIM), Segment(fit(value, _VALUE), theme.STRONG)]
        room = cells - length(head) - 1
        words = list(wrapped(safe(below, cells * 4), room)) if cells >= NARROW else []
        indent = Segment(" " * length(head))
        for place, part in enumerate(words or [""]):
            lines.append([*(head if place == 0 else [indent]), Segment(part, theme.DIM)])
    return lines


def key_line(keys: Sequence[Choice], row: int, cells: int, *, is_ascii: bool) -> tuple[Line, list[AccountPlace]]:
    """Return the last line: as many keys as have room; the last one of them always has it."""
    texts = [(one, f" {spelled(one.key) if is_ascii else one.key}", f" {one.name} ") for one in keys]
    room = cells - sum(len(part) for part in texts[-1][1:])
    line: Line = []
    places = []
    for one, key, name in texts:
        if one is not keys[-1] and length(line) + len(key) + len(name) > room:
            continue
        begin = length(line)
        line += [Segment(key, theme.KEY), Segment(name, theme.BAR_DIM)]
        places.append(AccountPlace(row, begin, length(line), one.press))
    return _filled(cut(line, cells), cells), places


def said_line(said: str, cells: int) -> Line:
    """Return the last line where something is said to the user."""
    return _filled(cut([Segment(f" {said} ", theme.BAR_STRONG)], cells), cells)


def _filled(line: Line, cells: int) -> Line:
    return [*line, Segment(" " * max(0, cells - length(line)), theme.BAR)]
