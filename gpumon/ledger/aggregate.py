"""Ranks and devices of a run joined into one line for each epoch, and for the whole.

An epoch begins with its first rank and ends with its last. What a device did is joined by the rules
below: energy adds up, utilization is a mean, a peak is that of the fullest device.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.common.numbers import NAN
from gpumon.ledger.combine import by_stretch, highest, lowest, mean, over_devices_each, seen_by, seen_share, totals
from gpumon.ledger.epoch_summary import EpochSummary
from gpumon.ledger.live_peaks import fullest, joined_peaks, single_devices
from gpumon.ledger.outside import waited_of
from gpumon.ledger.records import EpochRow, LivePeak, Record, UsageRow
from gpumon.ledger.schema import WHOLE_EPOCH, WHOLE_RUN
from gpumon.ledger.step_counts import StepCounts, begun_only, most

_CLOCK_SET = 1.0
"""Seconds by which the wall clock's idea of an epoch may differ from the steady clock's before it was set."""


def epochs(record: Record) -> list[EpochSummary]:
    """The epochs of a run in their order."""
    order = {rank.key: i for i, rank in enumerate(record.ranks)}
    usage = by_stretch(row for row in record.whole_epochs if row.ordinal != WHOLE_RUN)
    groups: dict[int, list[EpochRow]] = {}
    for row in sorted(record.epochs, key=lambda row: (row.ordinal, order.get(row.rank, 0))):
        groups.setdefault(row.ordinal, []).append(row)
    batch = _batch(record)
    single = single_devices(record)
    counted = StepCounts(record)
    used = [usage.get((ordinal, WHOLE_EPOCH), ()) for ordinal in groups]
    joined = over_devices_each(used)
    return [
        _epoch(
            rows=rows,
            usage=held,
            values=values,
            batch=batch,
            single=single,
            counted=counted,
            is_settled=record.settled.has(rows[0].ordinal),
        )
        for rows, held, values in zip(groups.values(), used, joined, strict=True)
    ]


def whole(record: Record, parts: Sequence[EpochSummary], now: float) -> EpochSummary:
    """The whole run, of which `parts` are the epochs; a running one until `now`. Its metrics are the last logged.

    Its steps are those of its rows, not the count at its end: a resumed training may continue an earlier one.
    """
    run = record.run
    wait = mean([rank.wait for rank in record.ranks])
    waited = [epoch for epoch in parts if epoch.wait > 0 and epoch.wait_of > 0]
    # The share is that of the epochs: between them it is unknown when the wait was measured.
    wait_of = wait * sum(epoch.wait_of for epoch in waited) / (sum(epoch.wait for epoch in waited) or NAN)
    counted = StepCounts(record)
    steps, trained = counted.whole([epoch.steps for epoch in parts]), _trained(parts)
    if not parts:
        steps, trained, wait_of = counted.outside(), counted.trained(), waited_of(record)
    elif counted.between():
        trained = counted.trained() + (trained if trained > 0 else sum(e.seconds for e in parts if e.steps))
    peaks = [LivePeak(rank.peak, reached=True) for rank in record.ranks]
    single = single_devices(record)
    return EpochSummary(
        ordinal=WHOLE_RUN,
        epoch=WHOLE_RUN,
        phase=WHOLE_EPOCH,
        begun=run.started,
        ended=run.ended,
        seconds=run.lasted(now),
        times=1,
        steps=steps,
        wait=wait,
        metrics=_last_logged(record),
        ranks=len(record.ranks),
        utilization_from=seen_by(record.usage),
        values=totals(record.whole_epochs),
        batch=_batch(record),
        trained=trained,
        wait_of=wait_of,
        peak=joined_peaks(
            [
                peak if rank.key in single else peak._replace(reached=False)
                for rank, peak in zip(record.ranks, peaks, strict=True)
            ]
        ),
        sampled_share=seen_share(row for row in record.whole_epochs if row.ordinal == WHOLE_RUN),
        is_open=run.ended != run.ended,
    )


def _last_logged(record: Record) -> dict[str, float]:
    """The last of everything that was logged; of several ranks the lowest's word holds."""
    metrics: dict[str, float] = {}
    for rank in record.ranks:
        metrics = {**metrics, **{name: value for name, value in rank.metrics.items() if name not in metrics}}
    return metrics


def _trained(parts: Sequence[EpochSummary]) -> float:
    """Seconds in which the steps of these epochs were made; NaN where no epoch separates them, or one has no length.

    An epoch may lack them: it has no phase of training, or was kept by an older version.
    """
    if not any(epoch.trained > 0 for epoch in parts):
        return NAN
    return sum(epoch.trained if epoch.trained > 0 else epoch.seconds for epoch in parts if epoch.steps)


def _batch(record: Record) -> float:
    """Samples of a step over all ranks; NaN until all of them have reported theirs."""
    told = len(record.ranks) >= record.run.world_size
    return sum(rank.facts.batch or NAN for rank in record.ranks) if told else NAN


def _epoch(
    rows: Sequence[EpochRow],
    usage: Sequence[UsageRow],
    values: Sequence[float],
    batch: float,
    single: set[str],
    counted: StepCounts,
    is_settled: bool,
) -> EpochSummary:
    if len(rows) == 1:
        (row,) = rows
        begun, ended, seconds, metrics = row.begun, row.ended, row.seconds, row.metrics
        steps, wait, trained, wait_of = counted.epoch(row), row.wait, row.trained, row.wait_of
    else:
        begun = lowest([row.begun for row in rows])
        # NaN is not itself; in place, because thousands of epochs are joined at once.
        over = all(row.ended == row.ended for row in rows)
        ended = max([row.ended for row in rows]) if over else NAN
        last = ended if over else max(row.begun + row.seconds for row in rows)  # as far as it is known
        seconds = _steady(rows) if over else last - begun
        named: dict[str, float] = {}
        for row in rows:
            named = {**row.metrics, **named}  # the lowest rank's word holds
        metrics = {name: named[name] for row in rows for name in row.metrics}
        steps, wait = most([counted.epoch(row) for row in rows]), mean([row.wait for row in rows])
        trained, wait_of = highest([row.trained for row in rows]), mean([row.wait_of for row in rows])
    if seconds != seconds:
        seconds = ended - begun
    if all(begun_only(row) for row in rows):
        seconds = wait = NAN
    return EpochSummary(
        ordinal=rows[0].ordinal,
        epoch=rows[0].epoch,
        phase=WHOLE_EPOCH,
        begun=begun,
        ended=ended,
        seconds=seconds,
        times=1,
        steps=steps,
        wait=wait,
        metrics=metrics,
        ranks=len(rows),
        utilization_from=seen_by(usage),
        values=values,
        batch=batch,
        trained=trained,
        wait_of=wait_of,
        peak=fullest(rows, single),
        sampled_share=seen_share(usage),
        is_open=ended != ended,
        is_settled=is_settled,
    )


def _steady(rows: Sequence[EpochRow]) -> float:
    """From the first begin of an epoch to its last end, by the steady clock.

    The wall clock says how far ranks were apart; where it was set meanwhile, an epoch's own length says so.
    """
    by_wall = max(row.ended for row in rows) - min(row.begun for row in rows)
    longest = highest([row.seconds for row in rows])
    if longest != longest:
        return by_wall
    set_by = highest([abs(row.ended - row.begun - row.seconds) for row in rows])
    return longest if set_by > _CLOCK_SET else max(longest, by_wall)
