"""The ledger read: what comes out of a file, and what a missing, damaged or foreign one does."""

from __future__ import annotations

import math
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from gpumon.cli.daemon_lookup import why_no_runs
from gpumon.common.clock import SECOND
from gpumon.common.errors import GpumonError
from gpumon.common.paths import places
from gpumon.model.frame import Mark, RunState
from gpumon.storage.ledger.reader import NOTHING, Ledger, Ledgers, resolve_run
from gpumon.storage.ledger.row_keys import WHOLE_RUN
from gpumon.storage.ledger.schema import VERSION
from tests.runs import BEGAN, GIB, HOSTILE, Book, measured, training, uuid_of
from tests.strangers import as_nobody, foreign_directory

NOW = BEGAN + 7200.0
ROOT = Path(__file__).parents[2]


@pytest.fixture
def book(tmp_path: Path) -> Book:
    return Book(tmp_path / "state")


def test_a_run_comes_back_as_it_was_written(book: Book) -> None:
    run_id = training(book, epochs=3)
    with Ledger(str(book.path)) as ledger:
        (listed,) = ledger.runs()
        record = ledger.record(run_id)
        logged, course = ledger.traces(run_id)
    assert (listed.run.name, listed.run.user, listed.run.state) == ("resnet50", "alice", RunState.FINISHED)
    assert (listed.done, listed.gpus) == (3, 1)
    assert listed.energy == pytest.approx(500 * (listed.run.ended - listed.run.started))
    assert listed.utilization == 0.9
    (rank,) = record.ranks
    assert (rank.steps, rank.devices[0].uuid, rank.devices[0].memory_total) == (300, uuid_of(0), 80 * GIB)
    assert [epoch.epoch for epoch in record.epochs] == [0, 1, 2]
    assert record.epochs[0].begun == BEGAN
    assert record.epochs[1].metrics.keys() == {"loss", "accuracy"}
    assert {row.phase for row in record.phases} == {"train", "validate"}
    assert {row.ordinal for row in record.usage} == {WHOLE_RUN, 0, 1, 2}
    assert record.usage[0].value("power_mean") == 500.0
    assert course.points == len(course.columns["gpu.power"].mean) == 1500
    assert course.columns["gpu.power"].low[9] <= course.columns["gpu.power"].mean[9]
    assert logged.columns.keys() == {"loss", "accuracy"}


def test_what_is_null_is_not_known_and_never_zero(book: Book) -> None:
    book.run(epochs=None, resumes=None)
    key = book.rank("resnet50-1a2b")
    uuid = book.device(key, memory_total=None, power_limit=None)
    book.epoch(key, 0, ended=None, seconds=None, wait=None)
    book.usage(key, 0, uuid, utilization_from="")
    book.out_of_memory(key, asked=None, free=None)
    with Ledger(str(book.path)) as ledger:
        record = ledger.record("resnet50-1a2b")
        (listed,) = ledger.runs()
    unknown = [
        record.run.ended, record.ranks[0].wait, record.ranks[0].peak, record.devices[0].memory_total,
        record.epochs[0].ended, record.epochs[0].seconds, record.epochs[0].wait, record.marks[0].asked,
        *record.usage[0].values, listed.energy, listed.utilization,
    ]  # fmt: skip
    assert all(math.isnan(value) for value in unknown)
    assert listed.done == 0


def test_a_running_run_without_a_row_for_the_whole_is_what_its_epochs_come_to(book: Book) -> None:
    book.run()
    key = book.rank("resnet50-1a2b")
    uuid = book.device(key)
    for ordinal, (seconds, utilization) in enumerate(((10.0, 0.5), (30.0, 0.9))):
        book.epoch(key, ordinal)
        book.usage(key, ordinal, uuid, **measured(seconds, utilization))
    with Ledger(str(book.path)) as ledger:
        (listed,) = ledger.runs()
    assert listed.energy == 500 * 40
    assert listed.utilization == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("chosen", "ids"),
    [
        ({}, ["vit-3", "vit-2", "resnet50-1"]),
        ({"limit": 2}, ["vit-3", "vit-2"]),
        ({"user": "bob"}, ["vit-2"]),
        ({"name": "vi"}, ["vit-3", "vit-2"]),
        ({"running": True}, ["vit-3"]),
        ({"since": BEGAN + 150.0}, ["vit-3"]),
        ({"name": "%"}, []),
    ],
)
def test_runs_are_listed_newest_first_and_can_be_chosen(book: Book, chosen: dict[str, object], ids: list[str]) -> None:
    training(book, "resnet50-1", 1)
    training(book, "vit-2", 1, began=BEGAN + 100, user="bob")
    training(book, "vit-3", 1, began=BEGAN + 200, state=RunState.RUNNING)
    with Ledger(str(book.path)) as ledger:
        assert [listed.run.id for listed in ledger.runs(**chosen)] == ids  # type: ignore[arg-type]


