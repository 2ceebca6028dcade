"""Where values come from: the source, its driver, and its capabilities."""

from enum import Flag, auto
from typing import NamedTuple


class Driver(NamedTuple):
    """Versions of the driver. They are empty until the driver has answered."""

    version: str = ""
    runtime: str = ""
    """The newest programming interface that it supports, with its version: `CUDA 13.0`, `ROCm 7.0`."""

    def version_of(self, runtime: str) -> str:
        """Return the version of the programming interface `runtime`; empty if the driver supports a different one."""
        name, _, version = self.runtime.partition(" ")
        return version if name == runtime else ""


class Capability(Flag):
    """Properties of a source. Code checks these and never the source's name."""

    LIVE = auto()
    """The source reads hardware of this machine. Host metrics, processes and ledger belong to this machine, too."""
    PROCESSES = auto()
    """The source reports the processes on a device."""
    NOW = auto()
    """The samples have the current time of this machine. A recording, for example, has its own times."""


HARDWARE = Capability.LIVE | Capability.PROCESSES | Capability.NOW
SIMULATED = Capability.PROCESSES | Capability.NOW
RECORDED = Capability(0)


class Origin(NamedTuple):
    """Source of values, with its label and capabilities. Views show `label` on every screen."""

    source: str
    """Name of the source, such as `nvml`, for output to programs. Code checks `capabilities` instead."""
    label: str = ""
    """Label of data that is not live, such as `SIMULATED` or `REPLAY file.csv.gz ×10`; empty for live hardware."""
    problem: str = ""
    """Reason why no GPU can be read, and what to do, in one line; empty if there is no problem."""
    ended: bool = False
    """Whether a recording has been played to its end. Views then show its last values."""
    capabilities: Capability = HARDWARE
    parts: tuple["SourceInfo", ...] = ()
    """Origin and driver of each of the combined sources; empty for a single source."""
    notice: str = ""
    """Which processes the daemon cannot see, and why, in one sentence; empty if it sees all."""
    unanswered: float = 0.0
    """Whole seconds for which the driver has not answered the search for GPUs; 0 if it answers or a GPU is known."""
    speed: float = 1.0
    """Playback speed of a recording: recorded seconds per second; 1 for all other sources."""
    lacks_card: bool = False
    """Whether the machine is known to have no card, so that a driver would not help."""


class SourceInfo(NamedTuple):
    """Origin and driver of one of several combined sources."""

    origin: Origin
    driver: Driver = Driver()
