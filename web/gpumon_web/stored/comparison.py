"""Comparison of runs from the ledger. Runs in the worker process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite
from typing import Any, NamedTuple, TypedDict

from gpumon.common.errors import GpumonError
from gpumon.common.numbers import NAN
from gpumon.model import units
from gpumon.model.frame import RunState
from gpumon.reports.compare import TOO_FEW, Comparison, compare
from gpumon.reports.compare_measures import config_differences
from gpumon.reports.figures.logged import broken_off
from gpumon.reports.figures.run_chart import CHECKED, is_loss
from gpumon.reports.run_json import run_to_json
from gpumon.storage.ledger import aggregate
from gpumon.storage.ledger.reader import Ledger, Ledgers
from gpumon.storage.ledger.records import EpochTimes, Record, RunRow, RunTrace
from gpumon.storage.ledger.summary import EpochSummary
from gpumon_web.charts.compare_chart import TIME, ComparedCourse, axes_of, axis_of, compare_chart, course_of, lag_of
from gpumon_web.components.compare_rows import (
    MIN_RUNS,
    config_notes,
    csv_rows,
    difference_rows,
    has_intervals,
    is_clearly_lowest,
    labels,
    lowest_value,
    measure_rows,
    no_difference_text,
    parse_ids,
    shows_intervals,
    whole_run_notes,
)
from gpumon_web.components.tokens import run_name
from gpumon_web.stored.run_page import find_run

LONG = 2000
"""Number of epochs above which only `SAMPLE` evenly spaced epochs of a run are compared; the page says so."""
SAMPLE = 500


class ComparedRun(NamedTuple):
    """A run in the comparison."""

    record: Record
    traces: Sequence[RunTrace]
    epochs: Sequence[EpochSummary]
    """All epochs, or a sample if `times` is set."""
    times: Sequence[EpochTimes] = ()
    begun: int = 0
    """Number of epochs begun."""
    lowest: float = NAN
    """Lowest loss of all epochs; only set if `epochs` is a sample."""

    @property
    def all_epochs(self) -> Sequence[EpochSummary] | Sequence[EpochTimes]:
        """All epochs, or their times if `epochs` is a sample."""
        return self.times or self.epochs


def comparison_document(paths: Sequence[str], ids_text: str, by: str, now: float) -> dict[str, Any]:
    """Return the document of a comparison; `runs` is empty if fewer than two exist; `gone`: ids of unknown runs."""
    ids = parse_ids(ids_text)
    runs: list[ComparedRun] = []
    gone: list[str] = []
    problem = ""
    try:
        with Ledgers(paths) as ledgers:
            matches = [(run, find_run(ledgers, run)) for run in ids]
            gone = [run for run, match in matches if match is None]
            rows = [match for _, match in matches if match is not None]
            counts = [ledger.epoch_count(row.id) for ledger, row in rows]
            for (ledger, row), count in zip(rows, counts, strict=True):
                # If one run has no epochs, whole runs are compared, which needs all epochs of the others.
                runs.append(_read_run(ledger, row, count, is_sampled=count > LONG and all(counts)))
            if loss := _common_loss(runs):
                runs = [run._replace(lowest=ledger.lowest_metric(row.id, loss)) if run.times else run
                        for (ledger, row), run in zip(rows, runs, strict=True)]  # fmt: skip
    except GpumonError as error:
        problem = str(error)
    if len(runs) < MIN_RUNS:
        return {"ids": ids, "gone": gone, "problem": problem, "runs": []}
    records = [run.record for run in runs]
    documents = [run_to_json(record.run, now) for record in records]
    documents = [{**document, "name": run_name(document)} for document in documents]
    names = labels([document["name"] for document in documents])
    comparison = compare(records, [run.epochs for run in runs], [run.all_epochs for run in runs])
    config = config_differences(records)
    axes = axes_of([(run.record, run.all_epochs) for run in runs])
    axis = by if by in axes else axes[0]
    courses = [course_of(name, run.record, run.epochs, axis_of(axis, run.record, run.all_epochs), run.traces, run.times)
               for name, run in zip(names, runs, strict=True)]  # fmt: skip
    notes = [*whole_run_notes(comparison), *comparison.notes, *_open_epoch_notes(runs, names, axis),
             *_interrupted_notes(runs, names, axis), *_lag_notes(courses)]  # fmt: skip
    return {
        "ids": ids, "gone": gone, "problem": problem,
        "runs": [{**document, "counts": text}
                 for document, text in zip(documents, _counts(comparison, runs), strict=True)],
        "names": names,
        "axes": axes, "axis": axis,
        "is_running": any(record.run.state is RunState.RUNNING for record in records),
        "numbers": measure_rows(comparison),
        "saved": csv_rows(comparison),
        "by_epochs": all(comparison.epochs),
        "shows_intervals": shows_intervals(comparison),
        "notes": notes,
        "cautions": comparison.doubts,
        "differs": difference_rows(config),
        "config_notes": config_notes(config, names),
        "alike": no_difference_text(config, names),
        "ends": "; ".join(filter(None, (_ends_caption(runs, names, axis), _devices_caption(records)))),
        "best": [_best_loss(runs, names), *_best_measures(comparison, names)],
        "chart": compare_chart(courses, axis),
    }  # fmt: skip


def _open_epoch_notes(runs: Sequence[ComparedRun], names: Sequence[str], axis: str) -> list[str]:
    """Return a note on running runs: the open epoch is not drawn because its progress is unknown."""
    running = [name for name, run in zip(names, runs, strict=True) if run.record.run.state is RunState.RUNNING]
    if axis == TIME or not running:
        return []
    # The note does not say that they are still running: only a daemon knows that.
    return [f"Epochs that have not ended appear only on the time axis: {', '.join(running)}."]


def _ends_caption(runs: Sequence[ComparedRun], names: Sequence[str], axis: str) -> str:
    """Return a caption about the ends of the lines of running runs; empty if there are none."""
    running = [name for name, run in zip(names, runs, strict=True) if run.record.run.state is RunState.RUNNING]
    if axis == TIME or not running:
        return ""
    return f"{', '.join(name[0] for name in running)}: so far, to the end of the newest finished epoch"


def _devices_caption(records: Sequence[Record]) -> str:
    """Return a caption on how the GPUs of a run are combined into one line; empty if no run has several."""
    has_several = any(len(record.devices) > 1 for record in records)
    return "power and energy are sums of a run's GPUs, the rest their means" if has_several else ""


def _interrupted_notes(runs: Sequence[ComparedRun], names: Sequence[str], axis: str) -> list[str]:
    """Return a note on runs with an interrupted epoch, which is only drawn by time: its progress is unknown."""
    if axis == TIME:
        return []
    interrupted = [name for name, run in zip(names, runs, strict=True) if broken_off(run.epochs, run.record.run.ended)]
    if not interrupted:
        return []
    predicate = "has an interrupted epoch" if len(interrupted) == 1 else "have interrupted epochs"
    return [
        f"{', '.join(interrupted)} {predicate}. How much of it was done is unknown, so only the time axis shows it."
    ]


def _lag_notes(courses: Sequence[ComparedCourse]) -> list[str]:
    """Return a note on how far the GPU lines of a running run lag behind its logged values."""
    lag = lag_of(courses)
    age = units.fine_duration(lag)
    return [f"Last values of GPUs are up to {age} older than those that runs logged: newer ones follow."] if lag else []


def _read_run(ledger: Ledger, row: RunRow, begun: int, *, is_sampled: bool) -> ComparedRun:
    record = ledger.record(row.id, phases=False, sample=SAMPLE if is_sampled else 0)
    times = ledger.epoch_times(row.id) if is_sampled else ()
    return ComparedRun(record, ledger.traces(row.id), aggregate.epoch_summaries(record), times, begun)


def _counts(comparison: Comparison, runs: Sequence[ComparedRun]) -> list[str]:
    """Return, for each run, text that says how many of its epochs are compared."""
    if not all(comparison.epochs):
        return ["whole run" for _ in comparison.records]
    return [
        f"{units.count(count)}{f' of {units.count(run.begun)}' if run.times else ''}"
        f" {'epoch' if count == 1 else 'epochs'}"
        f"{', evenly spaced' if run.times else ''}{', without the first' if left_out else ''}"
        for count, left_out, run in zip(comparison.epochs, comparison.left_out, runs, strict=True)
    ]


class Best(TypedDict):
    """The lowest value of a measure, and which run has it."""

    title: str
    text: str
    others: str
    """Values of the other runs, or why no run is clearly the best."""
    run: int | None
    """Index of the run; None if no run is clearly the best."""


def _best_loss(runs: Sequence[ComparedRun], names: Sequence[str]) -> Best:
    """Return the lowest loss over each run's finished epochs; a validation loss if all runs logged one."""
    loss = _common_loss(runs)
    if not loss:
        return {"title": "Lowest loss", "text": units.MISSING, "others": "", "run": None}
    lowest = [
        run.lowest if run.times else min(
            (
                epoch.metrics.get(loss, NAN)
                for epoch in run.epochs
                if not epoch.is_open and isfinite(epoch.metrics.get(loss, NAN))  # -∞ means that it diverged
            ),
            default=NAN,
        )
        for run in runs
    ]  # fmt: skip
    best, others, run = lowest_value(lowest, names, [units.logged_number(value) for value in lowest])
    return {"title": f"Lowest {loss[:40]} of an epoch", "text": best, "others": others, "run": run}