def test_a_reader_sees_one_moment_while_a_daemon_writes(book: Book) -> None:
    training(book, epochs=2)
    with Ledger(str(book.path)) as ledger:
        ledger._db.execute("BEGIN")
        before = len(ledger._rows("SELECT * FROM run"))
        training(book, "vit-2", 1)
        assert len(ledger._rows("SELECT * FROM run")) == before == 1
        ledger._db.execute("ROLLBACK")
        assert len(ledger.runs()) == 2


def test_nothing_can_be_written_through_a_reader(book: Book) -> None:
    training(book, epochs=1)
    with Ledger(str(book.path)) as ledger, pytest.raises(sqlite3.OperationalError, match="readonly"):
        ledger._db.execute("DELETE FROM run")


def test_a_missing_ledger_says_how_one_comes_to_be(tmp_path: Path) -> None:
    with pytest.raises(GpumonError, match="gpumon daemon"):
        Ledger(str(tmp_path / "ledger.sqlite"))
    with Ledgers([str(tmp_path / "ledger.sqlite")]) as ledgers:
        assert not ledgers
        assert ledgers.runs() == []


def test_a_ledger_that_is_being_made_is_an_empty_one(tmp_path: Path) -> None:
    Book(tmp_path, version=0)
    with pytest.raises(GpumonError) as raised:
        Ledger(str(tmp_path / "ledger.sqlite"))
    assert str(raised.value) == NOTHING
    with Ledgers([str(tmp_path / "ledger.sqlite")]) as ledgers:
        assert not ledgers


