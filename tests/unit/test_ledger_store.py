"""The ledger's file: how it is made, what happens where it cannot be written, and what is summed up in it."""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
from array import array
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN
from gpumon.common.paths import Places, ledger_path, ledger_paths, places
from gpumon.model.columns import USAGE
from gpumon.model.frame import RunState
from gpumon.reports.figures.run_series import thin
from gpumon.storage.history.envelope import Envelope
from gpumon.storage.ledger.reader import Ledger
from gpumon.storage.ledger.schema import LEDGER_FILE, TABLES, VERSION
from gpumon.storage.ledger.trace import POINTS, TraceRecorder, unpack_trace
from gpumon.storage.ledger.writer import Batch, LateMetrics, LedgerRow, LedgerWriter, write_batch
from gpumon.storage.sqlite.state_file import StateFile
from gpumon.storage.sqlite.write import OtherVersion, is_on_network, open_to_write
from tests.programs import until

UID = os.getuid()


def run_rows(id: str, key: str = "", **fields: Any) -> list[LedgerRow]:
    row = {
        "id": id, "name": "resnet", "user": "alice", "hostname": "node1", "framework": "torch", "source": "nvml",
        "label": "", "driver": "1", "world_size": 1, "epochs": 9, "base": 0, "first_epoch": 0, "started": 100,
        "state": 0, "updated": 200,
    }  # fmt: skip
    rank = {
        "key": key or f"tag.{id}", "run": id, "rank": 0, "local_rank": 0, "pid": 1, "started": 100, "ended": None,
        "state": 0, "steps": 1, "wait": None, "lost_events": 0, "peak": None, "retries": None, "ooms": None,
    }  # fmt: skip
    return [
        LedgerRow("run", row | {name: fields[name] for name in fields if name in row}),
        LedgerRow("rank", rank | {name: fields[name] for name in fields if name in rank}),
    ]


def epoch_row(rank: str, ordinal: int = 0, **fields: Any) -> LedgerRow:
    row = {
        "rank": rank,
        "ordinal": ordinal,
        "epoch": 0,
        "begun": 1,
        "ended": 2,
        "seconds": 1.0,
        "steps": 1,
        "wait": 0.0,
    }
    return LedgerRow("epoch", {**row, "metrics": "{}", **fields})


def batch(*rows: LedgerRow) -> Batch:
    found = Batch()
    found.add(rows)
    return found


