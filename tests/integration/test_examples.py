"""The examples that are one process, as people run them but smaller, seen by a daemon and in a terminal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpumon.model.frame import Mark, RunState
from tests.conftest import ROOT
from tests.programs import environment, gpumon
from tests.trainings import need
from tests.trainings.beside import assert_same_times, epochs_of, finished, shown, told, watch
from tests.trainings.terminal import Terminal

EXAMPLES = ROOT / "examples"


@pytest.mark.slow
def test_keras_cifar(watched: Path, terminal: Terminal) -> None:
    """Not slow: test_between_truth trains Keras on torch beside a daemon, test_callback_keras holds its boundaries."""
    need("torch", "keras")
    row, _ = watch([EXAMPLES / "keras_cifar.py", "--epochs", 3, "--images", 512], watched)
    assert (row["name"], row["framework"], row["epochs"]) == ("keras-cifar", "keras/torch", 3)
    assert row["epoch"] in (1, 2, 3)
    terminal.shows("keras-cifar", "3/3")
    (run,), frames = finished(watched)
    assert run.state is RunState.FINISHED
    assert (run.base, run.first_epoch, run.epoch, run.step) == (1, 1, 3, 18)
    assert told(frames, Mark.EPOCH_BEGIN) == [(epoch, 6 * (epoch - 1), "train") for epoch in (1, 2, 3)]
    assert told(frames, Mark.EPOCH_END) == [(epoch, 6 * epoch, "") for epoch in (1, 2, 3)]
    assert [phase for *_, phase in told(frames, Mark.PHASE)] == ["validate", "train"] * 3
    ledger = shown(watched, run)
    assert ledger["run"]["state"] == "finished"
    assert epochs_of(ledger) == [(epoch, 6, ["train", "validate"]) for epoch in (1, 2, 3)]
    for epoch in ledger["epochs"]:
        assert epoch["metrics"].keys() == {"loss", "val_loss", "accuracy", "val_accuracy"}
    assert ledger["epochs"][2]["metrics"] == pytest.approx(run.metrics)
    assert_same_times(ledger, frames, run)


def test_pytorch_tabular(watched: Path, terminal: Terminal) -> None:
    need("torch")
    row, printed = watch([EXAMPLES / "pytorch_tabular.py", "--epochs", 3, "--events", 4096], watched)
    assert (row["name"], row["framework"], row["epochs"]) == ("pytorch-tabular", "torch", 3)
    assert row["epoch"] in (0, 1, 2)
    terminal.shows("pytorch-tabular", "3/3")
    (run,), frames = finished(watched)
    assert run.state is RunState.FINISHED
    assert (run.base, run.first_epoch, run.epoch, run.step) == (0, 0, 2, 48)
    assert told(frames, Mark.EPOCH_BEGIN) == [(epoch, 16 * epoch, "train") for epoch in range(3)]
    assert told(frames, Mark.EPOCH_END) == [(epoch, 16 * (epoch + 1), "") for epoch in range(3)]
    assert told(frames, Mark.PHASE) == [
        (epoch, 16 * (epoch + 1), phase) for epoch in range(3) for phase in ("validate", "train")
    ]
    ledger = shown(watched, run)
    assert epochs_of(ledger) == [(epoch, 16, ["train", "validate"]) for epoch in range(3)]
    assert ledger["total"]["steps"] == 48
    for line, epoch in zip(printed.splitlines(), ledger["epochs"], strict=True):
        logged = epoch["metrics"]
        assert line == f"epoch {epoch['epoch']}: loss {logged['loss']:.4f}, accuracy {logged['accuracy']:.3f}"
    assert_same_times(ledger, frames, run)


def test_loader_workers(watched: Path, terminal: Terminal) -> None:
    need("torch")
    row, printed = watch([EXAMPLES / "loader_workers.py", "--epochs", 3, "--rows", 128], watched)
    assert row["name"] in ("loader-0-workers", "loader-2-workers")
    terminal.shows("loader-0-workers", "3/3")
    terminal.shows("loader-2-workers", "3/3")
    runs, frames = finished(watched, ranks=2)
    assert [run.name for run in runs] == ["loader-0-workers", "loader-2-workers"]
    assert runs[0].wait >= 3 * 128 * 0.0005, "each row takes half a millisecond"
    ledgers = [shown(watched, run) for run in runs]
    for run, ledger in zip(runs, ledgers, strict=True):
        # The forks of the DataLoader inherit the run, and must not count along.
        assert epochs_of(ledger) == [(epoch, 4, ["train"]) for epoch in range(3)]
        assert ledger["epochs"][2]["metrics"] == pytest.approx(run.metrics)
        assert_same_times(ledger, frames, run)
    command = printed.splitlines()[-1].removeprefix("Compare them: ").split()
    assert command == ["gpumon", "runs", "compare", *(run.id for run in runs)]
    compared = json.loads(gpumon(*command[1:], "--json", env=environment(watched)).stdout)
    assert compared["measures"][0]["name"] == "seconds"
