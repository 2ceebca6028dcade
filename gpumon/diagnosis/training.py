"""The facts about a recorded training on which the rules about slow trainings are based.

A training is divided into windows. A window is an ended epoch, or an ended row of steps in a run without epochs. The
first window is left out, because the training compiles and fills caches in it. A run that
has ended is judged by all its windows. A running run is judged by its newest windows, so that a finding disappears when
its cause has gone. A finding requires that its limit is reached in `NEEDED` windows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from gpumon.analysis.thresholds import JUDGED_SECONDS
from gpumon.common.numbers import NAN, is_known
from gpumon.diagnosis.finding import Gain, Subject
from gpumon.model.frame import TRAINING, RunState
from gpumon.model.metrics import NEEDS
from gpumon.model.run import CPUS
from gpumon.storage.ledger.aggregate import step_summaries
from gpumon.storage.ledger.records import EpochRow, Record, UsageRow
from gpumon.storage.ledger.row_keys import OTHER, WHOLE_EPOCH, WHOLE_RUN
from gpumon.storage.ledger.summary import EpochSummary

CHECKPOINTS = frozenset(("checkpoint", "save", "saving", "checkpointing"))
"""Names of phases in which the state of the training is saved."""
NEWEST_WINDOWS = 5
"""Number of windows by which a running run is judged."""
NEEDED = 2
"""Number of windows in which the limit of a rule must be reached."""
_IDLE_POWER = (0.08, 0.25)
"""Power of a card that waits, as a share of its power limit: lowest and highest of common cards."""

_LONG = 30.0
"""The mean memory of a row is used only if the row covers at least this many seconds. Over a shorter time, the age of
the driver's process list makes the mean too inexact."""


class Window(NamedTuple):
    """An ended epoch or row of steps, with the time until the next one."""

    summary: EpochSummary
    phases: Mapping[str, float]
    """Seconds of each phase other than training; of several ranks, the longest."""
    gap: float = 0.0
    """Seconds until the next epoch begins; 0 for the last epoch."""
    others: float = NAN
    """Peak memory of other programs in bytes, on the GPU on which they used most; NaN if not measured."""

    @property
    def seconds(self) -> float:
        """Length of the epoch and of the time until the next one."""
        return self.summary.seconds + self.gap

    def in_phases(self, names: Collection[str]) -> float:
        """Return the seconds of the epoch in these phases."""
        return sum(seconds for phase, seconds in self.phases.items() if phase in names)


class RankTimes(NamedTuple):
    """The waits and the GPU utilization of one rank of a distributed training."""

    rank: int
    wait: float
    """Seconds waited for data in the judged windows; NaN if not measured."""
    utilization: float
    """Mean utilization of its GPUs over the run; NaN if not measured."""


class Loader(NamedTuple):
    """How a training loads batches, as its process reported it. The ranks of a run have equal loaders."""

    loading: str = ""
    """One of `run.LOADING`; empty if it was not reported."""
    workers: int = 0
    """Number of worker processes of each rank."""
    pass_wait: float = NAN
    """Mean seconds that a rank waits for the first batch and for the end of a pass; NaN if not measured."""
    busy_share: float = NAN
    """Share of the time that a worker computes; NaN until the run has ended."""


