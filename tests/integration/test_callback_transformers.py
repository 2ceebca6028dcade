"""`GpuMonitor` for the Trainer of Transformers, in real trainings: one process runs all `transformers_cases`."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gpumon.model.frame import Mark, RunState
from tests.conftest import ROOT
from tests.programs import PATIENCE
from tests.trainings import Cases, need


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Cases:
    need("torch", "transformers", "accelerate")
    live_dir = tmp_path_factory.mktemp("transformers")
    return Cases("transformers_cases", live_dir, live_dir / "out")


def test_epochs_count_from_one_and_the_evaluation_follows_each(cases: Cases) -> None:
    assert cases["whole"].marks() == [
        ("RUN_BEGIN", -1, 0, ""),
        ("EPOCH_BEGIN", 1, 0, "train"),
        ("EPOCH_END", 1, 4, ""),
        ("PHASE", 1, 4, "evaluate"),
        ("PHASE", 1, 4, ""),
        ("CHECKPOINT", 1, 4, "checkpoint"),
        ("PHASE", 1, 4, ""),
        ("EPOCH_BEGIN", 2, 4, "train"),
        ("EPOCH_END", 2, 8, ""),
        ("PHASE", 2, 8, "evaluate"),
        ("PHASE", 2, 8, ""),
        ("CHECKPOINT", 2, 8, "checkpoint"),
        ("PHASE", 2, 8, ""),
        ("PHASE", 2, 8, ""),
        ("PHASE", 2, 8, "evaluate"),
        ("PHASE", 2, 8, ""),
        ("PHASE", 2, 8, "evaluate"),
        ("RUN_END", 2, 8, ""),
    ]
    run = cases["whole"].run
    assert (run.framework, run.epochs, run.base, run.first_epoch) == ("transformers", 2, 1, 1)
    assert run.state is RunState.FINISHED


def test_boundaries_are_between_the_neighboring_callbacks(cases: Cases) -> None:
    hooks = {
        "on_train_begin": Mark.RUN_BEGIN, "on_epoch_begin": Mark.EPOCH_BEGIN, "on_epoch_end": Mark.EPOCH_END,
        "on_train_end": Mark.RUN_END,
    }  # fmt: skip
    for case in ("whole", "resumed", "steps", "broken off"):
        for hook, mark in hooks.items():
            before, after = ([t for name, t in cases.seen[case][side] if name == hook] for side in ("before", "after"))
            found = cases[case].times(mark) if hook != "on_train_end" else [cases[case].trained]
            assert len(found) == len(before) > 0
            assert all(a <= time <= b for a, time, b in zip(before, found, after, strict=True)), (case, hook)


def test_an_evaluation_lasts_from_its_announcement_to_its_callback(cases: Cases) -> None:
    seen, phases = cases.seen["whole"], cases["whole"].phases
    began = [t for name, t in seen["before"] if name == "on_epoch_end"]
    # Those of the evaluation after the training come last.
    ended = [[t for name, t in seen[side] if name == "on_evaluate"][:2] for side in ("before", "after")]
    begins = [i for i, b in enumerate(phases) if b.phase == "evaluate"][:2]
    assert all(a <= phases[i].monotonic_ns for a, i in zip(began, begins, strict=True))
    ends = [phases[i + 1].monotonic_ns for i in begins]
    assert all(a <= time <= b for a, time, b in zip(ended[0], ends, ended[1], strict=True))


def test_a_checkpoint_lasts_from_the_evaluation_to_its_callback(cases: Cases) -> None:
    one, seen = cases["whole"], cases.seen["whole"]
    begins = one.times(Mark.CHECKPOINT)
    evaluated = [t for name, t in seen["before"] if name == "on_evaluate"][:2]
    saved = [[t for name, t in seen[side] if name == "on_save"] for side in ("before", "after")]
    ends = [next(b.monotonic_ns for b in one.phases if b.monotonic_ns > begin) for begin in begins]
    assert all(a <= time for a, time in zip(evaluated, begins, strict=True))
    assert all(a <= time <= b for a, time, b in zip(saved[0], ends, saved[1], strict=True))


def test_saving_the_best_model_is_a_phase(cases: Cases) -> None:
    marks = cases["best"].marks()
    first = marks.index(("CHECKPOINT", 1, 8, "checkpoint"))
    assert marks[first - 2 : first + 3] == [
        ("PHASE", 1, 8, "evaluate"), ("PHASE", 1, 8, ""), ("CHECKPOINT", 1, 8, "checkpoint"), ("PHASE", 1, 8, ""),
        ("EPOCH_BEGIN", 2, 8, "train"),
    ]  # fmt: skip
    assert len([mark for mark in cases["whole"].marks() if mark[0] == "CHECKPOINT"]) == 2, "announced ones only once"


def test_metrics_of_predict_are_logged(cases: Cases) -> None:
    assert cases["whole"].run.metrics["test_loss"] == pytest.approx(cases.seen["whole"]["predicted"])


def test_checkpoints_within_an_epoch_are_phases(cases: Cases) -> None:
    found = [(b.epoch, b.step) for b in cases["steps"].boundaries if b.mark is Mark.CHECKPOINT]
    assert found == [(1, 5), (2, 10), (2, 11)]


def test_planned_steps_and_parameters_are_stored(cases: Cases) -> None:
    assert cases["steps"].run.facts.planned_steps == 11
    known = {"optimizer": "adamw_torch", "learning_rate": 0.001, "batch_size": 8, "precision": "fp32"}
    assert known.items() <= {**cases["steps"].config, "optimizer": cases["steps"].config["optimizer"][:11]}.items()


def test_the_batch_size_in_use_is_published(cases: Cases) -> None:
    assert cases["streamed"].run.facts.batch == 16, "two batches of eight"
    tries = cases.all("shrunk")
    sizes = [one.config["batch_size"] for one in tries]
    assert (sizes[0], sizes[-1]) == (8, 4)
    assert (tries[0].run.facts.batch, tries[-1].run.facts.batch) == (8, 4)
    assert {one.run.state for one in tries[:-1]} == {RunState.FAILED}
    assert tries[-1].run.state is RunState.FINISHED


def test_logged_values_are_stored_with_their_epoch_without_times(cases: Cases) -> None:
    whole, log = cases["whole"], cases.seen["whole"]["log"]
    assert set(whole.run.metrics) == {"loss", "test_loss", "learning_rate", "grad_norm", "eval_loss"}
    evaluated = [entry["eval_loss"] for entry in log if "eval_loss" in entry]
    assert [whole.logged(epoch)["eval_loss"] for epoch in (1, 2)] == evaluated[:2]
    losses = [entry["loss"] for entry in log if "loss" in entry]
    assert [whole.logged(epoch)["loss"] for epoch in (1, 2)] == losses, "logged at steps 3 and 6"


def test_a_loss_logged_after_an_epoch_belongs_to_it(cases: Cases) -> None:
    steps, log = cases["steps"], cases.seen["steps"]["log"]
    losses = [entry["loss"] for entry in log if "loss" in entry]
    assert [steps.logged(epoch)["loss"] for epoch in (1, 2)] == losses


def test_an_evaluation_within_an_epoch_is_a_phase(cases: Cases) -> None:
    assert cases["steps"].marks()[1:] == [
        ("EPOCH_BEGIN", 1, 0, "train"),
        ("PHASE", 1, 4, "evaluate"),
        ("PHASE", 1, 4, "train"),
        ("CHECKPOINT", 1, 5, "checkpoint"),
        ("PHASE", 1, 5, "train"),
        ("PHASE", 1, 8, "evaluate"),
        ("PHASE", 1, 8, "train"),
        ("EPOCH_END", 1, 8, ""),
        ("EPOCH_BEGIN", 2, 8, "train"),
        ("CHECKPOINT", 2, 10, "checkpoint"),
        ("PHASE", 2, 10, "train"),
        ("PHASE", 2, 11, "evaluate"),
        ("PHASE", 2, 11, "train"),
        ("CHECKPOINT", 2, 11, "checkpoint"),
        ("PHASE", 2, 11, "train"),
        ("EPOCH_END", 2, 11, ""),
        ("RUN_END", 2, 11, ""),
    ]


def test_a_resumed_training_begins_with_its_epoch_and_step(cases: Cases) -> None:
    resumed = cases["resumed"]
    assert (resumed.run.first_epoch, resumed.run.epochs) == (2, 3)
    assert resumed.marks()[1:] == [
        ("EPOCH_BEGIN", 2, 4, "train"),
        ("EPOCH_END", 2, 8, ""),
        ("EPOCH_BEGIN", 3, 8, "train"),
        ("EPOCH_END", 3, 12, ""),
        ("RUN_END", 3, 12, ""),
    ]


def test_an_aborted_epoch_is_counted(cases: Cases) -> None:
    epochs = [(mark, epoch, step) for mark, epoch, step, _ in cases["broken off"].marks() if mark.startswith("EPOCH")]
    assert epochs == [("EPOCH_BEGIN", 1, 0), ("EPOCH_END", 1, 3), ("EPOCH_BEGIN", 2, 3), ("EPOCH_END", 2, 11)]


@pytest.mark.parametrize("case", ["waits", "waits, logging each step"])
def test_the_wait_for_data_is_the_time_of_the_loader(cases: Cases, case: str) -> None:
    one, seen = cases[case], cases.seen[case]
    began, ended = one.times(Mark.RUN_BEGIN)[0], one.times(Mark.RUN_END)[0]
    assert seen["slept"] <= one.run.wait * 1e9 + 1, "each read of the training's texts is in it"
    assert one.run.wait * 1e9 <= ended - began - seen["worked"], "no step is, of training or evaluation"
    evaluations = [b.wait for b in one.phases]
    assert evaluations[0::2] == evaluations[1::2], "the loader of the evaluation is not in it"


def test_evaluate_and_predict_after_a_training_belong_to_its_run(cases: Cases) -> None:
    (one,) = cases.all("whole")
    after = [(mark, phase) for mark, _, _, phase in one.marks(pauses=True)][-8:]
    again = [("PHASE", ""), ("PHASE", "evaluate"), ("PHASE", "paused")]
    assert after == [("PHASE", "paused"), *again, *again, ("RUN_END", "")]
    assert one.times(Mark.RUN_END)[0] == one.boundaries[-2].monotonic_ns, "it ended with the last of them"


def test_an_evaluation_without_a_training_is_a_run(cases: Cases) -> None:
    one, again = cases.all("evaluation alone")
    assert one.marks() == again.marks() == [
        ("RUN_BEGIN", -1, 0, ""), ("PHASE", -1, 0, "evaluate"), ("PHASE", -1, 0, ""), ("RUN_END", -1, 0, "")
    ]  # fmt: skip
    assert (one.run.framework, one.run.state, one.run.epochs) == ("transformers", RunState.FINISHED, 0)
    assert "eval_loss" in one.run.metrics


@pytest.mark.parametrize("case", ["caught", "failed"])
def test_after_an_exception_the_run_ends_with_the_process_or_the_next_training(cases: Cases, case: str) -> None:
    one = cases[case]
    assert [mark for mark, *_ in one.marks()][:2] == ["RUN_BEGIN", "EPOCH_BEGIN"]
    assert one.run.state is RunState.FAILED
    assert one.run.step == 5


def test_an_interrupted_training_is_interrupted(cases: Cases) -> None:
    assert cases["interrupted"].run.state is RunState.INTERRUPTED


def test_an_unreported_failure_ends_the_run_at_its_last_activity(cases: Cases) -> None:
    ends = [one.monotonic_ns for one in cases["caught"].boundaries if one.mark in (Mark.EPOCH_ABORTED, Mark.RUN_END)]
    assert len(ends) == 2
    assert max(ends) <= cases.seen["caught"]["raised"], "and not with the begin of the next training"


def test_a_pruned_trial_is_stopped(cases: Cases) -> None:
    assert cases["pruned"].run.state is RunState.STOPPED
    assert "EPOCH_ABORTED" in [mark for mark, *_ in cases["pruned"].marks()]


OLD = """
import sys, types
module = sys.modules["transformers"] = types.ModuleType("transformers")
module.__version__ = "4.57.6"
from gpumon.common.errors import FrameworkError
try:
    import gpumon.callbacks.transformers
except FrameworkError as error:
    print(error)
"""


def test_an_older_transformers_is_an_error_with_the_needed_version() -> None:
    done = subprocess.run(
        [sys.executable, "-S", "-c", OLD], env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True,
        timeout=PATIENCE,
    )  # fmt: skip
    assert done.stdout == "gpumon's callback requires transformers 5.0 or newer; 4.57.6 is installed\n"
