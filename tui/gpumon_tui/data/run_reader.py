"""Runs read from the ledgers: rows of the list, an opened run with all its rows, comparisons of two runs, reports."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf, isfinite
from typing import NamedTuple

from gpumon.analysis.run_epochs import EpochMark
from gpumon.common.config import Prices
from gpumon.common.errors import GpumonError
from gpumon.common.numbers import NAN, is_known
from gpumon.common.paths import history_beside
from gpumon.cost import Charge, price_run, price_summary
from gpumon.diagnosis.past_findings import (
    findings,
    is_measured,
    is_partly_sampled,
    sampled_text,
    short_summary,
    verdict,
)
from gpumon.diagnosis.runs import diverged_names
from gpumon.model import units
from gpumon.model.frame import ENDED_BADLY, RunState
from gpumon.reports import compare, epoch_text
from gpumon.reports.charges import cells, priced, sentence
from gpumon.reports.compare_measures import RUN_MEASURES, ConfigComparison, ConfigDifference, config_differences
from gpumon.reports.html import page
from gpumon.reports.run_list import epoch_cell, is_utilization_about, state
from gpumon.reports.run_tables import COMMIT_LETTERS, about_lines, outside_rows, written
from gpumon.reports.run_text import gpus
from gpumon.storage.history.open import open_history
from gpumon.storage.ledger import aggregate
from gpumon.storage.ledger.aggregate import between_epochs, entry_order, outside_phases, step_summaries, steps_text
from gpumon.storage.ledger.combine import highest
from gpumon.storage.ledger.reader import Ledger, Ledgers
from gpumon.storage.ledger.records import DeviceRow, PhaseRow, Record, RunRow, RunSummary
from gpumon.storage.ledger.row_keys import STEP_ROWS
from gpumon.storage.ledger.summary import EpochSummary
from gpumon_tui.data.run_rows import (
    COLUMNS,
    WARM_UP,
    ComparedRow,
    ComparedRuns,
    EpochCurve,
    EpochTotals,
    ListedRun,
    OpenRun,
    RunDetail,
    StretchRow,
    StretchRows,
    column,
    finite_range,
    first_metric,
    names,
    search_text,
)


def compare_runs(baseline: Record, other: Record) -> ComparedRuns:
    """Compare two runs, as `gpumon runs compare` does."""
    records = (baseline, other)
    result, config = compare.compare(records), config_differences(records)
    by_epochs = all(result.epochs)
    singles = result.whole if not by_epochs else [
        line for line in result.whole if line.measure in RUN_MEASURES
    ]  # fmt: skip
    epochs = [aggregate.epoch_summaries(record) for record in records]
    metric = first_metric({name: 0.0 for name in names(epochs[0]) if name in names(epochs[1])})
    counts = [
        f"{units.counted(count, 'epoch')}{f', without the first{WARM_UP}' if left_out else ''}" if by_epochs
        else "whole run"
        for count, left_out in zip(result.epochs, result.left_out, strict=True)
    ]  # fmt: skip
    return ComparedRuns(
        records=records,
        counts=(counts[0], counts[1]),
        config=[
            (difference.name, _config_text(difference, 0), _config_text(difference, 1))
            for difference in config.differences
        ],
        same=config.same,
        equal=_equal_config(records, config) if config.same else [],
        without=config.without,
        is_dirty=config.is_dirty,
        rows=[_compared_row(line, single=False) for line in result.lines] if by_epochs else [],
        whole=[_compared_row(line, single=True) for line in singles],
        notes=[
            *([compare.NO_INTERVAL] if by_epochs and compare.has_too_few(result) else []),
            *result.notes,
            *(f"Caution: {doubt}" for doubt in result.doubts),
        ],
        by_epochs=by_epochs,
        curves=(_curve(baseline, epochs[0], metric), _curve(other, epochs[1], metric)),
        metric=metric,
    )


def _equal_config(records: tuple[Record, Record], config: ConfigComparison) -> list[tuple[str, str]]:
    differing = {difference.name for difference in config.differences if difference.is_config}
    parameters = records[0].about.config
    return [(name, written(value)) for name, value in parameters.items() if name not in differing]


def _config_text(difference: ConfigDifference, index: int) -> str:
    if not difference.has[index]:
        return units.MISSING
    text = written(difference.values[index])
    return text[:COMMIT_LETTERS] if difference.name == "commit" and not difference.is_config else text


def _compared_row(line: compare.MeasureComparison, *, single: bool) -> ComparedRow:
    (difference,) = line.differences
    baseline, value = line.texts
    low, high = compare.ends(difference, line.measure)
    verdict = compare.verdict(difference, line.measure, single=single)
    return ComparedRow(
        name=line.measure.name,
        title=line.measure.title,
        values=(baseline, value),
        difference=line.measure.column.write(abs(difference.value)),
        verdict=verdict,
        briefs=compare.briefly(verdict),
        share=difference.value if line.measure.in_points or not difference.value else difference.share,
        low=low,
        high=high,
        is_clear=difference.is_clear,
    )


def _curve(record: Record, epochs: Sequence[EpochSummary], metric: str) -> EpochCurve:
    ended = [epoch for epoch in epochs if is_known(epoch.ended)]
    values = [epoch.metrics.get(metric, NAN) for epoch in ended]
    return EpochCurve([epoch.ended - record.run.started for epoch in ended], values, finite_range(values))


_NEWEST = 6
"""Number of newest epochs read; they include the active epoch and the last ended epoch of each rank."""


class EndedEpoch(NamedTuple):
    """Last values that a run logged in an epoch."""

    run: RunRow
    metrics: Mapping[str, float]


def ended_epoch(ledger: Ledger, run_id: str, number: int) -> EndedEpoch:
    """Return one of the last epochs of a run by its number. Raises GpumonError while its end is not in the ledger."""
    count = ledger.epoch_count(run_id)
    record = ledger.record(run_id, phases=False, ordinals=range(max(0, count - _NEWEST), count))
    for epoch in aggregate.epoch_summaries(record):
        if epoch.epoch == number and is_known(epoch.ended):
            return EndedEpoch(record.run, epoch.metrics)
    raise GpumonError(f"the ledger has no end of epoch {number} yet")


def open_run(record: Record, now: float, prices: Prices | None = None) -> OpenRun:
    """Return a run with all its rows, and its cost if `prices` are given.

    `record` has the total times of phases, but not each phase.
    """
    epochs = aggregate.epoch_summaries(record)
    is_running = record.run.state is RunState.RUNNING and not record.run.unseen_seconds(now)
    total = aggregate.run_total(record, epochs)
    priced = _Priced(price_run(total, epochs, record.devices, prices), record.devices, prices) if prices else None
    is_by_steps = not epochs and bool(record.step_rows)
    summaries = step_summaries(record) if is_by_steps else epochs
    outside = [row for row in outside_rows(record, epochs, total, phases=True) if row[1].ordinal > STEP_ROWS]
    others = [*outside, ("all", total)]
    metrics = names([*summaries, total])
    logged = {name: column([*summaries, *(row for _, row in others)], name) for name in metrics}
    parts = _parts(record.phases) if not is_by_steps else {}

    def row(index: int, title: str, summary: EpochSummary, previous: EpochSummary | None, is_epoch: bool) -> StretchRow:
        return StretchRow(
            title=title, summary=summary, seconds_change=_change(summary, previous),
            parts=list(parts.get(summary.ordinal, _NO_PARTS).items()),
            logged=[logged[name][index] for name in metrics],
            logged_change=_metric_change(metrics[0], summary, previous) if metrics else NAN,
            verdict=verdict(summary, is_running) if is_epoch else None,
            costs=priced.cells(summary, is_epoch=is_epoch, is_whole=summary is total) if priced else (),
            is_running=is_running and not is_known(summary.ended),
        )  # fmt: skip

    def made_row(index: int) -> StretchRow:
        summary = summaries[index]
        title = steps_text(summary) if is_by_steps else f"e{summary.label}"
        return row(index, title, summary, summaries[index - 1] if index else None, True)

    other_rows = [
        row(index, title, summary, None, False) for index, (title, summary) in enumerate(others, len(summaries))
    ]
    between = [(part.phase, part.seconds) for part in outside_phases(record, between_epochs(record, epochs))]
    return OpenRun(
        # Drop thousands of rows in this thread, because freeing them later would block the view.
        record=replace(record, epochs=(), usage=(), phases=()),
        state=state(record.run, now), devices=gpus(record.devices), is_by_steps=is_by_steps,
        rows=StretchRows(summaries, made_row), phases=_names(record.phases),
        other_rows=[
            other._replace(parts=between) if other.title == "between" else other for other in other_rows
        ],
        metrics=metrics,
        findings=findings(record, total, record.run.updated),
        about=[*(priced.sentences() if priced else ()), *about_lines(record.about)],
        seconds=total.seconds, totals=_totals(record, summaries, [summary for _, summary in others], metrics),
        costs=priced.headings() if priced else (),
        marks=sorted(EpochMark(epoch.begun, epoch.epoch, record.run.id) for epoch in epochs if is_known(epoch.begun)),
    )  # fmt: skip


def _totals(
    record: Record, summaries: Sequence[EpochSummary], others: Sequence[EpochSummary], metrics: Sequence[str]
) -> EpochTotals:
    metric = next((name for name in metrics if any(name in summary.metrics for summary in summaries)), "")
    logged = [summary.metrics.get(metric, NAN) for summary in summaries] if metric else []
    mean = [summary.value("utilization_mean") for summary in summaries]
    low, high = (
        [_known_or(summary.value(name), summary.value("utilization_mean")) for summary in summaries]
        for name in _PERCENTILES
    )
    return EpochTotals(
        longest=max((summary.seconds for summary in summaries if is_known(summary.seconds)), default=0.0),
        largest=epoch_text.largest(COLUMNS, summaries, others),
        ended=sum(is_known(summary.ended) for summary in summaries),
        done=None if record.done is None else record.done + record.run.epochs_before,
        numbers=[summary.epoch for summary in summaries],
        metric=metric, logged=logged, logged_range=finite_range(logged),
        diverged=sum(not isfinite(summary.metrics.get(metric, 0.0)) for summary in summaries)
        if metric in diverged_names(summary.metrics for summary in summaries)
        else 0,
        utilization=(low, mean, high),
    )  # fmt: skip


_PERCENTILES = ("utilization_p5", "utilization_p95")


def _known_or(value: float, otherwise: float) -> float:
    return value if is_known(value) else otherwise


class _Priced(NamedTuple):
    """Charges of a run and the prices used."""

    whole: Charge
    devices: Sequence[DeviceRow]
    prices: Prices

    def sentences(self) -> list[str]:
        """Return a sentence about the cost of the whole run; empty if no part of the cost is available."""
        return [text for text in [sentence(self.whole, self.prices)] if text]

    def headings(self) -> Sequence[str]:
        return [column.short for column in priced(self.prices)]

    def cells(self, summary: EpochSummary, *, is_epoch: bool, is_whole: bool) -> Sequence[str]:
        """Return the cells of a row under the headings.

        They are empty for the time between epochs, which is spread over many hours of the day.
        """
        if not (is_epoch or is_whole):
            return [""] * len(self.headings())
        return cells(self.whole if is_whole else price_summary(summary, self.devices, self.prices), self.prices)


_NO_PARTS: Mapping[str, float] = {}


def _parts(rows: Sequence[PhaseRow]) -> Mapping[int, Mapping[str, float]]:
    """Return the seconds of each phase on the slowest rank, in order, for each epoch by its ordinal."""
    phases: dict[int, dict[str, float]] = {}
    for row in sorted(rows, key=lambda row: (row.ordinal, entry_order(row))):
        parts = phases.setdefault(row.ordinal, {})
        parts[row.phase] = highest([parts.get(row.phase, NAN), row.seconds])
    return phases


def _names(rows: Sequence[PhaseRow]) -> Sequence[str]:
    """Return the names of all phases in the order of their positions within epochs; unknown positions come last."""
    positions: dict[str, float] = {}
    for row in rows:
        if row.place < positions.setdefault(row.phase, inf):
            positions[row.phase] = row.place
    return sorted(positions, key=lambda name: positions[name])


def _change(summary: EpochSummary, previous: EpochSummary | None) -> float:
    if previous is None or not (is_known(summary.ended) and is_known(previous.ended)) or not previous.seconds > 0:
        return NAN
    return summary.seconds * previous.merged / (previous.seconds * summary.merged) - 1


def _metric_change(name: str, summary: EpochSummary, previous: EpochSummary | None) -> float:
    if previous is None:
        return NAN
    value, previous_value = summary.metrics.get(name, NAN), previous.metrics.get(name, NAN)
    has_change = isfinite(value) and isfinite(previous_value) and value * previous_value > 0
    return (value - previous_value) / abs(previous_value) if has_change else NAN


_MAX_NAME = 80
"""Maximum length of the file name of a report."""


def write_report(ledger: Ledger, run_id: str, now: float, directory: str) -> str:
    """Write the page of `gpumon runs report` to a new file in a directory; return its path."""
    record = ledger.record(run_id)
    history = open_history()
    history.set_path(history_beside(ledger.path))
    try:
        html = page(record, ledger.traces(run_id), now, history)
    finally:
        history.close()
    name = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in record.run.id)[:_MAX_NAME]
    number = 1
    while True:
        path = os.path.join(directory, f"gpumon-{name.lstrip('.')}{f'-{number}' if number > 1 else ''}.html")
        try:
            with open(path, "x", encoding="utf-8") as file:
                file.write(html)
            return path
        except FileExistsError:
            number += 1
        except OSError as error:
            remedy = f"start gpumon where you may write, or use 'gpumon runs report {record.run.id} -o FILE'"
            raise GpumonError(f"cannot write {path}: {error.strerror or error}; {remedy}") from error


FIRST = 200
"""Maximum number of runs read for the first answer."""


def ledger_stamps(ledgers: Ledgers) -> list[object]:
    """Return values that change when a ledger changes, including its write-ahead log."""
    stamps: list[object] = []
    for path in (file for ledger in ledgers.paths for file in (ledger, f"{ledger}-wal")):
        with suppress(OSError):
            stat = os.stat(path)
            stamps.append((path, stat.st_ino, stat.st_mtime_ns, stat.st_size))
    return stamps


class ListedRuns:
    """All runs of the ledgers. A run is read again only if its ledger has changed it.

    Reading thousands of runs takes seconds, so the first answer contains only the newest.
    """

    def __init__(self) -> None:
        self.is_all = False
        """Whether the last answer contained every run."""
        self._summaries: dict[str, tuple[str, RunSummary]] = {}
        """Path of the ledger and the run, by id."""
        self._rows: dict[str, tuple[RunSummary, ListedRun]] = {}
        """Rows of ended runs, which do not depend on the current time."""
        self._runs: list[ListedRun] = []
        self._stamps: object = None

    def read(self, ledgers: Ledgers, now: float) -> list[ListedRun]:
        """Return all runs, newest first; the first call returns at most `FIRST`."""
        stamps = ledger_stamps(ledgers)
        # Rows of active runs depend on the current time, so they are rebuilt.
        if stamps == self._stamps and self.is_all and all(run.is_over for run in self._runs):
            return self._runs
        if not self._summaries:
            newest = ledgers.runs_with_ledger(limit=FIRST)
            self._summaries = {summary.run.id: (ledger.path, summary) for ledger, summary in newest}
            self.is_all = len(newest) < FIRST
        else:
            self._summaries = self._read_all(ledgers)
            self.is_all = True
        self._stamps = stamps
        self._runs = [self._row(summary, now) for _, summary in self._summaries.values()]
        return self._runs

    def _row(self, summary: RunSummary, now: float) -> ListedRun:
        row_summary, row = self._rows.get(summary.run.id, (None, None))
        if row is None or row_summary is not summary:
            row = _listed_run(summary, now)
            if summary.run.state is not RunState.RUNNING:
                self._rows[summary.run.id] = summary, row
        return row

    def _read_all(self, ledgers: Ledgers) -> dict[str, tuple[str, RunSummary]]:
        runs: dict[str, tuple[str, RunSummary]] = {}
        tags: dict[str, dict[str, Sequence[str]]] = {}
        for ledger, run in ledgers.candidates():
            if ledger.path not in tags:
                tags[ledger.path] = ledger.all_tags()
            path, summary = self._summaries.get(run.id, ("", None))
            if summary is None or path != ledger.path or not _is_same(run, summary.run):
                runs[run.id] = ledger.path, ledger.summary(run)
            else:
                run_tags = tags[path].get(run.id, ())
                runs[run.id] = path, summary if summary.tags == run_tags else replace(summary, tags=run_tags)
        return runs


def _is_same(run: RunRow, previous: RunRow) -> bool:
    """Whether two rows are equal."""
    # NaN != NaN; no call of is_known, because there are thousands of rows with many cells.
    return all(new == old or (new != new and old != old) for new, old in zip(run, previous, strict=True))


def detail(ledger: Ledger, run_id: str, now: float) -> RunDetail:
    """Return the details of a run; its first finding is the verdict."""
    record = ledger.record(run_id, phases=False, times=True)
    epochs = aggregate.epoch_summaries(record)
    total = aggregate.run_total(record, epochs)
    run_findings = findings(record, total, record.run.updated, epochs)
    logged = total.metrics or next((epoch.metrics for epoch in reversed(epochs) if epoch.metrics), {})
    name = first_metric(logged)
    metric = f"{name} {units.padded_logged_number(logged[name])}" if name else ""
    is_settled = record.run.is_settled(now)
    if run_findings:
        first = run_findings[0]
        return RunDetail(total.wait_share, metric, first.summary, first.severity, is_settled, short_summary(first))
    if count := sum(map(is_partly_sampled, epochs)):
        text = f"{units.counted(count, 'epoch')} partly sampled"
        return RunDetail(total.wait_share, metric, text, None, is_settled)
    if is_partly_sampled(total):  # for example a run that started before its recording or before the daemon
        return RunDetail(total.wait_share, metric, sampled_text(total), None, is_settled)
    return RunDetail(total.wait_share, metric, "fine" if is_measured(total) else "", None, is_settled)


def _listed_run(summary: RunSummary, now: float) -> ListedRun:
    run, state_text = summary.run, state(summary.run, now)
    epochs_before = run.epochs_before if summary.done else 0
    # The share is unknown for a run that ended before it was observed, or whose first epochs were not observed.
    has_share = summary.done or (summary.done == 0 and run.state is not RunState.FINISHED)
    return ListedRun(
        id=run.id, name=run.name, user=run.user, state=state_text,
        is_over=run.state is not RunState.RUNNING or run.unseen_seconds(now) > 0,
        ended_badly=run.state in ENDED_BADLY, gpus=summary.gpus, epoch=epoch_cell(summary),
        share=min(1.0, ((summary.done or 0) + epochs_before) / run.epochs) if run.epochs and has_share else NAN,
        started=run.started, seconds=run.duration, left=NAN, utilization=summary.utilization,
        energy=summary.energy if is_known(summary.energy) else summary.energy_least,
        is_about=is_utilization_about(summary),
        is_least=not is_known(summary.energy) and is_known(summary.energy_least),
        tags=tuple(summary.tags),
        text=search_text(run.name, run.id, run.user, run.framework, state_text, *summary.tags), is_kept=True,
        written=run.updated if is_known(summary.energy) or is_known(summary.utilization) else NAN,
    )  # fmt: skip
