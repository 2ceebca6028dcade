"""Runs of a ledger as the view draws them: read and worked out in a thread, so that drawing has only texts to place.

Everything that is judged or joined here is judged and joined by the house's queries and rules.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import isfinite
from typing import NamedTuple

from gpumon import units
from gpumon.diagnosis.finding import Finding, Severity
from gpumon.diagnosis.past import Verdict, findings, is_measured, verdict
from gpumon.errors import GpumonError
from gpumon.frame import NAN, RunState
from gpumon.history.open import open_history
from gpumon.ledger import aggregate, phase_summary
from gpumon.ledger.epoch_summary import EpochSummary
from gpumon.ledger.outside import outside_phases
from gpumon.ledger.reader import Ledger, Ledgers
from gpumon.ledger.records import Record, RunSummary
from gpumon.ledger.schema import STEP_ROWS
from gpumon.ledger.step_summary import step_summaries, steps_text
from gpumon.missing import is_known
from gpumon.paths import history_beside
from gpumon.reports import compare
from gpumon.reports.about import COMMIT_LETTERS, about_lines, written
from gpumon.reports.compare_whole import BETWEEN, CPU
from gpumon.reports.config_differences import ConfigDifference, config_differences
from gpumon.reports.html import page
from gpumon.reports.run_list import done, state
from gpumon.reports.run_tables import live_peak, outside_rows
from gpumon.reports.run_text import gpus

METRICS = 4
"""Logged metrics that get a column."""
_LETTERS = 80
"""Of the name of a report's file."""


class ListedRun(NamedTuple):
    """A run of a ledger, as a row of the list."""

    id: str
    name: str
    user: str
    state: str
    """One word, as `gpumon runs` has it."""
    is_over: bool
    ended_badly: bool
    gpus: int
    done: str
    """Epochs done of those planned: `12/90`."""
    share: float
    """The same as a share; NaN without a plan."""
    started: float
    seconds: float
    utilization: float
    energy: float
    tags: Sequence[str]

    @property
    def text(self) -> str:
        """All that a filter looks in."""
        return " ".join((self.name, self.id, self.user, self.state, *self.tags)).casefold()


class RunDetail(NamedTuple):
    """A run in a few more words, for its row of the list."""

    wait: float
    metric: str
    """The metric that was logged first, with its last value: `loss 1.028`."""
    verdict: str
    severity: Severity | None
    """None where nothing was judged."""


class StretchRow(NamedTuple):
    """An epoch, a row of steps, all between epochs, a phase of that, or the whole run."""

    title: str
    of: EpochSummary
    took_change: float
    """Against the stretch before, as a share of it; NaN where one of them is not over."""
    parts: Sequence[tuple[str, float]]
    """Phases with their seconds."""
    peak: str
    """The most in live tensors, as `gpumon runs show` has it."""
    energy: str
    logged: Sequence[str]
    """The values of `OpenRun.metrics`; empty where none was logged."""
    logged_change: float
    """Of the first of these."""
    verdict: Verdict | None

    @property
    def goes_on(self) -> bool:
        """Whether it has not ended."""
        return not is_known(self.of.ended)


class OpenRun(NamedTuple):
    """A run with all its rows, oldest first."""

    record: Record
    state: str
    devices: str
    is_by_steps: bool
    rows: Sequence[StretchRow]
    beside: Sequence[StretchRow]
    """All between its epochs with the phases of it; last the whole run."""
    metrics: Sequence[str]
    findings: Sequence[Finding]
    about: Sequence[str]
    seconds: float

    @property
    def whole(self) -> StretchRow:
        """The row of all of it."""
        return self.beside[-1]


class ComparedRow(NamedTuple):
    """One measure of two runs."""

    title: str
    values: tuple[str, str]
    verdict: str
    share: float
    """The second's difference as a share of the first's value; in points of percent for a ratio."""
    low: float
    high: float
    """Ends of its 95 % interval, in the same; NaN where there is none."""
    is_clear: bool


class ComparedRuns(NamedTuple):
    """Two runs side by side; the first is the baseline."""

    records: tuple[Record, Record]
    counts: tuple[str, str]
    """Epochs that count: `31 epochs, without the first (warm-up)`."""
    config: Sequence[tuple[str, str, str]]
    """Names of parameters that differ, with both values."""
    same: int
    """Parameters that are equal."""
    without: Sequence[int]
    """Places of runs that told none."""
    is_dirty: bool
    rows: Sequence[ComparedRow]
    whole: Sequence[ComparedRow]
    notes: Sequence[str]
    by_epochs: bool
    curves: tuple[Sequence[tuple[float, float]], Sequence[tuple[float, float]]]
    """For each epoch of each run: seconds since the run's begin, and the value of `metric`."""
    metric: str


