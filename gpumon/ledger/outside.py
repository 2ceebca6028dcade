"""Time and usage of a run outside its epochs, joined over ranks and devices: evaluation, checkpoints, all else."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gpumon.common.numbers import NAN, is_known
from gpumon.ledger.combine import by_stretch, highest, mean, over_devices_each, seen_by, seen_share
from gpumon.ledger.epoch_summary import EpochSummary
from gpumon.ledger.live_peaks import fullest, single_devices
from gpumon.ledger.records import EpochTimes, PhaseRow, Record
from gpumon.ledger.schema import OTHER, OUTSIDE_EPOCHS, WHOLE_EPOCH
from gpumon.ledger.step_counts import StepCounts, counts_outside, most

WORTH_A_ROW = 0.005
"""Share of the whole run's time from which it is shown where nothing but the code between epochs is in it."""


def between(record: Record, epochs: Sequence[EpochSummary] | Sequence[EpochTimes]) -> EpochSummary | None:
    """All that lies outside the epochs of a run; None where this is unknown, or the run has no epochs.

    Its time and that of the epochs are that of the whole, and their energies are its energy.
    """
    rows = [row for row in record.outside if row.phase == WHOLE_EPOCH]
    if not epochs or not rows or len(rows) < len(record.ranks):
        return None
    found = _summed(record, WHOLE_EPOCH, rows)._replace(steps=StepCounts(record).between())
    if len(rows) > 1 and is_known(record.run.seconds):
        found = found._replace(seconds=_outside_all(epochs, record.run.seconds))
    return found


def _outside_all(epochs: Sequence[EpochSummary] | Sequence[EpochTimes], whole: float) -> float:
    """Seconds of a run of several ranks in which none is in an epoch; `whole` lasted the run.

    Each epoch is joined from the first begin to the last end. Where ranks are apart, that of the last
    overlaps the next one of the first: such time is in two epochs, and is taken from the rest once.
    """
    twice, until = 0.0, -math.inf
    for begun, seconds in sorted((epoch.begun, epoch.seconds) for epoch in epochs if is_known(epoch.begun)):
        twice += max(0.0, min(until, begun + seconds) - begun)
        until = max(until, begun + seconds)
    apart = twice if twice > WORTH_A_ROW * whole else 0.0
    return max(0.0, whole - sum(epoch.seconds for epoch in epochs) + apart)


def is_worth_a_row(found: EpochSummary, phases: Sequence[EpochSummary], total: EpochSummary) -> bool:
    """Whether people should see it: it has phases, or takes so much time that the epochs alone are not the whole."""
    return found.seconds > WORTH_A_ROW * total.seconds or any(phase.phase != OTHER for phase in phases)


def outside_phases(record: Record) -> list[EpochSummary]:
    """The phases outside epochs, in the order in which they were first entered; of a run without epochs all it did."""
    groups: dict[str, list[PhaseRow]] = {}
    for row in sorted(record.outside, key=lambda row: row.place if is_known(row.place) else math.inf):
        if row.phase != WHOLE_EPOCH:
            groups.setdefault(row.phase, []).append(row)
    return [_summed(record, phase, rows) for phase, rows in groups.items()]


def waited_of(record: Record) -> float:
    """Seconds of the phases outside epochs in which the wait for data was measured, mean over ranks; NaN of none."""
    ranks: dict[str, float] = {}
    for row in record.outside:
        if row.phase != WHOLE_EPOCH and is_known(row.wait):
            ranks[row.rank] = ranks.get(row.rank, 0.0) + row.seconds
    return mean(ranks.values())


def _summed(record: Record, phase: str, rows: Sequence[PhaseRow]) -> EpochSummary:
    usage = by_stretch(record.outside_usage).get((OUTSIDE_EPOCHS, phase), [])
    steps = most([row.steps or None for row in rows]) if not record.epochs or counts_outside(record) else None
    return EpochSummary(
        ordinal=OUTSIDE_EPOCHS,
        epoch=OUTSIDE_EPOCHS,
        phase=phase,
        begun=NAN,
        ended=NAN,
        seconds=highest([row.seconds for row in rows]),
        times=max(row.times for row in rows),
        steps=steps,
        wait=mean([row.wait for row in rows]),
        metrics={},
        ranks=len(rows),
        utilization_from=seen_by(usage),
        values=over_devices_each([usage])[0],
        wait_of=NAN if phase else waited_of(record),
        peak=fullest(rows, single_devices(record)),
        sampled_share=seen_share(usage),
    )
