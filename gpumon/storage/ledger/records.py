"""Ledger rows as readers get them, and functions that count the steps in them.

Times are seconds since 1970; everything else is in base units. Unknown numbers are NaN, unknown texts are empty. All
texts are cleaned, because a ledger may belong to another user.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
"""ns after the end of a rank in which samples of it may still be written; a daemon waits for less."""
_NO_LIMIT = 1 << 62


class SettledEpochs(NamedTuple):
    """The ordinals of the epochs of a run that have ended and whose rows, in every rank, will not change any more."""

    limit: int = _NO_LIMIT
    """Epochs from this ordinal on are not settled."""
    unsettled: frozenset[int] = frozenset()
    """Ordinals below `limit` that are not settled."""

    def has(self, ordinal: int) -> bool:
        """Return whether the rows of the epoch with this ordinal are final."""
        return ordinal < self.limit and ordinal not in self.unsettled

    @classmethod
    def from_progress(cls, states: Iterable[str | None]) -> SettledEpochs:
        """Return the epochs whose rows are final in all ranks.

        `states` has one entry for each rank that still gets rows: its `progress.state`, None if it has none yet.
        """
        settled = cls()
        for state in states:
            rank = cls._from_state(state)
            settled = cls(min(settled.limit, rank.limit), settled.unsettled | rank.unsettled)
        return settled

    @classmethod
    def _from_state(cls, state: str | None) -> SettledEpochs:
        try:
            timeline: Any = parse_json(state)
            timeline = timeline["course"]
            return cls(int(timeline["next"]), frozenset(int(row["epoch"][0]) for row in timeline["epochs"]))
        except (ArithmeticError, LookupError, TypeError, ValueError):
            return cls(limit=0)  # missing or damaged: unknown


USAGE_INDEX: dict[str, int] = {column.key: i for i, column in enumerate(USAGE)}
"""Index of a column in the values of a row."""
UNSEEN_AFTER = 60.0
"""Seconds without an update after which no daemon watches a running run; a daemon writes about every ten seconds."""
SETTLED_AFTER = 120.0
"""Seconds without an update after which an ended run gets no more rows. A daemon takes a minute to be sure that a run
was killed, and the driver's last samples come some ticks later."""
LATE_UPDATE = 20.0
"""Seconds between the last updates of an ended run in two ledgers from which on the later ledger has the run only from
its board; two daemons that both watched it end are some ticks apart."""
UNMEASURED: tuple[float, ...] = (NAN,) * len(USAGE)


class RunRow(NamedTuple):
    """A run: one row, however many ranks it has."""

    id: str
    name: str
    user: str
    hostname: str
    framework: str
    source: str
    """`nvml`, `replay` or `sim`."""
    label: str
    """For example `SIMULATED`; empty for live hardware."""
    driver: str
    world_size: int
    epochs: int
    """Planned epochs; 0 if unknown."""
    base: int
    """Number that the framework gives the first epoch of a training."""
    first_epoch: int
    """Number of the first epoch of this run; more than `base` after a resume."""
    started: float
    ended: float
    state: RunState
    updated: float
    """Time of the daemon's last update."""
    resumes: str
    """Id of the run that this one continues, or empty."""
    seconds: float = NAN
    """Duration until its end or its last update, by the steady clock."""

    @property
    def epochs_before(self) -> int:
        """Number of epochs that earlier runs of this training had completed."""
        return max(0, self.first_epoch - self.base)

    def duration(self, now: float) -> float:
        """Return the length of the run in seconds, up to its end, or to `now` (s since 1970) while it is running.

        If no daemon is watching it any more, it counts up to the last update. CLOCK_MONOTONIC is used where it was
        recorded, because the wall clock may have been set.
        """
        is_live = not is_known(self.ended) and self.state is RunState.RUNNING and not self.unseen_seconds(now)
        if self.seconds >= 0:
            # The wall clock may be set during the run: use it only for the time since the last update.
            return self.seconds + (max(0.0, now - self.updated) if is_live else 0.0)
        end = self.ended
        if not is_known(end):
            end = now if is_live else self.updated
        return max(0.0, end - self.started)

    def measured_until(self, now: float) -> float:
        """Return up to when (s since 1970) the run has measurements: its last update while it runs, else `now`."""
        is_live = self.state is RunState.RUNNING and not self.unseen_seconds(now)
        return self.updated if is_live and is_known(self.updated) else now

    def is_settled(self, now: float) -> bool:
        """Return whether the run ended so long before `now` (s since 1970) that its rows no longer change."""
        return self.state is not RunState.RUNNING and now - self.updated > SETTLED_AFTER

    def is_more_complete_than(self, other: RunRow) -> bool:
        """Return whether this row, and not `other`, is from the ledger whose daemon watched the run until its end.

        `other` is the same run in another ledger.
        """
        has_ended = RunState.RUNNING not in (self.state, other.state)
        return has_ended and other.updated - self.updated > LATE_UPDATE

    def unseen_seconds(self, now: float) -> float:
        """Return for how many seconds no daemon has seen this run, if it has not ended.

        0 while a daemon is watching it.
        """
        if self.state is not RunState.RUNNING or not now - self.updated > UNSEEN_AFTER:
            return 0.0
        return now - self.updated


