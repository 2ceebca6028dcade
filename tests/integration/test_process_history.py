"""Processes in the history of a real daemon: while it runs, after it stopped, and after the next one was killed."""

from __future__ import annotations

import json
import os
import pwd
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from gpumon.live import connect
from tests.nvml import Stub
from tests.nvml.stub import Process
from tests.programs import PATIENCE, daemon, environment, gpumon, until

SLEEPER = [sys.executable, "-c", "import sys; sys.stdin.read()", "--token", "secret-of-the-command-line"]


@pytest.fixture
def env(stub: Stub, live_dir: Path) -> dict[str, str]:
    return environment(live_dir, stub.env())


@pytest.fixture
def pids(stub: Stub) -> Iterator[tuple[int, int]]:
    """Two real processes: one that works on the first GPU, one of which the driver tells little on the second."""
    with ExitStack() as stack:
        first, second = (stack.enter_context(subprocess.Popen(SLEEPER, stdin=subprocess.PIPE)) for _ in range(2))
        stub.set_processes(0, [Process(first.pid, memory=2 * 2**30, sm=70)])
        stub.set_processes(1, [Process(second.pid, memory=None, sm=None)])
        yield first.pid, second.pid


def listed(env: dict[str, str]) -> dict[int, dict[str, Any]]:
    """By pid; a pid stands for one process here."""
    done = gpumon("history", "processes", "--json", env=env)
    assert "secret" not in done.stdout
    found = json.loads(done.stdout)["processes"] if done.returncode == 0 else []
    assert len(found) == len({one["pid"] for one in found})
    return {one["pid"]: one for one in found}


def test_processes_are_kept_from_daemon_to_daemon(
    env: dict[str, str], stub: Stub, pids: tuple[int, int], live_dir: Path
) -> None:
    first, second = pids
    with daemon("--interval", "0.1", env=env):
        now = until(lambda: found if len(found := listed(env)) == 2 else None)
        assert now[first]["user"] == pwd.getpwuid(os.getuid()).pw_name
        stub.set_processes(1, [])
        until(lambda: not json.loads(gpumon("status", "--json", env=env).stdout)["gpus"][1]["processes"])
        until(
            lambda: (found := listed(env))[first]["held"] > found[second]["held"] + 1.5
        )  # looks are 1 s apart at least
    kept = listed(env)
    assert kept[first]["memory_used"]["peak"] == 2 * 2**30
    assert kept[first]["sm_utilization"]["mean"] == pytest.approx(0.7)
    assert kept[second]["memory_used"]["mean"] is None
    assert kept[second]["sm_utilization"]["mean"] is None
    assert 0 < kept[second]["held"] < kept[first]["held"]
    assert kept[second]["last"] < kept[first]["last"]
    with daemon("--interval", "0.1", env=env) as killed:
        live = connect(str(live_dir))
        until(lambda: any(process.pid == first for process in (live.latest() or live.since(0)[-1]).processes))
        process = next(process for frame in live.since(0) for process in frame.processes if process.pid == first)
        line = live.process_lines(process, "10s").series["memory_used"]
        assert {value for value in line.mean if value == value} == {2.0 * 2**30}
        live.close()
        grown = until(lambda: found if (found := listed(env))[first]["held"] > kept[first]["held"] else None)
        killed.send_signal(signal.SIGKILL)
        killed.wait(PATIENCE)
    assert set(grown) == {first, second}
    assert grown[first]["first"] == kept[first]["first"]
    assert listed(env)[first]["held"] >= kept[first]["held"]
