"""Rows beside the epochs of a run: the whole of it and what lies between, as the ledger and every other view tell."""

from __future__ import annotations

import re
import time
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from textual.pilot import Pilot

from gpumon.common.errors import GpumonError
from gpumon.model.frame import Boundary, Run, RunState
from gpumon.reports import run_text
from gpumon.storage.ledger.reader import Ledger, Ledgers
from gpumon.storage.ledger.row_keys import OUTSIDE_EPOCHS, WHOLE_EPOCH, WHOLE_RUN
from gpumon_tui.app import GpumonApp
from gpumon_tui.background_queries import ACTIVE_VALID_FOR, BackgroundQueries
from tests.fakes import FakeClock
from tests.runs import GIB, Book, measured
from tests.tui.fakes import START, FakeFeed
from tests.tui.screen import appears, play, runs_page, text

SECOND = 10**9
EPOCH = re.compile(r"e\d+")
TITLE = re.compile(r"(e\d+|between|evaluate|checkpoint|other|all) ")
LENGTH, REST = 90.0, 7.0
BETWEEN = (("evaluate", 6, 5.0, 0.4), ("checkpoint", 7, 1.5, 0.02), ("other", 8, 0.5, 0.1))


def kept(
    directory: Path, epochs: int = 7, label: str = "SIMULATED", before: int = 0, metrics: str = "{}"
) -> str:  # fmt: skip
    """A ledger of the first run of the feed: between epochs of 90 s lie an evaluation and a checkpoint.

    `before`: seconds by which it began earlier than the run of the feed; `metrics`: logged in each epoch, as JSON.
    """
    began = (START - before) * SECOND
    with Book(directory) as book:
        run = book.run(
            "id-0", name="resnet50", started=began, updated=(START + 699) * SECOND, epochs=90, label=label,
            seconds=699.0,
        )  # fmt: skip
        key = book.rank(run, started=START * SECOND, metrics="{}")
        uuid = book.device(key)
        for ordinal in range(epochs):
            begun = round((START + ordinal * (LENGTH + REST)) * SECOND)
            book.epoch(key, ordinal, begun=begun, ended=begun + round(LENGTH * SECOND), seconds=LENGTH,
                       metrics=metrics)  # fmt: skip
            book.usage(key, ordinal, uuid, **measured(LENGTH))
        whole = sum(seconds for _, _, seconds, _ in BETWEEN)
        for place, (phase, times, seconds, busy) in enumerate(((WHOLE_EPOCH, 1, whole, 0.31), *BETWEEN)):
            book.add("outside", rank=key, phase=phase, place=place, seconds=epochs * seconds, times=times, steps=0)
            book.usage(
                key, OUTSIDE_EPOCHS, uuid, phase, **measured(epochs * seconds, busy, memory_used_peak=(9 + place) * GIB)
            )
        book.usage(key, WHOLE_RUN, uuid, **measured(699.0, 0.87))
        return str(book.path)


