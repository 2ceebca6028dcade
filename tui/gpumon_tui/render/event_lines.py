"""Lines of the events page: groups, headings and rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rich.segment import Segment
from rich.style import Style

from gpumon.model import units
from gpumon_tui import palette
from gpumon_tui.render.event_rows import ALL, EventRow
from gpumon_tui.render.text_width import Line, cut, fit, length, safe

_TITLE, _TEXT, _DIM, _FAINT = (
    palette.ink("strong", bold=True), palette.ink("text"), palette.ink("dim"), palette.ink("faint"),
)  # fmt: skip
_CHOSEN, _KEY = palette.ink("strong", "select", bold=True), palette.ink("key", bold=True)
_HEADING = palette.ink("dim", "panel")
_FIELD, _CARET = palette.ink("strong", "panel"), palette.ink("key", "panel")
_SELECTED = Style(bgcolor=palette.color("select"))
_MARK = Segment("▌", palette.ink("key"))
_BOLD = ("crit", "warn")


class EventPlace(NamedTuple):
    """A clickable range of cells in the first line."""

    begin: int
    end: int
    group: str
    """Group shown on a click; empty for the filter."""


class EventHead(NamedTuple):
    """Content of the first line."""

    shown: int
    there: int
    group: str
    counts: Mapping[str, int]
    gpu: str
    """Number of the GPU that rows are filtered by, or empty."""
    text: str
    is_typed: bool


class EventColumns(NamedTuple):
    """Width of each column; 0 if it does not fit."""

    time: int
    label: int
    gpu: int
    user: int
    words: int
    took: int


def edge(cells: int) -> int:
    """Return the margin at each side in cells."""
    return 2 if cells >= 100 else 1


def columns(cells: int) -> EventColumns:
    """Return the columns that fit."""
    if cells < 60:
        fixed = EventColumns(5, 13, 5, 0, 0, 0)
    elif cells < 100:
        fixed = EventColumns(11, 18, 8, 8, 0, 0)
    else:
        fixed = EventColumns(11, 18, 8, 10, 0, 15)
    gap = 2 if cells >= 100 else 1
    used = sum(room + gap for room in fixed if room) + 2 + 2 * edge(cells)
    return fixed._replace(words=max(4, cells - used))


def head(of: EventHead, cells: int) -> tuple[Line, list[EventPlace]]:
    """Return title, groups and filter, and their clickable ranges."""
    side = edge(cells)
    count = f"{of.shown} of {of.there}" if of.shown != of.there else str(of.there)
    line: Line = [Segment(" " * side), Segment("Events", _TITLE), Segment(f"  {count}", _TEXT)]
    if of.gpu:
        line.append(Segment(f"  GPU {of.gpu} only", palette.ink("key")))
    right: Line = [Segment("/", _KEY), Segment(" filter", _DIM), Segment(" " * side)] if of.there else []
    if of.text or of.is_typed:
        shown = safe(of.text)[-max(4, min(30, cells // 3)) :]
        caret = Segment("▏", _CARET) if of.is_typed else Segment(" ", _FIELD)
        right = [Segment("/ ", _KEY), Segment(f" {shown}", _FIELD), caret, Segment(" " * side)]
    room = cells - length(line) - length(right) - 3
    names = [name for name in of.counts if of.counts[name] or name in (ALL, of.group)]
    while len(names) > 1 and sum(len(f" {name} {of.counts[name]} ") for name in names) > room:
        spare = [name for name in names if name != of.group]
        names.remove(spare[-1])
    places: list[EventPlace] = []
    line.append(Segment("   "))
    for name in names:
        text = f" {name} {of.counts[name]} "
        if length(line) + len(text) > cells - length(right):
            break
        places.append(EventPlace(length(line), length(line) + len(text), name))
        line.append(Segment(text, _CHOSEN if name == of.group else _DIM))
    left = cells - length(line) - length(right)
    if left < 0:
        return cut(line, cells), places
    line += [Segment(" " * left), *right]
    places.append(EventPlace(cells - length(right), cells, ""))
    return line, places


def heading(room: EventColumns, cells: int) -> Line:
    """Return the column headings."""
    gap = " " * (2 if cells >= 100 else 1)
    names = (
        (fit("time", room.time, right=cells >= 60), room.time), (fit("  what", room.label + 2), room.label),
        (fit("GPU", room.gpu), room.gpu),
        (fit("user", room.user), room.user), (fit("", room.words), room.words),
        (fit("took", room.took, right=True), room.took),
    )  # fmt: skip
    text = gap.join([part for part, own in names if own])
    return [Segment(fit(" " * edge(cells) + text, cells), _HEADING)]


def row_line(row: EventRow, room: EventColumns, cells: int, now: float, *, chosen: bool, own: bool) -> Line:
    """Return the row of an event; `own`: it concerns this user."""
    under = _SELECTED if chosen else Style.null()
    gap = Segment(" " * (2 if cells >= 100 else 1), under)
    glyph, role = row.mark
    what = palette.ink(role, bold=role in _BOLD)
    quiet = role == "dim"
    gpu = row.gpu if room.gpu > 5 else row.gpu.removeprefix("GPU ")
    line: Line = [_MARK, Segment(" " * (edge(cells) - 1), under)] if chosen else [Segment(" " * edge(cells))]
    line += [
        Segment(fit(when(row.time, now, room.time), room.time, right=True), _DIM + under), gap,
        Segment(f"{glyph} ", what + under), Segment(fit(row.event.kind.label, room.label), what + under), gap,
        Segment(fit(gpu, room.gpu), (_DIM if quiet else palette.ink("strong")) + under), gap,
    ]  # fmt: skip
    if room.user:
        line += [Segment(fit(row.user, room.user), (_TEXT if own else _DIM) + under), gap]
    words = row.words if room.took or not row.took else ", ".join(filter(None, (row.words, row.took)))
    line.append(Segment(fit(words, room.words), (_DIM if quiet else _TEXT) + under))
    if room.took:
        line += [gap, Segment(fit(row.took, room.took, right=True), (what if row.is_open else _DIM) + under)]
    return [*line, Segment(" " * max(0, cells - length(line)), under)]


def when(time: float, now: float, cells: int) -> str:
    """Return the time of day, with the date if it is another day and there is room."""
    text, today = units.moment(time), units.moment(now)
    if text[:10] == today[:10] or len(text) < 19:
        return text[11:][: cells if cells < 8 else 8]
    return text[5:10] if cells < 8 else text[5 : 5 + cells]
