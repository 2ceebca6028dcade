"""An opened run with all its rows, the comparison of two runs, and reports, read from the ledgers."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from math import inf, isfinite
from typing import NamedTuple

from gpumon.analysis.run_epochs import EpochMark
from gpumon.common.config import Prices
from gpumon.common.errors import GpumonError
from gpumon.common.numbers import NAN, is_known
from gpumon.common.paths import history_beside
from gpumon.cost import Charge, price_run, price_summary
from gpumon.diagnosis.past_findings import findings, verdict
from gpumon.model import units
from gpumon.model.frame import RunState
from gpumon.reports import compare, epoch_text
from gpumon.reports.charges import cells, priced, sentence
from gpumon.reports.compare_measures import RUN_MEASURES, ConfigComparison, ConfigDifference, config_differences
from gpumon.reports.html import page
from gpumon.reports.run_tables import COMMIT_LETTERS, about_lines, outside_rows, state, written
from gpumon.reports.run_text import gpus
from gpumon.storage.history.open import open_history
from gpumon.storage.ledger import aggregate
from gpumon.storage.ledger.aggregate import entry_order, outside_phases, step_summaries, steps_text
from gpumon.storage.ledger.combine import highest
from gpumon.storage.ledger.reader import Ledger
from gpumon.storage.ledger.records import DeviceRow, PhaseRow, Record, RunRow
from gpumon.storage.ledger.row_keys import STEP_ROWS
from gpumon.storage.ledger.summary import EpochSummary, are_epochs_known, epochs_done
from gpumon_tui.data.run_rows import (
    COLUMNS,
    WARM_UP,
    ComparedRow,
    ComparedRuns,
    EpochCurve,
    EpochTotals,
    OpenRun,
    StretchRow,
    StretchRows,
    column,
    finite_range,
    first_metric,
    names,
)


def compared(baseline: Record, other: Record) -> ComparedRuns:
    """Compare two runs, as `gpumon runs compare` does."""
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


_LAST = 3
"""Number of newest epochs read; they include the active one and the last ended one of each rank."""


class EndedEpoch(NamedTuple):
    """Last values that a run logged in an epoch."""

    run: RunRow
    metrics: Mapping[str, float]


def ended_epoch(ledger: Ledger, run_id: str, number: int) -> EndedEpoch:
    """Return one of the last epochs of a run by its number. Raises GpumonError until its end is in the ledger."""
    count = ledger.epoch_count(run_id)
    record = ledger.record(run_id, phases=False, ordinals=(max(0, count - _LAST), count))
    for epoch in aggregate.epoch_summaries(record):
        if epoch.epoch == number and is_known(epoch.ended):
            return EndedEpoch(record.run, epoch.metrics)
    raise GpumonError(f"the ledger has no end of epoch {number} yet")


def opened(record: Record, now: float, prices: Prices | None = None) -> OpenRun:
    """Return a run with all its rows, and its cost if `prices` are given.

    `record` is read without single phases, but with the times of phases.
    """
    epochs = aggregate.epoch_summaries(record)
    goes_on = record.run.state is RunState.RUNNING and not record.run.unseen_seconds(now)
    total = aggregate.run_total(record, epochs, record.run.measured_until(now))
    priced = _Priced(price_run(total, epochs, record.devices, prices), record.devices, prices) if prices else None
    is_by_steps = not epochs and bool(record.step_rows)
    made = step_summaries(record) if is_by_steps else epochs
    outside = [row for row in outside_rows(record, epochs, total, phases=True) if row[1].ordinal > STEP_ROWS]
    beside = [*outside, ("all", total)]
    metrics = names([*made, total])
    logged = {name: column([*made, *(row for _, row in beside)], name) for name in metrics}
    parts = _parts(record.phases) if not is_by_steps else {}

    def row(place: int, title: str, of: EpochSummary, before: EpochSummary | None, judged: bool) -> StretchRow:
        return StretchRow(
            title=title, of=of, took_change=_change(of, before),
            parts=list(parts.get(of.ordinal, _NO_PARTS).items()),
            logged=[logged[name][place] for name in metrics],
            logged_change=_metric_change(metrics[0], of, before) if metrics else NAN,
            verdict=verdict(of, goes_on) if judged else None,
            costs=priced.cells(of, is_epoch=judged, is_whole=of is total) if priced else (),
            is_running=goes_on and not is_known(of.ended),
        )  # fmt: skip

    def made_row(place: int) -> StretchRow:
        of = made[place]
        title = steps_text(of) if is_by_steps else f"e{of.epoch}"
        return row(place, title, of, made[place - 1] if place else None, True)

    last = [row(len(made) + place, title, of, None, False) for place, (title, of) in enumerate(beside)]
    between = [(part.phase, part.seconds) for part in outside_phases(record)]
    return OpenRun(
        # Drop thousands of rows here; freeing them later would block the view.
        record=record._replace(epochs=(), usage=(), phases=()),
        state=state(record.run, now), devices=gpus(record.devices), is_by_steps=is_by_steps,
        rows=StretchRows(made, made_row), phases=_names(record.phases),
        beside=[one._replace(parts=between) if one.title == "between" else one for one in last], metrics=metrics,
        findings=findings(record, total, record.run.updated),
        about=[*(priced.told() if priced else ()), *about_lines(record.about)],
        seconds=total.seconds, totals=_totals(record, made, [of for _, of in beside], metrics),
        costs=priced.headings() if priced else (),
        marks=sorted(EpochMark(one.begun, one.epoch, record.run.id) for one in epochs if is_known(one.begun)),
    )  # fmt: skip


def _totals(
    record: Record, made: Sequence[EpochSummary], beside: Sequence[EpochSummary], metrics: Sequence[str]
) -> EpochTotals:
    metric = next((name for name in metrics if any(name in of.metrics for of in made)), "")
    logged = [of.metrics.get(metric, NAN) for of in made] if metric else []
    mean = [of.value("utilization_mean") for of in made]
    low, high = ([_either(of.value(name), of.value("utilization_mean")) for of in made] for name in _PERCENTILES)
    return EpochTotals(
        longest=max((of.seconds for of in made if is_known(of.seconds)), default=0.0),
        largest=epoch_text.largest(COLUMNS, made, beside),
        ended=sum(is_known(of.ended) for of in made),
        done=epochs_done(record, made) if are_epochs_known(record, made) else None,
        numbers=[of.epoch for of in made],
        metric=metric, logged=logged, logged_range=finite_range(logged),
        diverged=sum(not isfinite(of.metrics.get(metric, 0.0)) for of in made) if metric else 0,
        utilization=(low, mean, high),
    )  # fmt: skip


_PERCENTILES = ("utilization_p5", "utilization_p95")


def _either(value: float, otherwise: float) -> float:
    return value if is_known(value) else otherwise


class _Priced(NamedTuple):
    """Charges of a run and the prices used."""

    whole: Charge
    devices: Sequence[DeviceRow]
    prices: Prices

    def told(self) -> list[str]:
        """Return a sentence about the cost of the whole run, if any of it is known."""
        return [text for text in [sentence(self.whole, self.prices)] if text]

    def headings(self) -> Sequence[str]:
        return [column.short for column in priced(self.prices)]

    def cells(self, of: EpochSummary, *, is_epoch: bool, is_whole: bool) -> Sequence[str]:
        """Return the cells of a row under these headings; empty for time between epochs, which is spread over many
        hours of the day.
        """
        if not (is_epoch or is_whole):
            return [""] * len(self.headings())
        return cells(self.whole if is_whole else price_summary(of, self.devices, self.prices), self.prices)


_NO_PARTS: Mapping[str, float] = {}


def _parts(rows: Sequence[PhaseRow]) -> Mapping[int, Mapping[str, float]]:
    """Return the seconds of each phase in each epoch (of the slowest rank), by ordinal; phases in their order."""
    found: dict[int, dict[str, float]] = {}
    for row in sorted(rows, key=lambda row: (row.ordinal, entry_order(row))):
        parts = found.setdefault(row.ordinal, {})
        parts[row.phase] = highest([parts.get(row.phase, NAN), row.seconds])
    return found


def _names(rows: Sequence[PhaseRow]) -> Sequence[str]:
    """Return the names of all phases, ordered by their position within epochs if known."""
    places: dict[str, float] = {}
    for row in rows:
        if row.position < places.setdefault(row.phase, inf):
            places[row.phase] = row.position
    return sorted(places, key=lambda name: places[name])


def _change(of: EpochSummary, before: EpochSummary | None) -> float:
    if before is None or not (is_known(of.ended) and is_known(before.ended)) or not before.seconds > 0:
        return NAN
    return of.seconds / before.seconds - 1


def _metric_change(name: str, of: EpochSummary, before: EpochSummary | None) -> float:
    if before is None:
        return NAN
    value, other = of.metrics.get(name, NAN), before.metrics.get(name, NAN)
    return (value - other) / abs(other) if isfinite(value) and isfinite(other) and value * other > 0 else NAN


_LETTERS = 80
"""Maximum length of the file name of a report."""


def write_report(ledger: Ledger, run_id: str, now: float, directory: str) -> str:
    """Write the page of `gpumon runs report` to a new file in a directory; return its path."""
    record = ledger.record(run_id)
    history = open_history()
    history.set_path(history_beside(ledger.path))
    try:
        made = page(record, ledger.traces(run_id), now, history)
    finally:
        history.close()
    plain = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in record.run.id)[:_LETTERS]
    number = 1
    while True:
        path = os.path.join(directory, f"gpumon-{plain.lstrip('.')}{f'-{number}' if number > 1 else ''}.html")
        try:
            with open(path, "x", encoding="utf-8") as file:
                file.write(made)
            return path
        except FileExistsError:
            number += 1
        except OSError as error:
            where = f"start gpumon where you may write, or use 'gpumon runs report {record.run.id} -o FILE'"
            raise GpumonError(f"cannot write {path}: {error.strerror or error}; {where}") from error
