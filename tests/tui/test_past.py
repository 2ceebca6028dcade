"""The time that charts show: where a window ends, and how times are written."""

from __future__ import annotations

import time
from math import nan
from typing import Any

import pytest
from textual.pilot import Pilot

from gpumon.storage.history.buckets import Grid, available_windows
from gpumon_tui.app import GpumonApp
from gpumon_tui.chart_window import ChartTime
from gpumon_tui.render.axis import clock_labels
from tests.tui.fakes import START, FakeFeed
from tests.tui.screen import play, text

BEGIN, NOW = 0.0, 10_000.0


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_a_window_goes_back_by_halves_and_comes_forward_to_now() -> None:
    shown = ChartTime()
    shown.pan(-1, 600, BEGIN, NOW)
    assert (shown.end, shown.length) == (NOW - 300, 600)
    shown.pan(-2, 600, BEGIN, NOW)
    assert shown.end == NOW - 900
    shown.pan(1, 600, BEGIN, NOW + 50)
    assert shown.end == NOW - 600, "it stands still while time passes"
    shown.pan(2, 600, BEGIN, NOW)
    assert not shown.is_past


def test_a_window_goes_back_as_far_as_history_and_no_further() -> None:
    shown = ChartTime()
    shown.pan(-1000, 600, BEGIN, NOW)
    assert shown.end == BEGIN + 600
    for begin in (NOW - 500, nan):
        shown = ChartTime()
        shown.pan(-1, 600, begin, NOW)
        assert not shown.is_past, "there is nothing before it"


def test_zooming_keeps_the_middle_in_the_past_and_else_the_right_edge() -> None:
    shown = ChartTime()
    shown.zoom(-1, 60, available_windows(NOW - BEGIN), BEGIN, NOW)
    assert (shown.length, shown.is_past) == (30, False)
    shown.pan(-20, 60, BEGIN, NOW)
    middle = shown.end - 30
    for seconds in (30, 10, 2, 2):
        shown.zoom(-1, shown.length, available_windows(NOW - BEGIN), BEGIN, NOW)
        assert (shown.length, shown.end - seconds / 2) == (seconds, middle)
    for _ in range(3):
        shown.zoom(1, shown.length, available_windows(NOW - BEGIN), BEGIN, NOW)
    assert (shown.length, shown.end - 30) == (60, middle)
    for _ in range(5):
        shown.zoom(1, shown.length, available_windows(NOW - BEGIN), BEGIN, NOW)
    assert not shown.is_past, "a window that holds now ends now"


def test_times_in_the_past_are_the_viewers(berlin: None) -> None:
    noon = 1_769_857_200.0  # 2026-01-31 12:00 there
    labels = clock_labels(Grid(int(noon / 60) - 1, 60.0, 182), 91)
    assert [label for _, label in labels] == ["12:00", "12:30", "13:00", "13:30", "14:00", "14:30", "15:00"]
    midnight = clock_labels(Grid(int(noon / 600), 600.0, 144), 72)
    assert "02-01" in [label for _, label in midnight], "a day says which"
    seconds = clock_labels(Grid(int(noon * 20), 0.05, 40), 40)
    assert [label for _, label in seconds] == ["12:00:00", "12:00:01"]


@pytest.mark.parametrize(("earlier", "later"), [("comma", "full_stop"), ("[", "]"), ("<", ">")])
def test_keys_go_back_and_forward(earlier: str, later: str) -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("2", "minus", earlier, earlier)
        assert app.view.chart_time.end == START + 699 - 300
        await pilot.press(later)
        assert app.view.chart_time.end == START + 699 - 150
        await pilot.press(later)
        assert not app.view.chart_time.is_past

    play(FakeFeed(gpus=1), (80, 24), script)


def test_only_the_page_of_charts_looks_back_and_no_other_says_that_it_does() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("comma", "0", "shift+left")
        assert not app.view.chart_time.is_past, "the overview is of now"
        await pilot.press("2", "comma")
        assert " PAST " in text(app)[0]
        await pilot.press("1")
        assert "PAST" not in text(app)[0]
        assert "to now" not in text(app)[-1]
        await pilot.press("2")
        assert " PAST " in text(app)[0], "it is as it was left"

    play(FakeFeed(gpus=1), (120, 40), script)
