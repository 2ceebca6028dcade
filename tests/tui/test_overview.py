"""The overview: what it shows at which size, what its keys and clicks select, and what of it is drawn anew.

`GPUMON_REWRITE_GOLDEN=1` rewrites the golden screens; header and footer are not theirs.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from rich.segment import Segment
from textual.pilot import Pilot

from gpumon.analysis.epochs import EpochMark
from gpumon.analysis.gpu_state import GpuState
from gpumon.frame import RunState
from gpumon.history.grid import Grid
from gpumon.missing import NAN
from gpumon_tui.app import GpumonApp
from gpumon_tui.renderables.gpu_charts import charts_plan
from gpumon_tui.renderables.gpu_columns import gpu_columns
from gpumon_tui.renderables.gpu_heading import answer, epoch_ticks
from gpumon_tui.renderables.numerals import numerals
from gpumon_tui.renderables.strip import LEVELS, StripHistory, strip, strip_grid
from tests.builders import sample
from tests.tui.fakes import START, FakeFeed
from tests.tui.screen import play, text

GOLDEN = Path(__file__).parent / "golden"
SIZES = [(40, 20), (80, 24), (120, 40), (200, 50), (320, 90)]
COUNTS = (0, 1, 2, 8, 16, 32)


def plain(line: list[Segment]) -> str:
    return "".join(segment.text for segment in line)


@pytest.mark.parametrize("size", SIZES)
def test_golden(size: tuple[int, int]) -> None:
    path = GOLDEN / f"overview-{size[0]}x{size[1]}.txt"
    found: list[str] = []
    for gpus in COUNTS:
        problem = "" if gpus else "the NVIDIA driver is not loaded"
        page = play(FakeFeed(gpus=gpus, seconds=660, problem=problem), size)[1:-1]
        found += [f"== {gpus} GPUs", *"\n".join(page).rstrip().splitlines()]
    if os.environ.get("GPUMON_REWRITE_GOLDEN"):
        path.write_text("\n".join(found) + "\n")
    assert found == path.read_text().splitlines()


def test_columns_of_a_strip_begin_at_round_times_and_only_the_last_one_changes() -> None:
    for cells in (8, 15, 29, 65, 146):
        grid = strip_grid(600, cells, START + 0.5)
        assert grid.buckets == cells
        assert grid.begin % grid.step == 0
        assert 0 <= grid.at(START + 0.5) == cells - 1
        assert 0.6 <= grid.step * cells / 600 <= 1.7
        later = strip_grid(600, cells, START + 0.5 + grid.step)
        assert later.first == grid.first + 1


def test_a_strip_has_seven_levels_zero_is_seen_and_a_gap_is_not_zero() -> None:
    assert plain(strip([0.0, 0.001, 0.02, 0.5, 1.0, NAN, 7.0])) == "▁▁▁▄▇·▇"
    styles = [segment.style for segment in strip([0.9, 0.9, 0.9])]
    assert len(styles) == 2, "that of now stands out"
    zero, little = strip([0.0, 0.1, 1.0])[:2]
    assert zero.style != little.style
    assert "█" not in LEVELS


class Asked:
    """A history that counts the columns it is asked for."""

    def __init__(self) -> None:
        self.asked = 0
        self.feed = 0.5

    def query(self, query: Any) -> dict[str, Any]:
        self.asked += query.grid.buckets
        line = [self.feed] * query.grid.buckets
        return {query.metrics[0]: type("Line", (), {"mean": line})}


def test_a_column_that_is_over_is_asked_for_once() -> None:
    history, kept = Asked(), StripHistory()

    def shares(now: float, known: object = 1) -> list[float]:
        grid = Grid(int(now) - 29, 1.0, 30)
        return kept.shares(history, "a", "m", grid=grid, interval=1.0, known=known)  # type: ignore[arg-type]

    assert shares(1000) == [0.5] * 30
    assert history.asked == 30
    history.feed = 0.75
    assert shares(1001) == [0.5] * 27 + [0.75] * 3
    assert history.asked <= 34
    assert shares(1001, known=2) == [0.75] * 30, "the past has changed"
    history.feed = 0.25
    assert shares(2000) == [0.25] * 30, "nothing of before is on screen"


def test_a_second_later_only_cells_with_news_are_drawn_anew() -> None:
    feed = FakeFeed(gpus=8)

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        before = app.pages["Overview"].gpus._lines
        feed.advance()
        app.poll()
        await pilot.pause()
        after = app.pages["Overview"].gpus._lines
        same = [one is other for one, other in zip(before, after, strict=True)]
        assert same[0], "headings"
        assert same[8], "a free GPU is as free as before"
        assert not all(same)

    play(feed, (120, 40), script)


def test_every_gpu_has_one_line_with_what_it_does_and_who_has_it() -> None:
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


def test_the_epochs_of_the_selected_run_stand_below_the_strips() -> None:
    columns = gpu_columns(120)
    grid = Grid(0, 20.0, columns.strip_cells)
    far = [EpochMark(40.0 + 200 * number, number, "r") for number in range(3)]
    assert plain(epoch_ticks(columns, grid, far, "vit")).split() == ["╵e0", "╵e1", "╵e2", "epochs", "of", "vit"]
    line = plain(epoch_ticks(columns, grid, far, "vit"))
    assert line.index("╵e1") == columns.strip + 12
    near = [EpochMark(20.0 * number, number, "r") for number in range(28)]
    shown = [int(one) for one in re.findall(r"╵e(\d+)", plain(epoch_ticks(columns, grid, near, "vit")))]
    assert shown == [0, 10, 20], "every tenth where they crowd"
    assert epoch_ticks(columns, grid, [EpochMark(-5.0, 1, "r")], "vit") == []


def test_keys_and_clicks_select_gpus_runs_and_processes_and_other_pages_keep_it() -> None:
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
        await pilot.press("tab", "home", "down")
        assert app.view.selected_process == page.processes.keys[1]
        await pilot.press("tab")
        assert page.active is page.gpus
        await pilot.click("#gpus", offset=(30, 3))
        assert app.view.subject == "GPU-0002"
        await pilot.press("enter")
        await pilot.pause()
        assert app.page.name_shown == "Chart"
        assert app.view.subject == "GPU-0002"
        await pilot.press("1")
        await pilot.click("#processes", offset=(20, 3))
        assert page.active is page.processes
        await pilot.press("enter")
        await pilot.pause()
        assert app.page.name_shown == "Processes"

    play(FakeFeed(), (120, 40), script)


def test_the_name_of_a_section_opens_more_of_it() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.click("#attention", offset=(5, 0))
        await pilot.pause()
        assert "Check its fans" in "\n".join(text(app))
        await pilot.press("x", "exclamation_mark")
        await pilot.pause()
        assert "Check its fans" in "\n".join(text(app))
        await pilot.press("x")
        await pilot.click("#processes", offset=(5, 0))
        await pilot.pause()
        assert app.page.name_shown == "Processes"

    play(FakeFeed(), (120, 40), script)


def test_the_wheel_scrolls_processes_and_says_what_is_above() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        processes = app.pages["Overview"].processes
        assert "and 11 more with" in "\n".join(text(app))
        processes.on_mouse_scroll_down()
        await pilot.pause()
        assert re.search(r"\+3 ▲  \+8 ▼", "\n".join(text(app)))

    play(FakeFeed(), (120, 40), script)


def test_attention_has_three_lines_and_says_how_many_more() -> None:
    lines = play(FakeFeed(lost=(1, 3)), (120, 40))
    at = next(place for place, line in enumerate(lines) if line.strip().startswith("Attention"))
    assert lines[at].strip().startswith("Attention  5, 2 more below")
    assert [line.split()[0] for line in lines[at + 1 : at + 4]] == ["▲"] * 3, "the most severe first"
    calm = "\n".join(play(FakeFeed(gpus=1, seconds=5), (120, 40)))
    assert "nothing needs attention" in calm


def test_a_run_that_is_over_says_how_it_ended() -> None:
    for state, word in ((RunState.INTERRUPTED, "interrupted"), (RunState.FAILED, "failed"), (RunState.DIED, "died")):
        feed = FakeFeed(seconds=60)
        for frame in feed.frames:
            frame._runs = tuple(run._replace(state=state) if run.id == "id-1" else run for run in frame.runs)
        screen = "\n".join(play(feed, (120, 40)))
        assert "1 running, 1 over" in screen
        assert re.search(rf"llama-8b-lora.* {word}", screen)


def test_what_is_free_is_answered_with_what_is_known() -> None:
    gpus = [sample(index, memory_total=80 * 2.0**30) for index in range(3)]
    said = plain(answer(gpus, [GpuState.FREE, GpuState.LOST, GpuState.DIVIDED], 40))
    assert said.split() == ["1", "free", "GPU", "0", "80.0", "GiB", "1", "unknown"]
    assert plain(answer(gpus, [GpuState.UNKNOWN] * 3, 40)).split() == ["0", "free", "3", "unknown"]


def test_one_gpu_has_its_numbers_large_its_curves_and_the_parts_of_its_memory() -> None:
    lines = play(FakeFeed(gpus=1), (120, 40))
    screen = "\n".join(lines)
    for row in numerals("89"):
        assert f"  {row}" in screen
    for said in (
        "10 min    87%", "lowest    37%", "allocated 6.6", "cached 2.2", "context 0.6", "others 1.6", "free 68.0",
        "driver 0.5", "613 of 700 W", "67 °C", "1.95 GHz", "PCIe in", "╷e4", "nothing needs attention",
    ):  # fmt: skip
        assert said in screen, said
    assert re.search(r"alice +resnet50 +8/90 +2 h 13 m", screen)


def test_of_two_gpus_the_selected_one_has_charts() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        assert "allocated 6.6" in "\n".join(text(app))
        await pilot.press("down")
        assert "allocated 12." in "\n".join(text(app))

    play(FakeFeed(gpus=2), (120, 40), script)


def test_numbers_that_are_not_known_are_a_dash_and_a_chart_without_values_says_why() -> None:
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
@pytest.mark.parametrize("rows", [8, 12, 15, 22, 40])
def test_charts_fill_their_room_and_no_more(cells: int, rows: int) -> None:
    plan = charts_plan(cells, rows)
    assert plan.utilization >= 1
    assert plan.memory >= 2
    assert plan.before + plan.cells < cells
    assert 5 + plan.utilization + plan.memory + (plan.small + 2 if plan.small else 0) == rows


def test_a_wide_screen_has_two_columns_and_the_ranks_of_the_selected_run_over_time() -> None:
    lines = play(FakeFeed(), (200, 50))
    (heads,) = (line for line in lines if "Attention  3" in line)
    assert heads.index("Runs  2 running") > 90
    ranks = [line[90:] for line in lines if re.search(r" rank \d  ", line)]
    assert [re.findall(r"rank (\d)", line)[0] for line in ranks] == ["0", "1", "2", "3"]
    assert all("▌▌▌" in line for line in ranks)
    assert "utilization by rank, last 10 min" in "\n".join(lines)
