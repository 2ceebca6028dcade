"""The timeline of one rank: which epoch and phase was in force when, from its boundaries alone."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN, is_known
from gpumon.model.epoch import EpochEnd, EpochFold
from gpumon.model.frame import Boundary, Mark, wait_between
from gpumon.model.run import PAUSED
from gpumon.storage.ledger.epoch import Epoch, Moment, Peak, PeakCounter, PhaseTotals, epoch_of, peak_counter_of
from gpumon.storage.ledger.schema import OTHER
from gpumon.storage.ledger.steps import NO_ROW, StepStretches, step_rows_of

OUTSIDE = -1
"""Ordinal of what lies in no epoch."""
KEPT_SPANS = 4096
_MOST_OUTSIDE = 32
"""Phases outside epochs: a board has 12 names at a time, and a strange one may change them for ever."""
_LOST = (OUTSIDE - 1, "")
"""Where the run was between boundaries that were lost."""


class PhaseStart(NamedTuple):
    """From `start` (ns, CLOCK_MONOTONIC) to the next span, this epoch and phase were in force."""

    start: int
    ordinal: int
    phase: str
    row: int = NO_ROW
    """Number of the row of steps, outside epochs."""


class EpochTimeline:
    """Takes the boundaries of a rank in their order and keeps what is not written yet."""

    def __init__(self) -> None:
        self._fold = EpochFold()
        self.begun_ns = 0
        """When the run began: ns, CLOCK_MONOTONIC; 0 while not known."""
        self.ended_ns = 0
        """When it ended, by its own word; 0 while it has not."""
        self.left_ns = 0
        """When the newest epoch that is over ended, or the run: ns, CLOCK_MONOTONIC; 0 before the first."""
        self.spans: list[PhaseStart] = []
        self.epochs: dict[int, Epoch] = {}
        """By ordinal: those that are open, or over and not settled."""
        self.open: Epoch | None = None
        self.logged: dict[str, float] = {}
        """The last of everything that was logged with a boundary."""
        self.marks: list[Boundary] = []
        """Out of memory and checkpoints that are not written yet."""
        self.late: list[tuple[int, dict[str, float]]] = []
        """Metrics that were logged for epochs that are written already, by their number."""
        self.next = 0
        """Ordinal of the next epoch."""
        self.last = Moment(0, 0, NAN)
        """The newest boundary."""
        self.peak = PeakCounter()
        self.left: list[int] = []
        """Numbers of epochs that were written with an end, and had none."""
        self.outside: dict[str, PhaseTotals] = {}
        """Phases outside epochs."""
        self.outside_peaks: dict[str, Peak] = {}
        self.rows = StepStretches()
        self._row_since = Moment(0, 0, NAN)
        """Since when the present phase lasts in the open row of steps."""
        self._since = Moment(0, 0, NAN)
        self._by_number: dict[int, int] = {}

    def take(self, boundary: Boundary) -> bool:
        """The next boundary; one that was taken before is left out. True when an epoch or the run begins or ends."""
        change = self._fold.add(boundary)
        if change is None:
            return False
        at = Moment(max(boundary.monotonic_ns, self.last.monotonic_ns), boundary.step, boundary.wait)
        mark = boundary.mark
        self._read_peak(boundary.peak, change.missed)
        if self.open is not None and change.closed is not None:
            if change.closed is EpochEnd.FINISHED:
                self.open.ended_ns = boundary.time_ns
            self._leave(self.last if change.closed is EpochEnd.LOST else at)
        self.last = at
        if boundary.number == 1 or not self.begun_ns:
            self.begun_ns = at.monotonic_ns
        if change.begun:
            self.rows.forget()
            self.open = Epoch(self.next, boundary.epoch, boundary.time_ns, at)
            self.epochs[self.next] = self.open
            self._by_number[boundary.epoch] = self.next
            self.next += 1
        if change.revoked in self._by_number:
            self.epochs[self._by_number[change.revoked]].ended_ns = None
        elif change.revoked is not None:
            self.left.append(change.revoked)
        if mark == Mark.RUN_END:
            if self.spans and self.spans[-1].ordinal == OUTSIDE:
                self._close_outside(at)
                self._since = at
            self.rows.end(at, boundary.metrics)
            self.ended_ns = self.left_ns = at.monotonic_ns
        elif mark in (Mark.OUT_OF_MEMORY, Mark.CHECKPOINT):
            self.marks.append(boundary)
        if not self.next and mark is not Mark.RUN_END and (mark is Mark.STEPS or not self.rows.rows):
            self._mark_row(boundary, at)
        if mark in (Mark.EPOCH_END, Mark.EPOCH_ABORTED, Mark.RUN_END, Mark.LOG):
            if boundary.of_step and not self.next:
                self.rows.log(boundary.of_step, boundary.metrics)
            self._log(boundary.epoch, boundary.metrics, again=mark in (Mark.EPOCH_ABORTED, Mark.RUN_END))
        self._enter(at, self.open.ordinal if self.open else OUTSIDE, boundary.phase)
        return mark in (Mark.EPOCH_BEGIN, Mark.EPOCH_END, Mark.EPOCH_ABORTED, Mark.RUN_END)

    @property
    def lost(self) -> int:
        """Boundaries that were overwritten before any daemon read them."""
        return self._fold.lost

    def pieces(self, begin: int, end: int) -> Iterator[tuple[int, int, PhaseStart]]:
        """The parts of a stretch of time, each with the span it lies in; nothing before the first span."""
        spans = self.spans
        at = max(0, bisect_right(spans, begin, key=_start) - 1)
        while at < len(spans) and spans[at].start < end:
            until = min(end, spans[at + 1].start) if at + 1 < len(spans) else end
            since = max(begin, spans[at].start)
            if until > since:
                yield since, until, spans[at]
            at += 1

    def over(self, horizon: int) -> list[Epoch]:
        """The epochs that ended before `horizon`, which are now forgotten here."""
        done = [epoch for epoch in self.epochs.values() if epoch.end is not None and epoch.end.monotonic_ns <= horizon]
        for epoch in done:
            del self.epochs[epoch.ordinal]
            if self._by_number.get(epoch.epoch) == epoch.ordinal:
                del self._by_number[epoch.epoch]
        return done

    def forget(self, before: int) -> None:
        """Spans that ended before this are of no more use."""
        spans = self.spans
        if len(spans) > 1 and spans[1].start <= before:
            del spans[: bisect_right(spans, before, key=_start) - 1]
        if len(spans) > KEPT_SPANS:
            del spans[:-KEPT_SPANS]

    def phases_at(self, epoch: Epoch, now: Moment) -> dict[str, PhaseTotals]:
        """The phases of an epoch, with what the open one has come to until `now`."""
        found = dict(epoch.phases)
        if epoch is self.open and self.spans:
            phase = self.spans[-1].phase
            found[phase] = self._with_part(epoch, found.get(phase), now)
        return found

    @property
    def is_paused(self) -> bool:
        """Whether its training was over when it was heard of last."""
        return bool(self.spans) and self.spans[-1].ordinal == OUTSIDE and self.spans[-1].phase == PAUSED

    def outside_at(self, now: Moment) -> dict[str, PhaseTotals] | None:
        """The phases outside epochs until `now`, with that since the last boundary; None where boundaries were lost."""
        if self.lost:
            return None
        found = dict(self.outside)
        if self.open is None and self.spans and now.monotonic_ns >= self._since.monotonic_ns and not self.ended_ns:
            phase = self.spans[-1].phase or OTHER
            found[phase] = self._with_outside(found.get(phase), now)
        return found

    def paused_until(self, now: int) -> float:
        """Seconds until `now` (ns, CLOCK_MONOTONIC) in which the run was paused."""
        before = self.outside.get(PAUSED, PhaseTotals()).seconds
        since = now - self._since.monotonic_ns if self.is_paused and not self.ended_ns else 0
        return before + max(0, since) / SECOND

    def peaks_at(self, epoch: Epoch, now: float) -> dict[str, Peak]:
        """The framework's peak in each phase of an epoch, and ('') in all of it; `now`: the counter's value now."""
        pending = {phase for ordinal, phase in self.peak.since if ordinal == epoch.ordinal}
        if epoch is not self.open:
            # What was not read behind its end is not known to be its own.
            return {
                phase: peak
                for phase, peak in epoch.peaks.items()
                if phase not in pending and not (pending and not phase)
            }
        found = dict(epoch.peaks)
        if is_known(now) and self.spans:
            counter = peak_counter_of(self.peak.as_json())
            counter.passed((epoch.ordinal, self.spans[-1].phase))
            for place, peak in counter.judged(now):
                if place == epoch.ordinal:
                    found[""] = found.get("", Peak()).joined(peak)
                elif isinstance(place, tuple) and place[0] == epoch.ordinal:
                    found[place[1]] = found.get(place[1], Peak()).joined(peak)
        return found

    def as_json(self) -> dict[str, Any]:
        """For `timeline_of`."""
        return {
            "newest": self._fold.newest, "lost": self.lost, "begun": self.begun_ns, "ended": self.ended_ns,
            "spans": self.spans,
            "epochs": [epoch.as_json() for epoch in self.epochs.values()],
            "open": self.open.ordinal if self.open else None, "logged": self.logged, "next": self.next,
            "last": self.last, "since": self._since, "peak": self.peak.as_json(),
            "outside": {name: part.as_json() for name, part in self.outside.items()},
            "outside_peaks": self.outside_peaks, "rows": self.rows.as_json(), "row_since": self._row_since,
        }  # fmt: skip

    def _read_peak(self, value: float, missed: int) -> None:
        """The framework's peak counter at a boundary, for what lay before it."""
        phase = self.spans[-1].phase if self.spans else ""
        self.peak.passed((self.open.ordinal if self.open is not None else OUTSIDE, phase))
        if missed:
            self.peak.passed(_LOST)
        if is_known(value):
            for place, peak in self.peak.read(value):
                ordinal, phase = place if isinstance(place, tuple) else (place, "")
                if ordinal == OUTSIDE:
                    name = phase or (OTHER if isinstance(place, tuple) else "")
                    self.outside_peaks[name] = self.outside_peaks.get(name, Peak()).joined(peak)
                elif ordinal in self.epochs and (phase or not isinstance(place, tuple)):
                    self.epochs[ordinal].note_peak(phase, peak)

    def _leave(self, at: Moment) -> None:
        """The open epoch, if any, is over."""
        if self.open is not None:
            self._close_phase(at)
            self.open.end = at
            self.left_ns = at.monotonic_ns
            self.open = None
            self._since = at
            self.spans.append(PhaseStart(at.monotonic_ns, OUTSIDE, ""))

    def _enter(self, at: Moment, ordinal: int, phase: str) -> None:
        now = self.spans[-1] if self.spans else None
        if ordinal == OUTSIDE and phase not in self.outside and len(self.outside) >= _MOST_OUTSIDE:
            phase = ""
        if now is not None and (now.ordinal, now.phase) == (ordinal, phase):
            return
        if now is not None and now.ordinal == OUTSIDE:
            self._close_outside(at)
        elif now is not None and self.open is not None and now.ordinal == self.open.ordinal:
            self._close_phase(at)
        self._since = self._row_since = at
        self.spans.append(PhaseStart(at.monotonic_ns, ordinal, phase, self.rows.current))

    def _close_outside(self, at: Moment) -> None:
        """A phase outside epochs is over; between two epochs back to back there was none."""
        if at.monotonic_ns > self._since.monotonic_ns:
            phase = self.spans[-1].phase or OTHER
            self.outside[phase] = self._with_outside(self.outside.get(phase), at)
            self.rows.spent(self.spans[-1].phase, self._row_since, at)
            self._row_since = at

    def _with_outside(self, so_far: PhaseTotals | None, until: Moment) -> PhaseTotals:
        after = max(0, self._since.monotonic_ns - self.begun_ns) / SECOND
        return (so_far or PhaseTotals()).plus(_between(self._since, until), after)

    def _mark_row(self, boundary: Boundary, at: Moment) -> None:
        """A row of steps begins, with the run or where the one before ends."""
        if self.rows.rows and self.spans:
            self.rows.spent(self.spans[-1].phase, self._row_since, at)
            self.rows.rows[-1].metrics.update(boundary.metrics)
        self._row_since = at
        if self.rows.begin(boundary.time_ns, at) and self.spans:
            self.spans.append(self.spans[-1]._replace(start=at.monotonic_ns, row=self.rows.current))

    def _close_phase(self, at: Moment) -> None:
        assert self.open is not None
        phase, phases = self.spans[-1].phase, self.open.phases
        phases[phase] = self._with_part(self.open, phases.get(phase), at)

    def _with_part(self, epoch: Epoch, so_far: PhaseTotals | None, until: Moment) -> PhaseTotals:
        after = max(0, self._since.monotonic_ns - epoch.begin.monotonic_ns) / SECOND
        return (so_far or PhaseTotals()).plus(_between(self._since, until), after)

    def _log(self, number: int, metrics: Mapping[str, float], *, again: bool) -> None:
        if not metrics or (again and all(same(self.logged.get(name), value) for name, value in metrics.items())):
            return  # the end of a run says once more what the last epoch said
        self.logged.update(metrics)
        ordinal = self._by_number.get(number)
        if ordinal is not None:
            self.epochs[ordinal].metrics.update(metrics)
        elif number >= 0:
            self.late.append((number, dict(metrics)))