def test_a_ledger_that_is_being_made_hides_no_other_one(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    book = Book(tmp_path)
    with Ledgers([str(tmp_path / "empty"), str(book.path)]) as ledgers:
        assert ledgers.paths == [str(book.path)]


def test_a_ledger_of_another_version_is_refused(tmp_path: Path) -> None:
    book = Book(tmp_path, version=VERSION + 1)
    with pytest.raises(GpumonError, match="has format"):
        Ledger(str(book.path))


@pytest.mark.parametrize(
    "damage", [b"not a database at all" * 100, b"\x00" * 4096, b"SQLite format 3\x00" + b"\xff" * 5000]
)
def test_a_damaged_ledger_is_one_line_that_names_it(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "ledger.sqlite"
    path.write_bytes(damage)
    with pytest.raises(GpumonError) as raised:
        Ledger(str(path))
    assert str(path) in str(raised.value) or str(raised.value) == NOTHING
    assert "\n" not in str(raised.value)


def test_a_page_that_is_damaged_later_is_one_line_too(book: Book) -> None:
    training(book, epochs=200)
    book.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    book.db.close()
    with open(book.path, "r+b") as file:
        file.seek(24 * 4096)
        file.write(b"\xa5" * 4096 * 12)
    with Ledger(str(book.path)) as ledger, pytest.raises(GpumonError, match="damaged"):
        ledger.record("resnet50-1a2b")


def test_more_columns_than_we_know_are_passed_over_and_fewer_are_not_known(book: Book) -> None:
    training(book, epochs=1)
    book.db.execute("ALTER TABLE usage ADD COLUMN tensor_active_mean REAL")
    book.db.execute("ALTER TABLE run ADD COLUMN mood TEXT")
    book.db.execute("ALTER TABLE usage DROP COLUMN capped_share")
    with Ledger(str(book.path)) as ledger:
        row = ledger.record("resnet50-1a2b").usage[0]
    assert row.value("energy") > 0
    assert math.isnan(row.value("capped_share"))


def test_cells_of_the_wrong_type_are_not_known(book: Book) -> None:
    book.run(started="yesterday", state=77, epochs="many")
    key = book.rank("resnet50-1a2b")
    book.epoch(key, 0, metrics='{"loss": "low", "x": 1e999, "y": [1], "ok": 2}')
    book.epoch(key, 1, metrics="{")
    book.epoch(key, 2, metrics="[" * 100_000)
    for ordinal, spans in enumerate(('[[1, 2], [3], "x", [-1, 2], [1, 1e999], [4, 5]]', "[[")):
        book.phase(key, ordinal, "validate", 1.0, spans=spans)
    book.add("mark", rank=key, number=1, mark=99, time=1, epoch=0, step=0)
    book.add("mark", rank=key, number=2, mark=Mark.OUT_OF_MEMORY, time=1, epoch=0, step=0)
    with Ledger(str(book.path)) as ledger:
        record = ledger.record("resnet50-1a2b")
    assert math.isnan(record.run.started)
    assert (record.run.state, record.run.epochs) == (RunState.DIED, 0)
    assert record.epochs[0].metrics == {"x": math.inf, "ok": 2.0}, "what is no number was not logged"
    assert record.epochs[1].metrics == record.epochs[2].metrics == {}
    assert [mark.number for mark in record.marks] == [2]
    assert [phase.spans for phase in record.phases] == [((1.0, 2.0), (4.0, 5.0)), ()]


@pytest.mark.parametrize(
    "cells",
    [
        {"cells": b"not packed"}, {"points": 7}, {"points": 2**40}, {"columns": "[1"}, {"columns": '{"a": 1}'},
        {"columns": '["a"' + ', "a"' * 1000 + "]"}, {"points": -1}, {"cells": None}, {"cells": b""},
    ],
)  # fmt: skip
def test_a_damaged_trace_is_left_out(book: Book, cells: dict[str, object]) -> None:
    book.run()
    key = book.rank("resnet50-1a2b")
    if cells.get("cells", b"") is None:
        book.db.execute("PRAGMA ignore_check_constraints = ON")
        cells = {"cells": "text"}
    columns = {"gpu.power": [(1.0, 2.0, 3.0)] * 5}
    book.trace(key, uuid_of(0), columns)
    name, value = next(iter(cells.items()))
    book.db.execute(f"UPDATE trace SET {name} = ?", (value,))
    with Ledger(str(book.path)) as ledger:
        assert ledger.traces("resnet50-1a2b") == []


def test_strangers_text_is_made_harmless_and_still_found(book: Book) -> None:
    book.run(HOSTILE, name=HOSTILE, user=HOSTILE, hostname=HOSTILE, framework=HOSTILE, label=HOSTILE)
    with Ledgers([str(book.path)]) as ledgers:
        (listed,) = ledgers.runs()
        ledger, run = resolve_run(ledgers, "<script>", NOW)
        assert ledger.record(run.id).run.id == run.id == listed.run.id
    assert all(text.isprintable() for text in (run.id, run.name, run.user, run.hostname, run.framework, run.label))


def test_two_ledgers_are_read_as_one_and_the_first_holds(tmp_path: Path) -> None:
    own, machine = Book(tmp_path / "own"), Book(tmp_path / "machine")
    training(own, "resnet50-1", 1, began=BEGAN)
    training(machine, "resnet50-1", 2, began=BEGAN)
    training(machine, "vit-2", 2, began=BEGAN + 100)
    with Ledgers([str(own.path), str(machine.path)]) as ledgers:
        assert [(listed.run.id, listed.done) for listed in ledgers.runs()] == [("vit-2", 2), ("resnet50-1", 1)]
        assert [listed.run.id for listed in ledgers.runs(limit=1)] == ["vit-2"]
        assert resolve_run(ledgers, "vit", NOW)[0].path == str(machine.path)


@pytest.mark.parametrize(
    ("later", "done"),
    [(8, 1), (90, 2)],
    ids=["both watched it, some ticks apart: the first holds", "the first took it up from its board"],
)
def test_a_run_that_is_over_is_that_of_the_ledger_that_watched_it(later: int, done: int, tmp_path: Path) -> None:
    """As a view that samples by itself has a run that was over before, of which a daemon's ledger has the energy."""
    own, machine = Book(tmp_path / "own"), Book(tmp_path / "machine")
    training(machine, "resnet50-1", 2, began=BEGAN)
    ((wrote,),) = machine.db.execute("SELECT updated FROM run").fetchall()
    training(own, "resnet50-1", 1, began=BEGAN, updated=wrote + later * SECOND)
    with Ledgers([str(own.path), str(machine.path)]) as ledgers:
        assert [listed.done for listed in ledgers.runs()] == [done]
        assert resolve_run(ledgers, "resnet50", NOW)[0].path == str((own, machine)[done - 1].path)
    own.db.execute("UPDATE run SET state = 0, ended = NULL")
    with Ledgers([str(own.path), str(machine.path)]) as ledgers:
        assert resolve_run(ledgers, "resnet50", NOW)[0].path == str(own.path), "it goes on there"


def test_a_ledger_in_a_directory_that_may_only_be_read_opens_without_its_writer() -> None:
    with foreign_directory() as directory:
        book = Book(directory)
        training(book, epochs=2)
        book.db.close()
        assert not os.path.exists(f"{book.path}-shm"), "no writer has it open"
        os.chmod(book.path, 0o644)
        os.chmod(directory, 0o555)
        with as_nobody(), Ledger(str(book.path)) as ledger:
            assert len(ledger.runs()) == 1
        os.chmod(directory, 0o755)


def test_a_ledger_that_may_not_be_read_says_so() -> None:
    with foreign_directory() as directory:
        book = Book(directory)
        os.chmod(book.path, 0)
        with as_nobody(), pytest.raises(GpumonError, match="no permission to read"):
            Ledgers([str(book.path)])


def test_a_state_directory_that_nobody_can_write_or_look_into_is_not_an_empty_ledger() -> None:
    with foreign_directory() as directory:
        where = places(env={"GPUMON_STATE_DIR": str(directory / "state" / "gpumon")})
        assert why_no_runs(where) == NOTHING
        (directory / "state").mkdir(mode=0o755)
        (directory / "state").chmod(0o555)
        with as_nobody():
            assert "you cannot write to" in why_no_runs(where)
        (directory / "state" / "gpumon").mkdir(mode=0o700)
        with as_nobody():
            assert "Permission denied" in why_no_runs(where)
        (directory / "state" / "gpumon").rmdir()
        (directory / "state" / "gpumon").touch()
        assert "is not a directory" in why_no_runs(where)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("resnet50-1a", "resnet50-1a"), ("resnet50-1", "resnet50-1a"), ("vit", "vit-3"), ("vi", "vit-3"),
        ("last", "vit-3"), ("-1", "vit-3"), ("only", "x-9"), ("only one", "x-9"),
    ],
)  # fmt: skip
def test_a_run_is_found_by_what_no_other_has(book: Book, wanted: str, found: str) -> None:
    training(book, "resnet50-1a", 1, began=BEGAN)
    training(book, "resnet50-2b", 1, began=BEGAN + 1)
    training(book, "x-9", 1, began=BEGAN + 2, name="only one")
    training(book, "vit-3", 1, began=BEGAN + 3)
    with Ledgers([str(book.path)]) as ledgers:
        assert resolve_run(ledgers, wanted, NOW)[1].id == found


