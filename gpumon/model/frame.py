"""The types that travel from the sampler to the views.

A source gives readings, the sampler joins them into a `Tick`, the ring stores it, and a view
gets a `Frame`. Live, recorded, replayed and simulated data are all frames.
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
    from gpumon.model.run import About

TRAINING = "train"
"""The phase that is training itself: what any epoch is in, unless the training says otherwise."""
EVALUATION = frozenset(
    ("validate", "validation", "valid", "val", "evaluate", "evaluation", "eval", "test", "testing", "predict", "sanity")
)
"""Phases whose steps are no steps of training, whatever else an epoch has."""


class RunState(IntEnum):
    """Lifecycle state of a run."""

    RUNNING = 0
    FINISHED = 1
    FAILED = 2  # its own code raised
    DIED = 3  # the process exited without reporting: killed, or out of memory
    INTERRUPTED = 4  # stopped by the user: Ctrl-C, SIGINT, the stop button of a notebook
    STOPPED = 5  # ended before its end without a failure: a pruned trial, `run.stop()`, a loop that was left


ENDED_BADLY = (RunState.FAILED, RunState.DIED)  # otherwise than their users wanted


class FrameworkMemory(NamedTuple):
    """Device memory as a training's framework reports it: bytes, and counts since its process began."""

    allocated: float = NAN
    """In live tensors."""
    reserved: float = NAN
    """Taken from the driver: live tensors and the allocator's cache."""
    peak: float = NAN
    """The most that was allocated, since the process began or since the user reset it."""
    active: float = NAN
    """Live, or freed and still in use by a stream."""
    inactive_split: float = NAN
    """Free parts of blocks of which another part is live: they cannot be given back to the driver."""
    requested: float = NAN
    """Bytes requested, before the allocator rounded them up."""
    retries: float = NAN
    """Number of times the allocator emptied its cache to find room."""
    ooms: float = NAN
    """Out-of-memory errors."""
    largest_free: float = NAN
    """The largest free block of its pool; told by JAX, of later versions."""


class Run(NamedTuple):
    """A training process as its board shows it; a distributed run has one for each rank."""

    key: str
    """Unique among all processes: the board's name."""
    id: str
    """Shared by all ranks of a run."""
    name: str
    pid: int
    user: str
    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    framework: str = ""
    epochs: int = 0
    """Epochs planned; 0 when not told."""
    first_epoch: int = 0
    """Number of the first epoch of this process, as the training counts; more than `base` after a resume."""
    base: int = 0
    """Where the training's framework begins to count epochs: 0 or 1."""
    gpus: tuple[str, ...] = ()
    """UUIDs of the devices it trains on."""
    started: float = NAN
    """Seconds since 1970."""
    state: RunState = RunState.RUNNING
    epoch: int = -1
    """-1 before the first."""
    step: int = 0
    phase: str = ""
    epoch_started: float = NAN
    """Seconds since 1970."""
    updated: float = NAN
    """Seconds since 1970; when the process last wrote its board."""
    wait: float = NAN
    """Seconds spent waiting for data since the run began; NaN where nobody has measured it, or it cannot be told."""
    memory: FrameworkMemory = FrameworkMemory()
    """Over all its devices."""
    metrics: Mapping[str, float] = {}
    """Values that the training logged last, by name; a NaN is a logged NaN."""
    lost_events: int = 0
    """Boundaries that were overwritten before anybody read them."""
    facts: RunFacts = RunFacts()
    """Properties that the training reports, such as its batch size: `run_facts` has the table."""

    @property
    def epoch_text(self) -> str:
        """The epoch for people, such as `7 (8/90)`; see `units.epoch`."""
        return units.epoch(self.epoch, self.epochs, self.base)

    @property
    def step_text(self) -> str:
        """The step for people, such as `140/300` of a plan; empty before the first where none are planned."""
        planned = round(self.facts.planned_steps)
        return f"{self.step}/{planned}" if planned else str(self.step or "")

    @property
    def resumed(self) -> bool:
        """Whether it continues what an earlier process began, as far as its first epoch shows."""
        return self.first_epoch > self.base


