"""The frame around the pages: the digits and the foot open them, keys go to the page, the selection stays."""

from __future__ import annotations

import re
from importlib import import_module
from pkgutil import walk_packages
from typing import Any, ClassVar

import pytest
from rich.segment import Segment
from textual.binding import Binding, BindingType
from textual.events import Key as Press
from textual.pilot import Pilot

from gpumon.common.numbers import is_known
from gpumon_tui import screens
from gpumon_tui.app import GpumonApp
from gpumon_tui.keybindings import (
    CHART,
    EVENTS,
    OVERVIEW,
    PAGE_CLASSES,
    PAGES,
    PROCESSES,
    RARE_ACTIONS,
    RUNS,
    action_name,
    footer_keys,
    key_binding,
    page_bindings,
    page_keys,
)
from gpumon_tui.render.text_width import Line
from gpumon_tui.screens.page import COPIED_MESSAGE, TablePage, TerminalPage, page_class
from gpumon_tui.screens.processes import ProcessesPage
from gpumon_tui.state import View
from gpumon_tui.widgets import bars
from gpumon_tui.widgets.lines import Lines
from tests.tui.fakes import recent
from tests.tui.screen import play, text


class Sheet(Lines):
    """A page's only widget: it says which page this is, and what is selected."""

    DEFAULT_CSS = "Sheet { height: 1fr; }"
    says = ""

    def lines(self) -> list[Line]:
        return [[Segment(f"page {self.says}, {self.view.subject}, {self.size.width}x{self.size.height}")]]


class Other(TerminalPage):
    """A page that counts what its keys did."""

    page_name: ClassVar[str] = CHART
    BINDINGS: ClassVar[list[BindingType]] = [Binding("g", "subject(1)"), Binding("plus", "zoom(1)")]

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self.content = Sheet(view)
        self.content.says = self.page_name
        self.done: list[str] = []
        self.taken = ""

    @property
    def line_widgets(self) -> tuple[Lines, ...]:
        return (self.content,)

    @property
    def extra_keys(self) -> tuple[tuple[str, str], ...]:
        return (("x", "cross out"),)

    def action_zoom(self, step: int) -> None:
        self.done.append(f"zoom {step}")

    def take_key(self, press: Press) -> bool:
        if press.key == "slash":
            self.taken = "typing"
        return bool(self.taken)

    def forget(self) -> None:
        self.done.append("forget")


class Fleeting(Other):
    page_name = EVENTS


HERE = f"{__name__}:"
PAGED = {OVERVIEW: PAGE_CLASSES[OVERVIEW], CHART: HERE + Other.__name__, EVENTS: HERE + Fleeting.__name__}


def cell(app: GpumonApp, label: str) -> tuple[int, int]:
    """Where a label of the foot is."""
    line = text(app)[-1]
    return line.index(label), app.size.height - 1


@pytest.mark.parametrize("name", PAGE_CLASSES)
def test_registered_pages_have_their_names(name: str) -> None:
    assert page_class(name).page_name == name


def test_every_page_is_registered() -> None:
    for module in walk_packages(screens.__path__, "gpumon_tui.screens."):
        import_module(module.name)
    pages = {*TerminalPage.__subclasses__(), *TablePage.__subclasses__()} - {TablePage}
    written = {page for page in pages if page.__module__.startswith("gpumon_tui.screens.")}
    assert written == {page_class(name) for name in PAGE_CLASSES}


def test_digits_open_pages_and_the_overview_is_first() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        assert app.page.page_name == OVERVIEW
        await pilot.press("2")
        await pilot.pause()
        assert text(app)[1].startswith(f"page {CHART}, GPU-0000, 120x38")
        await pilot.press("5")
        await pilot.pause()
        assert f"page {EVENTS}" in text(app)[1]
        await pilot.press("1")
        await pilot.pause()
        assert "page" not in text(app)[1]

    play(recent(), (120, 40), script, pages=PAGED)


def test_missing_page_is_neither_shown_nor_opened() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        before = text(app)
        await pilot.press("3", "4")
        await pilot.pause()
        assert text(app) == before

    assert PROCESSES not in play(recent(), (120, 40), script, pages=PAGED)[-1]


