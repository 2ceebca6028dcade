"""What the ledger says about running runs, beside the findings about the newest frame."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from gpumon.common.errors import GpumonError
from gpumon.diagnosis.finding import Finding, Severity, Subject
from gpumon.diagnosis.running_findings import NEWEST_EPOCHS, RecordedFindings, add_recorded, read_findings
from gpumon.model.frame import RunState
from gpumon.storage.ledger.reader import Ledgers
from gpumon_web.live.running_findings import READ_EVERY, RunningFindings
from tests.runs import BEGAN, Book, training

RUN = "net-1a2b"


def finding(kind: str, subject: str = RUN) -> Finding:
    return Finding(kind, Severity.WARNING, Subject("run", subject, subject), kind, "")


def book(directory: Path, epochs: int, **run: Any) -> str:
    """A run that validates for most of each epoch."""
    with Book(directory) as made:
        training(made, RUN, epochs, **{"state": RunState.RUNNING, **run})
        made.db.execute("UPDATE phase SET seconds = 8.0 WHERE phase = 'validate'")
        return str(made.path)


def read(path: str, *runs: str) -> dict[str, RecordedFindings]:
    with Ledgers([path]) as ledgers:
        return read_findings(ledgers, runs, BEGAN + 600)


class TestRead:
    @pytest.mark.parametrize("epochs", [6, NEWEST_EPOCHS + 50])
    def test_a_cause_is_found_in_its_epochs(self, tmp_path: Path, epochs: int) -> None:
        (recorded,) = read(book(tmp_path, epochs), RUN).values()
        assert [found.kind for found in recorded.findings] == ["slow_validation"]
        assert recorded.is_judged

    def test_too_few_epochs_are_not_judged(self, tmp_path: Path) -> None:
        (recorded,) = read(book(tmp_path, 1), RUN).values()
        assert not recorded.is_judged
        assert not recorded.findings

    def test_other_runs_are_left_out(self, tmp_path: Path) -> None:
        path = book(tmp_path, 6, state=RunState.FINISHED)
        assert read(path, RUN, "missing-0000", RUN[:-1]) == {}


class TestAdd:
    def test_causes_replace_shares_of_time(self) -> None:
        live = [finding("input_bound"), finding("mostly_idle", "other-0000"), finding("stalled")]
        recorded = {RUN: RecordedFindings([finding("worker_start"), finding("stalled")], is_judged=True)}
        added = [(found.subject.id, found.kind) for found in add_recorded(live, recorded)]
        assert added == [("other-0000", "mostly_idle"), (RUN, "stalled"), (RUN, "worker_start")]

    def test_shares_of_time_stay_until_epochs_are_judged(self) -> None:
        live = [finding("input_bound")]
        assert add_recorded(live, {RUN: RecordedFindings([], is_judged=False)}) == live
        assert add_recorded(live, {RUN: RecordedFindings([], is_judged=True)}) == []


class Worker:
    """Runs tasks when the test asks for it."""

    def __init__(self) -> None:
        self.tasks: list[tuple[Any, Any, Future[Any]]] = []

    def ask(self, task: Any, arguments: Any) -> Future[Any]:
        self.tasks.append((task, arguments, Future()))
        return self.tasks[-1][2]

    def work(self) -> None:
        for task, arguments, future in self.tasks:
            try:
                future.set_result(task(*arguments()))
            except GpumonError as error:
                future.set_exception(error)
        self.tasks.clear()

    def close(self) -> None:
        raise AssertionError("the reader does not own the worker")


class TestBrowserView:
    def test_waits_for_no_ledger(self, tmp_path: Path) -> None:
        now, worker, path = [0.0], Worker(), book(tmp_path, 6)
        running = RunningFindings(worker, lambda: [path], lambda: now[0])
        assert running.of_runs([]) == {}
        assert not worker.tasks
        for _ in range(2):
            assert running.of_runs([RUN]) == {}
        assert len(worker.tasks) == 1
        worker.work()
        assert [found.kind for found in running.of_runs([RUN])[RUN].findings] == ["slow_validation"]
        assert running.of_runs(["other-0000"]) == {}
        assert not worker.tasks
        now[0] += READ_EVERY
        Path(path).write_bytes(b"damaged" * 100)
        assert running.of_runs([RUN])
        worker.work()
        assert running.of_runs([RUN]) == {}, "it is not known now"
