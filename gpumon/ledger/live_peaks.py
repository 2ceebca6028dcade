"""Peaks of live tensors, joined over the ranks of a run."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.ledger.records import EpochRow, LivePeak, PhaseRow, Record


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