class EpochTimes(NamedTuple):
    """Times, steps and energy, over all ranks, of one open epoch or of several consecutive ended ones."""

    begun: float
    """Seconds since 1970."""
    ended: float
    """NaN while it is open in a rank, and if a rank died in it."""
    seconds: float
    steps: int
    """0 if they were not counted."""
    energy: float
    """Joules; NaN if unknown."""
    times: int = 1
    """Number of epochs."""


class RunNames(NamedTuple):
    """Id, user and framework of a run."""

    id: str
    user: str
    framework: str


class RunSummary(NamedTuple):
    """A run with its totals over epochs and devices, for lists of runs."""

    run: RunRow
    done: int | None
    """Number of epochs that ended in it, recorded or not; None if steps were made before it was found and no epoch has
    begun since."""
    gpus: int
    energy: float
    """Joules, over all devices."""
    utilization: float
    """Mean over devices."""
    tags: Sequence[str] = ()
    newest: int = -1
    """Number of the last epoch that its slowest rank has begun; -1 before the first."""
    energy_least: float = NAN
    """Joules used at least; equal to `energy` if that is known."""


class NoteRow(NamedTuple):
    """A note about a run."""

    time: float
    text: str
    author: str
    """User who added it later; empty for a note by the training."""


class RunMetadata(NamedTuple):
    """Parameters, program, notes and tags of a run."""

    config: Mapping[str, Parameter] = {}
    """Parameters of the training, by name."""
    program: Mapping[str, Parameter] = {}
    """Facts that gpumon has found: script, commit, versions."""
    notes: Sequence[NoteRow] = ()
    """Oldest first."""
    tags: Sequence[str] = ()
    omitted: int = 0
    """Number of parameters and notes for which there was no room."""


class LivePeak(NamedTuple):
    """Peak memory of live tensors as the framework counts it, over all devices of a rank, in some stretch of time."""

    value: float = NAN
    """Bytes; NaN if unknown."""
    reached: bool = False
    """True if it was reached within the stretch; else it is an upper bound."""

    def joined_with(self, other: LivePeak) -> LivePeak:
        """Return the peak over both stretches of time."""
        if not is_known(self.value) or other.value > self.value:
            return other
        return self._replace(reached=self.reached or other.reached) if other.value == self.value else self


class DeviceRow(NamedTuple):
    """A device on which a rank trained."""

    uuid: str
    number: int
    """The driver's index, for display only."""
    name: str
    memory_total: float
    power_limit: float


class RankRow(NamedTuple):
    """One rank of a run: a process."""

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
    """Number of boundaries that were overwritten before they were read."""
    peak: float
    """Peak memory in live tensors, as the framework reports; bytes."""
    retries: float
    ooms: float
    devices: tuple[DeviceRow, ...]
    facts: RunFacts = RunFacts()
    """Facts reported by its training."""
    seconds: float = NAN
    """Seconds from its begin to its end, by the steady clock."""
    metrics: Mapping[str, float] = {}
    """Last value of each logged metric, by name."""
    package_energy: float = NAN
    """Joules of the machine's CPU packages while it ran; NaN if unknown."""
    package_unknown: str = ""
    """Reason why `package_energy` is unknown."""


