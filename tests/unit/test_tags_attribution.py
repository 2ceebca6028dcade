"""A sample is attributed to the epoch at its own time."""

from __future__ import annotations

import math

from gpumon.model.epoch_boundaries import EpochFold
from gpumon.model.frame import Boundary, Mark, Run, RunState
from gpumon.tracking.matching import attribute, positions_after

RUN = Run("k", "k", "k", 1, "ann", state=RunState.FINISHED, epoch=1, phase="", step=9)


def boundary(number: int, mark: Mark, epoch: int, phase: str, at: int) -> Boundary:
    return Boundary("k", number, mark, epoch, 0, phase, at, at * 1_000_000_000)


ALL = [
    boundary(1, Mark.RUN_BEGIN, -1, "", 10),
    boundary(2, Mark.EPOCH_BEGIN, 0, "train", 20),
    boundary(3, Mark.PHASE, 0, "validate", 25),
    boundary(4, Mark.PHASE, 0, "train", 28),
    boundary(5, Mark.EPOCH_END, 0, "", 30),
    boundary(6, Mark.EPOCH_BEGIN, 1, "train", 40),
    boundary(7, Mark.RUN_END, 1, "", 50),
]


def at(time: int, boundaries: list[Boundary] = ALL) -> tuple[int, str, float, RunState] | None:
    found = attribute(RUN, positions_after(EpochFold(), boundaries), time)
    return found and (found.epoch, found.phase, found.epoch_started, found.state)


def test_before_the_run_there_is_no_position() -> None:
    assert at(9) is None


def test_each_time_has_its_epoch_and_phase() -> None:
    assert at(20) == (0, "train", 20.0, RunState.RUNNING)
    assert at(26) == (0, "validate", 20.0, RunState.RUNNING)
    assert at(29) == (0, "train", 20.0, RunState.RUNNING)
    assert at(35) == (0, "", 20.0, RunState.RUNNING)
    assert at(49) == (1, "train", 40.0, RunState.RUNNING)
    assert at(50) == (1, "", 40.0, RunState.FINISHED)


def test_before_the_first_epoch_the_epoch_is_unknown() -> None:
    found = at(15)
    assert found is not None
    assert found[:2] == (-1, "")
    assert math.isnan(found[2])


def test_lost_boundaries_make_the_epoch_unknown() -> None:
    gap = [ALL[0], ALL[1], ALL[5], ALL[6]]
    found = at(26, gap)
    assert found is not None
    assert found[:2] == (-1, "")
    assert at(45, gap) == (1, "train", 40.0, RunState.RUNNING)
    first_lost = at(1, ALL[5:])
    assert first_lost is not None
    assert first_lost[0] == -1
