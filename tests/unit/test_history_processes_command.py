"""`gpumon history processes`: who was on which GPU, as a table, as JSON and as CSV; and the same from Python."""

from __future__ import annotations

import csv
import io
import json
import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from math import nan
from pathlib import Path

import pytest

from gpumon.cli import main
from gpumon.common.clock import SECOND
from gpumon.common.errors import UsageError
from gpumon.common.text import text_width
from gpumon.daemon.followers import ActivityRecorder
from gpumon.live import connect
from gpumon.reports.processes import FIELDS
from gpumon.ring.writer import RingWriter
from gpumon.storage.history.recorder import HistoryRecorder
from gpumon.storage.processes.blocks import NAMES
from gpumon.storage.processes.recorder import ProcessRecorder
from tests.builders import device, process, sample, tick
from tests.programs import PATIENCE

GIB = 2.0**30
Printed = Callable[..., str]


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GPUMON_DIR", str(tmp_path / "live"))
    monkeypatch.setenv("GPUMON_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "0")
    return tmp_path / "state" / "history.sqlite"


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Printed:
    def ask(*words: str) -> str:
        assert main(["history", "processes", *words]) == 0
        return capsys.readouterr().out

    return ask


@pytest.fixture
def filled(path: Path) -> float:
    """The begin of ten minutes that have just ended: alice's process on GPU 0 throughout, bob's on GPU 1 for two."""
    begin = float(time.time() // 10 * 10 - 600)
    alice = process(1, started=begin - 50, memory_used=3 * GIB, sm_utilization=0.25, host_memory=GIB)
    bob = process(2, 1, started=begin + 100, user="bob", name="训练" * 20, memory_used=nan)
    half = bob._replace(sm_utilization=0.5)
    # Through the follower, as a daemon does it.
    parts = [ActivityRecorder(), ProcessRecorder()]
    history = HistoryRecorder(str(path), os.getuid(), pytest.fail, plugins=parts).start()
    for s in range(0, 601, 2):
        there = [alice, bob if s < 160 else half] if 100 <= s < 220 else [alice]
        history.add(
            tick(
                1, [sample(0), sample(1)], there, time_ns=round((begin + s) * SECOND), monotonic_ns=(100 + s) * SECOND,
                interval_ns=2 * SECOND,
            )
        )  # fmt: skip
        while len(history._ticks) > 200:
            time.sleep(0.005)
    history.close(PATIENCE)
    return begin


def test_a_row_says_who_was_where_for_how_long_and_with_how_much(filled: float, printed: Printed) -> None:
    head, heading, alice, bob, note = printed().splitlines()
    assert head.startswith("from 20")
    assert heading.split("  ")[0] == "GPU"
    assert "".join(heading.split()) == "GPUPIDUSERPROGRAMFROMTOGPUTIMEMEMMAXGPUMEMSMCPUHOSTMEM"
    assert alice.split()[:4] == ["0", "1", "alice", "python"]
    assert "10 min" in alice
    assert "3.0 GiB" in alice
    assert "25 %" in alice
    assert bob.split()[:3] == ["1", "2", "bob"]
    assert "50 %*" in bob
    assert note.startswith("* measured for only part of the time")


def test_what_is_not_known_is_null_and_an_empty_cell(filled: float, printed: Printed) -> None:
    found = json.loads(printed("--json", "--user", "bob"))
    (bob,) = found["processes"]
    assert (found["schema"], bob["uuid"], bob["index"], bob["pid"], bob["held"]) == (1, device(1).uuid, 1, 2, 120)
    assert bob["memory_used"] == {"mean": None, "peak": None, "seconds": 0}
    assert bob["sm_utilization"] == {"mean": 0.5, "peak": 0.5, "seconds": 60}
    assert (bob["first"], bob["last"], bob["started"]) == (filled + 100, filled + 220, filled + 100)
    head, alice, other = csv.reader(io.StringIO(printed("--csv")))
    assert tuple(head) == FIELDS
    assert dict(zip(head, alice, strict=True))["memory_used_peak_bytes"] == str(3 * GIB)
    assert dict(zip(head, other, strict=True))["memory_used_peak_bytes"] == ""


def test_what_was_not_kept_is_counted(filled: float, path: Path, printed: Printed) -> None:
    assert json.loads(printed("--json"))["left_out"] == 0
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(
            "INSERT INTO event VALUES (?, 'processes_left_out', '', '', '', '', '', NULL, NULL, ?)",
            (round((filled + 60) * SECOND), json.dumps({"count": 1030, "left_out": 6})),
        )
    assert json.loads(printed("--json"))["left_out"] == 6
    assert printed().splitlines()[-1] == "and up to 6 more processes at a time, which were not recorded"
    assert (
        json.loads(printed("--json", "--until", str(datetime.fromtimestamp(filled - 100).isoformat())))["left_out"] == 0
    )


@pytest.mark.parametrize("width", [40, 80, 120])
def test_a_narrow_terminal_keeps_who_and_how_long(
    filled: float, printed: Printed, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    from gpumon.reports import processes

    with closing(connect()) as live:
        found = live.processes("24h")
    rows = list(processes.lines(found, width))[1:]
    assert all(text_width(row) <= width for row in rows[:3])
    assert {"PID", "USER", "PROGRAM"} <= set(rows[0].split())
    assert rows[0].split()[0] == "GPU", "of a process on two GPUs, it tells which row is which"
    assert "GPU TIME" in rows[0]
    assert rows[1].split()[-1] != ""


def test_a_gpu_is_chosen_by_number_and_by_uuid_and_an_unknown_one_is_refused(
    filled: float, printed: Printed, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("1", device(1).uuid):
        assert [one["pid"] for one in json.loads(printed("--json", "--gpu", name))["processes"]] == [2]
    assert main(["history", "processes", "--gpu", "7"]) == 2
    assert "no such GPU: 7" in capsys.readouterr().err
    for command in ("processes", "totals"):
        assert main(["history", command, "--gpu", "9" * 5000]) == 2, "Python does not read a number of so many digits"
        assert "no such GPU: '999" in capsys.readouterr().err


@pytest.mark.parametrize("pid", ["0", "-1", "garbage", "9" * 5000, "²"])
def test_what_is_no_pid_is_refused_and_not_taken_for_all(
    filled: float, pid: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["history", "processes", "--pid", pid]) == 2
    assert "not a pid" in capsys.readouterr().err


def test_a_window_without_any_does_not_say_that_there_was_none(filled: float, printed: Printed) -> None:
    assert "not recorded" in printed("--since", "2020-01-01", "--until", "2020-01-02")
    assert "not recorded" in printed("--user", "nobody")


def test_a_name_with_an_asterisk_is_no_mark_of_a_partial_value(filled: float) -> None:
    from gpumon.reports import processes

    with closing(connect()) as live:
        found = live.processes("24h", user="alice")
    (use,) = found.processes
    odd = replace(use, process=use.process._replace(name="train*", user="a*"))
    assert not any("of a part" in row for row in processes.lines(replace(found, processes=[odd])))


def test_without_a_file_that_can_be_seen_those_in_memory_are_shown_and_said_to_be_all(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (path.parents[1] / "live").mkdir(mode=0o700)
    now = time.time_ns()
    with closing(RingWriter.create(str(path.parents[1] / "live" / "ring"), 4, SECOND)) as ring:
        for s in range(3):
            ring.append(tick(s + 1, [sample(0)], [process(1)], time_ns=now + (s - 2) * SECOND, monotonic_ns=s * SECOND))
        assert main(["history", "processes", "--json"]) == 0
        out, err = capsys.readouterr()
        assert [(one["pid"], one["held"]) for one in json.loads(out)["processes"]] == [(1, 2)]
        assert "not the whole window" in err
        assert main(["history", "processes", "--pid", "7"]) == 1
        assert "no processes recorded yet" in capsys.readouterr().err


def test_the_overview_counts_processes(filled: float, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert any(row.split()[0] == "processes" and row.endswith("2 rows") for row in rows)
    assert any(row.strip().startswith("processes 10 s") and row.endswith("B") for row in rows)


def test_in_python_none_is_all_and_what_is_no_process_is_refused(filled: float) -> None:
    with closing(connect()) as live:
        assert [use.process.pid for use in live.processes("24h", user=None, pid=None).processes] == [1, 2]
        (use,) = live.processes("24h", user="bob").processes
        with pytest.raises(UsageError, match="the `process` of a result"):
            live.process_lines(use, "24h")  # type: ignore[arg-type]


def test_python_has_the_same_processes_and_their_lines(filled: float) -> None:
    with closing(connect()) as live:
        alice, bob = live.processes("24h").processes
        (again,) = live.processes("24h", devices=device(1)).processes
        assert again == bob
        found = live.process_lines(alice.process, begin=filled, end=filled + 600, points=61)
    assert found.problem == ""
    assert set(found.series) == set(NAMES)
    assert {value for value in found.series["memory_used"].mean if value == value} == {3 * GIB}
