"""Ledgers of earlier versions: they are read as they are, and a new daemon brings them to its version.

`tests/ledgers/version-N.gz` is a ledger as the last gpumon with version N wrote it, from ticks 1 to 60 of
`tests.builders`, one a second. `net-done` had GPU 0 (utilization 0.5, 400 W) from second 3 to 40 and three epochs of
9.5 s, the first at second 5, each with 8 s of training, then validation; it waited 0.5 s in each of both, logged a loss
of 1, 1/2 and 1/3, and a norm that was NaN in the second epoch, in which it ran out of memory. `vit-open` had GPU 1
(0.25, 100 W) from second 20 on, one epoch from 25 to 45, and was in its second when the daemon ended.
"""

from __future__ import annotations

import gzip
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gpumon.common.clock import SECOND
from gpumon.reports.run_json import whole
from gpumon.storage.ledger.change import LedgerChange
from gpumon.storage.ledger.migrations import LEDGER_FILE, VERSION
from gpumon.storage.ledger.reader import Ledger
from gpumon.storage.sqlite.write import open_to_write
from tests.builders import TIME

LEDGERS = Path(__file__).parents[1] / "ledgers"
RELEASED = (3,)
NOW = TIME / SECOND + 60
OPEN = "tag.1000.4712.open"


@pytest.fixture(params=RELEASED)
def path(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    found = tmp_path / "state" / "ledger.sqlite"
    found.parent.mkdir(mode=0o700)
    found.write_bytes(gzip.decompress((LEDGERS / f"version-{request.param}.gz").read_bytes()))
    return found


def migrate(path: Path) -> None:
    """Open it as a daemon of today does."""
    open_to_write(str(path), LEDGER_FILE, shared=False, uid=os.getuid(), log=print).close()


def content(path: Path, columns: dict[str, list[str]] | None = None) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """All rows of all tables, in the given columns or those that there are."""
    with closing(sqlite3.connect(path)) as db:
        if columns is None:
            tables = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
            columns = {
                table: [name for (name,) in db.execute("SELECT name FROM pragma_table_info(?)", (table,))]
                for table in tables
            }
        return {
            table: sorted(db.execute(f"SELECT {', '.join(names)} FROM {table}").fetchall(), key=repr)
            for table, names in columns.items()
        }, columns


def assert_is_as_it_was_written(path: Path) -> None:
    with Ledger(str(path)) as ledger:
        assert [(listed.run.id, listed.done) for listed in ledger.runs()] == [("vit-open", 1), ("net-done", 3)]
        done = whole(ledger.record("net-done"), NOW)
        going_on = whole(ledger.record("vit-open"), NOW)
        traces = ledger.traces("net-done")
    assert done["run"]["state"] == "finished"
    assert (done["run"]["config"], done["run"]["tags"], done["run"]["notes"]) == ({}, [], [])
    assert (done["total"]["energy"], done["total"]["steps"]) == (14000.0, 300)
    epochs = done["epochs"]
    assert [(epoch["seconds"], epoch["steps"], epoch["wait"]) for epoch in epochs] == [(9.5, 100, 1.0)] * 3
    assert [epoch["energy"] for epoch in epochs] == pytest.approx([3800.0] * 3)
    assert [epoch["metrics"]["loss"] for epoch in epochs] == [1.0, 1 / 2, 1 / 3]
    assert [epoch["metrics"]["norm"] for epoch in epochs] == [2.0, "NaN", 2.0]
    assert [(p["phase"], p["seconds"]) for p in epochs[0]["phases"]] == [("train", 8.0), ("validate", 1.5)]
    assert [mark["mark"] for mark in done["marks"]] == ["out_of_memory"]
    assert traces
    assert going_on["run"]["state"] == "running"
    assert next(epoch["energy"] for epoch in going_on["epochs"]) == pytest.approx(2000.0)


def test_a_ledger_of_an_earlier_version_is_read_as_it_is(path: Path) -> None:
    before = path.read_bytes()
    assert_is_as_it_was_written(path)
    assert path.read_bytes() == before


def test_a_ledger_that_is_brought_to_this_version_has_lost_nothing(path: Path) -> None:
    before, columns = content(path)
    migrate(path)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (VERSION,)
        assert db.execute("PRAGMA foreign_key_check").fetchall() == []
    assert content(path, columns)[0] == before
    assert_is_as_it_was_written(path)


def test_runs_of_an_earlier_version_are_tagged_and_annotated_once_it_is_of_this_one(path: Path) -> None:
    migrate(path)
    with Ledger(str(path)) as ledger, LedgerChange(str(path), 0) as change:
        run_row = ledger.record("net-done").run
        change.tag(run_row, ["good"])
        change.note(run_row, "kept", 1)
        assert ledger.record("net-done").about.tags == ("good",)
        assert len(ledger.runs(tags=["good"])) == 1
