"""`GpuMonitor` for Keras, in real trainings on each backend: one process runs all `keras_cases`."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpumon.model.frame import Mark, RunState, wait_between
from tests.conftest import ROOT
from tests.programs import PATIENCE
from tests.trainings import Cases, Told, need


class KerasCases(Cases):
    def __init__(self, backend: str, live_dir: Path, *words: str) -> None:
        more = {"KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu"}
        super().__init__("keras_cases", live_dir, *words, **more)
        self.backend = backend


@pytest.fixture(
    scope="module", params=["torch", *(pytest.param(one, marks=pytest.mark.slow) for one in ("tensorflow", "jax"))]
)
def cases(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> KerasCases:
    """The cases on each backend. Those that differ on TensorFlow are also in `on_tensorflow`, which is not slow."""
    need("keras", request.param)
    return KerasCases(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def on_tensorflow(tmp_path_factory: pytest.TempPathFactory) -> KerasCases:
    """The cases that differ on TensorFlow."""
    need("keras", "tensorflow")
    return KerasCases("tensorflow", tmp_path_factory.mktemp("differing"), "differing")


def ends(one: Told) -> list[tuple[int, int]]:
    """Return epoch and step of the end of each epoch."""
    return [(b.epoch, b.step) for b in one.boundaries if b.mark is Mark.EPOCH_END]


def test_epochs_count_from_one_and_the_validation_is_a_phase_of_its_epoch(cases: KerasCases) -> None:
    expected: list[tuple[str, int, int, str]] = [("RUN_BEGIN", -1, 0, "")]
    for epoch in (1, 2, 3):
        steps = 4 * epoch
        expected += [
            ("EPOCH_BEGIN", epoch, steps - 4, "train"), ("PHASE", epoch, steps, "validate"),
            ("PHASE", epoch, steps, "train"), ("EPOCH_END", epoch, steps, ""),
        ]  # fmt: skip
    assert cases["whole"].marks() == [*expected, ("RUN_END", 3, 12, "")]
    run = cases["whole"].run
    assert (run.framework, run.epochs, run.base, run.first_epoch) == (f"keras/{cases.backend}", 3, 1, 1)
    assert run.state is RunState.FINISHED


def test_boundaries_are_between_the_neighboring_callbacks(cases: KerasCases) -> None:
    for case in ("whole", "resumed", "no length", "every second"):
        one, seen = cases[case], cases.seen[case]
        for hook, marks in (
            ("on_train_begin", one.times(Mark.RUN_BEGIN)), ("on_epoch_begin", one.times(Mark.EPOCH_BEGIN)),
            ("on_test_begin", one.times(Mark.PHASE, "validate")), ("on_test_end", one.times(Mark.PHASE, "train")),
            ("on_epoch_end", one.times(Mark.EPOCH_END)), ("on_train_end", [one.trained]),
        ):  # fmt: skip
            before, after = ([time for name, time in seen[side] if name == hook] for side in ("before", "after"))
            assert len(before) == len(marks) == len(after), (case, hook)
            assert all(a <= time <= b for a, time, b in zip(before, marks, after, strict=True)), (case, hook)


def test_logged_values_of_an_epoch_are_stored_with_it(cases: KerasCases) -> None:
    history = cases.seen["whole"]["history"]
    assert {"loss", "mae", "val_loss", "val_mae"} == set(history)
    for place, epoch in enumerate((1, 2, 3)):
        assert cases["whole"].logged(epoch) == {name: values[place] for name, values in history.items()}


def test_a_validation_every_second_epoch_is_a_phase_of_these_epochs(cases: KerasCases) -> None:
    found = [b.epoch for b in cases["every second"].boundaries if b.mark is Mark.PHASE and b.phase == "validate"]
    assert found == [2, 4]
    assert "val_loss" not in cases["every second"].logged(3)


def test_a_resumed_training_counts_from_its_initial_epoch(cases: KerasCases) -> None:
    run = cases["resumed"].run
    assert (run.first_epoch, run.epoch, run.epochs, run.resumed) == (4, 5, 5, True)
    assert ends(cases["resumed"]) == [(4, 4), (5, 8)]


def test_steps_are_right_without_a_known_length(cases: KerasCases) -> None:
    assert ends(cases["steps told"]) == [(1, 5), (2, 10)]
    # Keras begins an eighth batch on two backends, and finds that there is none.
    steps = [(mark, step) for mark, _, step, _ in cases["no length"].marks()[2:]]
    assert steps == [("PHASE", 7), ("PHASE", 7), ("EPOCH_END", 7), ("RUN_END", 7)]


def test_an_aborted_epoch_has_its_steps(cases: KerasCases) -> None:
    assert ends(cases["stopped"]) == [(1, 2)]
    assert cases["stopped"].run.state is RunState.FINISHED


def test_several_steps_in_one_execution_are_counted_one_by_one(cases: KerasCases) -> None:
    if cases.backend == "torch":
        assert not cases.all("three at once"), "Keras itself refuses it there"
        return
    assert ends(cases["three at once"]) == [(1, 4), (2, 8)]
    assert [b.step for b in cases["three at once"].phases] == [4, 4, 8, 8]


def test_a_training_that_raises_has_failed_when_its_process_ends(cases: KerasCases) -> None:
    one = cases["fails"]
    assert one.run.state is RunState.FAILED
    assert [mark for mark, *_ in one.marks()] == ["RUN_BEGIN", "EPOCH_BEGIN", "EPOCH_ABORTED", "RUN_END"]


def test_a_failed_training_ends_with_the_next_or_with_its_callback(cases: KerasCases) -> None:
    failed, evaluated = cases.all("then evaluated")
    assert (failed.run.state, evaluated.run.state) == (RunState.FAILED, RunState.FINISHED)
    assert evaluated.marks()[1] == ("PHASE", -1, 0, "evaluate"), "it is no validation of what is over"
    another, after = cases["then another"], cases["after a fault"]
    assert (another.run.state, after.run.state) == (RunState.FAILED, RunState.FINISHED)
    assert another.times(Mark.RUN_END) <= after.times(Mark.RUN_BEGIN)
    assert cases["then dropped"].run.state is RunState.FAILED


def test_a_training_that_another_callback_prunes_is_stopped(cases: KerasCases) -> None:
    assert cases["pruned"].run.state is RunState.STOPPED


def test_an_evaluation_and_a_prediction_by_themselves_are_runs_without_epochs(cases: KerasCases) -> None:
    for case, phase in (("evaluation", "evaluate"), ("prediction", "predict")):
        one = cases[case]
        assert [(mark, epoch, into) for mark, epoch, _, into in one.marks()] == [
            ("RUN_BEGIN", -1, ""), ("PHASE", -1, phase), ("PHASE", -1, ""), ("RUN_END", -1, ""),
        ]  # fmt: skip
        assert one.run.state is RunState.FINISHED
    assert set(cases["evaluation"].run.metrics) == {"loss", "mae"}


def test_evaluate_and_predict_with_the_callback_of_a_training_belong_to_its_run(cases: KerasCases) -> None:
    (one,) = cases.all("then evaluated well")
    again = [("PHASE", ""), ("PHASE", "evaluate"), ("PHASE", ""), ("PHASE", ""), ("PHASE", "predict"), ("PHASE", "")]
    assert [(mark, phase) for mark, _, _, phase in one.marks()] == [
        ("RUN_BEGIN", ""), ("EPOCH_BEGIN", "train"), ("EPOCH_END", ""), *again, ("RUN_END", ""),
    ]  # fmt: skip
    assert one.run.state is RunState.FINISHED
    assert one.times(Mark.RUN_END)[0] == max(b.monotonic_ns for b in one.boundaries if b.phase == "paused")


def test_saving_is_a_phase(cases: KerasCases) -> None:
    for case, phases in (("saved within", ["train", "train"]), ("saved behind", ["", ""])):
        one = cases[case]
        assert [b.epoch for b in one.boundaries if b.mark is Mark.CHECKPOINT] == [1, 2], case
        assert [b.phase for b in one.phases if b.monotonic_ns < one.trained] == phases, "what was before goes on"
        for begin, (saved, end) in zip(one.times(Mark.CHECKPOINT), cases.seen[case]["saved"], strict=True):
            assert begin <= saved <= end <= min(b.monotonic_ns for b in one.phases if b.monotonic_ns > begin)


def test_parameters_of_keras_are_stored(cases: KerasCases) -> None:
    known = {"optimizer": "SGD", "learning_rate": 0.01, "batch_size": 8, "precision": "float32", "loss": "mse"}
    assert known.items() <= cases["whole"].config.items()
    assert "learning_rate" not in cases["schedule"].config, "it changes"


def test_each_fit_and_each_copied_callback_is_a_run(cases: KerasCases) -> None:
    assert len({one.run.id for one in cases.all("again")}) == 2
    pair = cases["one of two"], cases["two of two"]
    assert [(one.run.state, ends(one)) for one in pair] == [(RunState.FINISHED, [(1, 4)])] * 2
    (copied,) = cases.all("copied")
    assert (copied.run.state, ends(copied)) == (RunState.FINISHED, [(1, 4)])


@pytest.mark.parametrize("case", ["waits", "not safe", "usual callbacks"])
def test_the_wait_for_data_is_measured_with_any_callbacks(cases: KerasCases, case: str) -> None:
    if cases.backend == "tensorflow":
        assert math.isnan(cases[case].run.wait), "it fetches inside of its graph: not known, and not 0"
        return
    waited, seen = cases[case].run.wait * 1e9, cases.seen[case]
    # Keras reads the first batches to see their shape, before the training begins.
    reads = [took for began, took in seen["reads"] if began > cases[case].times(Mark.RUN_BEGIN)[0]]
    assert len(reads) >= 4
    assert sum(reads) <= waited + 1, "each read of a batch is in it"
    # All else of an epoch is none: what the steps take, and what the other callbacks do at each end of a batch.
    assert waited <= seen["took"] - seen["worked"] - (8 * 10_000_000 if case == "not safe" else 0)


def test_the_wait_of_a_validation_is_its_own(cases: KerasCases) -> None:
    begin, end = (b for b in cases["waits"].boundaries[2:] if b.mark is Mark.PHASE and b.epoch == 1)
    assert math.isnan(wait_between(begin.wait, end.wait)) == (cases.backend == "tensorflow")


def test_the_batch_size_of_keras_is_read_unless_passed(cases: KerasCases) -> None:
    assert cases["whole"].run.facts.batch == 8
    assert cases["steps told"].run.facts.batch == (0 if cases.backend == "tensorflow" else 8), "by the first batch"
    assert cases["copied"].run.facts.batch == 5
    assert cases["short"].run.facts.batch == 20 / 3, "the last batch is half as large"


def test_a_loop_over_train_on_batch_can_mark_epochs(cases: KerasCases) -> None:
    assert ends(cases["gan"]) == [(0, 2), (1, 4), (2, 6)]
    assert {"loss", "mae", "val_loss"} == set(cases["gan"].run.metrics)


def test_a_mirrored_strategy_is_one_rank(cases: KerasCases) -> None:
    """All its replicas are in one process."""
    if cases.backend != "tensorflow":
        assert not cases.all("mirrored"), "only TensorFlow has it"
        return
    assert cases.seen["mirrored"]["replicas"] == 2
    one = cases["mirrored"]
    assert (one.run.rank, one.run.world_size, one.run.state, one.run.step) == (0, 1, RunState.FINISHED, 16)
    assert ends(one) == [(1, 8), (2, 16)]
    assert [b.phase for b in one.phases] == ["validate", "train"] * 2
    assert set(one.run.metrics) == {"loss", "val_loss"}


def test_a_nested_training_does_not_end_the_outer_one(cases: KerasCases) -> None:
    outer = cases["outer"]
    assert (outer.run.state, ends(outer)) == (RunState.FINISHED, [(1, 4), (2, 8)])
    failed, finished = cases.all("inner")
    assert (failed.run.state, finished.run.state) == (RunState.FAILED, RunState.FINISHED)
    assert outer.times(Mark.RUN_BEGIN) < failed.times(Mark.RUN_BEGIN) < outer.times(Mark.RUN_END)


def test_asynchronous_dispatch_stays_on(cases: KerasCases) -> None:
    seen = cases.seen["threads"]
    assert seen["ends"] == seen["steps"] == 8
    in_main = seen["steps"] if cases.backend == "tensorflow" else 0  # Keras has no threads for it there
    assert seen["ends in main"] == in_main
    assert seen["read in main"] == in_main + 3, "the logs of two epochs and of the end, and of no step elsewhere"


def test_batch_callbacks_do_not_access_the_model(cases: KerasCases) -> None:
    assert set(cases.seen["threads"]["asked"]) <= {"on_train_begin", "on_train_end"}
    assert cases.seen["threads"]["left as it was"]


@pytest.mark.parametrize("held", [
    test_epochs_count_from_one_and_the_validation_is_a_phase_of_its_epoch,
    test_logged_values_of_an_epoch_are_stored_with_it,
    test_steps_are_right_without_a_known_length,
    test_several_steps_in_one_execution_are_counted_one_by_one,
    test_the_wait_of_a_validation_is_its_own,
    test_the_batch_size_of_keras_is_read_unless_passed,
    test_a_mirrored_strategy_is_one_rank,
    test_asynchronous_dispatch_stays_on,
    test_batch_callbacks_do_not_access_the_model,
], ids=lambda held: held.__name__)  # fmt: skip
def test_on_tensorflow(on_tensorflow: KerasCases, held: Callable[[Cases], None]) -> None:
    held(on_tensorflow)


def test_a_run_in_a_tf_function_causes_no_warning(on_tensorflow: KerasCases) -> None:
    assert on_tensorflow.seen["compiled"]["warned"] == []


def test_the_wait_for_data_is_unknown_on_tensorflow(on_tensorflow: KerasCases) -> None:
    test_the_wait_for_data_is_measured_with_any_callbacks(on_tensorflow, "waits")


OLD = """
import sys, types
module = sys.modules["keras"] = types.ModuleType("keras")
module.__version__ = "2.15.0"
from gpumon.common.errors import FrameworkError
try:
    import gpumon.callbacks.keras
except FrameworkError as error:
    print(error)
"""


def test_the_callback_imports_nothing_but_keras(cases: KerasCases) -> None:
    assert cases.seen["brought in"] == ["gpumon"]


def test_an_older_keras_is_an_error_with_the_needed_version() -> None:
    done = subprocess.run(
        [sys.executable, "-S", "-c", OLD],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.stdout == "gpumon's callback requires keras 3.0 or newer; 2.15.0 is installed\n", done.stderr
