"""The list of commands: what the keys of a page do, found by letters and done."""

from __future__ import annotations

from typing import Any

import pytest
from textual import events
from textual.pilot import Pilot

from gpumon_tui.app import GpumonApp
from gpumon_tui.keybindings import (
    CHART,
    OVERVIEW,
    PAGES,
    PROCESSES,
    RUNS,
    ViewAbilities,
    action_name,
    key_binding,
    page_keys,
)
from gpumon_tui.screens.commands import Command, CommandWindow, other_page_commands, page_commands, search_commands
from gpumon_tui.screens.window import ModalWindow
from tests.tui.fakes import FakeFeed, recent
from tests.tui.screen import play, text


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_a_page_is_a_key_of_it_and_every_key_that_the_help_names_is_there(page: str) -> None:
    commands = page_commands(page, PAGES)
    assert all(key_binding(page, command.key) for command in commands)
    told = {key.tooltip for key in page_keys(page) if key.tooltip and action_name(key) not in ("commands", "open_page")}
    assert told <= {command.description for command in commands}


def test_letters_are_found_in_their_order_and_words_first() -> None:
    commands = [Command(what, "", "x") for what in ("sort the epochs", "theme", "the other metric", "leave")]
    assert [one.description for one in search_commands(commands, "the")] == [
        "sort the epochs",
        "theme",
        "the other metric",
    ]
    assert [one.description for one in search_commands(commands, "tm")] == ["theme", "the other metric"]
    assert search_commands(commands, "zz") == []
    assert search_commands(commands, "") == commands


def test_a_page_comes_before_what_is_done_on_it() -> None:
    commands = page_commands(OVERVIEW, PAGES)
    first, second = search_commands(commands, "cha")[:2]
    assert (first.description, second.description) == ("page: Chart", "open it: a GPU's chart, a run, a process")
    assert search_commands(commands, "quit")[0].key == "q"


@pytest.mark.parametrize("key", ["colon", "ctrl+p"])
def test_typing_and_enter_do_what_the_key_does(key: str) -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press(key, "t", "h", "e", "m", "e")
        await pilot.pause()
        assert isinstance(app.screen, CommandWindow)
        assert any("theme: dark" in line and "F2" in line for line in text(app))
        await pilot.press("enter")
        await pilot.pause()
        assert not isinstance(app.screen, CommandWindow)
        assert app.view.appearance.theme.name == "light"

    play(recent(), (120, 40), script)


def test_a_page_is_opened_from_the_list_and_escape_changes_nothing() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("colon", *"page: pro", "enter")
        await pilot.pause()
        assert app.page.page_name == PROCESSES
        await pilot.press("1", "colon", *"page: pro", "escape")
        await pilot.pause()
        assert app.page.page_name == OVERVIEW

    play(recent(), (120, 40), script)


def test_what_another_page_does_is_found_from_everywhere_and_leads_there() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("colon", *"compa")
        await pilot.pause()
        assert any("compare a run with another" in line and "4 v" in line for line in text(app))
        await pilot.press("enter")
        await pilot.pause()
        assert app.page.page_name == RUNS
        await pilot.press("colon", *"compa")
        await pilot.pause()
        assert not any("4 v" in line for line in text(app)), "it is a key of this page"

    play(recent(), (120, 40), script)


@pytest.mark.parametrize("key", ["question_mark", "exclamation_mark"])
def test_the_number_of_a_page_leads_there_from_a_window_too(key: str) -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press(key)
        await pilot.pause()
        assert isinstance(app.screen, ModalWindow)
        await pilot.press("2")
        await pilot.pause()
        assert not isinstance(app.screen, ModalWindow)
        assert app.page.page_name == CHART

    play(recent(), (120, 40), script)


def test_the_help_can_be_opened_from_the_list_and_q_is_a_letter_there() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("colon", "q", "backspace", *"this help", "enter")
        await pilot.pause()
        assert "Terms" in "\n".join(text(app))

    play(recent(), (120, 80), script)


@pytest.mark.parametrize("size", [(20, 8), (40, 20), (320, 90)])
def test_a_list_of_any_size_is_drawn_and_says_when_nothing_is_found(size: tuple[int, int]) -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("colon", "down", "pagedown", "end", "up", "home", *"zzzz", "enter")
        await pilot.pause()
        assert not isinstance(app.screen, CommandWindow)

    play(recent(), size, script)


@pytest.mark.parametrize("page", range(1, len(PAGES) + 1))
def test_nothing_in_the_list_is_cut_where_there_is_room_beside_it(page: int) -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press(str(page), "colon")
        for _ in range(60):
            await pilot.press("down")
            listed = [line[40:160] for line in text(app) if line[40:].strip().startswith("▌")]
            assert listed
            assert not any("…" in line for line in listed), listed

    play(recent(), (200, 50), script)


def test_a_colon_in_the_wrong_place_and_enter_do_not_end_the_view() -> None:
    for page in PAGES:
        listed = page_commands(page, PAGES)
        assert [one.description for one in listed if one.key == "q"] == [listed[-1].description] == ["quit"]


def test_a_command_is_found_by_the_name_that_the_footer_gives_it() -> None:
    commands = page_commands(CHART, PAGES)
    assert [one.label for one in search_commands(commands, "zoom")] == ["+ -"]
    assert [one.label for one in search_commands(commands, "overlay")] == ["c"]


def test_a_view_that_only_reads_names_no_signals() -> None:
    assert any(one.label == "K" for one in page_commands(PROCESSES, PAGES))
    assert not any(one.label == "K" for one in page_commands(PROCESSES, PAGES, ViewAbilities(is_readonly=True)))


def test_the_palette_of_a_log_names_no_key_that_moves_it() -> None:
    for can_seek in (True, False):
        able = ViewAbilities(can_seek=can_seek)
        told = " ".join(
            one.description for of in (page_commands, other_page_commands) for one in of(CHART, PAGES, able)
        )
        assert ("move a recording" in told, "a recording: back or forward" in told) == (can_seek, can_seek)
        assert "back or forward half a window" in told


@pytest.mark.parametrize("digit", ["3", "4", "5"])
def test_a_text_is_pasted_into_a_filter_as_one_line_and_no_letter_of_it_is_a_key(digit: str) -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press(digit, "slash")
        app.post_message(events.Paste("ab\nqK\t7\x1b"))
        await pilot.pause()
        before = text(app)
        await pilot.press("escape")
        app.post_message(events.Paste("qqK1\n?"))  # nothing is typed: nothing happens
        await pilot.pause()
        assert app.page.page_name == PAGES[int(digit) - 1]
        assert len(app.screen_stack) == 1
        assert any("ab qK 7" in line for line in before)

    play(FakeFeed(), (120, 40), script)


def test_a_text_is_pasted_into_the_list_of_commands_and_chooses_nothing() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("colon")
        app.post_message(events.Paste("theme\n"))
        await pilot.pause()
        assert isinstance(app.screen, CommandWindow)
        assert app.screen.list.typed == "theme"

    play(FakeFeed(), (120, 40), script)
