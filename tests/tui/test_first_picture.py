"""The first picture, which Textual does not draw, is what the view draws first: cell by cell, in every look."""

from __future__ import annotations

import asyncio
import re

import pytest
from rich.color import ColorSystem
from rich.console import Console

from gpumon.analysis.gpu_state import GpuState
from gpumon.model.metrics import Availability
from gpumon_tui import themes
from gpumon_tui.app import GpumonApp
from gpumon_tui.first_picture import FirstTerminal, first_picture, first_terminal, first_view
from gpumon_tui.look import Depth, TerminalLook
from gpumon_tui.pictures.picture import Room
from gpumon_tui.remembered import Remembered
from gpumon_tui.textual_private.pen import Pen
from gpumon_tui.view import View
from tests.crossed import crossed
from tests.fakes import FakeClock
from tests.tui.fakes import FakeFeed
from tests.tui.golden_scenes import SILENT, machine
from tests.tui.test_cell_diff import Terminal
from tests.tui.test_cell_diff import _kind as kind

SIZES = ((40, 20), (80, 24), (120, 40), (200, 50))
LOOKS = {
    "dark": TerminalLook(),
    "light": TerminalLook(theme=themes.BY_NAME["light"]),
    "ASCII": TerminalLook(is_ascii=True),
    "16 colors": TerminalLook(depth=Depth.SIXTEEN),
    "no colors": TerminalLook(depth=Depth.NONE, is_ascii=True),
}
TRUE = ColorSystem.TRUECOLOR
DEFAULT, REVERSE = "49", "7"


def silent(feed: FakeFeed) -> FakeFeed:
    feed.live = SILENT
    return feed


def without_driver() -> FakeFeed:
    feed = machine(8)
    feed.state_of_all = Availability.NO_DRIVER
    feed.advance()
    return feed


MACHINES = {
    **{f"{gpus} GPUs": lambda gpus=gpus: machine(gpus) for gpus in (1, 2, 8, 32)},
    "no GPU": lambda: machine(0, problem="the NVIDIA driver is not loaded"),
    "silent": lambda: silent(machine(8)),
    "no driver": without_driver,
}


