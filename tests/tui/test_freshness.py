"""What is not of now says so: in the header, at the edge of every chart, and in the colors of the whole screen."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rich.color import Color
from textual.pilot import Pilot

from gpumon.common.clock import SECOND
from gpumon.common.program import program
from gpumon.live import LiveState
from gpumon.model.frame import Boundary, Run, RunState
from gpumon.model.metrics import GPU_INDEX, PROCESSES, Availability
from gpumon.model.origin import Origin
from gpumon.sources.registry import BY_NAME
from gpumon.storage.ledger.reader import Ledgers
from gpumon.storage.ledger.records import RunRow, RunSummary
from gpumon_tui import theme
from gpumon_tui.app import GpumonApp
from gpumon_tui.freshness import ago
from gpumon_tui.render import no_gpu
from gpumon_tui.render.process_head import empty_text
from tests.builders import sample
from tests.fakes import FakeClock
from tests.runs import BEGAN, Book, training
from tests.tui.fakes import START, FakeFeed, FakeWriter, recent
from tests.tui.screen import appears, play, text

SILENT = LiveState(False, "stale: last seen 14:24:59 (15 s ago)", 1.0, 15.0)
WIDE = (160, 50)


def header_color(app: GpumonApp) -> Color | None:
    """Of the glyph before the word for how fresh things are."""
    marks = tuple("●○‖▲▸")
    return next(one.style.color for one in app.page.header._lines[0] if one.text.startswith(marks) and one.style)


def brightest(app: GpumonApp) -> int:
    """The strongest light of any letter of the page."""
    lights = []
    first = 1 + app.page.reason.display
    for strip in app.screen._compositor.render_strips()[first:-1]:
        for segment in strip:
            if segment.text.strip() and segment.style and segment.style.color:
                lights.append(max(segment.style.color.get_truecolor()))
    return max(lights)


def state_of(feed: FakeFeed, check: Any, keys: tuple[str, ...] = (), clock: FakeClock | None = None) -> list[str]:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press(*keys)
        if clock is not None:
            clock.advance(15)
            app.poll()
            await pilot.pause()
        check(app)

    return play(feed, WIDE, script, clock=clock)


def not_green(app: GpumonApp) -> None:
    assert header_color(app) != theme.GOOD.color


def test_current_data_are_green_and_bright() -> None:
    async def script(app: GpumonApp, _: Pilot[Any]) -> None:
        assert header_color(app) == theme.GOOD.color
        assert brightest(app) > 220

    feed = FakeFeed()
    screen = play(feed, WIDE, script, clock=FakeClock(start=feed.frames[-1].monotonic_ns))
    assert "● live" in screen[0]
    assert "now" in "\n".join(screen)


def test_writer_without_new_samples_is_not_live() -> None:
    def check(app: GpumonApp) -> None:
        not_green(app)
        assert "live" not in text(app)[0]

    clock = FakeClock(start=700 * SECOND)
    screen = state_of(FakeFeed(source="nvml", label=""), check, clock=clock)
    assert "○ stale 16 s" in screen[0]
    assert "no new samples" in screen[1]


def test_old_first_frame_is_not_live() -> None:
    feed = FakeFeed(source="nvml", label="")
    screen = play(feed, WIDE, clock=FakeClock(start=feed.frames[-1].monotonic_ns + 180 * SECOND))
    assert "○ stale 3:00" in screen[0]


def test_silent_daemon_dims_and_dates_the_screen() -> None:
    def check(app: GpumonApp) -> None:
        not_green(app)
        assert brightest(app) < 190
        assert sum(line.count("until 15 s ago") for line in text(app)[2:]) == 1, "the strips"

    screen = state_of(FakeFeed(live=SILENT), check)
    assert "○ stale 15 s  14:25:14" in screen[0], "the clock goes on"
    assert "8 stale" in screen[0]
    assert "stale: last seen 14:24:59 (15 s ago) · try " in screen[1]
    assert "The values below are from 14:24:59." in screen[1]
    everything = "\n".join(screen)
    assert not re.search(r"\bnow\b", everything)
    assert "busy" not in everything
    assert "stale 15 s" in everything


@pytest.mark.parametrize(
    ("pid", "is_named"), [(4711, True), (os.getpid(), False)], ids=["daemon", "sampler of the view"]
)
def test_restart_command_of_a_silent_daemon_is_named(pid: int, is_named: bool) -> None:
    feed = FakeFeed(live=SILENT)
    feed.made_by = FakeWriter(pid, 1)

    async def hold(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("space")

    for script in (None, hold):
        assert ("daemon restart'" in play(feed, (120, 40), script)[1]) == is_named
    feed.live = FakeFeed().live
    assert "daemon restart" not in "\n".join(play(feed, (120, 40)))


@pytest.mark.parametrize(("size", "key"), [((120, 40), "1"), ((40, 20), "3")])
def test_processes_of_a_silent_daemon_are_unknown(size: tuple[int, int], key: str) -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press(key)
        await pilot.pause()

    feed = FakeFeed(gpus=2, processes_count=0)
    listed = "\n".join(play(feed, size, script))
    assert re.search(r"Processes +0", listed)
    feed.live = SILENT
    silent = "\n".join(play(feed, size, script))
    assert re.search(r"Processes +–", silent)
    assert "unknown since 14:24:59" in silent
    assert "no process" not in silent


def test_narrow_screen_shows_the_whole_reason() -> None:
    live = LiveState(False, "the daemon stopped 5.9 s ago", 1.0, 5.9)

    async def held(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("space")
        await pilot.pause()

    for script in (None, held):
        lines = play(FakeFeed(gpus=2, live=live), (40, 20), script)
        assert lines[1].strip() == "the daemon stopped 5.9 s ago."
        (attention,) = (line for line in lines if "Attention" in line)
        assert re.search(r"Attention +(state )?unknown", attention)
        assert "…" not in attention
    lines = play(FakeFeed(gpus=2, live=live), (120, 40))
    assert "the daemon stopped 5.9 s ago · last seen 14:24:59 · try " in lines[1]
    assert "The values below are from 14:24:59." in lines[1]
    assert "the current state is unknown" in "\n".join(lines)


def test_screen_is_bright_again_when_the_daemon_is_back() -> None:
    feed = FakeFeed(live=SILENT)

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        assert brightest(app) < 190
        feed.live = LiveState(True, "live", 1.0)
        feed.advance()
        app.poll()
        await pilot.pause()
        assert brightest(app) > 220

    play(feed, WIDE, script)


def test_missing_ring_is_dated_by_the_last_frame() -> None:
    clock = FakeClock()
    feed = FakeFeed(live=LiveState(False, "no daemon is running", 1.0))
    screen = state_of(feed, not_green, clock=clock)
    assert "no daemon is running · last seen 14:24:59 (15 s ago)" in screen[1]
    assert "15 s ago" in "\n".join(screen[2:])


def test_runs_of_a_killed_daemon_are_unknown() -> None:
    class WithoutRuns(FakeFeed):
        def runs(self, second: int) -> tuple[Run, ...]:
            return ()

        def boundaries(self, second: int) -> tuple[Boundary, ...]:
            return ()

    killed = LiveState(False, "the daemon is no longer running: last seen 14:24:59 (15 s ago)", 1.0, 15.0)
    assert "no training reports epochs now: see gpumon.run" in "\n".join(play(WithoutRuns(first=600), WIDE))
    everything = "\n".join(play(WithoutRuns(first=600, live=killed), WIDE))
    assert "unknown since 14:24:59" in everything
    assert "no training" not in everything


def test_missing_driver_is_not_live() -> None:
    feed = FakeFeed(problem="the NVIDIA driver is installed but not loaded: try 'sudo modprobe nvidia'")
    feed.state_of_all = Availability.NO_DRIVER
    feed.advance()
    screen = state_of(feed, not_green)
    assert "no GPU can be read: the NVIDIA driver is installed but not loaded: try 'sudo modprobe nvidia'" in screen[1]
    assert "▲ no driver" in screen[0]
    assert "no GPU answers" in screen[0]
    assert "live" not in screen[0]


def test_sleeping_gpus_are_live() -> None:
    feed = FakeFeed()
    feed.state_of_all = Availability.ASLEEP
    feed.advance()
    screen = play(feed, (120, 40))
    assert "● live" in screen[0]
    assert "asleep" in "\n".join(screen[1:])


def test_hung_driver_is_not_live() -> None:
    feed = FakeFeed()
    feed.state_of_all = Availability.STALE
    feed.advance()
    screen = state_of(feed, not_green)
    assert "○ stale 12 s" in screen[0]
    assert "the driver does not answer · last seen 12 s ago" in screen[1]
    assert "12 s ago" in "\n".join(screen[1:])


def test_paused_view_is_not_live() -> None:
    screen = state_of(FakeFeed(), not_green, keys=("space",))
    assert "‖ paused  14:24:59" in screen[0]
    assert "live" not in screen[0]
    assert "now" not in "\n".join(screen)


def test_paused_view_of_a_silent_daemon_ages() -> None:
    feed = FakeFeed()

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("space")
        feed.advance(600)
        feed.live = LiveState(False, "the daemon is no longer running: last seen 14:34:59 (15 s ago)", 1.0, 15.0)
        app.poll()
        await pilot.pause()

    screen = play(feed, (200, 50), script)
    assert "‖ paused 10:00  14:24:59" in screen[0]
    assert "paused at 14:24:59 · the daemon is no longer running: last seen 14:34:59 (15 s ago) · try " in screen[1]
    everything = "\n".join(screen[2:])
    assert "15 s ago" not in everything, "the edge of a chart is the moment at which it was held"
    assert "stale 10:15" in everything


def test_paused_view_of_an_ended_recording_is_not_its_end() -> None:
    feed = FakeFeed(source="replay", label="REPLAY x.csv")

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("space")
        feed.advance(60)
        feed.ended, feed.live = True, LiveState(False, "the recording has ended", 1.0)
        app.poll()
        await pilot.pause()

    heading = next(line for line in play(feed, WIDE, script) if "utilization" in line)
    assert "until 14:24:59" in heading


def test_missing_first_sample_is_waited_for() -> None:
    clock = FakeClock()
    feed = FakeFeed(gpus=0, seconds=0, live=LiveState(False, "waiting for the first sample", 1.0), source="nvml")
    feed.label = ""

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        before = "\n".join(text(app))
        assert "no GPU can be read" not in before
        assert "no training" not in before
        assert " 0 ─" not in before, "nobody knows how many processes and runs there are"
        clock.advance(12)
        app.poll()
        await pilot.pause()

    screen = "\n".join(play(feed, (120, 40), script, clock=clock))
    assert "waiting for the first sample for 12 s: the driver may hang" in screen


@pytest.mark.parametrize("source", ["nvml", "replay"])
def test_unreported_processes_are_not_counted(source: str) -> None:
    feed = FakeFeed(source=source, processes_count=0)
    if source == "nvml":
        feed.state_of_all = Availability.NO_DRIVER
        feed.advance()
    title = next(line for line in play(feed, WIDE) if line.strip().startswith("Processes"))
    assert "Processes  – ──" in title


def test_ended_recording_is_not_live() -> None:
    ended = LiveState(False, "the recording has ended", 1.0)
    screen = state_of(FakeFeed(source="replay", label="REPLAY x.csv", live=ended, ended=True), not_green)
    assert "▸ ended" in screen[0]
    assert "live" not in screen[0]


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.4, "0 s ago"), (59, "59 s ago"), (61, "1 min ago"), (7300, "2 h ago")]
)
def test_ages_are_short(seconds: float, said: str) -> None:
    assert ago(seconds) == said


def test_rebooted_machine_says_so_without_an_age() -> None:
    feed = FakeFeed(live=LiveState(False, "no daemon has run since the machine was restarted", 1.0, float("inf")))
    screen = state_of(feed, not_green)
    assert "○ stale " in screen[0]
    assert "restarted" in screen[1]
    assert "last seen 14:24:59" in "\n".join(screen[2:])


NO_GPU = "the NVIDIA driver is not installed (libnvidia-ml.so.1 was not found)"


@contextmanager
def simulation() -> Iterator[FakeFeed]:
    yield FakeFeed()


def without_gpu() -> FakeFeed:
    return FakeFeed(gpus=0, source="nvml", label="", problem=NO_GPU)


def test_machine_without_a_gpu_says_what_to_do() -> None:
    screen = "\n".join(play(without_gpu(), (120, 40), simulation=simulation))
    for said in (
        NO_GPU,
        "NVIDIA GPUs, through the driver",
        "sudo modprobe nvidia",
        "--gpus all",
        "No GPU can be read on node7",
        "looks again every few seconds",
        "s           a simulation",
    ):
        assert said in screen
    assert "s simulation" in screen.splitlines()[-1]
    assert "live" not in screen.splitlines()[0]
    assert "host node7" in screen


@pytest.mark.parametrize("size", [(40, 20), (120, 40)])
def test_page_without_a_gpu_fits_every_size(size: tuple[int, int]) -> None:
    lines = play(without_gpu(), size, simulation=simulation)
    screen = " ".join(" ".join(lines).split())
    told = "No GPU can be read", "sudo modprobe nvidia", "docker run --gpus all", "a simulation: GPUs", "resnet50"
    for said in told:
        assert said in screen, said
    assert ("Meanwhile" in screen) == ("looks again" in screen or size == (40, 20))
    assert "Processes" not in "".join(lines[:-1]), "there is no table without a row"


def test_commands_are_highlighted_in_sentences() -> None:
    origin = Origin("nvml", problem="the driver's library is old: 'modprobe x'")
    origin = origin._replace(capabilities=BY_NAME["nvml"].capabilities)
    lines = no_gpu.problem_lines(origin, hostname="n", simulation=False, run_count=41, cells=120, rows=30)
    commands = [segment.text for line in lines for segment in line if segment.style == theme.TITLE]
    doctor = f"{program()} doctor"
    assert commands == ["modprobe x", "sudo modprobe nvidia", "docker run --gpus all", doctor, "4           "]
    said = "\n".join("".join(segment.text for segment in line) for line in lines)
    assert "the driver's library is old: modprobe x" in said
    assert "41 past runs of this machine" in said
    few = no_gpu.problem_lines(origin, hostname="n", simulation=True, run_count=41, cells=120, rows=5)
    assert len(few) == 5
    assert "looked for" not in "".join(segment.text for line in few for segment in line), "it goes first"


@pytest.mark.parametrize("lacks_card", [False, True])
def test_no_driver_is_advised_where_there_is_no_card(*, lacks_card: bool) -> None:
    origin = Origin("nvml", problem=NO_GPU, lacks_card=lacks_card)
    lines = no_gpu.problem_lines(origin, hostname="n", simulation=False, run_count=0, cells=120, rows=30)
    commands = [segment.text for line in lines for segment in line if segment.style == theme.TITLE]
    drivers = [] if lacks_card else ["sudo modprobe nvidia"]
    assert commands == [*drivers, "docker run --gpus all", f"{program()} doctor"]


def test_s_toggles_the_simulation() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("s")
        await pilot.pause()
        simulated = "\n".join(text(app))
        assert "SIMULATED" in simulated
        assert re.search(r"^    7  ", simulated, re.MULTILINE)
        assert NO_GPU not in simulated
        assert "s back" in text(app)[-1]
        await pilot.press("s")
        await pilot.pause()
        assert "SIMULATED" not in "\n".join(text(app))
        assert NO_GPU in "\n".join(text(app))

    play(without_gpu(), WIDE, script, simulation=simulation)


def test_simulation_shows_no_runs_of_this_machine(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        training(book, "a-real-run-1a2b", 3, began=BEGAN - 4000, course=False)

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("4")
        await appears(app, pilot, "a-real-run")
        await pilot.press("s")
        await pilot.pause()
        assert "SIMULATED" in "\n".join(text(app))
        assert "a-real-run" not in "\n".join(text(app))
        await pilot.press("s")
        await appears(app, pilot, "a-real-run")

    play(without_gpu(), WIDE, script, simulation=simulation, ledgers=lambda: Ledgers([str(book.path)]))


def test_simulation_has_the_runs_of_its_own_ledger(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "simulated").mkdir()
    with Book(tmp_path / "here") as here, Book(tmp_path / "simulated") as simulated:
        training(here, "a-real-run-1a2b", 3, began=BEGAN - 4000, course=False)
        training(simulated, "a-made-up-run-3c4d", 3, began=BEGAN - 4000, course=False)

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        app.view.ledger_runs.simulated = lambda: Ledgers([str(simulated.path)])
        await pilot.press("4")
        await appears(app, pilot, "a-real-run")
        await pilot.press("s")
        await appears(app, pilot, "a-made-up-run")
        assert "a-real-run" not in "\n".join(text(app))
        await pilot.press("s")
        await appears(app, pilot, "a-real-run")
        assert "a-made-up-run" not in "\n".join(text(app))

    play(without_gpu(), WIDE, script, simulation=simulation, ledgers=lambda: Ledgers([str(here.path)]))


def test_machine_with_gpus_is_never_simulated() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        before = text(app)
        await pilot.press("s")
        await pilot.pause()
        assert text(app) == before

    play(FakeFeed(label="", source="nvml"), WIDE, script, simulation=simulation)


def test_past_runs_are_shown_without_a_gpu() -> None:
    begun, nan = START - 7200.0, float("nan")
    run = RunRow(
        "resnet50-1a2b", "resnet50", "alice", "node7", "PyTorch", "nvml", "", "", 1, 90, 0, 0, begun, begun + 3600,
        RunState.FINISHED, begun + 3600, "",
    )  # fmt: skip

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        while not app.view.past_runs:
            await pilot.pause()
        await pilot.pause()

    screen = "\n".join(play(without_gpu(), (120, 40), script, past=lambda: [RunSummary(run, 90, 0, nan, nan)]))
    assert "Past runs" in screen
    assert "resnet50-1a2b" in screen
    assert "finished" in screen


def test_late_view_does_not_blame_the_daemon() -> None:
    feed, clock = recent(source="nvml", label=""), FakeClock(start=700 * SECOND)

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        feed.advance(30)
        clock.advance(30)
        app.draw()
        assert app.view.age == 0, "its samples came all the time"
        app.poll()
        assert (app.view.age, app.view.now) == (0, START + 729)
        clock.advance(30)
        app.draw()
        assert app.view.age == pytest.approx(31, abs=1), "none came"

    play(feed, (80, 24), script, clock=clock)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"memory_used": 0.0}, "no process holds GPU memory"),
        ({"memory_used": 9e9}, "memory is in use"),
        ({}, "no process listed"),
        ({"state": Availability.NO_DRIVER}, "unknown: no GPU driver answers"),
        ({"state": Availability.STALE, "memory_used": 0.0}, "unknown"),
        ({"missing": {PROCESSES: Availability.NO_PERMISSION}, "memory_used": 0.0}, "unknown on GPU 0"),
    ],
)
def test_empty_process_table_claims_only_what_is_known(changes: dict[str, Any], said: str) -> None:
    made = sample(0, changes.pop("state", Availability.OK), memory_total=8e10, memory_reserved=0.0)
    made = made._replace(device=made.device._replace(missing=changes.pop("missing", {})))
    for name, value in changes.items():
        made.values[GPU_INDEX[f"gpu.{name}"]] = value
    told = empty_text([made], "not loaded: try 'sudo modprobe nvidia'")
    assert said in told
    assert told == said or not told.startswith("no process holds")
