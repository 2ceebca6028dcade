"""The ledger's rows as readers get them.

Times are seconds since 1970, everything else base units; what is not known is NaN (or empty text).
Text passed `clean` again on its way in: a ledger may be another user's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gpumon.common.numbers import NAN, is_known
from gpumon.history.downsample import Envelope
from gpumon.ledger.schema import USAGE, WHOLE_EPOCH
from gpumon.ledger.settled import SettledEpochs
from gpumon.model.frame import Mark, RunState
from gpumon.model.run import Parameter, RunFacts

USAGE_INDEX: dict[str, int] = {column.name: i for i, column in enumerate(USAGE)}
"""Place of a column in a row's list of values."""
UNSEEN = 60.0
"""Seconds without a sign of a daemon after which a run is no longer said to run: it writes every ten or so."""
SETTLED = 120.0
"""Seconds without a write after which nothing more comes of a run that is over: a daemon takes a minute to be sure that
one was killed, and writes some ticks later what the driver measured until then."""
LATE = 20.0
"""Seconds between two ledgers' last words of a run that is over, from which on the later one has it from its board
alone: daemons that both watched it are some ticks apart."""
UNMEASURED: tuple[float, ...] = (NAN,) * len(USAGE)


class RunRow(NamedTuple):
    """A run; one row however many ranks it has."""

    id: str
    name: str
    user: str
    hostname: str
    framework: str
    source: str
    """`nvml`, `replay` or `sim`."""
    label: str
    """Such as `SIMULATED`; empty for live hardware."""
    driver: str
    world_size: int
    epochs: int
    """Epochs planned; 0 where unknown."""
    base: int
    """Where the training's framework begins to count epochs."""
    first_epoch: int
    """More than `base` after a resume."""
    started: float
    ended: float
    state: RunState
    updated: float
    """When the daemon last wrote it."""
    resumes: str
    """Id of the run that this one continues, or empty."""
    seconds: float = NAN
    """Seconds that it took, or until it was last written, by the steady clock; NaN in ledgers of older versions."""

    @property
    def epochs_before(self) -> int:
        """Number of epochs that a training had behind it when this run continued it."""
        return max(0, self.first_epoch - self.base)

    def lasted(self, now: float) -> float:
        """Seconds from its begin to its end, or until it was last seen: by the steady clock where that was kept."""
        going_on = not is_known(self.ended) and self.state is RunState.RUNNING and not self.unseen(now)
        if self.seconds >= 0:
            # The wall clock may be set while it runs: only what is new since the last word is by it.
            return self.seconds + (max(0.0, now - self.updated) if going_on else 0.0)
        end = self.ended
        if not is_known(end):
            end = now if going_on else self.updated
        return max(0.0, end - self.started)

    def measured_until(self, now: float) -> float:
        """The moment of what was measured of it: its last word while it goes on, else `now`."""
        going_on = self.state is RunState.RUNNING and not self.unseen(now)
        return self.updated if going_on and is_known(self.updated) else now

    def settled(self, now: float) -> bool:
        """Whether it is over, and so long ago that the daemon writes no more of it: that takes some of its ticks."""
        return self.state is not RunState.RUNNING and now - self.updated > SETTLED

    def is_told_better_than(self, other: RunRow) -> bool:
        """Whether this row's ledger watched the run to its end, and the other's took it up after that, unmeasured."""
        is_over = RunState.RUNNING not in (self.state, other.state)
        return is_over and other.updated - self.updated > LATE

    def unseen(self, now: float) -> float:
        """Seconds without a daemon that watches a run that had not ended; 0 while one does."""
        if self.state is not RunState.RUNNING or not now - self.updated > UNSEEN:
            return 0.0
        return now - self.updated


class EpochTimes(NamedTuple):
    """An epoch of all ranks, without what else is known of it."""

    begun: float
    """Seconds since 1970."""
    ended: float
    """NaN while it is open in any rank, and where one went away in it."""
    seconds: float
    steps: int
    """0 where they were not counted."""
    energy: float
    """Joules; NaN where unknown."""


class RunNames(NamedTuple):
    """A run of which no more is asked."""

    id: str
    user: str
    framework: str


class RunSummary(NamedTuple):
    """A run as the list shows it: its row, and what it came to."""

    run: RunRow
    done: int | None
    """Epochs that ended in it, seen or not; None where it took steps before it was seen, and no epoch began since."""
    gpus: int
    energy: float
    """Joules, over all devices."""
    utilization: float
    """Mean over devices."""
    tags: Sequence[str] = ()
    newest: int = -1
    """Number of the epoch in which it is or ended, of its slowest rank; -1 before the first."""
    energy_least: float = NAN
    """Joules that were surely used; equal to `energy` where that is known."""


class NoteRow(NamedTuple):
    """A line that was written about a run."""

    time: float
    text: str
    author: str
    """User who wrote it later; empty where the training did."""


class Particulars(NamedTuple):
    """Parameters, program, notes and tags of a run."""

    config: Mapping[str, Parameter] = {}
    """Parameters that the training was given, by name."""
    program: Mapping[str, Parameter] = {}
    """Facts that gpumon found by itself: script, commit, versions."""
    notes: Sequence[NoteRow] = ()
    """Oldest first."""
    tags: Sequence[str] = ()
    omitted: int = 0
    """Parameters and notes for which there was no room."""


class LivePeak(NamedTuple):
    """The framework's own peak of live tensors, over all devices of a rank; NaN where it is unknown."""

    value: float = NAN
    """Bytes."""
    reached: bool = False
    """Whether it was reached within the stretch; else it was no more than that."""


