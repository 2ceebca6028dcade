"""The overview: what it shows at which size, what its keys and clicks select, and what of it is drawn anew."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from rich.segment import Segment
from textual.pilot import Pilot

from gpumon.analysis.gpu_state import GpuState
from gpumon.analysis.gpu_status import GpuStatus
from gpumon.analysis.run_epochs import EpochMark
from gpumon.common.numbers import NAN, is_known
from gpumon.model.device import REPLAY_PREFIX, Device
from gpumon.model.frame import Run, RunState, Sample
from gpumon.model.metrics import GPU_INDEX, GPU_METRICS, PROCESSES, Availability
from gpumon.model.process import Process
from gpumon.model.vendors import NVIDIA
from gpumon.storage.history.buckets import Grid
from gpumon_tui import theme
from gpumon_tui.app import GpumonApp
from gpumon_tui.render import overview_rows
from gpumon_tui.render.bars import numerals
from gpumon_tui.render.gpu_charts import SMALL, charts_plan
from gpumon_tui.render.gpu_columns import HOLDERS, THROTTLED, epoch_ticks, free_summary, gpu_columns, hidden_gpus
from gpumon_tui.render.gpu_row import GpuLine, gpu_row, gpu_text
from gpumon_tui.render.gpu_status import HEAT_THROTTLED, GpuHolder, GpuLabel, facts, facts_line, throttled
from gpumon_tui.render.overview_rows import LOSS, PROCESS_COLUMNS, EpochLine, loss_cell
from gpumon_tui.render.strip import LEVELS, strip, strip_grid
from gpumon_tui.render.table import fit_columns, row_line
from gpumon_tui.screens.overview import OverviewPage
from gpumon_tui.screens.runs import RunsPage
from gpumon_tui.state import View
from gpumon_tui.widgets.overview_past import _EpochRow, _format_logged
from tests.builders import judged, sample
from tests.tui.fakes import START, FakeFeed
from tests.tui.screen import play, text

SIZES = [(40, 20), (80, 24), (120, 40), (200, 50), (320, 90)]
COUNTS = (0, 1, 2, 8, 16, 32)


def plain(line: list[Segment]) -> str:
    return "".join(segment.text for segment in line)


def test_strip_columns_begin_at_round_times() -> None:
    for cells in (8, 15, 29, 65, 146):
        grid = strip_grid(600, cells, START + 0.5)
        assert grid.buckets == cells
        assert grid.begin % grid.step == 0
        assert 0 <= grid.at(START + 0.5) == cells - 1
        assert 600 <= grid.step * cells <= 660
        later = strip_grid(600, cells, START + 0.5 + grid.step)
        assert later.first == grid.first + 1


def test_strip_has_levels_zero_and_gaps() -> None:
    assert plain(strip([0.0, 0.001, 0.02, 0.5, 1.0, NAN, 7.0])) == "▁▁▁▄▇·▇"
    styles = [segment.style for segment in strip([0.9, 0.9, 0.9])]
    assert len(styles) == 2, "that of now stands out"
    zero, little = strip([0.0, 0.1, 1.0])[:2]
    assert zero.style != little.style
    assert "█" not in LEVELS


def test_every_gpu_has_one_line() -> None:
    lines = play(FakeFeed(lost=(3,), stale=(6,)), (120, 40))
    rows = {int(line[2:5]): line for line in lines if re.match(r"[ ▌]   \d  ", line)}
    assert re.search(r"resnet50 +8/90 +2 h 13 m$", rows[0])
    assert rows[2].endswith("│") or rows[2].endswith("└"), "of the same run"
    assert rows[3].endswith("lost")
    assert " – " in rows[3]
    assert re.search(r"bob +llama-8b-lora +2/3", rows[4])
    assert "allocated, idle > 11 m" in rows[5]
    assert rows[6].endswith("stale 12 s")
    assert rows[7].endswith("free")


def test_epochs_of_the_selected_run_are_below_the_strips() -> None:
    columns = gpu_columns(120)
    grid = Grid(0, 20.0, columns.strip_cells)
    far = [EpochMark(40.0 + 200 * number, number, "r") for number in range(3)]
    assert plain(epoch_ticks(columns, grid, far, "vit")).split() == ["╵e0", "╵e1", "╵e2", "epochs", "of", "vit"]
    line = plain(epoch_ticks(columns, grid, far, "vit"))
    assert line.index("╵e1") == columns.begin("history") + 12
    near = [EpochMark(20.0 * number, number, "r") for number in range(28)]
    shown = [int(one) for one in re.findall(r"╵e(\d+)", plain(epoch_ticks(columns, grid, near, "vit")))]
    assert shown == [0, 10, 20], "every tenth where they crowd"
    assert epoch_ticks(columns, grid, [EpochMark(-5.0, 1, "r")], "vit") == []


def test_keys_and_clicks_select_and_other_pages_keep_it() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        page = app.pages["Overview"]
        await pilot.press("down", "j", "j", "down")
        assert app.view.subject == "GPU-0004"
        assert app.view.selected_run == "id-1", "the run of that GPU"
        await pilot.press("up", "k", "home")
        assert app.view.subject == "GPU-0000"
        await pilot.press("tab")
        assert page.active is page.runs
        await pilot.press("end")
        assert app.view.selected_run == app.view.ranks[-1].first.id
        await pilot.press("tab")
        assert app.view.selected_process == page.processes.keys[0], "keys are seen to go there"
        await pilot.press("home", "down")
        assert app.view.selected_process == page.processes.keys[1]
        await pilot.press("tab")
        assert page.active is page.gpus
        await pilot.click("#gpus", offset=(30, 3))
        assert app.view.subject == "GPU-0002"
        await pilot.press("enter")
        await pilot.pause()
        assert app.page.page_name == "Chart"
        assert app.view.subject == "GPU-0002"
        await pilot.press("1")
        await pilot.click("#processes", offset=(20, 3))
        assert page.active is page.processes
        await pilot.press("enter")
        await pilot.pause()
        assert app.page.page_name == "Processes"

    play(FakeFeed(), (120, 40), script)


def test_second_click_on_a_row_opens_it() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        for part, row, page in (("#gpus", 3, "Chart"), ("#processes", 3, "Processes")):
            for wanted in ("Overview", page):
                await pilot.click(part, offset=(30, row))
                await pilot.pause()
                assert app.page.page_name == wanted
            assert app.view.subject == "GPU-0002"
            await pilot.press("1")

    play(FakeFeed(), (120, 40), script)


def test_click_on_a_section_name_opens_more() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.click("#attention", offset=(5, 0))
        await pilot.pause()
        assert "Check the fans" in "\n".join(text(app))
        for open_findings in (pilot.press("exclamation_mark"), pilot.click("#attention", offset=(20, 1))):
            await pilot.press("x")
            await open_findings
            await pilot.pause()
            assert "Check the fans" in "\n".join(text(app))
        await pilot.press("x")
        await pilot.click("#processes", offset=(5, 0))
        await pilot.pause()
        assert app.page.page_name == "Processes"

    play(FakeFeed(), (120, 40), script)


def test_wheel_scrolls_processes() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        processes = app.pages["Overview"].processes
        assert "and 11 more with" in "\n".join(text(app))
        processes.on_mouse_scroll_down()
        await pilot.pause()
        assert re.search(r"\+3 ▲  \+8 ▼", "\n".join(text(app)))

    play(FakeFeed(), (120, 40), script)


def test_attention_shows_three_findings_and_counts_the_rest() -> None:
    lines = play(FakeFeed(lost=(1, 3)), (120, 40))
    at = next(place for place, line in enumerate(lines) if line.strip().startswith("Attention"))
    assert lines[at].strip().startswith("Attention  3 of 4 ")
    assert lines[at].endswith("! opens all")
    assert [line.split()[0] for line in lines[at + 1 : at + 4]] == ["▲", "▲", "△"], "the most severe first"
    calm = "\n".join(play(FakeFeed(gpus=1, seconds=5), (120, 40)))
    assert "nothing needs attention" in calm


def test_epoch_has_one_form_in_all_tables() -> None:
    """In tables its place in the plan, which is the same at any width; its number is that of `status --json`."""

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        frame = app.view.frame
        assert frame is not None
        (number,) = {run.epoch for run in frame.runs if run.id == "id-0"}
        screen = "\n".join(text(app))
        assert screen.count(f" {number + 1}/90 ") == 2, "a GPU's row and the run's"
        assert f"({number + 1}/90)" not in screen
        await pilot.press("2", "left")
        await pilot.pause()
        assert re.search(rf"epoch {number}\b", "\n".join(text(app)))

    play(FakeFeed(), (160, 50), script)
    narrow = "\n".join(play(FakeFeed(), (40, 20)))
    assert " 8/90" in narrow, "a part of the same, never a second notation"
    assert "7/90" not in narrow


def test_run_shows_pace_and_change_of_loss() -> None:
    lines = play(FakeFeed(seconds=660), (120, 40))
    at = next(place for place, line in enumerate(lines) if line.strip().startswith("Runs  2"))
    assert re.search("epoch +phase +steps/s +loss +change +left +ends", lines[at + 1])
    (row,) = (line for line in lines[at:] if line.strip().startswith("resnet50 "))
    assert re.search(r"train +7.00 +1\.4\d+ +−5\.7 %", row)


def test_ended_run_shows_how_it_ended() -> None:
    for state, word in ((RunState.INTERRUPTED, "interrupted"), (RunState.FAILED, "failed"), (RunState.DIED, "died")):
        feed = FakeFeed(seconds=60)
        for frame in feed.frames:
            frame._runs = tuple(run._replace(state=state) if run.id == "id-1" else run for run in frame.runs)
        screen = "\n".join(play(feed, (120, 40)))
        assert "1 running, 1 over" in screen
        assert re.search(rf"llama-8b-lora.* {word}", screen)


def told(samples: Sequence[Sample], states: Sequence[GpuState], cells: int = 40) -> str:
    """What the line says that counts GPUs."""
    return plain(free_summary([judged(*one) for one in zip(samples, states, strict=True)], cells))


def test_free_summary_claims_only_known_states() -> None:
    gpus = [sample(index, memory_total=80 * 2.0**30) for index in range(3)]
    said = told(gpus, [GpuState.FREE, GpuState.LOST, GpuState.DIVIDED])
    assert said.split() == ["1", "free", "GPU", "0", "80.0", "GiB", "1", "unknown"]
    assert told(gpus, [GpuState.UNKNOWN] * 3).split() == ["3", "unknown"]
    assert told(gpus, [GpuState.IDLE] * 3).split() == ["3", "idle"]
    assert told(gpus, [GpuState.BUSY] * 3).split() == ["0", "free", "3", "busy"]


def test_single_gpu_has_large_numbers_and_charts() -> None:
    lines = play(FakeFeed(gpus=1), (120, 40))
    screen = "\n".join(lines)
    for row in numerals("89"):
        assert f"  {row}" in screen
    for said in (
        "10 min        87%", "lowest        37%",
        "allocated 6.6", "cached 2.2", "context 0.6", "others 1.6", "free 68.0",
        "driver 0.5", "613 of 700 W", "67 °C", "1.95 GHz", "PCIe in", "╷e4", "nothing needs attention",
    ):  # fmt: skip
        assert said in screen, said
    assert re.search(r"GPU 0  busy  alice  resnet50  7 \(8/90\)  2 h 13 m left", screen)
    assert "utilization, last" not in screen, "its utilization is drawn once"
    for cells, rows in ((80, 24), (200, 50)):
        screen = "\n".join(play(FakeFeed(gpus=1), (cells, rows)))
        assert "P0   fan 66 %   encoder 0 %   decoder 0 %" in screen, (cells, rows)
    assert re.search(r"Util +89%.*\n(?s:.*)Memory +\S+ of 79\.6, peak", "\n".join(play(FakeFeed(gpus=1), (80, 24))))


def test_unreported_facts_are_left_out() -> None:
    told = sample(0, fan=0.38, performance_state=2.0, encoder_utilization=0.0)
    assert facts(told) == [("", "P2"), ("fan", "38 %"), ("encoder", "0 %")]
    assert facts(sample(0)) == []
    named = sample(0, temperature=61.0, power=212.4, clock_sm=1.98e9)
    assert [value for _, value in facts(named, charted=False)] == ["61 °C", "212 W", "1.98 GHz"]
    assert plain(facts_line(told, 20)) == "P2   fan 38 %", "whole or not at all"


def test_throttling_reasons_fit_their_column() -> None:
    def text(mask: int) -> str:
        one = sample(0, event_reasons=mask)
        one = one._replace(device=one.device._replace(name="NVIDIA H100"))
        return throttled(one, is_hot=False, room=THROTTLED)

    assert all(text(bit) == short for bit, _, short in NVIDIA.clock_events if short != "idle")
    assert max(len(text(mask)) for mask in range(512)) <= THROTTLED
    assert text(0x8 | 0x40) == "2 reasons"


def test_heat_by_counters_is_shown_as_throttling() -> None:
    told = sample(0, event_reasons=0.0)
    told = told._replace(device=told.device._replace(name="NVIDIA H100"))
    assert dict(facts(told))["throttled"] == "no"
    assert dict(facts(told, is_hot=True))["throttled"] == "heat"
    nobody, columns = GpuHolder("", False, "", ()), gpu_columns(200)
    for word, said in (("busy", "no"), (HEAT_THROTTLED, "heat")):
        label = GpuLabel(word, theme.WARN, word == "busy", is_hot=word == HEAT_THROTTLED)
        row = gpu_row(GpuLine(told, GpuState.BUSY, label, "", nobody, NAN, NAN, NAN, []), columns)
        cells = {placed.column.key: cell.text for placed, cell in zip(columns.placed, row, strict=True)}
        assert cells["throttled"] == said


def test_wide_rows_have_fan_state_and_video_engines() -> None:
    lines = play(FakeFeed(), (200, 50))
    assert re.search(r"PCIe in +out +fan % +P +enc % +dec % +throttled", lines[2])
    assert re.search(r" 66 +P0 +0 +0 +–", lines[3])
    assert re.search(r" 30 +P8 +0 +0 +–", lines[8]), "an idle one"
    feed = FakeFeed()
    for frame in feed.frames:
        place = GPU_INDEX["gpu.fan"]
        frame._samples = tuple(
            one._replace(values=[NAN if at == place else value for at, value in enumerate(one.values)])
            for one in frame.samples
        )
    lines = play(feed, (200, 50))
    assert "fan" not in lines[2]
    assert re.search(r"out +P +enc %", lines[2])


def test_selected_of_two_gpus_has_charts() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        assert "allocated 6.6" in "\n".join(text(app))
        await pilot.press("down")
        assert "allocated 12." in "\n".join(text(app))

    play(FakeFeed(gpus=2), (120, 40), script)


def test_unknown_numbers_are_dashes_and_charts_say_why() -> None:
    screen = "\n".join(play(FakeFeed(gpus=1, lost=(0,)), (160, 50)))
    for row in numerals("–"):
        assert f"  {row}".rstrip() in screen
    assert "breakdown unknown" in screen
    assert "no samples in this window" in screen
    assert re.search("lowest +–", screen)


def test_numerals_are_three_rows_of_half_blocks() -> None:
    assert numerals("1.0") == ["▄█    █▀█", " █    █ █", "▀▀▀ ▀ ▀▀▀"]
    assert numerals("") == ["", "", ""]
    for digit in "0123456789":
        assert len(set(map(len, numerals(digit)))) == 1


@pytest.mark.parametrize("cells", [60, 80, 100, 160, 320])
@pytest.mark.parametrize("rows", [9, 10, 11, 12, 15, 22, 40])
@pytest.mark.parametrize("alone", [False, True])
def test_charts_fill_their_room(cells: int, rows: int, alone: bool) -> None:
    plan = charts_plan(cells, rows, has_no_row=alone)
    assert plan.utilization >= 1
    assert plan.memory >= 2 or rows < 11
    assert plan.before + plan.cells < cells
    assert plan.head + 5 + plan.utilization + plan.memory + (plan.small + 3 if plan.small else 0) == rows


def test_single_small_chart_is_aligned_with_the_large_ones() -> None:
    @dataclass
    class PowerAlone(FakeFeed):
        """A recording of which nothing but utilization, memory and power is known."""

        def sample(self, device: Device, second: int) -> Sample:
            found = super().sample(device, second)
            unknown = dict.fromkeys(SMALL[1:], Availability.NOT_SUPPORTED)
            values = [
                NAN if one.name in unknown else value for one, value in zip(GPU_METRICS, found.values, strict=True)
            ]
            return found._replace(values=values, device=device._replace(missing={**device.missing, **unknown}))

    lines = play(PowerAlone(gpus=1), (160, 50))
    times = [line for line in lines if re.search(r"\d\d:\d\d.* now *$", line)]
    assert len(times) == 2
    assert times[0] == times[1]
    assert any(re.match(r"  Power +\d+ ", line) for line in lines)


def test_wide_screen_has_two_columns_and_rank_strips() -> None:
    lines = play(FakeFeed(), (200, 50))
    (heads,) = (line for line in lines if "Attention  3" in line)
    assert heads.index("Runs  2 running") > 90
    ranks = [line[90:] for line in lines if re.search(r" rank \d  ", line)]
    assert [re.findall(r"rank (\d)", line)[0] for line in ranks] == ["0", "1", "2", "3"]
    assert all("▌▌▌" in line for line in ranks)
    assert not any("·" in line for line in ranks), "what has not yet come is no gap"
    assert "utilization by rank, last 1" in "\n".join(lines)


@dataclass
class LateRun(FakeFeed):
    """Its first run began while the GPUs had been at work for long, and may have ended since."""

    began: float = 350.0
    ended: float = NAN

    def runs(self, second: int) -> tuple[Run, ...]:
        found = [run._replace(started=START + self.began) for run in super().runs(second)]
        if second >= self.ended:
            found = [run._replace(state=RunState.DIED, updated=START + self.ended) for run in found]
        return tuple(found)


@pytest.mark.parametrize(("began", "ended"), [(350.0, NAN), (0.0, 350.0), (200.0, 500.0)])
def test_rank_strip_covers_the_time_of_its_run(began: float, ended: float) -> None:
    whole = _rank_strips(play(FakeFeed(), (200, 50), in_15_minutes))
    part = _rank_strips(play(LateRun(began=began, ended=ended), (200, 50), in_15_minutes))
    lasted = (ended if is_known(ended) else 700) - began
    assert all(abs(len(one) - lasted / 700 * len(all_of)) <= 2 for one, all_of in zip(part, whole, strict=True))


async def in_15_minutes(app: GpumonApp, pilot: Pilot[None]) -> None:
    """Show all of the 700 seconds that there are."""
    app.view.chart_time.length = 900
    app.draw()
    await pilot.pause()


def _rank_strips(lines: list[str]) -> list[str]:
    return [line.split("rank ")[1][1:].strip() for line in lines if re.search(r" rank \d  ", line)]


def test_large_screen_has_epochs_and_events() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        lines = [line[90:] for line in text(app)]
        at = next(place for place, line in enumerate(lines) if "Epochs  of resnet50  ·  newest first" in line)
        assert lines[at].rstrip().endswith("4 table")
        assert lines[at + 1].split() == ["epoch", "time", "change", "steps/s", "util", "energy", "loss"], (
            "none is empty"
        )
        newest, before = (line.split() for line in lines[at + 2 : at + 4])
        assert newest[:2] == ["e7", "▸"]
        assert before[:2] == ["e6", "1:37"]
        assert before[-1] == "1.445", "what it logged last"
        assert any("run began" in line and "GPU 4" in line for line in lines[at:])
        await pilot.click("#epochs", offset=(5, 0))
        await pilot.pause()
        assert app.page.page_name == "Runs"
        await pilot.press("1")
        await pilot.click("#events", offset=(5, 2))
        picture = app.pages["Overview"]
        assert picture.active is not picture.events, "it has no cursor"
        await pilot.click("#events", offset=(5, 0))
        await pilot.pause()
        assert app.page.page_name == "Events"

    play(FakeFeed(), (200, 50), script)
    assert "Epochs" not in "\n".join(play(FakeFeed(), (120, 40)))


def test_epoch_row_has_columns_with_values() -> None:
    values = {
        "seconds": 95.0, "steps_per_second": 2.94, "wait_share": 0.14, "utilization_mean": 0.88, "idle_share": 0.04,
        "energy": 3600.0 * 64, "memory_used_peak": NAN,
    }  # fmt: skip
    line = EpochLine("e3", values, 0.147, ("1.018", "1.106"))
    columns = overview_rows.columns([line], ("loss", "val"))
    assert [column.title for column in columns] == [
        "epoch", "time", "change", "steps/s", "wait", "util", "idle", "energy", "loss", "val",
    ]  # fmt: skip
    told = [part[0] for part in overview_rows.texts(line, columns, overview_rows.largest([line]))]
    assert told == ["e3", "1:35", "+15 %", "2.94", "14%", "88%", "4%", "64.0 Wh", "1.018", "1.106"]
    unknown = EpochLine("e4", {"seconds": 1.0}, goes_on=True)
    shown = overview_rows.columns([unknown], ("loss",))
    assert [part[0] for part in overview_rows.texts(unknown, shown, {})] == ["e4 ▸", "1.0 s", "–", "–"]


def test_own_processes_stand_out_with_their_scripts() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        programs = app.view.programs
        programs.user = "alice"
        programs.name = lambda process: f"own_{process.pid}.py" if process.user == "alice" else ""  # type: ignore[method-assign]
        feed.advance()
        app.poll()
        await pilot.pause()
        section = app.pages["Overview"].processes
        rows = {plain(line).split()[2]: line for line in section._lines[2:-1]}
        assert "own_" in plain(rows["alice"])
        assert "python" in plain(rows["bob"])
        users = {name: next(one.style for one in rows[name] if name in one.text) for name in ("alice", "bob")}
        assert users["alice"] != users["bob"]

    feed = FakeFeed(source="nvml", label="", names=("python",))
    play(feed, (160, 50), script)


class Divided(FakeFeed):
    """Two GPUs, of which MIG divides the first one into seven."""

    def __post_init__(self) -> None:
        name = "NVIDIA H100 80GB HBM3"
        parent = Device("GPU-0000", 0, name, {PROCESSES: Availability.OF_INSTANCES})
        parts = [Device(f"MIG-{at}", 0, f"{name} MIG 1g.10gb", {}, "", parent.uuid, at) for at in range(7)]
        self.devices = [parent, *parts, Device("GPU-0001", 1, name, {})]
        self.advance(self.seconds)


def test_mig_instances_are_below_their_gpu() -> None:
    for size in ((40, 20), (80, 24), (120, 40), (200, 50)):
        lines = play(Divided(gpus=2, seconds=100), size)
        labels = [found[1] for line in lines if (found := re.match(r"[ ▌] *(\d(?::\d)?) [ ·▁-▇]*[·▁-▇ ] ", line))]
        assert labels == ["0", *(f"0:{at}" for at in range(7)), "1"], size
    few = play(Divided(gpus=2, seconds=100), (40, 10))
    assert "+2 ▼" in few[-2]


@pytest.mark.parametrize("cells", [30, 40, 60, 80, 200])
def test_count_of_hidden_gpus_is_never_truncated(cells: int) -> None:
    for free in (0, 2, 40):
        line = plain(hidden_gpus(0, 300, [str(at) for at in range(free)], cells))
        assert "+300 ▼" in line
        assert (f"{free} free" in line) == (free > 0)
        assert len(line) <= cells


def test_source_without_processes_gives_their_room_to_charts() -> None:
    feed = FakeFeed(gpus=8, seconds=0, source="replay", label="REPLAY x.csv", processes_count=0)
    feed.runs = lambda second: ()  # type: ignore[method-assign]
    feed.advance(20)
    lines = play(feed, (120, 40))
    shown = "\n".join(lines)
    heading = next(line for line in lines if line.startswith("  GPU"))
    assert heading.split()[-1] == "state"
    assert not re.search("user|program|epoch|left", heading)
    assert "Utilization" in shown
    assert "has no process data" not in shown


@pytest.mark.parametrize("word", ["light load", "allocated, idle", "heat-throttled", "state unknown"])
def test_state_is_whole_without_holder_columns(word: str) -> None:
    one = sample(0, utilization=0.1)
    for cells in range(56, 201, 8):
        columns = gpu_columns(cells, missing=frozenset({HOLDERS}))
        nobody, label = GpuHolder("", False, "", ()), GpuLabel(word, theme.DIM, False)
        row = gpu_row(GpuLine(one, GpuState.BUSY, label, "", nobody, NAN, NAN, NAN, []), columns)
        assert word in plain(row_line(row, columns.placed, cells)), cells


def test_gpus_are_counted_by_the_words_of_their_rows() -> None:
    light, busy, pausing = (sample(at, utilization=share) for at, share in enumerate((0.1, 0.9, 0.0)))
    assert " 1 light load " in told([light], [GpuState.BUSY]) + " "
    assert " 0 free  1 busy 1 light load 1 pausing " in told([light, busy, pausing], [GpuState.BUSY] * 3) + " "
    assert " 0 free  3 in use " in told([light, busy, pausing], [GpuState.BUSY] * 3, 20) + " ", "no row is miscounted"
    assert " 1 pausing " in told([pausing], [GpuState.BUSY]) + " "
    states = [GpuState.BUSY, GpuState.BUSY, GpuState.ALLOCATED]
    assert " 1 light load 1 pausing 1 allocated " in told([light, pausing, pausing], states, 48) + " "
    assert " 2 in use 1 allocated " in told([light, pausing, pausing], states, 36) + " ", "no row says busy"


def test_copies_the_row_under_the_cursor_of_any_part() -> None:
    copied: list[list[str]] = []

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        for keys in (("y",), ("tab", "down", "y"), ("tab", "home", "y")):
            await pilot.press(*keys)
            copied.append(app.clipboard.split("\t"))
            assert "copied, if the terminal" in text(app)[-1]

    play(FakeFeed(gpus=4), (120, 40), script)
    gpu, run, process = copied
    assert gpu[:3] == ["0", "H100 80GB HBM3", "GPU-0000"]
    assert re.fullmatch(r"\d+%", gpu[3])
    assert re.fullmatch(r"\d+\.\d/\d+\.\d GiB", gpu[4])
    assert gpu[-1] == "busy"
    assert len(gpu) == 11
    assert run[0] in ("resnet50", "llama-8b-lora")
    assert process[0].isdecimal()
    assert not any(set(part) & set("▌━╸█▆") for part in (*gpu, *run, *process)), "no bars"


def test_copy_of_a_log_has_no_id_and_no_limit() -> None:
    one = sample(2, utilization=0.5, power=153.0)
    one = one._replace(device=one.device._replace(uuid=f"{REPLAY_PREFIX}2"))
    status = GpuStatus(one, GpuState.BUSY, None, False, (), (), None)
    parts = gpu_text(status, None, "busy").split("\t")
    assert (parts[2], parts[6]) == ("–", "153 W")
    known = one._replace(device=one.device._replace(uuid="GPU-1"))
    assert "GPU-1" in gpu_text(status._replace(sample=known), None, "busy")


def test_copy_of_a_silent_gpu_has_no_current_values() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("y")
        parts = app.clipboard.split("\t")
        assert parts[3] == "–"
        assert parts[-1].startswith("stale")

    play(FakeFeed(gpus=3, stale=(0,)), (120, 40), script)


def test_program_column_has_twelve_cells_and_the_user_stays() -> None:
    for cells in range(40, 201):
        places = fit_columns(PROCESS_COLUMNS, 2, cells - 1)
        (program,) = (one for one in places if one.column.title == "program")
        assert program.column.cells >= (20 if cells == 80 else 12), cells
        assert any(one.column.title == "user" for one in places)
        assert program.begin + program.column.cells <= cells - 1


def test_loss_of_any_size_fits_its_column() -> None:
    for loss in (3.301e-5, -3.301e-5, 33010.0, -33010.2, 123456.7, 2.5e9, 0.98641):
        text = loss_cell({"loss": loss}).text
        assert len(text) <= LOSS
        assert float(text.replace("−", "-")) == pytest.approx(loss, rel=0.1)


def test_numbers_of_epochs_share_unit_and_decimals() -> None:
    now = _EpochRow(EpochLine("e3", {"energy": 3245.0}), {"loss": 1.12, "acc": 0.6964})
    before = _EpochRow(EpochLine("e2", {"energy": 9000.0}), {"loss": 1.129})

    def energies(*lines: EpochLine) -> list[str]:
        columns = overview_rows.columns(lines, ())
        return [overview_rows.texts(line, columns, overview_rows.largest(lines))[-1][0] for line in lines]

    assert energies(now.line, before.line) == ["0.90 Wh", "2.50 Wh"]
    assert energies(now.line) == ["3,245 J"]
    assert [one.logged for one in _format_logged([now, before], ("loss", "acc"))] == [
        ["1.120", "0.6964"],
        ["1.129", ""],
    ]


def test_chosen_run_opens_despite_another_cursor_on_the_runs_page() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("4", "1", "tab", "end")
        wanted = app.view.selected_run
        await pilot.press("enter")
        await pilot.pause()
        runs = app.page
        assert isinstance(runs, RunsPage)
        assert (runs.table.run, wanted) == (app.view.ranks[-1].first.id, app.view.ranks[-1].first.id)
        await pilot.press("escape", "1", "home", "4")
        assert runs.table.run == app.view.ranks[0].first.id, "the cursor is on it, too"

    play(FakeFeed(), (120, 40), script)


def test_all_parts_show_one_window() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        for _ in range(12):
            await pilot.press("minus")
            said = re.findall(r", last (\d+ \w+)", "\n".join(text(app)))
            assert len(said) == 2, "the strips, and the ranks of a run"
            assert len(set(said)) == 1, said
        assert said[0] == "1 min"
        assert "shortest window here" in text(app)[-1]
        app.view.chart_time.length = 10  # as on the chart
        await pilot.press("2", "1")
        assert app.view.window == 10
        assert {*re.findall(r", last (\d+ \w+)", "\n".join(text(app)))} == {"1 min"}

    play(FakeFeed(gpus=4), (200, 50), script)


@dataclass
class WithoutTotal(FakeFeed):
    """GPUs of whose memory only the use is known, as in a log without its total; or not even that."""

    tells_use: bool = True

    def sample(self, device: Device, second: int) -> Sample:
        found = super().sample(device, second)
        values = list(found.values)
        for name in ("gpu.memory_total", *(() if self.tells_use else ("gpu.memory_used",))):
            values[GPU_INDEX[name]] = NAN
        return found._replace(values=values)


@pytest.mark.parametrize("tells_use", [True, False])
@pytest.mark.parametrize("size", [(80, 24), (160, 50)])
def test_unknown_memory_total_is_no_dash(size: tuple[int, int], *, tells_use: bool) -> None:
    screen = "\n".join(play(WithoutTotal(gpus=1, seconds=60, tells_use=tells_use), size))
    assert "Memory" in screen
    assert not re.search("of –|peak –", screen), screen
    assert bool(re.search(r"peak \d", screen)) is tells_use


def test_no_sort_key_without_processes() -> None:
    assert "sort, filter, end" in "\n".join(play(FakeFeed(seconds=20), (120, 40)))
    assert "sort, filter, end" not in "\n".join(play(FakeFeed(seconds=20, processes_count=0), (120, 40)))


def test_heading_names_runs_and_programs() -> None:
    for size in ((80, 24), (100, 30), (160, 50)):
        (head,) = [line for line in play(FakeFeed(seconds=20), size) if re.match(r" +GPU ", line)][:1]
        assert "run" in head
        assert "program" in head
        assert re.search(r"program +epoch", head)


@pytest.mark.parametrize("gpus", [1, 2, 8])
def test_process_rows_have_headings_and_a_count(gpus: int) -> None:
    lines = play(FakeFeed(gpus=gpus, processes_count=9), (80, 24))
    at = next(place for place, line in enumerate(lines) if line.startswith(" Processes "))
    assert lines[at].startswith(" Processes  9 by memory  +7 ▼ ")
    assert lines[at + 1].split()[:3] == ["PID", "GPU", "user"]
    assert [line.split()[0] for line in lines[at + 2 : -1]] == ["1296", "1037"]


class Flickering(FakeFeed):
    """In odd seconds some values are unknown, and all runs are over."""

    def sample(self, device: Device, second: int) -> Sample:
        made = super().sample(device, second)
        if device.index == 3:
            made.values[GPU_INDEX["gpu.memory_total"]] = 24 * 2**30
        unknown = ("gpu.fan", "gpu.encoder_utilization") + ("gpu.memory_total",) * (device.index == 3)
        for name in unknown if second % 2 else ():
            made.values[GPU_INDEX[name]] = NAN
        return made

    def processes(self, second: int) -> tuple[Process, ...]:
        made = super().processes(second)
        return tuple(one._replace(sm_utilization=NAN, cpu_utilization=NAN) for one in made) if second % 2 else made

    def runs(self, second: int) -> tuple[Run, ...]:
        made = super().runs(second)
        return tuple(one._replace(metrics={}, state=RunState.FINISHED) for one in made) if second % 2 else made


@pytest.mark.parametrize(("part", "title"), [("gpus", "GPU"), ("runs", "run"), ("processes", "PID")])
def test_column_stays_when_values_are_unknown_for_a_second(part: str, title: str) -> None:
    view, feed = View(), Flickering(gpus=4, first=600, seconds=605)
    table = getattr(OverviewPage(view), part)
    headings: list[str] = []
    for frame in feed.frames:
        view.add(frame)
        view.frame, view.origin = frame, feed.origin()
        lines = table.draw(200, 12)
        headings.append(next(text for line in lines if (text := plain(line)).split()[:1] == [title]))
    assert len(set(headings)) == 1
