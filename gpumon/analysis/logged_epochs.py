"""The last value of each metric that trainings logged in each epoch, computed from frames."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise, starmap, takewhile
from math import isclose, isfinite
from typing import NamedTuple

from gpumon.common.numbers import NAN, is_known
from gpumon.model.frame import Frame, Mark, Run

EPOCHS, RUNS = 64, 64
"""Maximum number of stored epochs of a run, and maximum number of stored runs."""
_REL_TOLERANCE = 1e-6
"""Maximum relative difference between a number in a frame and the same number in the ledger."""
_AGREEING = 3
"""Number of consecutive epochs whose final values are compared. A change is reported only if all of them changed in the
same direction."""
_ENDS = (Mark.EPOCH_END, Mark.EPOCH_ABORTED)
_MARKS_WITH_VALUES = (*_ENDS, Mark.LOG)
"""Boundaries whose values were logged in their own epoch. The end of a run is not included, because it repeats values
of earlier epochs."""


class _EpochStart(NamedTuple):
    """The values on a run's board when an epoch was first seen. They may belong to the previous epoch."""

    epoch: int
    values: Mapping[str, float]


class LoggedEpochs:
    """Logged values by run, epoch and name. For a distributed run, these are the values of its first rank.

    A board shows the newest value of each metric, but not when it was logged. So a value counts for the open epoch only
    if it has changed since the epoch began. Once the epoch has ended, only the values in the event of its end count.
    For epochs shorter than a tick, and for metrics that are logged at every step, only the ledger has the final value.
    """

    def __init__(self) -> None:
        self._values: dict[str, dict[int, Mapping[str, float]]] = {}
        """Values by run id, then by epoch."""
        self._starts: dict[str, _EpochStart] = {}
        """Start of the current epoch by run id."""
        self._last_frame = 0
        """Number of the last frame that contained runs."""

    def add(self, frame: Frame) -> None:
        """Add the values that the runs of a frame logged."""
        logged = [bound for bound in frame.boundaries if bound.epoch >= 0 and bound.mark in _MARKS_WITH_VALUES]
        is_next = frame.is_full and 0 <= frame.number - self._last_frame <= 1
        if frame.is_full:
            self._last_frame = frame.number
        for run in frame.runs:
            if run.rank or run.epoch < 0:
                continue
            epochs = self._values.setdefault(run.id, {})
            previous = self._starts.get(run.id)
            if not is_next and previous is not None and previous.epoch != run.epoch:
                # The end of the previous epoch was missed, so the values seen last may not be its final values.
                epochs.pop(previous.epoch, None)
            start = self._starts[run.id] = self._epoch_start(run)
            known = epochs.get(run.epoch, {})
            epochs[run.epoch] = {
                name: value for name, value in run.metrics.items()
                if name in known or not _is_same(value, start.values.get(name))
            }  # fmt: skip
            for boundary in logged:
                if boundary.run == run.key:
                    # At the end of an epoch, drop the values of earlier frames, because they may be outdated.
                    earlier = {} if boundary.mark in _ENDS else epochs.get(boundary.epoch, {})
                    epochs[boundary.epoch] = {**earlier, **boundary.metrics}
            while len(epochs) > EPOCHS:
                del epochs[min(epochs)]
            if len(self._values) > RUNS:
                oldest = next(iter(self._values))
                del self._values[oldest], self._starts[oldest]

    def _epoch_start(self, run: Run) -> _EpochStart:
        last = self._starts.get(run.id)
        if last is not None and last.epoch == run.epoch:
            return last
        values = {} if run.epoch == run.first_epoch else run.metrics  # nothing was logged before the first epoch
        return _EpochStart(run.epoch, values)

    def values(self, run_id: str, epoch: int) -> Mapping[str, float]:
        """Return the last values of an epoch by metric name; empty if none are stored."""
        return self._values.get(run_id, {}).get(epoch, {})

    def value(self, run_id: str, epoch: int, name: str) -> float:
        """Return the last value of a metric in an epoch; NaN if none is stored."""
        return self.values(run_id, epoch).get(name, NAN)

    def change(self, run: Run, name: str, kept: Callable[[int], float] = lambda epoch: NAN) -> float:
        """Return the relative change of a metric since the end of the previous epoch.

        NaN if values are missing, or if the change may be noise: there was no earlier change, or one in the opposite
        direction. If the metric was not logged in the current epoch yet, the last two finished epochs are compared.
        `kept`: function that returns the last value of an epoch in the ledger, or NaN. Values of the ledger are
        preferred, so that the result agrees with the table of epochs.
        """
        value, epoch = run.metrics.get(name, NAN), run.epoch - 1
        previous = self._final(run, name, epoch, kept)
        if isclose(value, previous, rel_tol=_REL_TOLERANCE) and not is_known(self.value(run.id, run.epoch, name)):
            epoch -= 1
            previous = self._final(run, name, epoch, kept)
        change = _relative_change(value, previous)
        if not is_known(change):
            return NAN
        finals = (self._final(run, name, epoch - back, kept) for back in range(_AGREEING))
        earlier = [*starmap(_relative_change, pairwise(takewhile(is_known, finals)))]
        return change if earlier and all(found * change >= 0 for found in earlier) else NAN

    def _final(self, run: Run, name: str, epoch: int, kept: Callable[[int], float]) -> float:
        """Return the value with which an epoch of a run ended."""
        if epoch < run.first_epoch:
            return NAN
        value = kept(epoch)
        return value if is_known(value) else self.value(run.id, epoch, name)


def _relative_change(value: float, previous: float) -> float:
    """Return the relative change of a value. NaN if a value is zero or not finite, or if the sign changes."""
    is_defined = isfinite(value) and isfinite(previous) and value * previous > 0
    return (value - previous) / abs(previous) if is_defined else NAN


def _is_same(value: float, other: float | None) -> bool:
    """Return whether two numbers are equal. NaN equals NaN."""
    return other is not None and (value == other or not (is_known(value) or is_known(other)))
