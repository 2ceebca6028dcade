"""Classes for the rows of a ledger that was read, and functions that count the steps in these rows.

Times are in seconds since 1970. All other values are in base units. A missing number is NaN, and a missing string is
empty. In all strings, harmful characters are escaped, because a ledger may belong to another user.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN, is_known
from gpumon.model.columns import USAGE
from gpumon.model.frame import EVALUATION, Mark, RunState
from gpumon.model.run import Parameter, RunFacts
from gpumon.storage.history.envelope import Envelope
from gpumon.storage.ledger.row_keys import WHOLE_EPOCH
from gpumon.storage.sqlite.cells import parse_json

SAMPLE_DELAY = 30 * SECOND
"""Nanoseconds after the end of a rank during which a daemon may still write samples of the rank. The actual wait of a
daemon is shorter."""
_NO_LIMIT = 1 << 62


@dataclass(frozen=True, slots=True)
class SettledEpochs:
    """Ordinals of a run's settled epochs. These epochs have ended, and their rows will no longer change in any rank."""

    limit: int = _NO_LIMIT
    """Epochs from this ordinal on are not settled."""
    unsettled: frozenset[int] = frozenset()
    """Ordinals below `limit` that are not settled."""

    def has(self, ordinal: int) -> bool:
        """Return whether the rows of the epoch with this ordinal are final."""
        return ordinal < self.limit and ordinal not in self.unsettled

    def combine(self, other: SettledEpochs) -> SettledEpochs:
        """Return the epochs that are settled in both objects."""
        return SettledEpochs(min(self.limit, other.limit), self.unsettled | other.unsettled)

    @classmethod
    def from_progress(cls, state: object) -> SettledEpochs:
        """Return the epochs of a rank whose rows are final.

        `state`: the column `progress.state` of a rank that still gets rows, or None if the rank has no row in the table
        `progress` yet.
        """
        try:
            timeline: Any = parse_json(state)
            timeline = timeline["course"]
            return cls(int(timeline["next"]), frozenset(int(row["epoch"][0]) for row in timeline["epochs"]))
        except (ArithmeticError, LookupError, TypeError, ValueError):
            return cls(limit=0)  # the state is missing or damaged, so no epoch counts as settled


USAGE_INDEX: dict[str, int] = {column.key: i for i, column in enumerate(USAGE)}
"""Index of each usage column in `UsageRow.values`."""
UNSEEN_AFTER = 60.0
"""If a run has not ended and was not updated for this many seconds, no daemon is watching it any longer. A daemon
updates a run about every ten seconds.
"""
SETTLED_AFTER = 120.0
"""An ended run that was not updated for this many seconds gets no more rows. A daemon takes a minute to be sure that a
run was killed, and the driver's last samples come some ticks later."""
LATE_UPDATE = 20.0
"""Maximum seconds between the last updates of an ended run in two ledgers if both daemons watched the run end. Two such
daemons differ by only a few ticks. If the difference is larger, the daemon of the ledger with the later update got the
run only from its board."""
UNMEASURED: tuple[float, ...] = (NAN,) * len(USAGE)


class RunRow(NamedTuple):
    """A run. A run has one row regardless of its number of ranks."""

    id: str
    name: str
    user: str
    hostname: str
    framework: str
    source: str
    """Name of the source: `nvml`, `replay` or `sim`."""
    label: str
    """Label of data that is not live, such as `SIMULATED`; empty for live hardware."""
    driver: str
    world_size: int
    epochs: int
    """Planned epochs; 0 if not reported."""
    base: int
    """Number of the first epoch of a training in this framework, usually 0 or 1."""
    first_epoch: int
    """Number of the first epoch of this run. This is greater than `base` if the run resumes a training."""
    started: float
    ended: float
    state: RunState
    updated: float
    """Time of the daemon's last update."""
    resumes: str
    """Id of the run that this one continues, or empty."""
    seconds: float = NAN
    """Duration until the run's end or last measurement, measured with CLOCK_MONOTONIC."""

    @property
    def epochs_before(self) -> int:
        """Number of epochs that earlier runs of this training had completed."""
        return max(0, self.first_epoch - self.base)

    @property
    def duration(self) -> float:
        """Length of the run in seconds, up to its end, or up to the last recorded measurement if no end is recorded.

        The time after the last measurement never counts. The daemon may have been killed, and steps and energy are
        recorded only up to this time. The duration by CLOCK_MONOTONIC is used if it was recorded, because the wall
        clock may have been set during the run.
        """
        if self.seconds >= 0:
            return self.seconds
        return max(0.0, (self.ended if is_known(self.ended) else self.updated) - self.started)

    def is_settled(self, now: float) -> bool:
        """Return whether the run ended so long before `now` (s since 1970) that its rows no longer change."""
        return self.state is not RunState.RUNNING and now - self.updated > SETTLED_AFTER

    def is_more_complete_than(self, other: RunRow) -> bool:
        """Return whether the daemon of this row's ledger watched the run's end, and the daemon of `other` did not.

        `other` is the row of the same run in another ledger.
        """
        has_ended = RunState.RUNNING not in (self.state, other.state)
        return has_ended and other.updated - self.updated > LATE_UPDATE

    def unseen_seconds(self, now: float) -> float:
        """Return the number of seconds since a daemon last saw this run.

        The result is 0 if the run has ended or a daemon is watching it.
        """
        if self.state is not RunState.RUNNING or not now - self.updated > UNSEEN_AFTER:
            return 0.0
        return now - self.updated


