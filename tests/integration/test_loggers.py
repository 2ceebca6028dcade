"""Values of each epoch where people log: real loggers, in a real training beside a real daemon on the stub driver."""

from __future__ import annotations

import csv
import json
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpumon.common.paths import LEDGER
from gpumon.loggers.epoch_values import EPOCH_VALUES, values_of
from gpumon.storage.ledger import aggregate
from gpumon.storage.ledger.reader import Ledger
from gpumon.storage.ledger.usage import MIN_UTILIZATION_SECONDS
from tests.conftest import ROOT
from tests.nvml import Stub
from tests.programs import PATIENCE, daemon, environment, gpumon, until
from tests.trainings import need

EPOCHS = 3
Values = dict[str, float]
LATE = {"gpu/utilization", "gpu/idle"}
"""Values that the driver's own samples make better after the end of a run, when the last epochs were written."""


class Logged:
    """A training that has ended, and what it was logged to."""

    def __init__(self, directory: Path, said: dict[str, Any], warned: str, warned_by_lightning: str) -> None:
        self.directory = directory
        self.warned = warned
        self.warned_by_lightning = warned_by_lightning
        self.run: str = said["run"]
        self.mlflow: str = said["mlflow"]
        self.told: list[dict[str, Any]] = said["told"]

    @property
    def values(self) -> dict[int, Values]:
        """By epoch, as a function was given them."""
        return {one["epoch"]: one["values"] for one in self.told}

    def in_ledger(self) -> dict[int, Values]:
        """By epoch, as the ledger has them once the run is settled."""
        with Ledger(str(self.directory / "state" / LEDGER)) as ledger:
            return {epoch.epoch: values_of(epoch) for epoch in aggregate.epoch_summaries(ledger.record(self.run))}


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory, driver_library: Path) -> Iterator[Logged]:
    """A loop by hand and a training by Lightning, at the same time."""
    need("torch", "tensorboard", "wandb", "mlflow", "lightning")
    directory = tmp_path_factory.mktemp("logged")
    offline = {
        "WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_CONSOLE": "off", "WANDB_X_DISABLE_STATS": "true",
        "WANDB_DIR": str(directory), "MLFLOW_ALLOW_FILE_STORE": "true",
        "MLFLOW_TRACKING_URI": (directory / "mlruns").as_uri(), "GIT_PYTHON_REFRESH": "quiet",
    }  # fmt: skip
    programs = ("tests.trainings.logged", "tests.trainings.logged_by_lightning")
    with Stub(driver_library) as stub:
        env = {**environment(directory, stub.env()), **offline, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
        with daemon("--interval", "0.1", env=env):
            trainings = [
                subprocess.Popen(
                    [sys.executable, "-m", program, stub.uuid(i)], env=env, cwd=directory, stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE, text=True,
                )
                for i, program in enumerate(programs)
            ]  # fmt: skip
            said = [training.communicate(timeout=3 * PATIENCE) for training in trainings]
            assert [training.returncode for training in trainings] == [0, 0], said
            yield Logged(directory, json.loads(said[0][0].splitlines()[-1]), said[0][1], said[1][1])


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


def test_each_epoch_is_written_once_in_order_on_the_main_thread(logged: Logged) -> None:
    assert [one["epoch"] for one in logged.told] == list(range(EPOCHS))
    assert all(one["on_main"] for one in logged.told)


def test_the_last_epochs_are_waited_for(logged: Logged) -> None:
    assert [one["running"] for one in logged.told][0::2] == [True, False]


def test_values_equal_those_of_the_ledger(logged: Logged) -> None:
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


def test_tensorboard_writers_and_directories_have_the_values(logged: Logged) -> None:
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


def history(directory: Path) -> list[dict[str, Any]]:
    """The rows that W&B has kept offline: its file is a log of records in blocks, each cut where a block ends."""
    from wandb.proto import wandb_internal_pb2

    (path,) = directory.glob("wandb/offline-run-*/*.wandb")
    data, at, record = path.read_bytes(), 7, b""
    rows = []
    while at + 7 <= len(data):
        left = (1 << 15) - at % (1 << 15)
        _, size, kind = struct.unpack_from("<IHB", data, at) if left >= 7 else (0, 0, 0)
        if kind == 0:
            at += left
            continue
        record += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):
            parsed = wandb_internal_pb2.Record()
            parsed.ParseFromString(record)
            record = b""
            if parsed.WhichOneof("record_type") == "history":
                cells = {item.key or "/".join(item.nested_key): item.value_json for item in parsed.history.item}
                rows.append({name: json.loads(value) for name, value in cells.items()})
    return rows


def test_wandb_has_the_values_and_keeps_the_rows_of_the_user(logged: Logged) -> None:
    rows = history(logged.directory)
    assert [(row["_step"], row["loss"]) for row in rows if "loss" in row] == [(0, 1.0), (10, 0.5), (20, 1 / 3)]
    found = {row["gpu/epoch"]: row for row in rows if "gpu/epoch" in row}
    assert {
        epoch: {name: v for name, v in row.items() if name.startswith("gpu/") and name != "gpu/epoch"}
        for epoch, row in found.items()
    } == logged.values


def test_mlflow_has_the_values_in_the_active_run(logged: Logged) -> None:
    metrics = logged.directory / "mlruns" / "0" / logged.mlflow / "metrics"
    steps = {
        str(path.relative_to(metrics)): {
            int(step): float(value) for _, value, step in (line.split() for line in path.read_text().splitlines())
        }
        for path in metrics.rglob("*")
        if path.is_file()
    }
    assert steps.pop("loss") == {0: 1.0, 1: 0.5, 2: 1 / 3}
    assert by_epoch(steps) == logged.values


