"""The header, the line below it with the reason for missing data, and the footer."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import floor
from typing import TYPE_CHECKING, NamedTuple

from rich.segment import Segment
from textual import events
from textual.message import Message

from gpumon.common.numbers import is_known
from gpumon.diagnosis.finding import FindingGroup, Severity
from gpumon.model import units
from gpumon.model.origin import Capability
from gpumon_tui import theme
from gpumon_tui.appearance import spell_keys
from gpumon_tui.freshness import END
from gpumon_tui.keybindings import CHART, PAGES, action_name, footer_keys, page_keys
from gpumon_tui.render import header
from gpumon_tui.render.bars import progress_line
from gpumon_tui.render.text_width import ClickRange, Line, cut, length, safe, spread
from gpumon_tui.state import View
from gpumon_tui.widgets.lines import Lines

if TYPE_CHECKING:
    from gpumon_tui.state import View


_SIMULATION = (("s", "simulation"),)
FINDINGS_KEY = "a"
"""Displayed name of the key that opens the findings."""


def state_keys(
    view: View, page: str, *, is_simulated: bool = False, can_seek: bool = False
) -> tuple[tuple[str, str], ...]:
    """Return the keys of a page that apply only in the current state, with their descriptions."""
    keys = (("s", "back"),) if is_simulated else _SIMULATION if view.has_simulation else ()
    if view.shows_past:
        keys = (("0", "to now"), *keys)
    if can_seek:
        keys = (("{ }", "10 min") if page == CHART else ("[ ]", "1 min"), *keys)
    if view.paused and (key := next((key for key in page_keys(page) if action_name(key) == "pause"), None)):
        keys = ((key.key_display or "", "resume"), *keys)
    if findings_text := count_text(view.findings.groups()):
        keys = (*keys, (FINDINGS_KEY, findings_text))
    return keys


def _without(key: str, hidden: Collection[str]) -> str:
    """Return the key name without alternatives that are taken: `0` of `Esc 0` while Escape has another meaning."""
    return " ".join(name for name in key.split(" ") if name not in hidden)


class Bar(Lines):
    """A line above or below the page. Mouse events on it are not meant for the page."""

    dims = False

    def _stop_event(self, event: events.MouseEvent) -> None:
        """Stop an event before it reaches the page."""
        event.stop()

    on_click = on_mouse_down = on_mouse_move = on_mouse_scroll_up = on_mouse_scroll_down = _stop_event


class HeaderBar(Bar):
    """Source, host, freshness and time; redrawn more often than frames arrive."""

    ground = "panel"

    def draw(self, cells: int, height: int) -> list[Line]:
        return [header.header(self.view, cells)]


class ReasonLine(Bar):
    """The reason why no newer data arrive; it takes a row only while there is one."""

    DEFAULT_CSS = "ReasonLine { display: none; }"

    def draw(self, cells: int, height: int) -> list[Line]:
        return [header.reason(self.view, cells)]


class Footer(Bar):
    """The pages, and the keys that apply on the current page; both can be clicked."""

    ground = "panel"

    class Pressed(Message):
        """Posted when a key or page in the footer was clicked; `key` is Textual's name of the equivalent key."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    def __init__(self, view: View, page: str) -> None:
        super().__init__(view)
        self.page = page
        """Name of the page."""
        self.pages: Sequence[str] = PAGES
        """Names of all pages."""
        self.bindings = footer_keys(page)
        self.extra_keys: Sequence[tuple[str, str]] = ()
        """Keys that apply only in the current state."""
        self.hidden_keys: frozenset[str] = frozenset()
        """Keys in `bindings` that currently have no effect."""

    def draw(self, cells: int, height: int) -> list[Line]:
        taken_keys = {key for key, _ in self.extra_keys}
        left_out = taken_keys | self.hidden_keys
        other_bindings = (
            (_without(key, taken_keys), description) for key, description in self.bindings if key not in left_out
        )
        bindings = (*self.extra_keys, *(binding for binding in other_bindings if binding[0]))
        return [self._line(bindings, cells)]

    def on_click(self, event: events.MouseEvent) -> None:
        """Run the action of the clicked key."""
        event.stop()
        if key := self.action_at(event.x, event.y):
            self.post_message(self.Pressed(key))

    def _line(self, bindings: Sequence[tuple[str, str]], cells: int) -> Line:
        view = self.view
        position = playback_position(view)
        line, self.click_ranges = footer(
            self.pages, self.page, bindings, cells, message=view.message, is_ascii=view.appearance.is_ascii,
            played=position_line(position, cells) if position else None,
            briefs={FINDINGS_KEY: brief_count_text(view.findings.groups())},
        )  # fmt: skip
        return line


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