class EpochRow(NamedTuple):
    """One epoch of one rank."""

    rank: str
    """Key of the rank."""
    ordinal: int
    """Counts the epochs that the rank has begun, from 0."""
    epoch: int
    """Number of the epoch in the training."""
    begun: float
    ended: float
    """NaN while it is open, and if the run died in it."""
    seconds: float
    steps: int
    wait: float
    metrics: Mapping[str, float]
    """Metrics logged in it; values may be NaN or infinite."""
    trained: float = NAN
    """Seconds of the training phase, to which `steps` belong; NaN if its steps were not counted separately."""
    wait_of: float = NAN
    """Seconds of the phases in which the wait was measured; NaN if it was not measured, or unknown."""
    peak: LivePeak = LivePeak()


class StepRow(NamedTuple):
    """A range of consecutive steps of a rank that has no epochs; a long training has 20 to 50 of them."""

    rank: str
    ordinal: int
    """Counts the rows of the rank, from 0."""
    first_step: int
    """Number of steps done before."""
    steps: int
    begun: float
    ended: float
    """NaN while it is open."""
    seconds: float
    trained: float
    """Seconds without evaluation and checkpoints, to which `steps` belong."""
    wait: float
    wait_of: float
    metrics: Mapping[str, float]
    """Last values of the metrics logged in it."""


class PhaseRow(NamedTuple):
    """One phase in one epoch of one rank, over all times it was entered."""

    rank: str
    ordinal: int
    phase: str
    seconds: float
    times: int
    """Number of times that the phase was entered."""
    steps: int
    wait: float
    spans: Sequence[tuple[float, float]] = ()
    """Seconds after the start of the epoch, and length in seconds, of its first times; empty for training."""
    position: float = NAN
    """Position among the phases of its epoch in order of first entry, from 0."""
    peak: LivePeak = LivePeak()


class UsageRow(NamedTuple):
    """How one rank used one device: in an epoch, in a phase of an epoch, or in the whole run."""

    rank: str
    ordinal: int
    """`schema.WHOLE_RUN` for the whole run."""
    phase: str
    """`schema.WHOLE_EPOCH` for all phases together."""
    uuid: str
    utilization_from: str
    """`driver`, `ticks`, or empty if nothing was sampled."""
    values: Sequence[float]
    """In the order of `columns.USAGE`."""
    energy_from: float = NAN
    """The driver's energy counter at its begin, joules; NaN if `energy` is not the difference of both counters."""
    energy_to: float = NAN
    """The driver's energy counter at its end."""

    def value(self, column: str) -> float:
        """Return the value of a column of `columns.USAGE` by name, such as `energy`."""
        return self.values[USAGE_INDEX[column]]


class MarkRow(NamedTuple):
    """Something that happened once in a rank: an out-of-memory error or a checkpoint."""

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


class RunTrace(NamedTuple):
    """Values of a device over the whole run; with an empty `uuid`, the metrics that a rank logged."""

    rank: str
    uuid: str
    begun: float
    step: float
    """Seconds between points."""
    points: int
    columns: Mapping[str, Envelope]
    """By metric name."""


