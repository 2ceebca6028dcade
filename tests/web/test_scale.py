"""Work of the server where there is much: it is counted in calls, as seconds depend on the machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpumon.common.clock import SECOND
from gpumon.common.privacy import EVERYBODY, People, use_policy
from gpumon.diagnosis import past_findings
from gpumon.diagnosis.past_findings import Verdict, verdict
from gpumon.model.frame import RunState
from gpumon.reports.figures import run_chart
from gpumon.storage.ledger import aggregate, decode
from gpumon.storage.ledger.reader import Ledgers
from gpumon.storage.ledger.records import Record
from gpumon.storage.ledger.summary import EpochSummary
from gpumon_web.pages import run as run_pages
from gpumon_web.stored import comparison, run_page
from gpumon_web.stored.run_list import RunFilter, select_runs
from tests.builders import TIME, boundary, device, process, run, sample, tick
from tests.runs import BEGAN, Book, training
from tests.web.served import Served

RUN = run(gpus=(device().uuid,), state=RunState.RUNNING)
PAGES = {"fleet": {}, "gpu": {"id": device().uuid}, "runs": {}, "run": {"id": RUN.id}, "users": {}, "events": {}}
MARGIN = 1.1


def calls(do: Callable[[], object]) -> int:
    """Functions that are called while something is done, in Python and below it."""
    count = 0

    def seen(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(seen)
    try:
        do()
    finally:
        sys.setprofile(None)
    return count


def going(epoch: int) -> Any:
    """The run, in an epoch that its board tells of."""
    return RUN._replace(epoch=epoch, epochs=100_000, epoch_started=TIME / SECOND + 99, updated=TIME / SECOND + 99)


def lab(directory: Path, times: int) -> Served:
    """A run with epochs, runs in the ledger, and processes: `times` as many of each."""
    with Book(directory) as book:
        for number in range(20 * times):
            book.run(f"net{number}-1a2b", name=f"net{number}", state=RunState.FINISHED)
        path = str(book.path)
    ticks = [
        tick(
            number,
            [sample(0, utilization=0.5)],
            [process(5000 + at, user=f"user{at % 4}") for at in range(20 * times)],
            [going(99 * times)],
            [boundary(number * times + at, number * times + at) for at in range(times)],
        )
        for number in range(1, 100)
    ]
    return Served(ticks, [path])


@pytest.mark.parametrize("page", PAGES)
def test_a_tick_costs_the_same_with_ten_times_as_many_epochs_and_runs(tmp_path: Path, page: str) -> None:
    found = []
    for times in (1, 10):
        served = lab(tmp_path / str(times), times)
        seen = served.told(page, **PAGES[page])
        new = tick(100, [sample(0, utilization=0.6)], [process(1)], [going(99_999)], [boundary(99_999, 99_999)])
        served.writer.append(new)

        def answer(served: Served = served, seen: dict[str, Any] = seen) -> object:
            return served.pages.answer(page, PAGES[page], seen["boot"], seen["seq"])

        found.append(calls(answer))
    few, many = found
    assert many <= MARGIN * few


def test_an_epoch_of_a_run_is_judged_once_and_a_line_has_no_more_points_than_a_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: list[int] = []

    def counted(epoch: EpochSummary, running: bool) -> Verdict | None:
        judged.append(epoch.ordinal)
        return verdict(epoch, running)

    monkeypatch.setattr(past_findings, "verdict", counted)
    monkeypatch.setattr(run_chart, "MAX_POINTS", 100)
    epochs = 300
    with Book(tmp_path) as book:
        training(book, "long-1a2b", epochs)
    document, _ = run_page.run_document([str(book.path)], "long-1a2b", "", None, None, BEGAN + 1e6, None)
    assert document
    assert sorted(judged) == [*range(epochs)]
    chart = document["chart"]
    for panel in chart["panels"]:
        for line in panel["lines"]:
            if panel["key"].startswith("logged."):
                assert len(chart["times"][line["x"]]) <= 101
    assert len(chart["runs"][0]["bands"]) == epochs


def test_a_long_run_that_goes_on_is_read_less_often(tmp_path: Path) -> None:
    def again(directory: Path, epochs: int) -> float:
        with Book(directory) as book:
            training(book, "net-1a2b", 3, state=RunState.RUNNING)
        found, _ = run_page.run_document([str(book.path)], "net-1a2b", "", None, None, BEGAN + 30.0, None)
        document = {**(found or {}), "id": "net-1a2b", "now": BEGAN + 30.0, "epochs_total": epochs}
        return run_pages.kept(document).again

    assert again(tmp_path / "short", 10) == again(tmp_path / "more", 1000) == run_pages.RUNNING_INTERVAL
    assert again(tmp_path / "long", 10_000) >= 10_000 / run_pages.EPOCHS_PER_SECOND


class TestLongRunsCompared:
    """Runs of thousands of epochs: a sample of epochs is read, and what is a sum or a lowest value is of all."""

    EPOCHS = 120

    @pytest.fixture
    def path(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
        monkeypatch.setattr(comparison, "LONG", 50)
        monkeypatch.setattr(comparison, "SAMPLE", 20)
        with Book(tmp_path) as book:
            training(book, "a-1a2b", self.EPOCHS, gpus=2)
            training(book, "b-1a2b", self.EPOCHS, gpus=2, seed=2)
            training(book, "short-1a2b", 10)
            training(book, "none-1a2b", 0, course=False)
            [key, *_] = [row[0] for row in book.db.execute("SELECT key FROM rank WHERE run = 'a-1a2b' ORDER BY rank")]
            book.db.execute("""UPDATE epoch SET metrics = '{"loss": 0.001}' WHERE rank = ? AND ordinal = 61""", (key,))
            book.db.execute("UPDATE epoch SET ended = NULL WHERE rank = ? AND ordinal BETWEEN 67 AND 97", (key,))
        return str(book.path)

    def records(self, path: str, ids: str, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Any], list[int]]:
        read: list[int] = []

        def epochs(record: Record) -> list[EpochSummary]:
            read.append(len(record.epochs) + len(record.usage))
            return joined(record)

        joined = aggregate.epoch_summaries
        with monkeypatch.context() as patched:
            patched.setattr(aggregate, "epoch_summaries", epochs)
            found = comparison.comparison_document([path], ids, "", BEGAN + 1e6)
        return found, read

    def test_rows_that_are_read_do_not_grow_with_epochs(self, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
        found, read = self.records(path, "a-1a2b,b-1a2b", monkeypatch)
        assert max(read) < 8 * (comparison.SAMPLE + 4) < 4 * self.EPOCHS
        assert all(f"of {self.EPOCHS} epochs, evenly spaced" in one["counts"] for one in found["runs"])

    def test_sums_lowest_values_and_places_are_of_all_epochs(self, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
        found, _ = self.records(path, "a-1a2b,b-1a2b", monkeypatch)
        monkeypatch.setattr(comparison, "LONG", 1000)
        whole, _ = self.records(path, "a-1a2b,b-1a2b", monkeypatch)
        assert found["best"][0]["text"] == whole["best"][0]["text"] == "0.001"
        assert found["axes"] == whole["axes"]
        ends = [{one["key"]: [(line["label"], one["key"], chart["times"][line["x"]][-1], line["mean"][-1])
                              for line in one["lines"]] for one in chart["panels"]}
                for chart in (found["chart"], whole["chart"])]  # fmt: skip
        assert ends[0]["energy"] == ends[1]["energy"]
        for name in ("between_seconds", "cpu_seconds"):
            assert [row.get(name) for row in found["saved"]] == [row.get(name) for row in whole["saved"]]
        assert [note for note in found["notes"] if "stopped early" in note] == [
            note for note in whole["notes"] if "stopped early" in note
        ]

    def test_nothing_is_sampled_beside_a_run_without_epochs(self, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
        found, read = self.records(path, "a-1a2b,none-1a2b", monkeypatch)
        assert max(read) >= 4 * self.EPOCHS
        assert [one["counts"] for one in found["runs"]] == ["whole run", "whole run"]


@pytest.mark.parametrize("way", ["shown", "hashed"])
def test_runs_of_a_long_list_are_counted_without_a_record_for_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    with Book(tmp_path) as book:
        for number in range(30):
            book.run(f"net{number}-1a2b", name=f"net{number}", user=f"user{number % 3}", state=RunState.FINISHED)
    decoded: list[int] = []
    run_row = decode.run_row
    monkeypatch.setattr(decode, "run_row", lambda cells: decoded.append(1) or run_row(cells))
    people = People(way, b"secret") if way != "shown" else EVERYBODY
    with use_policy(people), Ledgers([str(book.path)]) as ledgers:
        found = select_runs(ledgers, RunFilter(), BEGAN, 5)
        assert len(decoded) == 5
        assert len(found.ids) == 30
        assert {one.run.id for one in found.runs} <= set(found.ids)
        assert {one.run.user for one in found.runs} <= set(found.users)
