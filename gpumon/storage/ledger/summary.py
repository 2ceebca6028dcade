"""Summaries of an epoch, a phase or a whole run, each combined over ranks and devices, and sums over all epochs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from gpumon.analysis.thresholds import PACE_FROM
from gpumon.common.numbers import NAN, is_known
from gpumon.model.columns import EPOCHS
from gpumon.storage.ledger.records import (
    UNMEASURED,
    USAGE_INDEX,
    EpochRow,
    LivePeak,
    PhaseRow,
    Record,
)
from gpumon.storage.ledger.row_keys import WHOLE_EPOCH


@dataclass(frozen=True, slots=True)
class EpochSummary:
    """Summary over all ranks and devices of an epoch, a phase of an epoch, a row of steps, or a whole run."""

    ordinal: int
    epoch: int
    """Epoch number as the training counts it."""
    seconds: float
    steps: int | None
    """Number of steps. None if some of the steps were not counted."""
    wait: float
    """Seconds waited for data, as the mean over ranks."""
    ranks: int
    utilization_from: str
    phase: str = WHOLE_EPOCH
    begun: float = NAN
    ended: float = NAN
    """NaN while the epoch is open, or if the run died in it. NaN for phases and the time between epochs."""
    times: int = 1
    """For a phase, the number of times that it was entered; else 1."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    values: Sequence[float] = UNMEASURED
    """Usage values combined over devices, in the order of `columns.USAGE`."""
    batch: float = NAN
    """Samples per step over all ranks."""
    trained: float = NAN
    """Seconds of training, in which the steps were taken. NaN if this is the whole time, or if not recorded."""
    wait_of: float = NAN
    """Seconds of the phases in which the wait was measured. NaN if this is the whole time, or if not recorded."""
    peak: LivePeak = field(default_factory=LivePeak)
    """The framework's peak of live tensors on the fullest device."""
    sampled_share: float = NAN
    """Share of the time that samples cover, for the rank and device with the lowest share. NaN if the length of the
    time is not recorded."""
    lacks_ranks: bool = False
    """Whether a rank has no row for this epoch, because short epochs were merged or boundaries were lost. Then
    `sampled_share` is 0, and the energy is only a lower bound."""
    is_open: bool = False
    """True for an epoch, a row of steps or a run that has not ended. False for phases and the time between epochs."""
    is_settled: bool = True
    """False while the rows may still change. They may change because the driver's samples arrive seconds late."""
    merged: int = 1
    """Number of epochs in this row. More than 1 if epochs were too short and too many to have a row each."""

    def value(self, column: str) -> float:
        """Return the value of a column of `columns.USAGE` by name."""
        return self.values[USAGE_INDEX[column]]

    def number(self, column: str) -> float:
        """Return the value of a column of `columns.EPOCHS` by key; NaN if there is no value."""
        if column not in OWN_COLUMNS:
            return self.value(column)
        value: float | None = getattr(self, column)
        return NAN if value is None else value

    @property
    def label(self) -> str:
        """Number of the epoch, or of the first and last epoch in this row: `7`, `5986–5997`."""
        return f"{self.epoch}–{self.epoch + self.merged - 1}" if self.merged > 1 else str(self.epoch)

    @property
    def lacks_energy(self) -> bool:
        """Whether part of the energy was not measured, because readings at the start or end are missing."""
        return not is_known(self.value("energy")) and is_known(self.value("energy_least"))

    @property
    def is_settling(self) -> bool:
        """Whether the epoch has ended but its measurements may still change."""
        return is_known(self.ended) and not self.is_settled

    @property
    def steps_per_second(self) -> float:
        """Steps per second of training. Time in validation and checkpoints is left out if it was recorded.

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

        `reached` is true if the framework's counter or a reading between steps shows that the peak was reached.
        Otherwise the value is an upper bound. The value is NaN if the framework has no such counter, or if the counter
        was not read.
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
"""Keys of the columns that are attributes of `EpochSummary`. Their values were reported by the training, or are
derived."""


class EpochSums(NamedTuple):
    """Sums over all epochs of a run. A missing sum is NaN."""

    epochs: int
    seconds: float
    overlap: float
    """Seconds that belong to two epochs, because some ranks started an epoch before others ended the previous one."""
    steps: int | None
    """Total number of steps of all epochs. None if no epoch has steps."""
    trained: float
    """Seconds in which these steps were taken; NaN if no epoch has a training phase."""
    stepped: float
    """Seconds of the epochs with steps."""
    waited: float
    """Seconds waited for data, summed over the epochs in which the wait was measured."""
    waited_of: float
    """Seconds in which the wait was measured, summed over these epochs."""


@dataclass(frozen=True, slots=True)
class EpochLengths:
    """Count and lengths of the ended epochs of a run. Unknown shortest and longest lengths and energy are NaN."""

    done: int = 0
    """Count of the epochs that ended."""
    last: int | None = None
    """Epoch number of the newest epoch that ended."""
    known: int = 0
    """Count of the epochs whose length is recorded."""
    total: float = 0.0
    """Total length of these epochs in seconds."""
    least: float = NAN
    """Length of the shortest epoch in seconds."""
    most: float = NAN
    """Length of the longest epoch in seconds."""
    most_energy: float = NAN
    """Highest energy of a single epoch, in joules."""


def fullest(rows: Sequence[EpochRow] | Sequence[PhaseRow], single: set[str]) -> LivePeak:
    """Return the memory peak of the fullest device.

    `single`: keys of the ranks that use one device. A rank with several devices has one counter for all of them, so its
    peak is only an upper bound.
    """
    return joined_peaks([row.peak if row.rank in single else row.peak._replace(reached=False) for row in rows])


def joined_peaks(peaks: Sequence[LivePeak]) -> LivePeak:
    """Return the highest of the peaks. It is NaN if one of the peaks is NaN."""
    # NaN != NaN; no call of is_known, because thousands of epochs are joined at once.
    if not peaks or any(peak.value != peak.value for peak in peaks):
        return LivePeak()  # the missing peak may be the highest
    return max(peaks)


def single_devices(record: Record) -> set[str]:
    """Return the keys of the ranks that use one device."""
    return {rank.key for rank in record.ranks if len(rank.devices) == 1}
