"""The ledger's rows as readers get them.

Times are seconds since 1970, everything else base units; what is not known is NaN (or empty text).
Text passed `clean` again on its way in: a ledger may be another user's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN, is_known
from gpumon.model.columns import USAGE
from gpumon.model.frame import EVALUATION, Mark, RunState
from gpumon.model.run import Parameter, RunFacts
from gpumon.storage.history.downsample import Envelope
from gpumon.storage.ledger.schema import WHOLE_EPOCH
from gpumon.storage.sqlite.cells import parse_json

AWAITED = 30 * SECOND
"""Nanoseconds behind the end of a rank after which no samples of it come any more, as a daemon waits for less."""
FOREVER = 1 << 62
"""More epochs than any run has."""


class SettledEpochs(NamedTuple):
    """The epochs of a run that are settled in every rank; of open and aborted ones the rows tell."""

    begun: int = FOREVER
    """Ordinals from here on are not."""
    open: frozenset[int] = frozenset()
    """Ordinals before `begun` that are not."""

    def has(self, ordinal: int) -> bool:
        """Whether the rows of an epoch are final."""
        return ordinal < self.begun and ordinal not in self.open


def settled_epochs(progress: Iterable[str | None]) -> SettledEpochs:
    """Join what ranks have settled: `progress.state` of each of which more is to come, None where there is none yet."""
    found = SettledEpochs()
    for state in progress:
        one = _of_rank(state)
        found = SettledEpochs(min(found.begun, one.begun), found.open | one.open)
    return found


def _of_rank(state: str | None) -> SettledEpochs:
    try:
        timeline: Any = parse_json(state)
        timeline = timeline["course"]
        return SettledEpochs(int(timeline["next"]), frozenset(int(row["epoch"][0]) for row in timeline["epochs"]))
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return SettledEpochs(begun=0)  # none, or damaged: it is unknown


USAGE_INDEX: dict[str, int] = {column.key: i for i, column in enumerate(USAGE)}
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
    """Seconds that it took, or until it was last written, by the steady clock."""

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
    """Epochs behind each other that ended, or one that did not, of all ranks, without what else is known of them."""

    begun: float
    """Seconds since 1970."""
    ended: float
    """NaN while it is open in any rank, and where one went away in it."""
    seconds: float
    steps: int
    """0 where they were not counted."""
    energy: float
    """Joules; NaN where unknown."""
    times: int = 1
    """How many epochs these are."""


class RunNames(NamedTuple):
    """A run that needs no further query."""

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
    """The framework's peak of memory in live tensors within a stretch of time, over all devices of a rank."""

    value: float = NAN
    """Bytes; NaN if unknown."""
    reached: bool = False
    """True if it was reached within the stretch; else it is an upper bound."""

    def joined_with(self, other: LivePeak) -> LivePeak:
        """Return the peak of two stretches together."""
        if not is_known(self.value) or other.value > self.value:
            return other
        return self._replace(reached=self.reached or other.reached) if other.value == self.value else self


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
    """In the order of `columns.USAGE`."""
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


COUNT_IN_EPOCHS = frozenset(("keras", "lightning", "transformers", "ignite"))
"""Frameworks whose callbacks count steps in epochs alone: more of them outside are those of an earlier run."""


def counts_outside(record: Record) -> bool:
    """Whether what was counted outside the epochs of a run are steps that it made there."""
    return record.run.framework.partition("/")[0] not in COUNT_IN_EPOCHS


class StepCounts:
    """The steps of a run's rows, None where they are not known."""

    def __init__(self, record: Record) -> None:
        self._run = any(epoch.steps for epoch in record.epochs)
        self._phases = {phase.phase for phase in record.phases if phase.steps}
        self._outside = [row for row in record.outside if row.phase not in EVALUATION and row.phase != WHOLE_EPOCH]
        self._record = record
        self._complete = not any(rank.lost_events for rank in record.ranks)

    def epoch(self, row: EpochRow) -> int | None:
        """Those of an epoch of one rank; of one that has not ended none may only not have been heard of yet."""
        # NaN is not itself; in place, because a call would cost more than the rest of the loop.
        return row.steps if row.steps or (self._run and row.ended == row.ended) else None

    def phase(self, row: PhaseRow) -> int | None:
        """Those of a phase of one rank's epoch."""
        return row.steps if row.phase in self._phases else None

    def whole(self, epochs: list[int | None]) -> int | None:
        """Those of all epochs and between them.

        Where boundaries were lost, epochs may be missing: then what the training itself has counted, if it counts from
        its begin; a framework that resumes another one does not.
        """
        known = [steps for steps in (*epochs, self.between()) if steps is not None]
        if known and not self._complete and counts_outside(self._record):
            return most([rank.steps or None for rank in self._record.ranks])
        return sum(known) if known and self._complete else None

    def between(self) -> int | None:
        """Those that were made outside the epochs of a run, but for evaluation; None where there are none."""
        return self.outside() if self._outside and counts_outside(self._record) else None

    def outside(self) -> int | None:
        """Those of a run without epochs, but for evaluation; of several ranks those of the one with most."""
        if not self._record.outside:  # boundaries were lost
            return most([rank.steps or None for rank in self._record.ranks])
        ranks = {row.rank for row in self._outside}
        return most([sum(row.steps for row in self._outside if row.rank == rank) or None for rank in ranks])

    def trained(self) -> float:
        """Seconds in which these were made; NaN where they are unknown."""
        ranks = {row.rank for row in self._outside}
        spent = [sum(row.seconds for row in self._outside if row.rank == rank and row.steps) for rank in ranks]
        return max(spent, default=NAN) or NAN


def begun_only(row: EpochRow) -> bool:
    """Whether only the begin of an epoch has been seen: what came of it is unknown, and not nothing."""
    # NaN is not itself; in place, because a call would cost more than the rest of the loop.
    return row.ended != row.ended and not row.seconds > 0


def most(steps: list[int | None]) -> int | None:
    """The most of several ranks; None where none is known."""
    return max((number for number in steps if number is not None), default=None)