def stamps(ledgers: Ledgers) -> list[object]:
    """Values that change when one of the ledgers does: it grows by a log beside it."""
    found: list[object] = []
    for path in (part for each in ledgers.paths for part in (each, f"{each}-wal")):
        with suppress(OSError):
            there = os.stat(path)
            found.append((path, there.st_ino, there.st_mtime_ns, there.st_size))
    return found


def listed(ledgers: Ledgers, now: float) -> list[ListedRun]:
    """Every run, the newest first."""
    return [_listed(one, now) for one in ledgers.runs()]


def detail(ledger: Ledger, run_id: str, now: float) -> RunDetail:
    """A run in a few words: its first finding is the verdict."""
    record = ledger.record(run_id, phases=False)
    epochs = aggregate.epochs(record)
    total = aggregate.whole(record, epochs, now)
    found = findings(record, total, record.run.updated)
    logged = total.metrics or next((epoch.metrics for epoch in reversed(epochs) if epoch.metrics), {})
    name = _first_metric(logged)
    metric = f"{name} {units.plain(logged[name])}" if name else ""
    if found:
        return RunDetail(total.wait_share, metric, found[0].summary, found[0].severity)
    return RunDetail(total.wait_share, metric, "fine" if is_measured(total) else "", None)


def opened(ledger: Ledger, run_id: str, now: float) -> OpenRun:
    """A run with all its rows."""
    record = ledger.record(run_id, phases=False, times=True)
    epochs = aggregate.epochs(record)
    total = aggregate.whole(record, epochs, now)
    is_by_steps = not epochs and bool(record.step_rows)
    made = step_summaries(record) if is_by_steps else epochs
    outside = [row for row in outside_rows(record, epochs, total, phases=True) if row[1].ordinal > STEP_ROWS]
    beside = [*outside, ("all", total)]
    metrics = _names([*made, total])
    energies = units.energies([row.value("energy") for row in (*made, *(row for _, row in beside))])
    logged = {name: _column([*made, *(row for _, row in beside)], name) for name in metrics}
    inside = phase_summary.phases(record._replace(usage=[]))
    goes_on = record.run.state is RunState.RUNNING and not record.run.unseen(now)

    def row(place: int, title: str, of: EpochSummary, before: EpochSummary | None, judged: bool) -> StretchRow:
        return StretchRow(
            title=title, of=of, took_change=_change(of, before), energy=energies[place], peak=live_peak(of),
            parts=[(part.phase, part.seconds) for part in inside.get(of.ordinal, ())] if not is_by_steps else (),
            logged=[logged[name][place] for name in metrics],
            logged_change=_metric_change(metrics[0], of, before) if metrics else NAN,
            verdict=verdict(of, goes_on) if judged else None,
        )  # fmt: skip

    rows = [
        row(place, steps_text(of) if is_by_steps else f"e{of.epoch}", of, made[place - 1] if place else None, True)
        for place, of in enumerate(made)
    ]
    last = [row(len(made) + place, title, of, None, False) for place, (title, of) in enumerate(beside)]
    phases = [(part.phase, part.seconds) for part in outside_phases(record)]
    return OpenRun(
        record=record, state=state(record.run, now), devices=gpus(record.devices), is_by_steps=is_by_steps, rows=rows,
        beside=[one._replace(parts=phases) if one.title == "between" else one for one in last], metrics=metrics,
        findings=findings(record, total, record.run.updated), about=list(about_lines(record.about)),
        seconds=total.seconds,
    )  # fmt: skip


