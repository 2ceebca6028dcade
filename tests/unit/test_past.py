"""The ledger from Python: runs, epochs and usage, in scripts and in notebooks."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import gpumon
from gpumon.common.errors import GpumonError, MissingPackage, UsageError
from gpumon.model.frame import RunState
from gpumon.storage.ledger.api import PastLedger, open_ledger
from gpumon.storage.ledger.dataframe import ROWS_SHOWN
from tests.builders import TIME
from tests.conftest import ROOT
from tests.runs import BEGAN, HOSTILE, Book, training


@pytest.fixture
def book(tmp_path: Path) -> Book:
    made = Book(tmp_path)
    training(made, "net-1", 4, gpus=2)
    training(made, "net-2", 3, began=BEGAN + 1000)
    training(made, "vit-1", 2, began=BEGAN + 2000, state=RunState.FAILED, name=HOSTILE)
    for run, lr in (("net-1", 0.1), ("net-2", "warm")):
        made.add("parameter", run=run, kind=0, name="lr", place=0, value=json.dumps(lr), rank=0)
        made.add("parameter", run=run, kind=1, name="commit", place=0, value='"abc"', rank=0)
    made.add("parameter", run="net-1", kind=0, name=HOSTILE, place=1, value=json.dumps(HOSTILE), rank=0)
    made.add("tag", run="net-1", tag="good", removed=0)
    made.add("note", run="net-1", time=TIME, text="tried", author="")
    return made


@pytest.fixture
def ledger(book: Book) -> Iterator[PastLedger]:
    with PastLedger([str(book.path)]) as opened:
        yield opened


def test_runs_come_newest_first(ledger: PastLedger) -> None:
    runs = ledger.runs()
    assert [run.id for run in runs] == ["vit-1", "net-2", "net-1"]
    run = runs[2]
    assert (run.state, run.epochs_planned, run.epochs_done, run.gpus, run.tags) == ("finished", 4, 4, 2, ("good",))
    assert run.started == BEGAN
    assert run.ended - run.started == pytest.approx(run.seconds)
    assert run.energy > 0
    assert (run.config["lr"], run.program, run.notes[0].text) == (0.1, {"commit": "abc"}, "tried")


def test_how_many_epochs_ended_is_none_where_nobody_saw_them(book: Book) -> None:
    book.rank(book.run("late-1", epochs=40), steps=2016)
    with PastLedger([str(book.path)]) as opened:
        done = {run.id: run.epochs_done for run in opened.runs()}
    assert done == {"net-1": 4, "net-2": 3, "vit-1": 2, "late-1": None}


def test_runs_are_chosen(ledger: PastLedger) -> None:
    assert [run.id for run in ledger.runs(tag="good")] == ["net-1"]
    assert [run.id for run in ledger.runs(where={"lr": 0.1})] == ["net-1"]
    assert [run.id for run in ledger.runs(where={"lr": "warm"}, tag=[])] == ["net-2"]
    assert [run.id for run in ledger.runs(name="net", limit=1)] == ["net-2"]
    assert [run.id for run in ledger.runs(since=BEGAN + 1500)] == ["vit-1"]
    assert list(ledger.runs(running=True)) == []


@pytest.mark.parametrize(
    "given",
    [
        {"limit": -1}, {"limit": "3"}, {"where": "lr"}, {"where": {1: 2}}, {"where": [("lr", 1)]}, {"tag": 7},
        {"tag": [7]}, {"name": None}, {"user": 0}, {"since": "yesterday"},
    ],
)  # fmt: skip
def test_what_chooses_no_runs_is_one_line_of_what_to_give(ledger: PastLedger, given: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"^\w+=.*: give .*$") as told:
        ledger.runs(**given)
    assert "\n" not in str(told.value)
    with pytest.raises(UsageError, match=r"^run=7: give an id"):
        ledger.run(7)  # type: ignore[arg-type]


def test_one_run_is_found_as_the_command_finds_it(ledger: PastLedger) -> None:
    assert ledger.run().id == "vit-1"
    assert ledger.run("net").id == "net-2"
    with pytest.raises(GpumonError, match="no such run"):
        ledger.run("nothing")


def test_epochs_are_joined_over_ranks(ledger: PastLedger) -> None:
    run = ledger.run("net-1")
    assert [epoch.epoch for epoch in run.epochs] == [0, 1, 2, 3]
    first = run.epochs[0]
    assert (first.run, first.ordinal) == ("net-1", 0)
    assert first.usage["energy"] == pytest.approx(2 * 500 * first.seconds)
    assert set(first.metrics) == {"loss", "accuracy"}
    assert first.steps_per_second > 0
    assert run.total.usage["energy"] == pytest.approx(sum(epoch.usage["energy"] for epoch in run.epochs))
    assert len(run.epochs[1:]) == 3


def test_usage_is_of_each_rank_device_and_phase(ledger: PastLedger) -> None:
    usage = ledger.run("net-1").usage
    assert {row.rank for row in usage} == {0, 1}
    assert {row.phase for row in usage} == {"", "train", "validate"}
    assert {row.ordinal for row in usage} >= {-1, 0, 3}
    assert len({row.device for row in usage}) == 2


def test_epochs_become_a_frame_of_pandas(ledger: PastLedger) -> None:
    pandas = pytest.importorskip("pandas")
    found = ledger.run("net-1").epochs.to_pandas()
    assert found.shape[0] == 4
    assert found["begun"].iloc[0] == pandas.Timestamp(datetime.fromtimestamp(BEGAN, UTC))
    assert found["utilization_mean"].between(0.7, 1).all()
    assert "logged.loss" in found
    assert "metrics" not in found


def test_runs_become_a_frame_of_pandas_with_their_parameters(ledger: PastLedger) -> None:
    pytest.importorskip("pandas")
    found = ledger.runs().to_pandas().set_index("id")
    assert found.loc["net-1", "config.lr"] == "0.1", "texts, where one of them is a text"
    assert found.loc["net-1", "tags"] == "good"
    assert list(found.index) == ["vit-1", "net-2", "net-1"]
    assert not [name for name in found.columns if "_ledger" in name]


def test_a_frame_of_runs_can_be_ranked_by_steps_wait_and_what_was_logged_last(ledger: PastLedger, book: Book) -> None:
    pytest.importorskip("pandas")
    book.db.execute("""UPDATE rank SET metrics = '{"loss": 0.5}'""")
    found = ledger.runs().to_pandas().set_index("id")
    for run in ledger.runs():
        total = run.total
        assert total.steps
        assert found.loc[run.id, "steps"] == total.steps
        assert found.loc[run.id, "wait_share"] == pytest.approx(total.wait_share, nan_ok=True)
        assert found.loc[run.id, "logged.loss"] == 0.5


def test_rows_of_steps_say_where_they_begin_and_have_no_number_of_an_epoch(ledger: PastLedger, book: Book) -> None:
    pytest.importorskip("pandas")
    key = book.rank(book.run("pretrain-1"), steps=20)
    for place in (0, 1):
        book.add(
            "step_row", rank=key, ordinal=place, first_step=10 * place, steps=10, begun=round(BEGAN * 1e9),
            ended=round(BEGAN * 1e9), seconds=2.0, metrics="{}",
        )  # fmt: skip
    found = ledger.run("pretrain-1").steps.to_pandas()
    assert list(found["first_step"]) == [0, 10]
    assert list(found["steps"]) == [10, 10]
    assert not {"epoch", "ordinal"} & set(found.columns)


def test_tables_become_frames_of_polars(ledger: PastLedger, book: Book) -> None:
    polars = pytest.importorskip("polars")
    book.db.execute("UPDATE usage SET energy = NULL WHERE ordinal = 0 AND phase = ''")
    found = ledger.run("net-1").epochs.to_polars()
    assert found.schema["begun"] == polars.Datetime("us", "UTC")
    assert found["energy"][0] is None
    assert found["energy"][1] > 0
    assert ledger.runs().to_polars().shape[0] == 3
    assert ledger.runs().epochs.to_polars().shape[0] == 9
    assert ledger.run("net-1").usage.to_polars().shape[0] == 26


def test_an_empty_table_keeps_its_columns(ledger: PastLedger) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("polars")
    none = ledger.runs(name="nobody")
    assert list(none.to_pandas().columns)[:2] == ["id", "name"]
    assert none.to_polars().shape[0] == 0
    assert none.epochs.to_pandas().empty
    assert "<table>" in none._repr_html_()


def test_what_is_not_known_is_nan(ledger: PastLedger, book: Book) -> None:
    book.db.execute("UPDATE usage SET energy = NULL")
    assert math.isnan(ledger.run("net-1").epochs[0].usage["energy"])


@pytest.mark.parametrize(("package", "method"), [("pandas", "to_pandas"), ("polars", "to_polars")])
def test_a_package_that_is_absent_is_named_in_one_line(
    ledger: PastLedger, monkeypatch: pytest.MonkeyPatch, package: str, method: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingPackage) as raised:
        getattr(ledger.runs(), method)()
    assert (
        str(raised.value) == f"{method} requires {package}: install it with '{sys.executable} -m pip install {package}'"
    )


def test_everything_shows_itself_in_notebooks_without_harm(ledger: PastLedger) -> None:
    run = ledger.run("net-1")
    shown = [
        ledger._repr_html_(), ledger.runs()._repr_html_(), run._repr_html_(), run.epochs._repr_html_(),
        run.epochs[0]._repr_html_(), run.usage._repr_html_(), run.usage[0]._repr_html_(),
    ]  # fmt: skip
    for html in shown:
        assert html.startswith("<table>")
        assert "<script>" not in html
        assert "\x1b" not in html
    assert "&lt;script&gt;" in shown[0]
    assert "config.lr" in shown[2]


def test_a_long_table_says_how_much_of_it_is_shown(ledger: PastLedger, book: Book) -> None:
    training(book, "long-1", 200, began=BEGAN + 9000)
    html = ledger.run("long-1").epochs._repr_html_()
    assert f"the first {ROWS_SHOWN} of 200 rows" in html
    assert html.count("<tr>") == ROWS_SHOWN + 1


def test_a_run_that_goes_on_shows_itself(tmp_path: Path) -> None:
    with gpumon.run(HOSTILE, directory=str(tmp_path / "live"), env={}) as run:
        run.step(3)
        assert "step 3" in repr(run)
        assert "<script>" not in run._repr_html_()


def test_the_package_of_the_ledger_is_what_opens_it(book: Book) -> None:
    ask = (
        "import gpumon, gpumon.storage.ledger.reader\n"
        "with gpumon.ledger() as ledger: print(len(ledger.runs()))\n"
        "print(gpumon.ledger(state_dir='/nowhere') if 0 else len(gpumon.ledger().runs(tag='good')))"
    )
    env = {**os.environ, "GPUMON_STATE_DIR": str(book.path.parent), "GPUMON_DIR": str(book.path.parent)}
    done = subprocess.run([sys.executable, "-c", ask], cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["3", "1"]


def test_where_no_run_was_recorded_it_says_how_to_begin(tmp_path: Path) -> None:
    with pytest.raises(GpumonError, match="no runs recorded yet"):
        PastLedger([str(tmp_path / "nothing")])


def test_a_ledger_whose_directory_cannot_be_looked_into_is_not_said_to_be_empty(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(GpumonError, match=r"runs are not recorded: .*file is not a directory"):
        open_ledger(str(tmp_path), str(tmp_path / "file"))
    with pytest.raises(GpumonError, match="no runs recorded yet"):
        open_ledger(str(tmp_path), str(tmp_path / "state"))


def test_a_live_directory_that_was_named_and_is_missing_is_said_to_be_so(tmp_path: Path) -> None:
    with pytest.raises(GpumonError, match="missing does not exist"):
        open_ledger(str(tmp_path / "missing"), str(tmp_path / "state"))


def test_import_gpumon_loads_neither_the_ledger_nor_sqlite() -> None:
    ask = "import gpumon, sys; gpumon.run; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", ask], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert (
        loaded & {"sqlite3", "gpumon.storage.ledger", "dataclasses", "subprocess", "gpumon.tracking.secrets"} == set()
    )
    assert "gpumon.tracking.metadata" in loaded


def test_the_ledger_from_python_loads_no_table_package(book: Book) -> None:
    ask = f"import gpumon, sys; gpumon.ledger('{book.path.parent}', '{book.path.parent}').runs(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", ask], cwd=ROOT, capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) & {"pandas", "polars", "numpy"} == set()


def test_a_ledger_that_was_closed_is_not_called_damaged(book: Book) -> None:
    with PastLedger([str(book.path)]) as ledger:
        run = ledger.run("net-1")
    with pytest.raises(GpumonError, match=r"^cannot read .*closed"):
        len(run.epochs)


def test_what_has_no_rows_says_so_in_a_notebook(ledger: PastLedger) -> None:
    assert ledger.run("net-1").steps._repr_html_().endswith("<p>no rows</p>")
