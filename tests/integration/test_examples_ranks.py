"""The examples of Lightning, Transformers and torchrun as people run them, seen by a daemon and in a terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpumon.model.frame import Mark, RunState
from tests.conftest import ROOT
from tests.trainings import need, train
from tests.trainings.beside import assert_same_times, epochs_of, finished, shown, told
from tests.trainings.terminal import Terminal

EXAMPLES = ROOT / "examples"


@pytest.mark.slow
def test_lightning_regression(watched: Path, terminal: Terminal) -> None:
    """Not slow: test_ranks_joined runs this example in two ranks, test_between_truth Lightning beside a daemon."""
    need("torch", "lightning")
    train([EXAMPLES / "lightning_regression.py"], watched)
    terminal.shows("lightning-regression", "5/5")
    (run,), frames = finished(watched)
    assert (run.name, run.framework, run.state) == ("lightning-regression", "lightning", RunState.FINISHED)
    assert run.facts.batch == 64
    assert (run.epochs, run.base, run.epoch, run.step) == (5, 0, 4, 320)
    assert told(frames, Mark.EPOCH_BEGIN) == [(epoch, 64 * epoch, "train") for epoch in range(5)]
    assert [phase for *_, phase in told(frames, Mark.PHASE)] == ["sanity", "", *["validate", "train"] * 10]
    assert set(run.metrics) == {"train_loss", "val_loss"}
    assert run.metrics["val_loss"] < 2, "it learns: the variance is 8 · 0.43"
    ledger = shown(watched, run)
    assert epochs_of(ledger) == [(epoch, 64, ["train", "validate"]) for epoch in range(5)]
    assert all(epoch["metrics"].keys() == {"train_loss", "val_loss"} for epoch in ledger["epochs"])
    assert_same_times(ledger, frames, run)


@pytest.mark.slow
def test_transformers_classifier(watched: Path, terminal: Terminal) -> None:
    """Not slow: test_between_truth trains Transformers beside a daemon, test_callback_transformers holds its phases."""
    need("torch", "transformers", "accelerate")
    train([EXAMPLES / "transformers_classifier.py"], watched)
    terminal.shows("transformers-classifier", "4/4")
    (run,), frames = finished(watched)
    assert (run.name, run.framework, run.state) == ("transformers-classifier", "transformers", RunState.FINISHED)
    assert run.facts.batch == 64, "two batches of 32 a step"
    assert (run.epochs, run.base, run.first_epoch, run.epoch, run.step) == (4, 1, 1, 4, 128)
    assert told(frames, Mark.EPOCH_END) == [(epoch, 32 * epoch, "") for epoch in range(1, 5)]
    assert told(frames, Mark.PHASE) == [
        (epoch, 32 * epoch, phase) for epoch in range(1, 5) for phase in ("evaluate", "")
    ]
    assert {"loss", "learning_rate", "eval_loss", "eval_accuracy"} <= set(run.metrics)
    ledger = shown(watched, run)
    assert epochs_of(ledger) == [(epoch, 32, ["train"]) for epoch in range(1, 5)]
    assert all({"loss", "eval_loss", "eval_accuracy"} <= epoch["metrics"].keys() for epoch in ledger["epochs"])
    assert_same_times(ledger, frames, run)


def test_torchrun_ddp(watched: Path, terminal: Terminal) -> None:
    need("torch")
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2]
    train([*command, EXAMPLES / "torchrun_ddp.py"], watched, may_abort=True)
    terminal.shows("torchrun-ddp", "4/4")
    runs, frames = finished(watched, ranks=2)
    assert len({run.id for run in runs}) == 1
    assert [(run.rank, run.local_rank, run.world_size) for run in runs] == [(0, 0, 2), (1, 1, 2)]
    assert [(run.state, run.epoch, run.step) for run in runs] == [(RunState.FINISHED, 3, 160)] * 2
    assert [set(run.metrics) for run in runs] == [{"loss"}, {"loss"}]
    assert sorted(told(frames, Mark.EPOCH_BEGIN)) == sorted([(epoch, 40 * epoch, "train") for epoch in range(4)] * 2)
    assert runs[1].wait >= 4 * 40 * 0.005, "rank 1 reads slowly"
    ledger = shown(watched, runs[0])
    assert [rank["rank"] for rank in ledger["ranks"]] == [0, 1]
    assert epochs_of(ledger) == [(epoch, 40, ["train"]) for epoch in range(4)]
    assert all(epoch["metrics"].keys() == {"loss"} for epoch in ledger["epochs"])
    assert_same_times(ledger, frames, runs[0])