def ask(path: Path | str, question: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(question).fetchall()


def begin(directory: Path, **fields: Any) -> tuple[LedgerWriter, list[str], Path]:
    said: list[str] = []
    path = directory / "state" / "ledger.sqlite"
    return LedgerWriter(str(path), UID, said.append, **fields).start(), said, path


@pytest.fixture
def connection(tmp_path: Path) -> sqlite3.Connection:
    return open_to_write(str(tmp_path / "state" / "ledger.sqlite"), LEDGER_FILE, shared=False, uid=UID, log=pytest.fail)


def test_the_ledger_is_made_private_and_that_of_the_machine_readable(tmp_path: Path) -> None:
    for shared, of_file, of_directory in ((False, 0o600, 0o700), (True, 0o644, 0o755)):
        path = tmp_path / str(shared) / "ledger.sqlite"
        open_to_write(str(path), LEDGER_FILE, shared=shared, uid=UID, log=pytest.fail).close()
        assert stat.S_IMODE(path.stat().st_mode) == of_file
        assert stat.S_IMODE(path.parent.stat().st_mode) == of_directory
        assert ask(path, "PRAGMA user_version") == [(VERSION,)]
        assert ask(path, "PRAGMA journal_mode") == [("wal",)]


def test_a_new_ledger_has_every_measured_column_and_takes_a_row_of_them(
    tmp_path: Path, connection: sqlite3.Connection
) -> None:
    usage = {"rank": "tag.r", "ordinal": 0, "phase": "", "uuid": "GPU-1", "utilization_from": "driver"}
    measured = {column.key: 1.0 + place for place, column in enumerate(USAGE)}
    assert not write_batch(connection, batch(*run_rows("r"), epoch_row("tag.r"), LedgerRow("usage", usage | measured)))
    connection.close()
    with Ledger(str(tmp_path / "state" / "ledger.sqlite")) as ledger:
        assert list(ledger.record("r").usage[0].values) == list(measured.values())


def test_the_tables_change_only_with_their_version() -> None:
    assert (VERSION, sha256(TABLES.encode()).hexdigest()[:16]) == (5, "f4987e087c958686")


def test_an_epoch_that_proves_broken_after_it_was_written_has_no_end(connection: sqlite3.Connection) -> None:
    write_batch(connection, batch(*run_rows("r", "k"), *(epoch_row("k", ordinal, epoch=7) for ordinal in (0, 1))))
    broken = Batch()
    broken.revoked_ends.append(("k", 7))
    write_batch(connection, broken)
    assert connection.execute("SELECT ordinal, ended IS NULL FROM epoch").fetchall() == [(0, 0), (1, 1)]
    connection.close()


def test_a_ledger_of_another_version_is_kept_aside_and_a_new_one_begun(tmp_path: Path) -> None:
    path = tmp_path / "state" / "ledger.sqlite"
    path.parent.mkdir(mode=0o700)
    ask(path, "CREATE TABLE run (id TEXT)")
    ask(path, f"PRAGMA user_version = {VERSION + 1}")
    store, said, _ = begin(tmp_path)
    store.put(batch(*run_rows("r")))
    store.close()
    (line,) = said
    aside = f"{path}.other-version-1"
    assert (f"has format {VERSION + 1}," in line, aside in line) == (True, True)
    assert ask(Path(aside), "SELECT name FROM sqlite_schema") == [("run",)]
    assert ask(path, "SELECT id FROM run") == [("r",)]


def test_a_ledger_that_another_version_puts_in_place_of_ours_is_left_to_it(tmp_path: Path) -> None:
    path, said = tmp_path / "state" / "ledger.sqlite", list[str]()
    file = StateFile(str(path), LEDGER_FILE, UID, said.append)
    file.connect()
    for found in path.parent.iterdir():
        found.unlink()
    ask(path, f"PRAGMA user_version = {VERSION + 1}")
    with pytest.raises(OtherVersion) as refused:
        file.connect()
    assert not file.handle_error(refused.value)
    assert (file.is_refused, len(said)) == (True, 1)
    assert [one.name for one in path.parent.iterdir()] == [path.name]


def test_a_damaged_ledger_is_moved_aside_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "state" / "ledger.sqlite"
    path.parent.mkdir(mode=0o700)
    for number in (1, 2):
        path.write_bytes(b"no database at all" * 500)
        store, said, _ = begin(tmp_path)
        store.put(batch(*run_rows("r")))
        assert store.close()
        assert ask(path, "SELECT id FROM run") == [("r",)]
        assert f"damaged-{number}" in said[0]
        assert Path(f"{path}.damaged-{number}").read_bytes().startswith(b"no database")
    assert len(list(path.parent.glob("*.damaged-*"))) == 2


def test_where_nothing_can_be_written_it_is_said_once_and_what_came_is_written_later(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file is in the way")
    store, said, path = begin(tmp_path)
    store.put(batch(*run_rows("r")))
    until(lambda: said)
    store.put(batch(*run_rows("s")))
    (tmp_path / "state").unlink()
    until(lambda: len(said) > 1)
    assert store.close()
    assert ask(path, "SELECT id FROM run ORDER BY id") == [("r",), ("s",)]
    assert "cannot write" in said[0]
    assert "writable again" in said[1]
    assert len(said) == 2


def test_a_ledger_that_is_locked_delays_nobody_and_loses_nothing(tmp_path: Path) -> None:
    open_to_write(
        str(tmp_path / "state" / "ledger.sqlite"), LEDGER_FILE, shared=False, uid=UID, log=pytest.fail
    ).close()
    store, said, path = begin(tmp_path)
    until(lambda: store.stored)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        for number in range(100):
            store.put(batch(*run_rows(f"r{number}")))
        assert threading.current_thread() is threading.main_thread(), "and put() came back each time"
        assert ask(path, "SELECT count(*) FROM run") == [(0,)]
        other.execute("COMMIT")
    assert store.close(30)
    assert ask(path, "SELECT count(*) FROM run") == [(100,)]
    assert said == []


def test_what_waits_in_memory_is_bounded_and_what_is_lost_is_said(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file is in the way")
    store, said, path = begin(tmp_path, max_rows=10)
    store.put(batch(*run_rows("r")))
    until(lambda: said)
    store.put(batch(*run_rows("r", epochs=77), *(epoch_row("tag.r", n) for n in range(20))))
    (tmp_path / "state").unlink()
    until(lambda: len(said) > 2)
    assert store.close()
    assert ask(path, "SELECT epochs FROM run") == [(77,)], "the newest of what can be replaced"
    assert ask(path, "SELECT count(*) FROM epoch") == [(8,)]
    assert said[2].endswith("12 rows were lost: writing failed until the memory limit was reached")


def test_a_file_that_somebody_removed_is_made_anew(tmp_path: Path) -> None:
    open_to_write(
        str(tmp_path / "state" / "ledger.sqlite"), LEDGER_FILE, shared=False, uid=UID, log=pytest.fail
    ).close()
    store, said, path = begin(tmp_path)
    store.put(batch(*run_rows("r")))
    until(lambda: ask(path, "SELECT id FROM run"))
    for suffix in ("", "-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    store.put(batch(*run_rows("s")))
    assert store.close()
    assert ask(path, "SELECT id FROM run") == [("s",)]
    assert said == []


def test_one_row_that_makes_no_sense_does_not_take_the_others_with_it(connection: sqlite3.Connection) -> None:
    rows = batch(*run_rows("r"), epoch_row("nobody"), epoch_row("tag.r", steps=1 << 80), epoch_row("tag.r", 1))
    assert write_batch(connection, rows) == 2
    assert connection.execute("SELECT rank, ordinal FROM epoch").fetchall() == [("tag.r", 1)]
    connection.close()


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ([1, 0], (RunState.RUNNING, None)),
        ([1, 1], (RunState.FINISHED, 301)),
        ([2, 1], (RunState.FAILED, 301)),
        ([3, 2], (RunState.DIED, 301)),
        ([4, 1], (RunState.INTERRUPTED, 301)),
        ([5, 1], (RunState.STOPPED, 301)),
        ([5, 4], (RunState.INTERRUPTED, 301)),
        ([3, 4], (RunState.DIED, 301)),
        ([2, 4], (RunState.FAILED, 301)),
    ],
)
def test_a_run_stands_as_the_worst_of_its_ranks(
    connection: sqlite3.Connection, states: list[int], expected: tuple[int, int | None]
) -> None:
    for number, state in enumerate(states):
        ended = 300 + number if state else None
        write_batch(connection, batch(*run_rows("r", f"k{number}", state=state, ended=ended)))
    assert connection.execute("SELECT state, ended FROM run").fetchall() == [expected]
    connection.close()


def test_a_row_that_is_written_again_is_replaced_as_a_whole(connection: sqlite3.Connection) -> None:
    usage = {"rank": "tag.r", "ordinal": 0, "phase": "", "uuid": "GPU-1", "utilization_from": "ticks"}
    write_batch(connection, batch(*run_rows("r"), LedgerRow("usage", {**usage, "energy": 5.0, "seconds": 1.0})))
    write_batch(connection, batch(LedgerRow("usage", {**usage, "seconds": 2.0})))
    assert connection.execute("SELECT energy, seconds FROM usage").fetchall() == [(None, 2.0)]
    connection.close()


def test_what_is_logged_late_goes_to_the_last_epoch_of_that_number(connection: sqlite3.Connection) -> None:
    rows = [epoch_row("tag.r", n, epoch=4, metrics='{"loss": 1e999}') for n in range(2)]
    late = batch(*run_rows("r"), *rows)
    late.late.append(LateMetrics("tag.r", 4, '{"accuracy": 0.5}'))
    write_batch(connection, late)
    found = connection.execute("SELECT metrics FROM epoch ORDER BY ordinal").fetchall()
    assert found == [('{"loss": 1e999}',), ('{"loss":1e999,"accuracy":0.5}',)]
    connection.close()


@pytest.mark.parametrize(
    ("earlier", "reached", "resumes"),
    [
        ({"state": 3, "ended": 500}, 2, True),  # killed: wherever it had come
        ({"state": 1, "ended": 500}, 6, True),
        ({"state": 1, "ended": 500}, 2, False),  # finished long before that epoch
        ({"state": 0, "ended": None}, 6, False),  # still runs
        ({"state": 3, "ended": 500, "user": "bob"}, 6, False),
        ({"state": 3, "ended": 500, "name": "other"}, 6, False),
    ],
)
def test_a_run_that_begins_later_goes_on_with_the_one_before(
    connection: sqlite3.Connection, earlier: dict[str, Any], reached: int, resumes: bool
) -> None:
    write_batch(connection, batch(*run_rows("old", **earlier), epoch_row("tag.old", epoch=reached)))
    write_batch(connection, batch(*run_rows("new", started=600, first_epoch=7)))
    write_batch(connection, batch(*run_rows("fresh", started=601)))
    found = dict(connection.execute("SELECT id, resumes FROM run").fetchall())
    assert found == {"old": None, "new": "old" if resumes else None, "fresh": None}
    connection.close()


@pytest.mark.parametrize(("seen_later", "resumes"), [(False, "first"), (True, "older")])
def test_a_run_waits_for_the_end_of_the_one_before_it(
    connection: sqlite3.Connection, seen_later: bool, resumes: str
) -> None:
    older = run_rows("older", started=100, ended=200, state=1)
    write_batch(connection, batch(*older, epoch_row("tag.older", epoch=9)))
    begun = 600 + 100 * SECOND
    write_batch(
        connection,
        batch(*run_rows("first", started=300, updated=500), *run_rows("second", started=begun, first_epoch=7)),
    )
    assert connection.execute("SELECT resumes FROM run WHERE id = 'second'").fetchall() == [(None,)], (
        "it may resume first"
    )
    if seen_later:  # both go on beside each other
        write_batch(connection, batch(*run_rows("first", started=300, updated=begun + 3 * SECOND)))
        write_batch(connection, batch(*run_rows("second", started=begun, first_epoch=7)))
    else:
        write_batch(connection, batch(*run_rows("first", started=300, updated=begun, ended=begun - 1, state=3)))
    assert connection.execute("SELECT resumes FROM run WHERE id = 'second'").fetchall() == [(resumes,)]
    connection.close()


def test_a_run_lasts_from_the_first_begin_of_its_ranks_to_the_last_end(connection: sqlite3.Connection) -> None:
    for number, (begun, seconds) in enumerate(((0, 2.0), (1, 2.0), (2, 0.5))):
        (run, rank) = run_rows("r", f"k{number}", rank=number, started=begun * SECOND)
        write_batch(connection, batch(run, LedgerRow("rank", {**rank.values, "seconds": seconds})))
    assert connection.execute("SELECT seconds FROM run").fetchall() == [(3.0,)]
    connection.close()


def test_a_rank_that_is_left_running_dies_unless_somebody_wrote_it_since(connection: sqlite3.Connection) -> None:
    for since, expected in ((199, (0, None)), (200, (3, 200))):
        rows = batch(*run_rows("r"), LedgerRow("progress", {"rank": "tag.r", "state": "{}"}))
        rows.dead.append(("tag.r", since))
        write_batch(connection, rows)
        assert connection.execute("SELECT state, ended FROM run").fetchall() == [expected]
        assert connection.execute("SELECT state, ended FROM rank").fetchall() == [expected]
    assert connection.execute("SELECT * FROM progress").fetchall() == []
    connection.close()


def test_a_withdrawn_run_leaves_nothing(connection: sqlite3.Connection) -> None:
    rows = batch(*run_rows("r"), epoch_row("tag.r"))
    write_batch(connection, rows)
    gone = Batch()
    gone.withdrawn.append("r")
    write_batch(connection, gone)
    for table in ("run", "rank", "epoch"):
        assert connection.execute(f"SELECT * FROM {table}").fetchall() == []
    connection.close()


def test_the_oldest_traces_go_when_there_is_no_room(connection: sqlite3.Connection) -> None:
    for number in range(4):
        ended = 900 if number < 3 else None
        state: dict[str, Any] = {"state": 1, "ended": ended} if ended else {}
        key = f"tag.r{number}"
        noise = array("f", os.urandom(920))
        cells = {"begun": 1, "step": 1.0, "points": 1, "columns": "[]", "cells": [Envelope(noise, noise, noise)]}
        trace = LedgerRow("trace", {"rank": key, "uuid": "GPU-1", **cells})
        write_batch(connection, batch(*run_rows(f"r{number}", started=100 - number, **state), trace), trace_room=3100)
    assert connection.execute("SELECT rank FROM trace ORDER BY rank").fetchall() == [
        ("tag.r0",), ("tag.r1",), ("tag.r3",)
    ]  # fmt: skip
    (packed,) = connection.execute("SELECT cells FROM trace LIMIT 1").fetchone()
    (line,) = unpack_trace(packed, 230)
    assert len(line.mean) == 230
    connection.close()


def test_network_file_systems_are_told_from_others(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "21 1 0:5 / / rw shared:1 - ext4 /dev/sda1 rw\n22 21 0:6 / /home rw - nfs4 server:/home rw\n"
        "23 22 0:7 / /home/local rw shared:3 - xfs /dev/sdb rw\n"
    )
    assert is_on_network("/home/alice/ledger.sqlite", str(mounts))
    assert not is_on_network("/home/local/ledger.sqlite", str(mounts))
    assert not is_on_network("/homework/ledger.sqlite", str(mounts))
    path = Path("/home/alice/ledger.sqlite")
    assert not is_on_network(str(path), str(tmp_path / "missing"))
    mounts.write_text(f"1 0 0:1 / {tmp_path} rw - nfs server:/ rw\n")
    own = tmp_path / "state" / "ledger.sqlite"
    open_to_write(str(own), LEDGER_FILE, shared=False, uid=UID, log=pytest.fail, mounts=str(mounts)).close()
    assert ask(own, "PRAGMA journal_mode") == [("delete",)], "no WAL; how it truncates is each connection's own"


def test_readers_find_their_own_ledger_and_that_of_the_machine(tmp_path: Path) -> None:
    own, machine = tmp_path / "own", tmp_path / "machine"
    for directory in (own, machine):
        directory.mkdir()
    where = Places(state=str(own), system_state=str(machine))
    assert ledger_path(where) == f"{own}/ledger.sqlite"
    assert ledger_paths(where) == []
    for directory in (own, machine):
        (directory / "ledger.sqlite").touch()
    assert ledger_paths(where) == [f"{own}/ledger.sqlite", f"{machine}/ledger.sqlite"]
    assert ledger_paths(where._replace(state=str(machine))) == [f"{machine}/ledger.sqlite"]
    assert ledger_paths(where._replace(explicit="/somewhere")) == [f"{own}/ledger.sqlite"]
    assert ledger_path(Places()) == ""


def test_root_keeps_the_ledger_of_the_whole_machine_unless_told_otherwise() -> None:
    root = places(env={"HOME": "/root"})._replace(uid=0)
    assert ledger_path(root) == "/var/lib/gpumon/ledger.sqlite"
    assert ledger_path(root._replace(uid=1000)) == "/root/.local/state/gpumon/ledger.sqlite"
    assert ledger_path(places(env={"HOME": "/root", "GPUMON_DIR": "/x"})) == "/root/.local/state/gpumon/ledger.sqlite"
    assert ledger_path(places(state="/here", env={"HOME": "/root"})) == "/here/ledger.sqlite"


def cells_of(trace: TraceRecorder) -> list[tuple[float, float, float]]:
    return [cell for line in trace.cells() for cell in zip(*line, strict=True)]


def test_a_trace_keeps_least_mean_and_most_and_a_gap_stays_a_gap() -> None:
    trace = TraceRecorder(0, 0, 10, ["a"])
    for at, value in ((0, 1.0), (5, 3.0), (31, 7.0)):
        trace.add(at, [value])
    assert trace.points == 4
    found = cells_of(trace)
    assert found[0] == (1.0, 2.0, 3.0)
    assert found[1][0] != found[1][0], "nothing was seen"
    assert found[3] == (7.0, 7.0, 7.0)


def test_a_trace_of_any_length_has_a_bounded_number_of_points_and_loses_no_extreme() -> None:
    trace = TraceRecorder(0, 0, 10, ["a"])
    count = 5 * POINTS
    for i in range(count):
        trace.add(10 * i, [1000.0 if i == 777 else float(i % 2)])
    assert trace.points <= POINTS
    assert trace.step_ns == 80
    found = cells_of(trace)
    assert max(most for _, _, most in found) == 1000.0
    assert found[0] == (0.0, 0.5, 1.0)
    trace.add(10**12, [5.0])
    assert trace.points <= POINTS
    assert cells_of(trace)[-1] == (5.0, 5.0, 5.0)


def test_a_trace_of_logged_values_never_mixes_two_of_them_and_keeps_the_last_one_and_the_extremes() -> None:
    trace = TraceRecorder(0, 0, 10, [], keeps_last=True)
    for epoch in range(6):
        trace.log(4 * epoch, {"loss": 1 / (epoch + 1)})
    assert [mean for _, mean, _ in cells_of(trace)] == pytest.approx([1 / 3, 1 / 5, 1 / 6])
    assert cells_of(trace)[0] == pytest.approx((1 / 3, 1 / 3, 1))


def test_logged_values_stay_as_they_were_logged_when_the_points_of_a_long_run_are_joined() -> None:
    trace, logged = TraceRecorder(0, 0, 10, [], keeps_last=True), set()
    for at in range(3 * POINTS):
        logged.add(value := float(at * at % 4099))
        trace.log(10 * at, {"loss": value})
    assert trace.step_ns == 40
    assert {mean for _, mean, _ in cells_of(trace) if mean == mean} <= logged
    assert cells_of(trace)[0][1] == 9.0, "the last of 0, 1, 4 and 9"


def test_points_of_a_logged_metric_that_are_drawn_as_one_have_the_last_of_their_values() -> None:
    course = Envelope([1.0, 0.5, 0.25, NAN, NAN], [1.0, 0.5, 0.25, NAN, NAN], [1.0, 0.5, 0.25, NAN, NAN])
    assert thin(course, 2, keeps_last=True).mean == pytest.approx([0.5, 0.25, NAN], nan_ok=True)
    assert thin(course, 2, keeps_last=True).high == pytest.approx([1.0, 0.25, NAN], nan_ok=True)
    assert thin(course, 2).mean == pytest.approx([0.75, 0.25, NAN], nan_ok=True)


def test_a_trace_goes_on_after_a_restart_and_takes_columns_on_the_way() -> None:
    trace = TraceRecorder(0, 0, 10, ["a"])
    trace.add(0, [2.0])
    trace.add(15, [4.0])
    again = TraceRecorder(0, 0, 10, ["a"])
    again.restore(trace.cells(), trace.points, 1)
    again.column("b")
    again.add(35, [6.0, 1.0])
    found = cells_of(again)
    assert [cell[1] for cell in found[:4]][:2] == [2.0, 4.0]
    assert found[3] == (6.0, 6.0, 6.0)
    assert found[7] == (1.0, 1.0, 1.0)
    with pytest.raises(ValueError, match="another shape"):
        again.restore(trace.cells(), 3, 1)