@dataclass(frozen=True, slots=True)
class Training:
    """The facts about a recorded training."""

    subject: Subject
    framework: str
    """Framework without its backend, such as `keras`."""
    is_running: bool
    windows: Sequence[Window]
    """The windows to judge, oldest first."""
    seconds: float
    """Total length of these windows and of the time between them."""
    ended: Sequence[Window]
    """All ended windows, including the first one."""
    total: EpochSummary
    """Summary of the whole run."""
    outside: Mapping[str, float]
    """Seconds of each phase outside epochs, in the whole run. The phase `OTHER` is the time without a phase."""
    times_outside: Mapping[str, int]
    """Number of times that each of these phases was entered."""
    ranks: Sequence[RankTimes]
    batch: float
    """Samples per step over all ranks; NaN if not reported."""
    memory_total: float
    """Memory of the smallest device in bytes; NaN if not known."""
    power_limit: float
    """Sum of the power limits of the devices in watts; NaN if not known."""
    cpus: float
    """Number of CPU cores that each rank may use; NaN if not known."""
    loader: Loader
    """How the training loads its batches."""
    planned: int
    """Number of planned epochs; 0 if not reported."""
    retries: float
    """Number of times the framework's allocator freed its cache to find room; NaN if not reported."""
    has_epochs: bool
    settling: int
    """Number of ended windows that are not in `ended`, because their values are not complete yet."""

    @property
    def is_judged(self) -> bool:
        """Whether the windows are numerous and long enough to be judged."""
        return len(self.windows) >= NEEDED and self.seconds >= JUDGED_SECONDS

    @property
    def window_text(self) -> str:
        """The judged windows as text, such as `epochs 1–4`."""
        first, last = self.windows[0].summary, self.windows[-1].summary
        if not self.has_epochs:
            return f"steps {first.epoch + 1}–{last.epoch + (last.steps or 0)}"
        return f"epochs {first.epoch}–{last.epoch}" if len(self.windows) > 1 else f"epoch {first.epoch}"

    @property
    def steps(self) -> int:
        """Number of steps in the judged windows; 0 if they were not counted."""
        return sum(window.summary.steps or 0 for window in self.windows)

    @property
    def trained(self) -> float:
        """Seconds of training in the judged windows, with the waits for data."""
        return sum(_trained(window) for window in self.windows)

    @property
    def wait(self) -> float:
        """Seconds waited for data in the judged windows; NaN if the waits were not measured."""
        return sum(window.summary.wait for window in self.windows)

    @property
    def wait_share(self) -> float:
        """Share of the judged time that the training waited for data; NaN if the waits were not measured."""
        return self.wait / self.seconds if self.seconds > 0 else NAN

    def mean(self, column: str) -> float:
        """Return the mean of a column over the judged windows, weighted by length; NaN if it is missing in one."""
        known = [(window.summary.value(column), window.summary.seconds) for window in self.windows]
        weight = sum(seconds for _, seconds in known)
        return sum(value * seconds for value, seconds in known) / weight if weight > 0 else NAN

    def highest(self, column: str) -> float:
        """Return the highest value of a column in the judged windows; NaN if there is none."""
        values = [window.summary.value(column) for window in self.windows]
        return max((value for value in values if is_known(value)), default=NAN)

    def in_phases(self, names: Collection[str]) -> float:
        """Return the seconds that the judged windows, and the time between them, spent in these phases."""
        within = sum(window.in_phases(names) for window in self.windows)
        outside = sum(seconds for phase, seconds in self.outside.items() if phase in names)
        whole = self.total.seconds
        return within + (outside * min(1.0, self.seconds / whole) if outside and whole > 0 else 0.0)

    def share(self, names: Collection[str]) -> float:
        """Return the share of the judged time in these phases."""
        return self.in_phases(names) / self.seconds if self.seconds > 0 else NAN

    @property
    def unnamed_gap(self) -> float:
        """Share of the judged time that is between epochs and belongs to no phase."""
        gap = sum(window.gap for window in self.windows)
        named = sum(seconds for phase, seconds in self.outside.items() if phase != OTHER)
        whole = self.total.seconds
        named *= min(1.0, self.seconds / whole) if whole > 0 else 0.0
        return max(0.0, gap - named) / self.seconds if self.seconds > 0 else NAN

    def lasts(self, is_reached: Callable[[Window], bool]) -> bool:
        """Return whether a limit is reached in enough windows for a finding.

        For an ended run, these are any `NEEDED` windows. For a running run, `NEEDED` consecutive windows raise the
        finding, and `NEEDED` consecutive windows below the limit clear it.
        """
        reached = [is_reached(window) for window in self.windows]
        if not self.is_running:
            return sum(reached) >= NEEDED
        is_raised, differing = False, 0
        for state in reached:
            differing = differing + 1 if state != is_raised else 0
            if differing == NEEDED:
                is_raised, differing = state, 0
        return is_raised

    def saves(self, low: float, high: float) -> Gain:
        """Return the gain of an action that removes idle time of the GPUs, as shares `low` to `high` of the time."""
        low, high = min(low, 1.0), min(high, 1.0)
        power = self.mean("power_mean")
        least, most = (min(1.0, share * self.power_limit / power) if power > 0 else NAN for share in _IDLE_POWER)
        return Gain(low, high, low * least, high * most)