def test_loggers_of_lightning_have_the_values_at_the_steps_of_the_loss(logged: Logged) -> None:
    (path,) = logged.directory.glob("lit-csv/**/metrics.csv")
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    losses = [(row["epoch"], row["step"]) for row in rows if row["loss"]]
    found = {(row["epoch"], row["step"]): row for row in rows if row["gpu/utilization"]}
    assert list(found) == losses == [("0", "11"), ("1", "23")]
    (events,) = logged.directory.glob("lit-tensorboard/**/events*")
    charts = scalars(events.parent)
    assert charts["gpu/energy_joules"] == {
        11: pytest.approx(float(found["0", "11"]["gpu/energy_joules"])),
        23: pytest.approx(float(found["1", "23"]["gpu/energy_joules"])),
    }
    assert "gpumon" not in logged.warned_by_lightning


def test_a_failing_logger_is_one_warning(logged: Logged) -> None:
    assert logged.warned.count("gpumon: ") == 1
    assert "gpumon: log_to: broken failed: OSError: no space left" in logged.warned


def test_without_a_daemon_there_is_one_warning_and_no_wait(live_dir: Path) -> None:
    script = (
        "import gpumon\n"
        "with gpumon.run('alone', epochs=2, log_to='values.csv', log_wait=600) as run:\n"
        "    for epoch in run.epochs(): run.step()\n"
    )
    env = {**environment(live_dir), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=env, cwd=live_dir, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("gpumon: log_to has nothing to write yet: no daemon is running")
    assert not (live_dir / "values.csv").exists()


LEFT = """
import gpumon, os, sys, time
with gpumon.run("left alone", epochs=3, devices=sys.argv[1], log_to="csv:left.csv", log_wait=600) as run:
    for epoch in run.epochs():
        if epoch == 1:
            print("in epoch 1", flush=True)
        while epoch == 1 and not os.path.exists("gone"):
            time.sleep(0.02)
        for _ in range(6):
            run.step()
            time.sleep(0.1)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_epochs_after_the_death_of_the_daemon_are_not_written(live_dir: Path, stub: Stub, how: signal.Signals) -> None:
    env = {**environment(live_dir, stub.env()), "PYTHONPATH": str(ROOT)}
    with daemon("--interval", "0.1", env=env) as watching:
        training = subprocess.Popen(
            [sys.executable, "-c", LEFT, stub.uuid(0)], env=env, cwd=live_dir, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert training.stdout is not None
        assert training.stdout.readline() == "in epoch 1\n"
        until(lambda: '"epoch": 1' in gpumon("runs", "show", "left alone", "--json", env=env).stdout)
        watching.send_signal(how)
        watching.wait(timeout=PATIENCE)
        (live_dir / "gone").touch()
        _, said = training.communicate(timeout=PATIENCE)
    assert training.returncode == 0, said
    assert said == "gpumon: log_to: the daemon has stopped: epochs that it has not recorded are not written\n"
    path = live_dir / "left.csv"
    rows = list(csv.DictReader(path.read_text().splitlines())) if path.exists() else []
    assert [row["epoch"] for row in rows] in ([], ["0"]), "no epoch that it did not see to its end"


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


RANK = """
import gpumon, sys, time
with gpumon.run("ranks", epochs=2, devices=sys.argv[1], log_to="csv:ranks.csv", log_wait=600) as run:
    for epoch in run.epochs():
        for _ in range(12):
            run.step()
            time.sleep(0.1)
"""


def test_the_first_rank_writes_for_all_of_them(watched: Path, stub: Stub) -> None:
    env = {
        **environment(watched), "PYTHONPATH": str(ROOT), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511",
    }  # fmt: skip
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, stub.uuid(i)], env={**env, "RANK": str(i), "LOCAL_RANK": str(i)}, cwd=watched
        )
        for i in range(2)
    ]
    assert [rank.wait(timeout=2 * PATIENCE) for rank in ranks] == [0, 0]
    with (watched / "ranks.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["epoch"] for row in rows] == ["0", "1"]
    with Ledger(str(watched / "state" / LEDGER)) as ledger:
        record = ledger.record(rows[0]["run"])
        expected = [epoch.value("energy") for epoch in aggregate.epoch_summaries(record)]
    assert len(record.ranks) == len(record.devices) == 2
    assert [float(row["gpu/energy_joules"]) for row in rows] == expected


STEPS = """
import gpumon, sys, time
with gpumon.run("steps", devices=sys.argv[1], log_to="csv:steps.csv", log_wait=600) as run:
    for _ in range(20):
        run.step()
        time.sleep(0.25)
"""


def test_a_training_without_epochs_logs_its_rows_of_steps(watched: Path, stub: Stub) -> None:
    env = {**environment(watched), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", STEPS, stub.uuid(0)]
    done = subprocess.run(command, env=env, cwd=watched, capture_output=True, text=True, timeout=2 * PATIENCE)
    assert (done.returncode, done.stderr) == (0, "")
    with (watched / "steps.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    steps = [int(row["step"]) for row in rows]
    assert steps == sorted(set(steps))
    assert steps[-1] == 20
    assert len(rows) >= 5
    assert all(row["gpu/steps_per_second"] for row in rows)
    short = [row for row in rows if float(row["gpu/epoch_seconds"]) < MIN_UTILIZATION_SECONDS]
    assert not any(row["gpu/utilization"] for row in short), "the driver has no sample of it"
    assert sum(bool(row["gpu/utilization"]) for row in rows) > len(rows) / 2
