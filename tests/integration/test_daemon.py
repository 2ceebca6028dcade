"""A real daemon on the stub driver: one writer, survives what may happen to it, and says what is wrong."""

from __future__ import annotations

import itertools
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import pytest

from gpumon.common.errors import RingError
from gpumon.common.paths import Places
from gpumon.live import follow
from gpumon.model.frame import Frame
from gpumon.model.metrics import Availability
from gpumon.ring.reader import RingReader
from tests.nvml import Stub
from tests.programs import PATIENCE, Child, command, daemon, environment, gpumon, slept_until_end, status, until


@pytest.fixture
def env(stub: Stub, live_dir: Path) -> dict[str, str]:
    return environment(live_dir, stub.env())


def newest(live_dir: Path) -> int:
    """Number of the newest frame."""
    reader = RingReader.open(str(live_dir / "ring"))
    try:
        frame = reader.newest()
        return frame.number if frame else 0
    finally:
        reader.close()


def test_a_second_daemon_says_who_holds_the_directory(env: dict[str, str]) -> None:
    with daemon(env=env) as first:
        second = gpumon("daemon", env=env)
        assert second.returncode == 1
        assert f"pid {first.pid}" in second.stderr
        assert "Traceback" not in second.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_daemon_says_so_and_leaves_its_history(
    env: dict[str, str], live_dir: Path, number: signal.Signals
) -> None:
    with daemon("--interval", "0.05", env=env) as process:
        until(lambda: newest(live_dir) > 3)
        process.send_signal(number)
        assert process.wait(timeout=PATIENCE) == 0
    live = follow(Places(explicit=str(live_dir)))
    assert "stopped" in live.state().text
    assert live.latest() is not None


def test_detach_returns_once_the_first_frame_is_there(env: dict[str, str], live_dir: Path) -> None:
    done = gpumon("daemon", "--detach", env=env)
    assert done.returncode == 0, done.stderr
    pid = int(done.stdout.split()[2].rstrip(":"))
    try:
        assert newest(live_dir) >= 1
        assert status(env)["daemon"]["pid"] == pid
    finally:
        os.kill(pid, signal.SIGTERM)
    until(lambda: not Path(f"/proc/{pid}").exists())


