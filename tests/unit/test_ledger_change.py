"""Changes of runs by people: who may make them, and what becomes of the rest."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.cli import main
from gpumon.common.errors import GpumonError, UsageError
from gpumon.model.frame import RunState
from gpumon.storage.ledger import change
from gpumon.storage.ledger.change import LedgerChange, user_name
from gpumon.storage.ledger.reader import Ledger
from gpumon.storage.ledger.records import RunRow
from gpumon.storage.ledger.schema import VERSION
from tests.runs import BEGAN, HOSTILE, Book, training

ME = 4711
"""A user of whom this machine knows no name."""
NOW = BEGAN + 86400.0


@pytest.fixture
def book(tmp_path: Path) -> Book:
    made = Book(tmp_path)
    training(made, "mine-1", user=str(ME))
    training(made, "mine-2", user=str(ME), began=BEGAN + 100)
    training(made, "theirs-1", user="alice")
    return made


@pytest.fixture
def mine(book: Book) -> Iterator[LedgerChange]:
    with LedgerChange(str(book.path), ME) as made:
        yield made


def row(book: Book, run_id: str) -> RunRow:
    with Ledger(str(book.path)) as ledger:
        return ledger.record(run_id).run


def count(book: Book, table: str) -> int:
    (found,) = book.db.execute(f"SELECT count(*) FROM {table}").fetchone()
    return int(found)


def test_a_run_has_another_name_and_keeps_its_id(book: Book, mine: LedgerChange) -> None:
    mine.rename(row(book, "mine-1"), "  a better \x1b name ")
    assert row(book, "mine-1").name == "a better \\x1b name"


@pytest.mark.parametrize("name", ["", "   ", "x" * 97])
def test_a_name_that_is_none_is_refused_and_the_old_one_stays(book: Book, mine: LedgerChange, name: str) -> None:
    with pytest.raises(UsageError):
        mine.rename(row(book, "mine-1"), name)
    assert row(book, "mine-1").name == "mine"


def test_notes_have_their_author(book: Book, mine: LedgerChange) -> None:
    mine.note(row(book, "mine-1"), f"tried {HOSTILE}", 5)
    mine.note(row(book, "mine-1"), "again", 6)
    with Ledger(str(book.path)) as ledger:
        notes = ledger.record("mine-1").about.notes
    assert [note.author for note in notes] == [str(ME)] * 2
    assert "\x1b" not in notes[0].text
    with pytest.raises(UsageError):
        mine.note(row(book, "mine-1"), "x" * 501, 7)


def test_tags_come_and_go(book: Book, mine: LedgerChange) -> None:
    run = row(book, "mine-1")
    mine.tag(run, ["good", "baseline"])
    mine.tag(run, ["good"], remove=True)
    with Ledger(str(book.path)) as ledger:
        assert ledger.summary(run).tags == ("baseline",)
    with pytest.raises(UsageError, match="its tags are baseline"):
        mine.tag(run, ["good"], remove=True)
    with pytest.raises(UsageError, match="at most"):
        mine.tag(run, [f"t{i}" for i in range(40)])
    mine.tag(run, ["good"])
    with Ledger(str(book.path)) as ledger:
        assert ledger.summary(run).tags == ("baseline", "good")


def test_a_deleted_run_leaves_nothing_and_the_others_everything(book: Book, mine: LedgerChange) -> None:
    before = count(book, "epoch"), count(book, "usage")
    mine.tag(row(book, "mine-1"), ["good"])
    mine.delete(row(book, "mine-1"), NOW, "node1")
    assert {id for (id,) in book.db.execute("SELECT id FROM run")} == {"mine-2", "theirs-1"}
    assert (count(book, "epoch") * 3, count(book, "usage") * 3) == (before[0] * 2, before[1] * 2)
    assert count(book, "tag") == 0
    assert book.db.execute("PRAGMA foreign_key_check").fetchall() == []
    assert [key for (key,) in book.db.execute("SELECT rank FROM forgotten")] == ["tag.1000.4711.mine-1"]


def test_a_run_that_goes_on_is_not_deleted(book: Book, mine: LedgerChange) -> None:
    training(book, "live-1", user=str(ME), state=RunState.RUNNING, updated=round(NOW * 1e9))
    with pytest.raises(GpumonError, match="is running"):
        mine.delete(row(book, "live-1"), NOW, "node1")
    assert row(book, "live-1")


def test_a_run_without_a_daemon_is_deleted_once_its_process_is_gone(book: Book, tmp_path: Path) -> None:
    training(book, "live-1", user=str(ME), state=RunState.RUNNING)
    (tmp_path / "proc" / "4711").mkdir(parents=True)
    with LedgerChange(str(book.path), ME, proc=str(tmp_path / "proc")) as made:
        with pytest.raises(GpumonError, match="is running"):
            made.delete(row(book, "live-1"), NOW, "node1")
        (tmp_path / "proc" / "4711").rmdir()
        made.delete(row(book, "live-1"), NOW, "node1")


def test_runs_of_others_are_left_alone_by_all_but_root(book: Book, mine: LedgerChange) -> None:
    theirs = row(book, "theirs-1")
    for attempt in (
        lambda: mine.rename(theirs, "x"), lambda: mine.note(theirs, "x", 1), lambda: mine.tag(theirs, ["x"]),
        lambda: mine.delete(theirs, NOW, "node1"),
    ):  # fmt: skip
        with pytest.raises(GpumonError, match="belongs to alice"):
            attempt()
    with LedgerChange(str(book.path), 0) as root:
        root.rename(theirs, "by root")
    assert row(book, "theirs-1").name == "by root"


def test_a_ledger_of_another_user_cannot_be_changed(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(GpumonError, match=f"it belongs to {user_name(book.path.stat().st_uid)}"):
        LedgerChange(str(book.path), ME)


@pytest.mark.parametrize("version", [VERSION - 1, VERSION + 1])
def test_a_ledger_of_another_version_stays_as_it_is(tmp_path: Path, version: int) -> None:
    book = Book(tmp_path, version)
    with pytest.raises(GpumonError, match=f"has format {version}"):
        LedgerChange(str(book.path), ME)


def test_a_ledger_that_another_program_holds_is_said_to_be_locked(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change, "BUSY_TIMEOUT", 0.0)
    run = row(book, "mine-1")
    with LedgerChange(str(book.path), ME) as made:
        book.db.execute("BEGIN IMMEDIATE")
        with pytest.raises(GpumonError, match="locked"):
            made.rename(run, "x")
        book.db.execute("ROLLBACK")
        made.rename(run, "x")
    assert book.db.execute("SELECT name FROM run WHERE id = 'mine-1'").fetchone() == ("x",)


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Book:
    """A ledger of this user where the command finds it."""
    for name, place in (("GPUMON_STATE_DIR", "state"), ("GPUMON_DIR", "live")):
        (tmp_path / place).mkdir(mode=0o700)
        monkeypatch.setenv(name, str(tmp_path / place))
    book = Book(tmp_path / "state")
    user = user_name(os.geteuid())
    training(book, "net-1", user=user)
    training(book, "net-2", user=user, began=BEGAN + 100)
    training(book, "vit-1", user="alice" if os.geteuid() else user)
    return book


def test_the_commands_change_runs(state: Book, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", "tag", "net", "good"]) == 0
    assert main(["runs", "note", "net-1", "one", "line"]) == 0
    assert main(["runs", "rename", "net-1", "better"]) == 0
    assert main(["runs", "list", "--tag", "good"]) == 0
    said = capsys.readouterr()
    assert "tags of net-2: good" in said.out
    assert "renamed net-1, which was 'net'" in said.out
    assert said.out.splitlines()[-1].startswith("net-2")
    assert row(state, "net-1").name == "better"


def test_what_looks_like_a_secret_is_masked_in_a_note(state: Book, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", "note", "net-1", "resumed", "with", "token=hunter2", "on node1"]) == 0
    with Ledger(str(state.path)) as ledger:
        assert ledger.record("net-1").about.notes[0].text == "resumed with token=*** on node1"


def test_deletion_is_confirmed(
    state: Book, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y"))
    assert main(["runs", "delete", "net-1"]) == 2
    assert "--yes" in capsys.readouterr().err
    assert main(["runs", "delete", "net", "--yes"]) == 2
    assert "2 runs are named 'net': pass ids" in capsys.readouterr().err
    assert main(["runs", "delete", "net-1", "nobody", "--yes"]) == 1
    assert count(state, "run") == 3, "all or none of what was named"
    assert main(["runs", "delete", "net-1", "net-2", "--yes"]) == 0
    assert count(state, "run") == 1


@pytest.mark.parametrize(("answer", "left"), [("y", 2), ("n", 3), ("", 3)])
def test_a_person_is_asked(state: Book, monkeypatch: pytest.MonkeyPatch, answer: str, left: int) -> None:
    class Terminal:
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdin", Terminal())
    monkeypatch.setattr("builtins.input", lambda prompt: answer)
    assert main(["runs", "delete", "net-1"]) == (0 if answer == "y" else 1)
    assert count(state, "run") == left


def test_a_filter_that_is_none_is_a_usage_error(state: Book, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", "list", "--where", "lr"]) == 2
    assert "NAME=VALUE" in capsys.readouterr().err
