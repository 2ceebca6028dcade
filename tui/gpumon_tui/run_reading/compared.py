"""Two runs of ledgers side by side, as `gpumon runs compare` has them."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.common.numbers import NAN, is_known
from gpumon.model import units
from gpumon.reports import compare
from gpumon.reports.compare_measures import RUN_MEASURES, ConfigComparison, ConfigDifference, config_differences
from gpumon.reports.run_tables import COMMIT_LETTERS, written
from gpumon.storage.ledger import aggregate
from gpumon.storage.ledger.records import Record
from gpumon.storage.ledger.summary import EpochSummary
from gpumon_tui.run_reading.logged import finite_range, first_metric, names
from gpumon_tui.run_reading.rows import WARM_UP, ComparedRow, ComparedRuns, EpochCurve


def compared(baseline: Record, other: Record) -> ComparedRuns:
    """Two runs as `gpumon runs compare` has them."""
    records = (baseline, other)
    found, config = compare.compare(records), config_differences(records)
    by_epochs = all(found.epochs)
    singles = found.whole if not by_epochs else [
        line for line in found.whole if line.measure in RUN_MEASURES
    ]  # fmt: skip
    epochs = [aggregate.epoch_summaries(record) for record in records]
    metric = first_metric({name: 0.0 for name in names(epochs[0]) if name in names(epochs[1])})
    counts = [
        f"{units.counted(count, 'epoch')}{f', without the first{WARM_UP}' if left_out else ''}" if by_epochs
        else "whole run"
        for count, left_out in zip(found.epochs, found.left_out, strict=True)
    ]  # fmt: skip
    return ComparedRuns(
        records=records,
        counts=(counts[0], counts[1]),
        config=[(one.name, _written(one, 0), _written(one, 1)) for one in config.differences],
        same=config.same,
        equal=_equal(records, config) if config.same else [],
        without=config.without,
        is_dirty=config.is_dirty,
        rows=[_compared(line, single=False) for line in found.lines] if by_epochs else [],
        whole=[_compared(line, single=True) for line in singles],
        notes=[
            *([compare.NO_INTERVAL] if by_epochs and compare.has_too_few(found) else []),
            *found.notes,
            *(f"Caution: {doubt}" for doubt in found.doubts),
        ],
        by_epochs=by_epochs,
        curves=(_curve(baseline, epochs[0], metric), _curve(other, epochs[1], metric)),
        metric=metric,
    )


def _equal(records: tuple[Record, Record], config: ConfigComparison) -> list[tuple[str, str]]:
    differing = {one.name for one in config.differences if one.is_config}
    known = records[0].about.config
    return [(name, written(value)) for name, value in known.items() if name not in differing]


def _written(one: ConfigDifference, place: int) -> str:
    if not one.has[place]:
        return units.MISSING
    text = written(one.values[place])
    return text[:COMMIT_LETTERS] if one.name == "commit" and not one.is_config else text


def _compared(line: compare.MeasureComparison, *, single: bool) -> ComparedRow:
    (found,) = line.differences
    baseline, own = line.measure.texts(line.medians)
    low, high = compare.ends(found, line.measure)
    verdict = compare.verdict(found, line.measure, single=single)
    return ComparedRow(
        name=line.measure.name,
        title=line.measure.title,
        values=(baseline, own),
        difference=line.measure.column.write(abs(found.value)),
        verdict=verdict,
        briefs=compare.briefly(verdict),
        share=found.value if line.measure.in_points or not found.value else found.share,
        low=low,
        high=high,
        is_clear=found.is_clear,
    )


def _curve(record: Record, epochs: Sequence[EpochSummary], metric: str) -> EpochCurve:
    ended = [epoch for epoch in epochs if is_known(epoch.ended)]
    values = [epoch.metrics.get(metric, NAN) for epoch in ended]
    return EpochCurve([epoch.ended - record.run.started for epoch in ended], values, finite_range(values))
