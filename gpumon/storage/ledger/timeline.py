"""Derives the epoch and phase of a rank at each time from the boundaries that the training reports."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import Any, NamedTuple

from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN, is_known
from gpumon.model.epoch_boundaries import EpochEnd, EpochFold
from gpumon.model.frame import Boundary, Mark, wait_between
from gpumon.model.run import PAUSED
from gpumon.storage.ledger.epoch import Epoch, Moment, PeakCounter, PhaseTotals, join_peak
from gpumon.storage.ledger.records import LivePeak
from gpumon.storage.ledger.row_keys import OTHER
from gpumon.storage.ledger.steps import NO_ROW, StepRanges

OUTSIDE = -1
"""Ordinal of time outside epochs."""
MAX_SPANS = 4096
_MAX_OUTSIDE = 32
"""Maximum number of phases outside epochs. A board has 12 phase names at a time, but a hostile process may change them
again and again."""
_LOST = (OUTSIDE - 1, "")
"""Stands for the epochs and phases of a time in which boundaries were lost."""


class PhaseStart(NamedTuple):
    """Start of a span of time in one epoch and phase. The span lasts until the next span starts."""

    start: int
    """Start of the phase, in ns of CLOCK_MONOTONIC."""
    ordinal: int
    phase: str
    row: int = NO_ROW
    """Number of the row of steps; `NO_ROW` within epochs."""


class EpochTimeline:
    """The epochs, phases and rows of steps of a rank that have not been written yet.

    They are built from the rank's boundaries.
    """

    def __init__(self) -> None:
        self._fold = EpochFold()
        self.begun_ns = 0
        """Start of the run in ns, CLOCK_MONOTONIC; 0 until it is reported."""
        self.ended_ns = 0
        """End of the run that the training reported, in ns, CLOCK_MONOTONIC; 0 while the run has not ended."""
        self.last_end_ns = 0
        """End of the newest epoch that has ended, or of the run, in ns, CLOCK_MONOTONIC; 0 if none has ended."""
        self.spans: list[PhaseStart] = []
        self.epochs: dict[int, Epoch] = {}
        """Epochs by ordinal, open or ended, that `pop_ended` has not returned yet."""
        self.open: Epoch | None = None
        self.logged: dict[str, float] = {}
        """The last value of each metric that was logged with a boundary."""
        self.marks: list[Boundary] = []
        """Out-of-memory errors and checkpoints that are not written yet."""
        self.late_metrics: list[tuple[int, dict[str, float]]] = []
        """Metrics that were logged for epochs that had already been written, with the number of the epoch."""
        self.next_ordinal = 0
        """Ordinal of the next epoch."""
        self.last = Moment(0, 0, NAN)
        """The newest boundary."""
        self.peak = PeakCounter()
        self.revoked_ends: list[int] = []
        """Numbers of epochs that were written as ended although they are still open."""
        self.outside: dict[str, PhaseTotals] = {}
        """Totals of the phases outside epochs, by phase name."""
        self.outside_peaks: dict[str, LivePeak] = {}
        self.step_rows = StepRanges()
        self._row_phase_start = Moment(0, 0, NAN)
        """Start of the current phase within the open row of steps."""
        self._phase_start = Moment(0, 0, NAN)
        self._ordinals: dict[int, int] = {}

    def add(self, boundary: Boundary) -> bool:
        """Add the next boundary. Return whether it starts or ends an epoch or ends the run.

        A boundary that was already added is ignored.
        """
        change = self._fold.add(boundary)
        if change is None:
            return False
        at = Moment(max(boundary.monotonic_ns, self.last.monotonic_ns), boundary.step, boundary.wait)
        mark = boundary.mark
        self._add_peak(boundary.peak, change.missed)
        if self.open is not None and change.closed is not None:
            if change.closed is EpochEnd.FINISHED:
                self.open.ended_ns = boundary.time_ns
            self._close_epoch(self.last if change.closed is EpochEnd.LOST else at)
        self.last = at
        if boundary.number == 1 or not self.begun_ns:
            self.begun_ns = at.monotonic_ns
        if change.begun:
            self.step_rows.clear()
            self.open = Epoch(self.next_ordinal, boundary.epoch, boundary.time_ns, at)
            self.epochs[self.next_ordinal] = self.open
            self._ordinals[boundary.epoch] = self.next_ordinal
            self.next_ordinal += 1
        if change.revoked in self._ordinals:
            self.epochs[self._ordinals[change.revoked]].ended_ns = None
        elif change.revoked is not None:
            self.revoked_ends.append(change.revoked)
        if mark == Mark.RUN_END:
            if self.spans and self.spans[-1].ordinal == OUTSIDE:
                self._close_outside(at)
                self._phase_start = at
            self.step_rows.end(at, boundary.metrics)
            self.ended_ns = self.last_end_ns = at.monotonic_ns
        elif mark in (Mark.OUT_OF_MEMORY, Mark.CHECKPOINT):
            self.marks.append(boundary)
        if not self.next_ordinal and mark is not Mark.RUN_END and (mark is Mark.STEPS or not self.step_rows.rows):
            self._begin_step_row(boundary, at)
        if mark in (Mark.EPOCH_END, Mark.EPOCH_ABORTED, Mark.RUN_END, Mark.LOG):
            if boundary.of_step and not self.next_ordinal:
                self.step_rows.log(boundary.of_step, boundary.metrics)
            self._add_metrics(boundary.epoch, boundary.metrics, again=mark in (Mark.EPOCH_ABORTED, Mark.RUN_END))
        self._enter_phase(at, self.open.ordinal if self.open else OUTSIDE, boundary.phase)
        return mark in (Mark.EPOCH_BEGIN, Mark.EPOCH_END, Mark.EPOCH_ABORTED, Mark.RUN_END)

    @property
    def lost(self) -> int:
        """Number of boundaries that are missing, because newer boundaries overwrote them before a daemon read them."""
        return self._fold.lost

    def pieces(self, begin: int, end: int) -> Iterator[tuple[int, int, PhaseStart]]:
        """Divide the time from `begin` to `end` (ns, CLOCK_MONOTONIC) at the starts of spans.

        Yields the start, the end and the span of each piece. Time before the first span is left out.
        """
        spans = self.spans
        at = max(0, bisect_right(spans, begin, key=_start) - 1)
        while at < len(spans) and spans[at].start < end:
            until = min(end, spans[at + 1].start) if at + 1 < len(spans) else end
            since = max(begin, spans[at].start)
            if until > since:
                yield since, until, spans[at]
            at += 1

    def pop_ended(self, horizon: int) -> list[Epoch]:
        """Remove and return the epochs that ended before `horizon` (ns, CLOCK_MONOTONIC)."""
        ended = [epoch for epoch in self.epochs.values() if epoch.end is not None and epoch.end.monotonic_ns <= horizon]
        for epoch in ended:
            del self.epochs[epoch.ordinal]
            if self._ordinals.get(epoch.epoch) == epoch.ordinal:
                del self._ordinals[epoch.epoch]
        return ended

    def drop_spans(self, before: int) -> None:
        """Drop the spans that ended before this time (ns, CLOCK_MONOTONIC), because all their samples were added."""
        spans = self.spans
        if len(spans) > 1 and spans[1].start <= before:
            del spans[: bisect_right(spans, before, key=_start) - 1]
        if len(spans) > MAX_SPANS:
            del spans[:-MAX_SPANS]

    def phases_at(self, epoch: Epoch, now: Moment) -> dict[str, PhaseTotals]:
        """Return the totals of an epoch by phase. The open phase is counted until `now`."""
        phases = dict(epoch.phases)
        if epoch is self.open and self.spans:
            phase = self.spans[-1].phase
            phases[phase] = self._add_phase(phases.get(phase), epoch.begin.monotonic_ns, now)
        return phases

    @property
    def is_paused(self) -> bool:
        """Whether the training had ended at the last boundary while its process continues, as in a notebook."""
        return bool(self.spans) and self.spans[-1].ordinal == OUTSIDE and self.spans[-1].phase == PAUSED

    def outside_at(self, now: Moment) -> dict[str, PhaseTotals] | None:
        """Return the totals of the time outside epochs until `now`, by phase; None if boundaries were lost."""
        if self.lost:
            return None
        phases = dict(self.outside)
        if (
            self.open is None
            and self.spans
            and now.monotonic_ns >= self._phase_start.monotonic_ns
            and not self.ended_ns
        ):
            phase = self.spans[-1].phase or OTHER
            phases[phase] = self._add_phase(phases.get(phase), self.begun_ns, now)
        return phases

    def paused_until(self, now: int) -> float:
        """Return the total time in seconds for which the run has been paused up to `now` (ns, CLOCK_MONOTONIC)."""
        earlier = self.outside.get(PAUSED, PhaseTotals()).seconds
        since = now - self._phase_start.monotonic_ns if self.is_paused and not self.ended_ns else 0
        return earlier + max(0, since) / SECOND

    def peaks_at(self, epoch: Epoch, now: float) -> dict[str, LivePeak]:
        """Return the memory peaks of an epoch by phase; '' is the whole epoch.

        `now`: current value of the framework's counter, bytes.
        """
        if epoch is not self.open:
            return self._read_peaks(epoch.ordinal, epoch.peaks)
        peaks = dict(epoch.peaks)
        if is_known(now) and self.spans:
            counter = self.peak.copy()
            counter.visit((epoch.ordinal, self.spans[-1].phase))
            for key, peak in counter.peaks(now):
                if key == epoch.ordinal:
                    join_peak(peaks, "", peak)
                elif isinstance(key, tuple) and key[0] == epoch.ordinal:
                    join_peak(peaks, key[1], peak)
        return peaks

    def outside_peaks_at(self) -> dict[str, LivePeak]:
        """Return the memory peaks outside epochs by phase; '' is the whole time outside epochs."""
        return self._read_peaks(OUTSIDE, self.outside_peaks)

    def _read_peaks(self, ordinal: int, peaks: Mapping[str, LivePeak]) -> dict[str, LivePeak]:
        """Return the peaks of the phases after which the counter was read.

        For other phases, it is not known yet whether the peak belongs to them or to a later phase.
        """
        pending = {phase for visited, phase in self.peak.visited if visited == ordinal}
        return {phase: peak for phase, peak in peaks.items() if phase not in pending and not (pending and not phase)}

    def as_json(self) -> dict[str, Any]:
        """Return the state as JSON values, from which `from_json` restores it. The keys are part of the file format."""
        return {
            "newest": self._fold.newest, "lost": self.lost, "begun": self.begun_ns, "ended": self.ended_ns,
            "spans": self.spans,
            "epochs": [epoch.as_json() for epoch in self.epochs.values()],
            "open": self.open.ordinal if self.open else None, "logged": self.logged, "next": self.next_ordinal,
            "last": self.last, "since": self._phase_start, "peak": self.peak.as_json(),
            "outside": self.outside,
            "outside_peaks": self.outside_peaks, "rows": self.step_rows.as_json(), "row_since": self._row_phase_start,
        }  # fmt: skip

    def _add_peak(self, value: float, missed: int) -> None:
        """Add the value of the framework's peak counter (bytes) at a boundary.

        The value covers the time before the boundary.

        `missed`: number of boundaries that were lost before this one.
        """
        phase = self.spans[-1].phase if self.spans else ""
        self.peak.visit((self.open.ordinal if self.open is not None else OUTSIDE, phase))
        if missed:
            self.peak.visit(_LOST)
        if is_known(value):
            for key, peak in self.peak.add(value):
                ordinal, phase = key if isinstance(key, tuple) else (key, "")
                if ordinal == OUTSIDE:
                    name = phase or (OTHER if isinstance(key, tuple) else "")
                    join_peak(self.outside_peaks, name, peak)
                elif ordinal in self.epochs and (phase or not isinstance(key, tuple)):
                    join_peak(self.epochs[ordinal].peaks, phase, peak)

    def _close_epoch(self, at: Moment) -> None:
        """End the open epoch, if any."""
        if self.open is not None:
            self._close_phase(at)
            self.open.end = at
            self.last_end_ns = at.monotonic_ns
            self.open = None
            self._phase_start = at
            self.spans.append(PhaseStart(at.monotonic_ns, OUTSIDE, ""))

    def _enter_phase(self, at: Moment, ordinal: int, phase: str) -> None:
        current = self.spans[-1] if self.spans else None
        if ordinal == OUTSIDE and phase not in self.outside and len(self.outside) >= _MAX_OUTSIDE:
            phase = ""
        if current is not None and (current.ordinal, current.phase) == (ordinal, phase):
            return
        if current is not None and current.ordinal == OUTSIDE:
            self._close_outside(at)
        elif current is not None and self.open is not None and current.ordinal == self.open.ordinal:
            self._close_phase(at)
        self._phase_start = self._row_phase_start = at
        self.spans.append(PhaseStart(at.monotonic_ns, ordinal, phase, self.step_rows.current))

    def _close_outside(self, at: Moment) -> None:
        """End the open phase outside epochs if its length is not 0."""
        if at.monotonic_ns > self._phase_start.monotonic_ns:
            phase = self.spans[-1].phase or OTHER
            self.outside[phase] = self._add_phase(self.outside.get(phase), self.begun_ns, at)
            self.step_rows.add_phase(self.spans[-1].phase, self._row_phase_start, at)
            self._row_phase_start = at

    def _add_phase(self, so_far: PhaseTotals | None, begun_ns: int, until: Moment) -> PhaseTotals:
        """Return the totals of a phase with the current phase, up to `until`, added.

        `begun_ns`: start of the epoch or run to which the phase belongs (ns, CLOCK_MONOTONIC).
        """
        after = max(0, self._phase_start.monotonic_ns - begun_ns) / SECOND
        return (so_far or PhaseTotals()).with_span(_totals_between(self._phase_start, until), after)

    def _begin_step_row(self, boundary: Boundary, at: Moment) -> None:
        """Start a row of steps at a boundary, which is the start of the run or the end of the previous row."""
        if self.step_rows.rows and self.spans:
            self.step_rows.add_phase(self.spans[-1].phase, self._row_phase_start, at)
            self.step_rows.rows[-1].metrics.update(boundary.metrics)
        self._row_phase_start = at
        if self.step_rows.begin(boundary.time_ns, at) and self.spans:
            self.spans.append(self.spans[-1]._replace(start=at.monotonic_ns, row=self.step_rows.current))

    def _close_phase(self, at: Moment) -> None:
        assert self.open is not None
        phase, phases = self.spans[-1].phase, self.open.phases
        phases[phase] = self._add_phase(phases.get(phase), self.open.begin.monotonic_ns, at)

    def _add_metrics(self, number: int, metrics: Mapping[str, float], *, again: bool) -> None:
        if not metrics or (
            again and all(is_same_value(self.logged.get(name), value) for name, value in metrics.items())
        ):
            return  # the last boundary of a run repeats the values of its last epoch
        self.logged.update(metrics)
        ordinal = self._ordinals.get(number)
        if ordinal is not None:
            self.epochs[ordinal].metrics.update(metrics)
        elif number >= 0:
            self.late_metrics.append((number, dict(metrics)))

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> EpochTimeline:
        timeline = cls()
        timeline.begun_ns, timeline.ended_ns = state["begun"], state["ended"]
        timeline.spans = [PhaseStart(*span) for span in state["spans"]]
        timeline.epochs = {epoch.ordinal: epoch for epoch in map(Epoch.from_json, state["epochs"])}
        timeline.open = timeline.epochs[state["open"]] if state["open"] is not None else None
        opened = timeline.open.epoch if timeline.open is not None else None
        timeline._fold = EpochFold(state["newest"], state["lost"], opened)
        timeline.logged, timeline.next_ordinal = dict(state["logged"]), state["next"]
        timeline.last, timeline._phase_start = Moment(*state["last"]), Moment(*state["since"])
        timeline.outside = {name: PhaseTotals(*row) for name, row in state["outside"].items()}
        timeline.outside_peaks = {phase: LivePeak(*peak) for phase, peak in state["outside_peaks"].items()}
        timeline.step_rows, timeline._row_phase_start = (
            StepRanges.from_json(state["rows"]),
            Moment(*state["row_since"]),
        )
        timeline.peak = PeakCounter.from_json(state["peak"])
        timeline._ordinals = {epoch.epoch: epoch.ordinal for epoch in timeline.epochs.values()}
        return timeline


def is_same_value(previous: float | None, value: float) -> bool:
    """Return whether a logged number equals the previous number. Two NaN count as equal."""
    return previous == value or (previous is not None and not is_known(previous) and not is_known(value))


_start = attrgetter("start")


def _totals_between(begin: Moment, end: Moment) -> PhaseTotals:
    """Return the totals of a phase that lasted from `begin` to `end`."""
    seconds = max(0, end.monotonic_ns - begin.monotonic_ns) / SECOND
    return PhaseTotals(seconds, 1, max(0, end.step - begin.step), wait_between(begin.wait, end.wait))
