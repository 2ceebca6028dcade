"""Ranks and devices of a run joined into one line for each epoch, phase, and for the whole.

An epoch begins with its first rank and ends with its last. What a device did is joined by the rules
below: energy adds up, utilization is a mean, a peak is that of the fullest device.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from gpumon.epochs import Span
from gpumon.frame import NAN
from gpumon.runs.rows import UNMEASURED, USAGE_INDEX, EpochRow, PhaseRow, Record, UsageRow
from gpumon.runs.schema import USAGE, WHOLE_EPOCH, WHOLE_RUN

_ADDED = frozenset(("energy", "power_mean"))
_HIGHEST = frozenset(column.name for column in USAGE if column.name.endswith("_peak")) | {"seconds", "utilization_p95"}
_LOWEST = frozenset(("sampled", "utilization_p5"))
_LASTING = frozenset(("seconds", "sampled", "energy"))
"""What adds up over time, too."""
_UNJOINABLE = frozenset(("utilization_p5", "utilization_p95"))
"""Percentiles of a whole do not follow from those of its parts."""


class Stretch(NamedTuple):
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
    """How often a phase was entered; 1 of others."""
    steps: int
    wait: float
    """Seconds waited for data, mean over ranks."""
    metrics: Mapping[str, float]
    ranks: int
    utilization_from: str
    values: Sequence[float] = UNMEASURED
    """In the order of `schema.USAGE`, joined over devices."""
    batch: float = NAN
    """Samples of a step, of all ranks together."""

    def value(self, column: str) -> float:
        """The value of a column of `schema.USAGE`, by its name."""
        return self.values[USAGE_INDEX[column]]

    @property
    def steps_per_second(self) -> float:
        return self.steps / self.seconds if self.seconds > 0 and self.steps else NAN

    @property
    def wait_share(self) -> float:
        """Share of the time in which the training waited for data."""
        return self.wait / self.seconds if self.seconds > 0 else NAN

    @property
    def energy_per_step(self) -> float:
        return self.value("energy") / self.steps if self.steps else NAN

    @property
    def samples_per_second(self) -> float:
        return self.steps_per_second * self.batch

    @property
    def energy_per_sample(self) -> float:
        return self.energy_per_step / self.batch if self.batch > 0 else NAN

    @property
    def sampled_share(self) -> float:
        """Share of the time that samples saw; NaN where the length is not known."""
        seconds, sampled = self.value("seconds"), self.value("sampled")
        if not seconds > 0:
            return NAN
        return 0.0 if math.isnan(sampled) else min(1.0, sampled / seconds)


def epochs(record: Record) -> list[Stretch]:
    """The epochs of a run in their order."""
    order = {rank.key: i for i, rank in enumerate(record.ranks)}
    usage = _grouped(row for row in record.whole_epochs if row.ordinal != WHOLE_RUN)
    groups: dict[int, list[EpochRow]] = {}
    for row in sorted(record.epochs, key=lambda row: (row.ordinal, order.get(row.rank, 0))):
        groups.setdefault(row.ordinal, []).append(row)
    batch = _batch(record)
    found = (_epoch(rows, usage.get((ordinal, WHOLE_EPOCH), ())) for ordinal, rows in groups.items())
    return [epoch._replace(batch=batch) for epoch in found]


def phases(record: Record) -> dict[int, list[Stretch]]:
    """The phases of each epoch, by its ordinal, in the order in which the ledger has them."""
    usage = _grouped(row for row in record.usage if row.phase != WHOLE_EPOCH)
    numbers = {row.ordinal: row.epoch for row in record.epochs}
    groups: dict[tuple[int, str], list[PhaseRow]] = {}
    for row in record.phases:
        groups.setdefault((row.ordinal, row.phase), []).append(row)
    found: dict[int, list[Stretch]] = {}
    for (ordinal, phase), rows in groups.items():
        held = usage.get((ordinal, phase), ())
        found.setdefault(ordinal, []).append(
            Stretch(
                ordinal, numbers.get(ordinal, ordinal), phase, NAN, NAN, _highest([row.seconds for row in rows]),
                max(row.times for row in rows), max(row.steps for row in rows), _mean([row.wait for row in rows]),
                {}, len(rows), seen_by(held), over_devices(held),
            )
        )  # fmt: skip
    return found


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


def whole(record: Record, parts: Sequence[Stretch], now: float) -> Stretch:
    """The whole run, of which `parts` are the epochs; a running one until `now`.

    Its steps are those of its epochs: a resumed training may go on counting where it was.
    """
    run = record.run
    return Stretch(
        WHOLE_RUN, WHOLE_RUN, WHOLE_EPOCH, run.started, run.ended, run.lasted(now), 1,
        sum(epoch.steps for epoch in parts), _mean([rank.wait for rank in record.ranks]), {},
        len(record.ranks), seen_by(record.usage), totals(record.whole_epochs), _batch(record),
    )  # fmt: skip


def totals(rows: Sequence[UsageRow]) -> tuple[float, ...]:
    """Usage of a whole run: the row that the ledger has for it, else what its epochs come to."""
    whole_run = [row for row in rows if row.ordinal == WHOLE_RUN]
    if whole_run:
        return over_devices(whole_run)
    return _over_time([over_devices(group) for _, group in sorted(_grouped(rows).items())])


def over_devices(rows: Sequence[UsageRow]) -> tuple[float, ...]:
    """One stretch of time on several devices. A device on which several ranks train counts once."""
    if len(rows) == 1:
        return tuple(rows[0].values)
    devices: dict[str, list[Sequence[float]]] = {}
    for row in rows:
        devices.setdefault(row.uuid, []).append(row.values)
    once = [_combined(same, same_device=True) if len(same) > 1 else same[0] for same in devices.values()]
    return _combined(once, same_device=False) if once else UNMEASURED


def seen_by(rows: Iterable[UsageRow]) -> str:
    """Where utilization is from: `driver`, `ticks`, both, or empty."""
    return ", ".join(sorted({row.utilization_from for row in rows if row.utilization_from}))


def _batch(record: Record) -> float:
    """Samples of a step over all ranks; NaN while not all of them have told theirs."""
    told = len(record.ranks) >= record.run.world_size
    return math.fsum(rank.batch for rank in record.ranks) if told else NAN


def _epoch(rows: Sequence[EpochRow], usage: Sequence[UsageRow]) -> Stretch:
    begun = min((row.begun for row in rows if not math.isnan(row.begun)), default=NAN)
    over = all(not math.isnan(row.ended) for row in rows)
    ended = max(row.ended for row in rows) if over else NAN
    last = ended if over else max(row.begun + row.seconds for row in rows)  # as far as it is known
    seconds = rows[0].seconds if len(rows) == 1 else last - begun
    metrics: dict[str, float] = {}
    for row in rows:
        metrics = {**row.metrics, **metrics}  # the lowest rank's word holds
    ordered = {name: metrics[name] for row in rows for name in row.metrics}
    return Stretch(
        rows[0].ordinal, rows[0].epoch, WHOLE_EPOCH, begun, ended,
        last - begun if math.isnan(seconds) else seconds, 1, max(row.steps for row in rows),
        _mean([row.wait for row in rows]), ordered, len(rows), seen_by(usage), over_devices(usage),
    )  # fmt: skip


def _grouped(rows: Iterable[UsageRow]) -> dict[tuple[int, str], list[UsageRow]]:
    groups: dict[tuple[int, str], list[UsageRow]] = {}
    for row in rows:
        groups.setdefault((row.ordinal, row.phase), []).append(row)
    return groups


def _combined(rows: Sequence[Sequence[float]], *, same_device: bool) -> tuple[float, ...]:
    values = []
    for column, cells in zip(USAGE, zip(*rows, strict=True), strict=True):
        if column.name in _ADDED:
            values.append(_highest(cells) if same_device else _sum(cells))
        elif column.name in _HIGHEST:
            values.append(_highest(cells))
        elif column.name in _LOWEST:
            values.append(-_highest([-cell for cell in cells]))
        else:
            values.append(_mean(cells))
    return tuple(values)


def _over_time(rows: Sequence[Sequence[float]]) -> tuple[float, ...]:
    if not rows:
        return UNMEASURED
    if len(rows) == 1:
        return tuple(rows[0])
    weights = [row[USAGE_INDEX["sampled"]] for row in rows]
    values = []
    for column, cells in zip(USAGE, zip(*rows, strict=True), strict=True):
        if column.name in _LASTING:
            values.append(_sum(cells))
        elif column.name in _UNJOINABLE:
            values.append(NAN)
        elif column.name in _HIGHEST:
            values.append(_highest(cells))
        elif column.name == "temperature_start":
            values.append(cells[0])
        else:
            known = [(cell, weight) for cell, weight in zip(cells, weights, strict=True) if cell == cell and weight > 0]
            span = sum(weight for _, weight in known)
            values.append(sum(cell * weight for cell, weight in known) / span if span else NAN)
    return tuple(values)


def _sum(values: Sequence[float]) -> float:
    """NaN when one is missing: part of a sum is not the sum."""
    return math.fsum(values) if all(math.isfinite(value) for value in values) else NAN


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if value == value]
    return sum(known) / len(known) if known else NAN


def _highest(values: Sequence[float]) -> float:
    return max((value for value in values if value == value), default=NAN)
