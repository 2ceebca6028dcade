"""Rows beside the epochs of a run: the whole of it and what lies between, as the ledger and every other view tell."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from gpumon.errors import GpumonError
from gpumon.frame import RunState
from gpumon.ledger.reader import Ledger, Ledgers
from gpumon.ledger.schema import OUTSIDE_EPOCHS, WHOLE_EPOCH, WHOLE_RUN
from gpumon.reports import run_text
from gpumon_tui.app import GpumonApp
from gpumon_tui.asked import Asked
from tests.runs import GIB, Book, measured
from tests.tui.fakes import START, FakeFeed
from tests.tui.screen import play_former as play

SECOND = 10**9
LENGTH, REST = 90.0, 7.0
BETWEEN = (("evaluate", 6, 5.0, 0.4), ("checkpoint", 7, 1.5, 0.02), ("other", 8, 0.5, 0.1))


def kept(directory: Path, epochs: int = 7, label: str = "SIMULATED") -> str:
    """A ledger of the first run of the feed: between epochs of 90 s lie an evaluation and a checkpoint."""
    with Book(directory) as book:
        run = book.run(
            "id-0", name="resnet50", started=START * SECOND, updated=(START + 699) * SECOND, epochs=90, label=label,
            seconds=699.0,
        )  # fmt: skip
        key = book.rank(run, started=START * SECOND, metrics="{}")
        uuid = book.device(key)
        for ordinal in range(epochs):
            begun = round((START + ordinal * (LENGTH + REST)) * SECOND)
            book.epoch(key, ordinal, begun=begun, ended=begun + round(LENGTH * SECOND), seconds=LENGTH)
            book.usage(key, ordinal, uuid, **measured(LENGTH))
        whole = sum(seconds for _, _, seconds, _ in BETWEEN)
        for place, (phase, times, seconds, busy) in enumerate(((WHOLE_EPOCH, 1, whole, 0.31), *BETWEEN)):
            book.add("outside", rank=key, phase=phase, place=place, seconds=epochs * seconds, times=times, steps=0)
            book.usage(
                key, OUTSIDE_EPOCHS, uuid, phase, **measured(epochs * seconds, busy, memory_used_peak=(9 + place) * GIB)
            )
        book.usage(key, WHOLE_RUN, uuid, **measured(699.0, 0.87))
        return str(book.path)


def shown(path: str, size: tuple[int, int] = (200, 50), **options: Any) -> list[str]:
    async def answered(app: GpumonApp, pilot: Any) -> None:
        await pilot.press("tab")
        while app.view.selected_run != "id-0":
            await pilot.press("down")
        while not app.view.kept.asked.is_idle:
            await pilot.pause(0.01)
        app.draw()

    lines = play(FakeFeed(), size, answered, ledgers=lambda: Ledgers([path]), **options)
    head = next(place for place, line in enumerate(lines) if "EPOCH " in line and "BEGAN" in line)
    begin = lines[head].index("BEGAN") - 21
    return [row for line in lines[head + 1 : -1] if (row := line[begin:].strip())]


def cells(row: str) -> list[str]:
    return row.replace(" %", "%").replace(" GiB", "GiB").replace(" W", "W").replace(" s", "s").split()


def test_the_whole_run_and_all_between_its_epochs_are_the_rows_of_runs_show(tmp_path: Path) -> None:
    path = kept(tmp_path)
    rows = [cells(row) for row in shown(path, (300, 90))]
    with Ledger(path) as ledger:
        told = [cells(line) for line in run_text.lines(ledger.record("id-0"), START + 699.0, 0, phases=True)]
    truth = {line[0]: line for line in told if line}
    assert [row[0] for row in rows[:5]] == ["all", "between", "evaluate", "checkpoint", "other"]
    assert rows[0][2:] == ["11:39", "87%", "42.0GiB", "500W"]
    assert rows[1][1:] == ["49s", "31%", "9.0GiB", "500W"]
    assert rows[2][1:] == ["×6", "35s", "40%", "10.0GiB", "500W"]
    assert rows[5][0].startswith("e"), "and the newest epoch follows"
    for row in rows[:5]:
        values = [cell for cell in row if cell.endswith(("%", "GiB")) or cell == row[-4]]
        assert set(values) <= set(truth[row[0]]), f"{row[0]}: what 'gpumon runs show' says"


def test_a_run_that_no_ledger_has_has_a_row_of_what_history_knows_and_none_of_what_lies_between(tmp_path: Path) -> None:
    def none() -> Ledgers:
        raise GpumonError("no runs recorded yet")

    for ledgers in (none, lambda: Ledgers([kept(tmp_path / "other", label="REPLAY")])):
        lines = play(FakeFeed(), (200, 60), None, ledgers=ledgers)
        (row,) = (line for line in lines if " all " in line)
        assert " 11:39 " in row
        assert not any(" between " in line for line in lines)


def test_epochs_keep_most_of_a_small_table(tmp_path: Path) -> None:
    rows = [cells(row)[0] for row in shown(kept(tmp_path))]
    assert rows[0] == "all"
    assert sum(name.startswith("e") and name[1:].isdigit() for name in rows) >= 2 * sum(
        not (name.startswith("e") and name[1:].isdigit()) for name in rows
    )


def test_a_question_is_answered_beside_drawing_and_not_asked_again_while_its_answer_is_good() -> None:
    asked, made = Asked(), []

    def answer() -> int:
        made.append(1)
        return 7

    assert asked.ask("q", answer).found is None
    while not asked.is_idle:
        time.sleep(0.001)
    assert [asked.ask("q", answer).found for _ in range(3)] == [7, 7, 7]
    assert len(made) == 1
    asked.forget("q")
    assert asked.ask("q", answer).found == 7, "the old answer until there is a new one"
    while not asked.is_idle:
        time.sleep(0.001)
    assert len(made) == 2


def test_a_question_without_an_answer_says_why() -> None:
    asked = Asked()

    def fails(error: Exception) -> int:
        raise error

    for error, told in ((GpumonError("locked"), "locked"), (KeyError("x"), "cannot read it: KeyError")):
        asked.ask(told, lambda error=error: fails(error))  # type: ignore[misc]
        while not asked.is_idle:
            time.sleep(0.001)
        assert told in asked.ask(told, lambda: 1).problem


def test_a_run_that_is_over_has_all_of_it(tmp_path: Path) -> None:
    path = kept(tmp_path)
    feed = FakeFeed()
    for frame in feed.frames:
        frame._runs = tuple(run._replace(state=RunState.FINISHED) for run in frame.runs)
    assert cells(shown(path)[0])[0] == "all"
