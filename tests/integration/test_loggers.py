"""Values of each epoch where people log: real loggers, in a real training beside a real daemon on the stub driver."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpumon.ledger import aggregate
from gpumon.ledger.reader import Ledger
from gpumon.loggers.epoch_values import EPOCH_VALUES, values_of
from gpumon.paths import LEDGER
from tests.conftest import ROOT
from tests.nvml import Stub
from tests.programs import PATIENCE, daemon, environment
from tests.trainings import need

EPOCHS = 3
Values = dict[str, float]
LATE = {"gpu/utilization", "gpu/idle"}
"""Values that the driver's own samples make better after the end of a run, when the last epochs were written."""


class Logged:
    """A training that has ended, and what it was logged to."""

    def __init__(self, directory: Path, said: dict[str, Any], warned: str) -> None:
        self.directory = directory
        self.warned = warned
        self.run: str = said["run"]
        self.told: list[dict[str, Any]] = said["told"]

    @property
    def values(self) -> dict[int, Values]:
        """By epoch, as a function was given them."""
        return {one["epoch"]: one["values"] for one in self.told}

    def in_ledger(self) -> dict[int, Values]:
        """By epoch, as the ledger has them once the run is settled."""
        with Ledger(str(self.directory / "state" / LEDGER)) as ledger:
            return {epoch.epoch: values_of(epoch) for epoch in aggregate.epochs(ledger.record(self.run))}


def train(program: str, *words: str, env: dict[str, str], directory: Path) -> Logged:
    command = [sys.executable, "-m", program, *words]
    done = subprocess.run(
        command, env=env, cwd=directory, capture_output=True, text=True, timeout=3 * PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr
    return Logged(directory, json.loads(done.stdout.splitlines()[-1]), done.stderr)


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory, driver_library: Path) -> Iterator[Logged]:
    need("torch", "tensorboard")
    directory = tmp_path_factory.mktemp("logged")
    with Stub(driver_library) as stub:
        env = {**environment(directory, stub.env()), "PYTHONPATH": str(ROOT)}
        with daemon("--interval", "0.1", env=env):
            yield train("tests.trainings.logged", stub.uuid(0), env=env, directory=directory)


def scalars(directory: Path) -> dict[str, dict[int, float]]:
    """What TensorBoard reads: by name and step."""
    script = (
        "import json, sys; sys.modules['tensorflow'] = None\n"
        "from tensorboard.backend.event_processing.event_accumulator import EventAccumulator\n"
        "found = EventAccumulator(sys.argv[1]); found.Reload()\n"
        "print(json.dumps({name: {e.step: e.value for e in found.Scalars(name)} for name in found.Tags()['scalars']}))"
    )
    done = subprocess.run([sys.executable, "-c", script, directory], capture_output=True, text=True, check=True)
    return {name: {int(step): v for step, v in steps.items()} for name, steps in json.loads(done.stdout).items()}


def by_epoch(found: dict[str, dict[int, float]]) -> dict[int, Values]:
    epochs = {epoch for steps in found.values() for epoch in steps}
    return {e: {name: steps[e] for name, steps in found.items() if e in steps} for e in sorted(epochs)}


def test_each_epoch_comes_once_in_its_order_on_the_trainings_own_thread(logged: Logged) -> None:
    assert [one["epoch"] for one in logged.told] == list(range(EPOCHS))
    assert all(one["on_main"] for one in logged.told)


def test_the_first_come_while_the_training_runs_and_the_last_are_waited_for(logged: Logged) -> None:
    assert [one["running"] for one in logged.told][0::2] == [True, False]


def test_they_are_what_the_ledger_has(logged: Logged) -> None:
    expected = logged.in_ledger()
    for one in logged.told:
        left_out = set() if one["running"] else LATE
        found = {name: value for name, value in one["values"].items() if name not in left_out}
        assert found == {name: v for name, v in expected[one["epoch"]].items() if name not in left_out}
        assert set(one["values"]) == set(expected[one["epoch"]])


def test_unknown_values_are_left_out(logged: Logged) -> None:
    """The training holds nothing on the GPU, and its framework reports no memory."""
    unknown = {"gpu/run_peak_bytes", "gpu/reserved_peak_bytes", "gpu/live_peak_bytes"}
    assert {value.name for value in EPOCH_VALUES} - set(logged.values[0]) == unknown


def test_a_summary_writer_has_them_beside_the_loss_and_a_directory_too(logged: Logged) -> None:
    beside, alone = scalars(logged.directory / "writer"), scalars(logged.directory / "directory")
    assert beside.pop("loss") == {0: 1.0, 1: 0.5, 2: pytest.approx(1 / 3)}
    assert beside == alone
    assert by_epoch(alone) == {epoch: pytest.approx(values) for epoch, values in logged.values.items()}


def test_csv_has_a_line_for_each_epoch(logged: Logged) -> None:
    with (logged.directory / "values.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    found = {
        int(row["epoch"]): {name: float(v) for name, v in row.items() if v and name.startswith("gpu/")} for row in rows
    }
    assert found == logged.values
    assert [(row["run"], row["step"]) for row in rows[:2]] == [(logged.run, "12"), (logged.run, "24")]


def test_a_logger_that_fails_is_warned_of_once_and_costs_the_others_nothing(logged: Logged) -> None:
    assert logged.warned.count("gpumon: ") == 1
    assert "gpumon: log_to: broken failed: OSError: no space left" in logged.warned


def test_without_a_daemon_one_line_says_so_and_nothing_waits(live_dir: Path) -> None:
    script = (
        "import gpumon\n"
        "with gpumon.run('alone', epochs=2, log_to='values.csv', log_wait=600) as run:\n"
        "    for epoch in run.epochs(): run.step()\n"
    )
    env = {**environment(live_dir), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=env, cwd=live_dir, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert done.stderr.splitlines() == [
        "gpumon: log_to has nothing to write yet: no daemon is running: start one with 'gpumon daemon --detach'"
    ]
    assert not (live_dir / "values.csv").exists()


def test_an_interrupted_training_ends_at_once(watched: Path, stub: Stub) -> None:
    script = (
        "import gpumon, sys\n"
        f"with gpumon.run('left', epochs=2, devices='{stub.uuid(0)}', log_to='csv:values.csv', log_wait=600) as run:\n"
        "    for epoch in run.epochs():\n"
        "        if epoch: raise KeyboardInterrupt\n"
    )
    env = {**environment(watched), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=env, cwd=watched, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.stderr.splitlines()[-1] == "KeyboardInterrupt"
