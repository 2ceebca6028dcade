"""Choices are kept for the next time; a file that cannot be read or written never stops the view."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from gpumon_tui.app import GpumonApp
from gpumon_tui.preferences import Preferences, preferences_path
from tests.tui.fakes import recent
from tests.tui.screen import play, text


def kept(path: Path) -> Any:
    return json.loads(path.read_text())


def test_a_choice_lasts_and_the_file_is_the_user_s_own(tmp_path: Path) -> None:
    path = tmp_path / "new" / "gpumon" / "tui.json"
    choices = Preferences(str(path))
    choices.set("theme", "light")
    choices.close()
    choices.set("page", "Runs")
    choices.close()
    again = Preferences(str(path))
    assert (again.get("theme"), again.get("page"), again.get("other", "none")) == ("light", "Runs", "none")
    assert path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(path.parent) == ["tui.json"]
    assert again.pop_problem() == ""


def test_of_choices_that_come_at_once_the_last_is_kept(tmp_path: Path) -> None:
    choices = Preferences(str(tmp_path / "tui.json"))
    with choices._lock:
        for number in range(20):
            choices.set("order", str(number))
    choices.close()
    assert kept(tmp_path / "tui.json") == {"order": "19"}


@pytest.mark.parametrize(
    "content", ["{", "[1]", '{"theme": 3}', "\x00", "9" * 70_000, "[" * 60_000, '"text"'], ids=range(7)
)
def test_a_file_that_is_broken_is_told_of_and_left_as_it_is(tmp_path: Path, content: str) -> None:
    path = tmp_path / "tui.json"
    path.write_text(content)
    choices = Preferences(str(path))
    choices.set("theme", "light")
    choices.close()
    assert path.read_text() == content
    assert choices.get("theme") == "light", "for as long as the view lasts"
    assert str(path) in choices.pop_problem()
    assert choices.pop_problem() == "", "once"


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "tui.json")
    assert "not a regular file" in Preferences(str(tmp_path / "tui.json")).pop_problem()


def test_a_place_that_cannot_be_written_is_told_of_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    choices = Preferences(str(tmp_path / "file" / "gpumon" / "tui.json"))
    choices.pop_problem()
    for theme in ("light", "dark"):
        choices.set("theme", theme)
        choices.close()
    assert choices.get("theme") == "dark"


def test_the_file_lies_beside_the_settings() -> None:
    assert preferences_path({"XDG_CONFIG_HOME": "/x", "HOME": "/h"}) == "/x/gpumon/tui.json"
    assert preferences_path({"HOME": "/h"}) == "/h/.config/gpumon/tui.json"
    assert preferences_path({}) == ""
    assert Preferences("").get("theme", "dark") == "dark"


def test_theme_is_kept_when_it_is_chosen_but_not_the_page(tmp_path: Path) -> None:
    path = tmp_path / "tui.json"

    async def choose(app: GpumonApp, pilot: Pilot[Any]) -> None:
        app.view.preferences = Preferences(str(path))
        await pilot.press("2", "f2")
        await pilot.pause()
        app.view.preferences.close()

    play(recent(), (120, 40), choose)
    assert kept(path) == {"theme": "light"}


def test_a_problem_with_the_file_stands_at_the_foot(tmp_path: Path) -> None:
    (tmp_path / "tui.json").write_text("{")

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        app.view.preferences = Preferences(str(tmp_path / "tui.json"))
        app.poll()
        app.draw()
        await pilot.pause()
        assert "cannot read" in text(app)[-1]

    play(recent(), (320, 40), script)
