"""How fast a run goes, and how what it logs changes from epoch to epoch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import isnan

import pytest

from gpumon.analysis.logged_epochs import EPOCHS, LoggedEpochs
from gpumon.analysis.progress import recent_pace, steps_per_second_in
from gpumon.analysis.run_epochs import Epochs
from gpumon.common.numbers import NAN
from gpumon.model.frame import Boundary, Frame, Mark, Run
from gpumon.storage.ledger.summary import EpochSummary
from tests.builders import frame_of, tick
from tests.instructions import instructions


def frame(runs: tuple[Run, ...], boundaries: tuple[Boundary, ...] = ()) -> Frame:
    return frame_of(tick(runs=runs, boundaries=boundaries))


def boundary(number: int, seconds: float, step: int, mark: Mark = Mark.PHASE, phase: str = "train") -> Boundary:
    return Boundary("a", number, mark, 0, step, phase, int(seconds * 1e9), int(seconds * 1e9))


def run(step: int, updated: float, epoch: int = -1, rank: int = 0, **metrics: float) -> Run:
    return Run("a", "id", "vit", 1, "eva", rank=rank, epoch=epoch, step=step, updated=updated, metrics=metrics)


def known(*boundaries: Boundary, of: Run) -> Epochs:
    epochs = Epochs()
    epochs.add(frame(runs=(of,)))
    epochs.add_boundaries(boundaries)
    return epochs


def rate(epochs: Epochs, key: str, now: float) -> float:
    return recent_pace(epochs, key, now).rate


def test_the_pace_is_that_of_training_lately() -> None:
    begin = boundary(1, 100.0, 0, Mark.EPOCH_BEGIN)
    assert rate(known(begin, of=run(120, 160.0)), "a", 160.0) == 2.0
    later = boundary(2, 1000.0, 90, Mark.EPOCH_BEGIN)
    assert rate(known(begin, later, of=run(390, 1100.0)), "a", 1100.0) == 3.0, "not that of long ago"


def test_validation_is_no_time_of_training() -> None:
    begin = boundary(1, 100.0, 0, Mark.EPOCH_BEGIN)
    validation = boundary(2, 140.0, 80, phase="validate")
    assert rate(known(begin, validation, of=run(80, 160.0)), "a", 160.0) == 2.0


def test_a_run_that_makes_no_step_any_more_has_no_pace() -> None:
    begin = boundary(1, 100.0, 0, Mark.EPOCH_BEGIN)
    quick, slow = known(begin, of=run(120, 160.0)), known(begin, of=run(3, 160.0))
    assert rate(quick, "a", 185.0) == 2.0
    assert isnan(rate(quick, "a", 195.0))
    assert rate(slow, "a", 250.0) == 0.05, "a step takes 20 s"
    assert isnan(rate(slow, "a", 265.0))
    validates = known(begin, boundary(2, 140.0, 80, phase="validate"), of=run(80, 140.0))
    assert rate(validates, "a", 900.0) == 2.0, "no step of training is due"


@pytest.mark.parametrize("of", [run(0, 160.0), run(3, 102.0)])
def test_a_pace_over_too_short_a_time_is_unknown(of: Run) -> None:
    assert isnan(rate(known(boundary(1, 100.0, 0, Mark.EPOCH_BEGIN), of=of), "a", of.updated))
    assert isnan(rate(Epochs(), "a", 160.0))


def test_logged_values_are_compared_with_the_previous_epoch() -> None:
    logged = LoggedEpochs()
    for epoch, loss in ((0, 4.0), (0, 3.0), (1, 2.5), (1, 2.0), (2, 1.9), (2, 1.8)):
        logged.add(frame(runs=(run(1, 1.0, epoch, loss=loss), run(1, 1.0, epoch, rank=1, loss=9.0))))
    assert logged.change(run(1, 1.0, 2, loss=1.8), "loss") == pytest.approx(-0.1)
    assert logged.value("id", 1, "loss") == 2.0
    assert isnan(logged.change(run(1, 1.0, 0, loss=2.0), "loss")), "there is none before"
    assert isnan(logged.change(run(1, 1.0, 2, loss=float("inf")), "loss"))
    assert isnan(logged.change(run(1, 1.0, 2), ""))
    assert isnan(logged.change(run(1, 1.0, 2, loss=-0.1), "loss")), "across zero"


def test_changes_that_go_up_and_down_are_noise() -> None:
    changes = []
    logged = LoggedEpochs()
    for epoch, loss in enumerate((0.1, 0.09, 0.081, 0.6, 0.0656, 0.059, 0.0531, 0.0478)):
        for value in (2 * loss, loss):
            logged.add(frame(runs=(run(1, 1.0, epoch, loss=value),)))
        changes.append(logged.change(run(1, 1.0, epoch, loss=loss), "loss"))
    known = [epoch for epoch, change in enumerate(changes) if not isnan(change)]
    assert known == [2, 6, 7], "one change alone may be noise, too"
    assert [changes[epoch] for epoch in known] == pytest.approx([-0.1] * 3, abs=0.001)


@pytest.mark.parametrize(
    ("losses", "change"),
    [
        ([(0, 4.0), (1, 3.0), (3, 2.0)], NAN),  # an epoch is missing
        ([(0, 4.0), (1, 3.0), (2, None), (3, 2.0)], NAN),  # one logged nothing
        ([(3, 2.0), (2, 2.5), (1, 3.0)], NAN),  # numbers that go down
        ([(0, 4.0), (1, 4.0), (2, 4.0), (3, 2.0)], -0.5),  # repeated values, then a step, as of a learning rate
        ([(0, 9.0), (1, 8.0), (2, 7.0), (0, 4.0), (1, 3.0)], NAN),  # numbers that begin again
        ([(0, 9.0), (1, 8.0), (2, 7.0), (0, 4.0), (1, 3.0), (2, 2.7)], -0.1),
    ],
)
def test_a_change_is_only_against_the_epoch_before(losses: list[tuple[int, float | None]], change: float) -> None:
    logged, loss = LoggedEpochs(), NAN
    for number, (epoch, loss_at_end) in enumerate(losses):
        metrics = {} if loss_at_end is None else {"loss": loss_at_end}
        end = boundary(number, 1.0, 9, Mark.EPOCH_END)._replace(epoch=epoch, metrics=metrics)
        loss = loss if loss_at_end is None else loss_at_end
        logged.add(frame(runs=(run(1, 1.0, epoch, loss=2 * loss),)))
        logged.add(frame(runs=(run(1, 1.0, epoch, loss=loss),), boundaries=(end,)))
    assert logged.change(run(1, 1.0, losses[-1][0], loss=loss), "loss") == pytest.approx(change, nan_ok=True)


def test_a_loss_of_the_previous_epoch_is_compared_with_the_one_before() -> None:
    logged = LoggedEpochs()
    for epoch, loss in ((0, 5.0), (1, 5.0), (1, 4.0), (2, 4.0), (2, 2.0), (3, 2.0)):
        logged.add(frame(runs=(run(1, 1.0, epoch, loss=loss),)))
    kept = {2: 2.0 + 1e-9, 1: 8.0, 0: 9.0}
    assert logged.change(run(1, 1.0, 3, loss=2.0), "loss") == pytest.approx(-0.5)
    assert logged.change(run(1, 1.0, 3, loss=2.0), "loss", kept.__getitem__) == pytest.approx(-0.75)
    once = LoggedEpochs()
    for epoch, loss in ((0, 5.0), (1, 5.0), (1, 4.0), (2, 4.0)):
        once.add(frame(runs=(run(1, 1.0, epoch, loss=loss),)))
    assert isnan(once.change(run(1, 1.0, 2, loss=4.0), "loss")), "not against itself"
    once.add(frame(runs=(run(1, 1.0, 2, loss=3.0),)))
    once.add(frame(runs=(run(1, 1.0, 2, loss=4.0),)))
    assert once.change(run(1, 1.0, 2, loss=4.0), "loss") == 0, "logged as large again"


def test_values_of_the_previous_epoch_do_not_count_for_this_one() -> None:
    logged = LoggedEpochs()
    for epoch, loss, val in ((0, 2.0, 2.5), (1, 2.0, 2.5), (1, 1.5, 2.5), (1, 2.0, 2.5)):
        logged.add(frame(runs=(run(1, 1.0, epoch, loss=loss, val_loss=val),)))
    assert logged.values("id", 0) == {"loss": 2.0, "val_loss": 2.5}
    assert logged.values("id", 1) == {"loss": 2.0}, "it was another one meanwhile"


def test_values_between_two_frames_belong_to_the_ended_epoch() -> None:
    logged = LoggedEpochs()
    logged.add(frame(runs=(run(1, 1.0, 0),)))
    for epoch, loss in ((1, 2.0), (1, 2.0), (2, 1.0)):
        logged.add(frame(runs=(run(1, 1.0, epoch, loss=loss),)))
    assert [logged.values("id", epoch) for epoch in (0, 1, 2)] == [{}, {}, {}], "of which it is only the ledger knows"
    assert isnan(logged.change(run(1, 1.0, 2, loss=1.0), "loss")), "nor any change against it"


def test_values_in_the_end_event_belong_to_its_epoch() -> None:
    logged = LoggedEpochs()
    logged.add(frame(runs=(run(1, 1.0, 0),)))
    for epoch, loss in ((1, 2.0), (1, 2.0), (2, 1.0), (2, 1.0)):
        end = boundary(epoch, 1.0, 9, Mark.EPOCH_END)._replace(epoch=epoch - 1, metrics={"loss": loss})
        of_a_row = end._replace(mark=Mark.STEPS, metrics={"loss": 9.0})
        logged.add(frame(runs=(run(1, 1.0, epoch, loss=loss),), boundaries=(end, of_a_row)))
    late = boundary(8, 1.0, 9, Mark.LOG)._replace(epoch=0, metrics={"val_loss": 2.5})
    logged.add(frame(runs=(run(1, 1.0, 2, loss=1.0, val_loss=2.5),), boundaries=(late,)))
    assert [logged.values("id", epoch) for epoch in (0, 1)] == [{"loss": 2.0, "val_loss": 2.5}, {"loss": 1.0}]


def test_values_missing_in_the_end_event_are_not_final() -> None:
    logged = LoggedEpochs()
    logged.add(frame(runs=(run(1, 1.0, 0, loss=2.2, val_loss=2.6),)))
    logged.add(frame(runs=(run(1, 1.0, 1, loss=2.0, val_loss=2.5),)))
    logged.add(frame(runs=(run(2, 2.0, 1, loss=1.9, val_loss=2.4),)))
    assert logged.values("id", 1) == {"loss": 1.9, "val_loss": 2.4}
    end = boundary(9, 2.5, 9, Mark.EPOCH_END)._replace(epoch=1, metrics={"val_loss": 2.3})
    logged.add(frame(runs=(run(3, 3.0, 2, loss=1.7, val_loss=2.3),), boundaries=(end,)))
    assert logged.values("id", 1) == {"val_loss": 2.3}, "steps between the two frames logged other losses"
    assert isnan(logged.change(run(3, 3.0, 2, loss=1.7), "loss"))
    assert logged.change(run(3, 3.0, 2, val_loss=2.07), "val_loss") == pytest.approx(-0.1), "against what its end told"


def test_an_epoch_whose_end_was_not_seen_has_no_last_value() -> None:
    logged = LoggedEpochs()
    for number, epoch, loss in ((1, 0, 2.0), (2, 0, 1.9), (9, 1, 1.5), (10, 1, 1.4), (11, 2, 1.3)):
        logged.add(frame_of(tick(runs=(run(1, 1.0, epoch, loss=loss),)), number=number))
        if epoch == 1:
            assert isnan(logged.change(run(1, 1.0, 1, loss=loss), "loss")), "with what it ended nobody saw"
    assert logged.values("id", 0) == {}, "it went on for some frames that nobody saw"
    assert logged.values("id", 1) == {"loss": 1.4}


def test_of_long_runs_the_last_epochs_are_kept() -> None:
    logged = LoggedEpochs()
    for epoch in range(2 * EPOCHS):
        for loss in (epoch, 1.0 + epoch):
            logged.add(frame(runs=(run(1, 1.0, epoch, loss=loss),)))
    assert isnan(logged.value("id", EPOCHS - 1, "loss"))
    assert logged.value("id", 2 * EPOCHS - 1, "loss") == 2.0 * EPOCHS


def test_a_slow_first_epoch_counts_only_at_first() -> None:
    first, second = boundary(1, 100.0, 0, Mark.EPOCH_BEGIN), boundary(2, 110.0, 50, Mark.EPOCH_BEGIN)._replace(epoch=1)
    at_first = known(first, second, of=run(200, 113.0, 1))
    assert rate(at_first, "a", 113.0) == pytest.approx(200 / 13)
    assert rate(known(first, second, of=run(350, 116.0, 1)), "a", 116.0) == 50.0
    assert recent_pace(known(first, second, of=run(350, 116.0, 1)), "a", 116.0).over == 6.0, "and it says so"


def test_the_pace_of_an_open_epoch_is_unknown_in_its_first_seconds() -> None:
    first, second = boundary(1, 100.0, 0, Mark.EPOCH_BEGIN), boundary(2, 110.0, 50, Mark.EPOCH_BEGIN)._replace(epoch=1)
    begun = known(first, second, of=run(52, 110.0003, 1))
    assert isnan(steps_per_second_in(begun, "a", 110.0, 110.045, is_open=True)), "the board is ahead of its time"
    assert steps_per_second_in(begun, "a", 100.0, 110.0) == 5.0
    assert steps_per_second_in(known(second, of=run(350, 116.0, 1)), "a", 110.0, 116.0, is_open=True) == 50.0


def test_an_open_epoch_has_no_steps_per_second_in_its_first_seconds() -> None:
    epoch = EpochSummary(0, 0, 0.045, 342, wait=0.0, ranks=1, utilization_from="")
    assert isnan(replace(epoch, is_open=True).steps_per_second)
    assert replace(epoch, is_open=True, seconds=10.0).steps_per_second == 34.2
    assert replace(epoch, ended=0.045).steps_per_second == pytest.approx(7600), "its end is exact"


def quick(epochs: int) -> tuple[Epochs, int]:
    """A run of epochs of a second with a validation, and the number of its last boundary."""
    known = Epochs()
    known.add_boundaries(
        Boundary("a", 2 * n + k + 1, mark, n, 10 * n + 8 * k, phase, *[int((n + 0.8 * k) * 1e9)] * 2)
        for n in range(epochs)
        for k, (mark, phase) in enumerate([(Mark.EPOCH_BEGIN, "train"), (Mark.PHASE, "validate")])
    )
    known.add(frame((run(10 * epochs, epochs - 0.1, epoch=epochs - 1),)))
    return known, 2 * epochs


@pytest.mark.parametrize("work", [
    lambda known, end: recent_pace(known, "a", end),
    lambda known, end: steps_per_second_in(known, "a", end - 5.0, end - 4.0),
    lambda known, end: known.duration("a"),
    lambda known, end: known.epoch_spans("a", end, slice(-30, None)),
    lambda known, end: known.epoch_count("a"),
    lambda known, end: known.chart_marks(["a"]),
], ids=["recent pace", "pace of an epoch", "duration", "newest epochs", "count", "marks"])  # fmt: skip
def test_the_cost_does_not_grow_with_thousands_of_epochs(work: Callable[[Epochs, float], object]) -> None:
    spent = []
    for epochs in (100, 1900):
        known, number = quick(epochs)
        work(known, float(epochs))
        known.add_boundaries(
            [Boundary("a", number + 1, Mark.EPOCH_BEGIN, epochs, 10 * epochs, "train", *[epochs * 10**9] * 2)]
        )
        spent.append(instructions(lambda known=known, end=float(epochs): work(known, end)))  # type: ignore[misc]
    assert spent[1] < 1.5 * spent[0] + 300, "a bisection takes a few steps more"


def test_marks_that_are_added_are_those_of_all_at_once() -> None:
    added, whole = Epochs(), Epochs()
    boundaries = [
        Boundary(key, 2 * n + k + 1, mark, epoch, 10 * n, phase, *[int((n + late + 0.8 * k) * 1e9)] * 2)
        for n, epoch in enumerate([0, 1, 2, 2, 3, 1, 4])
        for key, late in (("a", 0.0), ("b", -0.1))
        for k, (mark, phase) in enumerate([(Mark.EPOCH_BEGIN, "train"), (Mark.PHASE, "validate")])
    ]
    ranks = [run(0, 0.0)._replace(key=key, epoch=5, epoch_started=9.0) for key in "ab"]
    for one in boundaries:
        added.add_boundaries([one])
        added.add(frame(tuple(ranks)))
        assert added.chart_marks("ab").marks == sorted(set(added.chart_marks("ab").marks))
    whole.add_boundaries(boundaries)
    whole.add(frame(tuple(ranks)))
    assert added.chart_marks("ab") == whole.chart_marks("ab")
    assert [(mark.epoch, mark.time) for mark in whole.chart_marks("ab").marks] == [
        (0, -0.1), (2, 2.9), (3, 3.9), (1, 4.9), (4, 5.9), (5, 9.0)
    ]  # fmt: skip
