"""Derives from the boundaries of a training where each epoch begins and ends, and how it ended.

Attribution, views, ledger and `gpumon run` pass the boundaries of a rank to this module, and store the data that they
need of each epoch. Only this module decides where an epoch begins or ends.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from gpumon.model.frame import Boundary, Mark


class EpochEnd(Enum):
    """Reason why an epoch is no longer open."""

    FINISHED = "finished"
    """The epoch ended normally, or the next epoch began while it was open."""
    ABORTED = "aborted"
    """The training left the epoch before its end, or the epoch was still open when the run ended."""
    LOST = "lost"
    """The boundary at the end of the epoch was overwritten before it was read."""


class EpochChange(NamedTuple):
    """The effects of a boundary. They must be applied in the order of the fields."""

    missed: int = 0
    """Number of lost boundaries between the previous one and this one."""
    closed: EpochEnd | None = None
    """How the open epoch ended; None if it did not end. A lost epoch ends at the previous boundary; any other epoch
    ends at this boundary."""
    begun: bool = False
    """Whether an epoch begins at this boundary. The boundary has the number of the epoch."""
    revoked: int | None = None
    """Number of an epoch that was first reported as finished but was in fact aborted."""


class EpochFold:
    """Derives the epochs of one rank from its boundaries. Boundaries must be added in the order of their numbers."""

    __slots__ = ("begin", "current", "lost", "newest", "open", "phase")

    def __init__(self, newest: int = 0, lost: int = 0, opened: int | None = None) -> None:
        self.newest = newest
        """Number of the newest boundary; 0 before the first boundary."""
        self.lost = lost
        """Number of boundaries lost so far."""
        self.open = opened
        """Number of the open epoch; None between epochs."""
        self.current = -1 if opened is None else opened
        """Number of the open or last epoch. -1 before the first epoch, or if the number was lost with a boundary."""
        self.begin: Boundary | None = None
        """The boundary at the start of epoch `current`; None if it was lost."""
        self.phase = ""
        """The current phase, inside or outside of an epoch."""

    def add(self, boundary: Boundary) -> EpochChange | None:
        """Process the next boundary and return its effect; None if the boundary was already processed."""
        missed = boundary.number - self.newest - 1
        if missed < 0:
            return None
        mark, closed = boundary.mark, None
        self.newest = boundary.number
        self.lost += missed
        self.phase = boundary.phase
        if missed and self.open is not None and _is_elsewhere(boundary, self.open):
            closed = EpochEnd.LOST
            self.open = None
        if mark is Mark.EPOCH_BEGIN:
            closed = EpochEnd.FINISHED if self.open is not None else closed
            self.open = self.current = boundary.epoch
            self.begin = boundary
            return EpochChange(missed, closed, begun=True)
        revoked = None
        if self.open is None:
            if mark is Mark.EPOCH_ABORTED and not missed and boundary.epoch >= 0:
                revoked = boundary.epoch
        elif mark in _ENDS:
            closed = _ENDS[mark]
            self.open = None
        self._update_current(boundary, missed)
        return EpochChange(missed, closed, revoked=revoked)

    def _update_current(self, boundary: Boundary, missed: int) -> None:
        """Set the current epoch if the boundary at its start was lost."""
        if boundary.mark is Mark.LOG:  # the logged values belong to an earlier epoch
            number = self.current if not missed or self.open is not None else -1
        else:
            number = boundary.epoch
        if number != self.current:
            self.current, self.begin = number, None


_ENDS = {Mark.EPOCH_END: EpochEnd.FINISHED, Mark.EPOCH_ABORTED: EpochEnd.ABORTED, Mark.RUN_END: EpochEnd.ABORTED}


def _is_elsewhere(boundary: Boundary, epoch: int) -> bool:
    """Return whether a boundary after a gap proves that `epoch` is no longer open."""
    if boundary.mark is Mark.LOG:
        return False
    return boundary.mark is Mark.EPOCH_BEGIN or boundary.epoch != epoch
