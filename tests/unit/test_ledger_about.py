"""Particulars of runs in the ledger: parameters, the program, notes and tags; and where they show."""

from __future__ import annotations

import csv
import io
import json
import os
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gpumon.common.clock import SECOND
from gpumon.model.frame import RunState
from gpumon.model.run import Metadata, Note
from gpumon.reports import html, run_export, run_json, run_list, run_text
from gpumon.storage.ledger.reader import Ledger
from gpumon.storage.ledger.recorder import LedgerRecorder
from gpumon.storage.ledger.schema import LEDGER_FILE
from gpumon.storage.ledger.writer import Batch, LedgerRow, StoredRuns, write_batch
from gpumon.storage.sqlite.write import open_to_write
from tests.builders import TIME, run, tick
from tests.runs import BEGAN, HOSTILE, Book, training

TOLD = Metadata(
    {"lr": 0.1, "model.depth": 50, "amp": True, "resume": None, "data": "/data"},
    {"script": "train.py", "commit": "0123456789abcdef0123456789abcdef01234567", "dirty": True, "torch": "2.9.1"},
    (Note(TIME, "larger batch"),),
    ("baseline", "good"),
)


class Written:
    """A ledger file that takes what a recorder gives, at once."""

    def __init__(self, directory: Path) -> None:
        self.stored: StoredRuns | None = StoredRuns({}, set(), {})
        self.problem = ""
        self.path = str(directory / "ledger.sqlite")
        self.db = open_to_write(self.path, LEDGER_FILE, shared=False, uid=os.getuid(), log=print)

    def put(self, batch: Batch) -> None:
        assert write_batch(self.db, batch) == 0

    def close(self, timeout: float = 5.0) -> bool:
        return True

    def __del__(self) -> None:
        self.db.close()


def recorded(directory: Path, *told: dict[str, Metadata], ranks: int = 1) -> Written:
    """A ledger of one run whose processes publish this, one after the other, by their keys."""
    store = Written(directory)
    recorder = LedgerRecorder(store)
    runs = [run(f"tag.1000.4711.{rank}", rank=rank, world_size=ranks) for rank in range(ranks)]
    for second, about in enumerate(told, 1):
        recorder.add(tick(20 * second, runs=runs, about=about))
        recorder.add(tick(20 * second + 1, runs=runs, about=about))
    recorder.close()
    return store


KEY = "tag.1000.4711.0"


def test_particulars_come_back_from_the_ledger(tmp_path: Path) -> None:
    store = recorded(tmp_path, {KEY: TOLD})
    with Ledger(store.path) as ledger:
        about = ledger.record("resnet50-1a2b").about
        assert list(about.config.items()) == list(TOLD.config.items())
        assert about.program == TOLD.program
        assert [(note.time, note.text, note.author) for note in about.notes] == [(TIME / 1e9, "larger batch", "")]
        assert about.tags == ("baseline", "good")
        (listed,) = ledger.runs()
        assert listed.tags == ("baseline", "good")


def test_what_is_told_later_takes_the_place_of_what_was_told_before(tmp_path: Path) -> None:
    later = TOLD._replace(config={"lr": 0.01, "new": 1}, notes=(*TOLD.notes, Note(TIME + 1, "more")))
    store = recorded(tmp_path, {}, {KEY: TOLD}, {KEY: later})
    with Ledger(store.path) as ledger:
        about = ledger.record("resnet50-1a2b").about
    assert (about.config["lr"], about.config["new"]) == (0.01, 1)
    assert [note.text for note in about.notes] == ["larger batch", "more"]


def test_of_several_ranks_the_lowest_stands(tmp_path: Path) -> None:
    one, two = Metadata({"lr": 1, "rank": 0}), Metadata({"lr": 2, "rank": 1, "own": "x"})
    store = recorded(tmp_path, {KEY: one, "tag.1000.4711.1": two}, {KEY: one, "tag.1000.4711.1": two}, ranks=2)
    with Ledger(store.path) as ledger:
        assert ledger.record("resnet50-1a2b").about.config == {"lr": 1, "rank": 0, "own": "x"}


def test_a_tag_that_was_taken_off_does_not_come_again(tmp_path: Path) -> None:
    store = recorded(tmp_path, {KEY: TOLD})
    store.db.execute("UPDATE tag SET removed = 1 WHERE tag = 'good'")
    store.db.execute("UPDATE run SET name = 'renamed'")
    recorder = LedgerRecorder(store)
    recorder.add(tick(200, runs=[run(KEY)], about={KEY: TOLD}))
    recorder.add(tick(220, runs=[run(KEY)], about={KEY: TOLD}))
    recorder.close()
    with Ledger(store.path) as ledger:
        (listed,) = ledger.runs()
    assert listed.tags == ("baseline",)
    assert listed.run.name == "renamed"


def test_a_run_that_was_deleted_is_not_recorded_again(tmp_path: Path) -> None:
    from gpumon.storage.ledger.writer import _load_state

    store = recorded(tmp_path, {KEY: TOLD})
    store.db.execute("INSERT INTO forgotten VALUES (?, 1)", (KEY,))
    store.db.execute("DELETE FROM run")
    assert store.db.execute("SELECT count(*) FROM parameter").fetchone() == (0,)
    assert KEY in _load_state(store.db).ended


def add(book: Book, run_id: str, **config: Any) -> None:
    for place, (name, value) in enumerate(config.items()):
        book.add("parameter", run=run_id, kind=0, name=name, place=place, value=json.dumps(value), rank=0)


