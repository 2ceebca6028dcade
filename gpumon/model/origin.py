"""Origin of values: the source, its driver, and its capabilities."""

from enum import Flag, auto
from typing import NamedTuple


class Driver(NamedTuple):
    """Versions of the driver. They are empty until the driver has answered."""

    version: str = ""
    runtime: str = ""
    """The newest programming interface that the driver supports, with its version, such as `CUDA 13.0` or `ROCm
    7.0`."""

    def version_of(self, runtime: str) -> str:
        """Return the version of the programming interface `runtime`. Empty if the driver supports another interface."""
        name, _, version = self.runtime.partition(" ")
        return version if name == runtime else ""


class Capability(Flag):
    """Properties of a source. Code must check these, never the name of the source."""

    LIVE = auto()
    """The source reads hardware of this machine. Its host metrics, processes and ledger are of this machine, too."""
    PROCESSES = auto()
    """The source reports the processes on a device."""
    NOW = auto()
    """The times of samples are this machine's current time. Recordings, for example, have times of their own."""


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
    """One line that says why no GPU can be read and what to do. Empty if there is no problem."""
    ended: bool = False
    """Whether a recording has been played to its end. Views then show its last values."""
    capabilities: Capability = HARDWARE
    parts: tuple["SourceInfo", ...] = ()
    """Origin and driver of each of the combined sources; empty for a single source."""
    notice: str = ""
    """One sentence that says which processes the daemon cannot see and why. Empty if it sees all processes."""
    unanswered: float = 0.0
    """Whole seconds for which the driver has not answered the search for GPUs. 0 if it answers, or if a GPU was already
    found."""
    speed: float = 1.0
    """Playback speed of a recording: recorded seconds per second; 1 for all other sources."""
    lacks_card: bool = False
    """Whether the machine certainly has no card. Installing a driver would then not help."""


class SourceInfo(NamedTuple):
    """Origin and driver of one of several combined sources."""

    origin: Origin
    driver: Driver = Driver()
