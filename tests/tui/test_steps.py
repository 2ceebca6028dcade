"""Trainings without epochs in the terminal: rows of their steps, one of the whole run, and how far a plan is."""

from __future__ import annotations

import re
from math import ceil, nan
from pathlib import Path
from typing import Any

from textual.pilot import Pilot

from gpumon.analysis.run_epochs import Epochs
from gpumon.model.frame import Boundary, Mark, Run, RunState
from gpumon.model.run import RunFacts
from gpumon.storage.ledger.reader import Ledgers
from gpumon_tui.app import GpumonApp
from gpumon_tui.render.gpu_status import progress_text
from tests.builders import TIME, run
from tests.fakes import FakeClock
from tests.tui.fakes import START, FakeFeed
from tests.tui.screen import appears, play, runs_page
from tests.tui.test_state import frame_with
from tests.unit import test_step_rows as step_rows
from tests.unit.test_ledger_recorder import GPU, Memory, keep
from tests.unit.test_whole_runs import NOW, kept, ticks, trained

PLAN = RunFacts(planned_steps=300.0)


def stepped(key: str, steps: int) -> tuple[Boundary, ...]:
    """A step each second, marked at each tenth, and an evaluation after the fifth of the first ten."""
    found = [
        (Mark.RUN_BEGIN, 0, ""), (Mark.PHASE, 5, "evaluate"), (Mark.PHASE, 5, ""),
        *((Mark.STEPS, step, "") for step in range(10, steps + 1, 10)),
    ]  # fmt: skip
    return tuple(
        Boundary(key, number, mark, -1, step, phase, step * 10**9, (START + step) * 10**9)
        for number, (mark, step, phase) in enumerate(found, 1)
    )


def training(steps: int, **more: Any) -> Run:
    return Run(
        "r", "id", "llm", 1, "alice", state=RunState.RUNNING, started=float(START), step=steps, facts=PLAN,
        updated=float(START + steps), **more,
    )  # fmt: skip


def by_steps(feed: FakeFeed, facts: RunFacts = PLAN, *, counts: bool = True, since: int = 0) -> FakeFeed:
    """The first training of the feed has no epochs, and makes a step each second."""
    for second, frame in enumerate(feed.frames):
        first = frame.runs[0]
        mine = first._replace(
            epochs=0, epoch=-1, epoch_started=nan, step=second if counts else 0, facts=facts, world_size=1,
            phase="", started=START - float(since), metrics={},
        )  # fmt: skip
        frame._runs = (mine,)
        marked = [one for one in stepped(mine.key, len(feed.frames)) if one.time_ns == (START + second) * 10**9]
        frame._boundaries = tuple(one for one in marked if counts or one.mark is not Mark.STEPS)
    return feed


def listed(feed: FakeFeed) -> list[list[str]]:
    """The cells of the rows of the list of runs."""

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("4")
        await appears(app, pilot, " verdict")

    return [line.strip("▌ ").split() for line in play(feed, (170, 48), script) if re.match("[▌ ] [▸●▲○] ", line)]


def opened(ledger: Memory, directory: Path) -> list[str]:
    """The only run of a ledger, opened on the page of runs."""
    kept(ledger, directory)
    path = str(directory / "state" / "ledger.sqlite")
    feed = FakeFeed(seconds=2)
    for frame in feed.frames:
        frame._runs = ()

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("4")
        await appears(app, pilot, " verdict")
        sheet = runs_page(app)
        while app.view.ledger_runs.listed().result is None:
            await pilot.pause(0.01)
        app.draw()
        await pilot.press("enter")
        while sheet.opened.detail is None:
            await pilot.pause(0.01)
        app.draw()

    return play(feed, (170, 60), script, ledgers=lambda: Ledgers([path]), clock=FakeClock(time=round(NOW * 10**9)))


def test_rows_of_steps_are_those_of_the_ledger_and_the_last_one_goes_on() -> None:
    epochs = Epochs()
    epochs.add(frame_with(stepped("r", 140), (training(145),)))
    rows = epochs.steps("r", START + 147.0)
    assert [(row.first, row.last) for row in rows[:2]] == [(0, 10), (10, 20)], "and no row ends at an evaluation"
    assert len(rows) == 15
    assert (rows[-1].first, rows[-1].last, rows[-1].end - START, rows[-1].finished) == (140, 145, 147.0, False)
    over = training(140)._replace(state=RunState.FINISHED)
    epochs.add(frame_with((), (over,)))
    assert [row.finished for row in epochs.steps("r", START + 999.0)] == [True] * 14


