"""Epochs by device and time, from the boundaries that trainings publish."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Sequence
from itertools import islice, takewhile
from operator import attrgetter
from typing import NamedTuple

from gpumon.analysis.rank_epochs import KnownEpoch, RankEpochs, Span, Waited
from gpumon.analysis.thresholds import OVERDUE
from gpumon.common.numbers import NAN, is_known
from gpumon.model.frame import Boundary, Frame, Mark, Run, RunState
from gpumon.model.steps import row_size

RUNS = 64
"""Runs remembered of each device."""
INFINITY = float("inf")
RECENT, LATELY, MOST = 10, 10.0, 500
"""The usual duration of an epoch is that of the last finished ones: so many, or those of so many seconds, if they are
more, up to the third. A few epochs of milliseconds tell little of the thousands to come."""
_DRAWINGS = 64
"""Sets of runs whose marks are kept up to date."""


class EpochMark(NamedTuple):
    """The moment an epoch began."""

    time: float
    epoch: int
    run: str
    """The run's id, which all its ranks share."""


_mark_time = attrgetter("time")


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


def marks_within(marks: Sequence[EpochMark], begin: float, end: float, more: int = 0) -> Sequence[EpochMark]:
    """Return the marks from `begin` to `end` (s since 1970), by bisection, and so many `more` on each side.

    `marks` are oldest first.
    """
    first, last = bisect_left(marks, begin, key=_mark_time), bisect_right(marks, end, key=_mark_time)
    return marks[max(0, first - more) : last + more]


class Drawn(NamedTuple):
    """The epochs of some runs, as charts show them."""

    marks: list[EpochMark]
    """Oldest first."""
    spans: list[Sequence[Span]]
    """Of each rank, oldest first."""
    faults: list[Boundary]
    """Out-of-memory errors."""

    def spans_within(self, begin: float, end: float) -> list[Span]:
        """Return the spans of all ranks that have a part between two times (s since 1970), by bisection."""
        return [
            span
            for spans in self.spans
            for span in islice(
                spans,
                bisect_right(spans, begin, key=attrgetter("end")),
                bisect_right(spans, end, key=attrgetter("begin")),
            )
        ]


class StepMoments:
    """Moments at which the steps of a run are known: (s since 1970, steps made), oldest first.

    Each is made when it is looked at: most of thousands are not.
    """

    def __init__(self, boundaries: Sequence[Boundary], newest: Sequence[tuple[float, int]]) -> None:
        self._boundaries = boundaries
        self._newest = newest
        """Those after the boundaries."""

    def __len__(self) -> int:
        return len(self._boundaries) + len(self._newest)

    def __getitem__(self, place: int) -> tuple[float, int]:
        """Return the moment at a place; those below 0 count from the end."""
        at = range(len(self))[place] - len(self._boundaries)
        if at >= 0:
            return self._newest[at]
        boundary = self._boundaries[at]
        return boundary.time_ns / 1e9, boundary.step


class _Drawing:
    """Marks, spans and faults of the ranks of some runs, which take in only what is new."""

    def __init__(self, ranks: Sequence[tuple[str, RankEpochs]]) -> None:
        self._ranks = ranks
        """The id of the run of each rank, and the epochs of the rank."""
        self._rewritten = [rank.rewritten for _, rank in ranks]
        self._taken = [len(rank.epochs) for _, rank in ranks]
        """Epochs of each rank that are among the marks."""
        self._by_number: dict[tuple[str, int], EpochMark] = {}
        for run, rank in ranks:
            for number, begin in rank.begins.items():
                known = self._by_number.get((run, number))
                if known is None or begin < known.time:
                    self._by_number[run, number] = EpochMark(begin, number, run)
        self._marks = sorted(self._by_number.values())

    def is_of(self, ranks: Sequence[tuple[str, RankEpochs]]) -> bool:
        """Whether this is of these ranks, and nothing that was taken from them has changed."""
        return len(ranks) == len(self._ranks) and all(
            one[0] == other[0] and one[1] is other[1] and one[1].rewritten == rewritten
            for one, other, rewritten in zip(ranks, self._ranks, self._rewritten, strict=True)
        )

    def marks(self, open_ones: Iterable[EpochMark]) -> list[EpochMark]:
        """Return the begins of epochs, oldest first, with those that only boards tell of."""
        for place, (run, rank) in enumerate(self._ranks):
            for epoch in rank.epochs[self._taken[place] :]:
                _put(self._marks, self._by_number, EpochMark(epoch.begin, epoch.number, run))
            self._taken[place] = len(rank.epochs)
        marks, by_number = list(self._marks), dict[tuple[str, int], EpochMark]()
        for mark in open_ones:
            known = self._by_number.get((mark.run, mark.epoch))
            if known is not None:
                by_number.setdefault((mark.run, mark.epoch), known)
            _put(marks, by_number, mark)
        return marks


