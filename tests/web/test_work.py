"""What takes long delays nobody: it is done elsewhere, once for all who ask, and holds no thread meanwhile."""

from __future__ import annotations

import gzip
import http.client
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from gpumon.common.numbers import shown
from gpumon.model.frame import RunState
from gpumon.storage.ledger.reader import Ledgers
from gpumon_web.jobs import (
    IDLE,
    NOTHING,
    UNCHANGED,
    AnswerCache,
    Arguments,
    Packed,
    ProcessWork,
    Task,
    TaskError,
    ThreadWork,
    WorkError,
)
from gpumon_web.pages import compare, run, users
from gpumon_web.stored import run_list, run_page
from gpumon_web.stored.epoch_rows import NEWEST
from gpumon_web.stored.run_page import ROWS
from tests.builders import tick
from tests.programs import PATIENCE, Child, until
from tests.runs import Book, training
from tests.web.served import TOKEN, Served, on_server

NET = "net-1a2b"


class Held:
    """Work that is done, or fails, when a test says so, and at once from then on."""

    def __init__(self) -> None:
        self.asked: list[tuple[Future[Any], Task, Arguments]] = []
        self._end: Callable[[Future[Any], Task, Arguments], None] | None = None
        self._lock = threading.Lock()

    def ask(self, task: Task, arguments: Arguments) -> Future[Any]:
        found: Future[Any] = Future()
        with self._lock:
            end = self._end
            self.asked.append((found, task, arguments))
        if end is not None:
            end(found, task, arguments)
        return found

    def let(self) -> None:
        """Do all that was asked for, and what will be."""
        self._decide(lambda found, task, arguments: found.set_result(task(*arguments())))

    def fail(self) -> None:
        """Let all of it fail, also what is asked for later."""
        self._decide(lambda found, task, arguments: found.set_exception(WorkError("killed")))

    def _decide(self, end: Callable[[Future[Any], Task, Arguments], None]) -> None:
        with self._lock:
            self._end, asked = end, list(self.asked)
        for one in asked:
            end(*one)

    def close(self) -> None:
        """Nothing to stop."""