def training_of(record: Record, epochs: Sequence[EpochSummary], total: EpochSummary, subject: Subject) -> Training:
    """Return the facts about a recorded training.

    `record` must have been read with the times of phases. `epochs` and `total`: results of `aggregate.epoch_summaries`
    and `aggregate.run_total`.
    """
    is_running = record.run.state is RunState.RUNNING
    summaries = epochs or step_summaries(record)
    ended = _windows(record, [summary for summary in summaries if is_known(summary.ended) and summary.is_settled])
    judged = ended[1:]
    if is_running:
        judged = judged[-NEWEST_WINDOWS:]
    outside: dict[str, float] = {}
    times: dict[str, int] = {}
    for row in record.outside:
        if row.phase != WHOLE_EPOCH:
            times[row.phase] = max(times.get(row.phase, 0), row.times)
            outside[row.phase] = max(outside.get(row.phase, 0.0), row.seconds if is_known(row.seconds) else 0.0)
    return Training(
        subject=subject,
        framework=record.run.framework.partition("/")[0],
        is_running=is_running,
        windows=judged,
        seconds=sum(window.seconds for window in judged),
        ended=ended,
        total=total,
        outside=outside,
        times_outside=times,
        ranks=_ranks(record, {window.summary.ordinal for window in judged}) if epochs else [],
        batch=total.batch,
        memory_total=min((device.memory_total for device in record.devices), default=NAN),
        power_limit=sum(device.power_limit for device in record.devices) if record.devices else NAN,
        cpus=_cpus(record),
        loader=_loader(record),
        planned=record.run.epochs,
        retries=sum(rank.retries for rank in record.ranks) if record.ranks else NAN,
        has_epochs=bool(epochs),
        settling=sum(summary.is_settling for summary in summaries),
    )


class Unjudged(NamedTuple):
    """A subject that no rule could judge because a measurement is missing."""

    what: str
    """What was not judged, such as `waits for data`."""
    why: str
    """What is missing, as a clause, such as `they were not measured`."""


def unjudged(training: Training) -> list[Unjudged]:
    """Return what the rules about slow trainings could not judge, and why."""
    if not training.is_judged:
        windows = "epochs" if training.has_epochs else "rows of steps"
        reason = f"this needs {NEEDED} ended {windows} after the first, {JUDGED_SECONDS:g} s long in all"
        if len(training.ended) + training.settling > NEEDED > len(training.windows):
            reason = f"the values of the ended {windows} are not complete yet: try again in some seconds"
        return [Unjudged("time of the epochs", reason)]
    missing = []
    if not is_known(training.wait):
        missing.append(Unjudged("waits for data", "they were not measured: iterate over run.steps(loader)"))
    if not training.steps:
        missing.append(Unjudged("time per step", "no steps were counted"))
    if not is_known(training.mean("utilization_mean")):
        missing.append(Unjudged("use of the GPU", "no GPU of the run was sampled"))
    elif not is_known(training.mean("tensor_throughput_mean")):
        missing.append(Unjudged("tensor cores", f"not measurable on this card: needs {NEEDS['gpu.tensor_throughput']}"))
    elif not is_known(training.memory_total):
        missing.append(Unjudged("memory", "the size of the memory is not recorded"))
    return missing