@pytest.fixture
def swept(tmp_path: Path) -> Book:
    """Three runs, of which two have parameters."""
    book = Book(tmp_path)
    for i, config in enumerate(({"lr": 0.1, "opt": "sgd", "amp": True, "n": 8}, {"lr": 0.01, "opt": "adam"}, {})):
        book.run(f"r-{i}", started=(BEGAN + i) * SECOND)
        add(book, f"r-{i}", **config)
    book.add("tag", run="r-0", tag="good", removed=0)
    book.add("tag", run="r-1", tag="good", removed=1)
    return book


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ([("lr", "0.1")], ["r-0"]),
        ([("lr", "1e-2")], ["r-1"]),
        ([("opt", "adam")], ["r-1"]),
        ([("amp", "true")], ["r-0"]),
        ([("n", "8")], ["r-0"]),
        ([("n", "8"), ("lr", "0.01")], []),
        ([("nothing", "8")], []),
        ([("lr", "' OR 1 --")], []),
    ],
)
def test_runs_are_found_by_their_parameters(swept: Book, where: list[tuple[str, str]], found: list[str]) -> None:
    with Ledger(str(swept.path)) as ledger:
        assert [listed.run.id for listed in ledger.runs(where=where)] == found


def test_runs_are_found_by_their_tags(swept: Book) -> None:
    with Ledger(str(swept.path)) as ledger:
        assert [listed.run.id for listed in ledger.runs(tags=["good"])] == ["r-0"]
        assert ledger.runs(tags=["good", "other"]) == []


@pytest.fixture
def shown(tmp_path: Path) -> Ledger:
    with Book(tmp_path) as book:
        training(book)
        add(book, "resnet50-1a2b", lr=0.1, name=HOSTILE)
        for place, (name, value) in enumerate(TOLD.program.items()):
            book.add("parameter", run="resnet50-1a2b", kind=1, name=name, place=place, value=json.dumps(value), rank=0)
        book.add("parameter", run="resnet50-1a2b", kind=2, name="", place=0, value="7", rank=0)
        book.add("note", run="resnet50-1a2b", time=TIME, text=f"tried {HOSTILE}", author="bob")
        book.add("tag", run="resnet50-1a2b", tag="good", removed=0)
        return Ledger(str(book.path))


def test_particulars_show_in_the_head_of_a_run(shown: Ledger) -> None:
    with closing(shown):
        text = "\n".join(run_text.lines(shown.record("resnet50-1a2b"), BEGAN + 99.0, 0))
        listed = "\n".join(run_list.lines(shown.runs(), BEGAN + 99.0, 0))
    assert "tags: good" in text
    assert "train.py  ·  commit 0123456789, with uncommitted changes  ·  torch 2.9.1" in text
    assert "config: lr 0.1" in text
    assert "7 parameters and notes were not recorded" in text
    assert "note: tried" in text
    assert "(bob, " in text
    assert "\x1b" not in text
    assert "TAGS" in listed


def test_particulars_are_in_json(shown: Ledger) -> None:
    with closing(shown):
        document = run_json.run_document(shown.record("resnet50-1a2b"), BEGAN + 99.0)
        listing = run_json.listing(shown.runs(), BEGAN + 99.0)
    told = document["run"]
    assert told["config"]["lr"] == 0.1
    assert told["program"] == TOLD.program
    assert told["tags"] == ["good"]
    assert (told["notes"][0]["author"], told["notes"][0]["time"]) == ("bob", TIME / 1e9)
    assert listing["runs"][0]["tags"] == ["good"]
    json.dumps(document, allow_nan=False)


def test_particulars_are_in_the_report_and_escaped(shown: Ledger) -> None:
    with closing(shown):
        page = html.page(shown.record("resnet50-1a2b"), shown.traces("resnet50-1a2b"), BEGAN + 99.0)
    assert "<h2>Config</h2>" in page
    assert "tags: good" in page
    assert "<script>alert(1)" not in page


def test_parameters_are_the_last_columns_of_the_table(shown: Ledger) -> None:
    with closing(shown):
        record = shown.record("resnet50-1a2b")
    rows = list(csv.DictReader(io.StringIO("".join(run_export.lines(record)))))
    assert {row["config.lr"] for row in rows} == {"0.1"}
    assert list(rows[0])[-2] == "config.lr"
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(io.BytesIO(run_export.parquet(record)))
    assert table["config.lr"].to_pylist() == [0.1] * len(rows)


def test_what_strangers_wrote_into_a_ledger_is_bounded(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        training(book)
        for i in range(3000):
            book.add("parameter", run="resnet50-1a2b", kind=i % 5, name=f"n{i}", place=i, value="[" * 9, rank=0)
        book.add("parameter", run="resnet50-1a2b", kind=0, name=b"\xff", place="x", value=b"\xff", rank=0)
        book.add("note", run="resnet50-1a2b", time="soon", text="x" * 9999, author=3)
        book.add("tag", run="resnet50-1a2b", tag="t" * 999, removed=0)
        with Ledger(str(book.path)) as ledger:
            about = ledger.record("resnet50-1a2b").about
            run_json.run_document(ledger.record("resnet50-1a2b"), 1.0)
    assert len(about.config) <= 1024
    assert max(map(len, about.tags)) <= 40
    assert len(about.notes[0].text) <= 500


def test_a_row_of_a_higher_rank_that_waits_gives_way_to_a_lower_one() -> None:
    rows = [
        LedgerRow("parameter", {"run": "r", "kind": 0, "name": "lr", "place": 0, "value": str(rank), "rank": rank})
        for rank in (1, 0, 2)
    ]
    first, second = Batch(), Batch()
    first.add(rows[:2])
    second.add(rows[2:])
    assert [row.values["value"] for row in first.extend(second).rows.values()] == ["0"]


def test_states_are_unaffected(tmp_path: Path) -> None:
    store = recorded(tmp_path, {KEY: TOLD})
    with Ledger(store.path) as ledger:
        assert ledger.runs()[0].run.state is RunState.RUNNING
