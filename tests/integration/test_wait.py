"""`gpumon wait` on the stub driver: commands start on free GPUs only, and never two on the same one."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from gpumon.common.errors import EXIT_FAILED
from tests.nvml import Process, Stub
from tests.programs import command, daemon, environment, gpumon, status, until

PRINT = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'], flush=True); input()"


@pytest.fixture
def idle(stub: Stub) -> Stub:
    stub.gpus = 4
    for metric in ("gpu.utilization", "gpu.memory_used"):
        stub.set_value(metric, 0)
    return stub


@pytest.fixture
def env(idle: Stub, live_dir: Path) -> Iterator[dict[str, str]]:
    variables = environment(live_dir, idle.env())
    with daemon("--interval", "0.1", env=variables):
        yield variables


def waiter(env: dict[str, str], gpus: int) -> subprocess.Popen[str]:
    """A command of `gpumon wait` that prints its GPUs and ends at a line of input."""
    words = command("wait", "--gpus", gpus, "--free-for", "0.5s", "--", sys.executable, "-c", PRINT)
    return subprocess.Popen(words, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def gpus_of(process: subprocess.Popen[str]) -> set[int]:
    assert process.stdout is not None
    return {int(index) for index in process.stdout.readline().split(",")}


def hold(env: dict[str, str], stub: Stub, gpu: int) -> None:
    """Put a process on a GPU, and wait until the daemon has seen it."""
    stub.set_processes(gpu, [Process(os.getpid(), memory=2**30)])
    until(lambda: status(env)["gpus"][gpu]["gpu_state"] != "free")


def rounds(env: dict[str, str], stub: Stub, number: int) -> None:
    """In each round two commands wait for two GPUs each. One of the four GPUs is busy at first."""
    for turn in range(number):
        busy = turn % 4
        hold(env, stub, busy)
        first, second = waiter(env, 2), waiter(env, 2)
        try:
            started = until(partial(_with_output, (first, second)))[0]
            taken = gpus_of(started)
            assert busy not in taken
            other = second if started is first else first
            assert not _with_output([other]), "only one GPU is free now"
            stub.set_processes(busy, [])
            assert gpus_of(other) == {0, 1, 2, 3} - taken
        finally:
            for process in (first, second):
                process.communicate("\n", timeout=30)


def _with_output(processes: Sequence[subprocess.Popen[str]]) -> list[subprocess.Popen[str]]:
    """The processes that have printed a line."""
    return [process for process in processes if select.select([process.stdout], [], [], 0)[0]]


def test_two_commands_never_take_the_same_gpu(env: dict[str, str], idle: Stub) -> None:
    rounds(env, idle, 3)


@pytest.mark.slow
def test_two_commands_never_take_the_same_gpu_in_fifty_rounds(env: dict[str, str], idle: Stub) -> None:
    rounds(env, idle, 50)


def test_a_command_that_waits_for_its_own_gpus_gets_them(env: dict[str, str]) -> None:
    """Two commands below one that holds two GPUs get one of them each."""
    inner = " ".join(map(str, command("wait", "--gpus", 1, "--free-for", "0.1s", "--timeout", "60s", "--")))
    script = f"for i in 1 2; do {inner} sh -c 'echo $CUDA_VISIBLE_DEVICES; sleep 3' & done; wait"
    done = gpumon("wait", "--gpus", 2, "--free-for", "0.1s", "--", "sh", "-c", script, env=env)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split()) == ["0", "1"]


def test_gpus_that_others_claim_are_named(env: dict[str, str]) -> None:
    holder = waiter(env, 4)
    try:
        gpus_of(holder)
        done = gpumon("wait", "--free-for", "0.1s", "--timeout", "2s", "--", "true", env=env)
        assert done.returncode == EXIT_FAILED
        assert "4 of them claimed" in done.stderr
    finally:
        holder.communicate("\n", timeout=30)


def test_a_daemon_that_is_away_is_one_line(env: dict[str, str], live_dir: Path) -> None:
    process = subprocess.Popen(
        command("wait", "--gpus", 4, "--free-for", "1h", "--timeout", "12s", "--", "true"), env=env, text=True,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    assert "free now" in process.stderr.readline()
    pid = status(env)["daemon"]["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        _, lines = process.communicate(timeout=60)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert len([line for line in lines.splitlines() if "stale" in line]) == 1


def test_a_command_keeps_its_exit_code_and_signals(env: dict[str, str]) -> None:
    code = "import signal; raise SystemExit(7 if signal.getsignal(signal.SIGPIPE) == signal.SIG_IGN else 8)"
    done = gpumon("wait", "--free-for", "0.1s", "--", sys.executable, "-c", code, env=env)
    assert done.returncode == 7, "Python ignores SIGPIPE itself"
    done = gpumon("wait", "--free-for", "0.1s", "--", "sh", "-c", "kill -PIPE $$; exit 3", env=env)
    assert done.returncode != 3, "a shell does not ignore it"


def test_a_gpu_that_stays_busy_is_waited_for_until_the_timeout(env: dict[str, str], idle: Stub) -> None:
    hold(env, idle, 2)
    words = ("wait", "--gpus", 4, "--free-for", "0.1s", "--timeout", "2s", "--", "true")
    assert gpumon(*words, env=env).returncode == EXIT_FAILED


def test_more_gpus_than_there_are_end_at_once(env: dict[str, str]) -> None:
    done = gpumon("wait", "--gpus", 5, "--", "true", env=env)
    assert done.returncode == EXIT_FAILED
    assert "4 GPUs" in done.stderr


@pytest.mark.parametrize("options", [("--memory", "900G"), ("--gpus", "3")])
def test_gpus_that_never_match_end_at_once(env: dict[str, str], options: tuple[str, str]) -> None:
    visible = {**env, "CUDA_VISIBLE_DEVICES": "0,2"}
    done = gpumon("wait", *options, "--", "true", env=visible)
    assert done.returncode == EXIT_FAILED
    assert "CUDA_VISIBLE_DEVICES" in done.stderr


def test_gpus_of_a_simulation_are_never_waited_for(idle: Stub, live_dir: Path) -> None:
    env = environment(live_dir, idle.env())
    with daemon("--source", "sim", env=env):
        assert gpumon("wait", "--free-for", "0.1s", "--", "true", env=env).returncode == EXIT_FAILED


def test_without_a_daemon_the_command_does_not_start(idle: Stub, live_dir: Path, tmp_path: Path) -> None:
    done = gpumon("wait", "--", "touch", str(tmp_path / "started"), env=environment(live_dir, idle.env()))
    assert done.returncode == EXIT_FAILED
    assert "gpumon daemon --detach" in done.stderr
    assert not (tmp_path / "started").exists()


def test_a_missing_command_is_refused_before_the_wait(env: dict[str, str]) -> None:
    done = gpumon("wait", "--gpus", 4, "--free-for", "1h", "--", "no-such-program", env=env)
    assert done.returncode == 127
    assert len(done.stderr.splitlines()) == 1
