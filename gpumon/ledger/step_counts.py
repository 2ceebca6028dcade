"""Counted numbers of steps, told apart from uncounted ones: without a count, 0 is not a number of steps.

A callback of a framework counts steps of training alone, and a loop without `run.steps` and `run.step` none at all.
"""

from __future__ import annotations

from gpumon.ledger.records import EpochRow, PhaseRow, Record


class StepCounts:
    """The steps of a run's rows, None where they are not known."""

    def __init__(self, record: Record) -> None:
        self._run = any(epoch.steps for epoch in record.epochs)
        self._phases = {phase.phase for phase in record.phases if phase.steps}
        self._complete = not any(rank.lost_events for rank in record.ranks)

    def epoch(self, row: EpochRow) -> int | None:
        """Those of an epoch of one rank."""
        return row.steps if row.steps or (self._run and not begun_only(row)) else None

    def phase(self, row: PhaseRow) -> int | None:
        """Those of a phase of one rank's epoch."""
        return row.steps if row.phase in self._phases else None

    def whole(self, epochs: list[int | None]) -> int | None:
        """Those of all epochs together; unknown where boundaries were lost, since epochs may be missing then."""
        if not self._complete or all(steps is None for steps in epochs):
            return None
        return sum(steps for steps in epochs if steps is not None)


def begun_only(row: EpochRow) -> bool:
    """Whether only the begin of an epoch has been seen: what came of it is unknown, and not nothing."""
    # NaN is not itself; in place, because a call would cost more than the rest of the loop.
    return row.ended != row.ended and not row.seconds > 0


def most(steps: list[int | None]) -> int | None:
    """The most of several ranks; None where none is known."""
    return max((number for number in steps if number is not None), default=None)