def test_click_on_a_page_in_the_footer_opens_it() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.click(offset=cell(app, EVENTS))
        await pilot.pause()
        assert app.page.page_name == EVENTS
        await pilot.click(offset=cell(app, OVERVIEW))
        await pilot.pause()
        assert app.page.page_name == OVERVIEW

    play(recent(), (120, 40), script, pages=PAGED)


def test_click_on_a_key_in_the_footer_presses_it() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.click(offset=cell(app, "pause"))
        await pilot.pause()
        assert app.view.paused

    play(recent(), (160, 40), script, pages=PAGED)


def test_footer_offers_the_keys_of_the_page() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        assert "cross out" not in text(app)[-1]
        await pilot.press("2")
        await pilot.pause()
        assert "x cross out" in text(app)[-1]

    play(recent(), (160, 40), script, pages=PAGED)


def test_selection_stays_when_pages_change() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("g", "g", "2")
        await pilot.pause()
        assert "GPU-0002" in text(app)[1]
        await pilot.press("g", "1")
        await pilot.pause()
        assert app.view.subject == "GPU-0003"

    play(recent(), (120, 40), script, pages=PAGED)


def test_page_keys_take_precedence() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        window = app.view.window
        await pilot.press("2", "plus")
        await pilot.pause()
        assert isinstance(app.page, Other)
        assert app.page.done == ["zoom 1"]
        assert app.view.window == window
        await pilot.press("1", "plus")
        assert app.view.window > window

    play(recent(), (120, 40), script, pages=PAGED)


def test_page_takes_keys_first_while_typing() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("2", "slash", "q", "1")
        await pilot.pause()
        assert app.page.page_name == CHART
        assert app.is_running

    play(recent(), (120, 40), script, pages=PAGED)


class TestKeysTypedAtOnce:
    """Keys that arrive before the effect of those before them is drawn."""

    @staticmethod
    def screen_after(*keys: str) -> GpumonApp:
        apps: list[GpumonApp] = []

        async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
            apps.append(app)
            for key in keys:
                app.post_message(Press(key, key if len(key) == 1 else None))
            await pilot.pause()
            assert app.is_running

        play(recent(), (120, 40), script)
        return apps[0]

    def test_go_to_the_page_and_the_field_that_they_open(self) -> None:
        app = self.screen_after("3", "slash", "q", "1", "enter", "down")
        assert isinstance(app.page, ProcessesPage)
        assert app.page.table.filter == "q1"

    def test_go_to_the_window_that_they_open_and_then_to_the_page(self) -> None:
        app = self.screen_after("2", "colon", *"theme", "enter", "question_mark", "down", "escape", "4", "5")
        assert app.view.appearance.theme.name == "light"
        assert app.page.page_name == EVENTS
        assert len(app.pages) == 4

    def test_go_to_a_page_and_back(self) -> None:
        app = self.screen_after("2", "m", "1", "g", "2", "g", "1")
        assert app.view.subject == "GPU-0002"


@pytest.mark.parametrize("place", [(60, 0), (16, 39)], ids=["header", "footer"])
def test_click_on_header_or_footer_does_not_reach_the_page(place: tuple[int, int]) -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("2")
        await pilot.click(offset=place)
        await pilot.pause()
        assert not is_known(app.view.chart_time.cursor)
        await pilot.click(offset=(60, 10))
        await pilot.pause()
        assert is_known(app.view.chart_time.cursor)

    play(recent(), (120, 40), script)


def test_pages_fit_a_terminal_of_one_cell() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.resize_terminal(1, 1)
        for page in "12345":
            await pilot.press(page, "question_mark", "escape")
            await pilot.pause()
            assert len(app.screen_stack) == 1
        await pilot.resize_terminal(120, 40)
        await pilot.pause()
        assert text(app)[0].startswith(" gpumon")

    play(recent(), (120, 40), script)


def test_hidden_page_is_not_drawn_until_opened() -> None:
    feed = recent()

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("2")
        await pilot.pause()
        await pilot.press("1")
        other = app.pages[CHART]
        assert isinstance(other, Other)
        drawn = other.content._lines
        feed.advance()
        app.poll()
        await pilot.resize_terminal(100, 30)
        await pilot.pause()
        assert other.content._lines is drawn
        await pilot.press("2")
        await pilot.pause()
        assert "100x28" in text(app)[1]

    play(feed, (120, 40), script, pages=PAGED)


