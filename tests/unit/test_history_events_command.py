"""`gpumon history events`: the log as a table and as JSON."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from gpumon.cli import main
from gpumon.common.clock import SECOND
from gpumon.daemon.followers import ActivityRecorder
from gpumon.model.frame import Mark, RunState, Sample, Tick, XidEvent
from gpumon.model.metrics import Availability
from gpumon.storage.history.recorder import HistoryRecorder
from tests.builders import boundary, device, process, run, sample, tick
from tests.programs import PATIENCE
from tests.unit.conftest import Printed

GIB = 2.0**30


@pytest.fixture
def path(history_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COLUMNS", "0")
    return history_path


@pytest.fixture
def filled(path: Path, kept: tuple[Path, float]) -> float:
    """The begin of an hour that ended a minute ago, with everything that may happen."""
    directory, begin = kept
    shutil.copytree(directory, path.parent)
    return begin


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    """A directory with the history of such an hour, and its begin."""
    path = tmp_path_factory.mktemp("kept") / "state" / "history.sqlite"
    begin = float(time.time() // 1 - 3660)
    key = "tag.1000.4711.abcd"
    oom = boundary(5, mark=Mark.OUT_OF_MEMORY)._replace(
        time_ns=round((begin + 70) * SECOND), asked=2 * GIB, free=0.5 * GIB
    )

    def at(s: int) -> Tick:
        hot = min(max(s - 200, 0), 40) * 0.5
        fallen = XidEvent(device(2).uuid, 79, (100 + s) * SECOND, round((begin + s) * SECOND) - 7)
        gpus: list[Sample] = [
            sample(0, utilization=0.9, memory_used=8 * GIB, memory_total=80 * GIB, throttled_hw_thermal=hot),
            sample(1, utilization=0.0, memory_used=8 * GIB, memory_total=80 * GIB),
            sample(2, Availability.LOST) if 500 <= s < 800 else sample(2, utilization=0.5),
        ]
        training = run(
            key, gpus=(device().uuid,), started=begin + 4, updated=begin + 75,
            state=RunState.RUNNING if s < 76 else RunState.FAILED,
        )  # fmt: skip
        return tick(
            1, gpus, [process(1, 1, user="bob")], [training], [oom] if s == 70 else [],
            time_ns=round((begin + s) * SECOND), monotonic_ns=(100 + s) * SECOND, interval_ns=2 * SECOND,
            xids=[fallen] if s == 500 else [],
        )  # fmt: skip

    # Through the follower, as a daemon does it: the others here take a shorter way.
    history = HistoryRecorder(
        str(path), os.getuid(), pytest.fail, plugins=[ActivityRecorder(lambda: round((begin + 3600) * SECOND))]
    ).start()
    for s in range(0, 3601, 2):
        history.add(at(s))
        while len(history._ticks) > 200:
            time.sleep(0.005)
    history.close(PATIENCE)
    return path.parent, begin


def test_events_stand_in_the_order_of_their_times_with_their_details(filled: float, printed: Printed) -> None:
    head, *rows = printed("events").splitlines()
    assert head.split() == ["TIME", "EVENT", "GPU", "USER", "RUN", "DETAILS"]
    assert [row[:19] for row in rows] == sorted(row[:19] for row in rows)
    text = "\n".join(" ".join(row[19:].split()) for row in rows)
    for told in (
        "daemon started nvml",
        "run began alice resnet50-1a2b",
        "out of memory 0 alice resnet50-1a2b requested 2.0 GiB, 512 MiB free",
        "run failed alice resnet50-1a2b after 1:11",
        "throttling began 0 heat (hardware)",
        "throttling ended 0 heat (hardware), after 38 s",
        "allocated but idle 1 bob idle since the first sample",
        "GPU lost 2 the driver lost this GPU",
        "GPU back 2 after 5:00",
        "XID error 2 79: the GPU fell off the bus",
        "end not seen 1 bob allocated but idle",
        "daemon stopped after 1:00:00",
    ):
        assert told in text


def test_json_has_exact_times_and_null_for_what_is_not_there(filled: float, printed: Printed) -> None:
    found = json.loads(printed("events", "--json", "--kind", "gpu_lost", "--kind", "out_of_memory"))
    oom, lost = found["events"]
    assert (oom["kind"], oom["severity"], oom["time_ns"]) == ("out_of_memory", "critical", int(filled + 70) * SECOND)
    assert (lost["uuid"], lost["user"], lost["run"], lost["lasted"]) == (device(2).uuid, None, None, None)
    assert oom["details"]["asked"] == 2 * GIB


def test_a_run_that_failed_is_critical_and_has_the_name_of_an_end(filled: float, printed: Printed) -> None:
    (found,) = json.loads(printed("events", "--json", "--kind", "run_ended"))["events"]
    assert (found["severity"], found["details"]["state"]) == ("critical", "failed")


def test_json_of_an_xid_error_has_its_code_its_severity_and_its_nanosecond(filled: float, printed: Printed) -> None:
    (found,) = json.loads(printed("events", "--json", "--kind", "xid"))["events"]
    assert found["time_ns"] == int(filled + 500) * SECOND - 7
    assert (found["severity"], found["cause"], found["uuid"]) == ("critical", "79", device(2).uuid)
    assert (found["details"]["code"], "fell off the bus" in found["details"]["meaning"]) == (79, True)


def test_a_gpu_is_asked_for_by_number_and_by_uuid(filled: float, printed: Printed) -> None:
    by_number, by_uuid = printed("events", "--gpu", "2"), printed("events", "--gpu", device(2).uuid)
    assert by_number == by_uuid
    assert len(by_number.splitlines()) == 4
    assert len(printed("events", "--user", "bob").splitlines()) == 3
    assert "no events" in printed("events", "--run", "nobody")


def test_a_narrow_list_leaves_the_year_out_before_the_gpu(
    filled: float, printed: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpumon.cli.history_events.output_width", lambda: 40)
    head, row, *_ = printed("events", "--kind", "idle_began").splitlines()
    assert head.split() == ["TIME", "EVENT", "GPU"]
    assert row.split()[-1] == "1"
    assert len(row) <= 40
    shown = "%Y-%m-%d %H:%M:%S"
    assert f"2000-{row[:14]}" == time.strftime(shown, time.strptime(f"2000-{row[:14]}", shown))


def test_a_narrow_list_tells_gpus_of_which_only_the_uuid_is_known_apart(
    filled: float, path: Path, printed: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM device")
    monkeypatch.setattr("gpumon.cli.history_events.output_width", lambda: 40)
    head, *rows = printed("events", "--kind", "idle_began", "--kind", "gpu_lost").splitlines()
    assert head.split() == ["TIME", "EVENT", "GPU"]
    assert [" ".join(row.split()[2:]) for row in rows] == ["allocated but… GPU…0001", "GPU lost GPU…0002"]
    assert max(map(len, rows)) <= 40


@pytest.mark.parametrize("name", ["GPU-x", "77", "-1", ""])
def test_a_gpu_that_nobody_knows_is_one_line_with_those_that_are_known(
    filled: float, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert main(["history", "events", f"--gpu={name}"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"no such GPU: '{name}'" in line
    assert f"2 ({device(2).uuid})" in line


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--kind", "miracle"], "invalid choice"), (["--since", "soon"], "not a time"), (["--until", "9d"], "empty")],
)
def test_what_cannot_be_asked_is_one_line(
    filled: float, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    try:
        code = main(["history", "events", *words])
    except SystemExit as leaving:
        code = int(str(leaving.code))
    assert code == 2
    assert said in capsys.readouterr().err