def compared(baseline: Record, other: Record) -> ComparedRuns:
    """Two runs as `gpumon runs compare` has them."""
    records = (baseline, other)
    found, config = compare.compare(records), config_differences(records)
    by_epochs = all(found.epochs)
    singles = found.whole if not by_epochs else [
        line for line in found.whole if line.measure in (*BETWEEN, *CPU)
    ]  # fmt: skip
    epochs = [aggregate.epochs(record) for record in records]
    metric = _first_metric({name: 0.0 for name in _names(epochs[0]) if name in _names(epochs[1])})
    counts = [
        f"{units.counted(count, 'epoch')}{', without the first (warm-up)' if left_out else ''}" if by_epochs
        else "whole run"
        for count, left_out in zip(found.epochs, found.left_out, strict=True)
    ]  # fmt: skip
    return ComparedRuns(
        records=records,
        counts=(counts[0], counts[1]),
        config=[(one.name, _written(one, 0), _written(one, 1)) for one in config.differences],
        same=config.same,
        without=config.without,
        is_dirty=config.is_dirty,
        rows=[_compared(line, single=False) for line in found.lines] if by_epochs else [],
        whole=[_compared(line, single=True) for line in singles],
        notes=[*found.notes, *(f"Caution: {doubt}" for doubt in found.doubts)],
        by_epochs=by_epochs,
        curves=(_curve(baseline, epochs[0], metric), _curve(other, epochs[1], metric)),
        metric=metric,
    )


def write_report(ledger: Ledger, run_id: str, now: float, directory: str) -> str:
    """Write the page of `gpumon runs report` into a directory, in a file that is new; its path."""
    record = ledger.record(run_id)
    history = open_history()
    history.look_in(history_beside(ledger.path))
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
            raise GpumonError(f"cannot write {path}: {error.strerror or error}") from error


def _listed(one: RunSummary, now: float) -> ListedRun:
    run, far = one.run, done(one)
    first, _, planned = far.partition("/")
    return ListedRun(
        id=run.id, name=run.name, user=run.user, state=state(run, now), is_over=run.state is not RunState.RUNNING,
        ended_badly=run.state in (RunState.DIED, RunState.FAILED), gpus=one.gpus, done=far,
        share=min(1.0, int(first) / int(planned)) if planned.isdecimal() and int(planned) else NAN,
        started=run.started, seconds=run.lasted(now), utilization=one.utilization, energy=one.energy, tags=one.tags,
    )  # fmt: skip


def _names(stretches: Sequence[EpochSummary]) -> list[str]:
    """Names of logged metrics, losses first: the first has its change beside it."""
    names = list(dict.fromkeys(name for stretch in stretches for name in stretch.metrics))
    return sorted(names, key=lambda name: "loss" not in name.casefold())[:METRICS]


def _first_metric(metrics: Mapping[str, float]) -> str:
    return next(iter(sorted(metrics, key=lambda name: "loss" not in name.casefold())), "")


def _column(stretches: Sequence[EpochSummary], name: str) -> list[str]:
    texts = iter(units.plains([stretch.metrics[name] for stretch in stretches if name in stretch.metrics]))
    return [next(texts) if name in stretch.metrics else "" for stretch in stretches]


def _change(of: EpochSummary, before: EpochSummary | None) -> float:
    if before is None or not (is_known(of.ended) and is_known(before.ended)) or not before.seconds > 0:
        return NAN
    return of.seconds / before.seconds - 1


def _metric_change(name: str, of: EpochSummary, before: EpochSummary | None) -> float:
    if before is None:
        return NAN
    value, other = of.metrics.get(name, NAN), before.metrics.get(name, NAN)
    return (value - other) / abs(other) if isfinite(value) and isfinite(other) and other else NAN


def _written(one: ConfigDifference, place: int) -> str:
    if not one.has[place]:
        return units.MISSING
    text = written(one.values[place])
    return text[:COMMIT_LETTERS] if one.name == "commit" and not one.is_config else text


def _compared(line: compare.MeasureComparison, *, single: bool) -> ComparedRow:
    (found,) = line.differences
    points = line.measure.in_points
    scale = 1.0 if points else found.share / found.value if found.value else 0.0
    ends = sorted((found.low * scale, found.high * scale)) if is_known(found.low * scale) else (NAN, NAN)
    return ComparedRow(
        title=line.measure.title,
        values=(line.measure.write(line.medians[0]), line.measure.write(line.medians[1])),
        verdict=compare.verdict(found, line.measure, single=single),
        share=found.value * scale,
        low=ends[0],
        high=ends[1],
        is_clear=found.is_clear,
    )


def _curve(record: Record, epochs: Sequence[EpochSummary], metric: str) -> list[tuple[float, float]]:
    return [
        (epoch.ended - record.run.started, epoch.metrics.get(metric, NAN)) for epoch in epochs if is_known(epoch.ended)
    ]
