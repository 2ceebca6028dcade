"""The chart page: what is shown, what its keys and the mouse do, and what the cursor reads out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from math import isnan, nan
from pathlib import Path
from typing import Any

import pytest
from textual import events
from textual.pilot import Pilot

from gpumon.common.clock import SECOND
from gpumon.common.numbers import is_known
from gpumon.live import LiveState
from gpumon.model import units
from gpumon.model.device import Device
from gpumon.model.frame import Boundary, Mark, RunState, Sample
from gpumon.model.metrics import BY_NAME, GPU_INDEX, GPU_METRICS, Availability
from gpumon.storage.history.buckets import Grid
from gpumon.storage.history.query import HOST, Query
from gpumon.storage.history.tiers import DAY, SHAPES
from gpumon_tui.app import GpumonApp
from gpumon_tui.appearance import Appearance, ColorDepth
from gpumon_tui.keybindings import CHART, key_binding
from gpumon_tui.render.axis import value_axis
from gpumon_tui.render.time_axis import HOLD
from gpumon_tui.screens.chart.layouts import chart_plan
from gpumon_tui.screens.chart.page import ChartPage
from gpumon_tui.screens.chart.state import ChartState, Overlay
from gpumon_tui.screens.window import ListWindow
from tests.crossed import crossed
from tests.fakes import FakeClock
from tests.months import fill
from tests.tui.fakes import START, FakeFeed
from tests.tui.screen import appears, play, text

LEFT = 8
"""Cells before the charts of a wide page."""


def shown(keys: str = "", size: tuple[int, int] = (160, 50), **feed: Any) -> list[str]:
    """The screen after the chart page was opened and keys were pressed."""

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("2", *keys.split())

    return play(FakeFeed(**feed), size, script)


def page_of(app: GpumonApp) -> ChartPage:
    assert isinstance(app.page, ChartPage)
    return app.page


@pytest.mark.parametrize(
    ("size", "gpus"),
    [
        ((1, 1), 8), ((12, 5), 8),
        *crossed(((40, 20), (80, 24), (120, 40), (200, 50), (320, 90)), (0, 1, 2, 8, 16, 32)),
    ],
)  # fmt: skip
def test_every_size_and_number_of_gpus(size: tuple[int, int], gpus: int) -> None:
    """Not slow: each size and each number once; test_the_parts_fit_the_page has the plan of them all."""
    lines = shown("left", size, gpus=gpus, seconds=120, problem="" if gpus else "no driver")
    assert len(lines) == size[1]
    assert max(map(len, lines)) <= size[0]
    if size[1] < 20:
        return
    screen = "\n".join(lines)
    assert ("Utilization" if gpus else "CPU") in lines[1] + lines[2]
    if gpus >= 2:
        heat = next(place for place, line in enumerate(lines) if "All GPUs" in line) + 1
        rows = [line for line in lines[heat:-1] if re.match(r"▌? *\d+\b", line)]
        hidden = sum(map(int, re.findall(r"\+(\d+) [▼▲]", screen)))
        assert len(rows) + hidden == gpus, "no GPU is left out without a word"


@pytest.mark.parametrize(("width", "height"), [(40, 18), (80, 22), (120, 38), (160, 48), (200, 48), (320, 88)])
@pytest.mark.parametrize("gpus", [0, 1, 2, 8, 16, 32])
def test_the_parts_fit_the_page(width: int, height: int, gpus: int) -> None:
    plan = chart_plan(width, height, gpus)
    assert plan.left + plan.cells + plan.panel_cells <= width
    assert plan.title + plan.bottom <= height
    assert plan.rows >= 5


def test_metric_by_key_and_from_the_list() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("2")
        for keys, wanted in (("m", "Memory"), ("m m M", "Power"), ("M M", "Utilization")):
            await pilot.press(*keys.split())
            assert text(app)[2].startswith(f"  {wanted}   GPU 0"), keys
        await pilot.press("enter")
        listed = text(app)
        assert any("Metric" in line and "Esc closes" in line for line in listed)
        assert any("PCIe received" in line for line in listed)
        await pilot.press("down", "escape")
        assert "Utilization   GPU 0" in text(app)[2]
        await pilot.press("enter", "down", "enter")
        assert "Memory   GPU 0" in text(app)[2]

    play(FakeFeed(), (160, 50), script)


def test_metric_list_moves_by_keys_and_wheel() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("2", "enter")
        assert isinstance(app.screen, ListWindow)
        chooser, window = app.screen.list, app.view.window
        last = len(chooser.rows) - 1
        for key, place in {"end": last, "home": 0, "pagedown": 10, "pageup": 0, "G": last, "g": 0}.items():
            await pilot.press(key)
            assert (app.screen is chooser.screen, chooser.cursor) == (True, place), key
        chooser.post_message(wheel_down(chooser))
        await pilot.pause()
        assert (chooser.cursor, app.view.window) == (1, window)
        assert not app.view.shows_past, "the cursor of the chart behind it stays where it is"
        await pilot.press("enter")
        assert "Memory   GPU 0" in text(app)[2]

    play(FakeFeed(), (160, 50), script)


def wheel_down(widget: Any) -> events.MouseScrollDown:
    x, y = widget.region.x + 1, widget.region.y + 1
    return events.MouseScrollDown(widget, 1, 1, 0, 1, 0, False, False, False, x, y)


def test_clock_has_the_unit_of_its_axis() -> None:
    lines = shown("m m m m", (80, 24))
    assert "SM clock" in lines[1]
    assert re.search(r"now \d\.\d\d GHz", lines[1])
    assert any(re.match(r" *2(\.0)? GHz", line) for line in lines)


def test_metric_list_shows_values_and_counts_hidden_rows() -> None:
    lines = shown("enter", (80, 24))
    assert re.search(r"SM clock +\d\.\d\d GHz", "\n".join(lines)), lines
    assert "▼" not in lines[1], "all have room"
    (more,) = re.findall(r"Metric +enter shows it, Esc closes +\+(\d+) ▼", shown("enter", (80, 12))[2])
    assert int(more) > 0
    assert re.search(r"Metric +enter shows it +\+\d+ ▼", shown("enter", (40, 12))[2])


@dataclass
class Required(FakeFeed):
    """GPUs whose driver requires something, of which little else is told."""

    action: float = 4.0

    def sample(self, device: Any, second: int) -> Sample:
        found = super().sample(device, second)
        values = list(found.values)
        values[GPU_INDEX["gpu.recovery_action"]] = self.action
        return found._replace(values=values)


@pytest.mark.parametrize(
    ("action", "told"), [(0, "nothing"), (4, "a reset of the GPU when it is free"), (9, "9"), (nan, "")]
)
def test_metric_list_shows_the_recovery_action(action: float, told: str) -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("2", "enter", "end")
        rows = [line for line in text(app) if "Recovery action" in line]
        assert [re.search(rf"Recovery action +{told}$", row) is not None for row in rows] == [True] * bool(told)

    play(Required(gpus=1, seconds=20, action=action), (80, 40), script)


def test_metric_without_history_shows_the_newest_frame() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("2")
        state, sample = page_of(app).state, app.view.samples[0]
        for name in ("gpu.memory_total", "gpu.power_limit"):
            assert not app.view.history.has(sample.device.uuid, name), "but kept history may"
            assert state.now(sample.device.uuid, name) == sample.value(name) > 0

    play(FakeFeed(gpus=2, seconds=20), (160, 50), script)


def test_counter_without_history_shows_its_rate() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("2")
        state, uuid = page_of(app).state, app.view.samples[0].device.uuid
        assert not app.view.history.has(uuid, "gpu.energy"), "but kept history may"
        assert state.now(uuid, "gpu.energy") == pytest.approx(500.0)
        assert isnan(state.now("GPU-other", "gpu.energy"))

    play(FakeFeed(gpus=2, seconds=20), (160, 50), script)

    async def first(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("2")
        assert isnan(page_of(app).state.now(app.view.samples[0].device.uuid, "gpu.energy")), (
            "of one frame there is none"
        )

    play(FakeFeed(gpus=2, seconds=1), (160, 50), first)


def test_axis_without_values_has_no_numbers() -> None:
    axis = value_axis(BY_NAME["gpu.clock_sm"], nan)
    assert axis.labels(20, 7) == {}
    assert value_axis(BY_NAME["gpu.power"], nan, 700.0).labels(20, 7)[0] == "800 W"
    assert value_axis(BY_NAME["gpu.utilization"], nan).labels(20, 7)[0] == "100 %", "a share has its ends"


def test_small_charts_show_other_metrics_with_values() -> None:
    def names(app: GpumonApp) -> list[str]:
        lines = text(app)
        begin = next(place for place, line in enumerate(lines) if "All GPUs" in line) + 9
        return [line[:LEFT].strip() for line in lines[begin:-1] if line[:LEFT].strip()]

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("2")
        assert names(app) == ["Power", "Temp", "Clock", "PCIe"]
        await pilot.press("m", "m")
        assert "Power" in text(app)[2]
        assert names(app) == ["Temp", "Clock", "PCIe", "Mem"], "power is large now"

    play(FakeFeed(), (160, 50), script)


def test_other_gpus_are_overlaid() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("2")
        await appears(app, pilot, "peers")
        await pilot.press("c")
        each = "\n".join(text(app))
        assert all(f"GPU {number} " in each for number in range(8))
        await pilot.press("c")
        assert not any("peers" in line or "GPU 3 " in line for line in text(app)[4:])

    play(FakeFeed(), (160, 50), script)


@pytest.mark.parametrize("is_ascii", [False, True])
def test_overlaid_lines_are_marked_without_colors(is_ascii: bool) -> None:
    line = "⣀-⣿⠁-⡿" if not is_ascii else r"*"

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("2")
        await appears(app, pilot, "peers")
        page = text(app)
        assert any("⠒o⠒" in row or "o" in row.partition("mean of")[0][-5:] for row in page[:4]), "the legend says which"
        assert any(re.search(f"[{line}]o[{line}]", row) for row in page[4:])
        await pilot.press("c")
        chart = "\n".join(row[:80] for row in text(app)[4:14])
        on_lines = set(re.findall(r"(?<![\d:.])(\d)(?![\d:.])", chart))
        assert {"0", "1", "2", "3", "4"} <= on_lines, chart

    play(FakeFeed(), (160, 50), script, appearance=Appearance(depth=ColorDepth.NONE, is_ascii=is_ascii))


def test_past_chart_shows_its_own_epoch() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("2")
        assert text(app)[2].split()[:2] == ["now", "epoch"]
        newest = text(app)[2].split()[2]
        await pilot.press("minus", "minus", "minus", *["less_than_sign"] * 3)
        await pilot.pause()
        assert app.view.chart_time.is_past
        row = text(app)[2].split()
        assert "now" not in row
        assert row[1] == "epoch"
        assert row[2] != newest, "it was another one then"

    play(FakeFeed(), (80, 24), script)


def test_readout_of_the_past_is_of_the_end_of_the_window() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("2", "minus", "minus", "minus", *["less_than_sign"] * 3)
        await pilot.pause()
        assert app.view.chart_time.is_past
        beside = [line[125:] for line in text(app)]
        assert not any(re.search(r"\bnow\b", line) for line in beside[:-1]), beside
        assert not any(re.search(r"\bnow$", line) for line in text(app)[:-1]), "where a live chart has it on its axis"
        edge = app.pages["Chart"].state.grid  # type: ignore[attr-defined]
        assert any(units.clock(edge.end - edge.step) in line for line in beside), beside
        values = [" ".join(line[line.index("GPU") :].split()) for line in beside if "GPU " in line]
        await pilot.press("left")  # the cursor begins at the newest column of the picture
        await pilot.pause()
        there = "\n".join(" ".join(line.split()) for line in text(app))
        assert values
        assert all(line in there for line in values), (values, there)

    play(FakeFeed(), (160, 50), script)


def test_legend_names_overlaid_lines_without_a_panel() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("2", "c")
        legend = text(app)[3]
        assert re.search(r"GPU 1 \d+  2 \d+  3 \d+  4 \d+  5 \d+  6 \d+  7 \d+%", legend), "with their values of now"
        await pilot.press(*["left"] * 20)
        state = page_of(app).state
        told = [round(100 * state.readouts()[uuid]["gpu.utilization"].mean) for uuid in state.overlaid]
        assert [int(one) for one in re.findall(r"\d+", text(app)[3])[1::2]] == told, "at the cursor, of its moment"
        await pilot.press("escape", "c")
        assert "GPU 1 " not in text(app)[3]
        await pilot.press("c")
        assert "mean of 3 peers" in text(app)[2]

    play(FakeFeed(), (80, 24), script)


def test_legend_counts_lines_without_a_color() -> None:
    assert shown("c", (80, 24), gpus=16)[3].endswith("%  ⠒⠒ 8 others")
    assert "GPU 1  2  3  4  5  6  7  ⠒⠒ 8 others" in shown("c", (40, 20), gpus=16)[3], "values leave first"
    lines = shown("c", (160, 50), gpus=32)
    assert any("GPU 1 " in line for line in lines)
    assert any(re.search(r"\+\d+ GPUs$", line) for line in lines), "what has no room in the panel is counted"


def test_gpu_without_a_run_has_no_peers() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("2", *"jjjjj")
        state = page_of(app).state
        assert state.overlay is Overlay.PEERS
        assert state.overlaid == []
        found = []
        for _ in range(3):
            await pilot.press("c")
            found.append(bool(state.overlaid))
        assert found == [True, False, True], "each press changes something"

    play(FakeFeed(), (160, 50), script)


def test_overlay_key_says_when_there_is_nothing_to_overlay() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("2", "c")
        assert "nothing to lay over this chart" in text(app)[-1]

    play(FakeFeed(gpus=1), (160, 50), script)


def test_log_without_host_metrics_has_no_host_chart() -> None:
    class Log(FakeFeed):
        def host(self, second: int) -> dict[str, float]:
            return {}

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("G")
        assert app.view.subject == "GPU-0007", "the first GPU follows the last"
        await pilot.press("g", "2", "G")
        assert app.view.subject == "GPU-0007"

    play(Log(source="replay", label="REPLAY x.csv"), (160, 50), script)


def test_axis_has_room_for_overlaid_lines() -> None:
    """The memory of GPU 7 is nearly empty and no limit of it is known: an axis of GPU 7 would end below all others."""

    class WithoutTotal(FakeFeed):
        def sample(self, device: Device, second: int) -> Sample:
            found = super().sample(device, second)
            found.values[GPU_METRICS.index(BY_NAME["gpu.memory_total"])] = nan
            return found

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        app.view.select("GPU-0007")
        await pilot.press("2", "m")
        state = page_of(app).state
        assert state.metric.name == "gpu.memory_used"
        alone = state.large_axis.high
        await pilot.press("c")
        assert state.overlay is Overlay.EACH
        largest = max(value for line in state.overlaid_curves() for value in line if is_known(value))
        assert alone < largest <= state.large_axis.high, "a line above the axis would lie flat at its top"
        uuids = [sample.device.uuid for sample in app.view.samples]
        await pilot.press("c")
        assert state.large_axis.high == alone
        shares = {state.heat_axis(uuids).share(state.now(uuid, state.metric.name)) for uuid in uuids}
        assert len(shares) == len(uuids), "those of the strip are told apart, whichever of them is selected"

    play(WithoutTotal(), (160, 50), script)


def numbers(line: str) -> list[str]:
    return line[LEFT + 120 :].split()


def test_cursor_reads_the_values_of_the_history() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("2", *["left"] * 30)
        state, history = page_of(app).state, app.view.history
        grid = Grid(state.grid.first + state.cursor, state.grid.step, 1)
        names = ("gpu.utilization", "gpu.power")
        for sample in app.view.samples:
            subject = sample.device.uuid
            query = Query(subject, names, grid.begin - 0.001 * grid.step, grid.end, grid=grid, hold=HOLD)
            answer, found = history.query(query), state.readouts()[subject]
            series = answer["gpu.utilization"]
            assert found["gpu.utilization"] == (series.low[0], series.mean[0], series.high[0])
        own = history.query(query._replace(subject=app.view.subject))
        lines = text(app)
        (line,) = (one for one in lines if re.search(r"GPU 0 +\d+ +\d+ +\d+$", one))
        wanted = [round(100 * one[0]) for one in (own[names[0]].low, own[names[0]].mean, own[names[0]].high)]
        assert [int(one) for one in numbers(line)[2:]] == wanted
        assert any(f"{'Power':10}{round(own[names[1]].mean[0]):>7} W" in one for one in lines)

    play(FakeFeed(), (160, 50), script)


def test_cursor_interpolates_between_samples() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("2", *["-"] * 20, *["left"] * 9)
        state = page_of(app).state
        assert state.column.step < app.view.state.interval
        read = []
        for _ in range(12):
            await pilot.press("left")
            found = state.readouts()[app.view.subject]["gpu.utilization"]
            place = state.cursor
            curve = state.curves()["gpu.utilization"]
            read.append(found.mean)
            assert found.mean in curve.mean[2 * place : 2 * place + 2], "as the line is drawn"
        assert all(map(is_known, read))

    play(FakeFeed(), (160, 50), script)


def test_narrow_readout_ends_with_a_whole_value() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("2", "left")
        assert "…" not in text(app)[2]
        await pilot.press("m")
        app.view.point(START + 630.0)
        app.draw()
        await pilot.pause()
        assert re.search(r"min –  mean –  max –( |$)", text(app)[2])
        await pilot.press("0", "G")
        assert app.view.subject == HOST
        assert not text(app)[2].strip(), "of the host there is nothing to tell besides its value"

    play(FakeFeed(gap=(600, 660)), (80, 24), script)


def test_current_step_is_that_of_the_newest_frame() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("2")
        for _ in range(4):
            app.source.feed.advance(1)  # type: ignore[attr-defined]
            app.poll()
            await pilot.pause()
            run = next(run for run in app.view.runs if app.view.subject in run.gpus)
            assert f"step {run.step:,}" in text(app)[2]

    play(FakeFeed(), (80, 24), script)


def test_abbreviations_keep_their_capitals() -> None:
    lines = shown("m m m m", (80, 24))
    assert any("All GPUs   SM clock" in line for line in lines)
    assert any("All GPUs   utilization" in line for line in shown("", (80, 24)))


def test_heat_strip_of_short_columns_has_no_gap_at_its_end() -> None:
    feed = FakeFeed()

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("2")
        for window in (60.0, 30.0, 10.0):
            while app.view.window > window:
                app.view.zoom(-1)
            for _ in range(4):
                feed.advance(1)
                app.poll()
                await pilot.pause()
                state = page_of(app).state
                assert state.grid.step <= state.interval
                lines = text(app)
                begin = next(place for place, line in enumerate(lines) if "All GPUs" in line) + 1
                strips = [line[: state.plan.left + state.plan.cells] for line in lines[begin : begin + state.plan.gpus]]
                assert len(strips) > 1
                assert not [line for line in strips if "·" in line], window

    play(feed, (120, 40), script)


def test_cursor_shows_epoch_and_phase() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("2")
        for second, wanted in ((97 * 3 + 20, "epoch 3  step"), (97 * 4 - 5, "validate"), (97 * 4 + 5, "epoch 4  step")):
            app.view.point(START + second)
            app.draw()
            await pilot.pause()
            assert any(wanted in line for line in text(app)), second

    play(FakeFeed(), (160, 50), script)


def test_cursor_at_the_start_of_a_run_shows_it() -> None:
    feed, first, epoch = FakeFeed(epoch_seconds=101, seconds=460), 297, 303
    for frame in feed.frames:
        frame._runs = tuple(run._replace(started=START + first + 0.4) for run in frame.runs)
        frame._boundaries = tuple(one for one in frame.boundaries if one.time_ns >= (START + epoch) * 1e9)

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("2")
        for second, wanted in ((first, "resnet50  begins"), (epoch, "epoch 3"), (first - 9, "")):
            app.view.point(START + second)
            app.draw()
            await pilot.pause()
            assert app.pages["Chart"].state.grid.step == 5, "a column begins before what begins in it"  # type: ignore[attr-defined]
            beside = "\n".join(line[LEFT + 120 :] for line in text(app)[:6])
            assert (wanted in beside) if wanted else not re.search("epoch|resnet", beside), (second, beside)

    play(feed, (160, 50), script)


def test_no_epoch_after_the_end_of_a_run() -> None:
    feed, over = FakeFeed(seconds=460), 400
    for second, frame in enumerate(feed.frames):
        ended = [run._replace(state=RunState.FAILED, updated=float(START + over)) for run in frame.runs]
        frame._runs = frame.runs if second < over else tuple(ended)
        frame._boundaries = tuple(boundary for boundary in frame.boundaries if boundary.time_ns < (START + over) * 1e9)

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("2")
        assert "epoch" not in text(app)[2], "now"
        for second, is_told in ((over - 20, True), (over + 20, False), (over + 50, False)):
            app.view.point(START + second)
            app.draw()
            await pilot.pause()
            assert ("epoch" in text(app)[2]) is is_told, second
        await pilot.press("0", "left_square_bracket")
        assert ("epoch" in text(app)[2]) is (app.view.chart_time.end < START + over), (
            "at the end of a picture of the past"
        )

    play(feed, (80, 24), script)


def test_current_holder_is_not_shown_beside_past_values() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("2")
        assert any("free" in line[LEFT + 120 :] for line in text(app))
        await pilot.press("left")
        assert not any("free" in line[LEFT + 120 :] for line in text(app)), "what it was then is not known"

    play(FakeFeed(), (160, 50), script)


@dataclass
class Counting(FakeFeed):
    """Counts nothing; only GPU 1 is silent for a while."""

    def sample(self, device: Any, second: int) -> Sample:
        found = super().sample(device, second)
        silent = device.index == 1 and 300 <= second < 360
        return found._replace(values=[nan] * len(found.values)) if silent else found


def test_gap_of_one_gpu_is_only_in_its_row() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("2")
        found = [line for line in text(app) if re.match(r"▌? +\d [ ▌]", line[: LEFT + 1])]
        rows = {line[:LEFT].split()[-1]: line[LEFT:] for line in found}
        assert rows["1"][: LEFT + 120].count("·") == 12, "a minute is twelve columns of 5 s"
        assert rows["0"][: LEFT + 120].count("·") == rows["2"][: LEFT + 120].count("·") == 0

    play(Counting(), (160, 50), script)


def test_chart_shows_where_history_begins() -> None:
    lines = shown("plus", seconds=300)
    (line,) = (line for line in lines if "history begins here" in line)
    begin = line.index("history begins here") + len("history begins here") + 1
    above = [one[LEFT:begin].strip() for one in lines[5:20] if one is not line]
    assert not any(above)
    assert re.search("[\u2801-\u28ff]", "".join(one[begin:] for one in lines[5:20]))


def test_pan_and_return_to_now() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("2", "minus", "minus")
        live = text(app)
        await pilot.press("left_square_bracket", "left_square_bracket", "left")
        assert app.view.chart_time.is_past
        assert is_known(app.view.chart_time.cursor)
        await pilot.press("escape")
        assert not app.view.chart_time.is_past
        assert not is_known(app.view.chart_time.cursor)
        assert text(app) == live
        await pilot.press("left", "0")
        assert text(app) == live

    play(FakeFeed(), (160, 50), script)


def test_cursor_keeps_its_column_while_panning() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("2", "minus", "minus", "left", "left", "left")
        state, shown = page_of(app).state, app.view.chart_time
        column, at = state.cursor, shown.cursor
        await pilot.press("left_square_bracket")
        assert state.cursor == column
        assert shown.cursor < at
        await pilot.press("left")
        assert shown.is_past, "it moves on from there"
        assert state.cursor == column - 1

    play(FakeFeed(seconds=300), (80, 24), script)


def test_brackets_pan_the_chart_and_seek_elsewhere() -> None:
    here, there = key_binding(CHART, "left_square_bracket"), key_binding("Overview", "left_square_bracket")
    assert here is not None
    assert there is not None
    assert (here.action, there.action) == ("pan(-1)", "app.seek(-60)")
    braces = key_binding(CHART, "left_curly_bracket")
    assert braces is not None
    assert braces.action == "app.seek(-600)"
    assert "{ }" in here.tooltip, "the help says so"


def test_cursor_moves_the_window_at_its_edges() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("2", "minus", "minus", *["left"] * 5)
        state: ChartState = page_of(app).state
        assert not app.view.chart_time.is_past
        await pilot.press("home")
        assert app.view.chart_time.is_past
        assert state.cursor == 0
        assert state.column.begin <= START < state.column.end, "at the oldest sample"
        await pilot.press("left")
        assert state.column.begin <= START < state.column.end, "there is nothing older to read out"
        await pilot.press("end")
        assert not app.view.chart_time.is_past
        assert state.column.begin <= app.view.now < state.column.end

    play(FakeFeed(), (160, 50), script)


def test_cursor_time_stays_in_the_window() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        feed = app.source.feed
        assert isinstance(feed, FakeFeed)
        await pilot.press("2", "minus", "minus", "minus", *["left"] * 3)
        state, moment = page_of(app).state, app.view.chart_time.cursor
        for _ in range(5):
            feed.advance(20)
            app.poll()
            await pilot.pause()
            assert app.view.chart_time.cursor == moment
            assert state.cursor >= 0
        assert app.view.chart_time.is_past

    play(FakeFeed(), (160, 50), script)


def test_zoom_says_when_there_is_no_other_window() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("2", *["+"] * 20)
        assert "no longer window: history begins here" in text(app)[-1]
        await pilot.press(*["-"] * 30)
        assert "no shorter window" in text(app)[-1]

    play(FakeFeed(), (80, 24), script)


def test_zoom_keeps_the_cursor_in_the_window() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("2", *["shift+left"] * 6)
        moment = app.view.chart_time.cursor
        for key in ["minus"] * 6 + ["plus"] * 9:
            await pilot.press(key)
            assert app.view.chart_time.cursor == moment
            assert page_of(app).state.cursor >= 0, key

    play(FakeFeed(), (160, 50), script)


def test_mouse_zooms_sets_the_cursor_and_selects_a_gpu() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("2")
        page = page_of(app)
        board, window = page.board, app.view.window
        wheel = {"x": 9, "y": 9, "delta_x": 0, "delta_y": 0, "button": 0, "shift": False, "meta": False, "ctrl": False}
        board.post_message(events.MouseScrollUp(board, **wheel))
        await pilot.pause()
        assert app.view.window < window
        board.post_message(events.MouseScrollDown(board, **wheel))
        await pilot.pause()
        assert app.view.window == window
        await pilot.click(board, offset=(LEFT + 33, 10))
        assert page.state.cursor == 33
        await pilot.click(board, offset=(3, page.state.plan.heat_title + 1 + 2))
        assert app.view.subject == app.view.samples[2].device.uuid
        line = text(app)[2]
        await pilot.click(page.heading, offset=(line.index("+"), 1))
        assert app.view.window < window
        await pilot.click(page.heading, offset=(3, 1))
        assert isinstance(app.screen, ListWindow)

    play(FakeFeed(), (160, 50), script)


def test_chart_is_redrawn_once_per_column() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("2")
        feed, board = app.source.feed, page_of(app).board
        assert isinstance(feed, FakeFeed)
        drawn = []
        for _ in range(20):
            feed.advance()
            app.poll()
            await pilot.pause()
            drawn.append(id(board._lines[5]))
        changes = sum(one != other for one, other in pairwise(drawn))
        assert 3 <= changes <= 4, "20 s are four columns of 5 s"

    play(FakeFeed(), (160, 50), script)


def test_silent_daemon_dims_and_dates_the_charts() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("2")
        assert any(line[: LEFT + 120].rstrip().endswith("now") for line in text(app)[4:])
        app.source.feed.live = LiveState(False, "the daemon does not answer", 1.0, age=15.0, since=app.view.now)  # type: ignore[attr-defined]
        app.poll()
        await pilot.pause()
        assert app.view.age > 0
        screen = "\n".join(text(app)[1:])
        assert "15 s ago" in screen
        assert "now" not in screen
        assert page_of(app).board._style_cache.is_faded

    play(FakeFeed(), (160, 50), script)


def test_chart_without_values_says_why() -> None:
    @dataclass
    class Plain(FakeFeed):
        """GPUs whose utilization nobody reports."""

        def sample(self, device: Any, second: int) -> Sample:
            found = super().sample(device, second)
            missing = {"gpu.utilization": Availability.NOT_SUPPORTED}
            values = [
                nan if one.name in missing else value for one, value in zip(GPU_METRICS, found.values, strict=True)
            ]
            return found._replace(values=values, device=found.device._replace(missing=missing))

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("2")
        assert any("not available: " in line for line in text(app)[4:30])

    play(Plain(gpus=1, seconds=60), (160, 50), script)


def test_another_source_starts_at_now() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("2", "minus", "left_square_bracket", "left")
        app.view.forget()
        app.page.forget()
        assert not app.view.chart_time.is_past
        assert not is_known(app.view.chart_time.cursor)

    play(FakeFeed(gpus=1), (80, 24), script)


def test_month_and_minute_and_month_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o700)
    path, now = tmp_path / "history.sqlite", float(START + 120)
    gap = now - 15 * DAY, now - 10 * DAY

    def busy(subject: str, name: str, at: float) -> tuple[float, float, float]:
        return (nan,) * 3 if name != "gpu.utilization" or not subject or gap[0] <= at < gap[1] else (0.9,) * 3

    fill(str(path), ["GPU-0000"], now, busy, SHAPES[2:])
    monkeypatch.setattr("time.time", lambda: now + 1)
    found: list[list[str]] = []

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("2")
        state = page_of(app).state
        for keys in (["plus"] * 14, ["minus"] * 13, ["plus"] * 14):
            await pilot.press(*keys)
            await pilot.pause()
            found.append(text(app)[1:-1])
            if app.view.window == 31 * DAY:
                mean = state.curves()["gpu.utilization"].mean
                unknown = [place for place, value in enumerate(mean) if not is_known(value)]
                inside = range(2 * state.grid.at(gap[0]) + 2, 2 * state.grid.at(gap[1]) - 1)
                assert set(inside) <= set(unknown), "five days of no samples are a gap"
        assert app.view.window == 31 * DAY

    still = FakeClock(start=120 * SECOND)  # or the frames would be old before all keys are pressed
    play(FakeFeed(gpus=1, seconds=120, kept_in=str(path)), (80, 24), script, clock=still)
    month, minute, again = found
    assert month == again
    assert month != minute


def test_coarse_history_shows_its_resolution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o700)
    path, now = tmp_path / "history.sqlite", float(START + 120)
    fill(str(path), ["GPU-0000"], now, lambda subject, name, at: (0.5, 0.6, 0.9) if subject else (nan,) * 3, SHAPES)
    monkeypatch.setattr("time.time", lambda: now + 1)

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("2")
        for age, said in ((30, ""), (1800, ""), (7200, "kept by 10 s"), (3 * DAY, "kept by 5 min")):
            app.view.chart_time.fix(now - age, 2)
            app.draw()
            await pilot.pause()
            title, *_ = (line for line in text(app) if "a column" in line)
            assert said in title
            assert ("kept" in title) is bool(said), title
            assert is_known(page_of(app).state.curves()["gpu.utilization"].mean[-4]), "it is drawn nevertheless"
        app.view.chart_time.fix(nan, 31 * DAY)
        app.draw()
        await pilot.pause()
        assert not any("kept" in line for line in text(app)[:5]), "columns are as long as many cells"

    play(FakeFeed(gpus=1, seconds=120, kept_in=str(path)), (160, 50), script)


def test_partly_coarse_window_shows_until_when(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o700)
    path, now = tmp_path / "history.sqlite", float(START + 120)
    began = now // 300 * 300 - 1800

    def values(subject: str, name: str, at: float) -> tuple[float, float, float]:
        return (0.5, 0.6, 0.9) if subject else (nan,) * 3

    fill(str(path), ["GPU-0000"], began, values, SHAPES[-1:])
    fill(str(path), ["GPU-0000"], now, lambda *what: values(*what) if what[2] >= began else (nan,) * 3, SHAPES[:-1])
    monkeypatch.setattr("time.time", lambda: now + 1)

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("2")
        app.view.chart_time.fix(now, 3600)
        app.draw()
        await pilot.pause()
        title, *_ = (line for line in text(app) if "a column" in line)
        assert f"kept by 5 min before {units.moment(began)[11:16]}" in title

    play(FakeFeed(gpus=1, seconds=120, kept_in=str(path)), (160, 50), script)


def test_host_has_its_own_metrics() -> None:
    lines = shown("G")
    assert "CPU" in lines[2]
    assert "host node7" in lines[2]
    assert any("Memory" in line for line in shown("G m")[2:3])


def other_run(feed: FakeFeed) -> None:
    """A training of another user on the devices of the first, with epochs of its own."""
    for second, frame in enumerate(feed.frames):
        first = frame.runs[0]
        other = first._replace(key="other", id="id-other", name="vit", user="eve", epoch=second // 60 + 50, rank=0)
        began = [
            Boundary("other", second, Mark.EPOCH_BEGIN, second // 60 + 50, 0, "train", 0, (START + second) * 10**9)
        ] * (second % 60 == 0)
        frame._runs = (*frame.runs, other._replace(gpus=first.gpus, world_size=1))
        frame._boundaries = (*frame.boundaries, *began)


def test_chart_shows_the_epochs_of_one_run() -> None:
    feed = FakeFeed()
    other_run(feed)

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        def marked() -> set[str]:
            return {mark.run for mark in app.view.chart_epochs()[0].marks}

        async def selected(run: str) -> str:
            app.view.selected_run = run
            app.draw()
            await pilot.pause()
            return "\n".join(text(app))

        await pilot.press("2", "G")
        assert app.view.subject == HOST
        for run, name in (("id-0", "resnet50"), ("id-other", "vit")):
            assert f"epochs of {name}" in await selected(run)
            assert marked() == {run}
        await pilot.press("g")
        assert app.view.subject == "GPU-0000"
        assert "epochs of resnet50" in await selected("id-1")
        assert marked() == {"id-0"}, "a GPU that two runs share, and the selected one is on another"
        await selected("id-other")
        assert marked() == {"id-other"}

    play(feed, (160, 50), script)


def test_past_is_labeled_until_now() -> None:
    feed = FakeFeed(gpus=1)

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        def charts() -> list[str]:
            return [line[: LEFT + 120].rstrip() for line in text(app)[1:-1]]

        await pilot.press("2", "minus", "comma")
        before, drawn = text(app), charts()
        assert app.view.chart_time.end == START + 699 - 150
        assert " PAST " in before[0]
        assert "0 to now" in before[-1]
        assert "%" not in drawn[1], "no value of now on a chart of the past"
        assert not any(re.search(r"\bnow\b", line) for line in drawn)
        for _ in range(30):
            feed.advance()
        app.poll()
        await pilot.pause()
        assert charts() == drawn, "it stands still"
        assert text(app)[1:-1] != before[1:-1], "numbers beside it are those of now"
        await pilot.press("0")
        assert "%" in charts()[1]
        assert "PAST" not in text(app)[0]

    play(feed, (160, 50), script)


def test_values_beside_heat_strips_are_whole() -> None:
    received = "gpu.pcie_received"

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("2", "p", "p", "p", "left", "left")
        assert page_of(app).state.heat_metric.name == received
        begin = next(at for at, line in enumerate(text(app)) if "All GPUs" in line) + 1
        rows = text(app)[begin : begin + 4]
        assert all(re.search(r" [\d.]+ [KMG]iB/s ", row) for row in rows), rows
        assert not any("…" in row for row in rows), rows

    play(FakeFeed(gpus=4), (200, 50), script)


def test_footer_names_one_meaning_of_escape() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("2")
        assert "Esc 0 live" in text(app)[-1]
        await pilot.press("1", "enter")
        assert "Esc back" in text(app)[-1]
        assert "  0 live " in text(app)[-1]
        assert text(app)[-1].count("Esc") == 1

    play(FakeFeed(), (200, 50), script)
