"""The types of the data that pass from the sampler to the views.

A source returns readings. The sampler joins them into a `Tick`, and the ring stores the tick. A view reads it as a
`Frame`. Live, recorded, replayed and simulated data are all frames.
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
"""Name of the training phase. An epoch is in this phase until the training begins another phase."""
EVALUATION = frozenset(
    ("validate", "validation", "valid", "val", "evaluate", "evaluation", "eval", "test", "testing", "predict", "sanity")
)
"""Phases whose steps do not count as training steps."""


class RunState(IntEnum):
    """Lifecycle state of a run."""

    RUNNING = 0
    FINISHED = 1
    FAILED = 2  # the run's code raised an exception
    DIED = 3  # the process ended without a report: it was killed, or ran out of memory
    INTERRUPTED = 4  # the user interrupted it: Ctrl-C, SIGINT, a notebook's stop button
    STOPPED = 5  # it ended early without a failure: a pruned trial, `run.stop()`, an epoch that an exception left


ENDED_BADLY = (RunState.FAILED, RunState.DIED)
"""States of runs that did not end as their users wanted."""


class FrameworkMemory(NamedTuple):
    """Device memory that the training framework reports, in bytes. Counts start with the process."""

    allocated: float = NAN
    """Bytes in live tensors."""
    reserved: float = NAN
    """Bytes allocated from the driver: live tensors and the allocator's cache."""
    peak: float = NAN
    """Maximum of `allocated` since the process started, or since the user reset it."""
    active: float = NAN
    """Bytes that are live, or that were freed but are still in use by a stream."""
    inactive_split: float = NAN
    """Free bytes in blocks that are partly live. They cannot be returned to the driver."""
    requested: float = NAN
    """Bytes that the training requested. The allocator rounds requests up."""
    retries: float = NAN
    """Number of times the allocator emptied its cache to find room."""
    ooms: float = NAN
    """Number of out-of-memory errors."""
    largest_free: float = NAN
    """Bytes in the largest free block of the pool. Only newer versions of JAX report it."""


class Run(NamedTuple):
    """A training process, as described by its board. A distributed run has one `Run` for each rank."""

    key: str
    """Name of the process's board. This key is unique among all processes."""
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
    """Number of planned epochs; 0 if there is no plan."""
    first_epoch: int = 0
    """Number of the first epoch of this process, in the training's own numbering. After a resume, it is greater than
    `base`."""
    base: int = 0
    """Number with which the framework starts to count epochs: 0 or 1."""
    gpus: tuple[str, ...] = ()
    """UUIDs of the devices on which the process trains."""
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
    """Seconds spent waiting for data since the run began; NaN if the wait is not measured."""
    memory: FrameworkMemory = FrameworkMemory()
    """Device memory of the framework, summed over the devices of the process."""
    metrics: Mapping[str, float] = {}
    """The last logged value of each metric, by name. It is NaN if the training logged NaN."""
    lost_events: int = 0
    """Number of boundaries that were overwritten before they were read."""
    facts: RunFacts = RunFacts()
    """Properties that the training reports, such as its batch size. See `run.RUN_FACTS`."""

    @property
    def epoch_text(self) -> str:
        """The epoch as text, such as `7 (8/90)`; see `units.epoch`."""
        return units.epoch(self.epoch, self.epochs, self.base)

    @property
    def step_text(self) -> str:
        """The step as text: `140`, or `140/300` with a plan. Without a plan, it is empty before the first step."""
        planned = round(self.facts.planned_steps)
        return f"{self.step}/{planned}" if planned else str(self.step or "")

    @property
    def resumed(self) -> bool:
        """Whether the process continues an earlier one. This is the case if its first epoch is greater than `base`."""
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
    LOG = 8  # values were logged that belong to an ended epoch
    EPOCH_ABORTED = 9  # the open epoch ends early. If no epoch is open, the last epoch was in fact aborted
    STEPS = 10  # in a run without epochs: a row of steps ends


class Boundary(NamedTuple):
    """A point in a run, such as the start of an epoch. The training process itself records the exact time."""

    run: str
    """Key of the run (`Run.key`)."""
    number: int
    """Number of this boundary on its board, counted from 1. A gap in the numbers means that a reader missed
    boundaries."""
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
    """Measured seconds of waiting for data since the run began. 0 until the first measurement; NaN if waits cannot be
    measured. `wait_between` returns the wait between two boundaries."""
    asked: float = NAN
    free: float = NAN
    """For OUT_OF_MEMORY: free bytes on the device. `asked` is the number of bytes that the failed allocation
    requested."""
    metrics: Mapping[str, float] = {}
    """For EPOCH_END, EPOCH_ABORTED, RUN_END and LOG: the values logged in this epoch. The ledger has all of these
    values. Ring and recordings have the values that were still the latest ones when the frame was made."""
    peak: float = NAN
    """The framework's peak of live tensors so far, in bytes, summed over the devices of the process. NaN if it was not
    read, or if the framework does not use a device yet. A value above the one of the previous boundary was reached
    between the two boundaries. An equal value was not exceeded between them. A lower value means that the training
    reset the peak. Stored in the ledger, but not in the ring."""
    of_step: int = 0
    """For LOG in a training without epochs: the step to which the metrics belong if the row of this step has already
    ended; else 0. Stored in the ledger, but not in the ring."""


