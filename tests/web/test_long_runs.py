"""Pages of runs of thousands of epochs: the same numbers as those of a short one, and no more work for more epochs."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from gpumon.model.frame import RunState
from gpumon.storage.ledger import reader
from gpumon.storage.ledger.decode import ResultColumns
from gpumon.storage.ledger.reader import Ledger
from gpumon_web.pages.run import kept, rest
from gpumon_web.stored import comparison, run_page
from gpumon_web.stored.run_list import run_list_document
from gpumon_web.stored.run_page import all_rows, read_epochs, run_document
from gpumon_web.stored.run_zoom import _read
from tests.instructions import instructions
from tests.runs import BEGAN, Book, training

NOW = BEGAN + 10**6
FEW, MANY = 4000, 8000


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    """Ledgers with two runs of so many epochs."""
    found = {}
    for epochs in (FEW, MANY):
        with Book(tmp_path_factory.mktemp(str(epochs))) as book:
            book.db.execute("PRAGMA synchronous = OFF")
            for run in ("net-1", "net-2"):
                training(book, run, epochs, course=False, phases=False)
            book.db.execute("UPDATE usage SET idle_share = 0.7 WHERE ordinal IN (77, 1500, 1501)")
            found[epochs] = str(book.path)
    return found


def document(path: str, run: str = "net-1") -> dict[str, Any]:
    found, _ = run_document([path], run, "", None, None, NOW, None)
    assert found is not None
    return found


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of rows of tables that were decoded."""
    sizes: list[int] = []

    class Counted(ResultColumns):
        def __init__(self, *of: Any) -> None:
            super().__init__(*of)
            sizes.append(self.size)

    monkeypatch.setattr(reader, "ResultColumns", Counted)
    return sizes


PAGES: dict[str, Callable[[str], object]] = {
    "run": document,
    "rows": lambda path: told_rows(path),
    "compared": lambda path: comparison.comparison_document([path], "net-1,net-2", "", NOW),
}


def told_rows(path: str) -> dict[str, Any]:
    with Ledger(path) as ledger:
        read = read_epochs(ledger, "net-1")
        return {"run": {"id": "net-1", "state": "finished", "user": ""}, **all_rows(read.record, None, read.long)}


@pytest.mark.parametrize("page", PAGES)
def test_twice_the_epochs_are_no_more_work(page: str, paths: dict[int, str], decoded: list[int]) -> None:
    """What reads each epoch is SQLite alone, and adds it up."""
    work = []
    for epochs in (FEW, MANY):
        decoded.clear()
        PAGES[page](paths[epochs])
        rows = sum(decoded)
        assert rows < 2 * MANY / 2
        work.append((rows, instructions(lambda epochs=epochs: PAGES[page](paths[epochs]))))  # type: ignore[misc]
    (few, first), (many, second) = work
    assert many <= 1.1 * few
    assert second < 1.3 * first, work


def test_a_part_of_a_long_run_has_its_epochs_alone(paths: dict[int, str], decoded: list[int]) -> None:
    with Ledger(paths[MANY]) as ledger:
        read = _read(ledger, "net-1", BEGAN + 30_000, BEGAN + 32_000)
    assert read.long is None
    assert 190 < len(read.epochs) < 210
    assert all(one.ended > BEGAN + 30_000 and one.begun < BEGAN + 32_000 for one in read.epochs)
    assert sum(decoded) < 500


def test_numbers_are_those_of_all_epochs_and_what_is_left_out_is_said(
    paths: dict[int, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = document(paths[FEW])
    with monkeypatch.context() as patched:
        patched.setattr(run_page, "LONG", FEW)
        whole = document(paths[FEW])
    for one in whole["odd"]:
        one["of"] = None  # not counted in a long run
    for name in ("run", "total", "odd", "findings", "summary", "ranks", "marks", "epochs_total"):
        assert found[name] == whole[name], name
    values, of_all = (kept({**one, "id": "net-1", "now": NOW}) for one in (found, whole))
    rows = {one["key"]: one for one in values.values["epochs"]}
    assert {"77", "1500", "1501"} <= rows.keys()
    alone = {one["key"]: one for one in of_all.values["epochs"]}
    assert all(row == alone[key] for key, row in rows.items())
    folds = values.values["folds"]
    assert folds == of_all.values["folds"][-len(folds) :]
    folded = sum(one["count"] for one in folds)
    parts = [key for key in rows if key.startswith("part")]
    assert found["omitted"] == FEW - (len(rows) - len(parts)) - folded > FEW / 2
    assert whole["omitted"] == 0
    assert f"{found['omitted']:,} earlier epochs are left out" in values.values["folded"]
    assert values.totals["epochs"] == len(rows) + folded
    assert len(rest(told_rows(paths[FEW])).values["epochs"]) == values.totals["epochs"]


def test_a_chart_has_all_of_the_time_and_says_that_it_has_the_values_of_some_epochs(paths: dict[int, str]) -> None:
    chart = document(paths[MANY])["chart"]
    bands = chart["runs"][0]["bands"]
    assert len(bands) <= 1001
    assert (bands[0][2], bands[-1][4]) == (0, MANY - 1)
    assert all(one[4] + 1 == other[2] for one, other in pairwise(bands))
    assert [band[2] for band in bands if band[3]] == [70, 1500]
    assert f"of {MANY:,} values at the end of epochs" in chart["cut"]


def test_of_too_many_epochs_that_need_a_look_the_count_is_a_bound(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        book.db.execute("PRAGMA synchronous = OFF")
        training(book, "net-1", 2100, course=False, phases=False)
        book.db.execute("UPDATE usage SET idle_share = 0.7 WHERE ordinal >= 0 AND ordinal % 2 = 0")
    found = document(str(book.path))
    (said,) = (
        one["text"] for one in kept({**found, "id": "net-1", "now": NOW}).values["noted"] if "poch" in one["text"]
    )
    assert f"at least {run_page.SUSPECTS} epochs" in said


def test_a_list_reads_no_run_again_that_is_settled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Book(tmp_path) as book:
        for place in range(5):
            training(book, f"net-{place}", 2, course=False)
        training(book, "on-1", 2, course=False, state=RunState.RUNNING)
        read: list[str] = []
        plain = Ledger._summary
        monkeypatch.setattr(Ledger, "_summary", lambda self, run: read.append(run.id) or plain(self, run))
        paths = [str(book.path)]
        first, _ = run_list_document(paths, {}, NOW, None)
        assert len(read) == 6
        read.clear()
        book.add("tag", run="net-3", tag="best", removed=0)
        second, _ = run_list_document(paths, {}, NOW, None)
        assert read == ["on-1"]
        assert first is not None
        assert second is not None
        tags = {run["id"]: list(run["tags"]) for run in second["runs"]}
        assert tags.pop("net-3") == ["best"]
        assert [{**one, "tags": ()} for one in second["runs"]] == [{**one, "tags": ()} for one in first["runs"]]
        book.db.execute("UPDATE run SET name = 'other' WHERE id = 'net-2'")
        read.clear()
        run_list_document(paths, {}, NOW, None)
        assert sorted(read) == ["net-2", "on-1"]