def cells(terminal: Terminal) -> list[list[tuple[str, ...]]]:
    """Return what is seen of the style of each cell: of one without a letter only the ground."""

    def seen(letter: str, ink: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(
            one for one in ink if one != DEFAULT and (letter != " " or one == REVERSE or kind(one) == "ground")
        )

    rows = zip(terminal.rows, terminal.inks, strict=True)
    return [[seen(letter, ink) for letter, ink in zip(letters, inks, strict=True)] for letters, inks in rows]


def drawn_first(feed: FakeFeed, size: tuple[int, int], look: TerminalLook) -> Terminal:
    """Play the first picture on a terminal."""
    terminal = Terminal(*size)
    view = first_view(feed, look, Remembered(), interval=1.0)
    written = first_picture(view, FirstTerminal(Room(*size), TRUE, look))
    assert (written[:8], written[-8:]) == ("\x1b[?2026h", "\x1b[?2026l"), "all of it appears at once"
    terminal.write(written[8:-8])
    return terminal


def drawn_by_textual(feed: FakeFeed, size: tuple[int, int], look: TerminalLook) -> Terminal:
    """Play the picture of the view itself on a terminal."""
    terminal = Terminal(*size)

    async def session() -> None:
        app = GpumonApp(feed, live=False, look=look, clock=FakeClock(start=feed.frames[-1].monotonic_ns))
        async with app.run_test(size=size) as pilot:
            while app.view.filling:
                await pilot.pause()
            app.draw()
            await pilot.pause()
            pen = Pen(TRUE)
            for row, strip in enumerate(app.screen._compositor.render_strips()):
                pen.write(row, 0, ((text, style) for text, style, _ in strip), 0, size[0])
            terminal.write(pen.written())

    asyncio.run(session())
    return terminal


@pytest.fixture(autouse=True)
def takes_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpumon_tui.first_picture.TAKES", 1e9)
    monkeypatch.setattr("gpumon_tui.first_picture.monotonic", lambda: 0.0)  # nothing gets old while it is drawn


@pytest.mark.parametrize(("name", "size"), crossed([*MACHINES], SIZES))
def test_first_picture_is_that_of_the_view(name: str, size: tuple[int, int]) -> None:
    first, then = (draw(MACHINES[name](), size, LOOKS["dark"]) for draw in (drawn_first, drawn_by_textual))
    assert first.text() == then.text()
    assert cells(first) == cells(then)


@pytest.mark.parametrize(("look", "size"), crossed([*LOOKS], SIZES))
def test_first_picture_is_in_the_look_of_the_view(look: str, size: tuple[int, int]) -> None:
    first, then = (draw(machine(8), size, LOOKS[look]) for draw in (drawn_first, drawn_by_textual))
    assert first.text() == then.text()
    assert cells(first) == cells(then)


@pytest.mark.parametrize("env", [
    {"TERM": "xterm-256color"}, {"TERM": "xterm"}, {"TERM": "xterm-kitty"}, {"TERM": "linux"}, {},
    {"TERM": "xterm", "COLORTERM": "TrueColor"}, {"TERM": "xterm-256color", "NO_COLOR": "1"},
], ids=str)  # fmt: skip
def test_colors_are_those_that_rich_finds(env: dict[str, str]) -> None:
    console = Console(force_terminal=True, _environ=env)
    assert first_terminal(env, "utf-8", "", (80, 24)).colors.name.lower() == {"256": "eight_bit"}.get(
        str(console.color_system), str(console.color_system)
    )


@pytest.mark.parametrize("size", [(19, 24), (80, 5), (601, 50), (0, 0)], ids=str)
def test_nothing_is_drawn_first_on_a_terminal_of_no_sane_size(size: tuple[int, int]) -> None:
    view = first_view(machine(8), TerminalLook(), Remembered(), interval=1.0)
    assert first_picture(view, FirstTerminal(Room(*size), TRUE, TerminalLook())) == ""


def test_nothing_is_drawn_first_without_a_frame_and_a_page_of_another_time_does_not_count() -> None:
    terminal = FirstTerminal(Room(80, 24), TRUE, TerminalLook())
    empty = FakeFeed(seconds=0)
    empty.frames = []
    assert first_picture(first_view(empty, TerminalLook(), Remembered(), interval=1.0), terminal) == ""
    view = first_view(machine(8), TerminalLook(), Remembered(), interval=1.0)
    assert first_picture(view, terminal)
    first = first_picture(view, terminal)
    view.remembered.keep("page", "Chart")
    assert first_picture(view, terminal) == first


def test_a_run_is_where_the_newest_frame_has_it_before_the_past_is_taken_in() -> None:
    feed = FakeFeed()
    frames = feed.since(0)
    view = View(1.0)
    view.add(frames[0])
    view.frame = frames[-1]
    newest = {run.key: run.epoch for run in frames[-1].runs}
    shown = {sample.run: run.epoch for sample in view.samples if (run := view.run_on(sample))}
    assert shown
    assert all(newest[key] == epoch for key, epoch in shown.items())


def test_no_epoch_is_told_of_before_all_frames_are_taken_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpumon_tui.first_picture.TAKES", 0.0)
    shown = "\n".join(drawn_first(machine(8), (200, 50), LOOKS["dark"]).text())
    assert "reading the last frames" in shown
    assert "reading history" in shown
    assert "···" not in shown, "that time was not watched is not known yet"
    assert not re.search(r"e\d+ ▸", shown), "an epoch of long ago does not go on"


def test_gpus_are_judged_by_the_last_minutes_while_an_hour_of_frames_is_taken_in() -> None:
    feed = FakeFeed(seconds=400)
    whole, view = View(), View()
    for frame in feed.frames:
        whole.add(frame)
    whole.frame = view.frame = feed.frames[-1]
    for frame in feed.frames[:5]:
        view.add(frame)
    view.filling = True
    view.last_minutes.take(feed.frames)
    states = [status.state for status in view.statuses]
    assert GpuState.HELD in states
    assert states == [status.state for status in whole.statuses]
    feed.advance()
    view.frame = feed.frames[-1]
    view.last_minutes.take(feed.frames[-1:])
    assert [status.state for status in view.statuses] == states, "frames that come meanwhile count too"
    view.filling = False
    for frame in feed.frames[5:]:
        view.add(frame)
    assert [status.state for status in view.statuses] == states
