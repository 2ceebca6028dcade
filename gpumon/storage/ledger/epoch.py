"""One epoch of a rank: its phases, its peaks of framework memory and what was logged in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from gpumon.common.numbers import NAN, is_known

Place = tuple[int, str]
"""Ordinal of an epoch, and a phase."""
_MOST_PLACES = 64


class Peak(NamedTuple):
    """The most in live tensors within a stretch; NaN where it is unknown."""

    value: float = NAN
    """Bytes, over all devices of the process."""
    reached: bool = False
    """Whether it was reached in this stretch; else it is only known to be no more."""

    def joined(self, other: Peak) -> Peak:
        """The peak of two stretches together."""
        if not is_known(self.value) or other.value > self.value:
            return other
        return self._replace(reached=self.reached or other.reached) if other.value == self.value else self


class PeakCounter:
    """The counter as it was read last, and where the run has been since."""

    def __init__(self) -> None:
        self.value = NAN
        self.highest = NAN
        """Of the whole run; a training may reset the counter."""
        self.since: list[Place] = []

    def passed(self, place: Place) -> None:
        """Note that the run was here since the last reading."""
        if is_known(self.value) or not self.since:
            if place not in self.since:
                self.since = [*self.since, place][-_MOST_PLACES:]
        else:
            self.since = [place]  # the framework had not come up on a device before

    def read(self, value: float) -> Iterator[tuple[Place | int, Peak]]:
        """Take a reading: what it says of each place and epoch since the last one."""
        found = list(self.judged(value))
        self.value, self.since = value, []
        if not value <= self.highest:
            self.highest = value
        yield from found

    def judged(self, value: float) -> Iterator[tuple[Place | int, Peak]]:
        """Judge each place and epoch since the last reading by this one."""
        before = self.value if is_known(self.value) else 0.0
        moved, most = value != before, max(value, before)
        ordinals = list(dict.fromkeys(ordinal for ordinal, _ in self.since))
        for ordinal in ordinals:
            yield ordinal, Peak(value, reached=True) if moved and len(ordinals) == 1 else Peak(most)
        for place in self.since:
            yield place, Peak(value, reached=True) if moved and len(self.since) == 1 else Peak(most)

    def as_json(self) -> list[Any]:
        """For `peak_counter_of`."""
        return [self.value, self.highest, self.since]


def peak_counter_of(found: Sequence[Any]) -> PeakCounter:
    """Restore the result of `PeakCounter.as_json`."""
    counter = PeakCounter()
    counter.value, counter.highest, since = found
    counter.since = [(ordinal, phase) for ordinal, phase in since]
    return counter


KEPT_TIMES = 16
"""Times that a phase was entered of which it is kept when."""


class PhaseTotals:
    """Totals of one phase of an epoch."""

    __slots__ = ("seconds", "spans", "steps", "times", "wait")

    def __init__(
        self, seconds: float = 0.0, times: int = 0, steps: int = 0, wait: float = NAN,
        spans: Sequence[tuple[float, float]] = (),
    ) -> None:  # fmt: skip
        self.seconds = seconds
        self.times = times
        self.steps = steps
        self.wait = wait
        """Seconds waited for data where that was measured; NaN where it never was."""
        self.spans = spans
        """The first `KEPT_TIMES`: seconds after the epoch's begin, and seconds."""

    def plus(self, part: PhaseTotals, after: float) -> PhaseTotals:
        """With one stretch more, which began `after` seconds of the epoch."""
        spans = (*self.spans, (round(after, 3), round(part.seconds, 3)))[:KEPT_TIMES]
        wait = part.wait if not is_known(self.wait) else self.wait + (part.wait if is_known(part.wait) else 0.0)
        return PhaseTotals(self.seconds + part.seconds, self.times + 1, self.steps + part.steps, wait, spans)

    def as_json(self) -> list[Any]:
        """For `PhaseTotals(*…)`."""
        return [self.seconds, self.times, self.steps, self.wait, self.spans]


class Moment(NamedTuple):
    """A point in a run: ns of CLOCK_MONOTONIC, steps made and seconds waited for data until then."""

    monotonic_ns: int
    step: int
    wait: float


class Epoch:
    """One epoch of a rank, open or over."""

    def __init__(self, ordinal: int, epoch: int, begun: int, begin: Moment) -> None:
        self.ordinal = ordinal
        self.epoch = epoch
        self.begun_ns = begun
        """ns since 1970."""
        self.begin = begin
        self.end: Moment | None = None
        """None while it is open."""
        self.ended_ns: int | None = None
        """ns since 1970; None also when it was left without an end."""
        self.phases: dict[str, PhaseTotals] = {}
        self.peaks: dict[str, Peak] = {}
        """Of the framework's memory, by phase; of the whole epoch under ''."""
        self.metrics: dict[str, float] = {}

    def note_peak(self, phase: str, peak: Peak) -> None:
        """A stretch of a phase (of the epoch: '') had this peak."""
        self.peaks[phase] = self.peaks.get(phase, Peak()).joined(peak)

    def as_json(self) -> dict[str, Any]:
        """For `epoch_of`."""
        return {
            "epoch": [self.ordinal, self.epoch, self.begun_ns, self.begin], "end": self.end, "ended": self.ended_ns,
            "phases": {name: part.as_json() for name, part in self.phases.items()},
            "peaks": self.peaks, "metrics": self.metrics,
        }  # fmt: skip


def epoch_of(found: Mapping[str, Any]) -> Epoch:
    """Restore the result of `Epoch.as_json`."""
    ordinal, number, begun, begin = found["epoch"]
    epoch = Epoch(ordinal, number, begun, Moment(*begin))
    epoch.end = Moment(*found["end"]) if found["end"] else None
    epoch.ended_ns = found["ended"]
    epoch.phases = {name: PhaseTotals(*row) for name, row in found["phases"].items()}
    epoch.peaks = {phase: Peak(*peak) for phase, peak in found["peaks"].items()}
    epoch.metrics = dict(found["metrics"])
    return epoch
