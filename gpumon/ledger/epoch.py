"""One epoch of a rank: its phases, its peaks of framework memory and what was logged in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gpumon.common.numbers import NAN, is_known
from gpumon.ledger.framework_peak import Peak

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
    epoch.peaks = {phase: Peak(*peak) for phase, peak in found.get("peaks", {}).items()}
    epoch.metrics = dict(found["metrics"])
    return epoch
