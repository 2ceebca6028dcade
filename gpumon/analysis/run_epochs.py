"""The epochs, phases and steps of the runs on each device, from the boundaries that trainings publish."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, takewhile
from operator import attrgetter
from typing import NamedTuple

from gpumon.analysis.rank_epochs import DataWait, RankEpoch, RankEpochs, Span
from gpumon.analysis.thresholds import OVERDUE
from gpumon.common.numbers import NAN, is_known
from gpumon.model.frame import Boundary, Frame, Mark, Run, RunState
from gpumon.model.steps import row_size

RUNS = 64
"""Maximum number of runs stored per device."""
INFINITY = float("inf")
RECENT, LATELY, MOST = 10, 10.0, 500
"""The usual duration of an epoch is the mean of the last `RECENT` finished epochs. If more epochs finished in the last
`LATELY` seconds, all of these are used, up to `MOST`, because a few epochs of milliseconds are not representative."""
_CACHED_MARKS = 64
"""Maximum number of sets of runs for which marks are cached."""


class EpochMark(NamedTuple):
    """The start time of an epoch."""

    time: float
    epoch: int
    run: str
    """Id of the run, shared by its ranks."""


_mark_time = attrgetter("time")


class EpochSpan(NamedTuple):
    """An epoch from its start to its end, or to the current time if it is open. Times are s since 1970."""

    epoch: int
    begin: float
    end: float
    finished: bool


class StepSpan(NamedTuple):
    """A range of steps of a run without epochs. Times are s since 1970."""

    first: int
    """Number of steps before this range."""
    last: int
    begin: float
    end: float
    finished: bool


def marks_within(marks: Sequence[EpochMark], begin: float, end: float) -> Sequence[EpochMark]:
    """Return the marks between two times (s since 1970). `marks` must be sorted, oldest first."""
    return marks[bisect_left(marks, begin, key=_mark_time) : bisect_right(marks, end, key=_mark_time)]


def every_nth(marks: Sequence[EpochMark], every: int) -> Iterator[EpochMark]:
    """Yield the marks of epochs whose number is a multiple of `every`. `marks` must be sorted, oldest first.

    Most marks are skipped without being read, because charts label only a few of thousands of marks.
    """
    place = 0
    while place < len(marks):
        mark = marks[place]
        if mark.epoch % every == 0:
            yield mark
        skipped = every - mark.epoch % every
        last = len(marks) - 1 - place
        if _is_in_row(mark, marks[place + min(skipped, last)], min(skipped, last)):
            place += skipped
        else:
            place += 1


def _is_in_row(mark: EpochMark, later: EpochMark, count: int) -> bool:
    """Return whether `later` belongs to the same run and its epoch is `count` epochs after the epoch of `mark`."""
    return later.run == mark.run and later.epoch == mark.epoch + count


class EpochMarks(NamedTuple):
    """Data of runs that charts show: starts of epochs, phases, and out-of-memory errors."""

    marks: Sequence[EpochMark]
    """Starts of epochs, oldest first."""
    spans: list[Sequence[Span]]
    """Phases of each rank, oldest first."""
    faults: list[Boundary]
    """Boundaries of out-of-memory errors."""

    def spans_within(self, begin: float, end: float) -> list[Span]:
        """Return the phases of all ranks that overlap the time from `begin` to `end` (s since 1970)."""
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
    """The reported step counts of a run, as pairs of time (s since 1970) and steps.

    The pairs are sorted, oldest first. Each is computed when it is accessed, because callers need only a few of
    thousands.
    """

    def __init__(self, boundaries: Sequence[Boundary], newest: Sequence[tuple[float, int]]) -> None:
        self._boundaries = boundaries
        self._newest = newest
        """Pairs that are newer than the newest boundary."""

    def __len__(self) -> int:
        return len(self._boundaries) + len(self._newest)

    def __getitem__(self, index: int) -> tuple[float, int]:
        """Return a pair; negative indexes count from the end."""
        offset = range(len(self))[index] - len(self._boundaries)
        if offset >= 0:
            return self._newest[offset]
        boundary = self._boundaries[offset]
        return boundary.time_ns / 1e9, boundary.step


class _MarkCache:
    """The epoch marks of a set of runs, updated incrementally."""

    def __init__(self, ranks: Sequence[tuple[str, RankEpochs]]) -> None:
        self._ranks = ranks
        """Id of the run, and epochs, of each rank."""
        self._rewritten = [rank.rewritten for _, rank in ranks]
        self._consumed = [len(rank.epochs) for _, rank in ranks]
        """Number of epochs of each rank that are included in the marks."""
        self._by_number: dict[tuple[str, int], EpochMark] = {}
        for run, rank in ranks:
            for number, begin in rank.begins.items():
                known = self._by_number.get((run, number))
                if known is None or begin < known.time:
                    self._by_number[run, number] = EpochMark(begin, number, run)
        self._marks = sorted(self._by_number.values())

    def is_valid_for(self, ranks: Sequence[tuple[str, RankEpochs]]) -> bool:
        """Return whether the marks were computed from these ranks and none of their epochs was rewritten since."""
        return len(ranks) == len(self._ranks) and all(
            run == own_run and rank is own_rank and rank.rewritten == rewritten
            for (run, rank), (own_run, own_rank), rewritten in zip(ranks, self._ranks, self._rewritten, strict=True)
        )

    def marks(self, open_epochs: Iterable[EpochMark]) -> list[EpochMark]:
        """Return the starts of epochs, oldest first. `open_epochs`: open epochs that only boards contain."""
        for index, (run, rank) in enumerate(self._ranks):
            for epoch in rank.epochs[self._consumed[index] :]:
                _insert(self._marks, self._by_number, EpochMark(epoch.begin, epoch.number, run))
            self._consumed[index] = len(rank.epochs)
        marks, by_number = list(self._marks), dict[tuple[str, int], EpochMark]()
        for mark in open_epochs:
            known = self._by_number.get((mark.run, mark.epoch))
            if known is not None:
                by_number.setdefault((mark.run, mark.epoch), known)
            _insert(marks, by_number, mark)
        return marks


class Epochs:
    """The epochs, phases and steps of each run. Boundaries may arrive late, twice, or not at all."""

    def __init__(self) -> None:
        self._ranks: dict[str, RankEpochs] = {}
        self._runs: dict[str, Run] = {}
        self._runs_by_uuid: dict[str, dict[str, None]] = {}
        self._chart_marks: dict[tuple[str, ...], EpochMarks] = {}
        """Cached results of `chart_marks` by keys of runs. Cleared if a run changes or has a new boundary."""
        self._mark_caches: dict[tuple[str, ...], _MarkCache] = {}

    def add(self, frame: Frame) -> None:
        """Add the runs and boundaries of a frame."""
        self.add_boundaries(frame.boundaries)
        for run in frame.runs:
            previous = self._runs.get(run.key)
            if previous is None or _mark_inputs(previous) != _mark_inputs(run):
                self._chart_marks = {}
            self._runs[run.key] = run
            for uuid in run.gpus:
                self._remember(uuid, run.key)
        for sample in frame.samples:
            if sample.run:
                self._remember(sample.device.uuid, sample.run)
        if max(len(self._runs), len(self._ranks)) > 16 * RUNS:
            self._forget({run.key for run in frame.runs})

    def add_boundaries(self, boundaries: Iterable[Boundary]) -> None:
        """Add boundaries of any runs."""
        for boundary in boundaries:
            rank = self._ranks.get(boundary.run)
            if rank is None:
                rank = self._ranks[boundary.run] = RankEpochs()
            if rank.add(boundary):
                self._chart_marks = {}

    def copy_for(self, uuid: str) -> Epochs:
        """Return a copy that contains only the runs of one device. Another thread may read the copy."""
        keys = self.runs_on(uuid)
        copy = Epochs()
        copy._ranks = {key: self._ranks[key].copy() for key in keys if key in self._ranks}
        copy._runs = {key: self._runs[key] for key in keys if key in self._runs}
        copy._runs_by_uuid = {uuid: dict.fromkeys(keys)}
        return copy

    def run(self, key: str) -> Run | None:
        """Return a run as the last frame that contained it reported it, or None if no frame did."""
        return self._runs.get(key)

    def runs_on(self, uuid: str) -> list[str]:
        """Return the keys of the runs seen on a device. If the UUID is empty, return the keys of all runs."""
        return list(self._runs_by_uuid.get(uuid, ())) if uuid else list(self._runs)

    def chart_marks(self, keys: Iterable[str]) -> EpochMarks:
        """Return the data of these runs that charts show. The same object is returned until one of the runs changes."""
        runs = tuple(keys)
        marks = self._chart_marks.get(runs)
        if marks is None:
            marks = self._chart_marks[runs] = EpochMarks(self.marks(runs), self.spans(runs), self.faults(runs))
        return marks

    def marks(self, keys: Iterable[str]) -> list[EpochMark]:
        """Return the start times of epochs, oldest first. For each epoch of a run, there is one mark for all ranks."""
        runs = tuple(keys)
        # For a rank without boundaries, the only source is the epoch on its board.
        ranks = [(self._id(key), self._ranks.get(key, _NO_EPOCHS)) for key in runs]
        cache = self._mark_caches.get(runs)
        if cache is None or not cache.is_valid_for(ranks):
            if len(self._mark_caches) >= _CACHED_MARKS:
                self._mark_caches.clear()
            cache = self._mark_caches[runs] = _MarkCache(ranks)
        open_epochs = [(self._id(key), self._open_epoch(key)) for key in runs]
        return cache.marks(EpochMark(epoch.begin, epoch.number, run) for run, epoch in open_epochs if epoch is not None)

    def faults(self, keys: Iterable[str]) -> list[Boundary]:
        """Return the out-of-memory errors of these runs, oldest first."""
        faults = [boundary for key in keys if key in self._ranks for boundary in self._ranks[key].faults]
        return sorted(faults, key=attrgetter("time_ns"))

    def spans(self, keys: Iterable[str]) -> list[Sequence[Span]]:
        """Return a list for each of these ranks with its phases other than training, oldest first.

        The end of an open phase is infinite.
        """
        return [self._ranks[key].spans + self.open_span(key) for key in keys if key in self._ranks]

    def open_span(self, key: str) -> list[Span]:
        """Return a list with the newest phase of a run. It is empty if this phase is training.

        The end of the phase is infinite while the run is running.
        """
        rank, run = self._ranks.get(key), self._runs.get(key)
        end = INFINITY if run is None or run.state is RunState.RUNNING else run.updated
        return rank.open_span(end) if rank is not None else []

    def spans_since(self, key: str, time: float) -> list[Span]:
        """Return the phases of a run that end after `time` (s since 1970), oldest first."""
        rank = self._ranks.get(key)
        closed = rank.spans[bisect_right(rank.spans, time, key=attrgetter("end")) :] if rank is not None else []
        return closed + self.open_span(key)

    def time_range(self, keys: Iterable[str]) -> tuple[float, float]:
        """Return the start of the first of these ranks and the end of the last one, in s since 1970.

        The end is infinite if one of the ranks is running. Both times are NaN if no rank has any data.
        """
        times: list[float] = []
        for key in keys:
            run, boundaries = self._runs.get(key), self._boundaries(key)
            times += [boundary.time_ns / 1e9 for boundary in (*boundaries[:1], *boundaries[-1:])]
            if run is not None:
                times += [run.started, run.updated if run.state is not RunState.RUNNING else INFINITY]
        known = [time for time in times if is_known(time)]
        return (min(known), max(known)) if known else (NAN, NAN)

    def epoch_count(self, key: str) -> int:
        """Return the number of stored epochs of a run."""
        return len(self._epochs_of(key))

    def count_above(self, key: str, number: int) -> int:
        """Return how many of the newest epochs of a run have a number above `number`.

        Counting stops at the newest epoch that does not.
        """
        return sum(1 for _ in takewhile(lambda epoch: epoch.number > number, reversed(self._epochs_of(key))))

    def begin_above(self, key: str, number: int) -> float:
        """Return the start (s since 1970) of the first epoch with a number above `number`; NaN if there is none."""
        return next((epoch.begin for epoch in self._epochs_of(key) if epoch.number > number), NAN)

    def epoch_spans(self, key: str, now: float, selection: slice = slice(None)) -> list[EpochSpan]:
        """Return the epochs of a run, oldest first. `selection`: return only this slice of the epochs.

        An epoch without an end lasts until `now` (s since 1970), or until the end of the run if the run has ended.
        """
        run = self._runs.get(key)
        over = run is not None and run.state is not RunState.RUNNING
        until = run.updated if run is not None and over else now
        return [
            EpochSpan(epoch.number, epoch.begin, epoch.end if is_known(epoch.end) else until, epoch.finished)
            for epoch in self._epochs_of(key)[selection]
        ]

    def steps(self, key: str, now: float) -> list[StepSpan]:
        """Return the ranges of steps of a run without epochs, oldest first. The ledger has the same ranges.

        The last range is open. The first range starts at the oldest stored boundary. The list is empty if the training
        does not report its steps.
        """
        run = self._runs.get(key)
        if run is None or run.epoch >= 0 or self._epochs_of(key):
            return []
        size = row_size(run.step)
        moments = [
            (boundary.step, boundary.time_ns / 1e9, boundary.mark is Mark.STEPS) for boundary in self._boundaries(key)
        ]
        rows: list[StepSpan] = []
        for step, time, is_mark in moments:
            if not rows or (is_mark and step % size == 0 and step > rows[-1].first):
                if rows:
                    rows[-1] = rows[-1]._replace(last=step, end=time, finished=True)
                rows.append(StepSpan(step, run.step, time, NAN, finished=False))
        if len(rows) < 2 and not any(is_mark for _, _, is_mark in moments):
            return []
        until = now if run.state is RunState.RUNNING else run.updated
        open_row = rows.pop()
        return [*rows, open_row._replace(end=until)] if run.step > open_row.first else rows

    def step_moments(self, key: str) -> StepMoments:
        """Return the reported step counts of a run with their times, oldest first."""
        run, boundaries = self._runs.get(key), self._boundaries(key)
        is_newer = run is not None and is_known(run.updated) and (
            not boundaries or run.updated > boundaries[-1].time_ns / 1e9
        )  # fmt: skip
        return StepMoments(boundaries, [(run.updated, run.step)] if run is not None and is_newer else [])

    def duration(self, key: str) -> float:
        """Return the usual duration of recent epochs of a run, in seconds from the start of an epoch to the next start.

        NaN if no epoch has finished. The first epoch of a process also compiles code and fills caches, so it is used
        only until a second epoch has finished. Outliers are left out, because the machine may have been suspended.
        Epochs with validation are included unless their duration is an outlier.
        """
        run = self._runs.get(key)
        begins: dict[int, float] = {}
        later: list[float] = []
        first: list[float] = []
        total = 0.0
        for epoch in reversed(self._epochs_of(key)):
            if epoch.finished:
                seconds = begins.get(epoch.number + 1, epoch.end) - epoch.begin
                (later if run is None or epoch.number != run.first_epoch else first).append(seconds)
                total += seconds
                if len(later) >= RECENT and (total >= LATELY or len(later) == MOST):
                    break
            begins.setdefault(epoch.number, epoch.begin)
        recent = later or first[:RECENT]
        if not recent:
            return NAN
        median = sorted(recent)[len(recent) // 2]
        usual = [seconds for seconds in recent if seconds <= OVERDUE * median]
        return sum(usual) / len(usual) if usual else median

    def data_wait(self, key: str, now: float, monotonic_ns: int = 0) -> DataWait:
        """Return the wait for data of a running run, in all epochs whose boundaries are stored.

        `now`: current time in s since 1970. `monotonic_ns`: the same time by CLOCK_MONOTONIC, 0 if unknown.
        """
        rank, run = self._ranks.get(key), self._runs.get(key)
        return DataWait() if rank is None or run is None else rank.waits.until(rank.in_force, run, now, monotonic_ns)

    def data_wait_in_epoch(self, keys: Iterable[str], now: float) -> DataWait:
        """Return the wait for data in the open epoch, summed over these ranks. `now`: current time in s since 1970."""
        known = [(rank, run) for key in keys if (rank := self._ranks.get(key)) and (run := self._runs.get(key))]
        waits = [rank.waits.open_until(rank.in_force, run, now) for rank, run in known]
        return DataWait(sum(wait.seconds for wait in waits), sum(wait.measured for wait in waits))

    def _id(self, key: str) -> str:
        run = self._runs.get(key)
        return run.id if run else key

    def _epochs_of(self, key: str) -> Sequence[RankEpoch]:
        """Return the epochs of a rank, oldest first."""
        rank, open_epoch = self._ranks.get(key, _NO_EPOCHS), self._open_epoch(key)
        if open_epoch is None:
            return rank.epochs
        epochs = list(rank.epochs)
        insort(epochs, open_epoch)
        return epochs

    def _open_epoch(self, key: str) -> RankEpoch | None:
        """Return the epoch on the rank's board if its boundary is missing because it was overwritten too early."""
        rank, run = self._ranks.get(key, _NO_EPOCHS), self._runs.get(key)
        if run is None or run.epoch < 0 or not is_known(run.epoch_started) or run.epoch in rank.begins:
            return None
        return rank.ends.get(run.epoch, RankEpoch(NAN, run.epoch))._replace(begin=run.epoch_started)

    def _boundaries(self, key: str) -> Sequence[Boundary]:
        rank = self._ranks.get(key)
        return rank.boundaries if rank is not None else ()

    def _remember(self, uuid: str, key: str) -> None:
        keys = self._runs_by_uuid.setdefault(uuid, {})
        if key not in keys:
            keys[key] = None
            if len(keys) > RUNS:
                del keys[next(iter(keys))]

    def _forget(self, present: set[str]) -> None:
        on_devices = {key for keys in self._runs_by_uuid.values() for key in keys}
        for key in (self._runs.keys() | self._ranks.keys()) - present - on_devices:
            self._runs.pop(key, None)
            self._ranks.pop(key, None)


_NO_EPOCHS = RankEpochs()
"""Epochs of a rank without boundaries. The object is never modified."""


def _insert(marks: list[EpochMark], by_number: dict[tuple[str, int], EpochMark], mark: EpochMark) -> None:
    """Insert a mark at its position in the sorted list. It replaces a later mark of the same epoch."""
    known = by_number.get((mark.run, mark.epoch))
    if known is not None and known.time <= mark.time:
        return
    if known is not None:
        del marks[bisect_left(marks, known)]
    insort(marks, mark)
    by_number[mark.run, mark.epoch] = mark


def _mark_inputs(run: Run) -> tuple[object, ...]:
    """Return the values on which the marks and spans of a run depend.

    A start time that is NaN is left out, because it would never compare equal.
    """
    running = run.state is RunState.RUNNING
    return run.id, running, running or run.updated, run.epoch, run.epoch >= 0 and run.epoch_started
