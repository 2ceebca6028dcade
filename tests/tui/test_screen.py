"""The whole screen, as text."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from textual import events
from textual.pilot import Pilot
from textual.widget import Widget

from gpumon.live import LiveState
from gpumon.model.frame import RunState
from gpumon.model.metrics import Availability
from gpumon.model.process import Process
from gpumon.storage.history.query import HOST
from gpumon_tui.app import GpumonApp
from gpumon_tui.render import overview_rows
from gpumon_tui.render.overview_rows import EpochLine
from gpumon_tui.screens.help import HelpWindow
from tests.crossed import crossed
from tests.tui.fakes import FakeFeed
from tests.tui.screen import appears, play, runs_page, text

SIZES = [(40, 10), (80, 24), (100, 30), (120, 40), (160, 50), (200, 50), (300, 80)]
HOSTILE = (
    "[red]x[/]",
    "a[/]b",
    "[link=http://e]l[/]",
    "\x1b]0;pwn\x07",
    "\x9b31m",
    "日本語のプロセス名",
    "e\u0301" * 30,
    "\u202eltr\u200f",
    "\udce9\ud800",
    "[@click=app.bell]hit[/]",
    "tab\there\r\nnew",
)


@pytest.mark.parametrize(("size", "gpus"), crossed(SIZES, [0, 1, 2, 8, 16]))
def test_every_size_and_number_of_gpus(size: tuple[int, int], gpus: int) -> None:
    """Not slow: each size and each number once; the golden screens have the overview of 0 to 32 GPUs at four sizes."""
    lines = play(FakeFeed(gpus=gpus, seconds=120, problem="" if gpus else "no driver"), size)
    screen = "\n".join(lines)
    assert len(lines) == size[1]
    assert "gpumon" in lines[0]
    assert "SIMULATED" in lines[0], "a simulation says so on every screen"
    assert "quit" in lines[-1]
    if size[1] >= 24:
        if gpus != 1 or size[0] >= 100:  # the curve of one GPU has times below it
            assert re.search(r"[12] min", screen), "a strip begins with the little there is"
        # There the GPUs have its rows; and without a GPU none is held, which takes no row of a small screen.
        if gpus not in (0, 16) or size != (80, 24):
            assert "Processes" in screen
        assert "Runs" in screen


def test_dropped_processes_and_runs_are_counted() -> None:
    screen = "\n".join(play(FakeFeed(left_out=(12, 45)), (200, 50)))
    assert "Processes  24 and 12 more" in screen
    assert "Runs  2 running, and 45 more" in screen


@pytest.mark.parametrize("size", [(200, 50), (80, 24)])
def test_process_table_shows_the_notice_of_its_source(size: tuple[int, int]) -> None:
    notice = "container: processes outside of it have no names here"
    (line,) = (line for line in play(FakeFeed(notice=notice), size) if line.strip().startswith("Processes"))
    assert "container: processes outside" in line
    assert re.search(r"\b24\b", line), "how many there are"
    empty = play(FakeFeed(notice=notice, processes_count=0), size)
    assert any("processes outside of it" in line for line in empty)


class Confined(FakeFeed):
    """One process is in a container of a Slurm job."""

    def processes(self, second: int) -> tuple[Process, ...]:
        found = super().processes(second)
        return tuple(
            one._replace(container="docker 3f2a9c1b04de", job="4242") if one.pid == 1000 else one for one in found
        )


def processes_of(feed: FakeFeed) -> list[str]:
    """The page of processes."""

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("3")

    return play(feed, (200, 50), script)


def test_jobs_and_containers_have_a_column_if_needed() -> None:
    lines = processes_of(Confined())
    (heading,) = (line for line in lines if "program" in line)
    at = heading.index("job or container")
    assert sum("job 4242 · docker 3f2" in line[at:] for line in lines) == 1
    assert not any("job or container" in line for line in processes_of(FakeFeed()))


class Encoding(FakeFeed):
    """One process encodes a video; the driver has a sample of it and of one more."""

    def processes(self, second: int) -> tuple[Process, ...]:
        shares = {1000: (0.25, 0.0), 1037: (0.0, 0.0)}
        return tuple(
            one._replace(encoder_utilization=shares[one.pid][0], decoder_utilization=shares[one.pid][1])
            if one.pid in shares
            else one
            for one in super().processes(second)
        )


def test_video_engines_have_columns_if_needed() -> None:
    lines = processes_of(Encoding())
    (heading,) = (line for line in lines if "program" in line)
    at = heading.index("enc %")
    assert heading[at : at + 12].split() == ["enc", "%", "dec", "%"]
    told = {line[:9].split()[-1]: line[at : at + 12].split() for line in lines if re.match(r"▌? +\d{4} ", line)}
    assert [told[pid] for pid in ("1000", "1037", "1074")] == [["25", "0"], ["0", "0"], ["–", "–"]]
    assert not any("enc %" in line for line in processes_of(FakeFeed()))


def test_a_partial_repaint_is_a_full_one() -> None:
    feed = FakeFeed(lost=(3,))

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        for _ in range(15):
            feed.advance()
            app.poll()
            await pilot.pause()
        partial = text(app)
        app.refresh(layout=True)
        for part in app.page.line_widgets:
            part._lines = part.lines()
            part.refresh()
        await pilot.pause()
        assert text(app) == partial

    play(feed, (200, 50), script)


@pytest.mark.parametrize("size", [(80, 24), (200, 50)])
def test_hostile_names_stay_plain_text(size: tuple[int, int]) -> None:
    feed = FakeFeed(
        names=HOSTILE, users=HOSTILE[::-1], run_names=(HOSTILE[0], HOSTILE[3]), label="REPLAY \x1b[31m[b]x[/]"
    )
    lines = play(feed, size)
    screen = "\n".join(lines)
    for harmful in "\x1b\x07\x9b\u202e\u200f\udce9\t\r":
        assert harmful not in screen
    assert "[red]x[/]" in screen
    assert screen.isprintable() or all(line.isprintable() for line in lines)


def test_click_on_hostile_text_only_selects() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        processes = app.pages["Overview"].processes
        await pilot.click("#processes", offset=(60, 4))
        assert app.view.selected_process == processes.keys[2]
        assert app.page.active is processes

    play(FakeFeed(names=HOSTILE), (160, 50), script)


def test_selection_follows_its_process() -> None:
    feed = FakeFeed()

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("tab", "tab", "down", "down", "down")
        processes = app.pages["Overview"].processes
        key = app.view.selected_process
        at = processes.keys.index(key)
        for _ in range(60):
            feed.advance()
            app.poll()
        assert app.view.selected_process == key
        assert processes.keys.index(key) != at

    play(feed, (200, 50), script)


def test_keys_choose_gpu_and_window() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("g")
        assert app.view.subject == "GPU-0001"
        await pilot.press("G", "G")
        assert app.view.subject == HOST
        await pilot.press("g", "minus")
        assert app.view.window == 300
        await pilot.press(*["plus"] * 9)
        assert app.view.window == 3600

    play(FakeFeed(), (80, 24), script)


def test_enter_opens_a_run_and_escape_closes_it() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("4")
        await appears(app, pilot, " verdict")
        sheet = runs_page(app)
        await pilot.press("enter")
        await appears(app, pilot, " llama-8b-lora ─")
        assert (sheet.opened.id, app.view.selected_run) == ("id-1", "id-1")
        await pilot.press("escape")
        await appears(app, pilot, "▌▸  llama-8b-lora ")
        assert (sheet.opened.id, app.view.selected_run) == ("", "id-1")
        await pilot.press("down", "enter")
        assert sheet.opened.id == "id-0"

    play(FakeFeed(), (80, 24), script)


def test_failed_run_says_why() -> None:
    feed = FakeFeed()
    for frame in feed.frames:
        ended = [run._replace(state=RunState.FAILED) if run.id == "id-1" else run for run in frame.runs]
        frame._runs = tuple(ended)
    lines = play(feed, (120, 26))
    assert any("▲ llama-8b-lora  out of memory: requested 2.0 GiB, 1.1 GiB free" in line for line in lines)
    assert any(re.search("^ +llama-8b-lora .* failed$", line) for line in lines)


def test_stopped_run_is_interrupted_in_every_view() -> None:
    feed = FakeFeed()
    for frame in feed.frames:
        ended = [run._replace(state=RunState.INTERRUPTED) if run.id == "id-1" else run for run in frame.runs]
        frame._runs = tuple(ended)
    for page in ("1", "4"):

        async def script(app: GpumonApp, pilot: Pilot[Any], page: str = page) -> None:
            await pilot.press(page)
            await appears(app, pilot, " interrupted")

        lines = play(feed, (120, 35), script)
        assert any(re.search("llama-8b-lora .* interrupted$", line) for line in lines)


def test_runs_are_counted_and_not_their_ranks() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        assert any(re.search(r" Runs  2 running +(·  steps/s over ≥ \d+ s )?─", line) for line in text(app))
        await pilot.press("4")
        await appears(app, pilot, "2 running")

    assert any(line.startswith("  Runs  2 running ") for line in play(FakeFeed(), (120, 30), script))


def counted(lines: list[str]) -> tuple[list[int], int]:
    """Indexes of the GPUs on screen, and how many more it says there are."""
    screen = "\n".join(lines)
    found = re.findall(r"(\d{1,2})  ?[▁▂▃▄▅▆▇·]+ +\d+%", screen)
    gpus = screen.partition("Attention")[0]
    return [int(one) for one in found], sum(int(many) for many in re.findall(r"\+(\d+) [▲▼]", gpus))


@pytest.mark.parametrize(
    ("size", "gpus"), [((80, 24), 16), ((80, 24), 32), ((60, 15), 8), ((40, 10), 8), ((80, 8), 16), ((91, 50), 64)]
)
def test_no_gpu_is_hidden_without_a_mark(size: tuple[int, int], gpus: int) -> None:
    shown, more = counted(play(FakeFeed(gpus=gpus, seconds=60), size))
    assert shown
    assert len(shown) + more == gpus


def test_hidden_free_gpus_are_named_and_reached_by_the_wheel() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        assert "+22 ▼ · 4 free: GPU 23, 31, 55, 63" in "\n".join(text(app))
        seen = set(counted(text(app))[0])
        gpus = app.pages["Overview"].gpus
        for _ in range(8):
            gpus.post_message(scrolled(gpus))
            await pilot.pause()
            shown, more = counted(text(app))
            assert len(shown) + more == 64
            seen |= set(shown)
        assert seen == set(range(64))
        assert "+22 ▲ · 2 free: GPU 7, 39" in "\n".join(text(app))
        await pilot.press("g")
        assert "▌ 1 " in "\n".join(text(app)), "the selected one comes on screen"

    play(FakeFeed(gpus=64, seconds=60), (80, 24), script)


def scrolled(widget: Widget) -> events.MouseScrollDown:
    return events.MouseScrollDown(widget, 3, 3, 0, 1, 0, False, False, False)


def test_space_pauses_the_screen_while_data_go_on() -> None:
    feed = FakeFeed()

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("space")
        before = text(app)
        feed.advance(30)
        app.poll()
        await pilot.pause()
        assert text(app)[1:] == before[1:]
        assert "‖ paused  14:24:59" in before[0]
        assert text(app)[0] == before[0].replace("     ‖ paused", "‖ paused 30 s"), "all that goes on"
        await pilot.press("space")
        while app.view.is_loading:
            await pilot.pause()
        assert len(app.view.history.sampled()) == len(feed.frames), "none of them is lost"
        assert "14:25:29" in text(app)[0], "the newest, though no newer one comes"

    play(feed, (120, 40), script)


def test_paused_screen_is_of_one_time_at_every_size() -> None:
    feed = FakeFeed(seconds=300, epoch_seconds=20)

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("tab", "home", "space")
        before = text(app)
        feed.advance(50)
        for size in ((200, 60), (160, 50)):  # everything is drawn anew
            app.poll()
            await pilot.resize_terminal(*size)
            await pilot.pause()
        assert text(app)[1:] == before[1:]

    play(feed, (160, 50), script)


def test_short_epoch_has_a_duration() -> None:
    line = EpochLine("e3", {"seconds": 0.25})
    columns = overview_rows.columns([line], ())
    told = dict(zip((column.title for column in columns), overview_rows.texts(line, columns, {}), strict=True))
    assert told["time"][0] == "250 ms"


def test_help_opens_and_any_key_closes_it() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("question_mark")
        assert isinstance(app.screen, HelpWindow)
        assert "allocated, idle" in "\n".join(text(app))
        await pilot.press("x")
        assert not isinstance(app.screen, HelpWindow)

    play(FakeFeed(seconds=30), (80, 70), script)


def test_machine_without_a_gpu_shows_the_reason_and_the_host() -> None:
    screen = "\n".join(play(FakeFeed(gpus=0, problem="the NVIDIA driver is not loaded"), (120, 40)))
    assert "the NVIDIA driver is not loaded" in screen
    assert re.search(r"CPU  [▁▂▃▄]+ +12%.* host node7", screen)
    assert "╵e4" in screen
    assert "resnet50" in screen
    small = play(FakeFeed(gpus=0, problem="no driver"), (80, 24))
    assert any("running" in line for line in small), "without GPUs the runs come first"


def test_stale_ages_add_up() -> None:
    feed = FakeFeed(live=LiveState(False, "stale 12 s: the daemon does not answer", 1.0), stale=(0,))
    screen = play(feed, (120, 40))
    assert "stale 12 s: the daemon does not answer · last seen 14:24:59" in screen[1]
    assert any("stale 13 s" in line for line in screen[2:]), "12 s in the frame, and the frame is 1 s old"


def test_a_gap_is_drawn_as_a_gap() -> None:
    lines = play(FakeFeed(gap=(300, 400)), (120, 40))
    strip = next(line for line in lines if line.startswith("▌   0"))
    assert re.search(r"[▁▂▃▄▅▆▇]·{4,6}[▁▂▃▄▅▆▇]", strip)


@pytest.mark.parametrize("size", [(120, 40), (200, 50)])
def test_unmeasured_time_is_not_drawn(size: tuple[int, int]) -> None:
    """A daemon that was stopped for a while, and a driver that gave only its last known values."""
    whole, hung, stopped = FakeFeed(gpus=3), FakeFeed(gpus=3), FakeFeed(gpus=3)
    for second in range(300, 400):
        known = hung.frames[second].samples
        hung.frames[second] = hung.frame(second)
        hung.frames[second]._parts._samples = tuple(one._replace(state=Availability.STALE, age=1.0) for one in known)
    del stopped.frames[300:400]
    for number, frame in enumerate(stopped.frames, 1):
        frame.number = number

    def drawn(feed: FakeFeed) -> list[int]:
        """Columns of the strips with data."""
        lines = [line for line in play(feed, size) if re.search(r"[▁▂▃▄▅▆▇·]{9}.*%", line)]
        assert len(lines) == 3
        return [len(re.findall("[▁▂▃▄▅▆▇]", line.partition("%")[0])) for line in lines]

    for some in (drawn(hung), drawn(stopped)):
        assert max(some) < 0.9 * min(drawn(whole))


def test_an_empty_feed_waits() -> None:
    lines = play(FakeFeed(gpus=1, seconds=0, live=LiveState(False, "waiting for the first sample", 1.0)), (80, 24))
    assert any("waiting for the first sample" in line for line in lines)


def test_repeated_boundaries_draw_one_mark() -> None:
    feed = FakeFeed()
    plain = play(feed, (120, 40))
    again = FakeFeed()
    repeated = again.frames[100].boundaries
    for frame in again.frames[101:]:
        frame._boundaries = frame.boundaries + repeated + again.frames[98].boundaries
    assert play(again, (120, 40)) == plain


def test_drawing_while_the_app_ends_is_ignored() -> None:
    async def session() -> None:
        feed = FakeFeed()
        app = GpumonApp(feed, live=False)
        async with app.run_test(size=(80, 24)):
            app.draw()
        assert not app.screen_stack
        feed.advance()
        app.poll()
        app.draw()

    asyncio.run(session())
