"""Where numbers come from: the source, its driver, and what it is able to give."""

from enum import Flag, auto
from typing import NamedTuple


class Driver(NamedTuple):
    """The driver, once it has answered."""

    version: str = ""
    runtime: str = ""
    """The newest programming interface that it runs, with its version: `CUDA 13.0`, `ROCm 7.0`."""

    def version_of(self, runtime: str) -> str:
        """The version of this programming interface; empty where the driver is another's."""
        name, _, version = self.runtime.partition(" ")
        return version if name == runtime else ""


class Capability(Flag):
    """Properties of a source, for those who must know: they ask these, never its name."""

    LIVE = auto()
    """Reads hardware of this machine: its host, its processes and its ledger belong to it."""
    PROCESSES = auto()
    """Knows which processes are on a device."""
    NOW = auto()
    """Stamps readings with this machine's clock; without it they keep times of their own, as a recording's do."""


HARDWARE = Capability.LIVE | Capability.PROCESSES | Capability.NOW
SIMULATED = Capability.PROCESSES | Capability.NOW
RECORDED = Capability(0)


class Origin(NamedTuple):
    """Where the numbers come from; views show `label` on every screen."""

    source: str
    """The source's name, such as `nvml`; programs read it, and nothing here decides by it."""
    label: str = ""
    """Empty for live hardware, else such as `SIMULATED` or `REPLAY file.csv.gz ×10`."""
    problem: str = ""
    """Why no GPU can be read, and what to do, in one line; empty when all is well."""
    ended: bool = False
    """Whether a recording has been played to its end: its last values stand still, and nothing here is live."""
    capabilities: Capability = HARDWARE
    parts: tuple["SourceInfo", ...] = ()
    """Where several sources are combined, each of them; else empty."""
    notice: str = ""
    """Processes that cannot be seen where the daemon runs, and why, in one sentence; empty where all can be."""
    unanswered: float = 0.0
    """Whole seconds for which a driver has not answered the question for its GPUs, while none is known; else 0."""
    speed: float = 1.0
    """Seconds of a recording that pass in one second; 1 for everything else."""


class SourceInfo(NamedTuple):
    """One of several sources: its own origin and driver."""

    origin: Origin
    driver: Driver = Driver()