def test_what_may_be_several_runs_lists_them_newest_first(book: Book) -> None:
    for i in range(8):
        training(book, f"resnet50-{i}", i + 1, began=BEGAN + i)
    with Ledgers([str(book.path)]) as ledgers, pytest.raises(GpumonError) as raised:
        resolve_run(ledgers, "resnet5", NOW)
    text = str(raised.value)
    assert "It matches 8 runs" in text
    assert text.index("resnet50-7 (resnet50, 1 h ago, 8 epochs)") < text.index("resnet50-6")
    assert "and 3 more" in text
    assert "\n" not in text


def test_a_name_that_several_runs_have_means_the_newest_and_says_so(book: Book) -> None:
    for i in range(3):
        training(book, f"resnet50-{i}", 1, began=BEGAN + i, name="train")
    said: list[str] = []
    with Ledgers([str(book.path)]) as ledgers:
        assert resolve_run(ledgers, "train", NOW, said.append)[1].id == "resnet50-2"
        assert said == ["3 runs are named 'train'; this is the newest, resnet50-2"]
        assert resolve_run(ledgers, "resnet50-1", NOW, said.append)[1].id == "resnet50-1"
    assert len(said) == 1


def test_an_unknown_run_lists_the_newest(book: Book) -> None:
    training(book, "resnet50-1a", 1)
    with (
        Ledgers([str(book.path)]) as ledgers,
        pytest.raises(GpumonError, match=r"no such run: 'bert'.*resnet50-1a"),
    ):
        resolve_run(ledgers, "bert", NOW)


@pytest.mark.parametrize("word", ["last", "-1"])
def test_last_is_the_newest_run_whatever_runs_are_called(book: Book, word: str) -> None:
    training(book, "last-1", 1, name=word)
    training(book, "vit-3", 1, began=BEGAN + 3)
    with Ledgers([str(book.path)]) as ledgers:
        assert resolve_run(ledgers, word, NOW)[1].id == "vit-3"
        assert resolve_run(ledgers, "last-1", NOW)[1].id == "last-1"


def test_the_reader_loads_nothing_heavy() -> None:
    modules = "gpumon.storage.ledger.reader, gpumon.storage.ledger.reader, gpumon.reports.compare, gpumon.cli.runs"
    code = f"import sys, {modules}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert "sqlite3" in loaded
    assert loaded & {"numpy", "plotly", "pyarrow", "torch", "psutil", "pynvml", "textual", "dash"} == set()
