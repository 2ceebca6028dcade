"""The types that travel from the sampler to the views.

A source returns readings, the sampler joins them into a `Tick`, the ring stores it, and a view gets a `Frame`. Live,
recorded, replayed and simulated data are all frames.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol

from gpumon.common.numbers import NAN
from gpumon.model import units
from gpumon.model.device import Device
from gpumon.model.metrics import GPU_INDEX, HOST_METRICS, Availability
from gpumon.model.origin import Driver, Origin
from gpumon.model.process import Process
from gpumon.model.run import RunFacts

if TYPE_CHECKING:
    from gpumon.model.run import Metadata

TRAINING = "train"
"""Name of the training phase. Every epoch is in this phase unless the training begins another one."""
EVALUATION = frozenset(
    ("validate", "validation", "valid", "val", "evaluate", "evaluation", "eval", "test", "testing", "predict", "sanity")
)
"""Phases whose steps do not count as training steps."""


class RunState(IntEnum):
    """Lifecycle state of a run."""

    RUNNING = 0
    FINISHED = 1
    FAILED = 2  # its own code raised
    DIED = 3  # the process exited without reporting: killed, or out of memory
    INTERRUPTED = 4  # by the user: Ctrl-C, SIGINT, a notebook's stop button
    STOPPED = 5  # ended early without a failure: a pruned trial, `run.stop()`, a loop that was left


ENDED_BADLY = (RunState.FAILED, RunState.DIED)
"""States of runs that ended in a way their users did not want."""


class FrameworkMemory(NamedTuple):
    """Device memory as the training framework reports it: bytes, and counts since its process started."""

    allocated: float = NAN
    """Bytes in live tensors."""
    reserved: float = NAN
    """Bytes allocated from the driver: live tensors and the allocator's cache."""
    peak: float = NAN
    """Maximum of `allocated` since the process started, or since the user reset it."""
    active: float = NAN
    """Bytes that are live, or freed but still in use by a stream."""
    inactive_split: float = NAN
    """Free bytes in blocks that are partly live. They cannot be returned to the driver."""
    requested: float = NAN
    """Bytes that the training requested, before the allocator rounded them up."""
    retries: float = NAN
    """Number of times the allocator emptied its cache to find room."""
    ooms: float = NAN
    """Number of out-of-memory errors."""
    largest_free: float = NAN
    """Bytes in the largest free block of the pool. Only newer versions of JAX report it."""


class Run(NamedTuple):
    """A training process, as it describes itself on its board. A distributed run has one for each rank."""

    key: str
    """Key of the process, which is unique among all processes: the name of its board."""
    id: str
    """Id of the run, which all its ranks share."""
    name: str
    pid: int
    user: str
    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    framework: str = ""
    epochs: int = 0
    """Planned epochs; 0 if unknown."""
    first_epoch: int = 0
    """Number of the first epoch of this process, in the training's own numbering; more than `base` after a resume."""
    base: int = 0
    """Number of the first epoch in the framework's counting: 0 or 1."""
    gpus: tuple[str, ...] = ()
    """UUIDs of the devices on which it trains."""
    started: float = NAN
    """Start of the process's run, in seconds since 1970."""
    state: RunState = RunState.RUNNING
    epoch: int = -1
    """Number of the newest epoch; -1 before the first epoch."""
    step: int = 0
    phase: str = ""
    epoch_started: float = NAN
    """Start of the newest epoch, in seconds since 1970."""
    updated: float = NAN
    """Time at which the process last wrote its board, in seconds since 1970."""
    wait: float = NAN
    """Seconds spent waiting for data since the run began; NaN if nothing measures it, or it is unknown."""
    memory: FrameworkMemory = FrameworkMemory()
    """Device memory of the framework, summed over the devices of the process."""
    metrics: Mapping[str, float] = {}
    """The values that the training logged last, by name; NaN if it logged NaN."""
    lost_events: int = 0
    """Number of boundaries that were overwritten before they were read."""
    facts: RunFacts = RunFacts()
    """Properties that the training reports, such as its batch size; see `run.RUN_FACTS`."""

    @property
    def epoch_text(self) -> str:
        """The epoch as text, such as `7 (8/90)`; see `units.epoch`."""
        return units.epoch(self.epoch, self.epochs, self.base)

    @property
    def step_text(self) -> str:
        """The step as text, such as `140/300` with a plan; empty before the first step without one."""
        planned = round(self.facts.planned_steps)
        return f"{self.step}/{planned}" if planned else str(self.step or "")

    @property
    def resumed(self) -> bool:
        """Whether its first epoch shows that it continues an earlier process."""
        return self.first_epoch > self.base


class Mark(IntEnum):
    """Kinds of boundaries."""

    EPOCH_BEGIN = 1
    EPOCH_END = 2
    PHASE = 3
    CHECKPOINT = 4
    RUN_END = 5
    RUN_BEGIN = 6
    OUT_OF_MEMORY = 7
    LOG = 8  # values that belong to an epoch that has ended
    EPOCH_ABORTED = 9  # the open epoch ends early; without an open epoch, the last one was aborted
    STEPS = 10  # a row of steps ends, in a run without epochs


