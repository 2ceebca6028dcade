"""Computes summaries over the ranks and devices of a run.

There are summaries of each epoch, phase and row of steps, of the time outside epochs, and of the whole run. An epoch
starts when the first rank starts it, and ends when the last rank ends it. `combine` has the rules for combining usage.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from gpumon.analysis.rank_epochs import Span
from gpumon.analysis.ranks import LoggedRank, last_logged
from gpumon.common.numbers import NAN, is_known
from gpumon.model.frame import RunState
from gpumon.storage.ledger.combine import (
    by_epoch_and_phase,
    highest,
    lower_bounds,
    lowest,
    mean,
    over_devices,
    sampled_share,
    totals,
    utilization_sources,
)
from gpumon.storage.ledger.records import (
    EpochRow,
    EpochTimes,
    LivePeak,
    PhaseRow,
    RankRow,
    Record,
    StepCounts,
    StepRow,
    UsageRow,
    has_steps_outside,
    has_unequal_rows,
    is_only_begun,
    max_steps,
)
from gpumon.storage.ledger.row_keys import OTHER, OUTSIDE_EPOCHS, STEP_ROWS, WHOLE_EPOCH, WHOLE_RUN
from gpumon.storage.ledger.summary import EpochSummary, EpochSums, fullest, joined_peaks, single_devices

WORTH_A_ROW = 0.005
"""The time between epochs is shown as a row if it is at least this share of the run's time, or if it has phases."""


def between_epochs(
    record: Record, epochs: Sequence[EpochSummary] | Sequence[EpochTimes] | EpochSums
) -> EpochSummary | None:  # fmt: skip
    """Return a summary of the time outside a run's epochs.

    The seconds and energy of this summary and of all epochs add up to the seconds and energy of the whole run. None if
    the time cannot be determined or the run has no epochs.
    """
    rows = [row for row in record.outside if row.phase == WHOLE_EPOCH]
    if not epochs or not rows or len(rows) < len(record.ranks):
        return None
    summary = replace(_summed(record, WHOLE_EPOCH, rows), steps=StepCounts(record).between())
    if len(rows) > 1 and is_known(record.run.seconds):
        summary = replace(summary, seconds=_outside_all(epochs, record.run.seconds))
    return summary


def _outside_all(epochs: Sequence[EpochSummary] | Sequence[EpochTimes] | EpochSums, whole: float) -> float:
    """Return the seconds of a run with several ranks in which no rank is in an epoch.

    `whole`: length of the run in seconds. An epoch lasts from the start in the first rank to the end in the last rank.
    If some ranks start an epoch before others end the previous one, the two epochs overlap. Both lengths contain the
    overlap, so it is added back once.
    """
    if isinstance(epochs, EpochSums):
        twice, within = epochs.overlap, epochs.seconds
    else:
        twice, within = _overlap(epochs), sum(epoch.seconds for epoch in epochs)
    apart = twice if twice > WORTH_A_ROW * whole else 0.0
    return max(0.0, whole - within + apart)


def _overlap(epochs: Sequence[EpochSummary] | Sequence[EpochTimes]) -> float:
    """Return the seconds that belong to two epochs, because an epoch started before the previous one ended."""
    twice, until = 0.0, -math.inf
    for begun, seconds in sorted((epoch.begun, epoch.seconds) for epoch in epochs if is_known(epoch.begun)):
        twice += max(0.0, min(until, begun + seconds) - begun)
        until = max(until, begun + seconds)
    return twice


def is_worth_a_row(summary: EpochSummary, phases: Sequence[EpochSummary], total: EpochSummary) -> bool:
    """Return whether views show the time between epochs as a row.

    Views show the row if the time has phases or is a notable share of the run. `summary` is the time between epochs,
    `phases` are the phases in this time, and `total` is the whole run.
    """
    return summary.seconds > WORTH_A_ROW * total.seconds or any(phase.phase != OTHER for phase in phases)


