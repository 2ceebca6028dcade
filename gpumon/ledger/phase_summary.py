"""Phases of the epochs of a run, joined over ranks and devices, and the stretches that are not training."""

from __future__ import annotations

import math

from gpumon.analysis.rank_epochs import Span
from gpumon.common.numbers import NAN
from gpumon.ledger.combine import by_stretch, highest, mean, over_devices_each, seen_by, seen_share
from gpumon.ledger.epoch_summary import EpochSummary
from gpumon.ledger.live_peaks import fullest, single_devices
from gpumon.ledger.records import PhaseRow, Record
from gpumon.ledger.schema import WHOLE_EPOCH
from gpumon.ledger.step_counts import StepCounts, most
from gpumon.model.frame import TRAINING


def phases(record: Record) -> dict[int, list[EpochSummary]]:
    """The phases of each epoch, by its ordinal, in the order in which the first epoch entered them."""
    usage = by_stretch(row for row in record.usage if row.phase != WHOLE_EPOCH)
    numbers = {row.ordinal: row.epoch for row in record.epochs}
    single = single_devices(record)
    counted = StepCounts(record)
    groups: dict[tuple[int, str], list[PhaseRow]] = {}
    for row in record.phases:
        groups.setdefault((row.ordinal, row.phase), []).append(row)
    used = [usage.get(key, ()) for key in groups]
    found: dict[int, list[EpochSummary]] = {}
    for ((ordinal, phase), rows), held, values in zip(groups.items(), used, over_devices_each(used), strict=True):
        found.setdefault(ordinal, []).append(
            EpochSummary(
                ordinal=ordinal,
                epoch=numbers.get(ordinal, ordinal),
                phase=phase,
                begun=NAN,
                ended=NAN,
                seconds=highest([row.seconds for row in rows]) or NAN,
                times=max(row.times for row in rows),
                steps=most([counted.phase(row) for row in rows]),
                wait=mean([row.wait for row in rows]),
                metrics={},
                ranks=len(rows),
                utilization_from=seen_by(held),
                values=values,
                peak=fullest(rows, single),
                sampled_share=seen_share(held),
            )
        )
    order: dict[str, int] = {}
    for row in sorted(record.phases, key=lambda row: (row.ordinal, entered(row))):
        order.setdefault(row.phase, len(order))
    return {ordinal: sorted(parts, key=lambda part: order[part.phase]) for ordinal, parts in found.items()}


def entered(row: PhaseRow) -> float:
    """A number that grows with when a phase was first entered; a ledger of an older version has it for some."""
    # NaN is not itself; in place, because a call would cost more than the rest of the loop.
    if row.place == row.place:
        return row.place
    return row.spans[0][0] if row.spans else 0.0 if row.phase == TRAINING else math.inf


def spans(record: Record) -> list[Span]:
    """Stretches of the lowest rank's phases that are no training, as far as the ledger has kept when they were."""
    first = record.ranks[0].key if record.ranks else ""
    begun = {row.ordinal: row.begun for row in record.epochs if row.rank == first}
    found = [
        Span(begun[row.ordinal] + after, begun[row.ordinal] + after + seconds, row.phase)
        for row in record.phases
        if row.rank == first and not math.isnan(begun.get(row.ordinal, NAN))
        for after, seconds in row.spans
    ]
    return sorted(found)