@dataclass(frozen=True, slots=True)
class EpochTimes:
    """Times, steps and energy of one open epoch, or of several consecutive ended epochs, over all ranks."""

    begun: float
    """Start, seconds since 1970."""
    ended: float
    """End, seconds since 1970. NaN while the epoch is open in a rank, or if a rank died in it."""
    seconds: float
    steps: int
    """Number of steps; 0 if steps were not counted."""
    energy: float
    """Energy in joules; NaN if not measured completely."""
    times: int = 1
    """Number of epochs that these values cover."""


@dataclass(frozen=True, slots=True)
class RunNames:
    """Id, user and framework of a run."""

    id: str
    user: str
    framework: str


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A run with its totals over epochs and devices, for lists of runs."""

    run: RunRow
    done: int | None
    """Number of epochs that ended in all ranks of the run. It includes epochs before a daemon noticed the run, and
    short epochs that were merged into the rows of other epochs. None if the run took steps before a daemon noticed it,
    and no epoch has started since then.
    """
    gpus: int
    energy: float
    """Energy in joules, summed over all devices."""
    utilization: float
    """Mean utilization over the devices, 0 to 1."""
    tags: Sequence[str] = ()
    newest: int = -1
    """Number of the last epoch of the slowest running rank or, if no rank is running, of the furthest rank. It is -1
    before the first epoch."""
    energy_least: float = NAN
    """Lower bound of the energy, in joules. Equal to `energy` if the energy was measured completely."""
    sampled_share: float = NAN
    """Share of the time that samples cover, for the rank and device with the lowest share. NaN if it cannot be
    determined."""


@dataclass(frozen=True, slots=True)
class NoteRow:
    """A note about a run."""

    time: float
    text: str
    author: str
    """User who added the note; empty if the training added it."""


@dataclass(frozen=True, slots=True)
class RunMetadata:
    """Parameters, program, notes and tags of a run."""

    config: Mapping[str, Parameter] = field(default_factory=dict)
    """Parameters of the training, by name."""
    program: Mapping[str, Parameter] = field(default_factory=dict)
    """Facts that gpumon detected: script, Git commit, package versions."""
    notes: Sequence[NoteRow] = ()
    """Notes on the run, oldest first."""
    tags: Sequence[str] = ()
    omitted: int = 0
    """Number of parameters and notes that were not recorded because they exceeded the limit."""


class LivePeak(NamedTuple):
    """Peak memory of live tensors in a period, reported by the framework for all devices of a rank together."""

    value: float = NAN
    """Peak of live tensors in bytes; NaN if not reported."""
    reached: bool = False
    """Whether the peak was reached within the period. If not, `value` is only an upper bound."""

    def joined_with(self, other: LivePeak) -> LivePeak:
        """Return the peak over both periods."""
        if not is_known(self.value) or other.value > self.value:
            return other
        return self._replace(reached=self.reached or other.reached) if other.value == self.value else self


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """A device on which a rank trained."""

    uuid: str
    number: int
    """The driver's index of the device, which is only displayed."""
    name: str
    memory_total: float
    power_limit: float


@dataclass(frozen=True, slots=True)
class RankRow:
    """A rank of a run, which is one process."""

    key: str
    rank: int
    local_rank: int
    pid: int
    started: float
    ended: float
    state: RunState
    steps: int
    wait: float
    """Seconds waited for data in the whole run; NaN if not measured."""
    lost_events: int
    """Number of epoch and phase boundaries that were overwritten before a daemon read them."""
    peak: float
    """Peak memory of live tensors in bytes, reported by the framework."""
    retries: float
    ooms: float
    devices: tuple[DeviceRow, ...]
    facts: RunFacts = field(default_factory=RunFacts)
    """Facts that the training reported about itself."""
    seconds: float = NAN
    """Seconds from the rank's start to its end, measured with CLOCK_MONOTONIC."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Last value of each logged metric, by name."""
    package_energy: float = NAN
    """Joules that the machine's CPU packages used while the rank was running; NaN if not measured."""
    package_unknown: str = ""
    """Reason why `package_energy` is NaN."""