class Mark(IntEnum):
    """The kinds of boundaries."""

    EPOCH_BEGIN = 1
    EPOCH_END = 2
    PHASE = 3
    CHECKPOINT = 4
    RUN_END = 5
    RUN_BEGIN = 6
    OUT_OF_MEMORY = 7
    LOG = 8  # numbers that belong to an epoch that is over
    EPOCH_ABORTED = 9  # the open epoch is over before its end; or the one that was over last was none
    STEPS = 10  # a row of steps of a run without epochs is over


class Boundary(NamedTuple):
    """An exact moment in a run, taken in the training process itself."""

    run: str
    """Key of the run."""
    number: int
    """Counts the boundaries of a board from 1, so that a reader sees what it missed."""
    mark: Mark
    epoch: int
    step: int
    phase: str
    """The phase from here on."""
    monotonic_ns: int
    """ns, CLOCK_MONOTONIC of the machine."""
    time_ns: int
    """ns since 1970."""
    wait: float = NAN
    """Seconds waited for data since the run began, as far as it was measured: 0 while nobody has measured it, NaN
    where it cannot be told. `waited_between` gives the difference of two."""
    asked: float = NAN
    free: float = NAN
    """Of OUT_OF_MEMORY, bytes: what the allocation asked for, and what the device had."""
    metrics: Mapping[str, float] = {}
    """Of EPOCH_END, EPOCH_ABORTED, RUN_END and LOG: what was logged in this epoch. In the ledger all; in the ring and
    in recordings those that nothing logged later had replaced by the frame in which the boundary is."""
    peak: float = NAN
    """The framework's own peak of live tensors until then: bytes, over all devices of the process; NaN where it was
    not read, or the framework has not come up on a device yet. Risen since the boundary before, it is the peak between
    the two; else that was at most so much. Fallen, the training has reset it. In the ledger, not in the ring."""
    of_step: int = 0
    """Of LOG, where it is not 0: the step to which its metrics belong, in a training without epochs, whose row is
    over. In the ledger, not in the ring."""


def waited_between(before: float, after: float) -> float:
    """Return the seconds waited for data between two boundaries, by the `wait` of both; NaN where nobody measured.

    Whoever measures a wait adds something, if only nanoseconds: the same number twice says that nobody did.
    """
    return after - before if after > before else NAN


class Sample(NamedTuple):
    """All metrics of one device at one tick."""

    device: Device
    state: Availability
    values: Sequence[float]
    """In the order of `GPU_METRICS`."""
    run: str = ""
    """Key of the run in force on this device, or empty."""
    age: float = 0.0
    """Seconds since the values were true; more than 0 when the device is stale."""
    monotonic_ns: int = 0
    """ns, CLOCK_MONOTONIC: when the gauges were read; 0 where only the tick's own time is known."""
    counters_monotonic_ns: int = 0
    """ns, CLOCK_MONOTONIC: when the counters held their values, by the driver's own stamp; 0: as the gauges."""
    unanswered: float = NAN
    """Seconds since its driver was asked, where it has not answered; NaN where that is not known. Its `age` is more."""

    @property
    def reason(self) -> str:
        """Why there are no values, for people."""
        is_part = self.state is Availability.LOST and self.device.is_instance
        return "the driver lost this MIG instance" if is_part else self.state.reason

    def value(self, metric: str) -> float:
        """The value of a metric by its name, such as `gpu.power`."""
        return self.values[GPU_INDEX[metric]]


class XidEvent(NamedTuple):
    """An XID error, as the driver reported it; `gpumon.model.xids` has the codes."""

    uuid: str
    code: int
    monotonic_ns: int
    """ns, CLOCK_MONOTONIC: when the report came; drivers give no time of their own."""
    time_ns: int
    """ns since 1970, of the same moment."""


