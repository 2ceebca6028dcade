"""One line of a run: an epoch, a phase or the whole, joined over ranks and devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gpumon.analysis.thresholds import PACE_FROM
from gpumon.common.numbers import NAN, is_known
from gpumon.model.columns import EPOCHS
from gpumon.storage.ledger.records import UNMEASURED, USAGE_INDEX, EpochRow, LivePeak, PhaseRow, Record


class EpochSummary(NamedTuple):
    """An epoch, a phase of one, or a whole run, of all ranks and devices together."""

    ordinal: int
    epoch: int
    """Its number, as the training counts."""
    phase: str
    begun: float
    ended: float
    """NaN while it is open, and where the run went away in it."""
    seconds: float
    times: int
    """Number of times that a phase was entered; 1 of others."""
    steps: int | None
    """None where they were not counted, and of a whole of which a part is not known."""
    wait: float
    """Seconds waited for data, mean over ranks."""
    metrics: Mapping[str, float]
    ranks: int
    utilization_from: str
    values: Sequence[float] = UNMEASURED
    """In the order of `columns.USAGE`, joined over devices."""
    batch: float = NAN
    """Samples of a step, of all ranks together."""
    trained: float = NAN
    """Seconds of training among them, to which the steps belong; NaN where that is the whole time, or unknown."""
    wait_of: float = NAN
    """Seconds of the phases in which the wait was measured; NaN where that is the whole time, or unknown."""
    peak: LivePeak = LivePeak()
    """The framework's own peak of live tensors, of the fullest device."""
    sampled_share: float = NAN
    """Share of the time that samples saw, of the rank and device that was seen least; NaN without a length."""
    is_open: bool = False
    """Whether it is an epoch, a row of steps or a run that has not ended; of phases and what lies between, no."""
    is_settled: bool = True
    """Whether the ledger changes it no more, as far as that is known: the driver's samples come seconds late."""

    def value(self, column: str) -> float:
        """The value of a column of `columns.USAGE`, by its name."""
        return self.values[USAGE_INDEX[column]]

    def number(self, column: str) -> float:
        """The value of a column of `columns.EPOCHS`, by its key: the training's own, else what was measured."""
        if column not in OWN_COLUMNS:
            return self.value(column)
        value: float | None = getattr(self, column)
        return NAN if value is None else value

    @property
    def lacks_energy(self) -> bool:
        """Whether only a part of its energy is known, because readings of the counter are missing at its borders."""
        return not is_known(self.value("energy")) and is_known(self.value("energy_least"))

    @property
    def is_settling(self) -> bool:
        """Whether it has ended, and what was measured in it is not final yet."""
        return is_known(self.ended) and not self.is_settled

    @property
    def steps_per_second(self) -> float:
        """Of the time spent in training, where that is known: not of validation and checkpoints.

        Of what goes on, or broke off, nothing is said in its first seconds, as of a run that frames tell of.
        """
        seconds = self.trained if self.trained > 0 else self.seconds
        if self.is_open and not seconds >= PACE_FROM:
            return NAN
        return self.steps / seconds if seconds > 0 and self.steps else NAN

    @property
    def wait_share(self) -> float:
        """Share of the time in which the training waited for data, of the phases in which that was measured."""
        seconds = self.wait_of if self.wait_of > 0 else self.seconds
        # In this order: of 1 and NaN `min` gives whichever comes first.
        return min(self.wait / seconds, 1.0) if seconds > 0 else NAN

    @property
    def live_peak(self) -> LivePeak:
        """The most in live tensors: reached if the framework or readings between steps say so, else a bound.

        Its value is NaN where the framework has no such counter, or it was not read.
        """
        return self.peak._replace(reached=True) if self.value("run_allocated_peak") >= self.peak.value else self.peak

    @property
    def framework_peak(self) -> float:
        return self.live_peak.value

    @property
    def energy_per_step(self) -> float:
        return self.value("energy") / self.steps if self.steps else NAN

    @property
    def samples_per_second(self) -> float:
        return self.steps_per_second * self.batch

    @property
    def energy_per_sample(self) -> float:
        return self.energy_per_step / self.batch if self.batch > 0 else NAN


OWN_COLUMNS = frozenset(column.key for column in EPOCHS if hasattr(EpochSummary, column.key))
"""Columns whose values are those of the training, or follow from them."""


class EpochSums(NamedTuple):
    """What the epochs of a run add up to, as its totals need it. NaN is unknown."""

    epochs: int
    seconds: float
    overlap: float
    """Seconds that lie in two epochs, as ranks are apart."""
    steps: int | None
    """None where no epoch counted any."""
    trained: float
    """Seconds in which these steps were made; NaN where no epoch separates them, or one has no length."""
    stepped: float
    """Seconds of the epochs with steps."""
    waited: float
    waited_of: float
    """Seconds waited for data, and those in which that was measured, of the epochs that have both."""


class EpochLengths(NamedTuple):
    """How many epochs of a run ended, and how long they took. NaN is unknown."""

    done: int = 0
    lowest: int | None = None
    """The lowest number of an epoch."""
    last: int | None = None
    """Number of the newest that ended."""
    known: int = 0
    """Of how many the length is known."""
    total: float = 0.0
    least: float = NAN
    most: float = NAN
    most_energy: float = NAN
    """Joules."""


def epochs_done(record: Record, epochs: Sequence[EpochSummary]) -> int:
    """Return the number of epochs that a training has behind it, those before the first recorded one included.

    The run that it resumes had these, or they ended before a recorder saw it.
    """
    base = record.run.base
    first = min((one.epoch for one in epochs if one.epoch >= 0), default=base)
    folded = max((int(rank.facts.folded) for rank in record.ranks), default=0)
    return sum(is_known(one.ended) for one in epochs) + folded + max(0, first - base)


def are_epochs_known(record: Record, epochs: Sequence[EpochSummary]) -> bool:
    """Whether it is known how many epochs a training has behind it.

    It is not where a training took steps before a recorder saw it, and none of its epochs has begun since.
    """
    return bool(epochs) or not any(rank.steps for rank in record.ranks)


def fullest(rows: Sequence[EpochRow] | Sequence[PhaseRow], single: set[str]) -> LivePeak:
    """The peak of the fullest device: the counter of a rank on several devices is of all of them together."""
    if len(rows) == 1 and rows[0].rank in single:
        return rows[0].peak
    return joined_peaks([row.peak if row.rank in single else row.peak._replace(reached=False) for row in rows])


def joined_peaks(peaks: Sequence[LivePeak]) -> LivePeak:
    """The highest of them; unknown as soon as one is."""
    # NaN is not itself; in place, because thousands of epochs are joined at once.
    if not peaks or any(peak.value != peak.value for peak in peaks):
        return LivePeak()  # one of which it is unknown may be the fullest
    return max(peaks)


def single_devices(record: Record) -> set[str]:
    """Keys of the ranks on one device."""
    return {rank.key for rank in record.ranks if len(rank.devices) == 1}