def shown(path: str, size: tuple[int, int], feed: FakeFeed | None = None) -> list[str]:
    """The rows of the table of the run, opened on the page of runs."""

    async def opened(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("4")
        await appears(app, pilot, " verdict")
        while app.view.selected_run != "id-0":
            await pilot.press("down")
        await pilot.press("enter")
        while runs_page(app).opened.detail is None:
            await pilot.pause(0.01)
            app.draw()

    clock = FakeClock(time=(START + 699) * SECOND)
    lines = play(feed or FakeFeed(), size, opened, ledgers=lambda: Ledgers([path]), clock=clock)
    head = next(place for place, line in enumerate(lines) if line.split()[:2] == ["epoch", "time"])
    return [row for line in lines[head + 1 : -1] if TITLE.match(row := line[:150].strip("▌ "))]


def cells(row: str) -> list[str]:
    return row.replace(" %", "%").replace(" GiB", "GiB").replace(" W", "W").replace(" s", "s").split()


def test_the_whole_run_and_all_between_its_epochs_are_the_rows_of_runs_show(tmp_path: Path) -> None:
    path = kept(tmp_path)
    rows = [cells(row) for row in shown(path, (300, 90))]
    with Ledger(path) as ledger:
        told = [cells(line) for line in run_text.lines(ledger.record("id-0"), START + 699.0, 0, phases=True)]
    truth = {line[0]: line for line in told if line}
    assert [row[0] for row in rows] == [
        *(f"e{epoch}" for epoch in range(6, -1, -1)), "between", "evaluate", "checkpoint", "other", "all",
    ]  # fmt: skip
    found = {row[0]: row for row in rows}
    assert {"11:39", "87%", "≥42.0GiB"} <= set(found["all"])
    assert {"49s", "31%", "9.0GiB"} <= set(found["between"])
    assert {"×6", "35s", "40%", "10.0GiB"} <= set(found["evaluate"])
    for row in rows[7:]:
        values = [cell for cell in row if cell.endswith(("%", "GiB")) or cell == found[row[0]][1]]
        assert set(values) <= set(truth[row[0]]), f"{row[0]}: what 'gpumon runs show' says"


@pytest.mark.parametrize(
    ("source", "label", "of", "before", "took"),
    [
        ("nvml", "", "", 0, "1:30"), ("nvml", "", "REPLAY", 0, "1:37"), ("nvml", "", "", 3600, "1:37"),
        ("sim", "SIMULATED", "SIMULATED", 0, "1:30"), ("replay", "REPLAY", "REPLAY", 0, "1:37"),
    ],
)  # fmt: skip
def test_the_epochs_of_a_run_are_those_of_its_own_ledger_and_never_what_a_recording_has_yet_to_play(
    source: str, label: str, of: str, before: int, took: str, tmp_path: Path
) -> None:
    path = kept(tmp_path, label=of, before=before)

    async def read(app: GpumonApp, pilot: Pilot[Any]) -> None:
        assert app.view.selected_run == "id-0"
        while not app.view.ledger_runs.queries.is_idle:
            await pilot.pause(0.01)
        feed.advance()
        app.poll()

    feed = FakeFeed(source=source, label=label)
    lines = play(feed, (200, 50), read, ledgers=lambda: Ledgers([path]))
    (row,) = (line.split()[line.split().index("e6") :] for line in lines if re.search(r" e6 +\d", line))
    assert row[1] == took


@pytest.mark.parametrize(("of", "before", "is_its"), [("", 0, True), ("REPLAY", 0, False), ("", 3600, False)])
def test_a_loss_is_compared_with_the_one_that_its_own_ledger_has_of_the_epoch_before(
    of: str, before: int, is_its: bool, tmp_path: Path
) -> None:
    feed = FakeFeed(source="nvml", label="")
    loss = next(run for run in feed.frames[-1].runs if run.id == "id-0").metrics["loss"]
    path = kept(tmp_path, label=of, before=before, metrics=f'{{"loss": {loss / 1.25}}}')

    async def read(app: GpumonApp, pilot: Pilot[Any]) -> None:
        while not app.view.ledger_runs.queries.is_idle:
            await pilot.pause(0.01)
        app.draw()

    lines = play(feed, (160, 50), read, ledgers=lambda: Ledgers([path]))
    runs = lines[next(at for at, line in enumerate(lines) if line.startswith("  Runs ")) :]
    (row,) = [line for line in runs if re.search(r"^\W*resnet50 .* train ", line)]
    assert ("+25 %" in row) is is_its, row


def test_epochs_that_the_ledger_does_not_have_yet_are_told_by_frames(tmp_path: Path) -> None:
    path, feed = kept(tmp_path, epochs=5, label=""), FakeFeed(source="nvml", label="")

    async def read(app: GpumonApp, pilot: Pilot[Any]) -> None:
        while not app.view.ledger_runs.queries.is_idle:
            await pilot.pause(0.01)
        feed.advance()
        app.poll()

    lines = play(feed, (200, 50), read, ledgers=lambda: Ledgers([path]))
    found = [line[row.start() :].split() for line in lines if (row := re.search(r" e\d(?: ▸)? +\d", line))]
    assert [row[0] for row in found] == [f"e{epoch}" for epoch in range(7, -1, -1)]
    assert [row[1] for row in found[1:4]] == ["1:37", "1:37", "1:30"]
    assert "–" in found[1], "its idle share is in no frame"


class WaitingFeed(FakeFeed):
    """Its runs waited for data for a quarter of their time."""

    def runs(self, second: int) -> tuple[Run, ...]:
        return tuple(run._replace(wait=second / 4) for run in super().runs(second))

    def boundaries(self, second: int) -> tuple[Boundary, ...]:
        return tuple(one._replace(wait=one.monotonic_ns / SECOND / 4) for one in super().boundaries(second))


@pytest.mark.parametrize("is_kept", [False, True])
def test_an_epoch_that_goes_on_says_how_much_of_it_its_run_waited(is_kept: bool, tmp_path: Path) -> None:
    path = kept(tmp_path, label="")

    async def read(app: GpumonApp, pilot: Pilot[Any]) -> None:
        while not app.view.ledger_runs.queries.is_idle:
            await pilot.pause(0.01)
        app.draw()

    feed = WaitingFeed(source="nvml", label="")
    lines = play(feed, (200, 50), read, ledgers=lambda: Ledgers([path] if is_kept else []))
    (row,) = [line[row.start() :].split() for line in lines if (row := re.search(r" e\d ▸ +\d", line))]
    assert "25%" in row, row


def test_the_ledger_is_asked_anew_at_once_for_an_epoch_that_has_ended_in_frames(tmp_path: Path) -> None:
    (tmp_path / "before").mkdir()
    (tmp_path / "then").mkdir()
    paths = [kept(tmp_path / "before", epochs=6, label="")]

    async def read(app: GpumonApp, pilot: Pilot[Any]) -> None:
        while not app.view.ledger_runs.queries.is_idle:
            await pilot.pause(0.01)
        feed.advance()
        app.poll()
        paths[:] = [then]  # it has been written meanwhile
        began = monotonic()
        while monotonic() - began < 0.9 * ACTIVE_VALID_FOR and not any(row.search(line) for line in text(app)):
            app.draw()
            await pilot.pause(0.1)

    then, feed = kept(tmp_path / "then", epochs=7, label=""), FakeFeed(source="nvml", label="")
    row = re.compile(" e6 +1:30 ")  # as the ledger has it; by its frames it took 1:37
    lines = play(feed, (200, 50), read, ledgers=lambda: Ledgers(paths))
    assert any(row.search(line) for line in lines), "nobody waits for the next look at what goes on"


def test_epochs_keep_most_of_a_small_table(tmp_path: Path) -> None:
    rows = [cells(row)[0] for row in shown(kept(tmp_path), (200, 20))]
    assert rows[-1] == "all"
    assert sum(bool(EPOCH.fullmatch(name)) for name in rows) >= 2 * sum(not EPOCH.fullmatch(name) for name in rows)


def test_a_question_is_answered_beside_drawing_and_not_asked_again_while_its_answer_is_good() -> None:
    asked, made = BackgroundQueries(), []

    def answer() -> int:
        made.append(1)
        return 7

    assert asked.get("q", answer).result is None
    while not asked.is_idle:
        time.sleep(0.001)
    assert [asked.get("q", answer).result for _ in range(3)] == [7, 7, 7]
    assert len(made) == 1
    asked.expire("q")
    assert asked.get("q", answer).result == 7, "the old answer until there is a new one"
    while not asked.is_idle:
        time.sleep(0.001)
    assert len(made) == 2


def test_while_a_picture_is_held_what_is_known_stays_and_what_is_new_is_answered() -> None:
    asked, made = BackgroundQueries(), iter(range(9))

    def answer(question: str) -> int | None:
        asked.expire(question)  # an answer that took long, as on a busy machine, would be good for longer
        asked.get(question, lambda: next(made), 0.0)
        while not asked.is_idle:
            time.sleep(0.001)
        return asked.cached(question).result

    assert [answer("epochs"), answer("epochs")] == [0, 1]
    asked.is_paused = lambda: True
    assert [answer("epochs"), answer("events"), answer("events")] == [1, 2, 2]
    asked.is_paused = lambda: False
    assert answer("epochs") == 3


def test_a_question_without_an_answer_is_not_asked_again_at_once() -> None:
    """The answer's end draws the page, which asks again: a ledger that is missing would keep a core busy."""
    asked, tries = BackgroundQueries(), []

    def answer() -> int:
        tries.append(1)
        raise GpumonError("no ledger")

    for _ in range(3):
        asked.get("runs", answer, 0.0)
        while not asked.is_idle:
            time.sleep(0.001)
    assert len(tries) == 1


def test_a_question_without_an_answer_says_why() -> None:
    asked = BackgroundQueries()

    def fails(error: Exception) -> int:
        raise error

    for error, told in ((GpumonError("locked"), "locked"), (KeyError("x"), "cannot read it: KeyError")):
        asked.get(told, lambda error=error: fails(error))  # type: ignore[misc]
        while not asked.is_idle:
            time.sleep(0.001)
        assert told in asked.get(told, lambda: 1).problem


def test_a_run_that_is_over_has_all_of_it(tmp_path: Path) -> None:
    path = kept(tmp_path)
    feed = FakeFeed()
    for frame in feed.frames:
        frame._runs = tuple(run._replace(state=RunState.FINISHED) for run in frame.runs)
    assert cells(shown(path, (200, 50), feed)[-1])[0] == "all"
