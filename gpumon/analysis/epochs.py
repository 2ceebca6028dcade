"""Epochs by device and time, from the boundaries that trainings publish."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import NamedTuple

from gpumon.analysis.rank_epochs import KnownEpoch, RankEpochs
from gpumon.analysis.thresholds import OVERDUE
from gpumon.analysis.waiting import Waited
from gpumon.frame import NAN, TRAINING, Boundary, Frame, Mark, Run, RunState
from gpumon.missing import is_known
from gpumon.step_size import row_size

RUNS = 64
"""Runs remembered of each device."""
INFINITY = float("inf")
RECENT = 10
"""The usual duration of an epoch is that of so many finished ones."""


class EpochMark(NamedTuple):
    """The moment an epoch began."""

    time: float
    epoch: int
    run: str
    """The run's id, which all its ranks share."""


class Span(NamedTuple):
    """A stretch of a phase that is not plain training, such as validation."""

    begin: float
    end: float
    """Infinite while it goes on."""
    phase: str


class Stretch(NamedTuple):
    """An epoch from its begin to its end, or until now."""

    epoch: int
    begin: float
    end: float
    finished: bool


class StepSpan(NamedTuple):
    """Some steps behind each other of a run without epochs."""

    first: int
    """Steps that were made before."""
    last: int
    begin: float
    end: float
    finished: bool


class Drawn(NamedTuple):
    """The epochs of some runs, as charts show them."""

    marks: list[EpochMark]
    spans: list[Span]
    faults: list[Boundary]
    """Out-of-memory errors."""