@pytest.mark.parametrize("name", ["a into b (1)", b"caf\xe9", "relative"])
def test_a_daemon_detaches_into_a_directory_of_any_name(env: dict[str, str], tmp_path: Path, name: str | bytes) -> None:
    directory = tmp_path / os.fsdecode(name)
    named = directory.name if name == "relative" else str(directory)
    done = gpumon("daemon", "--detach", "--dir", named, env=env, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    pid = int(done.stdout.split()[2].rstrip(":"))
    try:
        assert (directory / "daemon.log").read_text() == ""
        assert status(env | {"GPUMON_DIR": str(directory)})["daemon"]["pid"] == pid
    finally:
        os.kill(pid, signal.SIGTERM)
    until(lambda: not Path(f"/proc/{pid}").exists())


def test_a_daemon_whose_log_cannot_be_written_says_so_and_does_not_run(env: dict[str, str], live_dir: Path) -> None:
    live_dir.mkdir(mode=0o700, exist_ok=True)
    (live_dir / "daemon.log").mkdir()
    done = gpumon("daemon", "--detach", env=env)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert f"cannot write {live_dir}/daemon.log" in done.stderr
    assert status(env)["daemon"] is None


def test_detaching_ends_although_the_driver_hangs_and_the_daemon_reads_it_once_it_answers(
    env: dict[str, str], stub: Stub, live_dir: Path
) -> None:
    stub.set_latency("nvmlDeviceGetMemoryInfo_v2", HANG)
    done = gpumon("daemon", "--detach", env=env)
    assert done.returncode == 0  # on a busy machine it also says that the first sample takes long
    pid = int((live_dir / "lock").read_text().split()[0])
    try:
        live = follow(Places(explicit=str(live_dir)))
        assert _states(until(live.latest)) == {Availability.STALE}
        stub.set_latency("nvmlDeviceGetMemoryInfo_v2", 0)
        until(lambda: (frame := live.latest()) and _states(frame) == {Availability.OK})
        assert live.writer_pid() == pid
    finally:
        os.kill(pid, signal.SIGTERM)
    until(lambda: not Path(f"/proc/{pid}").exists())


@pytest.mark.parametrize("name", ["ring", "lock", "tags"])
def test_a_directory_in_which_something_else_has_our_names_is_no_fault_of_ours(
    env: dict[str, str], live_dir: Path, name: str
) -> None:
    live_dir.mkdir(mode=0o700, exist_ok=True)
    if name == "tags":
        (live_dir / name).symlink_to("/nowhere")
    else:
        (live_dir / name).mkdir()
    done = gpumon("daemon", env=env)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert f"{live_dir}/{name}" in done.stderr
    assert "internal error" not in done.stderr


def test_detach_tells_what_is_wrong_in_the_foreground(env: dict[str, str]) -> None:
    done = gpumon("daemon", "--detach", "--source", "replay:/nowhere.csv", env=env)
    assert done.returncode == 1
    assert "/nowhere.csv" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--interval", "0"], 2, "--interval: invalid interval 0 s: give 0.01 to 60 seconds"),
        (["--source", "cuda"], 2, "unknown source 'cuda'"),
        (["--source", "replay:/nowhere.csv"], 1, "/nowhere.csv"),
        (["--source", "sim:mars"], 2, "mars"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(
    env: dict[str, str], options: list[str], code: int, words: str
) -> None:
    done = gpumon("daemon", *options, env=env)
    assert done.returncode == code
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_directory_that_others_can_write_is_refused(env: dict[str, str], live_dir: Path) -> None:
    live_dir.chmod(0o777)
    done = gpumon("daemon", env=env)
    assert done.returncode == 1
    assert "is writable by others" in done.stderr


@pytest.mark.parametrize("kills", [5, pytest.param(50, marks=pytest.mark.slow)])
def test_kills_lose_at_most_the_frame_in_flight_and_the_history_goes_on(
    env: dict[str, str], live_dir: Path, kills: int
) -> None:
    seen: list[tuple[int, int]] = []
    for _ in range(kills):
        with daemon("--interval", "0.01", env=env) as process:
            start = newest(live_dir)
            until(lambda start=start: newest(live_dir) > start + 3)  # type: ignore[misc]
            process.kill()
            process.wait()
        reader = RingReader.open(str(live_dir / "ring"))
        head = reader.heartbeat().head
        found = {number for number, _ in reader.whole_slots()}
        whole = sorted(number for number in found if number > max(found) - reader.layout.frames)
        reader.close()
        seen.append((start, whole[-1]))
        # No hole: every number up to the newest, but those that the ring has lapped.
        assert whole == list(range(whole[0], whole[-1] + 1))
        assert head - 1 <= whole[-1] <= head + 1
    for (_, ended), (began, _) in itertools.pairwise(seen):
        assert began > ended


def test_a_killed_daemon_is_followed_without_a_wait(env: dict[str, str]) -> None:
    with daemon(env=env) as process:
        process.kill()
        process.wait()
    with daemon(env=env):
        assert status(env)["daemon"] is not None


def test_a_daemon_that_was_taken_over_stops_by_itself(env: dict[str, str], live_dir: Path) -> None:
    with daemon("--interval", "0.05", env=env) as first:
        (live_dir / "lock.new").touch(mode=0o600)
        os.rename(live_dir / "lock.new", live_dir / "lock")
        assert first.wait(timeout=PATIENCE) == 1
        assert "another daemon took over" in first.communicate()[1]


def test_a_daemon_whose_lock_was_removed_makes_it_anew_and_goes_on(env: dict[str, str], live_dir: Path) -> None:
    with daemon("--interval", "0.05", env=env) as first:
        (live_dir / "lock").unlink()
        until((live_dir / "lock").exists)
        before = newest(live_dir)
        until(lambda: newest(live_dir) > before)
        assert f"pid {first.pid}" in gpumon("daemon", env=env).stderr


def test_a_daemon_whose_directory_is_gone_says_so_and_stops(
    env: dict[str, str], live_dir: Path, tmp_path: Path
) -> None:
    elsewhere = {**env, "GPUMON_STATE_DIR": str(tmp_path / "kept")}  # where history can be written all the while
    with daemon("--interval", "0.05", env=elsewhere) as process:
        os.rename(live_dir, live_dir.with_name("elsewhere"))
        assert process.wait(timeout=PATIENCE) == 1
        errors = process.communicate()[1]
    assert len(errors.splitlines()) == 1, errors
    assert f"{live_dir} is gone" in errors


def test_a_directory_of_the_same_name_in_place_of_the_daemons_is_not_its_own(
    env: dict[str, str], live_dir: Path
) -> None:
    with daemon("--interval", "0.05", env=env) as process:
        os.rename(live_dir, live_dir.with_name("elsewhere"))
        with suppress(FileExistsError):  # the daemon may have made it for its state
            live_dir.mkdir()
        assert process.wait(timeout=PATIENCE) == 1
        assert f"{live_dir} is gone" in process.communicate()[1]


def test_a_ring_that_somebody_breaks_or_replaces_is_made_anew(env: dict[str, str], live_dir: Path) -> None:
    ring, places = live_dir / "ring", Places(explicit=str(live_dir))
    with daemon("--interval", "0.05", env=env):
        for harm in ("truncate", "empty", "remove", "overwrite", "overwrite names", "replace", "link"):
            until(lambda: newest(live_dir) > 2)
            oldest, before = follow(places).since(0)[0].number, ring.stat().st_ino
            aside = live_dir / f"before {harm}"
            os.link(ring, aside)  # or its inode number would be free for the next file
            break_ring(ring, aside, harm)
            until(partial(is_new_ring, ring, before))
            until(lambda: newest(live_dir) > 2)
            first = follow(places).since(0)[0]
            assert first.samples[0].device.name, f"after {harm!r}, each frame is explained"
            if harm in ("remove", "replace", "link"):
                assert first.number == oldest, f"after {harm!r}, what was seen before is kept"
            until(lambda: status(env)["gpus"][0]["state"] == "ok")


def break_ring(ring: Path, aside: Path, harm: str) -> None:
    """Break or replace the file of a ring. `aside`: another name of the file."""
    if harm in ("truncate", "empty"):
        os.truncate(ring, 0 if harm == "empty" else 100_000)
    elif harm == "remove":
        ring.unlink()
    elif harm == "replace":
        other = ring.with_name("other")
        other.write_bytes(os.urandom(100_000))
        os.rename(other, ring)
    elif harm == "link":
        ring.unlink()
        ring.symlink_to(aside)
    else:
        with closing(RingReader.open(str(ring))) as reader:
            layout = reader.layout
        begin, end = (0, 4096) if harm == "overwrite" else (layout.dir_offset, layout.header_size)
        with open(ring, "r+b") as file:
            file.seek(begin)
            file.write(os.urandom(end - begin))


def is_new_ring(ring: Path, before: int) -> bool:
    """Return whether `ring` is a ring that can be read, and not the file with the inode `before`."""
    if ring.is_symlink() or not ring.is_file():
        return False
    try:
        RingReader.open(str(ring)).close()
    except (OSError, RingError):
        return False
    return ring.stat().st_ino != before


HANG = 3_600_000_000
"""Microseconds that a call takes of a driver that hangs."""


def test_a_daemon_whose_driver_hangs_goes_on_stops_when_it_is_told_to_and_leaves_its_lock(
    env: dict[str, str], stub: Stub, live_dir: Path
) -> None:
    live = follow(Places(explicit=str(live_dir)))
    with daemon("--interval", "0.05", env=env) as process:
        stub.set_latency(None, HANG)
        stale = until(lambda: frame if (frame := live.latest()) and _states(frame) == {Availability.STALE} else None)
        until(lambda: (frame := live.latest()) and frame.number > stale.number + 10)
        assert live.state().live, "the daemon is heard, whatever its driver does"
        process.terminate()
        assert slept_until_end(process) < 3
        assert process.wait() == 0
    assert "stopped" in live.state().text
    stub.set_latency(None, 0)
    with daemon("--interval", "0.05", env=env):
        until(lambda: live.state().live)


def _states(frame: Frame) -> set[Availability]:
    return {sample.state for sample in frame.samples}


def test_a_daemon_whose_driver_hangs_before_its_first_sample_stops_when_it_is_told_to(
    env: dict[str, str], stub: Stub, live_dir: Path
) -> None:
    stub.set_latency(None, HANG)
    process = subprocess.Popen(command("daemon"), env=env, stderr=subprocess.PIPE, text=True)
    until((live_dir / "tags").exists)
    process.send_signal(signal.SIGINT)
    assert slept_until_end(process) < 3
    errors = process.communicate(timeout=PATIENCE)[1]
    assert errors == "" or "the driver did not answer" in errors, "as it was told in its first tick, or later"
    assert process.returncode == 0


BY_ITSELF = """
import argparse
from gpumon.cli.sampling import private_sampler
from gpumon.common.paths import places
with private_sampler(places(), argparse.Namespace(source=None, interval=0.1, speed=1.0, gpm=None)) as live:
    print(live.state().text, flush=True)
"""


def test_a_view_that_samples_by_itself_ends_although_its_driver_hangs(env: dict[str, str], stub: Stub) -> None:
    stub.set_latency(None, HANG)
    with Child([sys.executable, "-c", BY_ITSELF], env=env, stdout=subprocess.PIPE, text=True) as process:
        assert slept_until_end(process) < 10
        output, _ = process.communicate(timeout=PATIENCE)
    assert (process.returncode, output) == (0, "waiting for the first sample\n")


def test_a_reader_lives_through_whatever_happens_to_the_file(env: dict[str, str], live_dir: Path) -> None:
    """Truncated, emptied and filled with random bytes under the reader: a clear state each time, then live again."""
    live = follow(Places(explicit=str(live_dir)))
    assert "no daemon is running" in live.state().text
    with daemon("--interval", "0.05", env=env):
        until(lambda: live.latest() is not None)
    ring = live_dir / "ring"
    size = ring.stat().st_size
    for content in (b"", ring.read_bytes()[:5000], os.urandom(size)):
        ring.write_bytes(content)
        for _ in range(3):
            live.latest()
            live.since(0)
            live.origin()
            state = live.state()
        assert not state.live
        assert state.text
    with daemon("--interval", "0.05", env=env):
        until(lambda: live.state().live and live.latest() is not None)
    assert "stopped" in live.state().text


def test_a_stopped_daemon_process_shows_as_stale(env: dict[str, str], live_dir: Path) -> None:
    live = follow(Places(explicit=str(live_dir)))
    with daemon("--interval", "0.05", env=env) as process:
        until(lambda: live.state().live)
        process.send_signal(signal.SIGSTOP)
        found = until(lambda: None if live.state().live else live.state())
        assert found.stale
        assert re.fullmatch(r"stale: last seen \d\d:\d\d:\d\d \(.* ago\)", found.text)
        process.send_signal(signal.SIGCONT)
        until(lambda: live.state().live)


def test_a_gpu_that_is_plugged_in_gets_a_row_and_one_that_is_lost_keeps_it(
    env: dict[str, str], stub: Stub, live_dir: Path
) -> None:
    live = follow(Places(explicit=str(live_dir)))

    def states() -> list[str]:
        frame = live.latest()
        return [sample.state.name for sample in frame.samples] if frame else []

    with daemon("--interval", "0.1", env=env):
        until(lambda: states() == ["OK", "OK"])
        first = until(live.latest).number
        stub.gpus = 7
        until(lambda: states() == ["OK"] * 7)
        stub.set_lost(1)
        until(lambda: states() == ["OK", "LOST", *["OK"] * 5])
        stub.set_lost(1, False)
        until(lambda: states() == ["OK"] * 7)
        frames = live.since(0)
        assert [frame.number for frame in frames] == list(range(frames[0].number, frames[-1].number + 1))
        assert frames[0].number <= first


def test_a_driver_that_goes_and_comes_back_is_found_without_a_restart(
    env: dict[str, str], stub: Stub, live_dir: Path
) -> None:
    live = follow(Places(explicit=str(live_dir)))

    def states() -> set[str]:
        frame = live.latest()
        return {sample.state.name for sample in frame.samples} if frame else set()

    with daemon("--interval", "0.1", env=env):
        until(lambda: states() == {"OK"})
        stub.driver_error = 9
        until(lambda: states() == {"NO_DRIVER"})
        assert live.origin().problem
        stub.driver_error = 0
        until(lambda: states() == {"OK"})
        assert not live.origin().problem


def test_a_slow_driver_costs_no_tick(env: dict[str, str], stub: Stub, live_dir: Path) -> None:
    live = follow(Places(explicit=str(live_dir)))
    stub.set_latency("nvmlDeviceGetUtilizationRates", 200_000)
    with daemon("--interval", "0.05", env=env):
        first = until(live.latest)
        until(lambda: (found := live.latest()) and found.number > first.number + 20)
        times = [found.monotonic_ns / 1e9 for found in live.since(0)]
    gaps = [after - before for before, after in itertools.pairwise(times)]
    # One that is late by less than an interval may be followed by one in time; two never come on top of each other.
    assert min(after - before for before, after in zip(times, times[2:], strict=False)) > 0.05, "never a burst"
    assert statistics.median(gaps) < 0.15, "a tick waits for no GPU to its end"


def test_a_daemon_without_a_driver_serves_the_host_and_says_what_is_missing(live_dir: Path) -> None:
    env = environment(live_dir)
    env.pop("LD_LIBRARY_PATH", None)
    with daemon("--interval", "0.1", env=env):
        done = gpumon("status", env=env)
    if done.returncode == 0:
        pytest.skip("this machine has a GPU")
    assert done.returncode == 3
    assert "driver is not installed" in done.stderr


def test_nothing_of_the_daemon_is_left_behind(env: dict[str, str], live_dir: Path) -> None:
    with daemon(env=env) as process:
        time.sleep(0.1)
        children = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True, check=False)
        assert children.stdout == ""
    assert sorted(path.name for path in live_dir.iterdir()) == ["lock", "ring", "state", "tags"]
    assert [path.name for path in (live_dir / "state").iterdir()] == ["history.sqlite"], "by default it is elsewhere"


def test_a_ledger_that_cannot_be_written_is_not_told_as_nothing_recorded(env: dict[str, str], live_dir: Path) -> None:
    (live_dir / "file").touch()
    env |= {"GPUMON_STATE_DIR": str(live_dir / "file" / "state")}  # root may write any directory
    live = follow(Places(explicit=str(live_dir)))
    with daemon("--interval", "0.05", env=env):
        subprocess.run([sys.executable, "-c", "import gpumon\ngpumon.run('net').finish()"], env=env, check=True)
        until(lambda: all(live.not_kept()))
        told = gpumon("daemon", "status", env=env).stdout
        assert all(f"cannot write {env['GPUMON_STATE_DIR']}/{name}.sqlite" in told for name in ("ledger", "history"))
        listed, shown = gpumon("runs", env=env), gpumon("runs", "show", "net", env=env)
        said = f"gpumon: runs are not being recorded: cannot write {env['GPUMON_STATE_DIR']}/ledger.sqlite"
        assert (listed.returncode, listed.stdout) == (0, "")
        assert listed.stderr.startswith(said)
        assert (shown.returncode, shown.stdout) == (1, "")
        assert shown.stderr.startswith(said)
    assert live.not_kept() == ("", ""), "who does not run keeps nothing"


def test_a_daemon_that_plays_something_is_named_as_why_no_training_is_recorded_and_no_history_kept(
    env: dict[str, str],
) -> None:
    with daemon("--source", "sim:one", env=env):
        listed = gpumon("runs", env=env)
        history, events = gpumon("history", env=env), gpumon("history", "events", env=env)
    plays = "history is not being recorded: the daemon plays SIMULATED instead of sampling this machine\n"
    assert (history.returncode, history.stdout) == (0, plays)
    assert (events.returncode, events.stderr) == (1, f"gpumon: {plays}")
    said = "gpumon: runs are not being recorded: the daemon plays SIMULATED instead of sampling this machine\n"
    assert (listed.returncode, listed.stdout, listed.stderr) == (0, "", said)
