"""The epochs of one rank, folded from boundaries that may come late, twice, or not at all."""

from __future__ import annotations

from operator import attrgetter
from typing import NamedTuple

from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN, is_known
from gpumon.model.epoch import EpochEnd, EpochFold
from gpumon.model.frame import TRAINING, Boundary, Mark, Run, waited_between


class Waited(NamedTuple):
    """Seconds waited for data."""

    wait: float = 0.0
    of: float = 0.0
    """Seconds of the phases of epochs in which that was measured: not of what lies between epochs."""

    @property
    def share(self) -> float:
        """The wait as a share of the time in which it was measured; NaN where nobody has measured it."""
        return min(self.wait / self.of, 1.0) if self.of > 0 else NAN


class WaitFold:
    """Adds up the wait between boundaries, epoch by epoch: a phase counts where any of it was measured."""

    def __init__(self) -> None:
        self._ended = Waited()
        self._phases: dict[str, Waited] = {}
        """Of the epoch that is open."""

    def take(self, phase: str, before: Boundary, after: Boundary) -> None:
        """Take what lies between two boundaries of an epoch, none of which was lost."""
        seconds = (after.monotonic_ns - before.monotonic_ns) / SECOND
        self._phases[phase] = _added(self._phases.get(phase), seconds, waited_between(before.wait, after.wait))

    def end(self) -> None:
        """End the epoch that is open."""
        self._ended, self._phases = _joined(self._ended, self._phases), {}

    def until(self, last: Boundary | None, run: Run, now: float, monotonic_ns: int = 0) -> Waited:
        """Return all until `now` (s since 1970; or by the clock that nobody sets), with the phase begun by `last`."""
        return _joined(self._ended, self._open_until(last, run, now, monotonic_ns))

    def open_until(self, last: Boundary | None, run: Run, now: float) -> Waited:
        """Return that of the open epoch alone, until `now` (s since 1970)."""
        return _joined(Waited(), self._open_until(last, run, now, 0))

    def _open_until(self, last: Boundary | None, run: Run, now: float, monotonic_ns: int) -> dict[str, Waited]:
        if last is None:
            return self._phases
        seconds = (monotonic_ns - last.monotonic_ns if monotonic_ns else now * SECOND - last.time_ns) / SECOND
        added = _added(self._phases.get(last.phase), max(0.0, seconds), waited_between(last.wait, run.wait))
        return {**self._phases, last.phase: added}

    def copy(self) -> WaitFold:
        """Return what is known now; it changes no more."""
        found = WaitFold()
        found._ended, found._phases = self._ended, dict(self._phases)
        return found


def _added(before: Waited | None, seconds: float, wait: float) -> Waited:
    before = before or Waited()
    return Waited(before.wait + (wait if is_known(wait) else 0.0), before.of + seconds)


def _joined(ended: Waited, phases: dict[str, Waited]) -> Waited:
    measured = [one for one in phases.values() if one.wait > 0]
    return Waited(ended.wait + sum(one.wait for one in measured), ended.of + sum(one.of for one in measured))


KEEP = 4096
"""Boundaries kept of each rank, at most; beyond, the older half is dropped."""


class KnownEpoch(NamedTuple):
    """An epoch of a rank; times in seconds since 1970."""

    begin: float
    number: int
    end: float = NAN
    """NaN while it is open."""
    how: EpochEnd | None = None
    """None while it is open."""

    @property
    def finished(self) -> bool:
        """Whether it came to its end."""
        return self.how is EpochEnd.FINISHED


class Span(NamedTuple):
    """A stretch of a phase that is not plain training, such as validation."""

    begin: float
    end: float
    """Infinite while it goes on."""
    phase: str


