"""All runs of a ledger are read once: the newest at once, then the others, then only what is new."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from textual.pilot import Pilot

from gpumon.common.clock import SECOND
from gpumon.model.frame import RunState
from gpumon.storage.ledger.reader import Ledger, Ledgers
from gpumon.storage.ledger.records import RunRow, RunSummary
from gpumon_tui.app import GpumonApp
from gpumon_tui.data.run_reader import FIRST, ListedRuns, detail, open_run
from gpumon_tui.render.text_width import READING_OLDER
from tests.fakes import FakeClock
from tests.programs import PATIENCE
from tests.runs import BEGAN, Book, training
from tests.tui.fakes import recent
from tests.tui.screen import play, runs_page, text

MANY = FIRST + 20
NOW = BEGAN + 10.0
OLDEST = f"r-{MANY - 1:04}"


@pytest.fixture
def book(tmp_path: Path) -> Book:
    with Book(tmp_path) as book:
        book.db.execute("PRAGMA synchronous = OFF")
        for place in range(MANY):
            training(book, f"r-{place:04}", 1, began=BEGAN - 100 * place - 50, course=False, phases=False)
    return book


@pytest.fixture
def looked_into(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ids of runs that were looked into one by one."""
    found: list[str] = []
    listed = Ledger.summary

    def noted(ledger: Ledger, run: RunRow) -> RunSummary:
        found.append(run.id)
        return listed(ledger, run)

    monkeypatch.setattr(Ledger, "summary", noted)
    return found


def change(book: Book, sql: str) -> None:
    with closing(sqlite3.connect(book.path, isolation_level=None)) as db:
        db.execute("PRAGMA foreign_keys = ON")
        db.execute(sql)


def test_the_newest_come_first_then_all_and_nothing_is_looked_into_twice(book: Book, looked_into: list[str]) -> None:
    runs = ListedRuns()
    with Ledgers([str(book.path)]) as ledgers:
        first = runs.read(ledgers, NOW)
        assert [run.id for run in first] == [f"r-{place:04}" for place in range(FIRST)]
        assert not runs.is_all
        every = runs.read(ledgers, NOW)
        assert runs.is_all
        assert every[:FIRST] == first
        assert looked_into == [f"r-{place:04}" for place in range(FIRST, MANY)]
        truth = ledgers.runs()
        assert [(run.id, run.energy, run.utilization, run.gpus) for run in every] == [
            (one.run.id, one.energy, one.utilization, one.gpus) for one in truth
        ]
        assert runs.read(ledgers, NOW) is every, "while the file is the same"


def test_only_what_is_new_of_a_ledger_is_looked_into_again(book: Book, looked_into: list[str]) -> None:
    runs = ListedRuns()
    with Ledgers([str(book.path)]) as ledgers:
        runs.read(ledgers, NOW)
        runs.read(ledgers, NOW)
        looked_into.clear()
        change(book, f"UPDATE run SET state = {RunState.DIED:d}, updated = updated + 1 WHERE id = 'r-0003'")
        change(book, "INSERT INTO tag (run, tag, removed) VALUES ('r-0005', 'baseline', 0)")
        found = {run.id: run for run in runs.read(ledgers, NOW)}
        assert looked_into == ["r-0003"]
        assert found["r-0003"].ended_badly
        assert found["r-0005"].tags == ("baseline",)
        assert "baseline" in found["r-0005"].text
        change(book, "DELETE FROM run WHERE id = 'r-0001'")
        assert "r-0001" not in {run.id for run in runs.read(ledgers, NOW)}