def outside_phases(record: Record, between: EpochSummary | None) -> list[EpochSummary]:
    """Return the phases outside epochs, in the order in which they were first entered.

    In a run without epochs, these are all phases of the run. `between`: result of `between_epochs`. A rank may be in a
    phase while other ranks are still in an epoch. So no phase counts for longer than `between`, and the phase `other`
    is the rest of `between` that no other phase covers.
    """
    groups: dict[str, list[PhaseRow]] = {}
    for row in sorted(record.outside, key=entry_order):
        if row.phase != WHOLE_EPOCH:
            groups.setdefault(row.phase, []).append(row)
    parts = [_summed(record, phase, rows) for phase, rows in groups.items()]
    if between is None or between.ranks < 2 or not is_known(between.seconds):
        return parts
    parts = [replace(part, seconds=min(part.seconds, between.seconds)) for part in parts]
    left = max(0.0, between.seconds - sum(part.seconds for part in parts if part.phase != OTHER))
    parts = [replace(part, seconds=min(part.seconds, left)) if part.phase == OTHER else part for part in parts]
    return [part for part in parts if part.seconds > 0 or part.phase != OTHER]


def _outside_measured(record: Record) -> float:
    """Return the seconds of the phases outside epochs in which the wait for data was measured, as the mean over ranks.

    NaN if it was not measured in any of these phases.
    """
    ranks: dict[str, float] = {}
    for row in record.outside:
        if row.phase != WHOLE_EPOCH and is_known(row.wait):
            ranks[row.rank] = ranks.get(row.rank, 0.0) + row.seconds
    return mean(ranks.values())


def _summed(record: Record, phase: str, rows: Sequence[PhaseRow]) -> EpochSummary:
    usage = by_epoch_and_phase(record.outside_usage).get((OUTSIDE_EPOCHS, phase), [])
    steps = max_steps([row.steps or None for row in rows]) if not record.epochs or has_steps_outside(record) else None
    return EpochSummary(
        ordinal=OUTSIDE_EPOCHS,
        epoch=OUTSIDE_EPOCHS,
        phase=phase,
        seconds=highest([row.seconds for row in rows]),
        times=max(row.times for row in rows),
        steps=steps,
        wait=mean([row.wait for row in rows]),
        ranks=len(rows),
        utilization_from=utilization_sources(usage),
        values=over_devices(usage),
        wait_of=NAN if phase else _outside_measured(record),
        peak=fullest(rows, single_devices(record)),
        sampled_share=sampled_share(usage),
    )


_CLOCK_SET = 1.0
"""If the lengths of an epoch by wall clock and by CLOCK_MONOTONIC differ by more than this many seconds, the wall clock
was set during the epoch.
"""


def epoch_summaries(record: Record) -> list[EpochSummary]:
    """Return one summary for each epoch of a run, oldest first."""
    order = {rank.key: i for i, rank in enumerate(record.ranks)}
    usage = by_epoch_and_phase(row for row in record.whole_epochs if row.ordinal != WHOLE_RUN)
    groups: dict[int, list[EpochRow]] = {}
    for row in sorted(record.epochs, key=lambda row: (row.ordinal, order.get(row.rank, 0))):
        groups.setdefault(row.ordinal, []).append(row)
    batch = _batch(record)
    single = single_devices(record)
    counted = StepCounts(record)
    incomplete = _incomplete_epochs(record)
    summaries = [
        _epoch(
            rows=rows,
            usage=usage.get((ordinal, WHOLE_EPOCH), ()),
            lacks_ranks=ordinal in incomplete,
            batch=batch,
            single=single,
            counted=counted,
            is_settled=record.settled.has(ordinal),
        )
        for ordinal, rows in groups.items()
    ]
    if any(rank.facts.folded for rank in record.ranks) and not incomplete:
        return _count_merged(summaries)
    return summaries


def _count_merged(epochs: Sequence[EpochSummary]) -> list[EpochSummary]:
    """Return the epochs of a run in which short epochs were merged, with the number of epochs in each row.

    A row contains the epochs up to the next row. The newest epoch always has its own row.
    """
    following = [*(epoch.epoch for epoch in epochs[1:]), -1]
    return [
        replace(epoch, merged=max(1, next_epoch - epoch.epoch))
        for epoch, next_epoch in zip(epochs, following, strict=True)
    ]


