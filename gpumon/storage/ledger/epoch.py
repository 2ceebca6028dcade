"""One epoch of a rank: its phases, peaks of framework memory, and logged metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from gpumon.common.numbers import NAN, is_known
from gpumon.storage.ledger.records import LivePeak

PhaseKey = tuple[int, str]
"""Ordinal of an epoch, and a phase."""
_MAX_VISITED = 64


class PeakCounter:
    """The framework's counter of peak memory, and the phases that the run was in since the last reading.

    The counter only grows, unless the training resets it. If the counter changed while the run was in a single phase,
    the peak belongs to that phase. If the run was in several phases, the value is only an upper bound for each of these
    phases.
    """

    def __init__(self) -> None:
        self.value = NAN
        self.highest = NAN
        """Highest reading in the whole run. It is stored because a training may reset the counter."""
        self.visited: list[PhaseKey] = []

    def visit(self, key: PhaseKey) -> None:
        """Record that the run entered this phase."""
        if is_known(self.value) or not self.visited:
            if key not in self.visited:
                self.visited = [*self.visited, key][-_MAX_VISITED:]
        else:
            self.visited = [key]  # before, the framework had not initialized a device

    def add(self, value: float) -> Iterator[tuple[PhaseKey | int, LivePeak]]:
        """Record a reading of the counter (bytes), and yield the resulting peaks as `peaks` does."""
        peaks = list(self.peaks(value))
        self.value, self.visited = value, []
        if not value <= self.highest:
            self.highest = value
        yield from peaks

    def peaks(self, value: float) -> Iterator[tuple[PhaseKey | int, LivePeak]]:
        """Yield the peaks that result from a reading of `value` bytes, without recording the reading.

        There is one peak for each epoch (key: its ordinal) and each phase (key: ordinal and phase) that the run was in
        since the last reading.
        """
        previous = self.value if is_known(self.value) else 0.0
        changed, bound = value != previous, max(value, previous)
        ordinals = list(dict.fromkeys(ordinal for ordinal, _ in self.visited))
        for ordinal in ordinals:
            yield ordinal, LivePeak(value, reached=True) if changed and len(ordinals) == 1 else LivePeak(bound)
        for key in self.visited:
            yield key, LivePeak(value, reached=True) if changed and len(self.visited) == 1 else LivePeak(bound)

    def copy(self) -> PeakCounter:
        return PeakCounter.from_json(self.as_json())

    def as_json(self) -> list[Any]:
        """Return the state as JSON values, from which `from_json` restores it."""
        return [self.value, self.highest, self.visited]

    @classmethod
    def from_json(cls, state: Sequence[Any]) -> PeakCounter:
        counter = cls()
        counter.value, counter.highest, visited = state
        counter.visited = [(ordinal, phase) for ordinal, phase in visited]
        return counter


MAX_SPANS = 16
"""Maximum number of spans that are stored for a phase of an epoch. Later spans of the phase count only in the
totals."""


class PhaseTotals(NamedTuple):
    """Totals of one phase of an epoch, over all times that the phase was entered."""

    seconds: float = 0.0
    times: int = 0
    steps: int = 0
    wait: float = NAN
    """Seconds waited for data; NaN if the wait was never measured."""
    spans: Sequence[tuple[float, float]] = ()
    """The first `MAX_SPANS` spans. For each: start in seconds after the start of the epoch, and length in seconds."""

    def with_span(self, part: PhaseTotals, after: float) -> PhaseTotals:
        """Return the totals after the phase was entered once more.

        `part`: totals of the additional span. `after`: its start, in seconds after the start of the epoch.
        """
        spans = (*self.spans, (round(after, 3), round(part.seconds, 3)))[:MAX_SPANS]
        wait = part.wait if not is_known(self.wait) else self.wait + (part.wait if is_known(part.wait) else 0.0)
        return PhaseTotals(self.seconds + part.seconds, self.times + 1, self.steps + part.steps, wait, spans)


class Moment(NamedTuple):
    """A time in a run (ns, CLOCK_MONOTONIC), with the steps done and the seconds waited for data up to this time."""

    monotonic_ns: int
    step: int
    wait: float


def join_peak(peaks: dict[str, LivePeak], phase: str, peak: LivePeak) -> None:
    """Add a memory peak of a phase to the peaks by phase. The phase '' stands for the whole epoch."""
    peaks[phase] = peaks.get(phase, LivePeak()).joined_with(peak)


class Epoch:
    """An epoch of a rank, which may still be open."""

    def __init__(self, ordinal: int, epoch: int, begun: int, begin: Moment) -> None:
        self.ordinal = ordinal
        self.epoch = epoch
        self.begun_ns = begun
        """Start of the epoch, in ns since 1970."""
        self.begin = begin
        self.end: Moment | None = None
        """End of the epoch; None while the epoch is open."""
        self.ended_ns: int | None = None
        """End of the epoch, in ns since 1970; None while the epoch is open or if it was aborted."""
        self.phases: dict[str, PhaseTotals] = {}
        self.peaks: dict[str, LivePeak] = {}
        """Peaks of the framework's memory by phase. The key '' stands for the whole epoch."""
        self.metrics: dict[str, float] = {}

    def as_json(self) -> dict[str, Any]:
        """Return the state as JSON values, from which `from_json` restores it."""
        return {
            "epoch": [self.ordinal, self.epoch, self.begun_ns, self.begin], "end": self.end, "ended": self.ended_ns,
            "phases": self.phases, "peaks": self.peaks, "metrics": self.metrics,
        }  # fmt: skip

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> Epoch:
        ordinal, number, begun, begin = state["epoch"]
        epoch = cls(ordinal, number, begun, Moment(*begin))
        epoch.end = Moment(*state["end"]) if state["end"] else None
        epoch.ended_ns = state["ended"]
        epoch.phases = {name: PhaseTotals(*row) for name, row in state["phases"].items()}
        epoch.peaks = {phase: LivePeak(*peak) for phase, peak in state["peaks"].items()}
        epoch.metrics = dict(state["metrics"])
        return epoch
