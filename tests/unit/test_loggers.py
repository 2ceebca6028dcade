"""Values of an epoch for loggers: which are known, when they are final, and what `log_to` takes."""

from __future__ import annotations

import json
import logging
import pickle
import re
import subprocess
import sys
import threading
from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from threading import Event
from typing import Any

import pytest

import gpumon
from gpumon.callbacks.hook import Hook, with_loggers
from gpumon.common.paths import LEDGER, Places
from gpumon.loggers.csv_file import CsvLogger
from gpumon.loggers.epoch_log import MAX_FAILURES, EpochLog
from gpumon.loggers.epoch_reader import EpochReader
from gpumon.loggers.epoch_values import EPOCH_VALUES, values_of
from gpumon.loggers.logger import EpochPosition
from gpumon.loggers.registry import make_loggers
from gpumon.loggers.wandb import WandbLogger
from gpumon.model.metrics import Unit
from gpumon.storage.ledger import aggregate
from gpumon.storage.ledger.reader import Ledger
from gpumon.storage.ledger.records import SettledEpochs
from tests.programs import environment
from tests.runs import GIB, Book, measured

PLACE = EpochPosition(epoch=7, step=70, ended=1_790_000_000.0)


pytestmark = pytest.mark.usefixtures("fresh_warnings")


def one_epoch(directory: Path, usage: Mapping[str, Any], **epoch: Any) -> dict[str, float]:
    """Return the values of a made-up epoch on one GPU."""
    with Book(directory) as book:
        run = book.run()
        key = book.rank(run)
        book.epoch(key, 0, **epoch)
        book.usage(key, 0, book.device(key), **usage)
        with Ledger(str(book.path)) as ledger:
            (found,) = aggregate.epoch_summaries(ledger.record(run))
    return values_of(found)


def test_a_sampled_epoch_has_its_values_in_base_units(tmp_path: Path) -> None:
    usage = measured(10.0, 0.9)
    values = one_epoch(tmp_path, usage, peak=31 * GIB, peak_reached=1)
    expected = {
        "gpu/utilization": 0.9, "gpu/wait": 0.05, "gpu/energy_joules": usage["energy"], "gpu/epoch_seconds": 10.0,
        "gpu/energy_per_step_joules": usage["energy"] / 100, "gpu/live_peak_bytes": 31 * GIB,
        "gpu/steps_per_second": 10.0,
    }  # fmt: skip
    assert expected.items() <= values.items()
    assert {value.name for value in EPOCH_VALUES} - set(values) == {
        "gpu/samples_per_second",
        "gpu/energy_per_sample_joules",
    }


def test_a_partly_sampled_epoch_has_only_values_of_the_training(tmp_path: Path) -> None:
    values = one_epoch(tmp_path, {**measured(10.0, 0.9), "sampled": 6.0})
    assert set(values) == {"gpu/wait", "gpu/epoch_seconds", "gpu/steps_per_second"}


def test_an_upper_bound_is_not_a_peak(tmp_path: Path) -> None:
    values = one_epoch(tmp_path, {**measured(10.0, 0.9), "run_allocated_peak": None}, peak=31 * GIB, peak_reached=0)
    assert "gpu/live_peak_bytes" not in values


def test_names_end_with_their_unit() -> None:
    for value in EPOCH_VALUES:
        if value.unit is not Unit.RATIO:
            assert value.name.endswith(f"_{value.unit.value}")
    assert len({value.name for value in EPOCH_VALUES}) == len(EPOCH_VALUES)


def progress(begun: int, *unsettled: int) -> str:
    return json.dumps({"course": {"next": begun, "epochs": [{"epoch": [i, i, 0, []]} for i in unsettled]}})


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ([], SettledEpochs()),
        ([progress(3, 2)], SettledEpochs(3, frozenset({2}))),
        ([progress(5, 4), progress(4, 2, 3)], SettledEpochs(4, frozenset({2, 3, 4}))),
        ([progress(5), None], SettledEpochs(0)),
        (["{"], SettledEpochs(0)),
        (['{"course": {"next": 1, "epochs": [0]}}'], SettledEpochs(0)),
    ],
)
def test_an_epoch_is_settled_for_all_ranks(states: list[str | None], expected: SettledEpochs) -> None:
    assert reduce(SettledEpochs.combine, map(SettledEpochs.from_progress, states), SettledEpochs()) == expected
    assert not expected.has(4) or not states