def test_the_page_says_that_more_are_being_read(book: Book) -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("4")
        seen: list[str] = []
        while not seen or f"{MANY} past" not in seen[-1]:
            await pilot.pause(0.01)
            app.draw()
            await pilot.pause()
            title = next(line for line in text(app) if "running" in line and "past" in line)
            seen.append(title)
        told = {title.split("past")[0].split()[-1] for title in seen}
        assert told <= {"…", f"{FIRST}+", str(MANY)}, "never a number that is too small"

    still = FakeClock(time=round(NOW * 1e9))  # or the frames would be old once all is read
    play(recent(gpus=5), (160, 50), script, ledgers=lambda: Ledgers([str(book.path)]), clock=still)


@pytest.mark.parametrize(("seen", "verdict"), [(True, "fine"), (False, "")])
def test_a_run_whose_gpus_nobody_saw_is_not_fine(seen: bool, verdict: str, tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        run_id = training(book, epochs=2)
        if not seen:  # a daemon that began after it took it up from its board
            for table in ("usage", "trace", "device"):
                book.db.execute(f"DELETE FROM {table}")
    with Ledger(str(book.path)) as ledger:
        told = detail(ledger, run_id, BEGAN + 1000.0)
    assert told.verdict == verdict
    assert told.wait == pytest.approx(0.05, abs=0.01), "its board says so"


def test_the_wait_of_a_run_that_goes_on_is_a_share_of_the_time_in_which_it_was_measured(tmp_path: Path) -> None:
    """As the opened run has it; of a run of some seconds the list said almost nothing."""
    with Book(tmp_path) as book:
        run_id = book.run(started=BEGAN * SECOND, ended=None, state=RunState.RUNNING, updated=(BEGAN + 2) * SECOND)
        book.rank(run_id, wait=1.0, steps=20)
    with Ledger(str(book.path)) as ledger:
        assert detail(ledger, run_id, BEGAN + 10.0).wait == pytest.approx(0.5)
        assert open_run(ledger.record(run_id, phases=False, times=True), BEGAN + 10.0).whole.summary.wait_share == 0.5


def test_a_filter_that_matches_only_unread_runs_says_so_and_opens_none(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_read = Event()
    read_all = ListedRuns._read_all

    def wait(runs: ListedRuns, ledgers: Ledgers) -> dict[str, tuple[str, RunSummary]]:
        assert may_read.wait(PATIENCE)
        return read_all(runs, ledgers)

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("4")
        content = runs_page(app)

        async def drawn_until(is_done: Callable[[], bool]) -> None:
            while not is_done():
                await pilot.pause(0.01)
                app.draw()
            await pilot.pause()

        await drawn_until(lambda: len(content.table.shown) >= FIRST)
        await pilot.press("slash", *OLDEST)
        await pilot.press("enter")
        await drawn_until(lambda: not content.table.shown)
        assert READING_OLDER in "\n".join(text(app))
        for key in ("enter", "v", "r"):
            await pilot.press(key)
        assert (content.opened.id, content.choosing, content._report) == ("", "", None)
        may_read.set()
        await drawn_until(lambda: bool(content.table.shown))
        assert READING_OLDER not in "\n".join(text(app))
        await pilot.press("enter")
        assert content.opened.id == OLDEST

    monkeypatch.setattr(ListedRuns, "_read_all", wait)
    still = FakeClock(time=round(NOW * 1e9))
    try:
        play(recent(gpus=5), (160, 50), script, ledgers=lambda: Ledgers([str(book.path)]), clock=still)
    finally:
        may_read.set()


def test_enter_opens_a_run_that_matches_although_the_list_is_not_drawn_yet(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        for number, run_id in enumerate(("aa-1", "bb-2")):
            training(book, run_id, 1, began=BEGAN - 100 * number - 50)

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("4")
        content = runs_page(app)
        while len(content.table.shown) < 2:
            await pilot.pause(0.01)
            app.draw()
        content.table.run, content.table.filter = "aa-1", "bb"
        content.action_open()
        assert content.opened.id == "bb-2"

    still = FakeClock(time=round(NOW * 1e9))
    play(recent(gpus=5), (160, 50), script, ledgers=lambda: Ledgers([str(book.path)]), clock=still)
