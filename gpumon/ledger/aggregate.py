"""Ranks and devices of a run joined into one line for each epoch, phase, and for the whole.

An epoch begins with its first rank and ends with its last. What a device did is joined by the rules
below: energy adds up, utilization is a mean, a peak is that of the fullest device.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from gpumon.analysis.epochs import Span
from gpumon.frame import NAN, TRAINING
from gpumon.ledger.combine import highest, lowest, mean, over_devices_each, seen_by, seen_share, totals
from gpumon.ledger.records import UNMEASURED, USAGE_INDEX, EpochRow, LivePeak, PhaseRow, Record, UsageRow
from gpumon.ledger.schema import WHOLE_EPOCH, WHOLE_RUN
from gpumon.ledger.step_counts import StepCounts, begun_only, most

_CLOCK_SET = 1.0
"""Seconds by which the wall clock's idea of an epoch may differ from the steady clock's before it was set."""


class EpochSummary(NamedTuple):
    """An epoch, a phase of one, or a whole run, of all ranks and devices together."""

    ordinal: int
    epoch: int
    """Its number, as the training counts."""
    phase: str
    begun: float
    ended: float
    """NaN while it goes on, and where the run went away in it."""
    seconds: float
    times: int
    """Number of times that a phase was entered; 1 of others."""
    steps: int | None
    """None where nobody counted, and of a whole of which a part is not known."""
    wait: float
    """Seconds waited for data, mean over ranks."""
    metrics: Mapping[str, float]
    ranks: int
    utilization_from: str
    values: Sequence[float] = UNMEASURED
    """In the order of `schema.USAGE`, joined over devices."""
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

    def value(self, column: str) -> float:
        """The value of a column of `schema.USAGE`, by its name."""
        return self.values[USAGE_INDEX[column]]

    @property
    def steps_per_second(self) -> float:
        """Of the time spent in training, where that is known: not of validation and checkpoints."""
        seconds = self.trained if self.trained > 0 else self.seconds
        return self.steps / seconds if seconds > 0 and self.steps else NAN

    @property
    def wait_share(self) -> float:
        """Share of the time in which the training waited for data, of the phases in which that was measured."""
        seconds = self.wait_of if self.wait_of > 0 else self.seconds
        # In this order: of 1 and NaN `min` gives whichever comes first.
        return min(self.wait / seconds, 1.0) if seconds > 0 else NAN

    @property
    def live_peak(self) -> LivePeak:
        """The most in live tensors: reached where the framework tells or readings between steps agree, else no more.

        Its value is NaN where the framework has no such counter, or it was not read.
        """
        return self.peak._replace(reached=True) if self.value("run_allocated_peak") >= self.peak.value else self.peak

    @property
    def energy_per_step(self) -> float:
        return self.value("energy") / self.steps if self.steps else NAN

    @property
    def samples_per_second(self) -> float:
        return self.steps_per_second * self.batch

    @property
    def energy_per_sample(self) -> float:
        return self.energy_per_step / self.batch if self.batch > 0 else NAN


def epochs(record: Record) -> list[EpochSummary]:
    """The epochs of a run in their order."""
    order = {rank.key: i for i, rank in enumerate(record.ranks)}
    usage = _grouped(row for row in record.whole_epochs if row.ordinal != WHOLE_RUN)
    groups: dict[int, list[EpochRow]] = {}
    for row in sorted(record.epochs, key=lambda row: (row.ordinal, order.get(row.rank, 0))):
        groups.setdefault(row.ordinal, []).append(row)
    batch = _batch(record)
    single = _single_devices(record)
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
        )
        for rows, held, values in zip(groups.values(), used, joined, strict=True)
    ]


def phases(record: Record) -> dict[int, list[EpochSummary]]:
    """The phases of each epoch, by its ordinal, in the order in which the first epoch entered them."""
    usage = _grouped(row for row in record.usage if row.phase != WHOLE_EPOCH)
    numbers = {row.ordinal: row.epoch for row in record.epochs}
    single = _single_devices(record)
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
                peak=_fullest(rows, single),
                sampled_share=seen_share(held),
            )
        )
    order: dict[str, int] = {}
    for row in sorted(record.phases, key=lambda row: (row.ordinal, _entered(row))):
        order.setdefault(row.phase, len(order))
    return {ordinal: sorted(parts, key=lambda part: order[part.phase]) for ordinal, parts in found.items()}


def _entered(row: PhaseRow) -> float:
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


def whole(record: Record, parts: Sequence[EpochSummary], now: float) -> EpochSummary:
    """The whole run, of which `parts` are the epochs; a running one until `now`.

    Its steps are those of its epochs: a resumed training may go on counting where it was.
    """
    run = record.run
    wait = mean([rank.wait for rank in record.ranks])
    waited = [epoch for epoch in parts if epoch.wait > 0 and epoch.wait_of > 0]
    # The share is that of the epochs: of the time between them it is not told in which of it somebody measured.
    wait_of = wait * sum(epoch.wait_of for epoch in waited) / (sum(epoch.wait for epoch in waited) or NAN)
    peaks = [LivePeak(rank.peak, reached=True) for rank in record.ranks]
    single = _single_devices(record)
    return EpochSummary(
        ordinal=WHOLE_RUN,
        epoch=WHOLE_RUN,
        phase=WHOLE_EPOCH,
        begun=run.started,
        ended=run.ended,
        seconds=run.lasted(now),
        times=1,
        steps=StepCounts(record).whole([epoch.steps for epoch in parts]),
        wait=wait,
        metrics={},
        ranks=len(record.ranks),
        utilization_from=seen_by(record.usage),
        values=totals(record.whole_epochs),
        batch=_batch(record),
        trained=_trained(parts),
        wait_of=wait_of,
        peak=_joined_peaks(
            [
                peak if rank.key in single else peak._replace(reached=False)
                for rank, peak in zip(record.ranks, peaks, strict=True)
            ]
        ),
    )


def _trained(parts: Sequence[EpochSummary]) -> float:
    """Seconds in which the steps of these epochs were made; NaN where no epoch tells them apart, or one has no length.

    An epoch may lack them: it has no phase of training, or was kept by an older version.
    """
    if not any(epoch.trained > 0 for epoch in parts):
        return NAN
    return sum(epoch.trained if epoch.trained > 0 else epoch.seconds for epoch in parts if epoch.steps)


def _batch(record: Record) -> float:
    """Samples of a step over all ranks; NaN while not all of them have told theirs."""
    told = len(record.ranks) >= record.run.world_size
    return sum(rank.facts.batch or NAN for rank in record.ranks) if told else NAN


def _epoch(
    rows: Sequence[EpochRow],
    usage: Sequence[UsageRow],
    values: Sequence[float],
    batch: float,
    single: set[str],
    counted: StepCounts,
) -> EpochSummary:
    if len(rows) == 1:
        (row,) = rows
        begun, ended, seconds, metrics = row.begun, row.ended, row.seconds, row.metrics
        steps, wait, trained, wait_of = counted.epoch(row), row.wait, row.trained, row.wait_of
    else:
        begun = lowest([row.begun for row in rows])
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
        peak=_fullest(rows, single),
        sampled_share=seen_share(usage),
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


def _fullest(rows: Sequence[EpochRow] | Sequence[PhaseRow], single: set[str]) -> LivePeak:
    """The peak of the fullest device: the counter of a rank on several devices is of all of them together."""
    if len(rows) == 1 and rows[0].rank in single:
        return rows[0].peak
    return _joined_peaks([row.peak if row.rank in single else row.peak._replace(reached=False) for row in rows])


def _joined_peaks(peaks: Sequence[LivePeak]) -> LivePeak:
    if not peaks or any(peak.value != peak.value for peak in peaks):
        return LivePeak()  # one of which it is unknown may be the fullest
    return max(peaks)


def _single_devices(record: Record) -> set[str]:
    """Keys of the ranks on one device."""
    return {rank.key for rank in record.ranks if len(rank.devices) == 1}


def _grouped(rows: Iterable[UsageRow]) -> dict[tuple[int, str], list[UsageRow]]:
    groups: dict[tuple[int, str], list[UsageRow]] = {}
    for row in rows:
        groups.setdefault((row.ordinal, row.phase), []).append(row)
    return groups