def test_rows_become_longer_and_begin_where_boundaries_are_known() -> None:
    epochs = Epochs()
    late = tuple(one for one in stepped("r", 1000) if one.step >= 500)
    epochs.add(frame_with(late, (training(1000),)))
    rows = epochs.steps("r", START + 1000.0)
    assert (rows[0].first, rows[0].last, rows[0].begin - START) == (500, 520, 500.0)
    assert {row.last - row.first for row in rows} == {20}


def test_a_run_with_epochs_and_one_that_marks_no_steps_have_no_rows_of_them() -> None:
    epochs = Epochs()
    epochs.add(frame_with(stepped("r", 40), (training(40)._replace(epoch=0, epoch_started=START + 1.0),)))
    assert epochs.steps("r", START + 41.0) == []
    assert epochs.steps("nobody", START + 41.0) == []
    none = Epochs()
    none.add(frame_with(stepped("r", 5), (training(5),)))
    assert none.steps("r", START + 41.0) == []


def test_a_plan_of_steps_is_told_where_one_of_epochs_is() -> None:
    assert progress_text(training(140)) == "step 140/300"
    assert progress_text(training(140)._replace(phase="evaluate")) == "step 140/300 evaluate"
    assert progress_text(training(140)._replace(epochs=5)) == "", "before its first epoch"
    assert progress_text(training(140)._replace(facts=RunFacts())) == ""


def test_a_screen_shows_steps_of_a_plan_time_left_and_rows() -> None:
    screen = "\n".join(play(by_steps(FakeFeed(seconds=141)), (170, 48)))
    assert re.search(r"resnet50 +step 140/300 +2 m\n", screen), "in the line of its GPU"
    assert re.search(r"resnet50 .* 140/300 .* 2 m ", screen), "and of the run: 160 steps of a second each"


def test_the_list_of_runs_has_the_step_of_a_plan_and_the_time_left() -> None:
    (row,) = listed(by_steps(FakeFeed(seconds=141)))
    assert row[:2] == ["▸", "resnet50"]
    assert "140/300" in row
    assert "2:40" in row, "160 steps of a second each"


def test_an_opened_run_without_epochs_has_rows_of_its_steps(tmp_path: Path) -> None:
    ledger = Memory()
    boundaries, end = step_rows.stepped(300, 0.2, evaluate=50)
    keep(ledger, ticks(ceil(end) + 3, boundaries, step_rows.of_steps(300, 0.2)))
    lines = opened(ledger, tmp_path)
    (head,) = (place for place, line in enumerate(lines) if line.split()[:2] == ["steps", "time"])
    assert [line.strip("▌ ").split()[0] for line in lines[head + 1 : head + 4]] == ["291–300", "281–290", "271–280"]
    assert any("30 rows of steps" in line for line in lines[:head])
    assert sum(line.split()[:1] == ["all"] for line in lines) == 1


def test_an_opened_command_has_a_row_of_all_of_it(tmp_path: Path) -> None:
    begin, *_, end = trained()
    command = run(gpus=(GPU,), started=(TIME + 10**9) / 10**9, epoch=-1, epochs=0, step=0)
    ledger = Memory()
    keep(ledger, ticks(24, [begin, end._replace(step=0, number=2)], command))
    lines = opened(ledger, tmp_path)
    assert any("no epochs" in line for line in lines)
    (head,) = (place for place, line in enumerate(lines) if line.split()[:2] == ["epoch", "time"])
    assert [line.split()[0] for line in lines[head + 1 : -1] if line.strip()] == ["all"]


def test_a_narrow_screen_keeps_the_step_of_a_plan() -> None:
    lines = play(by_steps(FakeFeed(seconds=141, gpus=3)), (80, 24))
    assert sum("140/300" in line for line in lines) == 2, "of the GPU and of the run"


def test_of_a_command_the_list_of_runs_claims_how_long_it_goes_on_and_nothing_else() -> None:
    (row,) = listed(by_steps(FakeFeed(seconds=141), RunFacts(), counts=False))
    assert (row[-1], "2:20" in row, "–" in row) == ("running", True, True), row
    (row,) = listed(by_steps(FakeFeed(seconds=141), RunFacts(), counts=False, since=3600))
    assert (row[-1], "1:02:20" in row, "–" in row) == ("running", True, True), row
