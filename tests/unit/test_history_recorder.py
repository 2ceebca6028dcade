"""The follower that keeps history: its file, restarts, and all that may happen to a disk."""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from gpumon.analysis.thresholds import GONE_AFTER
from gpumon.common.clock import SECOND
from gpumon.daemon.followers import ActivityRecorder
from gpumon.model.frame import RunState
from gpumon.storage.events.query import read_events
from gpumon.storage.history import recorder as recorder_module
from gpumon.storage.history.recorder import BATCH, HistoryRecorder
from gpumon.storage.history.schema import HISTORY_FILE, VERSION
from gpumon.storage.sqlite.write import open_to_write
from tests.builders import TIME, device, run, sample, tick
from tests.programs import PATIENCE

UID = os.getuid()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "history.sqlite"


def kept(path: Path, tier: int = 1) -> int:
    """Cells of the first GPU that are in the file."""
    if not path.exists():
        return 0
    with closing(sqlite3.connect(path)) as connection:
        try:
            rows = connection.execute(
                "SELECT sum(last - first + 1) FROM block WHERE tier = ? AND subject = ?", (tier, device().uuid)
            )
        except sqlite3.OperationalError:
            return 0  # it is being made
        return int(rows.fetchone()[0] or 0)


def wait_for(happened: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.01)


def recorder(path: Path, say: Callable[[str], object] = pytest.fail) -> HistoryRecorder:
    return HistoryRecorder(str(path), UID, say).start()


def feed(history: HistoryRecorder, first: int, last: int) -> None:
    for number in range(first, last):
        history.add(tick(number, samples=(sample(0, utilization=0.5),)))


@pytest.mark.parametrize(("shared", "mode", "journal"), [(False, 0o600, "wal"), (True, 0o644, "delete")])
def test_only_the_file_of_the_machine_can_be_read_by_all(path: Path, shared: bool, mode: int, journal: str) -> None:
    history = HistoryRecorder(str(path), UID, pytest.fail, shared=shared).start()
    history.add(tick(1))
    history.close(PATIENCE)
    assert (history.problem, kept(path)) == ("", 1)
    assert stat.S_IMODE(path.stat().st_mode) == mode
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == (journal,)


def test_history_goes_on_over_a_restart(path: Path) -> None:
    for first in (1, 51):
        history = recorder(path)
        feed(history, first, first + 50)
        history.close(PATIENCE)
    assert [kept(path, tier) for tier in (1, 2)] == [100, 11]


def test_one_that_is_killed_loses_no_more_than_the_block_that_is_open(path: Path) -> None:
    history = recorder(path)
    for first in range(1, 1000, 100):
        feed(history, first, first + 100)
        wait_for(lambda: len(history._ticks) < BATCH)
    wait_for(lambda: kept(path))
    assert 1000 - kept(path) <= 300 + 100, "nothing was closed"


