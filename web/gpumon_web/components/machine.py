"""A machine as pages receive it at each tick: its GPUs with their holders, its runs, and what needs attention."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from gpumon.analysis.gpu_state import GpuState
from gpumon.analysis.gpu_status import GpuStatus
from gpumon.model.frame import Sample
from gpumon.model.metrics import PROCESSES, Availability
from gpumon.model.panels import GPU_PANELS
from gpumon.model.process import Process
from gpumon.model.vendors import short_name
from gpumon.reports.run_json import nullable
from gpumon_web.components.page import Cells

if TYPE_CHECKING:
    from gpumon_web.cluster.data import ClusterNow

_STEP = 2.0**26
LASTING = (GpuState.LOST, GpuState.UNREADABLE)
"""States that last when data stops coming."""


def coarse(memory: float) -> float | None:
    """Round bytes to 64 MiB, so that not every tick is a change."""
    return round(memory / _STEP) * _STEP if math.isfinite(memory) else None


class LiveRun(TypedDict):
    """A run in the ring."""

    id: str
    name: str
    user: str
    state: str
    framework: str
    ranks: str
    """Number of ranks as text; empty for a run of one process."""
    gpus: list[str]
    """UUIDs."""
    started: float | None
    updated: float | None
    """Time of its end; None while it is running."""
    epoch: str
    step_text: str
    phase: str
    resumed: int | None
    progress: float | None
    left: float | None
    """Estimated seconds to its end."""
    stalled: bool


@dataclass(frozen=True, slots=True)
class Holder:
    """Processes of one user and run on a GPU."""

    user: str | None
    """Empty if unknown, for example for a process in another container; None for several holders combined."""
    run: str | None
    """Id of their run."""
    names: Sequence[str]
    """Names of some programs."""
    count: int
    pid: int
    """Process id of the first one."""
    memory: float | None
    """Bytes; None if unknown."""
    without_run: int | None = None
    """Number of processes that belong to no run; only for combined holders."""


class Fault(NamedTuple):
    """The most urgent fault of a GPU, and the number of its faults."""

    level: str
    text: str
    number: int


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU as pages receive it. All but the values change slowly."""

    status: GpuStatus
    holders: Sequence[Holder] = ()
    """The largest first."""
    health: Sequence[Cells] = ()
    """Health checks."""
    fault: Fault | None = None
    notes: Sequence[Cells] = ()
    """Findings about it."""
    run_ids: Mapping[str, str] = field(default_factory=dict)
    """Ids of runs by the keys of their ranks."""
    values: Mapping[str, float | None] = field(default_factory=dict)
    """The newest value of each metric, or the last known one if the GPU does not answer; None: unknown."""
    counted: Mapping[str, float | None] = field(default_factory=dict)
    """The newest values for sums over GPUs: None if the GPU does not answer."""
    mean: tuple[float, float] | None = None
    """Mean utilization over the last ten minutes, and the seconds of them that have data."""

    @property
    def sample(self) -> Sample:
        """Its values when they last changed slowly."""
        return self.status.sample

    @property
    def state(self) -> GpuState:
        """Its state, on which all views agree."""
        return self.status.state

    @property
    def uuid(self) -> str:
        """Its UUID."""
        return self.sample.device.uuid

    @property
    def number(self) -> int:
        """Its index; of a MIG instance, the index of its GPU."""
        return self.sample.device.index

    @property
    def label(self) -> str:
        """Its index as text; `2:0` for a MIG instance."""
        return self.sample.device.label or str(self.number)

    @property
    def name(self) -> str:
        """Its model."""
        return short_name(self.sample.device.name)

    @property
    def order(self) -> float:
        """Number to sort by: instances follow their GPU."""
        return self.number + (self.sample.device.instance + 1) / 1024

    @property
    def word(self) -> str:
        """Its state as text; of a busy GPU, how much it works."""
        return self.status.word() if self.state is GpuState.BUSY else self.state.title

    @property
    def reason(self) -> str:
        """Why it has no present values; empty if it has."""
        return "" if self.sample.state is Availability.OK else self.sample.reason

    @property
    def age(self) -> float | None:
        """Age in seconds of the last values of a stale GPU; None for any other GPU."""
        return round(self.sample.age, 1) if self.sample.state is Availability.STALE else None

    @property
    def is_lasting(self) -> bool:
        """Whether its state lasts when data stops coming."""
        return self.state in LASTING

    @property
    def memory_total(self) -> float | None:
        """Bytes."""
        return nullable(self.sample.value("gpu.memory_total"))

    @property
    def power_limit(self) -> float | None:
        """Watts."""
        return nullable(self.sample.value("gpu.power_limit"))

    @property
    def processes_unknown(self) -> str:
        """Why its processes cannot be listed; empty if they can."""
        missing = self.sample.device.missing
        return missing[PROCESSES].reason if PROCESSES in missing else ""

    @property
    def runs(self) -> list[str]:
        """Ids of the runs on it."""
        return [ranks.first.id for ranks in self.status.runs]

    def run_of(self, process: Process) -> str | None:
        """Return the id of the run of a process; None if it has none."""
        return self.run_ids.get(process.run) if process.run else None

    def last_known(self) -> Mapping[str, float | None]:
        """Return the last values of a stale GPU, as they were `age` seconds ago; empty for any other GPU."""
        if self.age is None:
            return {}
        return {
            panel.metric.name: nullable(self.sample.value(panel.metric.name))
            for panel in GPU_PANELS
            if not panel.is_rate
        }


@dataclass(frozen=True, slots=True)
class Now:
    """The live data of pages at one tick."""

    time: float = 0.0
    """Seconds since 1970 of the newest frame; 0 before the first."""
    hostname: str = ""
    gpus: Sequence[Gpu] = ()
    runs: Mapping[str, LiveRun] = field(default_factory=dict)
    """Runs in the ring, by id."""
    findings: Sequence[Cells] = ()
    """Findings that need attention."""
    not_judged: Sequence[str] = ()
    """Texts on what no rule could judge."""
    processes_known: bool = True
    """False if the source does not record processes."""
    host: Mapping[str, float | None] = field(default_factory=dict)
    """Values of the machine itself; rates for counters."""
    driver: str = ""
    problem: str = ""
    """Why there is no GPU."""
    lacks_card: bool = False
    """Whether the machine is known to have no card, so that a driver would not help."""
    notice: str = ""
    """Sentence on processes that cannot be seen, and why."""
    cluster: ClusterNow | None = None
    """Data of the whole cluster; only on cluster pages."""

    def runs_of(self, gpu: Gpu) -> list[LiveRun]:
        """Return the runs on a GPU."""
        return [self.runs[run] for run in gpu.runs if run in self.runs]
