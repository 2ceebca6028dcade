"""Rows of the run list from the ledgers, and details that a second query reads."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from gpumon.common.numbers import NAN, is_known
from gpumon.diagnosis.past_findings import findings, is_measured, is_partly_sampled, sampled_text, short_summary
from gpumon.model import units
from gpumon.model.frame import ENDED_BADLY, RunState
from gpumon.reports.run_list import epoch_cell, is_utilization_about, state
from gpumon.storage.ledger import aggregate
from gpumon.storage.ledger.reader import Ledger, Ledgers
from gpumon.storage.ledger.records import RunRow, RunSummary
from gpumon_tui.data.run_rows import ListedRun, RunDetail, first_metric, search_text

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
