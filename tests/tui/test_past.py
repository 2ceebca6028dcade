"""Charts of the past: where a window ends, what the screen says, and what is seen in columns of many samples."""

from __future__ import annotations

import time
from math import nan
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from gpumon.history.grid import Grid
from gpumon.history.tiers import SHAPES
from gpumon_tui import theme
from gpumon_tui.app import GpumonApp
from gpumon_tui.renderables.axis import between, clock_labels
from gpumon_tui.renderables.braille import area
from gpumon_tui.renderables.buckets import standing
from gpumon_tui.renderables.envelope import envelope
from gpumon_tui.shown_time import ShownTime
from gpumon_tui.widgets.chart import Chart
from tests.months import fill
from tests.tui.fakes import START, FakeFeed
from tests.tui.screen import play_former as play
from tests.tui.screen import text

DAY = 86400
BEGIN, NOW = 0.0, 10_000.0


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def charts(app: GpumonApp) -> tuple[str, list[str], str]:
    """Title, area and axis of the first chart."""
    chart = app.query_one("#chart0", Chart)
    lines = ["".join(segment.text for segment in line) for line in chart.lines()]
    return lines[0], lines[1:-1], lines[-1]


def test_a_window_goes_back_by_halves_and_comes_forward_to_now() -> None:
    shown = ShownTime()
    shown.pan(-1, 600, BEGIN, NOW)
    assert (shown.end, shown.chosen) == (NOW - 300, 600)
    shown.pan(-2, 600, BEGIN, NOW)
    assert shown.end == NOW - 900
    shown.pan(1, 600, BEGIN, NOW + 50)
    assert shown.end == NOW - 600, "it stands still while time passes"
    shown.pan(2, 600, BEGIN, NOW)
    assert not shown.is_past


def test_a_window_goes_back_as_far_as_history_and_no_further() -> None:
    shown = ShownTime()
    shown.pan(-1000, 600, BEGIN, NOW)
    assert shown.end == BEGIN + 600
    for begin in (NOW - 500, nan):
        shown = ShownTime()
        shown.pan(-1, 600, begin, NOW)
        assert not shown.is_past, "there is nothing before it"


def test_zooming_keeps_the_middle_in_the_past_and_else_the_right_edge() -> None:
    shown = ShownTime()
    shown.zoom(-1, 60, BEGIN, NOW)
    assert (shown.chosen, shown.is_past) == (30, False)
    shown.pan(-20, 60, BEGIN, NOW)
    middle = shown.end - 30
    for seconds in (30, 10, 2, 2):
        shown.zoom(-1, shown.chosen, BEGIN, NOW)
        assert (shown.chosen, shown.end - seconds / 2) == (seconds, middle)
    for _ in range(3):
        shown.zoom(1, shown.chosen, BEGIN, NOW)
    assert (shown.chosen, shown.end - 30) == (60, middle)
    for _ in range(5):
        shown.zoom(1, shown.chosen, BEGIN, NOW)
    assert not shown.is_past, "a window that holds now ends now"


def test_a_window_that_stands_still_ends_where_it_should_to_a_cell() -> None:
    for end in (1_790_000_000.0, 1_790_000_000.7):
        for window in (2, 600, 31 * DAY):
            grid = standing(window, 188, end)
            assert -1e-3 < grid.end - end <= 2 * grid.step
            assert grid.first % 2 == 0, "columns of a cell stay together"
    assert standing(60, 0, 100.0).buckets == 2


def test_times_in_the_past_are_the_viewers(berlin: None) -> None:
    noon = 1_769_857_200.0  # 2026-01-31 12:00 there
    assert between(noon, noon + 600) == "2026-01-31 12:00:00 – 12:10:00"
    assert between(noon - DAY, noon) == "2026-01-30 12:00 – 2026-01-31 12:00"
    labels = clock_labels(Grid(int(noon / 60) - 1, 60.0, 182), 91)
    assert [label for _, label in labels] == ["12:00", "12:30", "13:00", "13:30", "14:00", "14:30", "15:00"]
    midnight = clock_labels(Grid(int(noon / 600), 600.0, 144), 72)
    assert "02-01" in [label for _, label in midnight], "a day says which"
    seconds = clock_labels(Grid(int(noon * 20), 0.05, 40), 40)
    assert [label for _, label in seconds] == ["12:00:00", "12:00:01"]


def test_an_envelope_is_solid_to_the_lowest_sparse_to_the_mean_and_has_a_dot_at_the_highest() -> None:
    (upper, lower) = envelope([0.5, 0.5, nan, nan], [0.75, 0.75, nan, nan], [1.0, 1.0, nan, nan], 2, 1.0)
    # From below: dot 4 (right only) and dot 5 (left, and the mean on both sides), then the highest.
    assert upper.text == chr(0x2800 | 0x80 | 0x04 | 0x20 | 0x01 | 0x08) + " "
    assert lower.text == "⣿ "
    assert (list(upper.faint), list(lower.faint)) == ([True, True], [False, True])


def test_an_envelope_of_equal_values_is_an_area() -> None:
    values = [0.0, 0.3, 0.9, 1.5, nan, 0.2, 0.1]
    assert [row.text for row in envelope(values, values, values, 5, 1.0)] == area(values, 5, 1.0)


