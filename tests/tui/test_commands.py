"""The list of commands: what the keys of a page do, found by letters and done."""

from __future__ import annotations

from typing import Any

import pytest
from textual import events
from textual.pilot import Pilot

from gpumon_tui.app import GpumonApp
from gpumon_tui.keybindings import CHART, OVERVIEW, PAGES, PROCESSES, RUNS, Abilities, applying, pressed
from gpumon_tui.screens.commands import Command, Commands, commands_of, found, of_other_pages
from gpumon_tui.screens.window import Scrolled
from tests.tui.fakes import FakeFeed, recent
from tests.tui.screen import play, text


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_a_page_is_a_key_of_it_and_every_key_that_the_help_names_is_there(page: str) -> None:
    commands = commands_of(page, PAGES)
    assert all(pressed(page, command.key) for command in commands)
    told = {key.what for key in applying(page) if key.what and key.action not in ("commands", "open_page")}
    assert told <= {command.what for command in commands}


def test_letters_are_found_in_their_order_and_words_first() -> None:
    commands = [Command(what, "", "x") for what in ("sort the epochs", "theme", "the other metric", "leave")]
    assert [one.what for one in found(commands, "the")] == ["sort the epochs", "theme", "the other metric"]
    assert [one.what for one in found(commands, "tm")] == ["theme", "the other metric"]
    assert found(commands, "zz") == []
    assert found(commands, "") == commands


def test_a_page_comes_before_what_is_done_on_it() -> None:
    commands = commands_of(OVERVIEW, PAGES)
    first, second = found(commands, "cha")[:2]
    assert (first.what, second.what) == ("page: Chart", "open it: a GPU's chart, a run, a process")
    assert found(commands, "quit")[0].key == "q"


@pytest.mark.parametrize("key", ["colon", "ctrl+p"])
def test_typing_and_enter_do_what_the_key_does(key: str) -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press(key, "t", "h", "e", "m", "e")
        await pilot.pause()
        assert isinstance(app.screen, Commands)
        assert any("theme: dark" in line and "F2" in line for line in text(app))
        await pilot.press("enter")
        await pilot.pause()
        assert not isinstance(app.screen, Commands)
        assert app.view.look.theme.name == "light"

    play(recent(), (120, 40), script)


def test_a_page_is_opened_from_the_list_and_escape_changes_nothing() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("colon", *"page: pro", "enter")
        await pilot.pause()
        assert app.page.name_shown == PROCESSES
        await pilot.press("1", "colon", *"page: pro", "escape")
        await pilot.pause()
        assert app.page.name_shown == OVERVIEW

    play(recent(), (120, 40), script)


def test_what_another_page_does_is_found_from_everywhere_and_leads_there() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("colon", *"compa")
        await pilot.pause()
        assert any("compare a run with another" in line and "4 v" in line for line in text(app))
        await pilot.press("enter")
        await pilot.pause()
        assert app.page.name_shown == RUNS
        await pilot.press("colon", *"compa")
        await pilot.pause()
        assert not any("4 v" in line for line in text(app)), "it is a key of this page"

    play(recent(), (120, 40), script)


@pytest.mark.parametrize("key", ["question_mark", "exclamation_mark"])
def test_the_number_of_a_page_leads_there_from_a_window_too(key: str) -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press(key)
        await pilot.pause()
        assert isinstance(app.screen, Scrolled)
        await pilot.press("2")
        await pilot.pause()
        assert not isinstance(app.screen, Scrolled)
        assert app.page.name_shown == CHART

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
        assert not isinstance(app.screen, Commands)

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
        listed = commands_of(page, PAGES)
        assert [one.what for one in listed if one.key == "q"] == [listed[-1].what] == ["quit"]


def test_a_command_is_found_by_the_name_that_the_footer_gives_it() -> None:
    commands = commands_of(CHART, PAGES)
    assert [one.shown for one in found(commands, "zoom")] == ["+ -"]
    assert [one.shown for one in found(commands, "overlay")] == ["c"]


def test_a_view_that_only_reads_names_no_signals() -> None:
    assert any(one.shown == "K" for one in commands_of(PROCESSES, PAGES))
    assert not any(one.shown == "K" for one in commands_of(PROCESSES, PAGES, Abilities(is_readonly=True)))


def test_the_palette_of_a_log_names_no_key_that_moves_it() -> None:
    for can_seek in (True, False):
        able = Abilities(can_seek=can_seek)
        told = " ".join(one.what for of in (commands_of, of_other_pages) for one in of(CHART, PAGES, able))
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
        assert app.page.name_shown == PAGES[int(digit) - 1]
        assert len(app.screen_stack) == 1
        assert any("ab qK 7" in line for line in before)

    play(FakeFeed(), (120, 40), script)


def test_a_text_is_pasted_into_the_list_of_commands_and_chooses_nothing() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("colon")
        app.post_message(events.Paste("theme\n"))
        await pilot.pause()
        assert isinstance(app.screen, Commands)
        assert app.screen.list.typed == "theme"

    play(FakeFeed(), (120, 40), script)
