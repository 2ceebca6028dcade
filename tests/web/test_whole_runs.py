"""Pages of runs without epochs, of what lies between epochs, and of the particulars of runs."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from gpumon.common.clock import SECOND
from gpumon.model.run import Metadata, Note, RunFacts
from gpumon.reports import run_json
from gpumon.storage.ledger.rank import _about_rows
from gpumon.storage.ledger.schema import LEDGER_FILE
from gpumon.storage.ledger.writer import Batch, write_batch
from gpumon.storage.sqlite.write import open_to_write
from gpumon_web.components.gpu_rows import holder_lines
from gpumon_web.components.machine import Now
from gpumon_web.components.page import StoredValues
from gpumon_web.pages import runs as runs_page
from gpumon_web.pages.run import kept, live, rest
from gpumon_web.stored.run_page import all_rows, run_document
from tests.builders import TIME, run, sample, tick
from tests.runs import BEGAN, Book, training
from tests.unit.test_ledger_recorder import GPU, Memory, keep
from tests.unit.test_step_rows import of_steps, stepped
from tests.unit.test_whole_runs import NOW, ticks, trained
from tests.unit.test_whole_runs import kept as kept_record
from tests.web.conftest import on_a_port, visit
from tests.web.served import Served

HOSTILE = "<img src=x onerror=alert(1)>"
TOLD = Metadata(
    config={"lr": 3e-4, HOSTILE: HOSTILE, "empty": "", "warmup": None},
    program={"script": "train.py", "commit": "0123456789abcdef", "dirty": True},
    notes=(Note(1_790_000_000_000_000_000, "<script>alert(1)</script>"),),
    tags=("baseline",),
)


class Recorded:
    """A run in a ledger of its own, as the pages get it."""

    def __init__(self, directory: Path, seen: list[Any], about: Metadata | None = None) -> None:
        ledger = Memory()
        keep(ledger, seen)
        self.record = kept_record(ledger, directory)
        self.path = str(directory / "state" / "ledger.sqlite")
        self.id = self.record.run.id
        if about is not None:
            connection = open_to_write(self.path, LEDGER_FILE, shared=False, uid=os.getuid(), log=pytest.fail)
            batch = Batch()
            batch.add(_about_rows(self.id, 0, about))
            assert not write_batch(connection, batch)
            connection.close()

    def page(self) -> StoredValues:
        found, _ = run_document([self.path], self.id, "", None, None, NOW, None)
        assert found is not None
        return kept({"run": None, **found, "id": self.id, "now": NOW})


def by_steps(directory: Path, about: Metadata | None = None) -> Recorded:
    """300 steps with six evaluations."""
    boundaries, end = stepped(300, 0.2, evaluate=50)
    planned = of_steps(300, 0.2)._replace(facts=RunFacts(planned_steps=300.0))
    return Recorded(directory, ticks(math.ceil(end) + 3, boundaries, planned), about)


def test_a_run_without_epochs_has_rows_of_its_steps_and_one_of_all_of_it(tmp_path: Path) -> None:
    run = by_steps(tmp_path)
    found = run.page()
    rows = found.values["epochs"]
    assert [row["epoch"] for row in rows] == [
        *(f"{first}–{first + 9}" for first in range(1, 300, 10)), "· evaluate ×6", "Whole run",
    ]  # fmt: skip
    assert [row["ordinal"] for row in rows] == sorted(row["ordinal"] for row in rows)
    assert found.totals["epochs"] == len(rows)
    told = run_json.run_document(run.record, NOW)
    assert rows[-1]["energy"] == pytest.approx(told["total"]["energy"], rel=1e-3)
    assert rows[-1]["seconds"] == pytest.approx(told["total"]["seconds"], rel=1e-3)
    assert [row["energy"] for row in rows[:30]] == pytest.approx([row["energy"] for row in told["steps"]], rel=1e-3)
    assert (rows[0]["steps"], rows[0]["steps_per_second"]) == (10, "5.00")
    assert (rows[4]["beside"], rows[5]["beside"]) == (0.0, pytest.approx(0.5))
    values = found.values
    assert (values["epochs_title"], values["epoch_column"], values["logged_names"]) == ("Steps", "Steps", ["loss"])
    assert (values["epoch_is"], values["epoch"]) == ("Steps done", "300 of 300")
    assert (values["mean_is"], values["mean"]) == ("Steps per second", "5.00")
    assert not values["stepless"]
    assert values["csv"]["href"].startswith("api/run.csv?id=")


def test_a_command_has_one_row_and_claims_no_steps_and_no_epochs(tmp_path: Path) -> None:
    begin, *_, end = trained()
    command = run(gpus=(GPU,), started=(TIME + SECOND) / SECOND, epoch=-1, epochs=0, step=0)
    found = Recorded(tmp_path, ticks(24, [begin, end._replace(step=0, number=2)], command)).page()
    (row,) = found.values["epochs"]
    assert (row["epoch"], row["steps"], row["steps_per_second"]) == ("Whole run", None, "–")
    assert not found.values["has_steps"]
    assert row["energy"] > 0
    assert (row["beside"], row["wait"]) == (None, None)
    assert (found.values["epochs_title"], found.values["epoch_column"]) == ("Whole run", "Part")
    assert found.values["stepless"], "of nothing that it did not count is a headline"


def test_what_lies_between_epochs_stands_with_its_phases_above_them(tmp_path: Path) -> None:
    run = Recorded(tmp_path, ticks(24, trained()))
    rows = run.page().values["epochs"]
    newest_first = [row["epoch"] for row in sorted(rows, key=lambda row: -row["ordinal"])]
    assert newest_first[:2] == ["Whole run", "Between epochs"]
    assert newest_first[-2:] == ["1", "0"]
    assert {"· evaluate ×2", "· checkpoint"} <= set(newest_first)
    told = run_json.run_document(run.record, NOW)
    energy = {row["epoch"]: row["energy"] for row in rows}
    assert energy["Between epochs"] == pytest.approx(told["between"]["energy"], rel=1e-3)
    assert energy["0"] + energy["1"] + energy["Between epochs"] == pytest.approx(energy["Whole run"], rel=0.005)
    assert [row["key"] for row in rest({"run": run_json.run_to_json(run.record.run, NOW), **all_rows(run.record)})
            .values["epochs"]] == [row["key"] for row in rows]  # fmt: skip


def test_a_run_of_a_ledger_that_knows_nothing_beside_epochs_has_only_these(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        training(book, "net-1a2b", 3)
        found, _ = run_document([str(book.path)], "net-1a2b", "", None, None, BEGAN + 1000, None)
    assert found is not None
    values = kept({"run": None, **found, "id": "net-1a2b", "now": BEGAN + 1000}).values
    assert [row["epoch"] for row in values["epochs"]] == ["0", "1", "2"]
    assert (values["epochs_title"], values["mean_is"], values["has_about"]) == ("Epochs", "Epoch time", False)


def test_a_plan_of_steps_shows_where_one_of_epochs_does() -> None:
    working = of_steps(140, 0.2)._replace(
        facts=RunFacts(planned_steps=300.0), started=TIME / 1e9 - 70, updated=TIME / 1e9 + 99
    )
    served = Served([tick(100, [sample(0)], runs=[working])])
    known = served.known()
    values = live(known, {"id": working.id})
    assert (values["epoch_is"], values["epoch"]) == ("Step", "140 of 300")
    assert values["left"] == pytest.approx(160 * 169 / 140, rel=0.1)
    (told,) = known.runs.values()
    written = json.dumps(holder_lines(known.gpus[0], [told], known.time))
    assert "step 140 of 300" in written
    assert "3 min left" in written
    row = {"epochs_done": 0, "epochs_planned": None, "user": "ann"}
    assert "step 140 of 300" in json.dumps(runs_page.progress_line(row, told, is_running=True))
    assert runs_page.progress_line(row, {}, is_running=False)["line"][0]["text"] == "–", (
        "it has no epochs, and not 0 of them"
    )
    ended = {"id": "net-1a2b", "name": "net", "state": "finished", "started": 1.0, "framework": "", "gpus": 0}
    for done, sorted_by, told in ((0, 0, "0/40"), (None, None, "–")):
        cells = {**row, **ended, "epochs_planned": 40, "epochs_done": done, "epoch": told}
        of_plan = runs_page.row(cells, is_kept=True)
        assert of_plan["epochs_done"] == sorted_by, "not 0 where nobody saw its epochs"
        assert of_plan["epochs"][0]["line"][0]["text"] == told
    without = runs_page.row({**row, **ended}, is_kept=True)
    assert without["gpus"] is None, "no GPU of it is known, and not that it had none"


def test_a_run_that_has_not_begun_its_epochs_is_at_no_step() -> None:
    waiting = run(epoch=-1, epochs=9, step=0)
    served = Served([tick(100, [sample(0)], runs=[waiting])])
    values = live(served.known(), {"id": waiting.id})
    assert (values["epoch_is"], values["epoch"]) == ("Epoch", None)
    assert live(Now(), {"id": waiting.id})["epoch_is"] is None


def test_a_command_on_no_gpu_took_what_its_row_says_and_is_not_waiting_for_a_timeline(
    browser: Browser, tmp_path: Path
) -> None:
    begin, *_, end = trained()
    off = run(gpus=(), started=(TIME + SECOND) / SECOND, epoch=-1, epochs=0, step=0)
    past = Recorded(
        tmp_path,
        ticks(24, [begin, end._replace(step=0, number=2, monotonic_ns=begin.monotonic_ns + 2_750_000_000)], off),
    )
    with (
        on_a_port(Served([tick(1, [sample(0)])], [past.path])) as link,
        visit(browser, link) as visitor,
    ):
        page = visitor.open(f"#/run/{past.id}")
        row = page.get_by_role("table", name="Epochs").locator("tbody tr").first
        expect(row.locator("td").nth(0)).to_have_text("2.8 s")
        expect(page.get_by_role("group", name="Time left").locator(".value")).to_have_text("2.8 s")
        expect(page.get_by_text("There is no timeline of this run.")).to_be_visible()


def test_steps_parameters_and_hostile_notes_in_a_browser(browser: Browser, tmp_path: Path) -> None:
    run = by_steps(tmp_path, TOLD)
    with (
        on_a_port(Served([tick(1, [sample(0)])], [run.path])) as link,
        visit(browser, link) as visitor,
    ):
        page = visitor.open(f"#/run/{run.id}")
        table = page.get_by_role("table", name="Epochs")
        expect(table.locator("tbody tr")).to_have_count(32)
        expect(table.locator("tbody tr").first).to_contain_text("Whole run")
        expect(table.locator("thead th").first).to_have_text("Steps")
        card = page.get_by_role("region", name="Config and notes")
        expect(card).to_contain_text(f"{HOSTILE} {HOSTILE}")
        expect(card).to_contain_text("lr 0.0003")
        expect(card).to_contain_text('empty ""')
        expect(card).to_contain_text("commit 0123456789, with uncommitted changes")
        expect(card).to_contain_text("<script>alert(1)</script>, ")
        assert page.locator("#page-run img, #page-run script").count() == 0
        page.set_viewport_size({"width": 390, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
