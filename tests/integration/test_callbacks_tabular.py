"""`GpuMonitor` for XGBoost, LightGBM and scikit-learn, beside a real daemon: one process runs `tabular_cases`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.model.frame import Mark, RunState
from tests.nvml import Stub
from tests.programs import daemon, environment
from tests.trainings import need
from tests.trainings.beside import TaggedCases, shown

CASES = 24


@pytest.fixture(scope="module")
def cases(driver_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TaggedCases]:
    need("xgboost", "lightgbm", "sklearn")
    live_dir = tmp_path_factory.mktemp("tabular")
    with Stub(driver_library) as stub, daemon("--interval", "0.1", env=environment(live_dir, stub.env())):
        yield TaggedCases("tests.trainings.tabular_cases", live_dir, CASES)


@pytest.mark.parametrize("framework", ["xgboost", "lightgbm"])
def test_rounds_are_steps_of_a_run_without_epochs(cases: TaggedCases, framework: str) -> None:
    one = cases[framework]
    assert one.marks() == [("RUN_BEGIN", -1, 0, ""), ("RUN_END", -1, 6, "")]
    assert (one.run.framework, one.run.step, one.run.state) == (framework, 6, RunState.FINISHED)


@pytest.mark.parametrize("framework", ["xgboost", "lightgbm"])
def test_the_ledger_has_the_rounds_too(cases: TaggedCases, framework: str) -> None:
    (rank,) = shown(cases.live_dir, cases[framework].run)["ranks"]
    assert (rank["steps"], rank["steps_planned"]) == (6, 6)


def test_parameters_are_stored_with_the_run(cases: TaggedCases) -> None:
    for case, expected in (
        ("xgboost", {"max_depth": 2, "seed": 0}), ("lightgbm", {"num_leaves": 4, "metric": "l2"}),
        ("search", {"class": "GridSearchCV", "estimator": "<Ridge>", "param_grid.alpha": "0.1, 1.0, 10.0"}),
    ):  # fmt: skip
        found = shown(cases.live_dir, cases[case].run)["run"]["config"]
        assert expected.items() <= found.items(), case


def test_an_xgboost_run_is_between_the_neighboring_callbacks(cases: TaggedCases) -> None:
    for case in ("xgboost", "xgboost, early", "xgboost, stopped"):
        seen, one = cases.seen[case], cases[case]
        assert seen["before"]["begin"] <= one.times(Mark.RUN_BEGIN)[0] <= seen["after"]["begin"]
        assert seen["before"]["end"] <= one.times(Mark.RUN_END)[0] <= seen["after"]["end"]


def test_a_lightgbm_run_lasts_from_the_first_to_the_last_callback(cases: TaggedCases) -> None:
    for case in ("lightgbm", "lightgbm, early"):
        seen, one = cases.seen[case], cases[case]
        assert seen["before"][0] <= one.times(Mark.RUN_BEGIN)[0] <= seen["before"][1]
        assert seen["after"][-1] <= one.times(Mark.RUN_END)[0] <= seen["returned"]


@pytest.mark.parametrize("framework", ["xgboost", "lightgbm"])
def test_metrics_are_from_the_last_evaluation(cases: TaggedCases, framework: str) -> None:
    metrics = {
        f"{data}-{name}": values[-1]
        for data, logged in cases.seen[framework]["metrics"].items()
        for name, values in logged.items()
    }
    assert set(metrics) == ({"fitted-rmse", "held-rmse"} if framework == "xgboost" else {"fitted-l2", "held-l2"})
    assert cases[framework].run.metrics == pytest.approx(metrics)


def test_the_metrics_of_a_cross_validation_are_the_means_of_its_folds(cases: TaggedCases) -> None:
    for case, named in (("xgboost, crossed", {"train-rmse": "train-rmse-mean", "test-rmse": "test-rmse-mean"}),
                        ("lightgbm, crossed", {"valid-l2": "valid l2-mean"})):  # fmt: skip
        expected = {name: cases.seen[case]["metrics"][column][-1] for name, column in named.items()}
        assert cases[case].run.metrics == pytest.approx(expected)
        assert cases[case].run.step == 4


def test_a_stopped_training_has_finished_with_its_rounds(cases: TaggedCases) -> None:
    for case, rounds in (
        ("xgboost, early", len(cases.seen["xgboost, early"]["metrics"]["held"]["rmse"])),
        ("xgboost, stopped", 3),
        ("lightgbm, early", cases.seen["lightgbm, early"]["rounds"]),
    ):
        assert (cases[case].run.state, cases[case].run.step) == (RunState.FINISHED, rounds), case
    last = [values["rmse"][-1] for values in cases.seen["xgboost, early"]["metrics"].values()]
    assert list(cases["xgboost, early"].run.metrics.values()) == pytest.approx(last)


def test_exceptions_fail_and_interrupts_interrupt_a_training(cases: TaggedCases) -> None:
    states = {name: cases[name].run.state for name in ("xgboost, failed", "lightgbm, failed", "lightgbm, interrupted")}
    assert list(states.values()) == [RunState.FAILED, RunState.FAILED, RunState.INTERRUPTED]
    assert [cases[name].run.step for name in states] == [3, 3, 3]


@pytest.mark.parametrize("case", ["xgboost, pruned", "lightgbm, pruned", "lightgbm, pruned before"])
def test_a_training_that_another_callback_prunes_is_stopped(cases: TaggedCases, case: str) -> None:
    assert cases[case].run.state is RunState.STOPPED


def test_estimators_and_copied_callbacks_train(cases: TaggedCases) -> None:
    found = {name: cases[name].run.step for name in ("xgboost, estimator", "lightgbm, estimator", "xgboost, copied")}
    assert list(found.values()) == [5, 5, 3]


def test_the_fits_of_a_search_are_steps_and_its_parts_are_phases(cases: TaggedCases) -> None:
    one = cases["search"]
    assert one.marks() == [
        ("RUN_BEGIN", -1, 0, ""), ("PHASE", -1, 0, "search"), ("PHASE", -1, 6, ""), ("PHASE", -1, 6, "refit"),
        ("PHASE", -1, 7, ""), ("RUN_END", -1, 7, ""),
    ]  # fmt: skip
    assert (one.run.framework, one.run.state, one.run.facts.planned_steps) == ("sklearn", RunState.FINISHED, 7)
    assert one.run.metrics == pytest.approx({"best_score": cases.seen["search"]["best"]})


def test_fits_in_other_processes_are_counted_at_the_end(cases: TaggedCases) -> None:
    one = cases["search, elsewhere"]
    assert [(step, phase) for _, _, step, phase in one.marks()] == [(0, ""), (0, "search"), (6, ""), (6, "")]
    assert not one.times(Mark.STEPS), "when each was made is unknown"
    assert cases["search"].times(Mark.STEPS), "in this process it is known"


def test_a_halving_search_counts_all_fits(cases: TaggedCases) -> None:
    one = cases["search, halving"]
    assert [phase for _, _, _, phase in one.marks()][1:3] == ["search", "halving-iteration"]
    assert one.run.facts.planned_steps == 0, "how many it will fit depends on what it finds"
    assert one.run.step == 2 * (3 + 2) + 1


def test_only_the_fit_that_raises_has_failed(cases: TaggedCases) -> None:
    assert (cases["search, failed"].run.state, cases["search, failed"].run.step) == (RunState.FAILED, 6)
    assert (cases["pipeline"].run.state, cases["pipeline"].run.step) == (RunState.FINISHED, 2)


def test_iterations_of_an_estimator_are_steps(cases: TaggedCases) -> None:
    assert cases["iterations"].run.step == cases.seen["iterations"]["tasks"] > 1


def test_partial_fit_can_mark_epochs(cases: TaggedCases) -> None:
    assert [mark for mark in cases["clicks"].marks() if mark[0].startswith("EPOCH")][-1] == ("EPOCH_END", 2, 6, "")
    assert set(cases["clicks"].run.metrics) == {"score"}
    assert cases["grid"].run.state is RunState.FINISHED
