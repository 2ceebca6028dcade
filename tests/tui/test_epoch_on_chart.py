"""From an epoch of an opened run to its moment on the chart, and back to the same place."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from gpumon.common.numbers import is_known
from gpumon.storage.ledger.reader import Ledger, Ledgers
from gpumon_tui.app import GpumonApp
from gpumon_tui.data.run_reader import open_run
from gpumon_tui.data.run_rows import OpenRun
from gpumon_tui.keybindings import CHART, OVERVIEW, RUNS
from gpumon_tui.state import View
from gpumon_tui.widgets.opened_run import epoch_on_chart
from tests.fakes import FakeClock
from tests.instructions import instructions
from tests.runs import BEGAN, Book, training
from tests.tui.fakes import START, FakeFeed
from tests.tui.screen import play, runs_page, text
from tests.tui.test_runs_page import settled

SECOND = 10**9
FIRST = 1.5
"""Length of a made-up run's first epoch, in those of the others."""


def played(book: Path, script: Any, size: tuple[int, int] = (160, 50)) -> None:
    play(
        FakeFeed(), size, script, ledgers=lambda: Ledgers([str(book)]), clock=FakeClock(time=(BEGAN + 700) * SECOND)
    )  # fmt: skip


async def press(app: GpumonApp, pilot: Pilot[Any], keys: Sequence[str]) -> None:
    for key in keys:
        await pilot.press(key)
        await settled(app, pilot)


@pytest.fixture
def past(tmp_path: Path) -> Path:
    """A run of four epochs on GPU 2, from 100 s on, that no frame tells of."""
    with Book(tmp_path) as book:
        training(book, "past-1", 4, began=START + 100, seconds=100, course=False, device={"uuid": "GPU-0002"})
    return book.path


TO_EPOCH = ("4", "end", "enter", "down")
"""The last run but one epoch: e2."""


def test_an_epoch_leads_to_its_time_and_its_gpu_and_escape_back_to_the_same_place(past: Path) -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await press(app, pilot, TO_EPOCH)
        sheet, view = runs_page(app), app.view
        row = sheet.opened.row
        assert row is not None
        assert row.title == "e2"
        before = text(app)
        await press(app, pilot, ["e"])
        assert app.page.page_name == CHART
        assert view.subject == "GPU-0002"
        end = view.chart_time.end if view.chart_time.is_past else view.now
        assert end - view.window <= row.summary.begun < row.summary.ended <= end
        assert row.summary.begun <= view.chart_time.cursor < row.summary.ended
        screen = text(app)
        assert any(re.search(r"\bepoch 2\s*$", line) for line in screen), "the readout says which"
        assert not any("step" in line for line in screen), "of a run that no frame tells of no step is known"
        marks = screen[next(place for place, line in enumerate(screen) if "╷e" in line)]
        assert "╷e3" in marks
        assert "back to past" in screen[-1]
        await press(app, pilot, ["escape"])
        assert app.page.page_name == RUNS
        assert not is_known(view.chart_time.end)
        assert not is_known(view.chart_time.cursor)
        assert [line[:110] for line in text(app)[1:-1]] == [line[:110] for line in before[1:-1]]

    played(past, script)


def test_marks_stand_where_the_ledger_has_the_begin_of_each_epoch(past: Path) -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await press(app, pilot, [*TO_EPOCH, "e"])
        page: Any = app.page
        grid, way_back = page.state.grid, app.view.return_target
        assert way_back is not None
        row = next(line for line in text(app) if "╷e" in line)
        for mark in way_back.marks:
            place = page.state.plan.left + grid.at(mark.time)
            if 0 <= grid.at(mark.time) < grid.buckets - 4 and f"╷e{mark.epoch}" in row:
                assert row[place:].startswith(f"╷e{mark.epoch}")
        await press(app, pilot, ["g"])
        assert not any("╷e2" in line for line in text(app)), "another GPU has no epochs of it"

    played(past, script)


def test_escape_is_live_again_once_another_page_was_opened(past: Path) -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await press(app, pilot, [*TO_EPOCH, "e", "1", "2"])
        assert not any("back to past" in line for line in text(app))
        await press(app, pilot, ["escape"])
        assert app.page.page_name == CHART
        assert not app.view.chart_time.is_past
        await press(app, pilot, ["1"])
        assert app.page.page_name == OVERVIEW

    played(past, script)


@pytest.mark.parametrize(
    ("began", "uuid", "said"),
    [(START - 9000, "GPU-0002", "no history of e3 is stored: history begins"), (START + 9, "GPU-9", "no GPU of")],
)
def test_where_nothing_can_be_shown_the_reason_is_said(tmp_path: Path, began: float, uuid: str, said: str) -> None:
    with Book(tmp_path) as book:
        training(book, "past-1", 4, began=began, seconds=20, course=False, device={"uuid": uuid})

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await press(app, pilot, ["4", "end", "enter", "e"])
        assert app.page.page_name == RUNS
        assert said in text(app)[-1]

    played(book.path, script)


def test_without_an_opened_run_the_key_does_nothing(past: Path) -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await press(app, pilot, ["4", "e"])
        assert app.page.page_name == RUNS

    played(past, script)


def test_the_chart_of_an_epoch_is_opened_as_fast_from_a_run_of_thousands(tmp_path: Path) -> None:
    view, feed, spent = View(), FakeFeed(), []
    for frame in feed.frames:
        view.add(frame)
    view.frame = feed.frames[-1]
    for epochs in (400, 4000):
        with Book(tmp_path / str(epochs)) as book:
            book.db.execute("PRAGMA synchronous = OFF")
            training(book, "past-1", epochs, began=START + 100, seconds=400 / epochs, course=False, phases=False,
                     device={"uuid": "GPU-0002"})  # fmt: skip
        with Ledger(str(book.path)) as ledger:
            run = open_run(ledger.record("past-1", phases=False, times=True), BEGAN + 10**6)
        assert len(run.marks) == epochs

        def show(run: OpenRun = run) -> None:
            way_back, problem = epoch_on_chart(view, run, run.rows[-1])
            assert way_back is not None, problem
            view.return_target = way_back
            view.chart_epochs()

        spent.append(instructions(show))
    assert spent[1] < 1.3 * spent[0], spent


@pytest.mark.parametrize("page", ["1", "5"])
def test_escape_leads_back_to_the_page_that_opened_the_chart(page: str) -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press(page)
        name, before = app.page.page_name, app.view.chart_time.state()
        await pilot.press("enter")
        assert app.page.page_name == CHART
        assert "Esc back" in text(app)[-1]
        await pilot.press("left", "left", "escape")
        assert app.page.page_name == name
        assert repr(app.view.chart_time.state()) == repr(before)
        await pilot.press("2", "left", "escape")
        assert app.page.page_name == CHART, "a key led here"
        assert not app.view.chart_time.is_past

    play(FakeFeed(), (120, 40), script)
