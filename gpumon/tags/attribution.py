"""Epoch and phase in force at a moment: a sample belongs to the epoch of its own time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gpumon.common.numbers import NAN, is_known
from gpumon.model.epoch import EpochFold
from gpumon.model.frame import Boundary, Mark, Run, RunState


class InForce(NamedTuple):
    """Epoch and phase from a boundary on, until the next one."""

    monotonic_ns: int
    """ns, CLOCK_MONOTONIC of this machine."""
    number: int
    """That of the boundary."""
    epoch: int
    """From an epoch's end to the next one's begin its number stays, without a phase; -1 where there is none."""
    phase: str
    began: float
    """Seconds since 1970 when the epoch began; NaN where that is lost."""
    over: bool
    """Whether the run has ended here."""


def in_force(fold: EpochFold, boundaries: Iterable[Boundary]) -> list[InForce]:
    """Feed `boundaries` to `fold` and return what is in force after each."""
    found = []
    for boundary in boundaries:
        fold.take(boundary)
        began = fold.begin.time_ns / 1e9 if fold.begin is not None and fold.current >= 0 else NAN
        over = boundary.mark is Mark.RUN_END
        found.append(
            InForce(
                monotonic_ns=boundary.monotonic_ns,
                number=boundary.number,
                epoch=fold.current,
                phase=fold.phase,
                began=began,
                over=over,
            )
        )
    return found


def attribute(run: Run, moments: Sequence[InForce], monotonic_ns: int) -> Run | None:
    """Return `run` with the epoch, phase and state in force at `monotonic_ns` (ns, CLOCK_MONOTONIC of this machine).

    `moments` are the run's own, in the order of their times. None before the run began. Where
    boundaries were lost nothing is guessed: the epoch is -1 until the next one that is known.
    """
    after = bisect_right(moments, monotonic_ns, key=_monotonic)
    if after == 0:
        # The first boundaries may be lost, and then the run may have begun before the first one known.
        known_begin = moments and moments[0].number == 1
        return None if known_begin else run._replace(epoch=-1, phase="", epoch_started=NAN, state=RunState.RUNNING)
    last = moments[after - 1]
    if after < len(moments):
        state = run.state if last.over else RunState.RUNNING
        if moments[after].number != last.number + 1:
            return run._replace(epoch=-1, phase="", epoch_started=NAN, state=state)
    else:
        state = run.state
    began = last.began
    if not is_known(began) and after == len(moments) and last.epoch == run.epoch:
        began = run.epoch_started  # its boundary is lost; the board's state still has it
    return run._replace(epoch=last.epoch, phase=last.phase, epoch_started=began, state=state)


def _monotonic(moment: InForce) -> int:
    return moment.monotonic_ns
