"""Counted numbers of steps, told apart from uncounted ones: without a count, 0 is not a number of steps.

A callback of a framework counts steps of training alone, and a loop without `run.steps` and `run.step` none at all.
"""

from __future__ import annotations

from gpumon.common.numbers import NAN
from gpumon.ledger.records import EpochRow, PhaseRow, Record
from gpumon.ledger.schema import WHOLE_EPOCH
from gpumon.model.frame import EVALUATION

COUNT_IN_EPOCHS = frozenset(("keras", "lightning", "transformers", "ignite"))
"""Frameworks whose callbacks count steps in epochs alone: more of them outside are those of an earlier run."""


def counts_outside(record: Record) -> bool:
    """Whether what was counted outside the epochs of a run are steps that it made there."""
    return record.run.framework.partition("/")[0] not in COUNT_IN_EPOCHS


class StepCounts:
    """The steps of a run's rows, None where they are not known."""

    def __init__(self, record: Record) -> None:
        self._run = any(epoch.steps for epoch in record.epochs)
        self._phases = {phase.phase for phase in record.phases if phase.steps}
        self._outside = [row for row in record.outside if row.phase not in EVALUATION and row.phase != WHOLE_EPOCH]
        self._record = record
        self._complete = not any(rank.lost_events for rank in record.ranks)

    def epoch(self, row: EpochRow) -> int | None:
        """Those of an epoch of one rank; of one that has not ended none may only not have been heard of yet."""
        # NaN is not itself; in place, because a call would cost more than the rest of the loop.
        return row.steps if row.steps or (self._run and row.ended == row.ended) else None

    def phase(self, row: PhaseRow) -> int | None:
        """Those of a phase of one rank's epoch."""
        return row.steps if row.phase in self._phases else None

    def whole(self, epochs: list[int | None]) -> int | None:
        """Those of all epochs and between them.

        Where boundaries were lost, epochs may be missing: then what the training itself has counted, if it counts from
        its begin; a framework that resumes another one does not.
        """
        known = [steps for steps in (*epochs, self.between()) if steps is not None]
        if known and not self._complete and counts_outside(self._record):
            return most([rank.steps or None for rank in self._record.ranks])
        return sum(known) if known and self._complete else None

    def between(self) -> int | None:
        """Those that were made outside the epochs of a run, but for evaluation; None where there are none."""
        return self.outside() if self._outside and counts_outside(self._record) else None

    def outside(self) -> int | None:
        """Those of a run without epochs, but for evaluation; of several ranks those of the one with most."""
        if not self._record.outside:  # lost, or kept by an older version
            return most([rank.steps or None for rank in self._record.ranks])
        ranks = {row.rank for row in self._outside}
        return most([sum(row.steps for row in self._outside if row.rank == rank) or None for rank in ranks])

    def trained(self) -> float:
        """Seconds in which these were made; NaN where they are unknown."""
        ranks = {row.rank for row in self._outside}
        spent = [sum(row.seconds for row in self._outside if row.rank == rank and row.steps) for rank in ranks]
        return max(spent, default=NAN) or NAN


def begun_only(row: EpochRow) -> bool:
    """Whether only the begin of an epoch has been seen: what came of it is unknown, and not nothing."""
    # NaN is not itself; in place, because a call would cost more than the rest of the loop.
    return row.ended != row.ended and not row.seconds > 0


def most(steps: list[int | None]) -> int | None:
    """The most of several ranks; None where none is known."""
    return max((number for number in steps if number is not None), default=None)