class Boundary(NamedTuple):
    """A point in a run, such as the start of an epoch, with the exact time recorded by the training process itself."""

    run: str
    """Key of the run (`Run.key`)."""
    number: int
    """Number of this boundary on its board, counted from 1. A gap shows a reader that it missed some."""
    mark: Mark
    epoch: int
    step: int
    phase: str
    """The phase after this boundary."""
    monotonic_ns: int
    """Time of the boundary, in ns of CLOCK_MONOTONIC."""
    time_ns: int
    """Time of the boundary, in ns since 1970."""
    wait: float = NAN
    """Measured seconds of waiting for data since the run began: 0 until something measures it, NaN if it is unknown.
    `wait_between` returns the wait between two boundaries."""
    asked: float = NAN
    free: float = NAN
    """Free bytes on the device, for OUT_OF_MEMORY; `asked` is the number of bytes that the failed allocation
    requested."""
    metrics: Mapping[str, float] = {}
    """For EPOCH_END, EPOCH_ABORTED, RUN_END and LOG: the values logged in this epoch. The ledger has all of them. Ring
    and recordings have those that were still the latest ones when the frame was made."""
    peak: float = NAN
    """The framework's peak of live tensors so far, in bytes over all devices of the process; NaN if it was not read, or
    if the framework does not use a device yet. If it has risen since the previous boundary, it was reached between the
    two. If it is the same, it was not exceeded. If it has fallen, the training has reset it. Stored in the ledger, but
    not in the ring."""
    of_step: int = 0
    """For LOG in a training without epochs: the step to which its metrics belong, if its row has already ended; else 0.
    Stored in the ledger, but not in the ring."""


def wait_between(before: float, after: float) -> float:
    """Return the seconds of waiting for data between two boundaries; NaN if nothing measured it.

    `before` and `after` are the `wait` of the boundaries. Any measurement adds at least nanoseconds, so two equal
    numbers mean that there was no measurement.
    """
    return after - before if after > before else NAN


_WHOLE_DEVICE = (Availability.LOST, Availability.RESET_REQUIRED)


class Sample(NamedTuple):
    """All metrics of one device at one tick."""

    device: Device
    state: Availability
    values: Sequence[float]
    """Values of the metrics, in the order of `GPU_METRICS`."""
    run: str = ""
    """Key of the run on this device; empty without one."""
    age: float = 0.0
    """Age of the values in seconds; more than 0 if the device is stale."""
    monotonic_ns: int = 0
    """ns of CLOCK_MONOTONIC when the gauges were read; 0 if only the time of the tick is known."""
    counters_monotonic_ns: int = 0
    """ns of CLOCK_MONOTONIC when the counters were read, by the driver's timestamp; 0 if it is the gauges' time."""
    unanswered: float = NAN
    """Seconds since the start of the driver call that has not returned; NaN if unknown. `age` is longer than that."""

    @property
    def reason(self) -> str:
        """Text that says why the sample has no values."""
        is_lost_instance = self.state is Availability.LOST and self.device.is_instance
        return "the driver lost this MIG instance" if is_lost_instance else self.state.reason

    @property
    def condition(self) -> Availability:
        """LOST or RESET_REQUIRED if the driver says so in place of any value, although it returns others; else `state`.

        These errors are about the whole device, whichever call returns them.
        """
        if self.state is Availability.OK:
            reasons = self.device.missing.values()
            return next((why for why in _WHOLE_DEVICE if why in reasons), self.state)
        return self.state

    def value(self, metric: str) -> float:
        """Return the value of a metric by its name, such as `gpu.power`."""
        return self.values[GPU_INDEX[metric]]


class XidEvent(NamedTuple):
    """An XID error reported by the driver; `gpumon.model.xids` has the codes."""

    uuid: str
    code: int
    monotonic_ns: int
    """ns of CLOCK_MONOTONIC when the report arrived; drivers give no time."""
    time_ns: int
    """Time at which the report arrived, in ns since 1970."""


class Tick(NamedTuple):
    """One round of sampling, as the sampler passes it to the ring."""

    monotonic_ns: int
    time_ns: int
    samples: Sequence[Sample]
    host: Sequence[float]
    """Values of the host metrics, in the order of `HOST_METRICS`."""
    processes: Sequence[Process]
    runs: Sequence[Run]
    boundaries: Sequence[Boundary]
    origin: Origin
    driver: Driver = Driver()
    hostname: str = ""
    interval_ns: int = 0
    """Planned time between ticks in ns."""
    sample_duration_ns: int = 0
    """Duration of sampling in ns."""
    skipped_ticks: int = 0
    """Number of ticks skipped since the daemon started, because an earlier tick took too long."""
    utilization_samples: Mapping[str, Sequence[tuple[int, float]]] = {}
    """New utilization samples of the driver by UUID: (ns of CLOCK_MONOTONIC, ratio), oldest first. Not in the ring."""
    withdrawn: Sequence[str] = ()
    """Keys of runs that were withdrawn: another run reports the same training in more detail. Not in the ring."""
    about: Mapping[str, "Metadata"] = {}
    """Metadata of runs by key. Not in the ring, but in the ledger."""
    unread: int = 0
    """Number of trainings whose boards were not read, because their users have too many."""
    dropped: int = 0
    """Number of processes for which a recorded frame had no room."""
    xids: Sequence[XidEvent] = ()
    """XID errors since the last tick, in order. Not in the ring, but in the event log."""