class EpochRow(NamedTuple):
    """An epoch of a rank."""

    rank: str
    """Key of the rank."""
    ordinal: int
    """Index of the epoch among all epochs of the run, from 0. It is the same in all ranks, see `epoch_join`."""
    epoch: int
    """Epoch number as the training counts it."""
    begun: float
    ended: float
    """NaN while the epoch is open, or if the run died in it."""
    seconds: float
    steps: int
    wait: float
    metrics: Mapping[str, float]
    """Metrics logged in this epoch; values may be NaN or infinite."""
    trained: float = NAN
    """Seconds of the training phase, in which the `steps` were taken. NaN if the steps of this phase were not counted
    separately."""
    wait_of: float = NAN
    """Seconds of the phases in which the wait for data was measured. NaN if the wait was not measured or this is not
    recorded."""
    peak: LivePeak = LivePeak()


class StepRow(NamedTuple):
    """A range of consecutive steps of a rank that has no epochs; a long training has 20 to 50 of them."""

    rank: str
    ordinal: int
    """Index of the row among the rank's rows of steps, from 0."""
    first_step: int
    """Number of steps that the rank took before this range."""
    steps: int
    begun: float
    ended: float
    """NaN while the range is open."""
    seconds: float
    trained: float
    """Seconds in which the `steps` were taken, without evaluation and checkpoints."""
    wait: float
    """Seconds waited for data."""
    wait_of: float
    """Seconds in which the wait for data was measured."""
    metrics: Mapping[str, float]
    """Last value of each metric logged in this range."""


class PhaseRow(NamedTuple):
    """A phase of an epoch of a rank, with totals over all times that the phase was entered."""

    rank: str
    ordinal: int
    phase: str
    seconds: float
    times: int
    """Number of times that the phase was entered."""
    steps: int
    wait: float
    spans: Sequence[tuple[float, float]] = ()
    """Start (in seconds after the start of the epoch) and length in seconds of the first spans of the phase. Empty for
    the training phase."""
    place: float = NAN
    """Position of the phase among the phases of the epoch, from 0, in the order in which they were first entered."""
    peak: LivePeak = LivePeak()


class UsageRow(NamedTuple):
    """Usage of one device by one rank in an epoch, in a phase of an epoch, or in the whole run."""

    rank: str
    ordinal: int
    """`schema.WHOLE_RUN` for the whole run."""
    phase: str
    """`schema.WHOLE_EPOCH` for all phases together."""
    uuid: str
    utilization_from: str
    """Source of the utilization: `driver`, `ticks`, or empty if nothing was sampled."""
    values: Sequence[float]
    """Values in the order of `columns.USAGE`."""
    energy_from: float = NAN
    """The driver's energy counter at the start, in joules. NaN if `energy` is not a difference of two readings."""
    energy_to: float = NAN
    """The driver's energy counter at the end, in joules."""

    def value(self, column: str) -> float:
        """Return the value of a column of `columns.USAGE` by name, such as `energy`."""
        return self.values[USAGE_INDEX[column]]


@dataclass(frozen=True, slots=True)
class MarkRow:
    """A single event in a rank: an out-of-memory error or a checkpoint."""

    rank: str
    number: int
    mark: Mark
    time: float
    epoch: int
    step: int
    asked: float
    """Bytes that the allocation requested."""
    free: float
    """Bytes that were free on the device."""


@dataclass(frozen=True, slots=True)
class RunTrace:
    """Metrics of a device over the whole run. If `uuid` is empty, these are the metrics that a rank logged."""

    rank: str
    uuid: str
    begun: float
    step: float
    """Seconds between two points."""
    points: int
    columns: Mapping[str, Envelope]
    """Points of each metric, by metric name."""


@dataclass(frozen=True, slots=True)
class Record:
    """All rows of a run except its traces, read in one transaction."""

    run: RunRow
    ranks: Sequence[RankRow]
    """Ranks of the run, sorted by rank number."""
    epochs: Sequence[EpochRow]
    phases: Sequence[PhaseRow]
    usage: Sequence[UsageRow]
    marks: Sequence[MarkRow]
    about: RunMetadata = RunMetadata()
    outside: Sequence[PhaseRow] = ()
    """Time of ranks outside their epochs, with a row for each phase and a row for the sum (phase
    `schema.WHOLE_EPOCH`)."""
    step_rows: Sequence[StepRow] = ()
    """Rows of steps of a run without epochs."""
    with_epochs: frozenset[str] = frozenset()
    """Keys of the ranks that have epochs, even if none of these epochs was read."""
    outside_usage: Sequence[UsageRow] = ()
    """Usage outside epochs (`ordinal` is `schema.OUTSIDE_EPOCHS`) and in rows of steps (`schema.STEP_ROWS` minus the
    ordinal of the row)."""
    settled: SettledEpochs = SettledEpochs()
    """Epochs whose rows are final."""
    done: int | None = None
    """Number of epochs that ended in the run, as in `RunSummary.done`."""

    @property
    def devices(self) -> list[DeviceRow]:
        """The devices of all ranks, sorted by index. A device that several ranks use is listed once."""
        by_uuid = {device.uuid: device for rank in self.ranks for device in rank.devices}
        return sorted(by_uuid.values(), key=lambda device: (device.number, device.uuid))

    @property
    def end_facts(self) -> RunFacts:
        """Facts of the first rank that ended in the same way as the whole run."""
        return next((rank.facts for rank in self.ranks if rank.state is self.run.state), RunFacts())

    @property
    def whole_epochs(self) -> list[UsageRow]:
        """The usage rows for whole epochs and for the whole run, without the rows for phases."""
        return [row for row in self.usage if row.phase == WHOLE_EPOCH]


