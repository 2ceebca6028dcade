"""The input of rules: a GPU or a run. A live run, a past one and an epoch are one type: the same rules judge all."""

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
    """Whether a GPU that is in use has a PCIe link slower than it could be: the time before tells what that means."""
    sample = status.sample
    if status.state is GpuState.FREE or sample.state is not Availability.OK:
        return False
    return bool(_slower_than_possible(sample, _link_of(sample)))


def _link_of(sample: Sample) -> Mapping[str, float]:
    """The PCIe link of a GPU as it is now."""
    return {metric: sample.value(metric) for metric in PCIE_LINK}


def _slower_than_possible(sample: Sample, link: Mapping[str, float]) -> list[tuple[str, float, float]]:
    """The metrics of which a PCIe link has less than it could, as an idle one does: what it has, and could have."""
    found = [(metric, link.get(metric, NAN), sample.value(BY_NAME[metric].limit)) for metric in PCIE_LINK]
    return [(metric, has, most) for metric, has, most in found if 0 < has < most]


class LinkUnderLoad(NamedTuple):
    """The PCIe link of a GPU at the end of the last time in which it was loaded for `thresholds.LOADED_FOR`."""

    load: float = NAN
    """The lowest utilization of any few seconds of that time; NaN where there was none lately."""
    values: Mapping[str, float] = {}
    """The values of `PCIE_LINK`."""


class GpuContext(NamedTuple):
    """A GPU now."""

    status: GpuStatus
    now: float
    """Seconds since 1970."""
    rates: Mapping[str, float] = {}
    """Rates of counters by metric, where they are known: shares of the time."""
    loaded: LinkUnderLoad = LinkUnderLoad()
    """Its PCIe link when it was last under load."""
    peer_links: float = NAN
    """The most NVLink links that are up on another GPU of the same model in this machine; NaN without one."""
    is_lost_with_gpu: bool = False
    """Whether it is a MIG instance of a GPU that is lost itself."""
    is_replaced: bool = False
    """Whether it is lost, and another GPU has its number now."""

    @property
    def device(self) -> Device:
        return self.status.sample.device

    @property
    def subject(self) -> Subject:
        return Subject("gpu", self.device.uuid, f"GPU {self.device.label}")

    def value(self, metric: str) -> float:
        """A metric by its name; NaN where it is missing."""
        return self.status.sample.value(metric)

    @property
    def is_current(self) -> bool:
        """Whether its values are of now: neither the driver nor the daemon is silent."""
        return self.status.sample.state is Availability.OK and self.status.state is not GpuState.STALE

    @property
    def slow_link(self) -> list[tuple[str, float, float]]:
        """Metrics of which its PCIe link had less under load than it could, and still has: what it had, and could have.

        An idle link steps down too, and never up: one that is at its best now is well.
        """
        sample = self.status.sample
        still = {metric for metric, *_ in _slower_than_possible(sample, _link_of(sample))}
        return [one for one in _slower_than_possible(sample, self.loaded.values) if one[0] in still]


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
    waits_in_part: bool = False
    """Whether that is of a part of the time, the phases in which waits are measured."""
    throttled_share: float = NAN
    """Share of the time in which the driver lowered the clocks."""
    idle_share: float = NAN
    """Share of the time in which no kernel ran."""
    diverged: Sequence[str] = ()
    """Names of logged metrics that are NaN or infinite."""
    claimed: int = 0
    """GPUs that it claims although the driver lists no process of its user on them."""


Context = TypeVar("Context")
Rule = Callable[[Context], Iterable[Finding]]
"""A plain function of a context; what it yields is found."""


def diagnose(rules: Iterable[Rule[Context]], contexts: Sequence[Context]) -> list[Finding]:
    """Return the findings of `rules` on each context, the most severe first; of one severity, by order of the rules."""
    found = [finding for rule in rules for context in contexts for finding in rule(context)]
    return sorted(found, key=lambda finding: -finding.severity)