def _common_loss(runs: Sequence[ComparedRun]) -> str:
    """Return the name of a loss that all runs logged, preferably of validation; empty if there is none."""
    logged = [{name for epoch in run.epochs for name in epoch.metrics if is_loss(name)} for run in runs]
    common = set.intersection(*logged) if logged else set[str]()
    return min(common, key=lambda name: (not name.startswith(CHECKED), name), default="")


def _best_measures(comparison: Comparison, names: Sequence[str]) -> Iterator[Best]:
    """Yield the shortest time and the lowest energy: medians over epochs, or of whole runs if one has no epochs."""
    by_epochs = all(comparison.epochs)
    lines = comparison.lines if by_epochs else comparison.whole
    titles = {
        "seconds": "Shortest epoch, median" if by_epochs else "Shortest run",
        "energy": "Least energy per epoch, median" if by_epochs else "Least energy of a run",
    }
    for measure, title in titles.items():
        line = next((line for line in lines if line.measure.name == measure), None)
        if line is None:
            yield {"title": title, "text": units.MISSING, "others": "", "run": None}
            continue
        best, others, run = lowest_value(line.medians, names, line.texts)
        if run is not None and by_epochs and not is_clearly_lowest(line):
            others = f"no clear difference from {others}" if has_intervals(line) else f"{others}, {TOO_FEW}"
            run = None
        yield {"title": title, "text": best, "others": others, "run": run}
