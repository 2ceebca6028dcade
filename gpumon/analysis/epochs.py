"""Which epochs ran where and when, from the boundaries that trainings publish."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import NamedTuple

from gpumon.frame import NAN, TRAINING, Boundary, Frame, Mark, Run, RunState

KEEP = 4096
"""Boundaries kept of each run."""
RUNS = 64
"""Runs remembered of each device."""
INFINITY = float("inf")
RECENT = 10
"""The mean duration of an epoch is that of so many finished ones."""


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


class Drawn(NamedTuple):
    """What charts show of some runs."""

    marks: list[EpochMark]
    spans: list[Span]
    faults: list[Boundary]
    """Out-of-memory errors."""


class Epochs:
    """Boundaries by run; they may come late, twice, or not at all."""

    def __init__(self) -> None:
        self._boundaries: dict[str, dict[int, Boundary]] = {}
        self._sorted: dict[str, list[Boundary]] = {}
        self._runs: dict[str, Run] = {}
        self._on: dict[str, dict[str, None]] = {}
        self._drawn: dict[tuple[str, ...], Drawn] = {}
        """By keys, until something comes that may change them."""

    def add(self, frame: Frame) -> None:
        """Take in what a frame tells of runs."""
        for boundary in frame.boundaries:
            known = self._boundaries.setdefault(boundary.run, {})
            if boundary.number not in known:
                known[boundary.number] = boundary
                self._drawn = {}
                self._sorted.pop(boundary.run, None)
                if len(known) > KEEP:
                    del known[next(iter(known))]
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
        if max(len(self._runs), len(self._boundaries)) > 16 * RUNS:
            self._forget({run.key for run in frame.runs})

    def only(self, uuid: str) -> Epochs:
        """Copy what ran on a device, for somebody who reads it while frames come."""
        keys = self.runs_on(uuid)
        found = Epochs()
        found._boundaries = {key: dict(self._boundaries[key]) for key in keys if key in self._boundaries}
        found._sorted = {key: self._sorted[key] for key in keys if key in self._sorted}
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
        return sorted(found, key=attrgetter("time"))

    def spans(self, keys: Iterable[str]) -> list[Span]:
        """Stretches of validation, test, checkpoint and the like; one that goes on ends at infinity."""
        spans = []
        for key in keys:
            boundaries = self._of(key)
            ends = [boundary.time / 1e9 for boundary in boundaries[1:]]
            run = self._runs.get(key)
            ends.append(INFINITY if run is None or run.state is RunState.RUNNING else run.updated)
            for boundary, end in zip(boundaries, ends, strict=False):
                if boundary.phase not in ("", TRAINING) and boundary.mark is not Mark.RUN_END:
                    spans.append(Span(boundary.time / 1e9, end, boundary.phase))
        return spans

    def lasted(self, keys: Iterable[str]) -> tuple[float, float]:
        """Begin and end of some ranks of a run, from what is kept of them; the end is infinite while one runs.

        NaN, which compares with nothing, where neither is known.
        """
        times: list[float] = []
        for key in keys:
            run = self._runs.get(key)
            times += [boundary.time / 1e9 for boundary in (self._of(key)[:1] + self._of(key)[-1:])]
            if run is not None:
                times += [run.started, run.updated if run.state is not RunState.RUNNING else INFINITY]
        known = [time for time in times if time == time]
        return (min(known), max(known)) if known else (NAN, NAN)

    def stretches(self, key: str, now: float) -> list[Stretch]:
        """The epochs of a run, oldest first; one ends where the next begins, so that nothing falls between."""
        begins = self._begins(key)
        ends = {b.epoch: b.time / 1e9 for b in self._of(key) if b.mark is Mark.EPOCH_END}
        left = {b.epoch: b.time / 1e9 for b in self._of(key) if b.mark is Mark.EPOCH_LEFT}
        ends = {**left, **ends}
        run = self._runs.get(key)
        over = run is not None and run.state is not RunState.RUNNING
        found = []
        for epoch, begin in sorted(begins.items()):
            end = begins.get(epoch + 1, ends.get(epoch, NAN))
            known = end >= begin
            finished = known and not left.get(epoch, NAN) >= begin
            if not known:
                end = run.updated if run is not None and over else now
            found.append(Stretch(epoch, begin, end, finished))
        return found

    def duration(self, key: str) -> float:
        """Mean seconds of the last finished epochs of a run, or NaN."""
        recent = [s.end - s.begin for s in self.stretches(key, NAN) if s.finished][-RECENT:]
        return sum(recent) / len(recent) if recent else NAN

    def _id(self, key: str) -> str:
        run = self._runs.get(key)
        return run.id if run else key

    def _begins(self, key: str) -> dict[int, float]:
        begins: dict[int, float] = {}
        for boundary in self._of(key):
            if boundary.mark is Mark.EPOCH_BEGIN:
                begins[boundary.epoch] = boundary.time / 1e9
        run = self._runs.get(key)
        # A boundary may have been overwritten before anybody read it; the board tells of the last.
        if run is not None and run.epoch >= 0 and run.epoch_started == run.epoch_started:
            begins.setdefault(run.epoch, run.epoch_started)
        return begins

    def _of(self, key: str) -> list[Boundary]:
        boundaries = self._sorted.get(key)
        if boundaries is None:
            boundaries = sorted(self._boundaries.get(key, {}).values(), key=attrgetter("time", "number"))
            self._sorted[key] = boundaries
        return boundaries

    def _remember(self, uuid: str, key: str) -> None:
        keys = self._on.setdefault(uuid, {})
        if key not in keys:
            keys[key] = None
            if len(keys) > RUNS:
                del keys[next(iter(keys))]

    def _forget(self, present: set[str]) -> None:
        on_devices = {key for keys in self._on.values() for key in keys}
        for key in (self._runs.keys() | self._boundaries.keys()) - present - on_devices:
            self._runs.pop(key, None)
            self._boundaries.pop(key, None)
            self._sorted.pop(key, None)


def _drawn_of(run: Run) -> tuple[object, ...]:
    """What marks and spans depend on; the start of no epoch is NaN, which equals nothing."""
    running = run.state is RunState.RUNNING
    return run.id, running, running or run.updated, run.epoch, run.epoch >= 0 and run.epoch_started
