"""The input of rules: a GPU or a run. A live run, a past one and an epoch are one type: the same rules judge all."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from gpumon.analysis.gpu_status import GpuStatus
from gpumon.diagnosis.finding import Finding, Subject
from gpumon.frame import NAN, RunState


class GpuContext(NamedTuple):
    """A GPU now."""

    status: GpuStatus
    now: float
    """Seconds since 1970."""
    rates: Mapping[str, float] = {}
    """Rates of counters by metric, where they are known: shares of the time."""

    @property
    def subject(self) -> Subject:
        device = self.status.sample.device
        return Subject("gpu", device.uuid, f"GPU {device.index}")

    def value(self, metric: str) -> float:
        """A metric by its name; NaN where it is missing."""
        return self.status.sample.value(metric)


class RunContext(NamedTuple):
    """A run, or an epoch of one. NaN is unknown."""

    subject: Subject
    state: RunState = RunState.RUNNING
    epoch: str = ""
    """The newest epoch for people; empty before the first."""
    since_end: float = NAN
    """Seconds since the run ended."""
    ooms: float = NAN
    """Out-of-memory errors."""
    since_oom: float = NAN
    """Seconds since the last of them."""
    asked: float = NAN
    """Bytes that the failed allocation asked for."""
    free: float = NAN
    """Bytes that the device had."""
    wait_share: float = NAN
    """Share of the time spent waiting for data."""
    throttled_share: float = NAN
    """Share of the time in which the driver lowered the clocks."""
    idle_share: float = NAN
    """Share of the time in which no kernel ran."""
    diverged: Sequence[str] = ()
    """Names of logged metrics that are NaN or infinite."""


Context = TypeVar("Context")
Rule = Callable[[Context], Iterable[Finding]]
"""A plain function of a context; what it yields is found."""


def diagnose(rules: Iterable[Rule[Context]], contexts: Sequence[Context]) -> list[Finding]:
    """Return the findings of `rules` on each context, the most severe first; of one severity, by order of the rules."""
    found = [finding for rule in rules for context in contexts for finding in rule(context)]
    return sorted(found, key=lambda finding: -finding.severity)
