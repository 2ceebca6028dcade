"""The interface of every source: it gives readings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from gpumon.common.clock import Clock
from gpumon.common.driver_calls import DriverCall
from gpumon.common.numbers import NAN
from gpumon.model.frame import Boundary, Run, Sample, XidEvent
from gpumon.model.origin import Capability, Driver, Origin
from gpumon.model.process import Process
from gpumon.sources.containers import Confinement

if TYPE_CHECKING:
    from gpumon.recording.playback import Playback


class Pace(NamedTuple):
    """Timing and losses of a recorded frame, as in `Frame`."""

    interval_ns: int
    sample_duration_ns: int
    skipped_ticks: int
    dropped: int
    dropped_runs: int


class Reading(NamedTuple):
    """The values of a source at one moment."""

    monotonic_ns: int
    """ns; of a recording, its own spacing laid onto CLOCK_MONOTONIC."""
    time_ns: int
    """ns since 1970; of a recording, its own time."""
    samples: Sequence[Sample]
    processes: Sequence[Process] = ()
    """Never changed once handed out: accounts look for users only in one that is another object than the one before."""
    runs: Sequence[Run] = ()
    """Only of a simulation: real runs come from their boards."""
    boundaries: Sequence[Boundary] = ()
    host: Sequence[float] | None = None
    """In the order of `HOST_METRICS`; None where the source does not know the host."""
    hostname: str = ""
    utilization_samples: Mapping[str, Sequence[tuple[int, float]]] = {}
    """The driver's own utilization samples since the last reading, as in `Tick.utilization_samples`."""
    pace: Pace | None = None
    """Of a frame that was recorded; None where it is sampled now."""
    xids: Sequence[XidEvent] = ()
    """XID errors since the last reading, in their order."""


class Described(NamedTuple):
    """Facts of a process that the machine knows; empty and NaN for one that cannot be seen, as in another container."""

    name: str = ""
    user: str = ""
    started: float = NAN
    """Seconds since 1970."""
    cpu_utilization: float = NAN
    """CPU time per second since it was described before; NaN the first time."""
    host_memory: float = NAN
    """Resident set, bytes."""
    confinement: Confinement = Confinement()


Describe = Callable[[int], Described]
"""By pid; may be called from any thread."""


class Request(NamedTuple):
    """All that opening a source takes."""

    argument: str
    """Text after the colon in `--source`; empty without one."""
    clock: Clock
    describe: Describe
    interval: float = 1.0
    """Seconds between two reads."""
    speed: float = 1.0
    """Of a recording: its seconds per second."""
    playback: Playback | None = None
    """Of a recording: its controls."""
    gpm: bool = True
    """Whether the performance counters of the GPUs may be read, which profilers use too."""


class Source(Protocol):
    """Reads hardware, or what stands for it.

    `read` never raises for a device that fails: a missing value is NaN, and the reason is in the
    sample's state and its device's `missing`. Constructing a source may raise SourceError.
    """

    capabilities: Capability
    """Capabilities of the source; `origin()` passes them on to readers of frames."""
    tick_period: float
    """Seconds between its ticks as it plays; 0 where it gives one whenever it is asked."""

    def origin(self) -> Origin:
        """Name, label and, when nothing can be read, the problem. May change between reads."""

    def driver(self) -> Driver:
        """The driver's versions, as far as known."""

    def read(self) -> Sequence[Reading]:
        """Return the readings since the last read, oldest first.

        Live sources give one. A recording gives every tick that has become due, none when
        nothing has.
        """

    def close(self) -> None:
        """Let go of the driver or the file."""


@runtime_checkable
class AsksDriver(Protocol):
    """A source that knows what a driver's calls cost."""

    def driver_calls(self) -> Sequence[DriverCall]:
        """Costs of the driver's calls so far, the dearest first."""


@runtime_checkable
class KnowsDevices(Protocol):
    """A source that may meet devices which do not say who they are."""

    def restore(self, samples: Sequence[Sample]) -> None:
        """Take the devices that an earlier daemon of this boot had last, as they were; before the first read."""


def from_units(number: float, scale: float) -> float:
    """`number` of a driver's or a log's units in base units, `scale` base units each.

    Divides where the scale is a fraction: 69 percent are 0.69, where 69 * 0.01 is not.
    """
    factor, divisor = parts_of(scale)
    return number * factor / divisor


def parts_of(scale: float) -> tuple[float, int]:
    """By what `from_units` multiplies and divides; for those who read the same unit again and again."""
    return (scale, 1) if scale >= 1 else (1, round(1 / scale))