COUNT_IN_EPOCHS = frozenset(("keras", "lightning", "transformers", "ignite"))
"""Frameworks whose callbacks count steps only within epochs. Steps counted outside epochs are from an earlier run."""


def has_steps_outside(record: Record) -> bool:
    """Return whether the steps counted outside epochs are from this run and not from an earlier run."""
    return record.run.framework.partition("/")[0] not in COUNT_IN_EPOCHS


def has_unequal_rows(record: Record) -> bool:
    """Return whether rows of several ranks may stand for different epochs, because each rank merges short epochs.

    If so, a sum over the rows of the highest value among the ranks counts some epochs twice.
    """
    return len(record.ranks) > 1 and any(rank.facts.folded for rank in record.ranks)


class StepCounts:
    """Counts the steps of a run, of its epochs and of its phases. A result is None if not all steps were counted."""

    def __init__(self, record: Record) -> None:
        self._run = any(epoch.steps for epoch in record.epochs)
        self._phases = {phase.phase for phase in record.phases if phase.steps}
        self._outside = [row for row in record.outside if row.phase not in EVALUATION and row.phase != WHOLE_EPOCH]
        self._record = record
        is_lost = any(rank.lost_events for rank in record.ranks)
        self._complete = not is_lost and not has_unequal_rows(record)

    def epoch(self, row: EpochRow) -> int | None:
        """Return the steps of one rank in an epoch; None if not available.

        A count of 0 in an open epoch is treated as not available, because steps are reported late.
        """
        # NaN != NaN; no call of is_known, because a call would cost more than the rest of the loop.
        return row.steps if row.steps or (self._run and row.ended == row.ended) else None

    def phase(self, row: PhaseRow) -> int | None:
        """Return the steps of one rank in a phase of an epoch."""
        return row.steps if row.phase in self._phases else None

    def whole(self, epochs: list[int | None]) -> int | None:
        """Return the steps of the whole run; None if not available. `epochs` has the steps of each epoch.

        If boundaries were lost, epochs may be missing. If ranks merged epochs, some epochs are counted twice. In both
        cases the training's own step counter is used, except for frameworks that continue the counter of an earlier
        run.
        """
        known = [steps for steps in (*epochs, self.between()) if steps is not None]
        if known and not self._complete and has_steps_outside(self._record):
            return max_steps([rank.steps or None for rank in self._record.ranks])
        return sum(known) if known and self._complete else None

    def between(self) -> int | None:
        """Return the number of steps between epochs, without evaluation steps. None if there are none."""
        return self.outside() if self._outside and has_steps_outside(self._record) else None

    def outside(self) -> int | None:
        """Return the number of steps outside epochs, without evaluation steps, of the rank with the most such steps."""
        if not self._record.outside:  # boundaries were lost
            return max_steps([rank.steps or None for rank in self._record.ranks])
        ranks = {row.rank for row in self._outside}
        return max_steps([sum(row.steps for row in self._outside if row.rank == rank) or None for rank in ranks])

    def trained(self) -> float:
        """Return the seconds of the phases outside epochs in which steps were taken; NaN if not available."""
        ranks = {row.rank for row in self._outside}
        seconds = [sum(row.seconds for row in self._outside if row.rank == rank and row.steps) for rank in ranks]
        return max(seconds, default=NAN) or NAN


def is_only_begun(row: EpochRow) -> bool:
    """Return whether only the start of an epoch is recorded, for example because the run was killed.

    In this case the length and the steps of the epoch are unknown, not 0.
    """
    # NaN != NaN; no call of is_known, because a call would cost more than the rest of the loop.
    return row.ended != row.ended and not row.seconds > 0


def max_steps(steps: list[int | None]) -> int | None:
    """Return the highest number of steps among several ranks; None if no rank has a number."""
    return max((number for number in steps if number is not None), default=None)