def _incomplete_epochs(record: Record) -> set[int]:
    """Return the ordinals of the epochs in which a rank with a device is missing.

    Such a rank merged the epoch into another row, or its boundaries were lost. A rank that ran only before or after an
    epoch is not missing in it, and neither is a rank that may still begin the epoch.
    """
    ranks = [rank for rank in record.ranks if rank.key in record.with_epochs and rank.devices]
    groups: dict[int, list[EpochRow]] = {}
    if len(ranks) > 1:
        for row in record.epochs:
            groups.setdefault(row.ordinal, []).append(row)
    incomplete = set()
    for ordinal, rows in groups.items():
        if len(rows) >= len(ranks):
            continue
        present, begun = {row.rank for row in rows}, min(row.begun for row in rows)
        ended = max(row.ended for row in rows) if all(is_known(row.ended) for row in rows) else NAN
        for rank in ranks:
            is_elsewhere = rank.ended <= begun or rank.started >= ended
            may_come = not is_known(rank.ended) and not is_known(ended)
            if rank.key not in present and not is_elsewhere and not may_come:
                incomplete.add(ordinal)
    return incomplete


def sum_epochs(epochs: Sequence[EpochSummary]) -> EpochSums:
    """Return the sums over all `epochs` of a run."""
    steps = [epoch.steps for epoch in epochs if epoch.steps is not None]
    waited = [epoch for epoch in epochs if epoch.wait > 0 and epoch.wait_of > 0]
    return EpochSums(
        epochs=len(epochs),
        seconds=sum(epoch.seconds for epoch in epochs),
        overlap=_overlap(epochs),
        steps=sum(steps) if steps else None,
        trained=_trained(epochs),
        stepped=sum(epoch.seconds for epoch in epochs if epoch.steps),
        waited=sum(epoch.wait for epoch in waited),
        waited_of=sum(epoch.wait_of for epoch in waited),
    )


def run_total(record: Record, parts: Sequence[EpochSummary] | EpochSums) -> EpochSummary:
    """Return a summary of the whole run. Its metrics are the last logged values.

    `parts` are the epochs of the run, or their sums. A run that has not ended lasts until its last measurement. The
    number of steps is the sum over the rows. The training's own step counter is not used, because after a resume it
    includes steps of earlier runs.
    """
    run = record.run
    wait = mean([rank.wait for rank in record.ranks])
    sums = parts if isinstance(parts, EpochSums) else sum_epochs(parts)
    # The share of waiting is taken from the epochs. For the time between epochs, it is not recorded when waits were
    # measured.
    wait_of = wait * sums.waited_of / (sums.waited or NAN)
    counted = StepCounts(record)
    steps, trained = counted.whole([sums.steps]), sums.trained
    if not sums.epochs:
        steps, trained, wait_of = counted.outside(), counted.trained(), _outside_measured(record)
    elif counted.between():
        trained = counted.trained() + (trained if trained > 0 else sums.stepped)
    if has_unequal_rows(record):
        trained = NAN
    peaks = [LivePeak(rank.peak, reached=True) for rank in record.ranks]
    single = single_devices(record)
    return EpochSummary(
        ordinal=WHOLE_RUN,
        epoch=WHOLE_RUN,
        begun=run.started,
        ended=run.ended,
        seconds=run.duration,
        steps=steps,
        wait=wait,
        metrics=_last_logged(record),
        ranks=len(record.ranks),
        utilization_from=utilization_sources(record.usage),
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
        sampled_share=sampled_share(row for row in record.whole_epochs if row.ordinal == WHOLE_RUN),
        is_open=run.ended != run.ended,
    )


def rank_summaries(record: Record) -> list[EpochSummary]:
    """Return a summary of each rank over the whole run, in the order of `record.ranks`."""
    single = single_devices(record)
    rows: dict[str, list[UsageRow]] = {}
    for row in record.whole_epochs:
        rows.setdefault(row.rank, []).append(row)
    return [_rank(rank, rows.get(rank.key, ()), is_single=rank.key in single) for rank in record.ranks]


def _rank(rank: RankRow, rows: Sequence[UsageRow], *, is_single: bool) -> EpochSummary:
    whole = [row for row in rows if row.ordinal == WHOLE_RUN] or rows
    return EpochSummary(
        ordinal=WHOLE_RUN,
        epoch=WHOLE_RUN,
        begun=rank.started,
        ended=rank.ended,
        seconds=rank.seconds,
        steps=rank.steps or None,
        wait=rank.wait,
        metrics=rank.metrics,
        ranks=1,
        utilization_from=utilization_sources(whole),
        values=totals(whole),
        peak=LivePeak(rank.peak, reached=is_single),
        sampled_share=sampled_share(whole),
        is_open=not is_known(rank.ended),
    )


