"""Files that cannot be read now, or keep nothing: no run is called missing, and a page keeps what it has read."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from gpumon.common.clock import SECOND
from gpumon.model.frame import RunState, Tick
from gpumon.model.origin import RECORDED, SIMULATED, Capability, Origin
from gpumon.storage.history.tiers import SHAPES
from gpumon.storage.ledger.schema import LEDGER_FILE, VERSION
from gpumon.storage.sqlite.read import LOCKED, LockTimeout, open_to_read
from gpumon_web.jobs import LOCKED_FOR, ProcessWork
from gpumon_web.live.stored_values import why_none_listed
from tests.builders import device, process, run, sample, tick
from tests.months import fill
from tests.programs import PATIENCE, until
from tests.runs import Book, training, uuid_of
from tests.web.charted import points
from tests.web.conftest import PATIENCE_MS, on_a_port, visit
from tests.web.served import Served

NET, OTHER = "net-1a2b", "net-3c4d"
NOW = time.time() // 7200 * 7200 - 300
NEWER = "has format 999"


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    with Book(tmp_path) as book:
        training(book, NET, 4)
        training(book, OTHER, 4, seed=1)
    return book.path


def upgrade(path: Path, version: int = 999) -> None:
    """A file that this gpumon cannot read, until its version is what it was."""
    with closing(sqlite3.connect(path)) as other:
        other.execute(f"PRAGMA user_version = {version}")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Nobody else may read the file, as while a tool copies or compacts it."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        other.execute("UPDATE run SET name = name")
        yield
        other.execute("ROLLBACK")


def test_a_run_of_a_locked_ledger_is_not_called_unknown(ledger: Path) -> None:
    served = Served([tick(1)], [str(ledger)])
    with locked(ledger):
        answer = served.client().get(f"/api/v1/run?id={NET}")
    assert (answer.status_code, answer.mimetype) == (503, "application/problem+json")
    assert LOCKED in answer.get_json(force=True)["detail"]
    assert answer.headers["Retry-After"]
    assert served.json(f"/api/v1/run?id={NET}")["run"]["id"] == NET


def wait_of(path: str) -> int:
    """Milliseconds for which a reader of a file waits, in the process that runs this."""
    connection, _ = open_to_read(path, LEDGER_FILE)
    with closing(connection):
        return int(connection.execute("PRAGMA busy_timeout").fetchone()[0])


def test_a_locked_ledger_keeps_the_process_that_reads_for_pages_no_longer_than_a_moment(ledger: Path) -> None:
    work = ProcessWork()
    try:
        assert work.ask(wait_of, lambda: (str(ledger),)).result(PATIENCE) == round(LOCKED_FOR * 1000) < 1000
    finally:
        work.close()
    assert wait_of(str(ledger)) >= 1000, "who reads for himself waits until it is made"


def with_history(path: Path) -> Served:
    """A GPU with a month of history before its frames, in a file of its own."""
    served = Served([of_now(number) for number in range(1, 5)], devices=1)
    fill(str(path), [device(0).uuid], NOW, lambda *_: (0.4, 0.5, 0.6), [SHAPES[-1]])
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA journal_mode = TRUNCATE")  # as on a network file system, where a reader is locked out
    served.feed.history.set_path(str(path))
    served.live.history_file = lambda: str(path)  # type: ignore[method-assign]
    return served


def of_now(number: int) -> Tick:
    return tick(number, [sample(0, utilization=0.5)], time_ns=round((NOW + number) * SECOND))


@contextmanager
def history_locked(path: Path) -> Iterator[None]:
    """Nobody else may read the file."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        other.execute("CREATE TABLE held (of INTEGER)")
        yield
        other.execute("ROLLBACK")


