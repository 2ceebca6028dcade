"""The interface of all sources, and the readings that they return."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from gpumon.common.clock import SECOND, Clock
from gpumon.common.driver_calls import DriverCall
from gpumon.common.numbers import NAN
from gpumon.model.device import Device
from gpumon.model.frame import Boundary, Run, Sample, XidEvent
from gpumon.model.metrics import GPU_METRICS, Availability
from gpumon.model.origin import Capability, Driver, Origin
from gpumon.model.process import Process
from gpumon.sources.cgroup import CgroupInfo
from gpumon.sources.executor import AnyCall

if TYPE_CHECKING:
    from gpumon.recording.playback import Playback


@dataclass(frozen=True, slots=True)
class Pace:
    """Timing and losses of a recorded frame. The fields have the same meaning as in `Frame`."""

    interval_ns: int
    sample_duration_ns: int
    skipped_ticks: int
    dropped: int
    dropped_runs: int


@dataclass(frozen=True, slots=True)
class Reading:
    """The values that a source read at one moment."""

    monotonic_ns: int
    """Time of the reading, in ns of CLOCK_MONOTONIC. For a recording, the intervals between these times are the
    recorded ones."""
    time_ns: int
    """Time of the reading, in ns since 1970. For a recording, the recorded time."""
    samples: Sequence[Sample]
    processes: Sequence[Process] = ()
    """Processes on the devices. The object must not be modified later, because consumers look for changes only if it is
    a new object."""
    runs: Sequence[Run] = ()
    """Runs of a simulation or a recording. Other sources return none, because real runs are read from their boards."""
    boundaries: Sequence[Boundary] = ()
    host: Sequence[float] | None = None
    """Values of the host metrics, in the order of `HOST_METRICS`; None if the source does not read the host."""
    hostname: str = ""
    utilization_samples: Mapping[str, Sequence[tuple[int, float]]] = field(default_factory=dict)
    """The driver's own utilization samples since the last reading, as in `Tick.utilization_samples`."""
    pace: Pace | None = None
    """Timing and losses of a recorded frame; None for a live reading."""
    xids: Sequence[XidEvent] = ()
    """XID errors since the last reading, oldest first."""


class ProcessInfo(NamedTuple):
    """What this machine knows about a process.

    Fields are empty or NaN if the process is not visible. It may be in another container.
    """

    name: str = ""
    user: str = ""
    started: float = NAN
    """Start of the process, in seconds since 1970."""
    cpu_utilization: float = NAN
    """CPU seconds per second since the previous description of the process; NaN in the first description."""
    host_memory: float = NAN
    """Resident set size in bytes."""
    cgroup: CgroupInfo = CgroupInfo()


Describe = Callable[[int], ProcessInfo]
"""Function that describes a process by pid. May be called from any thread."""


@dataclass(frozen=True, slots=True)
class Request:
    """Options for opening a source."""

    argument: str
    """Text after the colon in the value of `--source`; empty if there is none."""
    clock: Clock
    describe: Describe
    interval: float = 1.0
    """Seconds between two reads."""
    speed: float = 1.0
    """Playback speed of a recording."""
    playback: Playback | None = None
    """Playback controls of a recording."""
    gpm: bool = True
    """Whether the GPUs' performance counters may be read. Profilers use the same counters."""


class Source(Protocol):
    """Reads hardware, a recording or a simulation.

    `read` never raises an error because of a device. A missing value is NaN. The reason is in the state of the sample
    and in `missing` of its device. The constructor may raise SourceError.
    """

    capabilities: Capability
    """Capabilities of the source. `origin()` passes them on to readers of frames."""
    tick_period: float
    """Seconds between the ticks of a recording; 0 if each `read` returns one tick."""

    def origin(self) -> Origin:
        """Return the name and label of the source, and why no GPU can be read (empty if one can).

        The result may change between reads.
        """

    def driver(self) -> Driver:
        """Return the versions of the driver. They are empty until the driver has answered."""

    def read(self) -> Sequence[Reading]:
        """Return the readings since the last read, oldest first.

        Live sources return one reading. A recording returns all ticks that have become due; there may be none.
        """

    def close(self) -> None:
        """Close the driver or the file."""


@runtime_checkable
class HasDriverCalls(Protocol):
    """A source that measures how long its driver calls take."""

    def driver_calls(self) -> Sequence[DriverCall]:
        """Return how long each driver function has taken so far, most expensive first."""


@runtime_checkable
class RestoresDevices(Protocol):
    """A source that may be unable to identify a device, such as a GPU that the driver has lost."""

    def restore(self, samples: Sequence[Sample]) -> None:
        """Set the devices that earlier daemons have seen since the last boot, as they last saw them.

        Must be called before the first read.
        """


NO_VALUES = (NAN,) * len(GPU_METRICS)
"""Values of a sample that has none."""
TIMEOUT = 0.5
"""A tick waits at most this many seconds for a GPU. After a GPU was late, ticks do not wait for it until it has
answered."""
FIRST_TIMEOUT = 1.5
"""The first read waits at most this many seconds for a GPU, because it may have to wake up."""


def timeout_for(interval: float) -> float:
    """Return how many seconds a tick waits for a GPU. `interval`: seconds between ticks."""
    return min(TIMEOUT, 0.8 * interval)


def late_sample(device: Device, call: AnyCall, last: Sample | None, now: int) -> Sample:
    """Return the sample of a GPU for the tick at `now` (ns) if the call that reads it has no new result.

    `last`: the last sample of the GPU; None if there is none. The result has the same values and is STALE.
    """
    if call.failure is not None and not call.is_running:
        return Sample(device, Availability.FAILED, NO_VALUES)
    unanswered = max(0, now - call.started_at) / SECOND
    if last is None:
        return Sample(device, Availability.STALE, NO_VALUES, age=unanswered, unanswered=unanswered)
    age = max(0, now - last.monotonic_ns) / SECOND
    return last._replace(state=Availability.STALE, age=age, unanswered=unanswered)


def to_base_units(number: float, scale: float) -> float:
    """Convert a number to base units. `scale`: size of its unit in base units.

    If the scale is a fraction, the number is divided, because 69 / 100 is 0.69 but 69 * 0.01 is not.
    """
    return number * scale if scale >= 1 else number / round(1 / scale)