def _last_logged(record: Record) -> dict[str, float]:
    """Return the last value of each logged metric; see `ranks.last_logged`."""
    newest: dict[str, int] = {}
    for row in record.epochs:
        newest[row.rank] = max(newest.get(row.rank, -1), row.ordinal)
    return last_logged(
        [
            LoggedRank(
                rank.metrics,
                (newest.get(rank.key, -1), rank.steps if not record.epochs else 0),
                rank.state is RunState.RUNNING,
            )
            for rank in record.ranks
        ]
    )


def _trained(parts: Sequence[EpochSummary]) -> float:
    """Return the seconds in which the steps of these epochs were taken. NaN if no epoch has a training phase.

    If only some epochs have a training phase, the other epochs count with their whole length.
    """
    if not any(epoch.trained > 0 for epoch in parts):
        return NAN
    return sum(epoch.trained if epoch.trained > 0 else epoch.seconds for epoch in parts if epoch.steps)


def _batch(record: Record) -> float:
    """Return the samples per step, summed over all ranks. NaN until all ranks have reported their batch size."""
    all_known = len(record.ranks) >= record.run.world_size
    return sum(rank.facts.batch or NAN for rank in record.ranks) if all_known else NAN


def _merge_metrics(rows: Iterable[EpochRow | StepRow]) -> dict[str, float]:
    """Return the logged metrics by name. If several ranks log a metric, the value of the first rank is used."""
    metrics: dict[str, float] = {}
    for row in rows:
        for name, value in row.metrics.items():
            metrics.setdefault(name, value)
    return metrics


