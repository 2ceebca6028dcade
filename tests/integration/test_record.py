"""`gpumon record`, as a user runs it: from a daemon, without one, killed, and played again."""

from __future__ import annotations

import signal
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from gpumon.analysis.logged_epochs import LoggedEpochs
from gpumon.common.errors import SourceError
from gpumon.common.paths import Places
from gpumon.live import follow
from gpumon.model.frame import Boundary, Mark
from tests.programs import PATIENCE, Child, command, daemon, environment, gpumon, in_process, status, until
from tests.recorded import bits, read


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    live = tmp_path / "live"
    live.mkdir(mode=0o700)
    return environment(live)


@pytest.fixture
def simulating(env: dict[str, str]) -> Iterator[dict[str, str]]:
    """The environment of a daemon that simulates one GPU, ten times a second."""
    with daemon("--source", "sim:one", "--interval", "0.02", env=env):
        yield env


def recorder(env: Mapping[str, str], path: Path, *options: str) -> subprocess.Popen[str]:
    """A recorder, of which the file has its first frames."""
    process = subprocess.Popen(
        command("record", "-o", path, *options), env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    until(lambda: has_frames(path))
    return process


def has_frames(path: Path) -> bool:
    try:
        return bool(read(path)[0])
    except SourceError:
        return False


def test_a_daemon_is_recorded_until_ctrl_c(simulating: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "a.gpumon"
    process = recorder(simulating, path)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert out.splitlines()[0] == f"recording into {path} until Ctrl-C"
    assert out.splitlines()[1].startswith("recorded ")
    assert err == ""
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    found, problem = read(path)
    assert problem == ""
    numbers = [one.frame.number for one in found]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert f"recorded {len(found)} frame" in out


def test_a_recording_is_played_and_recorded_again_without_a_difference(env: dict[str, str], tmp_path: Path) -> None:
    first, second = tmp_path / "a.gpumon", tmp_path / "b.gpumon"
    sim = ("--source", "sim:one", "--interval", "0.1")
    done = gpumon("record", "-o", str(first), "--for", "1s", *sim, env=env)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == f"recording into {first} for 1.0 s; Ctrl-C stops it earlier"
    done = gpumon("record", "-o", str(second), "--source", f"replay:{first}", "--speed", "10", env=env)
    assert done.returncode == 0, done.stderr
    (before, _), (after, problem) = read(first), read(second)
    assert [bits(one.frame, number=False) for one in after] == [bits(one.frame, number=False) for one in before]
    assert problem == ""
    assert after[0].context.origin.label.startswith("REPLAY a.gpumon ")


def test_the_last_minutes_of_a_daemon_are_recorded_at_once(simulating: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "a.gpumon"
    done = gpumon("record", "-o", str(path), "--last", "2m", env=simulating)
    assert done.returncode == 0, done.stderr
    found, _ = read(path)
    assert 110 <= found[-1].frame.time - found[0].frame.time <= 121
    parts = [one.context.part for one in found]
    assert set(parts) <= {"values", "frames"}
    assert parts == sorted(parts, reverse=True)
    assert parts[-1] == "frames"
    assert f"{parts.count('values')} of {len(parts)} frames" in done.stderr  # have no processes and no runs
    done = gpumon("record", "-o", str(path), "--last", "2h", "--force", env=simulating)
    assert done.returncode == 0
    assert "the daemon holds frames since " in done.stderr


def test_a_recorder_that_is_killed_leaves_what_it_wrote(env: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "a.gpumon"
    process = recorder(env, path, "--source", "sim:one", "--interval", "0.1")
    process.kill()
    process.communicate()
    found, problem = read(path)
    assert found
    assert problem.startswith(
        "a.gpumon has no end marker: the file was truncated or the recorder was killed; it plays up to "
    )
    played = status(env, "--source", f"replay:{path}")
    assert played["gpus"][0]["uuid"] == found[0].frame.samples[0].device.uuid


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("-o", "a", "--last", "2h"), "--last records the samples that a daemon holds, but no daemon is running"),
        (("-o", "a", "--for", "soon"), "'soon' is not a duration: write 90s, 10m or 2h"),
        (("-o", "a", "--for", "0s"), "'0s' is not a duration"),
        (("-o", "no/such/place", "--source", "sim:one"), "cannot write no/such/place: No such file or directory"),
        (("-o", ".", "--source", "sim:one"), ". exists: choose another name, or add --force"),
        (("-o", ".", "--force", "--source", "sim:one"), ". is not a regular file: choose another name"),
        (("-o", "a", "--source", "sim:one", "--for", "1s", "--from", "10m"), "--from and --to are for a recording"),
        (("-o", "a", "--source", "replay:b", "--from", "noon"), "'noon' is not a time in a recording"),
    ],
)
def test_what_makes_no_sense_is_one_line(
    options: tuple[str, ...], sentence: str, env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = in_process("record", *options, env=env)
    assert done.returncode in (1, 2)
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("name", ["status", "tui", "web", "daemon"])
def test_a_portion_of_what_is_no_recording_is_refused_by_every_command(name: str, env: dict[str, str]) -> None:
    done = in_process(name, "--from", "10m", env=env)
    assert done.returncode == 2
    assert done.stderr == "gpumon: --speed, --from and --to are for a recording: pass one with --source replay:FILE\n"


def test_a_full_disk_ends_it_with_one_line(simulating: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "a.gpumon"
    # A limit on the size of a file stands for a disk that is full; the daemon, and its ring, have none.
    words = " ".join(map(str, command("record", "-o", path)))
    done = subprocess.run(
        ["bash", "-c", f"ulimit -f 8; exec {words}"], env=simulating, capture_output=True, text=True, check=False,
        timeout=PATIENCE,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith("gpumon: a.gpumon: the disk is full: the recording ends at ")
    assert done.stderr.count("\n") == 1
    found, problem = read(path)
    assert found
    assert problem.startswith("a.gpumon has no end marker")


LOGS_AT_ENDS = """
import sys
import gpumon

with gpumon.run("fits", epochs=3) as run:
    for epoch in run.epochs():
        run.step()
        print("in", flush=True)
        sys.stdin.readline()
        run.log(loss=1 / (epoch + 1))
    print("over", flush=True)
    sys.stdin.readline()
"""


def test_a_loss_logged_once_at_the_end_of_each_epoch_belongs_to_that_epoch(env: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "a.gpumon"
    logged: dict[int, object] = {}
    live = follow(Places(explicit=env["GPUMON_DIR"]))

    def seen(epoch: int) -> bool:
        """Whether the run is in that epoch in the newest frame, which the recorder gets, too."""
        return any((run.name, run.epoch) == ("fits", epoch) for run in live.latest().runs)

    with daemon("--interval", "0.1", env=env):
        process = recorder(env, path)
        with Child(
            [sys.executable, "-c", LOGS_AT_ENDS], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as trains:
            assert trains.stdin
            assert trains.stdout
            for epoch in range(3):
                assert trains.stdout.readline() == "in\n"
                until(lambda epoch=epoch: seen(epoch))  # type: ignore[misc]
                trains.stdin.write("\n")
                trains.stdin.flush()
            assert trains.stdout.readline() == "over\n"
            until(lambda: any(one.mark is Mark.EPOCH_END and one.epoch == 2 for one in boundaries(path)))
            trains.kill()
        process.send_signal(signal.SIGINT)
        process.communicate()
    told = LoggedEpochs()
    for one in read(path)[0]:
        told.add(one.frame)
        for run in one.frame.runs:
            logged = {epoch: told.values(run.id, epoch) for epoch in range(3)}
    assert logged == {0: {"loss": 1.0}, 1: {"loss": 1 / 2}, 2: {"loss": 1 / 3}}


def boundaries(path: Path) -> list[Boundary]:
    return [boundary for one in read(path)[0] for boundary in one.frame.boundaries]
