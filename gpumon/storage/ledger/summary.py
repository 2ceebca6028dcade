"""Summaries of an epoch, a phase or a whole run, combined over ranks and devices, and sums over all epochs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gpumon.analysis.thresholds import PACE_FROM
from gpumon.common.numbers import NAN, is_known
from gpumon.model.columns import EPOCHS
from gpumon.storage.ledger.records import UNMEASURED, USAGE_INDEX, EpochRow, LivePeak, PhaseRow, Record


class EpochSummary(NamedTuple):
    """Summary over all ranks and devices of an epoch, a phase of an epoch, a row of steps, or a whole run."""

    ordinal: int
    epoch: int
    """Number of the epoch in the training."""
    phase: str
    begun: float
    ended: float
    """NaN while it is open, and if the run died in it."""
    seconds: float
    times: int
    """Number of times that a phase was entered; else 1."""
    steps: int | None
    """None if they were not counted in all of it."""
    wait: float
    """Seconds waited for data, mean over ranks."""
    metrics: Mapping[str, float]
    ranks: int
    utilization_from: str
    values: Sequence[float] = UNMEASURED
    """In the order of `columns.USAGE`, joined over devices."""
    batch: float = NAN
    """Samples per step over all ranks."""
    trained: float = NAN
    """Seconds of training, to which the steps belong; NaN if that is the whole time, or unknown."""
    wait_of: float = NAN
    """Seconds of the phases in which the wait was measured; NaN if that is the whole time, or unknown."""
    peak: LivePeak = LivePeak()
    """The framework's peak of live tensors on the fullest device."""
    sampled_share: float = NAN
    """Share of the time covered by samples, of the rank and device with the lowest share; NaN without a length."""
    is_open: bool = False
    """True for an epoch, a row of steps or a run that has not ended; false for phases and the time between epochs."""
    is_settled: bool = True
    """False while rows of it may still change, as the driver's samples come seconds late."""

    def value(self, column: str) -> float:
        """Return the value of a column of `columns.USAGE` by name."""
        return self.values[USAGE_INDEX[column]]

    def number(self, column: str) -> float:
        """Return the value of a column of `columns.EPOCHS` by key; NaN if it is unknown."""
        if column not in OWN_COLUMNS:
            return self.value(column)
        value: float | None = getattr(self, column)
        return NAN if value is None else value

    @property
    def lacks_energy(self) -> bool:
        """Whether part of the energy is unknown, because readings at the begin or end are missing."""
        return not is_known(self.value("energy")) and is_known(self.value("energy_least"))

    @property
    def is_settling(self) -> bool:
        """Whether it has ended but its measurements may still change."""
        return is_known(self.ended) and not self.is_settled

    @property
    def steps_per_second(self) -> float:
        """Steps per second of training; the time of validation and checkpoints does not count if it is known.

        NaN in the first seconds of an open epoch or run.
        """
        seconds = self.trained if self.trained > 0 else self.seconds
        if self.is_open and not seconds >= PACE_FROM:
            return NAN
        return self.steps / seconds if seconds > 0 and self.steps else NAN

    @property
    def wait_share(self) -> float:
        """Share (0 to 1) of the time spent waiting for data, over the phases in which waiting was measured."""
        seconds = self.wait_of if self.wait_of > 0 else self.seconds
        # Keep this order: with NaN, `min` returns its first argument.
        return min(self.wait / seconds, 1.0) if seconds > 0 else NAN

    @property
    def live_peak(self) -> LivePeak:
        """Peak memory of live tensors.

        It was reached, according to the framework's counter or to readings between steps, or it is an upper bound. Its
        value is NaN if the framework has no such counter or the counter was not read.
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
    """Sums over all epochs of a run; NaN is unknown."""

    epochs: int
    seconds: float
    overlap: float
    """Seconds that lie in two epochs, because ranks are apart."""
    steps: int | None
    """None if no epoch has steps."""
    trained: float
    """Seconds in which these steps were made; NaN if no epoch has a training phase."""
    stepped: float
    """Seconds of the epochs with steps."""
    waited: float
    """Seconds waited for data in the epochs that have `waited_of`."""
    waited_of: float
    """Seconds in which the wait was measured."""


class EpochLengths(NamedTuple):
    """Number and lengths of the ended epochs of a run; NaN is unknown."""

    done: int = 0
    """Number of epochs that ended."""
    lowest: int | None = None
    """Lowest number of an epoch."""
    last: int | None = None
    """Number of the newest epoch that ended."""
    known: int = 0
    """Number of epochs with a known length."""
    total: float = 0.0
    """Seconds of these."""
    least: float = NAN
    """Seconds of the shortest."""
    most: float = NAN
    """Seconds of the longest."""
    most_energy: float = NAN
    """Highest energy of an epoch, joules."""


def epochs_done(record: Record, epochs: Sequence[EpochSummary]) -> int:
    """Return how many epochs the training has completed.

    Epochs completed by earlier runs, or before a daemon noticed this run, count as well.
    """
    base = record.run.base
    first = min((epoch.epoch for epoch in epochs if epoch.epoch >= 0), default=base)
    folded = max((int(rank.facts.folded) for rank in record.ranks), default=0)
    return sum(is_known(epoch.ended) for epoch in epochs) + folded + max(0, first - base)


def are_epochs_known(record: Record, epochs: Sequence[EpochSummary]) -> bool:
    """Return whether the number of completed epochs is known.

    It is unknown if the training had made steps before a daemon noticed it and has not begun an epoch since.
    """
    return bool(epochs) or not any(rank.steps for rank in record.ranks)


def fullest(rows: Sequence[EpochRow] | Sequence[PhaseRow], single: set[str]) -> LivePeak:
    """Return the memory peak of the fullest device.

    `single`: keys of the ranks that use one device. A rank with several devices has one counter for all of them, so its
    peak is only an upper bound.
    """
    if len(rows) == 1 and rows[0].rank in single:
        return rows[0].peak
    return joined_peaks([row.peak if row.rank in single else row.peak._replace(reached=False) for row in rows])


def joined_peaks(peaks: Sequence[LivePeak]) -> LivePeak:
    """Return the highest of the peaks; unknown if one of them is unknown."""
    # NaN != NaN; no call of is_known, because thousands of epochs are joined at once.
    if not peaks or any(peak.value != peak.value for peak in peaks):
        return LivePeak()  # the unknown one may be the highest
    return max(peaks)


def single_devices(record: Record) -> set[str]:
    """Return the keys of the ranks that use one device."""
    return {rank.key for rank in record.ranks if len(rank.devices) == 1}
