"""The epochs of one rank, computed from boundaries that may arrive late, twice, or not at all."""

from __future__ import annotations

from operator import attrgetter
from typing import NamedTuple

from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN, is_known
from gpumon.model.epoch_boundaries import EpochEnd, EpochFold
from gpumon.model.frame import TRAINING, Boundary, Mark, Run, wait_between


class DataWait(NamedTuple):
    """The time that a training waited for data."""

    seconds: float = 0.0
    """Seconds that the training waited for data."""
    measured: float = 0.0
    """Seconds of the phases in which waits were measured. Time between epochs is not included."""

    @property
    def share(self) -> float:
        """Share of the measured time that was spent waiting (0 to 1); NaN if nothing was measured."""
        return min(self.seconds / self.measured, 1.0) if self.measured > 0 else NAN


class DataWaitFold:
    """Sums the waits for data of the open epoch and of all ended epochs.

    Phases without a measured wait do not count.
    """

    def __init__(self) -> None:
        self._ended = DataWait()
        self._phases: dict[str, DataWait] = {}
        """Waits of the open epoch by phase."""

    def add(self, phase: str, begin: Boundary, end: Boundary) -> None:
        """Add the time between two consecutive boundaries of the open epoch."""
        seconds = (end.monotonic_ns - begin.monotonic_ns) / SECOND
        self._phases[phase] = _add(self._phases.get(phase), seconds, wait_between(begin.wait, end.wait))

    def end_epoch(self) -> None:
        """Add the wait of the open epoch to the wait of the ended epochs."""
        self._ended, self._phases = _sum(self._ended, self._phases), {}

    def until(self, last: Boundary | None, run: Run, now: float, monotonic_ns: int = 0) -> DataWait:
        """Return the wait in all epochs up to `now` (s since 1970), including the phase that is still open.

        `last`: the newest boundary, at which the open phase started. `monotonic_ns`: the same time as `now` by
        CLOCK_MONOTONIC, 0 if unknown.
        """
        return _sum(self._ended, self._open_until(last, run, now, monotonic_ns))

    def open_until(self, last: Boundary | None, run: Run, now: float) -> DataWait:
        """Return the wait in the open epoch up to `now` (s since 1970)."""
        return _sum(DataWait(), self._open_until(last, run, now, 0))

    def _open_until(self, last: Boundary | None, run: Run, now: float, monotonic_ns: int) -> dict[str, DataWait]:
        if last is None:
            return self._phases
        seconds = (monotonic_ns - last.monotonic_ns if monotonic_ns else now * SECOND - last.time_ns) / SECOND
        wait = _add(self._phases.get(last.phase), max(0.0, seconds), wait_between(last.wait, run.wait))
        return {**self._phases, last.phase: wait}

    def copy(self) -> DataWaitFold:
        """Return an independent copy."""
        copy = DataWaitFold()
        copy._ended, copy._phases = self._ended, dict(self._phases)
        return copy


def _add(total: DataWait | None, seconds: float, wait: float) -> DataWait:
    total = total or DataWait()
    return DataWait(total.seconds + (wait if is_known(wait) else 0.0), total.measured + seconds)


def _sum(ended: DataWait, phases: dict[str, DataWait]) -> DataWait:
    measured = [wait for wait in phases.values() if wait.seconds > 0]
    return DataWait(
        ended.seconds + sum(wait.seconds for wait in measured), ended.measured + sum(wait.measured for wait in measured)
    )


KEEP = 4096
"""Maximum number of boundaries stored per rank. If there are more, the older half is dropped."""


class RankEpoch(NamedTuple):
    """An epoch of a rank. Times are s since 1970."""

    begin: float
    number: int
    end: float = NAN
    """End of the epoch; NaN while the epoch is open."""
    how: EpochEnd | None = None
    """How the epoch ended (finished, aborted or lost); None while it is open."""

    @property
    def finished(self) -> bool:
        """Whether the epoch was completed."""
        return self.how is EpochEnd.FINISHED


class Span(NamedTuple):
    """A phase other than training, such as validation. Times are s since 1970."""

    begin: float
    end: float
    """End of the phase; infinite while the phase is open."""
    phase: str