class RankEpochs:
    """Boundaries of a rank by number, and the epochs that they make."""

    def __init__(self) -> None:
        self._by_number: dict[int, Boundary] = {}
        self.boundaries: list[Boundary] = []
        """In the order of their numbers."""
        self.rewritten = 0
        """Counts the times that something else than the end of `epochs`, `spans` or `faults` changed."""
        self._begin_anew()

    def add(self, boundary: Boundary) -> bool:
        """Take a boundary and return whether it is new."""
        if boundary.number in self._by_number:
            return False
        self._by_number[boundary.number] = boundary
        if boundary.number > self._fold.newest and len(self.boundaries) < KEEP:
            self.boundaries.append(boundary)
            self._take(boundary)
        else:
            self._fold_anew()
        return True

    def copy(self) -> RankEpochs:
        """Return what is known now; it changes no more."""
        found = RankEpochs()
        found._by_number = dict(self._by_number)
        found.boundaries, found.epochs, found.ends = list(self.boundaries), list(self.epochs), dict(self.ends)
        found.begins, found.spans, found.faults = dict(self.begins), list(self.spans), list(self.faults)
        found.waits, found.in_force, found._before = self.waits.copy(), self.in_force, self._before
        return found

    def open_span(self, end: float) -> list[Span]:
        """Return the phase that the newest boundary begins, until `end` (s since 1970); nothing for training."""
        return _span(self._before, end)

    def _fold_anew(self) -> None:
        ordered = sorted(self._by_number.values(), key=attrgetter("number"))
        self.boundaries = ordered[-KEEP // 2 :] if len(ordered) > KEEP else ordered
        self._by_number = {boundary.number: boundary for boundary in self.boundaries}
        self.rewritten += 1
        self._begin_anew()
        for boundary in self.boundaries:
            self._take(boundary)

    def _begin_anew(self) -> None:
        self._fold = EpochFold()
        self._before: Boundary | None = None
        self.epochs: list[KnownEpoch] = []
        """Oldest first."""
        self.begins: dict[int, float] = {}
        """The time at which each epoch began, the last time for one that began again."""
        self.spans: list[Span] = []
        """Phases that are over, oldest first."""
        self.faults: list[Boundary] = []
        """Out-of-memory errors, oldest first."""
        self.ends: dict[int, KnownEpoch] = {}
        """Ends of epochs whose begin is lost, by number."""
        self.waits = WaitFold()
        self.in_force: Boundary | None = None
        """The newest boundary, while an epoch is open."""

    def _take(self, boundary: Boundary) -> None:
        self.spans += _span(self._before, boundary.time_ns / 1e9)
        if boundary.mark is Mark.OUT_OF_MEMORY:
            self.faults.append(boundary)
        before = self._before or boundary
        self._before = boundary
        phase, was_open = self._fold.phase, self._fold.open is not None
        change = self._fold.take(boundary)
        if change is None:
            return
        is_open = self._fold.open is not None
        if was_open and not change.missed:
            self.waits.take(phase, before, boundary)
        if change.closed is not None or (was_open and not is_open):
            self.waits.end()
        self.in_force = boundary._replace(phase=self._fold.phase) if is_open else None
        if change.closed is not None and self.epochs:
            end = before if change.closed is EpochEnd.LOST else boundary
            self.epochs[-1] = self.epochs[-1]._replace(end=end.time_ns / 1e9, how=change.closed)
        elif boundary.mark is Mark.EPOCH_END:
            self.ends[boundary.epoch] = KnownEpoch(NAN, boundary.epoch, boundary.time_ns / 1e9, EpochEnd.FINISHED)
        if change.revoked is not None:
            self._revoke(change.revoked)
        if change.begun:
            self.rewritten += boundary.epoch in self.begins
            self.epochs.append(KnownEpoch(boundary.time_ns / 1e9, boundary.epoch))
            self.begins[boundary.epoch] = boundary.time_ns / 1e9

    def _revoke(self, number: int) -> None:
        """The newest epoch of this number was aborted."""
        for place in range(len(self.epochs) - 1, -1, -1):
            if self.epochs[place].number == number:
                self.epochs[place] = self.epochs[place]._replace(how=EpochEnd.ABORTED)
                return
        if number in self.ends:
            self.ends[number] = self.ends[number]._replace(how=EpochEnd.ABORTED)


def _span(boundary: Boundary | None, end: float) -> list[Span]:
    """The phase that a boundary begins, unless it is training."""
    if boundary is None or boundary.phase in ("", TRAINING) or boundary.mark is Mark.RUN_END:
        return []
    return [Span(boundary.time_ns / 1e9, end, boundary.phase)]