def test_digits_name_the_pages() -> None:
    digits = range(1, len(PAGES) + 1)
    keys = [key_binding(OVERVIEW, str(digit)) for digit in digits]
    assert [key.action for key in keys if key] == [f"app.open_page({digit})" for digit in digits]
    assert PAGES.index(RUNS) == 3


@pytest.mark.parametrize("cells", [40, 120])
def test_help_and_quit_are_always_at_the_end_of_the_footer(cells: int) -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        assert text(app)[-1].endswith("q quit  ? help")
        await pilot.click(offset=cell(app, "? help"))
        await pilot.pause()
        assert "Keys" in "\n".join(text(app))

    play(recent(), (cells, 24), script)


@pytest.mark.parametrize("page", PAGES)
def test_keys_of_a_page_have_room_at_80_columns(page: str) -> None:
    line, places = bars.footer(PAGES, page, footer_keys(page), 80)
    shown = "".join(segment.text for segment in line)
    assert [name for name in PAGES if name in shown] == [page]
    digits = [str(digit) for digit in range(1, len(PAGES) + 1)]
    assert [name for begin, _, name, _ in places if begin < 40][: len(PAGES)] == digits
    own = [f"{key.key_display} {key.description}" for key in page_bindings(page) if key.description]
    assert sum(text in shown for text in own) >= min(2, len(own))
    assert shown.endswith("? help ")
    named = "".join(segment.text for segment in bars.footer(PAGES, page, (), 100)[0])
    assert all(name in named for name in PAGES)


def test_sixth_page_leaves_room_for_the_count_of_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    six = (*PAGES, "Sixth")
    monkeypatch.setattr(bars, "PAGES", six)
    line, _ = bars.footer(six, OVERVIEW, [("a", "1 finding"), ("q", "quit"), ("?", "help")], 40, briefs={"a": "△1"})
    assert "a △1" in "".join(segment.text for segment in line)


def test_findings_without_room_are_counted_in_the_footer() -> None:
    feed = recent(gpus=16)

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        count = len(app.view.findings.groups())
        assert count
        assert re.search(rf"a [△▲]{count}  q quit", text(app)[-1])
        await pilot.click(offset=cell(app, f"{count}  q quit"))
        await pilot.pause()
        assert "Attention" in "\n".join(text(app))

    play(feed, (40, 20), script)


@pytest.mark.parametrize("page", PAGES)
def test_footer_names_rare_keys_last(page: str) -> None:
    own = {key.description for key in page_bindings(page)}
    seldom = {
        key.description for key in page_keys(page) if action_name(key) in RARE_ACTIONS
    }  # these come last, of whatever pages they are
    is_own = [brief in own for _, brief in footer_keys(page) if brief not in seldom]
    assert is_own == sorted(is_own, reverse=True)


@pytest.mark.parametrize("page", [RUNS, EVENTS])
def test_keys_without_effect_are_neither_offered_nor_explained(page: str) -> None:
    assert not {"zoom", "pan", "subject", "panel"} & {action_name(key) for key in page_keys(page)}
    assert not {"window", "metric"} & {brief for _, brief in footer_keys(page)}
    assert [key_binding(page, name) for name in ("plus", "minus", "less_than_sign", "greater_than_sign")] == [None] * 4
    of_gpu = key_binding(page, "g")
    assert (of_gpu and action_name(of_gpu)) == ("only_gpu" if page == EVENTS else "move")


def test_message_gives_the_footer_back_to_the_keys() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        app.view.show_message("theme: light", now=0.0)
        app.draw()
        await pilot.pause()
        assert text(app)[-1].endswith("theme: light")
        app.poll()
        await pilot.pause()
        assert text(app)[-1].endswith("? help")

    play(recent(), (120, 30), script)


@pytest.mark.parametrize("cells", [40, 80, 160])
@pytest.mark.parametrize("said", [COPIED_MESSAGE, "notifications off: run ends, free GPUs"])
def test_message_is_whole_on_every_screen(said: str, cells: int) -> None:
    played = [Segment("  1:39 ━━━━━━━━ 6:39 ")]
    line, _ = bars.footer(PAGES, OVERVIEW, footer_keys(OVERVIEW), cells, message=said, played=played)
    text = "".join(segment.text for segment in line)
    assert text.endswith(f" {said} ")
    assert len(text) == cells
    assert ("6:39" in text) == (cells == 160), "which comes back"