class DeviceRow(NamedTuple):
    """A device that a rank trained on."""

    uuid: str
    number: int
    """The driver's index: only for people."""
    name: str
    memory_total: float
    power_limit: float


class RankRow(NamedTuple):
    """A process of a run."""

    key: str
    rank: int
    local_rank: int
    pid: int
    started: float
    ended: float
    state: RunState
    steps: int
    wait: float
    """Seconds waited for data, of the whole run; NaN where it was not measured."""
    lost_events: int
    """Boundaries that were overwritten before they were read."""
    peak: float
    """The most in live tensors, as the framework reports; bytes."""
    retries: float
    ooms: float
    devices: tuple[DeviceRow, ...]
    facts: RunFacts = RunFacts()
    """Facts that its training reported."""
    seconds: float = NAN
    """From its begin to its end, by the steady clock."""
    metrics: Mapping[str, float] = {}
    """The last of everything that it logged, by name."""
    package_energy: float = NAN
    """Joules of the machine's CPU packages while it ran; NaN where this is unknown."""
    package_unknown: str = ""
    """Why `package_energy` is unknown."""


class EpochRow(NamedTuple):
    """An epoch of a rank."""

    rank: str
    """Key of the rank."""
    ordinal: int
    """Counts the epochs that the rank began, from 0."""
    epoch: int
    """Its number, as the training counts."""
    begun: float
    ended: float
    """NaN: it is still open, or the run went away in it."""
    seconds: float
    steps: int
    wait: float
    metrics: Mapping[str, float]
    """Metrics that were logged with it; a number may be NaN or infinite."""
    trained: float = NAN
    """Seconds of training among them, to which `steps` belong; NaN where steps of training were not counted apart."""
    wait_of: float = NAN
    """Seconds of the phases in which the wait was measured; NaN where it was not, or that is unknown."""
    peak: LivePeak = LivePeak()


class StepRow(NamedTuple):
    """Some steps behind each other of a rank without epochs: a long training has 20 to 50 such rows."""

    rank: str
    ordinal: int
    """Counts the rows of the rank, from 0."""
    first_step: int
    """Number of steps that were made before."""
    steps: int
    begun: float
    ended: float
    """NaN while it is open."""
    seconds: float
    trained: float
    """Seconds among them without evaluation and checkpoints, to which `steps` belong."""
    wait: float
    wait_of: float
    metrics: Mapping[str, float]
    """Metrics that were logged in it last."""


class PhaseRow(NamedTuple):
    """A phase of an epoch of a rank."""

    rank: str
    ordinal: int
    phase: str
    seconds: float
    times: int
    """Number of times that it was entered."""
    steps: int
    wait: float
    spans: Sequence[tuple[float, float]] = ()
    """When and for how long, seconds after the epoch's begin and seconds; of training, and of later times, not kept."""
    place: float = NAN
    """Its place among the phases of its epoch, from 0, by when it was first entered."""
    peak: LivePeak = LivePeak()


class UsageRow(NamedTuple):
    """Usage of a device in a stretch of a rank's time: an epoch, a phase of one, or the whole run."""

    rank: str
    ordinal: int
    """`schema.WHOLE_RUN` for the whole run."""
    phase: str
    """`schema.WHOLE_EPOCH` for all of it."""
    uuid: str
    utilization_from: str
    """`driver`, `ticks`, or empty where nothing was sampled."""
    values: Sequence[float]
    """In the order of `schema.USAGE`."""
    energy_from: float = NAN
    """The driver's counter of energy at its begin and..."""
    energy_to: float = NAN
    """...at its end, joules; NaN where `energy` is not what lies between them."""

    def value(self, column: str) -> float:
        """The value of a column by its name, such as `energy`."""
        return self.values[USAGE_INDEX[column]]


class MarkRow(NamedTuple):
    """A moment worth a mark, such as an out-of-memory error."""

    rank: str
    number: int
    mark: Mark
    time: float
    epoch: int
    step: int
    asked: float
    """Bytes that the allocation asked for."""
    free: float
    """Bytes that the device had left."""


class RunTrace(NamedTuple):
    """Metrics over a whole run on one device, or (`uuid` empty) of what a rank logged."""

    rank: str
    uuid: str
    begun: float
    step: float
    """Seconds between points."""
    points: int
    columns: Mapping[str, Envelope]
    """By metric name."""


class Record(NamedTuple):
    """Everything kept of a run but its traces, as of one moment."""

    run: RunRow
    ranks: Sequence[RankRow]
    """By rank."""
    epochs: Sequence[EpochRow]
    phases: Sequence[PhaseRow]
    usage: Sequence[UsageRow]
    marks: Sequence[MarkRow]
    about: Particulars = Particulars()
    outside: Sequence[PhaseRow] = ()
    """Stretches of ranks outside their epochs, by phase, and (`schema.WHOLE_EPOCH`) all of them together."""
    step_rows: Sequence[StepRow] = ()
    """Of a run without epochs."""
    outside_usage: Sequence[UsageRow] = ()
    """Usage of devices in these: `ordinal` is `schema.OUTSIDE_EPOCHS`, or `schema.STEP_ROWS` less the row's."""
    settled: SettledEpochs = SettledEpochs()
    """Epochs whose rows change no more."""

    @property
    def devices(self) -> list[DeviceRow]:
        """Every device of the run, once, by its number."""
        known = {device.uuid: device for rank in self.ranks for device in rank.devices}
        return sorted(known.values(), key=lambda device: (device.number, device.uuid))

    @property
    def whole_epochs(self) -> list[UsageRow]:
        """Usage without that of phases."""
        return [row for row in self.usage if row.phase == WHOLE_EPOCH]