def timeline_of(found: Mapping[str, Any]) -> EpochTimeline:
    """Restore the result of `EpochTimeline.as_json`."""
    timeline = EpochTimeline()
    timeline.begun_ns, timeline.ended_ns = found["begun"], found["ended"]
    timeline.spans = [PhaseStart(*span) for span in found["spans"]]
    timeline.epochs = {epoch.ordinal: epoch for epoch in map(epoch_of, found["epochs"])}
    timeline.open = timeline.epochs[found["open"]] if found["open"] is not None else None
    opened = timeline.open.epoch if timeline.open is not None else None
    timeline._fold = EpochFold(found["newest"], found["lost"], opened)
    timeline.logged, timeline.next = dict(found["logged"]), found["next"]
    timeline.last, timeline._since = Moment(*found["last"]), Moment(*found["since"])
    timeline.outside = {name: PhaseTotals(*row) for name, row in found["outside"].items()}
    timeline.outside_peaks = {phase: Peak(*peak) for phase, peak in found["outside_peaks"].items()}
    timeline.rows, timeline._row_since = step_rows_of(found["rows"]), Moment(*found["row_since"])
    timeline.peak = peak_counter_of(found["peak"])
    timeline._by_number = {epoch.epoch: epoch.ordinal for epoch in timeline.epochs.values()}
    return timeline


def same(before: float | None, value: float) -> bool:
    """Whether a logged number is what was logged before; a NaN is like every other."""
    return before == value or (before is not None and not is_known(before) and not is_known(value))


def _start(span: PhaseStart) -> int:
    return span.start


def _between(begin: Moment, end: Moment) -> PhaseTotals:
    seconds = max(0, end.monotonic_ns - begin.monotonic_ns) / SECOND
    return PhaseTotals(seconds, 1, max(0, end.step - begin.step), wait_between(begin.wait, end.wait))
