"""The help: nothing is cut, keys are named alike everywhere, and it names those that mean something else elsewhere."""

from __future__ import annotations

import re
from copy import copy
from math import nan
from typing import Any

import pytest
from textual.pilot import Pilot

from gpumon_tui.app import GpumonApp
from gpumon_tui.appearance import Appearance, ColorDepth, to_ascii
from gpumon_tui.keybindings import (
    CHART,
    EVENTS,
    HABITS,
    OVERVIEW,
    PAGES,
    PROCESSES,
    RUNS,
    action_name,
    key_binding,
    page_habits,
    page_keys,
)
from gpumon_tui.render.text_width import length
from gpumon_tui.screens.help import HelpText
from gpumon_tui.state import View
from tests.tui.fakes import FakeFeed, FakePlayer
from tests.tui.screen import play

COLORED = Appearance()


def told(page: str, cells: int, look: Appearance = COLORED, *, plays: bool = False) -> list[str]:
    view = View()
    view.appearance, view.player = look, FakePlayer() if plays else None
    lines = HelpText(view, page).text_lines(cells)
    assert all(length(line) <= cells for line in lines)
    return ["".join(segment.text for segment in line) for line in lines]


def test_without_colors_none_is_named_and_in_ascii_an_arrow_is_no_control_key() -> None:
    named = re.compile(r"\b(yellow|red|rose|colors)\b", re.I)
    for page in PAGES:
        assert named.search("\n".join(told(page, 76)))
        plain = "\n".join(told(page, 76, Appearance(depth=ColorDepth.NONE, is_ascii=True)))
        assert not named.search(plain.replace("color-blind", ""))
        assert not set(plain) & set("↑↓←→↵")
        assert "Up Down" in plain
        assert "reverse problem: full" in plain


@pytest.mark.parametrize("cells", [36, 60, 76])
@pytest.mark.parametrize("page", PAGES)
def test_every_word_of_every_key_is_there(page: str, cells: int) -> None:
    words = " ".join((*told(page, cells), *told(page, cells, plays=True))).split()
    assert "…" not in "".join(words)
    for key in page_keys(page):
        assert [word for word in key.tooltip.split() if word not in words] == []


@pytest.mark.parametrize("page", PAGES)
def test_keys_that_mean_something_else_in_other_tools_are_named_in_few_lines(page: str) -> None:
    lines = told(page, 80)
    at = lines.index("In other tools these keys mean")
    block = lines[at + 1 : lines.index("", at)]
    assert 1 <= len(block) <= 6
    assert "nvitop" in " ".join(block)


@pytest.mark.parametrize("page", PAGES)
def test_in_ascii_habits_are_apart_by_one_sign_wherever_a_line_ends(page: str) -> None:
    for cells in range(36, 90):
        lines = told(page, cells, Appearance(depth=ColorDepth.NONE, is_ascii=True))
        at = next(place for place, line in enumerate(lines) if line.startswith("In other tools"))
        words = " ".join(map(to_ascii, lines[at : lines.index("", at)])).split()
        assert "." not in words
        assert words.count("|") == len(page_habits(page)) - 1


def test_a_key_that_has_another_use_on_a_page_is_not_named_there() -> None:
    assert "g" in {one.label for one in page_habits(OVERVIEW)}
    assert "g" not in {one.label for one in page_habits(PROCESSES)}


@pytest.mark.parametrize("can_seek", [True, False, None])
def test_keys_that_take_a_recording_elsewhere_are_named_where_it_can_go(can_seek: bool | None) -> None:
    view = View()
    if can_seek is not None:  # else all is live
        view.player = player = FakePlayer()
        player.can_seek = can_seek
    told = "\n".join("".join(part.text for part in line) for line in HelpText(view, OVERVIEW).text_lines(120))
    assert ("a recording: back or forward a minute" in told) == bool(can_seek)


def test_the_help_of_a_recording_names_no_key_that_starts_something_in_its_place() -> None:
    for plays in (True, False):
        view = View()
        view.player = FakePlayer() if plays else None
        told = "\n".join("".join(part.text for part in line) for line in HelpText(view, OVERVIEW).text_lines(120))
        assert ("switch to a simulation" in told) == (not plays)


def test_the_help_names_the_host_where_a_key_leads_there() -> None:
    for has_host in (True, False):
        view = View()
        view.frame = copy(FakeFeed(gpus=2, seconds=3).frames[-1])
        if not has_host:
            view.frame._host = (nan,) * len(view.frame.host)
        told = "\n".join("".join(part.text for part in line) for line in HelpText(view, CHART).text_lines(120))
        assert ("the host follows the last" in told) == has_host
        assert "next or previous GPU" in told


def test_tab_is_told_of_on_pages_that_know_it() -> None:
    assert {page for page in PAGES if key_binding(page, "tab")} == {OVERVIEW, RUNS, EVENTS}
    for page in (CHART, PROCESSES):  # a question of the latter takes it
        assert not any(line.split()[:1] == ["Tab"] for line in told(page, 120))


def test_every_habit_is_of_a_key_that_exists() -> None:
    for one in HABITS:
        assert any((key := key_binding(page, one.key)) and action_name(key) == one.action for page in PAGES), one


def test_a_key_has_one_name() -> None:
    names = [name for page in PAGES for key in page_keys(page) for name in (key.key_display or "").split()]
    assert [name for name in names if re.fullmatch("(?i)enter|return", name)] == []
    for name in ("Esc", "Tab", "Space"):
        assert {one for one in names if one.lower() == name.lower()} == {name}


def test_the_window_is_as_tall_as_what_it_says() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("question_mark")
        await pilot.pause()

    lines = play(FakeFeed(seconds=3), (80, 120), script)
    edge = [line for line in lines if line.lstrip().startswith("▌")]
    assert "any other key closes" in edge[-2]


def test_how_to_scroll_stands_where_it_is_seen_at_once() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("question_mark")
        await pilot.pause()

    lines = play(FakeFeed(seconds=3), (80, 24), script)
    assert "scroll" in lines[1]
    assert "Esc closes" in lines[1]


def test_the_help_of_a_view_that_only_reads_names_no_signals() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        app.view.is_readonly = is_readonly
        await pilot.press("3", "question_mark")
        await pilot.pause()

    for is_readonly in (False, True):
        lines = "\n".join(play(FakeFeed(seconds=3), (80, 120), script))
        assert ("end a process or send a signal" in lines) is not is_readonly


def test_the_footer_names_the_list_of_commands_and_the_theme_where_all_else_has_room() -> None:
    def foot(cells: int) -> str:
        async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
            await pilot.pause()

        return play(FakeFeed(seconds=3), (cells, 24), script)[-1]

    assert foot(200).split()[-8:] == [":", "find", "F2", "theme", "q", "quit", "?", "help"]
    assert ": find" not in foot(100)
