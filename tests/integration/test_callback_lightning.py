"""`GpuMonitor` for Lightning, in real trainings on the CPU: one process runs all cases of `lightning_cases`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from itertools import pairwise

import pytest

from gpumon.model.frame import Mark, RunState
from tests.conftest import ROOT
from tests.programs import PATIENCE
from tests.trainings import Cases, need

Times = Mapping[str, list[tuple[str, int]]]


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Cases:
    need("torch", "lightning", "pytorch_lightning")
    live_dir = tmp_path_factory.mktemp("lightning")
    return Cases("lightning_cases", live_dir, live_dir)


def test_sanity_check_epochs_and_validations_are_in_order(cases: Cases) -> None:
    assert cases["whole"].marks() == [
        ("RUN_BEGIN", -1, 0, ""),
        ("PHASE", -1, 0, "sanity"),
        ("PHASE", -1, 0, ""),
        ("EPOCH_BEGIN", 0, 0, "train"),
        ("PHASE", 0, 2, "validate"),
        ("PHASE", 0, 2, "train"),
        ("PHASE", 0, 4, "validate"),
        ("PHASE", 0, 4, "train"),
        ("EPOCH_END", 0, 4, ""),
        ("EPOCH_BEGIN", 1, 4, "train"),
        ("PHASE", 1, 6, "validate"),
        ("PHASE", 1, 6, "train"),
        ("PHASE", 1, 8, "validate"),
        ("PHASE", 1, 8, "train"),
        ("EPOCH_END", 1, 8, ""),
        ("RUN_END", 1, 8, ""),
    ]
    run = cases["whole"].run
    assert (run.framework, run.epochs, run.base, run.first_epoch) == ("lightning", 2, 0, 0)
    assert run.state is RunState.FINISHED


@pytest.mark.parametrize(
    ("hook", "mark", "phase"),
    [
        ("on_train_epoch_start", Mark.EPOCH_BEGIN, None),
        ("on_train_epoch_end", Mark.EPOCH_END, None),
        ("setup", Mark.RUN_BEGIN, None),
        ("teardown", Mark.RUN_END, None),
    ],
)
def test_boundaries_are_between_the_neighboring_callbacks(
    cases: Cases, hook: str, mark: Mark, phase: str | None
) -> None:
    for case in ("whole", "resumed", "waits"):
        times: Times = cases.seen[case]
        before, after = ([time for name, time in times[side] if name == hook] for side in ("before", "after"))
        found = cases[case].times(mark, phase) if hook != "teardown" else [cases[case].trained]
        assert len(found) == len(before) == len(after) > 0
        assert all(a <= time <= b for a, time, b in zip(before, found, after, strict=True)), (case, found)


def test_phases_are_between_the_neighboring_callbacks(cases: Cases) -> None:
    names = ("on_validation_start", "on_validation_end")
    before, after = ([t for name, t in cases.seen["whole"][side] if name in names] for side in ("before", "after"))
    found = cases["whole"].times(Mark.PHASE)
    assert len(found) == 10, "two of the sanity check, four of each epoch"
    assert all(a <= time <= b for a, time, b in zip(before, found, after, strict=True))


def test_metrics_are_stored_with_their_epoch(cases: Cases) -> None:
    whole = cases["whole"]
    final = cases.seen["whole"]["metrics"]
    assert set(whole.run.metrics) == {"train_loss", "val_loss", "epoch_squared"}, "train_loss_step is train_loss"
    assert whole.logged(1) == {name: final[name] for name in whole.run.metrics}
    assert whole.logged(1)["train_loss"] == final["train_loss_epoch"]
    assert [whole.logged(epoch)["epoch_squared"] for epoch in (0, 1)] == [0.0, 1.0]
    assert list(whole.run.metrics)[-1] == "epoch_squared", "losses come first"


def test_a_validation_within_an_epoch_has_no_values_of_the_previous_one(cases: Cases) -> None:
    before, after = (b for b in cases["whole"].boundaries if b.epoch == 1 and b.step == 6)
    assert not before.metrics
    assert set(after.metrics) == {"train_loss", "val_loss"}, "the module logs epoch_squared at the end of an epoch only"


def test_a_resumed_training_begins_with_its_epoch_and_step(cases: Cases) -> None:
    resumed = cases["resumed"]
    assert (resumed.run.first_epoch, resumed.run.epochs, resumed.run.epoch) == (2, 4, 3)
    assert [mark for mark in resumed.marks() if mark[0].startswith("EPOCH")] == [
        ("EPOCH_BEGIN", 2, 8, "train"),
        ("EPOCH_END", 2, 16, ""),
        ("EPOCH_BEGIN", 3, 16, "train"),
        ("EPOCH_END", 3, 24, ""),
    ]


def test_a_training_resumed_within_an_epoch_continues_it(cases: Cases) -> None:
    assert [mark for mark in cases["middle"].marks() if mark[0].startswith("EPOCH")] == [
        ("EPOCH_BEGIN", 0, 3, "train"),
        ("EPOCH_END", 0, 8, ""),
        ("EPOCH_BEGIN", 1, 8, "train"),
        ("EPOCH_END", 1, 16, ""),
    ]


@pytest.mark.parametrize(
    ("case", "state"),
    [("failed", RunState.FAILED), ("interrupted", RunState.INTERRUPTED), ("left", RunState.FINISHED)],
)
def test_an_exception_ends_the_run_at_once(cases: Cases, case: str, state: RunState) -> None:
    one = cases[case]
    assert one.run.state is state
    marks = [mark for mark, *_ in one.marks() if mark not in ("CHECKPOINT", "PHASE")]  # it saves before it is stopped
    assert marks == ["RUN_BEGIN", "EPOCH_BEGIN", "EPOCH_ABORTED", "RUN_END"]
    times = [dict(cases.seen[case][side])["on_exception"] for side in ("before", "after")]
    assert times[0] <= one.times(Mark.RUN_END)[0] <= times[1]


def test_several_optimizers_and_validation_loaders_are_supported(cases: Cases) -> None:
    one = cases["optimizers"]
    assert one.run.step == 16, "8 batches, 2 optimizers"
    assert [phase for mark, _, _, phase in one.marks() if mark == "PHASE"] == ["sanity", "", "validate", "train"]
    assert {"val_loss/dataloader_idx_0", "val_loss/dataloader_idx_1"} <= set(one.run.metrics)


def test_the_wait_for_data_is_the_time_of_the_loader(cases: Cases) -> None:
    one, seen = cases["waits"], cases.seen["waits"]
    began, ended = one.times(Mark.RUN_BEGIN)[0], one.times(Mark.RUN_END)[0]
    assert seen["slept"] <= one.run.wait * 1e9 + 1, "each read of the training's loader is in it"
    assert one.run.wait * 1e9 <= ended - began - seen["worked"], "no step is, of training or validation"
    waits = [b.wait for b in one.boundaries]
    assert waits == sorted(waits)
    for start, end in pairwise(one.phases):
        if start.phase == "validate":
            assert start.wait == end.wait, "the loader of the validation is not in it"


def test_validate_test_and_predict_alone_are_runs_with_that_phase(cases: Cases) -> None:
    phases = [{phase for mark, _, _, phase in one.marks() if mark == "PHASE"} for one in cases.all("alone")]
    assert phases == [{"validate", ""}, {"test", ""}, {"predict", ""}]
    assert [set(one.run.metrics) for one in cases.all("alone")] == [{"val_loss"}, {"test_loss"}, set()]
    assert all(one.run.state is RunState.FINISHED for one in cases.all("alone"))


def test_one_instance_serves_both_packages_one_after_the_other(cases: Cases) -> None:
    first, second = cases.all("other")
    assert first.marks() == second.marks()
    assert first.run.id != second.run.id


def test_validate_test_and_predict_after_a_training_belong_to_its_run(cases: Cases) -> None:
    (one,) = cases.all("then tested")
    assert [mark for mark in one.marks()[1:] if mark[0] != "EPOCH_BEGIN"] == [
        ("PHASE", 0, 2, "validate"), ("PHASE", 0, 2, "train"), ("EPOCH_END", 0, 2, ""),
        *[("PHASE", 0, 2, phase) for stage in ("validate", "test", "predict") for phase in ("", stage, "")],
        ("RUN_END", 0, 2, ""),
    ]  # fmt: skip
    assert one.run.state is RunState.FINISHED
    assert "test_loss" in one.run.metrics
    assert one.times(Mark.RUN_END)[0] == max(b.monotonic_ns for b in one.boundaries if b.phase == "paused")


def test_a_failure_after_a_training_fails_the_run(cases: Cases) -> None:
    one = cases["then failed"]
    assert one.run.state is RunState.FAILED
    assert [mark for mark, *_ in one.marks()][-1] == "RUN_END"


def test_saving_a_checkpoint_is_a_phase(cases: Cases) -> None:
    one, seen = cases["saves"], cases.seen["saves"]["saved"]
    found = [(b.epoch, b.monotonic_ns) for b in one.boundaries if b.mark is Mark.CHECKPOINT]
    assert [epoch for epoch, _ in found] == [0, 0, 0, 1, 1, 1], "two in the epoch, and one behind its end"
    ends = [min(b.monotonic_ns for b in one.phases if b.monotonic_ns > begin) for _, begin in found]
    assert all(begin <= a <= b <= end for (_, begin), (a, b), end in zip(found, seen, ends, strict=True))
    assert [b.phase for b in one.phases] == 2 * ["train", "train", ""], "what was before goes on"
    assert cases.seen["saves"]["left as it was"]


def test_planned_steps_and_parameters_are_stored(cases: Cases) -> None:
    one = cases["saves"]
    assert (one.run.facts.planned_steps, one.run.epochs) == (16, 0)
    known = {"optimizer": "SGD", "learning_rate": 0.1, "batch_size": 8, "precision": "32-true", "given": 3}
    assert known.items() <= one.config.items()


ALONE = """
import sys, types
installed, version = sys.argv[1], sys.argv[2]
if installed:
    module = types.ModuleType(installed)
    module.Callback, module.__version__ = type("Callback", (), {}), version
    sys.modules[installed] = module