class Epochs:
    """Boundaries by run; they may come late, twice, or not at all."""

    def __init__(self) -> None:
        self._ranks: dict[str, RankEpochs] = {}
        self._runs: dict[str, Run] = {}
        self._on: dict[str, dict[str, None]] = {}
        self._drawn: dict[tuple[str, ...], Drawn] = {}
        """By keys, until something comes that may change them."""

    def add(self, frame: Frame) -> None:
        """Take in what a frame tells of runs."""
        self.take(frame.boundaries)
        for run in frame.runs:
            before = self._runs.get(run.key)
            if before is None or _drawn_of(before) != _drawn_of(run):
                self._drawn = {}
            self._runs[run.key] = run
            for uuid in run.gpus:
                self._remember(uuid, run.key)
        for sample in frame.samples:
            if sample.run:
                self._remember(sample.device.uuid, sample.run)
        if max(len(self._runs), len(self._ranks)) > 16 * RUNS:
            self._forget({run.key for run in frame.runs})

    def take(self, boundaries: Iterable[Boundary]) -> None:
        """Take in boundaries of any runs."""
        for boundary in boundaries:
            if self._ranks.setdefault(boundary.run, RankEpochs()).add(boundary):
                self._drawn = {}

    def only(self, uuid: str) -> Epochs:
        """Copy what ran on a device, for somebody who reads it while frames come."""
        keys = self.runs_on(uuid)
        found = Epochs()
        found._ranks = {key: self._ranks[key].copy() for key in keys if key in self._ranks}
        found._runs = {key: self._runs[key] for key in keys if key in self._runs}
        found._on = {uuid: dict.fromkeys(keys)}
        return found

    def run(self, key: str) -> Run | None:
        """The run as it was last seen."""
        return self._runs.get(key)

    def runs_on(self, uuid: str) -> list[str]:
        """Keys of the runs seen on a device; on the host (empty) all runs."""
        return list(self._on.get(uuid, ())) if uuid else list(self._runs)

    def drawn(self, keys: Iterable[str]) -> Drawn:
        """Marks, spans and faults of some runs: the very same lists until one of them changes."""
        place = tuple(keys)
        known = self._drawn.get(place)
        if known is None:
            known = self._drawn[place] = Drawn(self.marks(place), self.spans(place), self.faults(place))
        return known

    def marks(self, keys: Iterable[str]) -> list[EpochMark]:
        """Begins of epochs, oldest first; ranks of one run give one mark for each epoch."""
        found: dict[tuple[str, int], EpochMark] = {}
        for key in keys:
            name = self._id(key)
            for number, time in self._begins(key).items():
                mark = found.get((name, number))
                if mark is None or time < mark.time:
                    found[name, number] = EpochMark(time, number, name)
        return sorted(found.values())

    def faults(self, keys: Iterable[str]) -> list[Boundary]:
        """Out-of-memory errors, oldest first."""
        found = [boundary for key in keys for boundary in self._of(key) if boundary.mark is Mark.OUT_OF_MEMORY]
        return sorted(found, key=attrgetter("time_ns"))

    def spans(self, keys: Iterable[str]) -> list[Span]:
        """Stretches of validation, test, checkpoint and the like; one that goes on ends at infinity."""
        spans = []
        for key in keys:
            boundaries = self._of(key)
            ends = [boundary.time_ns / 1e9 for boundary in boundaries[1:]]
            run = self._runs.get(key)
            ends.append(INFINITY if run is None or run.state is RunState.RUNNING else run.updated)
            for boundary, end in zip(boundaries, ends, strict=False):
                if boundary.phase not in ("", TRAINING) and boundary.mark is not Mark.RUN_END:
                    spans.append(Span(boundary.time_ns / 1e9, end, boundary.phase))
        return spans

    def lasted(self, keys: Iterable[str]) -> tuple[float, float]:
        """Begin and end of some ranks of a run, from what is kept of them; the end is infinite while one runs.

        NaN, which compares with nothing, where neither is known.
        """
        times: list[float] = []
        for key in keys:
            run = self._runs.get(key)
            times += [boundary.time_ns / 1e9 for boundary in (*self._of(key)[:1], *self._of(key)[-1:])]
            if run is not None:
                times += [run.started, run.updated if run.state is not RunState.RUNNING else INFINITY]
        known = [time for time in times if is_known(time)]
        return (min(known), max(known)) if known else (NAN, NAN)

    def stretches(self, key: str, now: float) -> list[Stretch]:
        """Return the epochs of a run, oldest first; one without a known end lasts until the run ended, or `now`."""
        run = self._runs.get(key)
        over = run is not None and run.state is not RunState.RUNNING
        until = run.updated if run is not None and over else now
        return [
            Stretch(epoch.number, epoch.begin, epoch.end if is_known(epoch.end) else until, epoch.finished)
            for epoch in self._known(key)
        ]

    def steps(self, key: str, now: float) -> list[StepSpan]:
        """Return rows of the steps of a run without epochs, oldest first, as the ledger joins them; the last one open.

        They begin with the oldest boundary that is known. Empty where it marks no steps.
        """
        run = self._runs.get(key)
        if run is None or run.epoch >= 0 or self._known(key):
            return []
        size = row_size(run.step)
        known = [(boundary.step, boundary.time_ns / 1e9, boundary.mark is Mark.STEPS) for boundary in self._of(key)]
        found: list[StepSpan] = []
        for step, time, is_mark in known:
            if not found or (is_mark and step % size == 0 and step > found[-1].first):
                if found:
                    found[-1] = found[-1]._replace(last=step, end=time, finished=True)
                found.append(StepSpan(step, run.step, time, NAN, finished=False))
        if len(found) < 2 and not any(is_mark for _, _, is_mark in known):
            return []
        until = now if run.state is RunState.RUNNING else run.updated
        open_one = found.pop()
        return [*found, open_one._replace(end=until)] if run.step > open_one.first else found

    def steps_known(self, key: str) -> list[tuple[float, int]]:
        """Return moments (s since 1970) at which it is known how many steps a run had made, oldest first."""
        run = self._runs.get(key)
        known = [(boundary.time_ns / 1e9, boundary.step) for boundary in self._of(key)]
        if run is not None and is_known(run.updated) and (not known or run.updated > known[-1][0]):
            known.append((run.updated, run.step))
        return known

    def duration(self, key: str) -> float:
        """Return the usual seconds from begin to begin of the last finished epochs of a run, or NaN.

        The first of a process compiles and fills caches: it counts only until another one is over. One that took far
        longer than most, as when the machine was suspended, tells nothing of those to come; one that validates does.
        """
        epochs, run = self._known(key), self._runs.get(key)
        begins = {epoch.number: epoch.begin for epoch in epochs}
        finished = [epoch for epoch in epochs if epoch.finished]
        later = [epoch for epoch in finished if run is None or epoch.number != run.first_epoch]
        recent = [begins.get(epoch.number + 1, epoch.end) - epoch.begin for epoch in (later or finished)[-RECENT:]]
        if not recent:
            return NAN
        median = sorted(recent)[len(recent) // 2]
        usual = [seconds for seconds in recent if seconds <= OVERDUE * median]
        return sum(usual) / len(usual) if usual else median

    def waited(self, key: str, now: float, monotonic_ns: int = 0) -> Waited:
        """Return the wait for data in the epochs of a run that goes on, as far as its boundaries are kept.

        `now` in s since 1970, `monotonic_ns` the same by the clock that nobody sets, 0 where it is unknown.
        """
        rank, run = self._ranks.get(key), self._runs.get(key)
        return Waited() if rank is None or run is None else rank.waits.until(rank.in_force, run, now, monotonic_ns)

    def waited_in_epoch(self, keys: Iterable[str], now: float) -> Waited:
        """Return the wait for data in the epoch in which a run is, the sum of those of its ranks."""
        known = [(rank, run) for key in keys if (rank := self._ranks.get(key)) and (run := self._runs.get(key))]
        found = [rank.waits.open_until(rank.in_force, run, now) for rank, run in known]
        return Waited(sum(one.wait for one in found), sum(one.of for one in found))

    def _id(self, key: str) -> str:
        run = self._runs.get(key)
        return run.id if run else key

    def _begins(self, key: str) -> dict[int, float]:
        return {epoch.number: epoch.begin for epoch in self._known(key)}

    def _known(self, key: str) -> Sequence[KnownEpoch]:
        """The epochs of a rank, oldest first."""
        rank, run = self._ranks.get(key) or RankEpochs(), self._runs.get(key)
        # A boundary may have been overwritten before it was read; the board has the last one.
        missing = run is not None and run.epoch >= 0 and is_known(run.epoch_started)
        if run is None or not missing or any(epoch.number == run.epoch for epoch in rank.epochs):
            return rank.epochs
        found = rank.ends.get(run.epoch, KnownEpoch(NAN, run.epoch))._replace(begin=run.epoch_started)
        return sorted((*rank.epochs, found))

    def _of(self, key: str) -> Sequence[Boundary]:
        rank = self._ranks.get(key)
        return rank.boundaries if rank is not None else ()

    def _remember(self, uuid: str, key: str) -> None:
        keys = self._on.setdefault(uuid, {})
        if key not in keys:
            keys[key] = None
            if len(keys) > RUNS:
                del keys[next(iter(keys))]

    def _forget(self, present: set[str]) -> None:
        on_devices = {key for keys in self._on.values() for key in keys}
        for key in (self._runs.keys() | self._ranks.keys()) - present - on_devices:
            self._runs.pop(key, None)
            self._ranks.pop(key, None)


def _drawn_of(run: Run) -> tuple[object, ...]:
    """Everything that marks and spans depend on; the start of no epoch is NaN, which equals nothing."""
    running = run.state is RunState.RUNNING
    return run.id, running, running or run.updated, run.epoch, run.epoch >= 0 and run.epoch_started