class Record(NamedTuple):
    """All rows of a run except its traces, read at one moment."""

    run: RunRow
    ranks: Sequence[RankRow]
    """By rank."""
    epochs: Sequence[EpochRow]
    phases: Sequence[PhaseRow]
    usage: Sequence[UsageRow]
    marks: Sequence[MarkRow]
    about: RunMetadata = RunMetadata()
    outside: Sequence[PhaseRow] = ()
    """Time of ranks outside their epochs, by phase, and all of it together (phase `schema.WHOLE_EPOCH`)."""
    step_rows: Sequence[StepRow] = ()
    """Rows of steps of a run without epochs."""
    outside_usage: Sequence[UsageRow] = ()
    """Usage outside epochs (`ordinal` is `schema.OUTSIDE_EPOCHS`) and in rows of steps (`schema.STEP_ROWS` minus the
    ordinal of the row)."""
    settled: SettledEpochs = SettledEpochs()
    """Epochs whose rows are final."""

    @property
    def devices(self) -> list[DeviceRow]:
        """The devices of all ranks sorted by index; a device that several ranks use is listed once."""
        by_uuid = {device.uuid: device for rank in self.ranks for device in rank.devices}
        return sorted(by_uuid.values(), key=lambda device: (device.number, device.uuid))

    @property
    def whole_epochs(self) -> list[UsageRow]:
        """The usage rows for whole epochs and for the whole run; those for phases are left out."""
        return [row for row in self.usage if row.phase == WHOLE_EPOCH]


COUNT_IN_EPOCHS = frozenset(("keras", "lightning", "transformers", "ignite"))
"""Frameworks whose callbacks count steps only within epochs; steps outside are those of an earlier run."""


def has_steps_outside(record: Record) -> bool:
    """Return whether the steps counted outside epochs were made by this run and not by an earlier one."""
    return record.run.framework.partition("/")[0] not in COUNT_IN_EPOCHS


class StepCounts:
    """Counts the steps of a run, of its epochs and of its phases; None if a number is unknown."""

    def __init__(self, record: Record) -> None:
        self._run = any(epoch.steps for epoch in record.epochs)
        self._phases = {phase.phase for phase in record.phases if phase.steps}
        self._outside = [row for row in record.outside if row.phase not in EVALUATION and row.phase != WHOLE_EPOCH]
        self._record = record
        self._complete = not any(rank.lost_events for rank in record.ranks)  # no boundary was lost

    def epoch(self, row: EpochRow) -> int | None:
        """Return the steps of one rank in an epoch.

        0 in an open epoch is unknown, because steps are reported late.
        """
        # NaN != NaN; no call of is_known, because a call would cost more than the rest of the loop.
        return row.steps if row.steps or (self._run and row.ended == row.ended) else None

    def phase(self, row: PhaseRow) -> int | None:
        """Return the steps of one rank in a phase of an epoch."""
        return row.steps if row.phase in self._phases else None

    def whole(self, epochs: list[int | None]) -> int | None:
        """Return the steps of the whole run; `epochs` has the steps of each epoch.

        If boundaries were lost, epochs may be missing, so the training's own step counter is used. It is not used if
        the framework continues counting from an earlier run.
        """
        known = [steps for steps in (*epochs, self.between()) if steps is not None]
        if known and not self._complete and has_steps_outside(self._record):
            return max_steps([rank.steps or None for rank in self._record.ranks])
        return sum(known) if known and self._complete else None

    def between(self) -> int | None:
        """Return the steps made between epochs, without those of evaluation; None if there are none."""
        return self.outside() if self._outside and has_steps_outside(self._record) else None

    def outside(self) -> int | None:
        """Return the steps made outside epochs, without those of evaluation, by the rank that made the most."""
        if not self._record.outside:  # boundaries were lost
            return max_steps([rank.steps or None for rank in self._record.ranks])
        ranks = {row.rank for row in self._outside}
        return max_steps([sum(row.steps for row in self._outside if row.rank == rank) or None for rank in ranks])

    def trained(self) -> float:
        """Return the seconds of the phases outside epochs in which steps were made; NaN if unknown."""
        ranks = {row.rank for row in self._outside}
        seconds = [sum(row.seconds for row in self._outside if row.rank == rank and row.steps) for rank in ranks]
        return max(seconds, default=NAN) or NAN


def is_only_begun(row: EpochRow) -> bool:
    """Return whether only the start of an epoch is known, for example after a kill.

    Its length and steps are then unknown, not 0.
    """
    # NaN != NaN; no call of is_known, because a call would cost more than the rest of the loop.
    return row.ended != row.ended and not row.seconds > 0


def max_steps(steps: list[int | None]) -> int | None:
    """Return the highest number of steps of several ranks; None if none is known."""
    return max((number for number in steps if number is not None), default=None)
