"""Sets of metrics, windows and layouts of the chart page: on keys, and there again at the next start."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from gpumon.model.frame import Sample
from gpumon.model.metrics import BY_NAME, Availability, Scope
from gpumon_tui.app import GpumonApp
from gpumon_tui.preferences import Preferences
from gpumon_tui.screens.chart.layouts import LAYOUTS, PRESETS
from gpumon_tui.screens.chart.page import ChartPage
from gpumon_tui.screens.chart.state import Overlay
from tests.tui.fakes import START, FakeFeed, FakePlayer
from tests.tui.screen import Script, text
from tests.tui.screen import play as play_screen


def play(
    script: Script, path: Path | None = None, size: tuple[int, int] = (160, 50), feed: FakeFeed | None = None
) -> None:
    """A session that keeps its choices in a file, if one is given, as the view's own session does."""

    async def session(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await script(app, pilot)
        app.view.preferences.close()

    def begin(app: GpumonApp) -> None:
        app.view.preferences = Preferences(str(path)) if path else app.view.preferences

    play_screen(feed or FakeFeed(), size, session, before=begin)


def chart(app: GpumonApp) -> ChartPage:
    assert isinstance(app.page, ChartPage)
    return app.page


def test_every_preset_is_of_metrics_of_gpus() -> None:
    for preset in PRESETS:
        assert all(BY_NAME[name].scope is Scope.GPU for name in (preset.large, *preset.small))
        assert len(set(preset.small)) == len(preset.small)
    assert len({preset.name for preset in PRESETS}) == len(PRESETS)


def test_a_key_turns_through_the_presets() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("2")
        state = chart(app).state
        for preset in (*PRESETS[1:], PRESETS[0]):
            await pilot.press("p")
            assert state.metric.name == preset.large
            assert f"charts: {preset.name}" in text(app)[-1]
            assert {metric.name for metric in state.smalls()} <= {*preset.small} - {preset.large}
        await pilot.press("P")
        assert state.preset is PRESETS[-1]

    play(script)


def test_a_metric_of_last_time_without_a_sensor_here_leaves_its_place_to_utilization(tmp_path: Path) -> None:
    received = "gpu.pcie_received"

    class Log(FakeFeed):
        """A log without traffic."""

        def sample(self, device: Any, second: int) -> Sample:
            found = super().sample(device, second)
            return found._replace(device=found.device._replace(missing={received: Availability.NOT_RECORDED}))

    async def choose(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("2", "p", "p", "p")
        assert chart(app).state.metric.name == received

    async def other(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("2")
        assert "Utilization" in text(app)[2]
        chart(app).state.show(BY_NAME[received])
        await pilot.press("right")
        assert "PCIe received" in text(app)[2], "who asks for it is told why there is none"

    async def again(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("2")
        assert "PCIe received" in text(app)[2], "the choice is kept"

    for script, feed in ((choose, FakeFeed()), (other, Log()), (again, FakeFeed())):
        play(script, tmp_path / "tui.json", feed=feed)


def test_a_key_turns_through_the_windows_with_round_names() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("2")
        found = []
        for key in "wwwwWW":
            await pilot.press(key)
            found.append(app.view.window)
            assert {60: "− 1 min +", 600: "− 10 min +", 3600: "− 1 h +"}[app.view.window] in "\n".join(text(app))
        assert found == [3600, 60, 600, 3600, 600, 60], "700 s are known: longer ones are not offered"

    play(script)


def test_no_window_is_longer_than_it_must_be_to_hold_all_of_a_recording() -> None:
    async def longest(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("2", *("plus",) * 8)
        assert app.view.window == 900
        assert "− 15 min +" in "\n".join(text(app))
        assert "no longer window" in text(app)[-1]
        await pilot.press("w")
        assert app.view.window == 60
        await pilot.press("w", "w")
        assert app.view.window == 900

    feed = FakeFeed(source="replay", label="REPLAY x.csv")
    play_screen(feed, (160, 50), longest, player=FakePlayer(START, START + 699))


def test_what_a_key_said_is_gone_with_the_next_one() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("2", *("plus",) * 12)
        assert "no longer window" in text(app)[-1]
        await pilot.press("W")
        assert "no longer window" not in text(app)[-1]

    play(script)


def test_a_key_turns_through_the_layouts_that_differ_here() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("2")
        state = chart(app).state
        assert "All GPUs" in "\n".join(text(app))
        assert state.plan.small_charts == 4
        rows = [state.plan.rows]
        await pilot.press("f")
        assert state.plan.small_charts == 0
        assert "All GPUs" in "\n".join(text(app))
        rows.append(state.plan.rows)
        await pilot.press("f")
        assert not any("All GPUs" in line for line in text(app))
        rows.append(state.plan.rows)
        assert rows == sorted(set(rows)), "the large chart has the room of the others"
        await pilot.press("f")
        assert state.layout is LAYOUTS[0]

    play(script)

    async def small(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("2", "f")
        assert chart(app).state.layout is LAYOUTS[2], "there are no small charts to leave out"

    play(small, size=(80, 24))


def test_choices_of_the_charts_are_there_again_at_the_next_start(tmp_path: Path) -> None:
    path = tmp_path / "tui.json"

    async def choose(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("2", "p", "p", "m", "c", "f", "minus")

    async def again(app: GpumonApp, pilot: Pilot[Any]) -> None:
        assert app.page.page_name == "Overview", "what is of now comes first"
        await pilot.press("2")
        state, screen = chart(app).state, text(app)
        assert (state.preset.name, state.metric.name) == ("power and heat", "gpu.temperature")
        assert state.overlay is Overlay.EACH
        assert state.layout is LAYOUTS[1]
        assert app.view.window == 300
        assert "Temperature   GPU 0" in screen[2]
        await pilot.press("G", "g")
        assert state.metric.name == "gpu.temperature", "the host between does not forget it"

    play(choose, path)
    assert json.loads(path.read_text()) == {
        "chart preset": "power and heat", "chart metric": "gpu.temperature", "chart overlay": "each",
        "chart layout": "without small charts", "window": "300",
    }  # fmt: skip
    play(again, path)


def test_nothing_is_kept_that_was_not_chosen(tmp_path: Path) -> None:
    path = tmp_path / "tui.json"

    async def look(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("2", "left", "g", "left_square_bracket", "escape")

    play(look, path)
    assert not path.exists()


@pytest.mark.parametrize(
    "kept",
    [
        {"chart metric": "gpu.nothing", "chart preset": "x", "chart overlay": "", "chart layout": "?", "window": "7"},
        {"chart metric": "host.load", "window": "-1"},
        {"chart metric": "gpu.event_reasons", "window": "9" * 99},
    ],
)
def test_choices_that_mean_nothing_are_passed_over(tmp_path: Path, kept: dict[str, str]) -> None:
    path = tmp_path / "tui.json"
    path.write_text(json.dumps(kept))

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("2")
        state = chart(app).state
        assert (state.preset, state.layout, state.overlay) == (PRESETS[0], LAYOUTS[0], Overlay.PEERS)
        assert state.metric.name == "gpu.utilization"
        assert app.view.chart_time.length == 0

    play(script, path)


@pytest.mark.parametrize(("kept", "window"), [(31 * 86400, 900), (3600, 900), (300, 300), (10, 10)])
def test_a_window_of_a_longer_history_is_as_long_as_there_is_anything_to_show(
    tmp_path: Path, kept: int, window: int
) -> None:
    path = tmp_path / "tui.json"
    path.write_text(json.dumps({"window": str(kept)}))

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        assert app.view.window == window, "700 s are known"
        await pilot.press("plus")
        assert app.view.window > window, "what is chosen now counts, however little is known"

    play(script, path)


def test_small_charts_that_have_no_values_leave_their_room_to_the_others() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("2")
        state = chart(app).state
        before = state.plan
        assert len(state.smalls()) == before.small_charts == 4
        await pilot.press("G")
        assert len(state.smalls()) == state.plan.small_charts == 3, (
            "of the host there is one large and three small ones"
        )
        assert state.plan.rows + 3 * state.plan.small_rows > before.rows + 3 * before.small_rows
        assert state.plan.bottom <= before.bottom

    play(script)