def memory_of_others(row: UsageRow) -> float:
    """Return the peak memory of other programs on a device in bytes; NaN if it was not measured.

    The memory of the run is subtracted from the used memory of the device. The driver's process list is seconds old and
    shows too little memory while the run grows. Therefore the memory reserved by the framework is subtracted if it is
    higher. If the framework reports none, means are compared, because the peak may belong to the run.
    """
    used, reserved = row.value("run_used_peak"), row.value("run_reserved_peak")
    if is_known(reserved):
        return row.value("memory_used_peak") - max(used, reserved) if is_known(used) else NAN
    return row.value("memory_used_mean") - used if row.value("seconds") >= _LONG else NAN


def _windows(record: Record, summaries: Sequence[EpochSummary]) -> list[Window]:
    longest: dict[int, dict[str, float]] = {}
    for row in record.phases:
        if row.phase != TRAINING:
            phases = longest.setdefault(row.ordinal, {})
            phases[row.phase] = max(phases.get(row.phase, 0.0), row.seconds)
    others: dict[int, float] = {}
    for used in record.whole_epochs:
        if is_known(held := memory_of_others(used)):
            others[used.ordinal] = max(others.get(used.ordinal, 0.0), held)
    gaps = [_gap(summary, following) for summary, following in pairwise(summaries)]
    return [
        Window(summary, longest.get(summary.ordinal, {}), gap, others.get(summary.ordinal, NAN))
        for summary, gap in zip(summaries, [*gaps, 0.0][: len(summaries)], strict=True)
    ]


def _gap(summary: EpochSummary, following: EpochSummary) -> float:
    """Return the seconds between two epochs; 0 if epochs between them are missing."""
    gap = following.begun - summary.ended if following.ordinal == summary.ordinal + 1 else 0.0
    return gap if gap > 0 else 0.0


def _trained(window: Window) -> float:
    summary = window.summary
    return summary.trained if summary.trained > 0 else max(0.0, summary.seconds - sum(window.phases.values()))


def _cpus(record: Record) -> float:
    cpus = record.about.program.get(CPUS)
    if isinstance(cpus, bool) or not isinstance(cpus, int | float) or not cpus >= 1:
        return NAN
    local_ranks = max((rank.local_rank for rank in record.ranks), default=0) + 1
    return max(1.0, cpus // local_ranks)


def _loader(record: Record) -> Loader:
    ranks = [rank for rank in record.ranks if rank.facts.loading]
    if not ranks or len({(rank.facts.loading, rank.facts.workers) for rank in ranks}) > 1:
        return Loader()
    facts = ranks[0].facts
    passes = sum(rank.facts.passes for rank in ranks)
    computed = sum(rank.facts.worker_cpu_seconds for rank in ranks)
    time = sum(rank.seconds for rank in ranks) * facts.workers
    return Loader(
        loading=facts.loading,
        workers=round(facts.workers),
        pass_wait=sum(rank.facts.pass_waits for rank in ranks) / passes if passes else NAN,
        busy_share=computed / time if time > 0 and computed else NAN,
    )


def _ranks(record: Record, ordinals: Collection[int]) -> list[RankTimes]:
    rows: dict[str, list[EpochRow]] = {}
    for row in record.epochs:
        if row.ordinal in ordinals:
            rows.setdefault(row.rank, []).append(row)
    usage: dict[str, list[UsageRow]] = {}
    for used in record.whole_epochs:
        if used.ordinal == WHOLE_RUN:
            usage.setdefault(used.rank, []).append(used)
    ranks = []
    for rank in record.ranks:
        busy = [used.value("utilization_mean") for used in usage.get(rank.key, ())]
        ranks.append(
            RankTimes(
                rank=rank.rank,
                wait=sum(row.wait for row in rows[rank.key]) if rank.key in rows else NAN,
                utilization=sum(busy) / len(busy) if busy else NAN,
            )
        )
    return ranks