def test_the_screen_says_that_its_charts_are_of_the_past_until_they_end_now(berlin: None) -> None:
    feed = FakeFeed(gpus=1)

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("plus", "comma")
        title, area_before, axis = charts(app)
        end = START + 699 - 150
        assert f"past  {between(end - 300, end)}" in title
        assert "last" not in title
        assert " %" not in title.partition("past")[0], "no value of now on a chart of the past"
        assert "now" not in axis
        assert time.strftime("%H:%M", time.localtime(end - 60)) in axis
        screen = text(app)
        assert " PAST " in screen[0]
        assert "0 to now" in screen[-1]
        cards = screen[2:4]
        for _ in range(30):
            feed.advance()
        app.poll()
        await pilot.pause()
        assert charts(app)[:2] == (title, area_before), "it stands still"
        assert text(app)[2:4] != cards, "numbers are those of now"
        await pilot.press("0")
        title, _, axis = charts(app)
        assert "last 5m" in title
        assert "now" in axis
        assert "PAST" not in text(app)[0]

    play(feed, (120, 40), script)


@pytest.mark.parametrize(("earlier", "later"), [("comma", "full_stop"), ("shift+left", "shift+right"), ("<", ">")])
def test_keys_go_back_and_forward(earlier: str, later: str) -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("plus", earlier, earlier)
        assert app.view.shown.end == START + 699 - 300
        await pilot.press(later)
        assert app.view.shown.end == START + 699 - 150
        await pilot.press(later)
        assert not app.view.shown.is_past

    play(FakeFeed(gpus=1), (80, 24), script)


def test_another_source_is_shown_as_of_now() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("plus", "comma")
        app.view.forget()
        assert not app.view.shown.is_past
        assert app.view.window == 300, "its length stays"

    play(FakeFeed(gpus=1), (80, 24), script)


def test_a_stall_of_a_second_on_day_3_is_seen_in_the_month_and_a_gap_stays_a_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o700)
    path, now = tmp_path / "history.sqlite", float(START + 120)
    stalled = now - 28.5 * DAY

    def values(subject: str, name: str, at: float) -> tuple[float, float, float]:
        if name != "gpu.utilization" or not subject or now - 15 * DAY <= at < now - 10 * DAY:
            return nan, nan, nan
        if at <= stalled < at + 300:
            return 0.0, 0.9 * 299 / 300, 0.9
        return 0.9, 0.9, 0.9

    fill(str(path), ["GPU-0000"], now, values, SHAPES[2:])
    monkeypatch.setattr("time.time", lambda: now + 1)

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press(*["minus"] * 14)
        _, rows, _ = charts(app)
        chart = app.query_one("#chart0", Chart)
        cells = rows[len(rows) // 2][len("100 % ") :].rstrip()
        stalls = [cell for cell, letter in enumerate(cells) if letter not in "⣿ ⡇⢸│"]
        assert len(stalls) == 1, cells
        assert 5 <= stalls[0] <= 10, "three days are a tenth of about 90 cells"
        assert " " * 12 in cells, "five days of no samples are a gap"
        solid, *_ = drawn = chart.lines()[1 + len(rows) // 2][1:]
        assert solid.style is not None
        assert theme.faint(solid.style) in [segment.style for segment in drawn], "it stands out in color too"

    play(FakeFeed(gpus=1, seconds=120, kept_in=str(path)), (200, 50), script)


def test_a_short_window_of_a_past_that_is_kept_in_long_cells_says_how_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o700)
    path, now = tmp_path / "history.sqlite", float(START + 120)
    fill(str(path), ["GPU-0000"], now, lambda subject, name, at: (0.5, 0.6, 0.9) if subject else (nan,) * 3, SHAPES)
    monkeypatch.setattr("time.time", lambda: now + 1)

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        for age, cells in ((30, ""), (1800, ""), (7200, "means of 10 s"), (3 * DAY, "means of 5 min")):
            app.view.shown.chosen, app.view.shown.end = 2, now - age
            title, area, _ = charts(app)
            assert cells in title
            assert ("means" in title) is bool(cells), title
            assert area[-1][len("100 % ") :].strip(" │"), "it is drawn nevertheless"
        app.view.shown.chosen, app.view.shown.end = 31 * DAY, nan
        assert "means" not in charts(app)[0], "columns are as long as many cells"

    play(FakeFeed(gpus=1, seconds=120, kept_in=str(path)), (120, 40), script)


def test_columns_of_a_few_samples_are_drawn_as_before() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        chart = app.query_one("#chart0", Chart)

        def has_faint_cells() -> bool:
            rows = [
                [one.style for one in line[1:] if any("⠀" < letter <= "⣿" for letter in one.text)]
                for line in chart.lines()[2:-1]
            ]
            return any(len(set(styles)) > 1 for styles in rows)

        assert app.view.window == 600
        assert not has_faint_cells(), "in the usual window"
        await pilot.press("minus", "minus")
        assert has_faint_cells(), "in a longer one, where utilization changes"

    play(FakeFeed(gpus=1), (120, 40), script)