def _epoch(
    rows: Sequence[EpochRow],
    usage: Sequence[UsageRow],
    lacks_ranks: bool,
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
        # NaN != NaN; no call of is_known, because thousands of epochs are joined at once.
        over = all(row.ended == row.ended for row in rows)
        ended = max([row.ended for row in rows]) if over else NAN
        last = ended if over else max(row.begun + row.seconds for row in rows)  # the latest recorded time in the epoch
        seconds = _steady(rows) if over else last - begun
        metrics = _merge_metrics(rows)
        steps, wait = max_steps([counted.epoch(row) for row in rows]), mean([row.wait for row in rows])
        trained, wait_of = highest([row.trained for row in rows]), mean([row.wait_of for row in rows])
    if seconds != seconds:
        seconds = ended - begun
    if all(is_only_begun(row) for row in rows):
        seconds = wait = NAN
    return EpochSummary(
        ordinal=rows[0].ordinal,
        epoch=rows[0].epoch,
        begun=begun,
        ended=ended,
        seconds=seconds,
        steps=steps,
        wait=wait,
        metrics=metrics,
        ranks=len(rows),
        utilization_from=utilization_sources(usage),
        values=_combined(usage, lacks_ranks),
        batch=batch,
        trained=trained,
        wait_of=wait_of,
        peak=fullest(rows, single),
        sampled_share=0.0 if lacks_ranks else sampled_share(usage),
        lacks_ranks=lacks_ranks,
        is_open=ended != ended,
        is_settled=is_settled,
    )


def _combined(usage: Sequence[UsageRow], lacks_ranks: bool) -> Sequence[float]:
    """Return the usage over all devices. If ranks are missing, only lower bounds of sums are known."""
    values = over_devices(usage)
    return lower_bounds(values) if lacks_ranks else values


def _steady(rows: Sequence[EpochRow]) -> float:
    """Return the seconds from the start of an epoch in its first rank to the end in its last rank.

    Only the wall clock shows the differences between ranks. If it was set during the epoch, the longest length by
    CLOCK_MONOTONIC is used instead.
    """
    by_wall = max(row.ended for row in rows) - min(row.begun for row in rows)
    longest = highest([row.seconds for row in rows])
    if longest != longest:
        return by_wall
    set_by = highest([abs(row.ended - row.begun - row.seconds) for row in rows])
    return longest if set_by > _CLOCK_SET else max(longest, by_wall)


def phase_summaries(record: Record) -> dict[int, list[EpochSummary]]:
    """Return the phases of each epoch, by ordinal of the epoch.

    The phases have the same order in all epochs, which is the order in which they were entered in the first epoch that
    has them.
    """
    usage = by_epoch_and_phase(row for row in record.usage if row.phase != WHOLE_EPOCH)
    numbers = {row.ordinal: row.epoch for row in record.epochs}
    single = single_devices(record)
    counted = StepCounts(record)
    groups: dict[tuple[int, str], list[PhaseRow]] = {}
    for row in record.phases:
        groups.setdefault((row.ordinal, row.phase), []).append(row)
    incomplete = _incomplete_epochs(record)
    summary: dict[int, list[EpochSummary]] = {}
    for (ordinal, phase), rows in groups.items():
        held, lacks_ranks = usage.get((ordinal, phase), ()), ordinal in incomplete
        summary.setdefault(ordinal, []).append(
            EpochSummary(
                ordinal=ordinal,
                epoch=numbers.get(ordinal, ordinal),
                phase=phase,
                seconds=highest([row.seconds for row in rows]) or NAN,
                times=max(row.times for row in rows),
                steps=max_steps([counted.phase(row) for row in rows]),
                wait=mean([row.wait for row in rows]),
                ranks=len(rows),
                utilization_from=utilization_sources(held),
                values=_combined(held, lacks_ranks),
                peak=fullest(rows, single),
                sampled_share=0.0 if lacks_ranks else sampled_share(held),
                lacks_ranks=lacks_ranks,
            )
        )
    order: dict[str, int] = {}
    for row in sorted(record.phases, key=lambda row: (row.ordinal, entry_order(row))):
        order.setdefault(row.phase, len(order))
    return {ordinal: sorted(parts, key=lambda part: order[part.phase]) for ordinal, parts in summary.items()}


def entry_order(row: PhaseRow) -> float:
    """Return a key that sorts the phases of an epoch by first entry. It is infinite if the place is not recorded."""
    # NaN != NaN; no call of is_known, because a call would cost more than the rest of the loop.
    return row.place if row.place == row.place else math.inf


def phase_spans(record: Record) -> list[Span]:
    """Return the times at which the lowest rank was in phases other than training, such as validation."""
    first = record.ranks[0].key if record.ranks else ""
    begun = {row.ordinal: row.begun for row in record.epochs if row.rank == first}
    summary = [
        Span(begun[row.ordinal] + after, begun[row.ordinal] + after + seconds, row.phase)
        for row in record.phases
        if row.rank == first and not math.isnan(begun.get(row.ordinal, NAN))
        for after, seconds in row.spans
    ]
    return sorted(summary)


def step_summaries(record: Record) -> list[EpochSummary]:
    """Return one summary for each row of steps, oldest first.

    The field `epoch` of a summary contains the number of steps before the row.
    """
    groups: dict[int, list[StepRow]] = {}
    for row in record.step_rows:
        groups.setdefault(row.first_step, []).append(row)
    usage = by_epoch_and_phase(record.outside_usage)
    batch = _batch(record)
    summary: list[EpochSummary] = []
    for first, rows in groups.items():
        held = [
            used
            for row in rows
            for used in usage.get((STEP_ROWS - row.ordinal, WHOLE_EPOCH), ())
            if used.rank == row.rank
        ]
        ends = [row.ended for row in rows]
        summary.append(
            EpochSummary(
                ordinal=STEP_ROWS - len(summary),
                epoch=first,
                begun=lowest([row.begun for row in rows]),
                ended=max(ends) if all(map(is_known, ends)) else NAN,
                seconds=highest([row.seconds for row in rows]),
                steps=max(row.steps for row in rows),
                wait=mean([row.wait for row in rows]),
                metrics=_merge_metrics(rows),
                ranks=len(rows),
                utilization_from=utilization_sources(held),
                values=over_devices(held),
                batch=batch,
                trained=highest([row.trained for row in rows]),
                wait_of=mean([row.wait_of for row in rows]),
                sampled_share=sampled_share(held),
                is_open=not all(map(is_known, ends)),
            )
        )
    return sorted(summary, key=lambda row: row.epoch)


def steps_text(row: EpochSummary) -> str:
    """Return the first and last step of a row as text, such as `11–20`."""
    last = row.epoch + (row.steps or 0)
    return f"{row.epoch + 1}–{last}" if last > row.epoch + 1 else str(last)