class Epochs:
    """Boundaries by run; they may come late, twice, or not at all."""

    def __init__(self) -> None:
        self._ranks: dict[str, RankEpochs] = {}
        self._runs: dict[str, Run] = {}
        self._on: dict[str, dict[str, None]] = {}
        self._drawn: dict[tuple[str, ...], Drawn] = {}
        """By keys, until something comes that may change them."""
        self._drawings: dict[tuple[str, ...], _Drawing] = {}

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
            rank = self._ranks.get(boundary.run)
            if rank is None:
                rank = self._ranks[boundary.run] = RankEpochs()
            if rank.add(boundary):
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
        place = tuple(keys)
        # Ranks of which frames tell no boundary have their epoch from their board alone.
        ranks = [(self._id(key), self._ranks.get(key, _NOTHING)) for key in place]
        drawing = self._drawings.get(place)
        if drawing is None or not drawing.is_of(ranks):
            if len(self._drawings) >= _DRAWINGS:
                self._drawings.clear()
            drawing = self._drawings[place] = _Drawing(ranks)
        found = [(self._id(key), self._open_epoch(key)) for key in place]
        return drawing.marks(EpochMark(one.begin, one.number, run) for run, one in found if one is not None)

    def faults(self, keys: Iterable[str]) -> list[Boundary]:
        """Out-of-memory errors, oldest first."""
        found = [boundary for key in keys if key in self._ranks for boundary in self._ranks[key].faults]
        return sorted(found, key=attrgetter("time_ns"))

    def spans(self, keys: Iterable[str]) -> list[Sequence[Span]]:
        """Stretches of validation, test, checkpoint and the like, by rank; one that goes on ends at infinity."""
        return [self._ranks[key].spans + self.open_span(key) for key in keys if key in self._ranks]

    def open_span(self, key: str) -> list[Span]:
        """Return the newest phase of a run, unless it is training; it ends at infinity while the run goes on."""
        rank, run = self._ranks.get(key), self._runs.get(key)
        end = INFINITY if run is None or run.state is RunState.RUNNING else run.updated
        return rank.open_span(end) if rank is not None else []

    def spans_since(self, key: str, time: float) -> list[Span]:
        """Return the spans of a run that end after a time (s since 1970), by bisection; oldest first."""
        rank = self._ranks.get(key)
        closed = rank.spans[bisect_right(rank.spans, time, key=attrgetter("end")) :] if rank is not None else []
        return closed + self.open_span(key)

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

    def epoch_count(self, key: str) -> int:
        """Return how many epochs of a run are known."""
        return len(self._known(key))

    def count_above(self, key: str, number: int) -> int:
        """Return how many of the newest epochs of a run have a higher number, up to the newest that has none."""
        return sum(1 for _ in takewhile(lambda epoch: epoch.number > number, reversed(self._known(key))))

    def begin_above(self, key: str, number: int) -> float:
        """Return when the first epoch with a higher number began (s since 1970); NaN where none is known."""
        return next((epoch.begin for epoch in self._known(key) if epoch.number > number), NAN)

    def stretches(self, key: str, now: float, places: slice = slice(None)) -> list[Stretch]:
        """Return epochs of a run, oldest first, of all or of some `places` among them.

        One without a known end lasts until the run ended, or `now`.
        """
        run = self._runs.get(key)
        over = run is not None and run.state is not RunState.RUNNING
        until = run.updated if run is not None and over else now
        return [
            Stretch(epoch.number, epoch.begin, epoch.end if is_known(epoch.end) else until, epoch.finished)
            for epoch in self._known(key)[places]
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

    def steps_known(self, key: str) -> StepMoments:
        """Return the moments at which it is known how many steps a run had made, oldest first."""
        run, boundaries = self._runs.get(key), self._of(key)
        is_newer = run is not None and is_known(run.updated) and (
            not boundaries or run.updated > boundaries[-1].time_ns / 1e9
        )  # fmt: skip
        return StepMoments(boundaries, [(run.updated, run.step)] if run is not None and is_newer else [])

    def duration(self, key: str) -> float:
        """Return the usual seconds from begin to begin of the last finished epochs of a run, or NaN.

        The first of a process compiles and fills caches: it counts only until another one is over. One that took far
        longer than most, as when the machine was suspended, tells nothing of those to come; one that validates does.
        """
        run = self._runs.get(key)
        begins: dict[int, float] = {}
        later: list[float] = []
        first: list[float] = []
        lasted = 0.0
        for epoch in reversed(self._known(key)):
            if epoch.finished:
                seconds = begins.get(epoch.number + 1, epoch.end) - epoch.begin
                (later if run is None or epoch.number != run.first_epoch else first).append(seconds)
                lasted += seconds
                if len(later) >= RECENT and (lasted >= LATELY or len(later) == MOST):
                    break
            begins.setdefault(epoch.number, epoch.begin)
        recent = later or first[:RECENT]
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

    def _known(self, key: str) -> Sequence[KnownEpoch]:
        """The epochs of a rank, oldest first."""
        rank, found = self._ranks.get(key, _NOTHING), self._open_epoch(key)
        if found is None:
            return rank.epochs
        epochs = list(rank.epochs)
        insort(epochs, found)
        return epochs

    def _open_epoch(self, key: str) -> KnownEpoch | None:
        """The epoch of which the board of a rank tells, and no boundary: that may have been overwritten unread."""
        rank, run = self._ranks.get(key, _NOTHING), self._runs.get(key)
        if run is None or run.epoch < 0 or not is_known(run.epoch_started) or run.epoch in rank.begins:
            return None
        return rank.ends.get(run.epoch, KnownEpoch(NAN, run.epoch))._replace(begin=run.epoch_started)

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


_NOTHING = RankEpochs()
"""Of a rank of which no boundary has come; nothing is added to it."""


def _put(marks: list[EpochMark], by_number: dict[tuple[str, int], EpochMark], mark: EpochMark) -> None:
    """Put a mark in its place, in that of a later one of the same epoch if there is one."""
    known = by_number.get((mark.run, mark.epoch))
    if known is not None and known.time <= mark.time:
        return
    if known is not None:
        del marks[bisect_left(marks, known)]
    insort(marks, mark)
    by_number[mark.run, mark.epoch] = mark


def _drawn_of(run: Run) -> tuple[object, ...]:
    """Everything that marks and spans depend on; the start of no epoch is NaN, which equals nothing."""
    running = run.state is RunState.RUNNING
    return run.id, running, running or run.updated, run.epoch, run.epoch >= 0 and run.epoch_started
