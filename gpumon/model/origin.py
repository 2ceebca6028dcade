"""Where values come from: the source, its driver, and its capabilities."""

from enum import Flag, auto
from typing import NamedTuple


class Driver(NamedTuple):
    """The driver; empty before it has answered."""

    version: str = ""
    runtime: str = ""
    """The newest programming interface that it supports, with its version: `CUDA 13.0`, `ROCm 7.0`."""

    def version_of(self, runtime: str) -> str:
        """Return the version of a programming interface; empty if the driver has another one."""
        name, _, version = self.runtime.partition(" ")
        return version if name == runtime else ""


class Capability(Flag):
    """Properties of a source. Code decides by these, never by the source's name."""

    LIVE = auto()
    """Reads hardware of this machine: its host, processes and ledger belong to it."""
    PROCESSES = auto()
    """Knows the processes on a device."""
    NOW = auto()
    """Uses this machine's clock; other sources have their own times, such as a recording."""


HARDWARE = Capability.LIVE | Capability.PROCESSES | Capability.NOW
SIMULATED = Capability.PROCESSES | Capability.NOW
RECORDED = Capability(0)


class Origin(NamedTuple):
    """Where values come from; views show `label` on every screen."""

    source: str
    """Name of the source, such as `nvml`, for programs; no code decides by it."""
    label: str = ""
    """Empty for live hardware, else such as `SIMULATED` or `REPLAY file.csv.gz ×10`."""
    problem: str = ""
    """Why no GPU can be read, and what to do, in one line; empty if all is well."""
    ended: bool = False
    """Whether a recording has been played to its end: the last values are shown, and nothing is live."""
    capabilities: Capability = HARDWARE
    parts: tuple["SourceInfo", ...] = ()
    """Each source of a combined one; else empty."""
    notice: str = ""
    """Which processes the daemon cannot see, and why, in one sentence; empty if it sees all."""
    unanswered: float = 0.0
    """Whole seconds that the driver has not answered the scan for its GPUs, while none is known; else 0."""
    speed: float = 1.0
    """Recorded seconds that are played per second; 1 for everything else."""


class SourceInfo(NamedTuple):
    """One of several combined sources: its own origin and driver."""

    origin: Origin
    driver: Driver = Driver()
