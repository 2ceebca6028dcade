"""The first line of the screen, and the line of keys at its foot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.segment import Segment

from gpumon import units
from gpumon.metrics import BY_NAME
from gpumon.missing import is_known
from gpumon_tui import theme
from gpumon_tui.keys import PAGES
from gpumon_tui.levels import level
from gpumon_tui.renderables.text_width import Line, cut, length, safe, spread

if TYPE_CHECKING:  # a view draws with renderables
    from gpumon_tui.view import View

NAMED_FROM = 80
"""Cells from which all pages stand with their names."""
SHOWN_NAMED_FROM = 60
"""Cells from which the page on screen does."""
KEY_NAMES = {
    "?": "question_mark", "+": "plus", "-": "minus", "/": "slash", "!": "exclamation_mark", "Esc": "escape",
    "↵": "enter",
}  # fmt: skip
"""Textual's names of keys that are shown as they are written."""


def header(view: View, cells: int) -> Line:
    """Where the numbers come from and how fresh they are; parts that have no room leave in turn."""
    left: Line = [Segment(" gpumon ", theme.KEY)]
    if view.origin.label:
        left += [Segment(" ", theme.BAR), Segment(f" {safe(view.origin.label)} ", theme.LABEL)]
    if view.paused:
        left += [Segment(" ", theme.BAR), Segment(" PAUSED ", theme.LABEL)]
    if view.shown.is_past:
        left += [Segment(" ", theme.BAR), Segment(" CHARTS IN THE PAST ", theme.LABEL)]
    left.append(_state(view))
    clock: Line = [Segment(f"  {units.clock(view.now) if view.frame else ''} ", theme.BAR_STRONG)]
    right = [*_host(view), *clock]
    if length(left) + length(right) > cells:
        right = clock if length(left) + length(clock) <= cells else []
    place: Line = [Segment(f" {safe(view.hostname)}", theme.BAR_STRONG)]
    if view.driver.version:
        place.append(Segment(f"  driver {safe(view.driver.version)}", theme.BAR_DIM))
    if view.driver.runtime:
        place.append(Segment(f"  {safe(view.driver.runtime)}", theme.BAR_DIM))
    while place and length(left) + length(place) + length(right) > cells:
        place.pop()
    return spread([*left[:1], *place, *left[1:]], right, cells, theme.BAR)


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
        text = f" {digit} {name} " if cells >= (SHOWN_NAMED_FROM if is_shown else NAMED_FROM) else f" {digit} "
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


def _state(view: View) -> Segment:
    fresh = view.freshness
    return Segment(f" ● {safe(fresh.text)} ", fresh.style + theme.ON_BAR)


def _host(view: View) -> Line:
    line: Line = []
    for name in ("host.cpu_utilization", "host.memory_used"):
        metric, value = BY_NAME[name], view.host(name)
        limit = view.host(metric.limit) if metric.limit else float("nan")
        badness = level(metric, value, limit)
        style = theme.LEVELS[badness] + theme.ON_BAR if badness else theme.BAR_STRONG
        if view.age > 0:
            style = theme.BAR_DIM
        text = units.metric(value, metric)
        if is_known(limit):
            text = units.of_total(value, limit)
        line += [Segment(f"  {metric.column} ", theme.BAR_DIM), Segment(text, style)]
    return line