def test_a_tick_does_not_wait_for_a_locked_history(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    served = with_history(path)
    with history_locked(path):
        begun = time.monotonic()
        told = served.told("gpu", gpu="0")
        assert served.known().gpus
        waited = time.monotonic() - begun
    assert told["values"]
    assert waited < 0.5 * LockTimeout.seconds, "of one look that had its way, a program waits that long"


def test_a_chart_of_a_locked_history_says_so_and_has_what_was_read_before(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    served = with_history(path)
    asked = "/api/gpu?gpu=0&window=2678400"
    with history_locked(path):
        found = served.json(asked)
        assert LOCKED in found["problem"]
        assert len(points(found["chart"], "gpu.utilization")) <= 5, "those of the frames"
    served = with_history(tmp_path / "other.sqlite")
    whole = len(points(served.json(asked)["chart"], "gpu.utilization"))
    assert whole > 100
    numbers = count(5)

    def asked_anew() -> Any:
        served.writer.append(of_now(next(numbers)))
        found = served.json(asked)
        return found if "problem" in found else None

    with history_locked(tmp_path / "other.sqlite"):
        found = until(asked_anew)
    assert LOCKED in found["problem"]
    assert len(points(found["chart"], "gpu.utilization")) >= whole


def test_a_page_of_a_gpu_says_that_its_history_is_locked(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    served = with_history(path)
    with history_locked(path), on_a_port(served) as link, visit(browser, link) as visitor:
        page = visitor.open("#/gpu/0?window=2678400")
        expect(page.locator("#page-gpu .card > .empty:visible")).to_contain_text(LOCKED)
        expect(page.locator("#page-gpu .plot canvas").first).to_be_visible()


@pytest.mark.parametrize("query", [f"page=run&id={NET}", "page=runs"])
def test_a_page_of_a_locked_ledger_says_that_it_is_locked_and_what_to_do(ledger: Path, query: str) -> None:
    served = Served([tick(1)], [str(ledger)])
    with locked(ledger):
        assert LOCKED in served.json(f"/api/kept?{query}")["unread"]
    assert "unread" not in served.json(f"/api/kept?{query}")


@pytest.mark.parametrize(
    "path",
    [f"/api/v1/run?id={NET}", f"/api/v1/epochs?run={NET}",
     f"/api/run.csv?id={NET}", f"/api/kept?page=run&id={NET}&rest=1", f"/api/run/zoom?id={NET}&gpu={uuid_of(0)}"],
)  # fmt: skip
def test_what_cannot_be_read_now_may_be_asked_for_again(ledger: Path, path: str) -> None:
    served = Served([tick(1)], [str(ledger)])
    upgrade(ledger)
    answer = served.client().get(path)
    assert answer.status_code == 503, answer.data
    assert NEWER in answer.get_data(as_text=True)
    upgrade(ledger, VERSION)
    assert served.client().get(path).status_code == 200


@pytest.mark.parametrize("path", ["/api/v1/run?id=no", "/api/v1/epochs?run=no"])
def test_a_run_that_is_in_no_ledger_is_not_found(ledger: Path, path: str) -> None:
    assert Served([tick(1)], [str(ledger)]).client().get(path).status_code == 404


@pytest.mark.parametrize(("query", "where"), [(f"page=run&id={NET}", "without"), ("page=runs", "problem")])
def test_a_page_of_what_cannot_be_read_says_so_and_not_that_there_is_none(ledger: Path, query: str, where: str) -> None:
    served = Served([tick(1)], [str(ledger)])
    upgrade(ledger)
    found = served.json(f"/api/kept?{query}")
    said = str(found["values"])
    assert NEWER in found["unread"]
    assert NEWER in str(found["values"][where])
    for claim in ("No such run", "No run here", "No runs yet", "removed from the ledger"):
        assert claim not in said
    upgrade(ledger, VERSION)
    assert "unread" not in served.json(f"/api/kept?{query}")


class TestComparison:
    def test_says_why_it_cannot_be_read(self, ledger: Path) -> None:
        served = Served([tick(1)], [str(ledger)])
        upgrade(ledger)
        found = served.compared((NET, OTHER))
        assert NEWER in str(found["without"])
        assert "No run here" not in str(found)
        assert found["facts"]["again"] < 10
        upgrade(ledger, VERSION)
        assert served.compared((NET, OTHER))["title"] == "2 runs compared"

    def test_stays_while_the_ledger_cannot_be_read(self, ledger: Path) -> None:
        served = Served([tick(1)], [str(ledger)])
        upgrade(ledger)
        found = served.compared((NET, OTHER), is_shown=True)
        assert found.keys() == {"how", "facts"}
        assert NEWER in found["how"]


def test_a_run_that_goes_on_has_what_the_ring_tells_while_its_ledger_cannot_be_read(ledger: Path) -> None:
    going = run("tag.1000.1.a", id=NET, name="net", state=RunState.RUNNING, epoch=2, gpus=(device(0).uuid,))
    served = Served([tick(n, [sample(0, run=going.key)], [process(1, 0)], [going]) for n in (1, 2)], [str(ledger)])
    upgrade(ledger)
    found = served.json(f"/api/kept?page=run&id={NET}")
    assert found["values"]["title"] == "net"
    assert NEWER in str(found["values"]["without"])


def test_a_page_keeps_what_it_has_read_while_the_ledger_cannot_be_read(browser: Browser, ledger: Path) -> None:
    going = run("tag.1000.1.a", id="now-5e6f", name="now", state=RunState.RUNNING)
    served = Served([tick(n, runs=[going]) for n in (1, 2)], [str(ledger)])
    with on_a_port(served) as link, visit(browser, link) as visitor:
        page = visitor.open("#/runs")
        rows = page.locator("#page-runs tbody tr")
        expect(rows).to_have_count(3)
        upgrade(ledger)
        expect(page.locator("#problem")).to_contain_text("What is shown was read before.", timeout=PATIENCE_MS)
        expect(rows).to_have_count(3)
        page.locator("#page-runs select").nth(1).select_option("alice")
        expect(page.locator("#page-runs .card > .empty")).to_contain_text(NEWER)
        expect(page.locator("#problem")).to_be_hidden()
        upgrade(ledger, VERSION)
        expect(rows).to_have_count(3)
        expect(page.locator("#page-runs .card > .empty")).to_be_hidden()


def test_a_run_comes_once_its_ledger_can_be_read_again(browser: Browser, ledger: Path) -> None:
    upgrade(ledger)
    with on_a_port(Served([tick(1)], [str(ledger)])) as link, visit(browser, link) as visitor:
        page = visitor.open(f"#/run/{NET}")
        expect(page.locator("#page-run .empty:visible")).to_contain_text(f"cannot be read now: {ledger} {NEWER}")
        expect(page.locator("#page-run h1")).to_have_text(NET)
        upgrade(ledger, VERSION)
        expect(page.locator("#page-run .epochs tbody tr")).to_have_count(4)
        expect(page.locator("#problem")).to_be_hidden()


def test_a_run_of_a_daemon_that_plays_a_simulation_says_why_it_has_no_timeline(ledger: Path) -> None:
    going = run("tag.1000.1.a", id="sim-0-0", name="sim", state=RunState.RUNNING, epoch=2)
    origin = Origin("sim", "SIMULATED", capabilities=SIMULATED)
    served = Served([tick(n, runs=[going], origin=origin) for n in (1, 2)], [str(ledger)])
    why = "The daemon records no runs of a recording or simulation."
    assert why in str(served.json("/api/kept?page=run&id=sim-0-0")["values"]["without"])
    assert why in str(served.compared(("sim-0-0", NET))["without"])
    assert why not in served.client().get(f"/api/kept?page=run&id={NET}").get_data(as_text=True)
    assert why not in str(served.compared((NET, OTHER)))
    hardware = Served([tick(n, runs=[going]) for n in (1, 2)], [str(ledger)])
    assert hardware.json("/api/kept?page=run&id=sim-0-0")["values"]["without"] == []


def test_a_simulation_whose_daemon_keeps_its_runs_has_epochs_and_past_runs(ledger: Path) -> None:
    going = run("tag.1000.1.a", id=NET, name="net", state=RunState.RUNNING, epoch=3)
    origin = Origin("sim", "SIMULATED", capabilities=SIMULATED)
    ticks = [tick(n, runs=[going], origin=origin) for n in (1, 2)]
    found = Served(ticks, played=str(ledger)).json(f"/api/kept?page=run&id={NET}")
    assert found["values"]["without"] == []
    assert found["tables"]["epochs"]["cells"]
    runs = Served(ticks, played=str(ledger)).json("/api/kept?page=runs")["tables"]["runs"]["cells"]
    assert {NET, OTHER} <= runs.keys()
    assert runs[OTHER]["tick"] is not None, "it can be compared"


def test_runs_that_are_not_kept_have_no_tick_and_no_way_to_a_comparison(browser: Browser, tmp_path: Path) -> None:
    going = [run(f"tag.1000.{n}.a", id=f"sim-{n}-0", name="sim", state=RunState.RUNNING, epoch=2) for n in (1, 2)]
    origin = Origin("sim", "SIMULATED", capabilities=SIMULATED)
    served = Served([tick(n, runs=going, origin=origin) for n in (1, 2)])
    with on_a_port(served) as link, visit(browser, link) as visitor:
        page = visitor.open("#/runs?pick=sim-1-0,sim-2-0")
        expect(page.locator("#page-runs tbody tr")).to_have_count(2)
        why = "These runs cannot be compared. The daemon records no runs of a recording or simulation."
        expect(page.locator(".picked")).to_have_text(why)
        expect(page.locator("#page-runs input[type=checkbox]")).to_have_count(0)
        visitor.open("#/run/sim-1-0")
        expect(page.locator("#page-run .facts")).to_contain_text("sim-1-0")
        expect(page.locator("#page-run")).not_to_contain_text("Compare")


def test_beside_runs_that_are_kept_one_that_is_not_has_no_tick(ledger: Path) -> None:
    going = run("tag.1000.1.a", id="sim-0-0", name="sim", state=RunState.RUNNING, epoch=2)
    served = Served([tick(n, runs=[going]) for n in (1, 2)], [str(ledger)])
    found = served.json("/api/kept?page=runs")
    ticked = {key: row["tick"] is not None for key, row in found["tables"]["runs"]["cells"].items()}
    assert ticked.pop("sim-0-0") is False
    assert ticked
    assert all(ticked.values())
    assert found["values"]["picked"]["words"] == "Tick 2 to 8 runs to compare them"


@pytest.mark.parametrize(
    ("capabilities", "ended", "words"),
    [
        (Capability.PROCESSES, False, "No runs in this recording so far."),
        (Capability.PROCESSES, True, "This recording has no runs."),
        (RECORDED, False, "This recording has no data about runs."),
    ],
)
def test_a_recording_without_runs_invites_to_nothing(capabilities: Capability, ended: bool, words: str) -> None:
    origin = Origin("replay", "REPLAY a.csv", ended=ended, capabilities=capabilities)
    served = Served([tick(n, [sample(0, utilization=0.5)], origin=origin) for n in (1, 2)])
    found = served.json("/api/kept?page=runs")["values"]
    assert found["nothing"] == words
    assert found["picked"]["words"] == ""
    assert served.json("/api/kept?page=runs&state=running")["values"]["nothing"] == "No matching runs."
    assert served.json("/api/kept?page=none")["values"]["newest"] == [{"text": words}]


def test_a_moment_of_a_recording_without_runs_says_nothing_of_the_others() -> None:
    words = why_none_listed(Origin("replay", "REPLAY a.gpumon", capabilities=RECORDED), is_moment=True)
    assert words == "This recording has no data about runs at this moment."


def test_hardware_without_runs_says_how_one_comes_and_not_to_tick_some() -> None:
    found = Served([tick(n, [sample(0, utilization=0.5)]) for n in (1, 2)]).json("/api/kept?page=runs")["values"]
    assert found["nothing"].startswith("No runs yet. A training appears here once")
    assert found["picked"]["words"] == ""


def test_programs_hear_that_no_runs_of_a_simulation_are_kept(ledger: Path) -> None:
    going = run("tag.1000.1.a", id="sim-0-0", name="sim", state=RunState.RUNNING)
    origin = Origin("sim", "SIMULATED", capabilities=SIMULATED)
    served = Served([tick(n, runs=[going], origin=origin) for n in (1, 2)], [str(ledger)])
    why = "no history is recorded for this source"
    assert served.json("/api/v1/runs")["problem"] == why
    for asked in ("run?id", "epochs?run"):
        answer = served.client().get(f"/api/v1/{asked}=sim-0-0")
        assert (answer.status_code, answer.get_json()["detail"]) == (404, f"There is no record of this run: {why}.")
        assert served.client().get(f"/api/v1/{asked}={NET}").status_code == 200
    hardware = Served([tick(1, runs=[going])], [str(ledger)])
    assert hardware.json("/api/v1/runs")["problem"] is None
    assert hardware.client().get("/api/v1/run?id=sim-0-0").get_json()["detail"] == "There is no record of this run."