def footer(
    pages: Sequence[str], page: str, bindings: Sequence[tuple[str, str]], cells: int, message: str = "",
    is_ascii: bool = False, played: Line | None = None, briefs: Mapping[str, str] | None = None,
) -> tuple[Line, list[ClickRange]]:  # fmt: skip
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
    key_ranges: list[ClickRange] = []
    for key, text in (*fitting, *pinned_texts):
        begin = length(keys)
        keys += text
        name = key.split(" ")[0]
        key_ranges.append(ClickRange(begin, length(keys), KEY_NAMES.get(name, name)))
    first_cell = cells - length(keys)
    ranges += [
        ClickRange(first_cell + begin, first_cell + end, name)
        for begin, end, name, _ in key_ranges
        if first_cell + begin >= pages_end
    ]
    return spread(line, keys, cells, theme.BAR), ranges


def _message_line(
    pages: Sequence[str], page: str, cells: int, message: Line, position: Line
) -> tuple[Line, list[ClickRange]]:
    """Return the line with a message, and as many pages as fit next to the complete message."""
    named, ranges_of_pages = _pages(pages, page, cells)
    digits, narrow = _pages(pages, page, 0)
    nothing: tuple[Line, list[ClickRange]] = [], []
    forms = (([*named, *position], ranges_of_pages), (named, ranges_of_pages), (digits, narrow), nothing)
    line, ranges = next((form for form in forms if length(form[0]) + length(message) <= cells), nothing)
    return spread(line, cut(message, cells - length(line)), cells, theme.BAR), ranges


def _pages(pages: Sequence[str], page: str, cells: int) -> tuple[Line, list[ClickRange]]:
    """Return digits and names of the pages; the current one is highlighted."""
    line: Line = [Segment(" ", theme.BAR)]
    ranges: list[ClickRange] = []
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
        ranges.append(ClickRange(begin, begin + len(text), str(digit)))
    return line, ranges


def _key(key: str, description: str) -> Line:
    return [Segment(" ", theme.BAR), Segment(key, theme.KEY), Segment(f" {description} ", theme.BAR_DIM)]


BAR_FROM, TEXT_FROM = 100, 60
"""Widths from which the position has a bar, and from which it is shown."""
_WIDE, _BAR, _WIDE_BAR = 160, 8, 24
_DONE, _REST = theme.ink("key", "panel"), theme.ink("track", "panel")


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
    share = position.elapsed / position.duration if position.duration > 0 else 1.0
    bar = [Segment(" ", theme.BAR), *progress_line(share, bar_cells, _DONE, _REST)]
    return [*line, *bar, Segment(f" {duration} ", theme.BAR_DIM)]


def count_text(groups: Sequence[FindingGroup]) -> str:
    """Return the number of findings as text: `2 findings`; empty for none."""
    return units.counted(len(groups), "finding") if groups else ""


def brief_count_text(groups: Sequence[FindingGroup]) -> str:
    """Return a short form: `△2`, or `▲2` if one of them is critical; empty for none."""
    is_critical = any(group.first.severity is Severity.CRITICAL for group in groups)
    return f"{'▲' if is_critical else '△'}{len(groups)}" if groups else ""