from gpumon.callbacks.lightning import GpuMonitor
from gpumon.common.errors import FrameworkError
try:
    callback = GpuMonitor()
except FrameworkError as error:
    print(error)
else:
    print(isinstance(callback, module.Callback), "torch" in sys.modules)
"""


@pytest.mark.parametrize(
    ("installed", "version", "said"),
    [
        ("pytorch_lightning", "2.6.6", "True False"),
        ("pytorch_lightning", "1.9.5", "requires pytorch_lightning 2.0 or newer; 1.9.5 is installed"),
        ("", "", "-m pip install lightning' (2.0 or newer)"),
    ],
)
def test_one_of_the_packages_is_sufficient(installed: str, version: str, said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-S", "-c", ALONE, installed, version], env={"PYTHONPATH": str(ROOT)}, capture_output=True,
        text=True, check=True, timeout=PATIENCE,
    )  # fmt: skip
    assert said in done.stdout


EARLY = """
import sys
from gpumon.callbacks.lightning import GpuMonitor
assert not {"torch", "lightning", "pytorch_lightning"} & {*sys.modules}, "it imports no framework"
import lightning.pytorch
assert issubclass(GpuMonitor, lightning.pytorch.Callback)
import pytorch_lightning
assert issubclass(GpuMonitor, pytorch_lightning.Callback)
assert issubclass(GpuMonitor, lightning.pytorch.Callback)
"""


def test_the_monitor_is_a_callback_of_each_imported_package() -> None:
    need("torch", "lightning", "pytorch_lightning")
    subprocess.run([sys.executable, "-c", EARLY], env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True)
