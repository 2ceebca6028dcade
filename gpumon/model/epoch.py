"""The one fold of a training's boundaries into epochs: which there were, and how each ended.

Attribution, the views, the ledger and `gpumon run` feed it the boundaries of a rank and keep what
they need of each epoch; none of them decides by itself where an epoch begins or ends.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from gpumon.model.frame import Boundary, Mark


class EpochEnd(Enum):
    """Reason why an epoch is no longer open."""

    FINISHED = "finished"
    """By its own end, or because the next epoch began directly after it."""
    ABORTED = "aborted"
    """Left before its end, or still open when the run ended."""
    LOST = "lost"
    """Its end is among boundaries that were overwritten before anything read them."""


class EpochChange(NamedTuple):
    """Effect of a boundary, in the order of the fields."""

    missed: int = 0
    """Boundaries between the previous one and this one that were lost."""
    closed: EpochEnd | None = None
    """Way in which the open epoch ended. `LOST` ends at the previous boundary, all others at this one."""
    begun: bool = False
    """Whether an epoch begins here: its number is the boundary's."""
    revoked: int | None = None
    """Number of an epoch that was reported as finished before, and had been aborted."""


class EpochFold:
    """Takes the boundaries of one rank in the order of their numbers, each once."""

    __slots__ = ("begin", "current", "lost", "newest", "open", "phase")

    def __init__(self, newest: int = 0, lost: int = 0, opened: int | None = None) -> None:
        self.newest = newest
        """Number of the newest boundary taken; 0 before the first."""
        self.lost = lost
        """Boundaries that were lost so far."""
        self.open = opened
        """Number of the epoch in force; None between epochs."""
        self.current = -1 if opened is None else opened
        """Number of the epoch that is open or was last; -1 before the first, and where that is lost."""
        self.begin: Boundary | None = None
        """Begin of `current`; None where it is not known."""
        self.phase = ""
        """The phase in force, within an epoch or outside."""

    def take(self, boundary: Boundary) -> EpochChange | None:
        """Take the next boundary and return its effect; None where it was taken before."""
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
        self._follow(boundary, missed)
        return EpochChange(missed, closed, revoked=revoked)

    def _follow(self, boundary: Boundary, missed: int) -> None:
        """Keep up with the epoch in force where its begin is lost."""
        if boundary.mark is Mark.LOG:  # it belongs to another epoch than the one in force
            number = self.current if not missed or self.open is not None else -1
        else:
            number = boundary.epoch
        if number != self.current:
            self.current, self.begin = number, None


_ENDS = {Mark.EPOCH_END: EpochEnd.FINISHED, Mark.EPOCH_ABORTED: EpochEnd.ABORTED, Mark.RUN_END: EpochEnd.ABORTED}


def _is_elsewhere(boundary: Boundary, epoch: int) -> bool:
    """Whether a boundary after a gap proves that `epoch` is no longer open."""
    if boundary.mark is Mark.LOG:
        return False
    return boundary.mark is Mark.EPOCH_BEGIN or boundary.epoch != epoch
