"""Attribution, views, ledger and `gpumon run` fold the same boundaries into the same epochs."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from gpumon.analysis.run_epochs import Epochs
from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN
from gpumon.launcher.summary import CommandTrainings as Trainings
from gpumon.model.epoch_boundaries import EpochEnd, EpochFold
from gpumon.model.frame import Boundary, Mark, Run
from gpumon.storage.ledger.timeline import EpochTimeline
from gpumon.tracking.matching import attribute, positions_after
from tests.builders import frame_of, tick

RUN = Run("r", "id", "name", 1, "ada", started=0.0)


class Training:
    """Writes the boundaries of a training, as a board does."""

    def __init__(self, base: int = 0) -> None:
        self.found = [Boundary("r", 1, Mark.RUN_BEGIN, -1, 0, "", SECOND, SECOND)]
        self.epoch = base - 1
        self.phase = ""

    def mark(self, mark: Mark, epoch: int | None = None) -> None:
        """Write a boundary, a second after the last."""
        number, number_of = len(self.found) + 1, self.epoch if epoch is None else epoch
        at = number * SECOND
        self.found.append(Boundary("r", number, mark, number_of, 0, self.phase, at, at))

    def begin(self, epoch: int) -> None:
        """Begin an epoch."""
        self.epoch, self.phase = epoch, "train"
        self.mark(Mark.EPOCH_BEGIN)

    def end(self, mark: Mark = Mark.EPOCH_END) -> None:
        """End the open epoch, or take back the end of the last."""
        self.phase = ""
        self.mark(mark)

    def enter(self, phase: str) -> None:
        """Begin a phase."""
        self.phase = phase
        self.mark(Mark.CHECKPOINT if phase == "checkpoint" else Mark.PHASE)


def random_training(dice: random.Random) -> list[Boundary]:
    """Boundaries with epochs aborted and repeated, nested phases, resumed numbers, missing ends, late numbers."""
    training = Training(base=dice.choice([0, 0, 1, 57]))
    for _ in range(dice.randrange(12)):
        again = dice.random() < 0.15 and training.epoch >= 0
        training.begin(training.epoch if again else training.epoch + 1)
        for _ in range(dice.randrange(4)):
            phase = training.phase
            training.enter(dice.choice(["validate", "checkpoint", "test"]))
            if dice.random() < 0.3:
                training.enter("log images")
            training.enter(phase)
        if dice.random() < 0.2:
            training.mark(Mark.LOG, max(0, training.epoch - 1))
        if dice.random() < 0.1:
            training.mark(Mark.OUT_OF_MEMORY)
        how = dice.random()
        if how < 0.1:
            training.end(Mark.EPOCH_ABORTED)
        elif how < 0.9:
            training.end()
            if dice.random() < 0.2:
                training.enter("test")
                training.enter("")
            elif dice.random() < 0.1:
                training.end(Mark.EPOCH_ABORTED)
    if dice.random() < 0.7:
        training.end(Mark.RUN_END)
    return training.found


def with_losses(found: list[Boundary], dice: random.Random) -> list[Boundary]:
    """`found` without some stretches, as after a daemon was not there for long."""
    lost: set[int] = set()
    for _ in range(dice.randrange(3)):
        first = dice.randrange(len(found))
        lost.update(range(first, first + dice.randrange(1, 5)))
    return [boundary for place, boundary in enumerate(found) if place not in lost]


Seen = list[tuple[int, int, int | None]]
"""Of each epoch: its number, when it began, and when it finished; None where it did not."""


def by_views(boundaries: list[Boundary]) -> Seen:
    """As the views see them, from frames in which they come out of order and twice."""
    epochs = Epochs()
    shuffled = random.Random(3).sample(boundaries, len(boundaries))
    for part in (shuffled, boundaries):
        epochs.add(frame_of(tick(boundaries=part, runs=[RUN])))
    return [
        (one.epoch, round(one.begin * SECOND), round(one.end * SECOND) if one.finished else None)
        for one in epochs.epoch_spans("r", NAN)
    ]


def by_ledger(boundaries: list[Boundary]) -> Seen:
    """As the ledger writes them, by a daemon that is restarted in the middle."""
    timeline = EpochTimeline()
    for place, boundary in enumerate(boundaries):
        if place == len(boundaries) // 2:
            timeline = EpochTimeline.from_json(timeline.as_json())
        timeline.add(boundary)
        timeline.add(boundary)
    return [(one.epoch, one.begun_ns, one.ended_ns) for one in timeline.epochs.values()]


def by_run_command(boundaries: list[Boundary]) -> tuple[int, float]:
    """Whole epochs and their mean seconds, as `gpumon run` reports them."""
    trainings = Trainings()
    trainings.update([RUN], boundaries)
    trainings.update([RUN], boundaries)
    (training,) = trainings.trainings()
    return training.epochs, training.seconds


@pytest.mark.parametrize("seed", [*range(100), *(pytest.param(n, marks=pytest.mark.slow) for n in range(100, 300))])
def test_all_who_fold_boundaries_agree(seed: int) -> None:
    dice = random.Random(seed)
    boundaries = with_losses(random_training(dice), dice)
    seen = by_views(boundaries)
    assert by_ledger(boundaries) == seen
    whole = [(end - begin) / SECOND for _, begin, end in seen if end is not None]
    count, mean = by_run_command(boundaries)
    assert count == len(whole)
    assert not whole or mean == pytest.approx(sum(whole) / len(whole))
    moments = positions_after(EpochFold(), boundaries)
    for before, after in pairwise(boundaries):
        found = attribute(RUN, moments, (before.monotonic_ns + after.monotonic_ns) // 2)
        assert found is not None
        if after.number != before.number + 1:
            assert found.epoch == -1, "nothing is guessed in a gap"
            continue
        begun = [(number, begin) for number, begin, _ in seen if begin <= before.monotonic_ns]
        if found.epoch_started == found.epoch_started:
            assert (found.epoch, round(found.epoch_started * SECOND)) == begun[-1]


def test_an_epoch_aborted_after_its_end_does_not_count() -> None:
    training = Training()
    for epoch in range(2):
        training.begin(epoch)
        training.end()
    training.end(Mark.EPOCH_ABORTED)
    assert [end is None for _, _, end in by_views(training.found)] == [False, True]
    assert by_ledger(training.found) == by_views(training.found)
    assert by_run_command(training.found) == (1, 1.0)


def test_an_epoch_whose_end_is_lost_is_not_finished_for_any() -> None:
    training = Training()
    training.begin(0)
    training.end()
    training.begin(1)
    training.end()
    found = [boundary for boundary in training.found if boundary.number != 3]
    assert [end is None for _, _, end in by_views(found)] == [True, False]
    assert by_ledger(found) == by_views(found)
    assert by_run_command(found) == (1, 1.0)
    fold = EpochFold()
    ends = [change.closed for boundary in found if (change := fold.add(boundary)) and change.closed]
    assert ends == [EpochEnd.LOST, EpochEnd.FINISHED]


def test_a_number_logged_late_does_not_move_the_epoch_in_force() -> None:
    training = Training()
    for epoch in range(2):
        training.begin(epoch)
        if epoch:
            training.mark(Mark.LOG, 0)
        training.end()
    moments = positions_after(EpochFold(), training.found)
    found = attribute(RUN, moments, round(5.5 * SECOND))
    assert found is not None
    assert (found.epoch, found.phase, found.epoch_started) == (1, "train", 4.0)


def test_an_epoch_that_another_follows_directly_is_finished() -> None:
    fold = EpochFold()
    training = Training()
    training.begin(0)
    training.begin(1)
    changes = [fold.add(boundary) for boundary in training.found]
    assert [change.closed for change in changes if change] == [None, None, EpochEnd.FINISHED]
    assert by_ledger(training.found) == by_views(training.found)
