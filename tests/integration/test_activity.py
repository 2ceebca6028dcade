"""Accounts and events of a real daemon with a real training: what is in the file after it stopped, and after a kill."""

from __future__ import annotations

import json
import os
import pwd
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.nvml import Stub
from tests.nvml.stub import Process
from tests.programs import PATIENCE, daemon, environment, gpumon, until

TRAINING = """
import sys
from time import monotonic
import gpumon
at = monotonic()
run = gpumon.run("resnet50", epochs=1)
took = monotonic() - at
with run:
    for epoch in run.epochs():
        print("begun", flush=True)
        sys.stdin.readline()
    at = monotonic()
print(took + monotonic() - at)
"""
"""It prints how long the start and end of the run took: a busy machine may stall between its readings of two clocks."""
INTERVAL = "0.1"


@pytest.fixture
def env(stub: Stub, live_dir: Path) -> dict[str, str]:
    return environment(live_dir, stub.env())


def log(env: dict[str, str], *words: str) -> list[dict[str, Any]]:
    done = gpumon("history", "events", "--json", *words, env=env)
    if done.returncode:
        assert "no events recorded yet" in done.stderr
        return []
    found: list[dict[str, Any]] = json.loads(done.stdout)["events"]
    return found


def begin_training(env: dict[str, str], stub: Stub) -> subprocess.Popen[str]:
    training = subprocess.Popen(
        [sys.executable, "-c", TRAINING], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert training.stdout is not None
    assert training.stdout.readline() == "begun\n"
    stub.set_processes(0, [Process(training.pid, sm=70)])
    return training


def seen(env: dict[str, str], state: str) -> bool:
    runs = json.loads(gpumon("status", "--json", env=env).stdout)["runs"]
    return any(run["state"] == state for run in runs)


def is_listed(env: dict[str, str], pid: int) -> bool:
    gpus = json.loads(gpumon("status", "--json", env=env).stdout)["gpus"]
    return any(process["pid"] == pid for gpu in gpus for process in gpu["processes"])


def test_a_run_and_a_gpu_that_was_lost_are_in_the_log_and_its_user_in_the_accounts(
    env: dict[str, str], stub: Stub
) -> None:
    user = pwd.getpwuid(os.getuid()).pw_name
    with daemon("--interval", INTERVAL, env=env):
        training = begin_training(env, stub)
        until(lambda: seen(env, "running") and is_listed(env, training.pid))
        stub.set_lost(1)
        until(lambda: "lost" in gpumon("status", env=env).stdout)
        stub.set_lost(1, False)
        until(lambda: "lost" not in gpumon("status", env=env).stdout)
        took = float(training.communicate("\n", PATIENCE)[0])
        until(lambda: not seen(env, "running"))
    events = [event for event in log(env) if not event["kind"].startswith(("throttling", "not_seen"))]
    kinds = [event["kind"] for event in events]
    assert kinds == ["daemon_started", "run_began", "gpu_lost", "gpu_back", "run_ended", "daemon_stopped"]
    began, lost, ended = events[1], events[2], events[4]
    assert (began["user"], ended["details"]["state"], lost["uuid"]) == (user, "finished", stub.uuid(1))
    assert ended["lasted"] == pytest.approx(ended["time"] - began["time"], abs=0.01 + took)
    accounts = json.loads(gpumon("history", "accounts", "--json", "--by", "device", env=env).stdout)
    first, second = accounts["groups"]
    (account,) = first["accounts"]
    assert account["user"] == user
    assert 0 < account["held"] <= ended["lasted"] + 5
    assert first["total"]["observed"] > second["total"]["observed"] > 0, "the other was lost for a while"


def test_a_daemon_that_is_killed_leaves_nothing_open_for_the_next(env: dict[str, str], stub: Stub) -> None:
    with daemon("--interval", INTERVAL, env=env) as first:
        training = begin_training(env, stub)
        until(lambda: [event for event in log(env) if event["kind"] == "daemon_started"])
        last_seen = json.loads(gpumon("status", "--json", env=env).stdout)["time"]
        first.send_signal(signal.SIGKILL)
        first.wait(PATIENCE)
    open_before = {event["kind"] for event in log(env) if event["last_seen"] is not None}
    assert "daemon_started" in open_before
    with daemon("--interval", INTERVAL, env=env):
        until(lambda: seen(env, "running"))
        training.communicate("\n", PATIENCE)
        until(lambda: not seen(env, "running"))
    events = log(env)
    assert [event["kind"] for event in events if event["last_seen"] is not None] == []
    stops = [event for event in events if event["kind"] == "daemon_stopped"]
    assert [bool(event["details"].get("unseen")) for event in stops] == [True, False]
    assert stops[0]["time"] >= last_seen - 0.01, "what it saw last, and not what it wrote last"
    runs = [event["kind"] for event in events if event["kind"].startswith("run_")]
    assert runs == ["run_began", "run_ended"]
