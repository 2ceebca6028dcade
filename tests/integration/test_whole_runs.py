"""Programs without epochs, as people run them: on a CPU, on a GPU, by steps, and evaluation alone."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.nvml import Stub
from tests.programs import PATIENCE, daemon, environment, gpumon, until

BOOSTED = """
import os, sys, time
from pathlib import Path
import numpy as np, xgboost
from tests.nvml import Process, Stub
if sys.argv[1] == "gpu":
    Stub.attach(Path(os.environ["GPUMON_STUB_FILE"])).set_processes(0, [Process(os.getpid())])
random = np.random.default_rng(7)
data = xgboost.DMatrix(random.normal(size=(2000, 8)), random.integers(0, 2, size=2000))
until = time.monotonic() + 4
while time.monotonic() < until:
    xgboost.train({"nthread": 1}, data, num_boost_round=10)
"""
BUSY = """
import time
began = time.monotonic()
while time.monotonic() < began + 2:
    pass
print(time.monotonic() - began, time.process_time())
"""
BY_STEPS = """
import sys, time, gpumon
with gpumon.run("steps", steps=300, devices=sys.argv[1]) as run:
    for step in range(1, 301):
        time.sleep(0.01)
        run.step()
        if step % 50 == 0:
            with run.phase("evaluate"):
                time.sleep(0.1)
            run.log(loss=1 / step)
"""
EVALUATION = """
import sys, time, gpumon
with gpumon.run("evaluation", devices=sys.argv[1]) as run, run.phase("test"):
    time.sleep(2)
    run.log(test_loss=0.5)
"""


@pytest.fixture
def env(stub: Stub, live_dir: Path) -> Iterator[dict[str, str]]:
    env = environment(live_dir, stub.env()) | {"PYTHONPATH": str(Path(__file__).parents[2])}
    with daemon("--interval", "0.1", env=env):  # what lies between a start and a tick is less than 2 % of 5 s
        yield env


def shown(env: Mapping[str, str], name: str, *, sampled: bool = True) -> dict[str, Any]:
    """The run of that name as JSON, once it has ended; `sampled`: on a GPU."""
    found: dict[str, Any] = {}

    def over() -> bool:
        done = gpumon("runs", "show", name, "--json", env=env)
        found.update(json.loads(done.stdout) if done.returncode == 0 else {})
        if not found or found["run"]["state"] != "finished":
            return False
        return not sampled or found["total"]["sampled"] is not None

    until(over)
    return found


def table(env: Mapping[str, str], name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(gpumon("runs", "export", name, "--format", "csv", env=env).stdout)))


def test_boosted_trees_on_a_cpu_and_on_a_gpu_are_compared(env: dict[str, str]) -> None:
    for device in ("cpu", "gpu"):
        command = (sys.executable, "-c", BOOSTED, device)
        assert gpumon("run", "--name", device, "--", *command, env=env, timeout=2 * PATIENCE).returncode == 0
    gpu = shown(env, "gpu")
    assert gpu["total"]["energy"] > 0
    assert (gpu["total"]["steps"], gpu["total"]["wait"], gpu["epochs"]) == (None, None, [])
    told = json.loads(gpumon("runs", "compare", "cpu", "gpu", "--json", env=env).stdout)
    values = {measure["name"]: measure["medians"] for measure in told["whole"]}
    assert told["measures"] == []
    assert all(value > 1.5 for value in values["seconds"])
    assert all(value > 0.5 for value in values["cpu_seconds"])
    assert (values["energy"][0], values["energy"][1] > 0) == (None, True), "unknown of a run on no GPU"
    text = gpumon("runs", "compare", "cpu", "gpu", env=env).stdout
    assert "no confidence interval" in text
    assert [row["part"] for row in table(env, "gpu") if not row["phase"]] == ["run"]


def test_the_run_of_a_plain_command_has_all_its_time_and_cpu_time(env: dict[str, str]) -> None:
    done = gpumon("run", "--name", "plain", "--", sys.executable, "-c", BUSY, env=env, timeout=2 * PATIENCE)
    told = shown(env, "plain", sampled=False)
    seconds, of_cpu = map(float, done.stdout.split())
    assert seconds <= told["run"]["seconds"] < seconds + 2
    assert told["ranks"][0]["cpu_seconds"] > of_cpu - 0.1


def test_three_hundred_steps_with_six_evaluations_have_rows_that_add_up(stub: Stub, env: dict[str, str]) -> None:
    subprocess.run([sys.executable, "-c", BY_STEPS, stub.uuid(0)], env=env, check=True, timeout=2 * PATIENCE)
    told = shown(env, "steps")
    total, rows = told["total"], told["steps"]
    assert (total["steps"], told["ranks"][0]["steps_planned"]) == (300, 300)
    assert [row["first_step"] for row in rows] == list(range(0, 300, 10))
    assert sum(row["steps"] for row in rows) == 300
    assert {row["first_step"]: row["metrics"] for row in rows if row["metrics"]} == {
        step - 10: {"loss": pytest.approx(1 / step)} for step in range(50, 301, 50)
    }
    (evaluated,) = (part for part in total["phases"] if part["phase"] == "evaluate")
    assert evaluated["times"] == 6
    assert sum(part["seconds"] for part in total["phases"]) == pytest.approx(total["seconds"], rel=5e-3)
    assert total["metrics"] == {"loss": pytest.approx(1 / 300)}
    assert total["energy"] > 0


def test_an_evaluation_alone_keeps_its_metrics_and_its_phase(stub: Stub, env: dict[str, str]) -> None:
    subprocess.run([sys.executable, "-c", EVALUATION, stub.uuid(0)], env=env, check=True, timeout=2 * PATIENCE)
    told = shown(env, "evaluation")
    assert told["total"]["metrics"] == {"test_loss": 0.5}
    (tested,) = (part for part in told["total"]["phases"] if part["phase"] == "test")
    assert tested["seconds"] == pytest.approx(2, abs=0.5)
    assert "test_loss" in gpumon("runs", "show", "evaluation", env=env).stdout
