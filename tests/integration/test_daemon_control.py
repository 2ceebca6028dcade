"""`gpumon daemon status`, `stop` and `restart` on real daemons: no other process is ever signaled."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import gpumon as package
from gpumon.cli import daemon_lookup, daemon_stop
from gpumon.cli.daemon import warn_of_preferred
from gpumon.cli.daemon_lookup import find_daemon
from gpumon.common.errors import GpumonError
from gpumon.common.paths import Places
from gpumon.common.procfs import start_time
from gpumon.ring.lock import holder_of
from tests.nvml import Stub
from tests.programs import PATIENCE, Child, command, daemon, environment, gpumon, in_process, until

_SIMULATED = "sim, SIMULATED, driver 570.86.15"


@pytest.fixture
def env(live_dir: Path) -> Iterator[dict[str, str]]:
    """The environment of a user; a daemon that is left in his directory is ended."""
    yield environment(live_dir)
    holder = holder_of(str(live_dir / "lock"))
    if holder is not None:
        with suppress(ProcessLookupError):
            os.kill(holder.pid, signal.SIGTERM)
        until(lambda: holder_of(str(live_dir / "lock")) is None)


def facts(text: str) -> dict[str, str]:
    return dict(line.split(None, 1) for line in text.splitlines())


def test_status_tells_what_runs_since_when_and_what_it_samples(env: dict[str, str], live_dir: Path) -> None:
    with daemon("--source", "sim:one", "--interval", "0.25", env=env) as process:
        done = in_process("daemon", "status", env=env)
    assert (done.returncode, done.stderr) == (0, "")
    told = facts(done.stdout)
    assert told["daemon"] == f"pid {process.pid}, live"
    assert told["directory"] == str(live_dir)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d, for \d+ (s|min)", told["since"])
    assert (told["interval"], told["version"]) == ("0.25 s", package.__version__)
    assert told["source"] == _SIMULATED
    assert re.fullmatch(r"frame \d+, \d\S* s ago", told["newest"])
    assert "lacks" not in told


def test_status_says_what_a_daemon_lacks_and_no_gpu_that_can_be_read_is_3(stub: Stub, live_dir: Path) -> None:
    env = environment(live_dir, stub.env())
    with daemon("--interval", "0.1", env=env):
        stub.set_lost(0)
        done = until(lambda: "lacks" in (one := in_process("daemon", "status", env=env)).stdout and one)
        assert (done.returncode, done.stderr) == (0, "")
        assert facts(done.stdout)["lacks"].startswith("GPU 0: ")
        stub.set_lost(1)
        done = until(lambda: (one := in_process("daemon", "status", env=env)).returncode == 3 and one)
        assert "GPU 1: " in done.stdout


def test_a_daemon_that_is_suspended_is_not_called_live(env: dict[str, str]) -> None:
    with daemon("--source", "sim:one", "--interval", "0.1", env=env) as process:
        process.send_signal(signal.SIGSTOP)
        done = until(lambda: (one := in_process("daemon", "status", env=env)).returncode == 3 and one)
        assert f"pid {process.pid}, stale: last seen" in done.stdout


def test_where_none_runs_status_and_stop_say_so(env: dict[str, str], live_dir: Path) -> None:
    for word in ("status", "stop"):
        done = in_process("daemon", word, env=env)
        assert (done.returncode, done.stdout) == (1, "")
        assert f"gpumon daemon --detach --dir {live_dir}'" in done.stderr


def test_stop_returns_once_the_directory_is_free(env: dict[str, str], live_dir: Path) -> None:
    with daemon("--source", "sim:one", env=env) as process:
        done = in_process("daemon", "stop", env=env)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == f"daemon {process.pid} stopped: {live_dir} is free\n"
        assert process.wait(timeout=PATIENCE) == 0
    assert in_process("daemon", "status", env=env).returncode == 1


def test_a_daemon_whose_driver_hangs_is_stopped_all_the_same(stub: Stub, live_dir: Path) -> None:
    env = environment(live_dir, stub.env())
    with daemon("--interval", "0.1", env=env) as process:
        stub.set_latency(None, 3_600_000_000)
        until(lambda: in_process("daemon", "status", env=env).returncode == 3)
        assert in_process("daemon", "stop", env=env).returncode == 0
        assert process.wait(timeout=PATIENCE) == 0


def test_restart_gives_the_new_daemon_the_options_of_the_old_one(env: dict[str, str], live_dir: Path) -> None:
    began = gpumon("daemon", "--detach", "--source", "sim:one", env=env | {"GPUMON_INTERVAL": "0.5"})
    first = int(began.stdout.split()[2].rstrip(":"))
    pids = [first]
    for _ in range(2):  # the second time it is one that `restart` started
        done = gpumon("daemon", "restart", env=env)
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[0] == f"daemon {pids[-1]} stopped: {live_dir} is free"
        told = facts(in_process("daemon", "status", env=env).stdout)
        pids.append(int(told["daemon"].removeprefix("pid ").removesuffix(", live")))
        assert (told["interval"], told["source"]) == ("0.5 s", _SIMULATED)
    assert len(set(pids)) == 3


def test_restart_without_a_daemon_starts_one_and_says_so(env: dict[str, str]) -> None:
    done = gpumon("daemon", "restart", env=env | {"GPUMON_SOURCE": "sim:one"})
    assert done.returncode == 0
    assert "no daemon was running" in done.stderr
    assert "live" in in_process("daemon", "status", env=env).stdout


def test_options_of_a_daemon_that_starts_are_refused_with_a_subcommand(env: dict[str, str]) -> None:
    done = in_process("daemon", "--interval", "2", "stop", env=env)
    assert done.returncode == 2
    assert "takes only --dir and --state-dir" in done.stderr


def test_a_daemon_that_was_killed_runs_no_more_though_its_ring_is_of_just_now(env: dict[str, str]) -> None:
    with daemon("--source", "sim:one", env=env) as process:
        process.kill()
        process.wait()
        for command_of in ("status", "stop"):
            assert in_process("daemon", command_of, env=env).stderr.startswith("gpumon: no daemon is running")
    done = gpumon("daemon", "restart", env=env)
    assert done.returncode == 0
    assert done.stderr.startswith("gpumon: no daemon was running: starting one")


def test_a_lock_that_is_free_names_no_process_to_signal(env: dict[str, str], live_dir: Path) -> None:
    """As after a daemon that was killed, whose pid is another process by now."""
    with Child(["sleep", "60"]) as bystander:
        (live_dir / "lock").write_text(f"{bystander.pid} {start_time(bystander.pid)}")
        assert in_process("daemon", "stop", env=env).returncode == 1
        assert bystander.poll() is None
        bystander.kill()


def test_a_lock_that_is_held_and_names_a_process_of_another_start_signals_nobody(
    env: dict[str, str], live_dir: Path
) -> None:
    with daemon("--source", "sim:one", env=env) as process, Child(["sleep", "60"]) as bystander:
        os.truncate(live_dir / "lock", 0)
        (live_dir / "lock").write_text(f"{bystander.pid} {start_time(bystander.pid) - 1}")
        done = in_process("daemon", "stop", env=env)
        assert done.returncode == 1
        assert "is not visible from here" in done.stderr
        assert (bystander.poll(), process.poll()) == (None, None)
        bystander.kill()


def test_a_daemon_of_another_user_is_left_alone(
    env: dict[str, str], live_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with daemon("--source", "sim:one", env=env) as process:
        found = find_daemon(Places(explicit=str(live_dir), uid=os.getuid()))
        monkeypatch.setattr(daemon_stop.os, "getuid", lambda: found.holder.uid + 1)
        with pytest.raises(GpumonError, match=r"belongs to .*: only that user can stop it"):
            daemon_stop.stop_daemon(found)
        assert process.poll() is None


def test_a_daemon_whose_lock_may_not_be_read_is_known_by_its_ring(
    env: dict[str, str], live_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    with daemon("--source", "sim:one", env=env) as process:
        monkeypatch.setattr(daemon_lookup, "holder_of", refused)
        assert find_daemon(Places(explicit=str(live_dir), uid=os.getuid())).pid == process.pid


def test_the_main_process_of_a_unit_is_left_to_its_service_manager(env: dict[str, str], live_dir: Path) -> None:
    script = 'export SYSTEMD_EXEC_PID=$$ INVOCATION_ID=1; exec "$@"'
    with Child(
        ["sh", "-c", script, "sh", *command("daemon", "--source", "sim:one")],
        env=env,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("gpumon daemon")
        for word in ("stop", "restart"):
            done = in_process("daemon", word, env=env)
            assert done.returncode == 1
            assert "systemctl" in done.stderr
        assert process.poll() is None
        process.terminate()


def test_a_daemon_that_was_started_from_a_shell_of_a_unit_is_its_users(env: dict[str, str]) -> None:
    with daemon("--source", "sim:one", env=env | {"INVOCATION_ID": "1", "SYSTEMD_EXEC_PID": str(os.getpid())}):
        assert in_process("daemon", "stop", env=env).returncode == 0


def test_a_daemon_that_no_view_reads_says_so_when_it_starts(
    env: dict[str, str], live_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = Places(system=str(live_dir), shared_memory=str(tmp_path), uid=os.getuid())
    os.mkdir(where.private, 0o700)
    with daemon("--source", "sim:one", env=env) as process:
        warn_of_preferred(where, where.private)
        said = f"gpumon: views read the daemon in {live_dir} (pid {process.pid}) instead of this daemon: "
        assert capsys.readouterr().err.startswith(said)
        warn_of_preferred(where, str(live_dir))
        warn_of_preferred(where._replace(explicit=where.private), where.private)
    warn_of_preferred(where, where.private)
    assert capsys.readouterr().err == "", "it is the one that views read, or the other has stopped"


def test_a_command_whose_gpumon_run_samples_is_ended_by_no_stop_and_no_restart(
    env: dict[str, str], live_dir: Path
) -> None:
    words = command("run", "--source", "sim:one", "--", sys.executable, "-c", "input()")
    with Child(words, env=env, stdin=subprocess.PIPE) as process:
        try:
            found = until(lambda: holder_of(str(live_dir / "lock")))
            assert (found.pid, found.for_command) == (process.pid, True)
            until(lambda: in_process("daemon", "status", env=env).stdout)
            assert facts(in_process("daemon", "status", env=env).stdout)["ends"].startswith("with its command: ")
            for word in ("stop", "restart"):
                done = in_process("daemon", word, env=env)
                assert done.returncode == 1
                assert (
                    "is 'gpumon run' and ends with its command: stopping it would end the command, too" in done.stderr
                )
            refused = gpumon("daemon", "--detach", "--source", "sim:one", env=env)
            said = f"gpumon: 'gpumon run' (pid {process.pid}) samples for {live_dir} until its command ends: "
            assert (refused.returncode, refused.stderr.startswith(said)) == (1, True)
            assert process.poll() is None
        finally:
            process.communicate(b"\n")
    assert process.returncode == 0


def test_a_stop_that_takes_longer_than_promised_says_so_once_and_waits(
    env: dict[str, str], live_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(daemon_stop, "_USUAL", 0.0)
    with daemon("--interval", "0.1", env=env) as process:
        found = until(lambda: find_daemon(Places(explicit=str(live_dir))))
        daemon_stop.stop_daemon(found)
        assert process.wait(PATIENCE) == 0
    said = capsys.readouterr()
    assert said.err.count(f"pid {found.pid}") == 1
    assert f"daemon {found.pid} stopped" in said.out
