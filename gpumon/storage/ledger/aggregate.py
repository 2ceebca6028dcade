"""Ranks and devices of a run joined into one line for each epoch, and for the whole.

An epoch begins with its first rank and ends with its last. What a device did is joined by the rules
below: energy adds up, utilization is a mean, a peak is that of the fullest device.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from gpumon.analysis.rank_epochs import Span
from gpumon.common.numbers import NAN, is_known
from gpumon.storage.ledger.combine import (
    by_stretch,
    highest,
    lowest,
    mean,
    over_devices_each,
    seen_by,
    seen_share,
    totals,
)
from gpumon.storage.ledger.records import (
    EpochRow,
    EpochTimes,
    LivePeak,
    PhaseRow,
    Record,
    StepCounts,
    StepRow,
    UsageRow,
    begun_only,
    counts_outside,
    most,
)
from gpumon.storage.ledger.schema import OTHER, OUTSIDE_EPOCHS, STEP_ROWS, WHOLE_EPOCH, WHOLE_RUN
from gpumon.storage.ledger.summary import EpochSummary, EpochSums, fullest, joined_peaks, single_devices

WORTH_A_ROW = 0.005
"""Share of the whole run's time from which it is shown where nothing but the code between epochs is in it."""


def between(
    record: Record, epochs: Sequence[EpochSummary] | Sequence[EpochTimes] | EpochSums
) -> EpochSummary | None:  # fmt: skip
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


def _outside_all(epochs: Sequence[EpochSummary] | Sequence[EpochTimes] | EpochSums, whole: float) -> float:
    """Seconds of a run of several ranks in which none is in an epoch; `whole` lasted the run.

    Each epoch is joined from the first begin to the last end. Where ranks are apart, that of the last
    overlaps the next one of the first: such time is in two epochs, and is taken from the rest once.
    """
    if isinstance(epochs, EpochSums):
        twice, within = epochs.overlap, epochs.seconds
    else:
        twice, within = _overlap(epochs), sum(epoch.seconds for epoch in epochs)
    apart = twice if twice > WORTH_A_ROW * whole else 0.0
    return max(0.0, whole - within + apart)


def _overlap(epochs: Sequence[EpochSummary] | Sequence[EpochTimes]) -> float:
    """Seconds that lie in two epochs."""
    twice, until = 0.0, -math.inf
    for begun, seconds in sorted((epoch.begun, epoch.seconds) for epoch in epochs if is_known(epoch.begun)):
        twice += max(0.0, min(until, begun + seconds) - begun)
        until = max(until, begun + seconds)
    return twice


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


def sums_of(epochs: Sequence[EpochSummary]) -> EpochSums:
    """What all epochs of a run add up to."""
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


def whole(record: Record, parts: Sequence[EpochSummary] | EpochSums, now: float) -> EpochSummary:
    """The whole run, of which `parts` are the epochs; a running one until `now`. Its metrics are the last logged.

    Its steps are those of its rows, not the count at its end: a resumed training may continue an earlier one.
    """
    run = record.run
    wait = mean([rank.wait for rank in record.ranks])
    sums = parts if isinstance(parts, EpochSums) else sums_of(parts)
    # The share is that of the epochs: between them it is unknown when the wait was measured.
    wait_of = wait * sums.waited_of / (sums.waited or NAN)
    counted = StepCounts(record)
    steps, trained = counted.whole([sums.steps]), sums.trained
    if not sums.epochs:
        steps, trained, wait_of = counted.outside(), counted.trained(), waited_of(record)
    elif counted.between():
        trained = counted.trained() + (trained if trained > 0 else sums.stepped)
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

    An epoch without a phase of training lacks them.
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
    """A number that grows with when a phase was first entered; infinite where that is not known."""
    # NaN is not itself; in place, because a call would cost more than the rest of the loop.
    return row.place if row.place == row.place else math.inf


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


def step_summaries(record: Record) -> list[EpochSummary]:
    """The rows in their order; `epoch` of each is the number of steps that were made before."""
    groups: dict[int, list[StepRow]] = {}
    for row in record.step_rows:
        groups.setdefault(row.first_step, []).append(row)
    usage = by_stretch(record.outside_usage)
    told = len(record.ranks) >= record.run.world_size
    batch = sum(rank.facts.batch or NAN for rank in record.ranks) if told else NAN
    used = [
        [one for row in rows for one in usage.get((STEP_ROWS - row.ordinal, WHOLE_EPOCH), ()) if one.rank == row.rank]
        for rows in groups.values()
    ]
    found: list[EpochSummary] = []
    for (first, rows), held, values in zip(groups.items(), used, over_devices_each(used), strict=True):
        named: dict[str, float] = {}
        for row in rows:
            named = {**row.metrics, **named}  # the lowest rank's word holds
        ends = [row.ended for row in rows]
        found.append(
            EpochSummary(
                ordinal=STEP_ROWS - len(found),
                epoch=first,
                phase=WHOLE_EPOCH,
                begun=lowest([row.begun for row in rows]),
                ended=max(ends) if all(map(is_known, ends)) else NAN,
                seconds=highest([row.seconds for row in rows]),
                times=1,
                steps=max(row.steps for row in rows),
                wait=mean([row.wait for row in rows]),
                metrics=named,
                ranks=len(rows),
                utilization_from=seen_by(held),
                values=values,
                batch=batch,
                trained=highest([row.trained for row in rows]),
                wait_of=mean([row.wait_of for row in rows]),
                sampled_share=seen_share(held),
                is_open=not all(map(is_known, ends)),
            )
        )
    return sorted(found, key=lambda one: one.epoch)


def steps_text(row: EpochSummary) -> str:
    """The steps of a row for people: `11–20`."""
    last = row.epoch + (row.steps or 0)
    return f"{row.epoch + 1}–{last}" if last > row.epoch + 1 else str(last)