class Tick(NamedTuple):
    """One round of sampling, as the sampler hands it to the ring."""

    monotonic_ns: int
    time_ns: int
    samples: Sequence[Sample]
    host: Sequence[float]
    """In the order of `HOST_METRICS`."""
    processes: Sequence[Process]
    runs: Sequence[Run]
    boundaries: Sequence[Boundary]
    origin: Origin
    driver: Driver = Driver()
    hostname: str = ""
    interval_ns: int = 0
    """ns between ticks as planned."""
    sample_duration_ns: int = 0
    """ns that taking this sample took."""
    skipped_ticks: int = 0
    """Ticks skipped since the daemon started, because one before them took too long."""
    utilization_samples: Mapping[str, Sequence[tuple[int, float]]] = {}
    """The driver's own utilization samples that are new, by UUID: (ns, CLOCK_MONOTONIC; ratio), oldest first.
    Not stored in the ring."""
    withdrawn: Sequence[str] = ()
    """Keys of runs that were taken back, because another run tells more of the same. Not stored in the ring."""
    about: Mapping[str, "About"] = {}
    """Particulars of runs, by key. Not stored in the ring: the ledger has them."""
    unread: int = 0
    """Trainings whose boards were not read, because their users have too many."""
    dropped: int = 0
    """Processes that are not here: of a recorded frame, those for which it had no room."""
    xids: Sequence[XidEvent] = ()
    """XID errors since the tick before, in their order. Not stored in the ring: the event log has them."""


class Parts(Protocol):
    """The stored parts of a frame, decoded when they are asked for."""

    def samples(self) -> tuple[Sample, ...]: ...
    def host(self) -> tuple[float, ...]: ...
    def processes(self) -> tuple[Process, ...]: ...
    def runs(self) -> tuple[Run, ...]: ...
    def boundaries(self) -> tuple[Boundary, ...]: ...


class Frame:
    """One tick as views see it: immutable, and each part is decoded on its first use.

    A frame is what `RingReader` gives. Its numbers are those of the `Tick` that was stored; of one that is not full,
    gauges have seven digits.
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
        """Counts from 1 and never goes back as long as a ring's history goes on."""
        self.monotonic_ns = monotonic_ns
        """ns of CLOCK_MONOTONIC when the sample was taken; a recording keeps its own spacing."""
        self.time = time_ns / 1e9
        """Seconds since 1970 when the sample was taken; of a recording, its own time."""
        self.interval = interval
        """Seconds between ticks as planned."""
        self.sample_duration = sample_duration
        """Seconds that taking this sample took."""
        self.skipped_ticks = skipped_ticks
        """Ticks skipped since the daemon started."""
        self.dropped = dropped
        """Processes that had no room in this frame."""
        self.dropped_runs = dropped_runs
        """Runs that had no room in this frame, or whose boards were not read."""
        self.is_full = is_full
        """Whether it has processes and runs: of all but the last minutes the ring keeps values and boundaries only.
        Where it is false nothing is known of processes, and `runs` has those that began or ended with this frame."""
        self._parts = parts
        self._samples: tuple[Sample, ...] | None = None
        self._host: tuple[float, ...] | None = None
        self._processes: tuple[Process, ...] | None = None
        self._runs: tuple[Run, ...] | None = None
        self._boundaries: tuple[Boundary, ...] | None = None

    @property
    def left_out(self) -> str:
        """The number of runs and processes without room in this frame, for people; empty if it has everything."""
        counts = (self.dropped_runs, "run"), (self.dropped, "process")
        parts = [units.counted(number, what) for number, what in counts if number]
        return f"{' and '.join(parts)} more than there is room for" if parts else ""

    @property
    def samples(self) -> tuple[Sample, ...]:
        """One for each device that has a row, in the order of `by_number`."""
        if self._samples is None:
            self._samples = self._parts.samples()
        return self._samples

    @property
    def host(self) -> tuple[float, ...]:
        """In the order of `HOST_METRICS`."""
        if self._host is None:
            self._host = self._parts.host()
        return self._host

    @property
    def processes(self) -> tuple[Process, ...]:
        """Processes on devices, by device memory, the largest first; none where the frame is not full."""
        if self._processes is None:
            self._processes = self._parts.processes()
        return self._processes

    @property
    def runs(self) -> tuple[Run, ...]:
        """Every training that publishes a board, running or just ended; see `is_full`."""
        if self._runs is None:
            self._runs = self._parts.runs()
        return self._runs

    @property
    def boundaries(self) -> tuple[Boundary, ...]:
        """Boundaries that became known with this frame; their own times may lie before it."""
        if self._boundaries is None:
            self._boundaries = self._parts.boundaries()
        return self._boundaries


class _NoParts:
    """The parts of a frame in which nothing is known."""

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


def nothing(monotonic_ns: int, time_ns: int) -> Frame:
    """A frame in which nothing is known."""
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
