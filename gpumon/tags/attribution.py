"""Which epoch and phase were in force at a moment: a sample belongs to the epoch of its own time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from math import isnan

from gpumon.frame import NAN, Boundary, Mark, Run, RunState


def attribute(run: Run, boundaries: Sequence[Boundary], at_monotonic: int) -> Run | None:
    """`run` with the epoch, phase and state in force at `at_monotonic` (ns, CLOCK_MONOTONIC of this machine).

    `boundaries` are the run's own, in the order of their times. None before the run began. From an
    epoch's end to the next one's begin its number stays, without a phase. Where boundaries were
    lost nothing is guessed: the epoch is -1 until the next one that is known.
    """
    after = bisect_right(boundaries, at_monotonic, key=_monotonic)
    if after == 0:
        # The first boundaries may be lost, and then the run may have begun before the first one known.
        known_begin = boundaries and boundaries[0].number == 1
        return None if known_begin else run._replace(epoch=-1, phase="", epoch_started=NAN, state=RunState.RUNNING)
    last = boundaries[after - 1]
    if after < len(boundaries):
        state = RunState.RUNNING if last.mark != Mark.RUN_END else run.state
        if boundaries[after].number != last.number + 1:
            return run._replace(epoch=-1, phase="", epoch_started=NAN, state=state)
    else:
        state = run.state
    began = _epoch_begin(boundaries, after - 1)
    if isnan(began) and after == len(boundaries) and last.epoch == run.epoch:
        began = run.epoch_started  # its boundary is lost, the board's own state still tells
    return run._replace(epoch=last.epoch, phase=last.phase, epoch_started=began, state=state)


def _monotonic(boundary: Boundary) -> int:
    return boundary.monotonic


def _epoch_begin(boundaries: Sequence[Boundary], at: int) -> float:
    """When the epoch in force after `boundaries[at]` began, in seconds since 1970; NaN if that is lost."""
    epoch = boundaries[at].epoch
    if epoch < 0:
        return NAN
    for i in range(at, -1, -1):
        if boundaries[i].epoch != epoch:
            break
        if boundaries[i].mark == Mark.EPOCH_BEGIN:
            return boundaries[i].time / 1e9
    return NAN
