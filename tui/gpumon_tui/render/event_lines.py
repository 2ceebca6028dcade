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


class EventButton(NamedTuple):
    """A clickable range of cells in the first line."""

    begin: int
    end: int
    group: str
    """Group shown on a click; empty for the filter."""


class EventHead(NamedTuple):
    """Content of the first line."""

    shown: int
    total: int
    group: str
    counts: Mapping[str, int]
    gpu: str
    """Number of the GPU that rows are filtered by, or empty."""
    text: str
    is_typing: bool


class EventColumns(NamedTuple):
    """Width of each column; 0 if it does not fit."""

    time: int
    label: int
    gpu: int
    user: int
    text: int
    duration: int


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
    return fixed._replace(text=max(4, cells - used))


def head_line(head: EventHead, cells: int) -> tuple[Line, list[EventButton]]:
    """Return title, groups and filter, and their clickable ranges."""
    left_margin = edge(cells)
    count = f"{head.shown} of {head.total}" if head.shown != head.total else str(head.total)
    line: Line = [Segment(" " * left_margin), Segment("Events", _TITLE), Segment(f"  {count}", _TEXT)]
    if head.gpu:
        line.append(Segment(f"  GPU {head.gpu} only", palette.ink("key")))
    right: Line = [Segment("/", _KEY), Segment(" filter", _DIM), Segment(" " * left_margin)] if head.total else []
    if head.text or head.is_typing:
        typed_text = safe(head.text)[-max(4, min(30, cells // 3)) :]
        caret = Segment("▏", _CARET) if head.is_typing else Segment(" ", _FIELD)
        right = [Segment("/ ", _KEY), Segment(f" {typed_text}", _FIELD), caret, Segment(" " * left_margin)]
    room = cells - length(line) - length(right) - 3
    names = [name for name in head.counts if head.counts[name] or name in (ALL, head.group)]
    while len(names) > 1 and sum(len(f" {name} {head.counts[name]} ") for name in names) > room:
        removable = [name for name in names if name != head.group]
        names.remove(removable[-1])
    buttons: list[EventButton] = []
    line.append(Segment("   "))
    for name in names:
        text = f" {name} {head.counts[name]} "
        if length(line) + len(text) > cells - length(right):
            break
        buttons.append(EventButton(length(line), length(line) + len(text), name))
        line.append(Segment(text, _CHOSEN if name == head.group else _DIM))
    free_cells = cells - length(line) - length(right)
    if free_cells < 0:
        return cut(line, cells), buttons
    line += [Segment(" " * free_cells), *right]
    buttons.append(EventButton(cells - length(right), cells, ""))
    return line, buttons


def heading_line(room: EventColumns, cells: int) -> Line:
    """Return the column headings."""
    gap = " " * (2 if cells >= 100 else 1)
    names = (
        (fit("time", room.time, right=cells >= 60), room.time), (fit("  what", room.label + 2), room.label),
        (fit("GPU", room.gpu), room.gpu),
        (fit("user", room.user), room.user), (fit("", room.text), room.text),
        (fit("took", room.duration, right=True), room.duration),
    )  # fmt: skip
    text = gap.join([title for title, cells_of_column in names if cells_of_column])
    return [Segment(fit(" " * edge(cells) + text, cells), _HEADING)]


def row_line(row: EventRow, room: EventColumns, cells: int, now: float, *, chosen: bool, is_own: bool) -> Line:
    """Return the row of an event; `is_own`: it concerns this user."""
    background = _SELECTED if chosen else Style.null()
    gap = Segment(" " * (2 if cells >= 100 else 1), background)
    glyph, role = row.mark
    mark_style = palette.ink(role, bold=role in _BOLD)
    is_dim = role == "dim"
    gpu = row.gpu if room.gpu > 5 else row.gpu.removeprefix("GPU ")
    line: Line = [_MARK, Segment(" " * (edge(cells) - 1), background)] if chosen else [Segment(" " * edge(cells))]
    line += [
        Segment(fit(time_text(row.time, now, room.time), room.time, right=True), _DIM + background), gap,
        Segment(f"{glyph} ", mark_style + background),
        Segment(fit(row.event.kind.label, room.label), mark_style + background), gap,
        Segment(fit(gpu, room.gpu), (_DIM if is_dim else palette.ink("strong")) + background), gap,
    ]  # fmt: skip
    if room.user:
        line += [Segment(fit(row.user, room.user), (_TEXT if is_own else _DIM) + background), gap]
    words = row.text if room.duration or not row.duration else ", ".join(filter(None, (row.text, row.duration)))
    line.append(Segment(fit(words, room.text), (_DIM if is_dim else _TEXT) + background))
    if room.duration:
        line += [
            gap,
            Segment(fit(row.duration, room.duration, right=True), (mark_style if row.is_open else _DIM) + background),
        ]
    return [*line, Segment(" " * max(0, cells - length(line)), background)]


def time_text(time: float, now: float, cells: int) -> str:
    """Return the time of day, with the date if it is another day and there is room."""
    text, today = units.moment(time), units.moment(now)
    if text[:10] == today[:10] or len(text) < 19:
        return text[11:][: cells if cells < 8 else 8]
    return text[5:10] if cells < 8 else text[5 : 5 + cells]
