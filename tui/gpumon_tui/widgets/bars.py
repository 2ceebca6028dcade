"""The header, the line below it with the reason for missing data, and the footer."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from textual import events
from textual.message import Message

from gpumon_tui.cache import Cache
from gpumon_tui.keybindings import CHART, PAGES, action_name, footer_keys, page_keys
from gpumon_tui.render import footer, header
from gpumon_tui.render.findings import brief_count_text, count_text
from gpumon_tui.render.footer import playback_position, position_line
from gpumon_tui.render.text_width import Line
from gpumon_tui.state import View
from gpumon_tui.widgets.lines import Lines, Picture

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


class HeaderPicture(Picture):
    """Source, host, freshness and time; redrawn more often than frames arrive."""

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._cache: Cache[list[Line]] = Cache()

    def lines(self) -> list[Line]:
        view, cells = self.view, self.size.width
        times = view.freshness, view.paused, view.shows_past
        shows = (view.origin, view.driver, view.hostname, times, view.frame, cells)
        return self._cache.get(0, shows, lambda: [header.header(view, cells)])


class ReasonPicture(Picture):
    """The reason why no newer data arrive."""

    def lines(self) -> list[Line]:
        return [header.reason(self.view, self.size.width)]


class FooterPicture(Picture):
    """The pages, and the keys that apply on the current page."""

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
        self._ranges: Sequence[tuple[int, int, str]] = ()
        self._cache: Cache[list[Line]] = Cache()

    def lines(self) -> list[Line]:
        taken_keys = {key for key, _ in self.extra_keys}
        left_out = taken_keys | self.hidden_keys
        other_bindings = (
            (_without(key, taken_keys), description) for key, description in self.bindings if key not in left_out
        )
        bindings = (*self.extra_keys, *(binding for binding in other_bindings if binding[0]))
        cells, message, is_ascii = self.size.width, self.view.message, self.view.appearance.is_ascii
        shows = (self.page, bindings, cells, message, is_ascii, playback_position(self.view))
        return self._cache.get(0, shows, lambda: [self._line(bindings, cells)])

    def at(self, cell: int) -> str:
        """Return Textual's name of the key at a cell; empty if there is none."""
        return next((key for begin, end, key in self._ranges if begin <= cell < end), "")

    def _line(self, bindings: Sequence[tuple[str, str]], cells: int) -> Line:
        view = self.view
        position = playback_position(view)
        line, self._ranges = footer.footer(
            self.pages, self.page, bindings, cells, message=view.message, is_ascii=view.appearance.is_ascii,
            played=position_line(position, cells) if position else None,
            briefs={FINDINGS_KEY: brief_count_text(view.findings.groups())},
        )  # fmt: skip
        return line


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
    """The line above the page."""

    ground = "panel"


class ReasonLine(Bar):
    """The line below the header; it takes a row only while there is a reason to show."""

    DEFAULT_CSS = "ReasonLine { display: none; }"


class Footer(Bar):
    """The line below the page; its keys can be clicked."""

    ground = "panel"

    class Pressed(Message):
        """Posted when a key or page in the footer was clicked; `key` is Textual's name of the equivalent key."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    def on_click(self, event: events.MouseEvent) -> None:
        """Run the action of the clicked key."""
        event.stop()
        if isinstance(self.picture, FooterPicture) and (key := self.picture.at(event.x)):
            self.post_message(self.Pressed(key))