class Parts(Protocol):
    """The stored parts of a frame, decoded on demand."""

    def samples(self) -> tuple[Sample, ...]: ...
    def host(self) -> tuple[float, ...]: ...
    def processes(self) -> tuple[Process, ...]: ...
    def runs(self) -> tuple[Run, ...]: ...
    def boundaries(self) -> tuple[Boundary, ...]: ...


class Frame:
    """One tick in the form that views use. It is immutable, and each part is decoded on first use.

    `RingReader` returns frames. They have the same values as the stored `Tick`, except that gauges of a frame that is
    not full are rounded to seven digits.
    """

    __slots__ = (
        "_boundaries", "_host", "_parts", "_processes", "_runs", "_samples",
        "dropped", "dropped_runs", "interval", "is_full", "monotonic_ns", "number", "sample_duration", "skipped_ticks",
        "time",
    )  # fmt: skip

    def __init__(
        self,
        number: int,
        monotonic_ns: int,
        time_ns: int,
        interval: float,
        sample_duration: float,
        skipped_ticks: int,
        dropped: int,
        parts: Parts,
        dropped_runs: int = 0,
        is_full: bool = True,
    ) -> None:
        self.number = number
        """Number of the frame, counted from 1. It never decreases during the history of a ring."""
        self.monotonic_ns = monotonic_ns
        """ns of CLOCK_MONOTONIC when the sample was taken. Frames of a recording have the recording's own spacing."""
        self.time = time_ns / 1e9
        """Time at which the sample was taken, in seconds since 1970. Frames of a recording have the recorded time."""
        self.interval = interval
        """Planned seconds between ticks."""
        self.sample_duration = sample_duration
        """Seconds that sampling took."""
        self.skipped_ticks = skipped_ticks
        """Number of ticks skipped since the daemon started."""
        self.dropped = dropped
        """Number of processes for which this frame had no room."""
        self.dropped_runs = dropped_runs
        """Number of runs for which this frame had no room, or whose boards were not read."""
        self.is_full = is_full
        """Whether the frame has processes and runs. For all but the last minutes, the ring has only values and
        boundaries. If false, the processes are unknown, and `runs` has the runs that began or ended in this frame."""
        self._parts = parts
        self._samples: tuple[Sample, ...] | None = None
        self._host: tuple[float, ...] | None = None
        self._processes: tuple[Process, ...] | None = None
        self._runs: tuple[Run, ...] | None = None
        self._boundaries: tuple[Boundary, ...] | None = None

    @property
    def left_out(self) -> str:
        """The number of runs and processes for which this frame had no room, as text; empty if it has all."""
        counts = (self.dropped_runs, "run"), (self.dropped, "process")
        parts = [units.counted(number, what) for number, what in counts if number]
        return f"{' and '.join(parts)} left out: more than a frame can hold" if parts else ""

    @property
    def samples(self) -> tuple[Sample, ...]:
        """Samples of all devices, in the order of `by_number`."""
        if self._samples is None:
            self._samples = self._parts.samples()
        return self._samples

    @property
    def host(self) -> tuple[float, ...]:
        """Values of the host metrics, in the order of `HOST_METRICS`."""
        if self._host is None:
            self._host = self._parts.host()
        return self._host

    @property
    def processes(self) -> tuple[Process, ...]:
        """Processes on devices, the largest device memory first; empty if the frame is not full."""
        if self._processes is None:
            self._processes = self._parts.processes()
        return self._processes

    @property
    def runs(self) -> tuple[Run, ...]:
        """All trainings with a board, running or recently ended; see `is_full`."""
        if self._runs is None:
            self._runs = self._parts.runs()
        return self._runs

    @property
    def boundaries(self) -> tuple[Boundary, ...]:
        """Boundaries that the daemon read for this frame. Their own times may be earlier."""
        if self._boundaries is None:
            self._boundaries = self._parts.boundaries()
        return self._boundaries


class _NoParts:
    """The parts of an empty frame."""

    def samples(self) -> tuple[Sample, ...]:
        return ()

    def host(self) -> tuple[float, ...]:
        return (NAN,) * len(HOST_METRICS)

    def processes(self) -> tuple[Process, ...]:
        return ()

    def runs(self) -> tuple[Run, ...]:
        return ()

    def boundaries(self) -> tuple[Boundary, ...]:
        return ()


def empty_frame(monotonic_ns: int, time_ns: int) -> Frame:
    """Return a frame without any values."""
    return Frame(
        number=0,
        monotonic_ns=monotonic_ns,
        time_ns=time_ns,
        interval=1.0,
        sample_duration=0.0,
        skipped_ticks=0,
        dropped=0,
        parts=_NoParts(),
    )