class RankEpochs:
    """The boundaries of a rank by number, and the epochs computed from them."""

    def __init__(self) -> None:
        self._by_number: dict[int, Boundary] = {}
        self.boundaries: list[Boundary] = []
        """Boundaries of the rank, sorted by number."""
        self.rewritten = 0
        """Incremented when an entry of `epochs`, `spans` or `faults` that is not the last one changes."""
        self._reset()

    def add(self, boundary: Boundary) -> bool:
        """Add a boundary, and return whether it was new."""
        if boundary.number in self._by_number:
            return False
        self._by_number[boundary.number] = boundary
        if boundary.number > self._fold.newest and len(self.boundaries) < KEEP:
            self.boundaries.append(boundary)
            self._fold_in(boundary)
        else:
            self._refold()
        return True

    def copy(self) -> RankEpochs:
        """Return a copy for reading only: no boundaries may be added to it."""
        copy = RankEpochs()
        copy._by_number = dict(self._by_number)
        copy.boundaries, copy.epochs, copy.ends = list(self.boundaries), list(self.epochs), dict(self.ends)
        copy.begins, copy.spans, copy.faults = dict(self.begins), list(self.spans), list(self.faults)
        copy.waits, copy.in_force, copy._last = self.waits.copy(), self.in_force, self._last
        return copy

    def open_span(self, end: float) -> list[Span]:
        """Return a list with the phase that started at the newest boundary. It is empty if this phase is training.

        `end`: end of the phase (s since 1970).
        """
        return _span(self._last, end)

    def _refold(self) -> None:
        """Compute everything from the stored boundaries again, after one arrived late or the older half was dropped."""
        ordered = sorted(self._by_number.values(), key=attrgetter("number"))
        self.boundaries = ordered[-KEEP // 2 :] if len(ordered) > KEEP else ordered
        self._by_number = {boundary.number: boundary for boundary in self.boundaries}
        self.rewritten += 1
        self._reset()
        for boundary in self.boundaries:
            self._fold_in(boundary)

    def _reset(self) -> None:
        self._fold = EpochFold()
        self._last: Boundary | None = None
        self.epochs: list[RankEpoch] = []
        """Epochs of the rank, oldest first."""
        self.begins: dict[int, float] = {}
        """Start (s since 1970) of each epoch by number; the last start if the epoch was repeated."""
        self.spans: list[Span] = []
        """Finished phases other than training, oldest first."""
        self.faults: list[Boundary] = []
        """Boundaries of out-of-memory errors, oldest first."""
        self.ends: dict[int, RankEpoch] = {}
        """Epochs whose end was received but whose start was lost, by number."""
        self.waits = DataWaitFold()
        self.in_force: Boundary | None = None
        """Newest boundary of the open epoch; None if no epoch is open."""

    def _fold_in(self, boundary: Boundary) -> None:
        self.spans += _span(self._last, boundary.time_ns / 1e9)
        if boundary.mark is Mark.OUT_OF_MEMORY:
            self.faults.append(boundary)
        previous = self._last or boundary
        self._last = boundary
        phase, was_open = self._fold.phase, self._fold.open is not None
        change = self._fold.add(boundary)
        if change is None:
            return
        is_open = self._fold.open is not None
        if was_open and not change.missed:
            self.waits.add(phase, previous, boundary)
        if change.closed is not None or (was_open and not is_open):
            self.waits.end_epoch()
        self.in_force = boundary._replace(phase=self._fold.phase) if is_open else None
        if change.closed is not None and self.epochs:
            end = previous if change.closed is EpochEnd.LOST else boundary
            self.epochs[-1] = self.epochs[-1]._replace(end=end.time_ns / 1e9, how=change.closed)
        elif boundary.mark is Mark.EPOCH_END:
            self.ends[boundary.epoch] = RankEpoch(NAN, boundary.epoch, boundary.time_ns / 1e9, EpochEnd.FINISHED)
        if change.revoked is not None:
            self._revoke(change.revoked)
        if change.begun:
            self.rewritten += boundary.epoch in self.begins
            self.epochs.append(RankEpoch(boundary.time_ns / 1e9, boundary.epoch))
            self.begins[boundary.epoch] = boundary.time_ns / 1e9

    def _revoke(self, number: int) -> None:
        """Mark the newest epoch with this number as aborted."""
        for index in range(len(self.epochs) - 1, -1, -1):
            if self.epochs[index].number == number:
                self.epochs[index] = self.epochs[index]._replace(how=EpochEnd.ABORTED)
                return
        if number in self.ends:
            self.ends[number] = self.ends[number]._replace(how=EpochEnd.ABORTED)


def _span(boundary: Boundary | None, end: float) -> list[Span]:
    """Return a list with the phase that starts at a boundary. It is empty if this phase is training.

    `end`: end of the phase (s since 1970).
    """
    if boundary is None or boundary.phase in ("", TRAINING) or boundary.mark is Mark.RUN_END:
        return []
    return [Span(boundary.time_ns / 1e9, end, boundary.phase)]
