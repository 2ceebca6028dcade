"""`GpuMonitor` for Ignite and the tracker for Accelerate, beside a real daemon: one process runs `engine_cases`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.model.frame import Mark, RunState, wait_between
from tests.nvml import Stub
from tests.programs import daemon, environment
from tests.trainings import need
from tests.trainings.beside import TaggedCases, shown

CASES = 14


@pytest.fixture(scope="module")
def cases(driver_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TaggedCases]:
    need("torch", "ignite", "accelerate")
    live_dir = tmp_path_factory.mktemp("engines")
    with Stub(driver_library) as stub, daemon("--interval", "0.1", env=environment(live_dir, stub.env())):
        yield TaggedCases("tests.trainings.engine_cases", live_dir, CASES)


def test_evaluations_are_phases_of_the_run(
    cases: TaggedCases,
) -> None:
    assert cases["ignite"].marks() == [
        ("RUN_BEGIN", -1, 0, ""),
        ("EPOCH_BEGIN", 1, 0, "train"),
        ("PHASE", 1, 3, "validate"),
        ("PHASE", 1, 3, "train"),
        ("EPOCH_END", 1, 3, ""),
        ("EPOCH_BEGIN", 2, 3, "train"),
        ("PHASE", 2, 6, "validate"),
        ("PHASE", 2, 6, "train"),
        ("EPOCH_END", 2, 6, ""),
        ("PHASE", 2, 6, ""),
        ("PHASE", 2, 6, "test"),
        ("RUN_END", 2, 6, ""),
    ]
    run = cases["ignite"].run
    assert (run.framework, run.epochs, run.base, run.first_epoch) == ("ignite", 2, 1, 1)
    assert run.state is RunState.FINISHED


def test_an_evaluation_attached_after_the_monitor_is_between_epochs(cases: TaggedCases) -> None:
    assert [mark for mark in cases["ignite, between"].marks() if mark[0] == "PHASE"] == [
        ("PHASE", 1, 3, "validate"), ("PHASE", 1, 3, ""), ("PHASE", 2, 6, "validate"), ("PHASE", 2, 6, ""),
    ]  # fmt: skip


def test_saving_is_a_checkpoint_and_a_skipped_save_is_not(cases: TaggedCases) -> None:
    one = cases["ignite, saving"]
    assert [mark for mark in one.marks() if mark[0] in ("PHASE", "CHECKPOINT")] == [
        ("PHASE", 1, 3, "validate"), ("PHASE", 1, 3, ""), ("CHECKPOINT", 1, 3, "checkpoint"), ("PHASE", 1, 3, ""),
        ("PHASE", 2, 6, "validate"), ("PHASE", 2, 6, ""), ("CHECKPOINT", 2, 6, "checkpoint"), ("PHASE", 2, 6, ""),
        ("PHASE", 3, 9, "validate"), ("PHASE", 3, 9, ""),
    ]  # fmt: skip
    times = [b.monotonic_ns for b in one.boundaries if b.mark in (Mark.PHASE, Mark.CHECKPOINT) and b.epoch == 1]
    assert times[3] - times[2] >= 50_000_000, "it lasts as long as the saving"


def test_boundaries_are_between_the_neighboring_handlers(cases: TaggedCases) -> None:
    for case in ("ignite", "ignite, resumed", "ignite, stopped False"):
        for hook, mark in (
            ("STARTED", Mark.RUN_BEGIN), ("EPOCH_STARTED", Mark.EPOCH_BEGIN), ("EPOCH_COMPLETED", Mark.EPOCH_END),
        ):  # fmt: skip
            before, after = ([t for name, t in cases.seen[case][side] if name == hook] for side in ("before", "after"))
            found = cases[case].times(mark)[: len(before)]
            assert len(found) == len(before) == len(after) > 0, (case, hook)
            assert all(a <= time <= b for a, time, b in zip(before, found, after, strict=True)), (case, hook)
    before, after = (dict(cases.seen["ignite"][side])["COMPLETED"] for side in ("before", "after"))
    assert before <= cases["ignite"].trained <= after


def test_metrics_are_stored_with_epoch_and_phase(cases: TaggedCases) -> None:
    epochs = shown(cases.live_dir, cases["ignite, between"].run)["epochs"]
    assert [epoch["metrics"] for epoch in epochs] == [
        {"loss": 1.0, "validate_accuracy": 0.25}, {"loss": 0.5, "validate_accuracy": 0.5},
    ]  # fmt: skip
    assert cases["ignite"].run.metrics["test_accuracy"] == 0.75


def test_the_wait_for_data_is_measured_at_each_fetch(cases: TaggedCases) -> None:
    one, seen = cases["ignite"], cases.seen["ignite"]
    assert seen["slept"] <= one.run.wait * 1e9 + 1
    begin, end = (b for b in one.boundaries if b.mark is Mark.PHASE and b.epoch == 1)
    assert wait_between(begin.wait, end.wait) >= 0.02, "of the validation too"


def test_planned_steps_and_batch_size_are_published(cases: TaggedCases) -> None:
    assert cases["ignite, loader"].run.facts.batch == 4
    assert cases["ignite, iterations"].run.facts.planned_steps == 5
    assert cases["ignite, iterations"].run.step == 5


def test_a_resumed_training_begins_with_its_epoch(cases: TaggedCases) -> None:
    run = cases["ignite, resumed"].run
    assert (run.first_epoch, run.epochs, run.epoch, run.step) == (2, 3, 3, 9)


@pytest.mark.parametrize(
    ("case", "state", "steps"),
    [
        ("ignite, failed", RunState.FAILED, 1),
        ("ignite, interrupted", RunState.INTERRUPTED, 4),
        ("ignite, handled", RunState.FINISHED, 5),
        ("ignite, stopped False", RunState.FINISHED, 4),
        ("ignite, stopped True", RunState.FINISHED, 4),
    ],
)
def test_a_run_ends_like_its_engine(cases: TaggedCases, case: str, state: RunState, steps: int) -> None:
    assert (cases[case].run.state, cases[case].run.step) == (state, steps)


@pytest.mark.parametrize("case", ["ignite, stopped False", "ignite, stopped True", "ignite, iterations"])
def test_an_epoch_in_which_an_engine_is_stopped_is_aborted(cases: TaggedCases, case: str) -> None:
    marks = [mark for mark, *_ in cases[case].marks() if mark.startswith("EPOCH")]
    assert marks == ["EPOCH_BEGIN", "EPOCH_END", "EPOCH_BEGIN", "EPOCH_ABORTED"]


def test_an_evaluation_without_a_training_is_a_run_of_its_own(cases: TaggedCases) -> None:
    assert [(mark, epoch, phase) for mark, epoch, _, phase in cases["ignite, alone"].marks()] == [
        ("RUN_BEGIN", -1, ""), ("PHASE", -1, "validate"), ("RUN_END", -1, ""),
    ]  # fmt: skip


def test_a_tracker_shows_what_is_logged(cases: TaggedCases) -> None:
    tracked = [one for one in cases._told.values() if one.run.framework == "accelerate"]
    assert len(tracked) == 2, "one by its name, one by its class"
    for one, case in zip(tracked, ("by name", "accelerate"), strict=True):
        assert one.run.state is RunState.FINISHED
        assert one.run.metrics["loss"] == pytest.approx(cases.seen[case]["loss"])
        config = shown(cases.live_dir, one.run)["run"]["config"]
        assert config["learning_rate"] == 0.001
        assert "k-123" not in str(config), "a secret"


def test_the_run_of_a_tracker_can_mark_epochs_and_steps(cases: TaggedCases) -> None:
    assert [mark for mark in cases["accelerate"].marks() if mark[0].startswith("EPOCH")] == [
        ("EPOCH_BEGIN", 0, 0, "train"), ("EPOCH_END", 0, 3, ""), ("EPOCH_BEGIN", 1, 3, "train"),
        ("EPOCH_END", 1, 6, ""),
    ]  # fmt: skip