def wait_between(before: float, after: float) -> float:
    """Return the seconds of waiting for data between two boundaries; NaN if no wait was measured.

    `before`, `after`: `wait` of the two boundaries. Any measurement adds at least a few nanoseconds, so equal values
    mean that no wait was measured.
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
    """Key of the run on this device; empty if there is none."""
    age: float = 0.0
    """Age of the values in seconds. Greater than 0 if the device is stale."""
    monotonic_ns: int = 0
    """Time at which the gauges were read, in ns of CLOCK_MONOTONIC. 0 if it was not recorded; the tick's time is used
    then."""
    counters_monotonic_ns: int = 0
    """Time at which the counters were read, in ns of CLOCK_MONOTONIC, from the driver's timestamp. 0 if it is the same
    as the gauges' time."""
    unanswered: float = NAN
    """Seconds since the start of the driver call that has not returned; NaN if there is no such call or no start. `age`
    is longer, because the values were read before the call."""

    @property
    def reason(self) -> str:
        """Text that says why the sample has no values."""
        is_lost_instance = self.state is Availability.LOST and self.device.is_instance
        return "the driver lost this instance" if is_lost_instance else self.state.reason

    @property
    def condition(self) -> Availability:
        """LOST or RESET_REQUIRED if the driver returned this error in place of any value; else `state`.

        These errors concern the whole device, even if only some calls return them.
        """
        if self.state is Availability.OK:
            reasons = self.device.missing.values()
            return next((why for why in _WHOLE_DEVICE if why in reasons), self.state)
        return self.state

    def value(self, metric: str) -> float:
        """Return the value of a metric by its name, such as `gpu.power`."""
        return self.values[GPU_INDEX[metric]]


class XidEvent(NamedTuple):
    """An XID error reported by the driver. `gpumon.model.xids` has the codes."""

    uuid: str
    code: int
    monotonic_ns: int
    """Time at which the report arrived, in ns of CLOCK_MONOTONIC. Drivers report no time."""
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
    """New utilization samples of the driver by UUID, as pairs (ns of CLOCK_MONOTONIC, ratio), oldest first. Not stored
    in the ring."""
    withdrawn: Sequence[str] = ()
    """Keys of runs that were withdrawn because another run reports the same training in more detail. Not stored in the
    ring."""
    about: Mapping[str, "Metadata"] = {}
    """Metadata of runs by key. Stored in the ledger, but not in the ring."""
    unread: int = 0
    """Number of trainings whose boards were not read because their users have too many boards."""
    dropped: int = 0
    """Number of processes that a recorded frame had no room for."""
    xids: Sequence[XidEvent] = ()
    """XID errors since the last tick, oldest first. Stored in the event log, but not in the ring."""


class Parts(Protocol):
    """The stored parts of a frame, decoded on demand."""

    def samples(self) -> tuple[Sample, ...]: ...
    def host(self) -> tuple[float, ...]: ...
    def processes(self) -> tuple[Process, ...]: ...
    def runs(self) -> tuple[Run, ...]: ...
    def boundaries(self) -> tuple[Boundary, ...]: ...


class Frame:
    """One tick in the form that views use. A frame is immutable, and each of its parts is decoded on first use.

    `RingReader` returns frames. They have the same values as the stored `Tick`, except that gauges are rounded to seven
    digits in frames that are not full.
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
        """Number of the frame, counted from 1. Numbers never decrease while a ring exists."""
        self.monotonic_ns = monotonic_ns
        """Time at which the sample was taken, in ns of CLOCK_MONOTONIC. In a recording, differences of these times are
        the recorded ones."""
        self.time = time_ns / 1e9
        """Time at which the sample was taken, in seconds since 1970. In a recording, this is the recorded time."""
        self.interval = interval
        """Planned seconds between ticks."""
        self.sample_duration = sample_duration
        """Seconds that sampling took."""
        self.skipped_ticks = skipped_ticks
        """Number of ticks skipped since the daemon started."""
        self.dropped = dropped
        """Number of processes that this frame had no room for."""
        self.dropped_runs = dropped_runs
        """Number of runs that this frame had no room for, or whose boards were not read."""
        self.is_full = is_full
        """Whether the frame has processes and runs. For all but the last minutes, the ring has only values and
        boundaries. If false, the frame has no processes, and `runs` has only the runs that began or ended in this
        frame."""
        self._parts = parts
        self._samples: tuple[Sample, ...] | None = None
        self._host: tuple[float, ...] | None = None
        self._processes: tuple[Process, ...] | None = None
        self._runs: tuple[Run, ...] | None = None
        self._boundaries: tuple[Boundary, ...] | None = None

    @property
    def left_out(self) -> str:
        """Text that says how many runs and processes this frame had no room for. Empty if it has all of them."""
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
        """Processes on devices, largest device memory first; empty if the frame is not full."""
        if self._processes is None:
            self._processes = self._parts.processes()
        return self._processes

    @property
    def runs(self) -> tuple[Run, ...]:
        """All trainings with a board that are running or have recently ended.

        If the frame is not full, see `is_full`.
        """
        if self._runs is None:
            self._runs = self._parts.runs()
        return self._runs

    @property
    def boundaries(self) -> tuple[Boundary, ...]:
        """Boundaries that the daemon read for this frame. They may have happened earlier."""
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