def get(port: int, path: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {TOKEN}"})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_viewers_get_their_ticks_while_a_crowd_waits_for_one_long_run(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        training(book, "net-1a2b", 3)
    work = Held()
    served = Served([tick(1)], [str(book.path)], work=work)
    paths = [
        f"/api/kept?page=run&id={NET}",
        f"/api/run.csv?id={NET}",
        "/api/kept?page=runs",
        f"/api/kept?page=run&id={NET}&rest=1",
    ]
    with on_server(served) as port, ThreadPoolExecutor(8 * len(paths)) as crowd:
        waiting = [crowd.submit(get, port, path) for path in paths for _ in range(8)]
        until(lambda: len(work.asked) == len(paths))
        assert len(waiting) == 32
        for _ in range(5):
            assert get(port, "/api/delta")[0] == 200
        assert not any(one.done() for one in waiting)
        assert len(work.asked) == len(paths), "once for all who ask"
        work.let()
        assert {one.result(PATIENCE)[0] for one in waiting} == {200}


def test_work_that_fails_is_answered_by_come_again_and_said_once(capfd: pytest.CaptureFixture[str]) -> None:
    work = Held()
    with on_server(Served([tick(1)], work=work)) as port, ThreadPoolExecutor(2) as crowd:
        waiting = [crowd.submit(get, port, "/api/kept?page=runs") for _ in range(2)]
        until(lambda: work.asked)
        work.fail()
        for one in waiting:
            status, said = one.result(PATIENCE)
            assert status == 503
            assert b"Busy" in said
    assert capfd.readouterr().err == "gpumon web: cannot create the list of runs: WorkError: killed\n"


def test_who_leaves_while_he_waits_harms_nobody(tmp_path: Path) -> None:
    work = Held()
    with on_server(Served([tick(1)], work=work)) as port:
        for _ in range(20):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
            connection.request("GET", "/api/kept?page=runs", headers={"Authorization": f"Bearer {TOKEN}"})
            connection.close()
        until(lambda: work.asked)
        work.let()
        for _ in range(5):
            assert get(port, "/api/delta")[0] == 200


# Answers


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def made(body: bytes, version: Any = None) -> Future[Any]:
    found: Future[Any] = Future()
    found.set_result(Packed(body, version))
    return found


def test_an_answer_is_made_anew_once_it_is_not_fresh_and_kept_while_it_holds() -> None:
    clock, asked = Clock(), list[Any]()
    answers = AnswerCache(clock)

    def start(known: Any) -> Future[Any]:
        asked.append(known)
        found: Future[Any] = Future()
        found.set_result(UNCHANGED if known == "v1" else Packed(b"one", "v1"))
        return found

    for seconds, times in ((0.0, 1), (1.9, 1), (2.1, 2), (4.0, 2), (4.2, 3)):
        clock.now = seconds
        assert answers.get("key", 2.0, start).result().body == b"one"
        assert len(asked) == times
    assert asked == [None, "v1", "v1"]


def test_answers_are_bounded_in_bytes() -> None:
    answers = AnswerCache(Clock(), limit=1000)
    for key in range(20):
        answers.get(key, 1.0, lambda _: made(b"x" * 100))
    assert sum(len(kept.answer.body) for kept in answers._entries.values()) <= 1000
    assert answers.get(0, 1.0, lambda _: made(b"again")).result().body == b"again", "forgotten, as the oldest"


def test_work_that_failed_is_tried_again() -> None:
    answers = AnswerCache(Clock())
    failed: Future[Any] = Future()
    failed.set_exception(WorkError("killed"))
    assert isinstance(answers.get("key", 1.0, lambda _: failed).exception(), WorkError)
    assert answers.get("key", 1.0, lambda _: made(b"one")).result().body == b"one"


# The other process


def where() -> tuple[int, int]:
    """Which process does the work, and how nice it is."""
    return os.getpid(), os.nice(0)


def wrong() -> None:
    raise ValueError("no such thing")


def test_work_is_done_in_another_process_that_gives_way_to_ours() -> None:
    work = ProcessWork()
    try:
        pid, niceness = work.ask(where, tuple).result(PATIENCE)
        assert pid != os.getpid()
        assert niceness > os.nice(0)
        with pytest.raises(TaskError, match="ValueError: no such thing"):
            work.ask(wrong, tuple).result(PATIENCE)
        assert work.ask(where, tuple).result(PATIENCE)[0] == pid, "a task that fails ends nothing"
    finally:
        work.close()
    until(lambda: not Path(f"/proc/{pid}").exists())


def test_a_process_that_dies_or_hangs_is_started_again_for_the_next_work() -> None:
    work = ProcessWork()
    try:
        for task, given in ((os._exit, 3), (time.sleep, 3600)):
            assert work.ask(os.getpid, tuple).result(PATIENCE) != os.getpid()
            if task is time.sleep:
                work._timeout = 0.5  # of this piece alone: no other one is given up, however slow the machine
            failed = work.ask(task, lambda given=given: (given,))  # type: ignore[misc]
            assert isinstance(failed.exception(PATIENCE), WorkError)
            work._timeout = PATIENCE
            assert work.ask(os.getpid, tuple).result(PATIENCE) != os.getpid()
    finally:
        work.close()


def test_an_answer_that_cannot_be_sent_harms_no_other_work() -> None:
    work = ProcessWork()
    try:
        failed = work.ask(threading.Lock, tuple)
        assert isinstance(failed.exception(PATIENCE), Exception)
        assert work.ask(os.getpid, tuple).result(PATIENCE) != os.getpid()
    finally:
        work.close()


def test_the_process_goes_when_there_is_nothing_to_do() -> None:
    work = ProcessWork(idle=0.2)
    try:
        pid = work.ask(os.getpid, tuple).result(PATIENCE)
        until(lambda: not Path(f"/proc/{pid}").exists())
        assert work.ask(os.getpid, tuple).result(PATIENCE) != pid
    finally:
        work.close()


def test_the_process_goes_with_a_server_that_is_killed() -> None:
    code = "import os, time; from gpumon_web.jobs import ProcessWork; work = ProcessWork()\n"
    code += "if __name__ == '__main__': print(work.ask(os.getpid, tuple).result(), flush=True); time.sleep(3600)"
    path = os.pathsep.join(sys.path)
    with Child([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        pid = int(server.stdout.readline())
        assert Path(f"/proc/{pid}").exists()
        server.kill()
        server.wait(PATIENCE)
        until(lambda: not Path(f"/proc/{pid}").exists())


@pytest.mark.parametrize("kind", [ThreadWork, ProcessWork])
def test_too_much_work_is_refused_at_once(kind: type[ThreadWork]) -> None:
    gate = threading.Event()
    work = kind()

    def arguments() -> tuple[()]:
        gate.wait(PATIENCE)
        return ()

    try:
        asked = [work.ask(where, arguments) for _ in range(200)]
        refused = [one for one in asked if one.done()]
        assert len(refused) > 100
        assert all(isinstance(one.exception(), WorkError) for one in refused)
        gate.set()
        for one in asked:
            if one not in refused:
                assert one.result(PATIENCE)
        assert work.ask(where, tuple).result(PATIENCE)
    finally:
        work.close()


def test_work_of_a_thread_is_done_one_piece_after_the_other_and_its_errors_are_its_own() -> None:
    work = ThreadWork()
    try:
        assert isinstance(work.ask(wrong, tuple).exception(PATIENCE), ValueError)
        asked = [work.ask(threading.get_ident, tuple) for _ in range(5)]
        assert len({one.result(PATIENCE) for one in asked}) == 1
    finally:
        work.close()


# What it makes


def test_a_long_run_comes_with_its_newest_epochs_and_with_what_all_of_them_came_to(tmp_path: Path) -> None:
    count = ROWS + 150
    with Book(tmp_path) as book:
        training(book, "long-1a2b", count, gpus=2, course=False)
    served = Served([tick(1)], [str(book.path)])
    found = served.run("long-1a2b")
    alone = [epoch.ordinal for epoch in found["epochs"]]
    folded = [epoch.ordinal for fold in found["folds"] for epoch in fold.epochs]
    assert alone == list(range(count - NEWEST, count)), "all others are equal"
    assert [*folded, *alone] == list(range(count))
    assert found["epochs_total"] == count
    with Ledgers([str(book.path)]) as ledgers:
        [(ledger, _)] = ledgers.candidates("long-1a2b")
        rows = run_page.all_rows(ledger.record("long-1a2b"))["epochs"]
    assert len(rows) == count
    assert [epoch.ordinal for epoch in rows[-NEWEST:]] == alone
    lengths = [shown(epoch.seconds) for epoch in rows]
    summary = found["summary"]
    assert summary["ended"] == count
    assert summary["least"] == min(lengths)
    assert summary["most"] == max(lengths)
    assert summary["mean"] == pytest.approx(sum(lengths) / count, rel=1e-4)
    assert summary["most_energy"] == max(shown(epoch.value("energy")) for epoch in rows)


def test_a_run_that_ended_is_not_read_again_and_one_that_goes_on_is(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        training(book, "net-1a2b", 3)
        paths = [str(book.path)]

        def document(version: str | None, run: str = NET) -> tuple[dict[str, Any] | None, str | None]:
            return run_page.run_document(paths, run, "", None, None, 9.0, version)

        first, version = document(None)
        assert first
        assert document(version) == (None, version)
        table = run_page.csv_answer(paths, 0.0, None, "net-1a2b")
        assert isinstance(table, Packed)
        assert run_page.csv_answer(paths, 0.0, table.version, "net-1a2b") == UNCHANGED
        listed, list_version = run_list.run_list_document(paths, {}, 0.0, None)
        assert listed
        assert run_list.run_list_document(paths, {}, 0.0, list_version) == (None, list_version)
        book.db.execute("UPDATE run SET updated = updated + 1000000000")
        assert document(version)[0]
        assert isinstance(run_page.csv_answer(paths, 0.0, table.version, "net-1a2b"), Packed)
        assert run_list.run_list_document(paths, {}, 0.0, list_version)[0]
        book.db.execute(f"UPDATE run SET state = {RunState.RUNNING:d}, ended = NULL")
        assert document(None)[1] is None, "its page depends on the time"
        assert document(None, "nope") == ({}, None)
    assert run_page.csv_answer([str(tmp_path / "none")], 0.0, None, "net-1a2b") == NOTHING


def test_what_the_other_process_makes_is_what_this_one_would(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        training(book, "net-1a2b", 3)
    work = ProcessWork()
    try:
        here = Served([tick(1)], [str(book.path)])
        there = Served([tick(1)], [str(book.path)], work=work)
        for path in (
            "/api/kept?page=runs",
            f"/api/kept?page=run&id={NET}",
            f"/api/kept?page=run&id={NET}&rest=1",
            f"/api/run.csv?id={NET}",
        ):
            assert here.client().get(path).data == there.client().get(path).data
    finally:
        work.close()


def test_an_answer_is_plain_for_who_takes_nothing_else(tmp_path: Path) -> None:
    served = Served([tick(1)])
    packed = served.client().get("/api/kept?page=runs", headers={"Accept-Encoding": "gzip"})
    assert packed.headers["Content-Encoding"] == "gzip"
    plain = served.client().get("/api/kept?page=runs")
    assert "Content-Encoding" not in plain.headers
    assert json.loads(gzip.decompress(packed.data)) == plain.get_json()


def test_process_starts_with_the_first_question_about_runs(tmp_path: Path) -> None:
    work = Held()
    client = Served([tick(1)], [], work=work).client()
    assert client.get("/").status_code == 200
    assert client.get("/api/delta?page=fleet").status_code == 200
    assert work.asked == []


def test_process_outlasts_the_pause_between_requests_of_a_page() -> None:
    assert max(users.CURRENT_INTERVAL, run.RUNNING_INTERVAL, compare.RUNNING_INTERVAL) < IDLE