@pytest.mark.parametrize("given", ["tensorbord", "csv:", "csv", 3, 3.5, [None]])
def test_an_invalid_logger_is_one_warning(given: object, live_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    with gpumon.run("refused", log_to=given, directory=str(live_dir)) as run:
        assert run.on
    (record,) = caplog.records
    assert re.search(r'log_to=.*: give "csv:PATH", .*a path, a logger, or a function$', record.getMessage())


@pytest.mark.parametrize("given", ["3 s", -1, float("nan"), float("inf"), None])
def test_an_invalid_log_wait_is_one_warning(given: Any, live_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    log_to = f"csv:{live_dir}/a.csv"
    with gpumon.run("refused", log_to=log_to, log_wait=given, directory=str(live_dir)) as run:
        assert run.on
    assert any(re.search(r"log_wait=.*: give seconds from 0 to 3600$", one.getMessage()) for one in caplog.records)


def test_a_logger_that_cannot_be_created_is_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with caplog.at_level(logging.WARNING, "gpumon"):
        assert [logger.name for logger in make_loggers(["tensorboard:x", Path("a.csv")], "run-1")] == ["a.csv"]
    (said,) = caplog.messages
    assert "log_to='tensorboard:x' is left out: log_to='tensorboard' requires" in said


def test_a_file_with_other_columns_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "loss.csv"
    path.write_text("epoch,loss\n1,0.5\n")
    with pytest.raises(gpumon.common.errors.GpumonError, match="other columns"):
        CsvLogger(str(path), "run-1").write({"gpu/utilization": 0.5}, PLACE)
    assert path.read_text() == "epoch,loss\n1,0.5\n"


def test_a_second_run_appends_to_the_file_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "new" / "values.csv"
    for run in ("run-1", "=run"):
        CsvLogger(str(path), run).write({"gpu/utilization": 0.5}, PLACE)
    header, *lines = path.read_text().splitlines()
    assert header.startswith("run,epoch,step,gpu/utilization,gpu/idle,")
    assert [line.partition(",,")[0] for line in lines] == ["run-1,7,70,0.5", "'=run,7,70,0.5"]


class Failing:
    """A logger whose server does not answer."""

    name = "server"

    def __init__(self) -> None:
        self.calls = 0

    def write(self, values: Mapping[str, float], at: EpochPosition) -> None:
        self.calls += 1
        raise TimeoutError("no answer")

    def close(self) -> None:
        raise TimeoutError("no answer")


def test_a_logger_that_keeps_failing_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    failing = Failing()
    log = EpochLog([failing], Places, 0.0)
    for _ in range(10):
        log.write({"gpu/utilization": 0.5}, PLACE)
    log.run_ended(0, waits=True)
    assert failing.calls == MAX_FAILURES
    assert caplog.messages == ["gpumon: log_to: server failed: TimeoutError: no answer"]


def test_settled_epochs_are_read_once(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        key = book.rank(book.run())
        uuid = book.device(key)
        for ordinal in range(3):
            book.epoch(key, ordinal, **({"ended": None} if ordinal == 2 else {}))
            book.usage(key, ordinal, uuid, **measured())
        book.add("progress", rank=key, state=progress(3, 1, 2))
        where = Places(explicit=str(tmp_path), state=str(tmp_path))
        reader = EpochReader(key, where)
        reader.read()
        reader.read()
        assert [epoch.epoch for epoch in reader.pop_arrived()] == [0]
        book.db.execute("UPDATE progress SET state = ?", (progress(3, 2),))
        reader.read()
        assert [epoch.epoch for epoch in reader.pop_arrived()] == [1]
        assert reader.pop_arrived() == []


@pytest.mark.parametrize(("seconds", "pause"), [(0.001, 1.0), (0.2, 10.0)])
def test_expensive_reads_are_rare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, pause: float
) -> None:
    times = iter((5.0, 5.0 + seconds))
    monkeypatch.setattr("gpumon.loggers.epoch_reader.thread_time", lambda: next(times))
    reader = EpochReader("tag.1", Places(explicit=str(tmp_path), state=str(tmp_path)))
    pauses: list[float] = []

    class Waited(Event):
        def wait(self, timeout: float | None = None) -> bool:
            pauses.append(timeout or 0.0)
            reader._over.set()
            return False

    reader._waited = Waited()
    reader._wake.set()
    reader._run()
    assert pauses == pytest.approx([pause])


def test_a_training_without_log_to_reads_no_ledger(tmp_path: Path) -> None:
    script = (
        "import sys, gpumon\n"
        "with gpumon.run('plain'): pass\n"
        "print([name for name in sys.modules if name.startswith(('gpumon.loggers', 'gpumon.storage', 'sqlite3'))])"
    )
    env = environment(tmp_path)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=env)
    assert done.stdout == "[]\n"


class Charts:
    """A run of W&B. Its rows only increase, and later values of an open row replace earlier ones."""

    def __init__(self) -> None:
        self.step = 0
        self.rows: dict[int, dict[str, float]] = {}
        self.defined: list[str] = []

    def define_metric(self, name: str, **_: Any) -> None:
        self.defined.append(name)

    def log(self, data: Mapping[str, float], step: int | None = None, commit: bool | None = None) -> None:
        if step is not None:
            assert step >= self.step, "W&B would drop this row"
            self.step = step
        self.rows.setdefault(self.step, {}).update(data)
        if commit or (commit is None and step is None):
            self.step += 1


@pytest.mark.parametrize("explicit", [False, True])
def test_wandb_keeps_epochs_and_steps_of_the_user(explicit: bool) -> None:
    charts = Charts()
    log = WandbLogger(charts)
    for number in range(5):
        charts.log({"loss": number}, step=number if explicit else None)
        if number != 2:
            log.write({"gpu/utilization": number / 10}, EpochPosition(number, 0, 0.0))
    log.write({"gpu/utilization": 0.2}, EpochPosition(2, 0, 0.0))
    assert [row["loss"] for row in charts.rows.values() if "loss" in row] == [0, 1, 2, 3, 4]
    log.flush()
    found = {row["gpu/epoch"]: row["gpu/utilization"] for row in charts.rows.values() if "gpu/epoch" in row}
    assert found == {epoch: epoch / 10 for epoch in range(5)}
    assert charts.defined == ["gpu/epoch", "gpu/*"]


def test_without_an_active_run_there_is_one_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    log = EpochLog([WandbLogger()], Places, 0.0)
    log.write({"gpu/utilization": 0.5}, PLACE)
    log.write({"gpu/utilization": 0.5}, PLACE)
    (said,) = caplog.messages
    assert said == ("gpumon: log_to: wandb failed: no run is active: call wandb.init() before the first epoch ends")


class Trainer:
    """A logger of a framework that cannot be pickled."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def log_metrics(self, metrics: dict[str, float], step: int) -> None: ...


def test_the_name_of_a_framework_means_its_loggers() -> None:
    own, other = Trainer(), Path("a.csv")
    assert with_loggers({"log_to": ["lightning", other]}, "lightning", [own])["log_to"] == [own, other]
    assert with_loggers({"log_to": "lightning"}, "lightning", [])["log_to"] is None
    assert with_loggers({"log_to": own, "batch": 4}, "lightning", [own]) == {"log_to": own, "batch": 4}
    assert with_loggers({}, "lightning", [own]) == {}


def test_a_callback_with_any_logger_can_be_pickled() -> None:
    for log_to, kept in ((Trainer(), None), ("csv:a.csv", "csv:a.csv"), (Path("a.csv"), Path("a.csv"))):
        hook = pickle.loads(pickle.dumps(Hook("torch", log_to=log_to, batch=4)))
        assert hook._settings == {"log_to": kept, "batch": 4}


def test_only_a_permanently_unreadable_ledger_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / LEDGER
    reader = EpochReader("tag.1", Places(explicit=str(tmp_path), state=str(tmp_path)))
    path.touch()
    reader.read()
    path.write_bytes(b"no database" * 100)
    reader.read()
    assert not caplog.messages
    reader.read()
    reader.read()
    (said,) = caplog.messages
    assert "ledger.sqlite is damaged" in said


def test_a_run_missing_in_the_ledger_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    reader = EpochReader("tag.1", Places(explicit=str(tmp_path), state="/var/lib/other", usual_state=True))
    reader.epoch_ended(0)
    reader.wait(0.01)
    assert caplog.messages == [
        "gpumon: log_to wrote nothing: no epoch of this run was in /var/lib/other/ledger.sqlite after 0.01 s"
    ]
