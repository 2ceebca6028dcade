"""The values that trainings logged, by epoch: as frames told of them, the last ones of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isclose, isfinite
from typing import NamedTuple

from gpumon.common.numbers import NAN, is_known
from gpumon.model.frame import Frame, Mark, Run

EPOCHS, RUNS = 64, 64
"""Epochs kept of each run, and runs."""
_ALIKE = 1e-6
"""Share by which one number may differ in a frame and in the ledger."""
_ENDS = (Mark.EPOCH_END, Mark.EPOCH_ABORTED)
_TELLING = (*_ENDS, Mark.LOG)
"""Boundaries that tell what was logged in the epoch whose number they have. That of a run tells the last once more."""


class _Board(NamedTuple):
    """The values of a run as its board shows them, those of earlier epochs among them."""

    epoch: int
    begun: Mapping[str, float]
    """As they were when this epoch was first seen: of it, or of the end of the one before."""


class LoggedEpochs:
    """Values by run, epoch and name; of a distributed run those of its first rank.

    A board shows what was logged last of each name, and not when: a value is one of the epoch in which it was seen to
    change, and of one that has ended only if its end tells it, too. Of epochs shorter than a tick, and of values that
    are logged with every step, the ledger alone knows the last.
    """

    def __init__(self) -> None:
        self._of: dict[str, dict[int, Mapping[str, float]]] = {}
        self._boards: dict[str, _Board] = {}
        self._seen = 0
        """Number of the last frame that told of runs."""

    def add(self, frame: Frame) -> None:
        """Take in what the runs of a frame logged."""
        told = [one for one in frame.boundaries if one.epoch >= 0 and one.mark in _TELLING]
        follows = frame.is_full and 0 <= frame.number - self._seen <= 1
        if frame.is_full:
            self._seen = frame.number
        for run in frame.runs:
            if run.rank or run.epoch < 0:
                continue
            of = self._of.setdefault(run.id, {})
            before = self._boards.get(run.id)
            if not follows and before is not None and before.epoch != run.epoch:
                # Its end was not seen: what was logged last before is not what it ended with.
                of.pop(before.epoch, None)
            board = self._boards[run.id] = self._turned(run)
            known = of.get(run.epoch, {})
            of[run.epoch] = {
                name: value for name, value in run.metrics.items()
                if name in known or not _is_same(value, board.begun.get(name))
            }  # fmt: skip
            for boundary in told:
                if boundary.run == run.key:
                    # The frame before an end is up to a tick older: more may have been logged until then.
                    before_it = {} if boundary.mark in _ENDS else of.get(boundary.epoch, {})
                    of[boundary.epoch] = {**before_it, **boundary.metrics}
            while len(of) > EPOCHS:
                del of[min(of)]
            if len(self._of) > RUNS:
                gone = next(iter(self._of))
                del self._of[gone], self._boards[gone]

    def _turned(self, run: Run) -> _Board:
        """The board of a run in its present epoch."""
        last = self._boards.get(run.id)
        if last is not None and last.epoch == run.epoch:
            return last
        begun = {} if run.epoch == run.first_epoch else run.metrics  # nothing was logged before the first
        return _Board(run.epoch, begun)

    def of(self, run_id: str, epoch: int) -> Mapping[str, float]:
        """Return the last values of an epoch by name; empty where nothing is known of it."""
        return self._of.get(run_id, {}).get(epoch, {})

    def value(self, run_id: str, epoch: int, name: str) -> float:
        """Return the last value of an epoch, or NaN."""
        return self.of(run_id, epoch).get(name, NAN)

    def change(self, run: Run, name: str, kept: Callable[[int], float] = lambda epoch: NAN) -> float:
        """Return how a value differs from the last one of the epoch before its own, as a share; NaN if unknown.

        A value that the present epoch has not logged yet is of the one before. It is the change against the row of an
        epoch: `kept` gives its value in the ledger by its number, NaN where that has none.
        """
        value, before = run.metrics.get(name, NAN), self._last(run, name, run.epoch - 1, kept)
        if isclose(value, before, rel_tol=_ALIKE) and not is_known(self.value(run.id, run.epoch, name)):
            before = self._last(run, name, run.epoch - 2, kept)
        # Across zero a share of what was before says nothing.
        return (value - before) / abs(before) if isfinite(value) and isfinite(before) and value * before > 0 else NAN

    def _last(self, run: Run, name: str, epoch: int, kept: Callable[[int], float]) -> float:
        """The value with which an epoch of a run ended."""
        if epoch < run.first_epoch:
            return NAN
        found = kept(epoch)
        return found if is_known(found) else self.value(run.id, epoch, name)


def _is_same(value: float, before: float | None) -> bool:
    """Whether two numbers are equal; NaN, which equals nothing, counts as NaN."""
    return before is not None and (value == before or not (is_known(value) or is_known(before)))