def test_a_tick_is_taken_at_once_while_the_disk_hangs_and_memory_stays_bounded(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from threading import Event

    hangs, goes_on = Event(), Event()

    def write(*_: object) -> None:
        hangs.set()
        goes_on.wait(60)

    monkeypatch.setattr(recorder_module, "write", write)
    history = recorder(path)
    feed(history, 1, 700)
    assert hangs.wait(60)
    feed(history, 700, 3000)
    assert len(history._ticks) <= 600
    goes_on.set()
    history.close(PATIENCE)


def test_a_file_that_cannot_be_written_is_said_once_and_written_when_it_can_be(path: Path) -> None:
    said: list[str] = []
    path.parent.mkdir(mode=0o700)
    path.mkdir()
    history = recorder(path, said.append)
    for first in range(1, 2000, 200):
        feed(history, first, first + 200)
        wait_for(lambda: len(history._ticks) < BATCH)
    wait_for(lambda: history.problem)
    path.rmdir()
    history.close(PATIENCE)
    assert kept(path) == 2000
    assert len(said) == 2
    assert "cannot write" in said[0]
    assert "is writable again" in said[1]


@pytest.mark.parametrize("is_in_log", [True, False])
def test_a_file_that_was_overwritten_under_a_daemon_is_mended_from_its_log_or_said_to_be_damaged_once(
    path: Path, is_in_log: bool
) -> None:
    said: list[str] = []
    history = recorder(path, said.append)
    feed(history, 1, 500)
    wait_for(lambda: kept(path))
    before = kept(path)
    if not is_in_log:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
    with path.open("r+b") as file:
        file.write(b"\xa5" * path.stat().st_size)
    for first in range(500, 2000, 100):
        feed(history, first, first + 100)
        wait_for(lambda: len(history._ticks) < BATCH)
    history.close(PATIENCE)
    if is_in_log:
        assert said == []
        assert kept(path) == 1999
    else:
        (line,) = said
        assert "is damaged" in line
        assert "moved to" in line
        assert 1000 <= kept(path) <= 1999 - before, "of what was there nothing can be read"


def test_a_file_of_another_version_is_kept_aside_and_a_new_one_begun(path: Path) -> None:
    open_to_write(str(path), HISTORY_FILE, shared=False, uid=UID, log=pytest.fail).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {VERSION + 1}")
    said: list[str] = []
    history = recorder(path, said.append)
    feed(history, 1, 800)
    history.close(PATIENCE)
    (line,) = said
    assert f"{path}.other-version-1" in line
    assert Path(f"{path}.other-version-1").exists()
    assert kept(path) > 0


def test_a_file_that_was_removed_is_made_again(path: Path) -> None:
    history = recorder(path)
    feed(history, 1, 700)
    wait_for(lambda: kept(path) >= 300)
    for name in path.parent.iterdir():
        name.unlink()
    feed(history, 700, 750)
    history.close(PATIENCE)
    assert kept(path) > 50


def test_a_clock_that_was_set_to_another_year_removes_nothing(path: Path) -> None:
    history = recorder(path)
    feed(history, 1, 500)
    history.close(PATIENCE)
    history = recorder(path)
    for number in range(500, 1500):
        one = tick(number, samples=(sample(0, utilization=0.5),))
        history.add(one._replace(time_ns=one.time_ns + 10**18))
        wait_for(lambda: len(history._ticks) < 100)
    history.close(PATIENCE)
    assert kept(path) == 1499


def test_what_begins_with_the_first_tick_is_written_at_once(path: Path) -> None:
    history = HistoryRecorder(str(path), UID, pytest.fail, plugins=[ActivityRecorder()]).start()
    feed(history, 1, 2)
    wait_for(lambda: "daemon_started" in kinds(path))  # as of one that is killed before its second sample


@pytest.mark.parametrize("vanishes", [False, True])
def test_the_end_of_a_run_is_written_with_the_next_tick(path: Path, vanishes: bool) -> None:
    history = HistoryRecorder(str(path), UID, pytest.fail, plugins=[ActivityRecorder()]).start()
    end = 3 + GONE_AFTER + 1 if vanishes else 4
    for number in range(1, end + 2):
        going = run(started=TIME / SECOND + 2, updated=TIME / SECOND + number)
        over = [] if vanishes else [going._replace(state=RunState.FINISHED)]
        history.add(tick(number, runs=[] if number < 2 else [going] if number < 4 else over))
        if number in (2, end):
            wait_for(
                lambda kind="run_began" if number == 2 else "run_died" if vanishes else "run_ended": kind in kinds(path)
            )
    assert [event.until_ns for event in read_events(str(path)) if event.kind.name == "run_began"] == [0]
    history.close()


def test_a_file_that_cannot_be_written_is_not_tried_at_each_tick(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def write(_: ActivityRecorder, connection: sqlite3.Connection) -> None:
        calls.append(1)
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(ActivityRecorder, "write", write)
    said: list[str] = []
    history = HistoryRecorder(str(path), UID, said.append, plugins=[ActivityRecorder()]).start()
    feed(history, 1, 12)
    wait_for(lambda: calls)
    feed(history, 12, 50)
    history.close()
    assert len(calls) <= 3


def kinds(path: Path) -> list[str]:
    """Kinds of the events in the file."""
    if not path.exists():
        return []
    with closing(sqlite3.connect(path)) as connection:
        try:
            return [kind for (kind,) in connection.execute("SELECT kind FROM event")]
        except sqlite3.OperationalError:
            return []  # it is being made


def test_a_daemon_in_a_directory_of_any_name_keeps_history(tmp_path: Path) -> None:
    path = Path(os.fsdecode(bytes(tmp_path) + b"/caf\xe9")) / "history.sqlite"
    history = HistoryRecorder(str(path), UID, pytest.fail, directory=str(path.parent)).start()
    feed(history, 1, 30)
    history.close(PATIENCE)
    assert kept(path) > 0
