"""Contexts: the facts about a GPU or a run on which the rules are based.

The same rules apply to running runs, past runs and epochs.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from gpumon.analysis.gpu_state import GpuState
from gpumon.analysis.gpu_status import GpuStatus
from gpumon.common.numbers import NAN
from gpumon.diagnosis.finding import Finding, Subject
from gpumon.model.device import Device
from gpumon.model.frame import RunState, Sample
from gpumon.model.metrics import BY_NAME, PCIE_LINK, Availability


def has_slow_link(status: GpuStatus) -> bool:
    """Return whether a GPU is in use and its PCIe link is currently slower than its maximum.

    This alone is not a problem, because the driver also slows down the link of an idle GPU.
    """
    sample = status.sample
    if status.state is GpuState.FREE or sample.state is not Availability.OK:
        return False
    return bool(_slower_than_possible(sample, _link_of(sample)))


def _link_of(sample: Sample) -> Mapping[str, float]:
    """Return the current values of the PCIe link of a GPU, by metric."""
    return {metric: sample.value(metric) for metric in PCIE_LINK}


def _slower_than_possible(sample: Sample, link: Mapping[str, float]) -> list[tuple[str, float, float]]:
    """Return a tuple (metric, value, maximum) for each value of a PCIe link that is below its maximum."""
    values = [(metric, link.get(metric, NAN), sample.value(BY_NAME[metric].limit)) for metric in PCIE_LINK]
    return [(metric, value, maximum) for metric, value, maximum in values if 0 < value < maximum]


class LinkUnderLoad(NamedTuple):
    """State of a GPU's PCIe link at the end of the last period under load (`thresholds.LOADED_FOR` seconds)."""

    load: float = NAN
    """Lowest mean utilization of any few seconds in that period. NaN if there was no such period recently."""
    values: Mapping[str, float] = {}
    """Values of the link by metric of `PCIE_LINK`."""


class GpuContext(NamedTuple):
    """Facts about a GPU at the newest frame."""

    status: GpuStatus
    now: float
    """Time of the frame, seconds since 1970."""
    rates: Mapping[str, float] = {}
    """Rates of the throttling counters that have one, by metric, as shares of the time (0 to 1)."""
    loaded: LinkUnderLoad = LinkUnderLoad()
    """State of the GPU's PCIe link when the GPU was last under load."""
    peer_links: float = NAN
    """Highest number of active NVLink links on any other GPU of the same model in this machine. NaN if there is
    none."""
    is_lost_with_gpu: bool = False
    """Whether the device is a MIG instance of a GPU that is lost."""
    is_replaced: bool = False
    """Whether the GPU is lost and another GPU now has its index."""

    @property
    def device(self) -> Device:
        return self.status.sample.device

    @property
    def subject(self) -> Subject:
        return Subject("gpu", self.device.uuid, f"GPU {self.device.label}")

    def value(self, metric: str) -> float:
        """Return the value of a metric by name; NaN if it is missing."""
        return self.status.sample.value(metric)

    @property
    def is_current(self) -> bool:
        """Whether the values are current. This requires that both the driver and the daemon answer."""
        return self.status.sample.state is Availability.OK and self.status.state is not GpuState.STALE

    @property
    def slow_link(self) -> list[tuple[str, float, float]]:
        """Metric, value and maximum for each PCIe value that was below its maximum under load and is still below it.

        A value that is at its maximum now proves that the link can reach it.
        """
        sample = self.status.sample
        slow_now = {metric for metric, *_ in _slower_than_possible(sample, _link_of(sample))}
        return [entry for entry in _slower_than_possible(sample, self.loaded.values) if entry[0] in slow_now]


class RunContext(NamedTuple):
    """Facts about a run or an epoch. Missing numbers are NaN."""

    subject: Subject
    state: RunState = RunState.RUNNING
    epoch: str = ""
    """The newest epoch as text for users; empty before the first epoch."""
    since_end: float = NAN
    """Seconds since the run ended."""
    exit_code: float = 0.0
    """Exit code of the run's command; 0 if it was not recorded or a signal ended the command."""
    exit_signal: float = 0.0
    """Number of the signal that ended the run's command; 0 if it was not recorded or no signal ended the command."""
    failed_rank: float = NAN
    """Number of the rank that failed or died first; NaN if the run has one rank, or if that is not known."""
    ooms: float = NAN
    """Number of out-of-memory errors of the run."""
    since_oom: float = NAN
    """Seconds since the last out-of-memory error."""
    asked: float = NAN
    """Bytes requested by the failed allocation."""
    free: float = NAN
    """Bytes that were free on the device when the allocation failed."""
    wait_share: float = NAN
    """Share of the time spent waiting for data."""
    waits_in_part: bool = False
    """Whether `wait_share` is a share of only the phases in which waits are measured, not of the whole time."""
    throttled_share: float = NAN
    """Share of the time in which the driver lowered the clocks."""
    idle_share: float = NAN
    """Share of the time in which no kernel ran."""
    diverged: Sequence[str] = ()
    """Names of logged metrics that have become NaN or infinite."""
    was_finite: bool = True
    """Whether one of them was finite before; True if not known."""
    claimed: int = 0
    """Number of GPUs that the run claims although the driver lists no process of its user on them."""
    left: float = NAN
    """Estimated seconds until the run ends."""
    limit_in: float = NAN
    """Seconds until the process will be ended, by its Slurm job or by the limit that its user gave; negative if that
    time has passed."""
    silent: float = NAN
    """Seconds without progress of any rank, if the run is stalled."""
    phase: str = ""
    """Current phase of the rank that is furthest behind."""


Context = TypeVar("Context")
Rule = Callable[[Context], Iterable[Finding]]
"""A function that yields its findings about a context."""


def diagnose(rules: Iterable[Rule[Context]], contexts: Sequence[Context]) -> list[Finding]:
    """Return the findings of these rules about these contexts, ranked by `by_rank`."""
    return by_rank(finding for rule in rules for context in contexts for finding in rule(context))


def by_rank(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings sorted by severity, then by expected gain, then in their present order."""
    return sorted(findings, key=lambda finding: (-finding.severity, -finding.gain.middle if finding.gain else 0.0))
