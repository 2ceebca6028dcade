"""Rows of the run list from the ledgers, and the details that follow with a second query."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress

from gpumon.common.numbers import NAN, is_known
from gpumon.diagnosis.past_findings import findings, is_measured, is_partly_sampled, sampled_text, short_summary
from gpumon.model import units
from gpumon.model.frame import ENDED_BADLY, RunState
from gpumon.reports.run_tables import newest_epoch, state
from gpumon.storage.ledger import aggregate
from gpumon.storage.ledger.reader import Ledger, Ledgers
from gpumon.storage.ledger.records import RunRow, RunSummary
from gpumon_tui.data.run_rows import ListedRun, RunDetail, first_metric, text_of

FIRST = 200
"""Maximum number of runs read for the first answer."""


def stamps(ledgers: Ledgers) -> list[object]:
    """Return values that change when a ledger changes, including its write-ahead log."""
    found: list[object] = []
    for path in (part for each in ledgers.paths for part in (each, f"{each}-wal")):
        with suppress(OSError):
            there = os.stat(path)
            found.append((path, there.st_ino, there.st_mtime_ns, there.st_size))
    return found


class ListedRuns:
    """All runs of the ledgers. Known runs are read again only if the ledger has changes for them.

    Reading thousands of runs takes seconds, so the first answer contains only the newest.
    """

    def __init__(self) -> None:
        self.is_all = False
        """Whether the last answer contained every run."""
        self._known: dict[str, tuple[str, RunSummary]] = {}
        """Path of the ledger and the run, by id."""
        self._rows: dict[str, tuple[RunSummary, ListedRun]] = {}
        """Rows of ended runs, which do not depend on the current time."""
        self._runs: list[ListedRun] = []
        self._stamps: object = None

    def read(self, ledgers: Ledgers, now: float) -> list[ListedRun]:
        """Return all runs, newest first; the first call returns at most `FIRST`."""
        stamped = stamps(ledgers)
        # Rows of active runs depend on the current time, so they are rebuilt.
        if stamped == self._stamps and self.is_all and all(run.is_over for run in self._runs):
            return self._runs
        if not self._known:
            found = ledgers.runs_with_ledger(limit=FIRST)
            self._known = {one.run.id: (ledger.path, one) for ledger, one in found}
            self.is_all = len(found) < FIRST
        else:
            self._known = self._read_all(ledgers)
            self.is_all = True
        self._stamps = stamped
        self._runs = [self._row(one, now) for _, one in self._known.values()]
        return self._runs

    def _row(self, one: RunSummary, now: float) -> ListedRun:
        of, row = self._rows.get(one.run.id, (None, None))
        if row is None or of is not one:
            row = _listed(one, now)
            if one.run.state is not RunState.RUNNING:
                self._rows[one.run.id] = one, row
        return row

    def _read_all(self, ledgers: Ledgers) -> dict[str, tuple[str, RunSummary]]:
        found: dict[str, tuple[str, RunSummary]] = {}
        tags: dict[str, dict[str, Sequence[str]]] = {}
        for ledger, run in ledgers.candidates():
            if ledger.path not in tags:
                tags[ledger.path] = ledger.all_tags()
            path, kept = self._known.get(run.id, ("", None))
            if kept is None or path != ledger.path or not _is_same(run, kept.run):
                found[run.id] = ledger.path, ledger.summary(run)
            else:
                told = tags[path].get(run.id, ())
                found[run.id] = path, kept if kept.tags == told else kept._replace(tags=told)
        return found


def _is_same(run: RunRow, before: RunRow) -> bool:
    """Whether two rows are equal."""
    # NaN != NaN; no call of is_known, because there are thousands of rows with many cells.
    return all(one == other or (one != one and other != other) for one, other in zip(run, before, strict=True))


def detail(ledger: Ledger, run_id: str, now: float) -> RunDetail:
    """Return the details of a run; its first finding is the verdict."""
    record = ledger.record(run_id, phases=False)
    epochs = aggregate.epoch_summaries(record)
    total = aggregate.run_total(record, epochs, record.run.measured_until(now))
    found = findings(record, total, record.run.updated)
    logged = total.metrics or next((epoch.metrics for epoch in reversed(epochs) if epoch.metrics), {})
    name = first_metric(logged)
    metric = f"{name} {units.padded_logged_number(logged[name])}" if name else ""
    is_settled = record.run.is_settled(now)
    if found:
        return RunDetail(
            total.wait_share, metric, found[0].summary, found[0].severity, is_settled, short_summary(found[0])
        )
    if missed := sum(map(is_partly_sampled, epochs)):
        words = f"{units.counted(missed, 'epoch')} partly sampled"
        return RunDetail(total.wait_share, metric, words, None, is_settled)
    if is_partly_sampled(total):  # for example a run that started before its recording or before the daemon
        return RunDetail(total.wait_share, metric, sampled_text(total), None, is_settled)
    return RunDetail(total.wait_share, metric, "fine" if is_measured(total) else "", None, is_settled)


def _listed(one: RunSummary, now: float) -> ListedRun:
    run, told = one.run, state(one.run, now)
    before = run.epochs_before if one.done else 0
    # Unknown for a run that ended before it was observed, or whose first epochs were not observed.
    has_share = one.done or (one.done == 0 and run.state is not RunState.FINISHED)
    return ListedRun(
        id=run.id, name=run.name, user=run.user, state=told,
        is_over=run.state is not RunState.RUNNING or run.unseen_seconds(now) > 0,
        ended_badly=run.state in ENDED_BADLY, gpus=one.gpus, place=newest_epoch(one),
        share=min(1.0, ((one.done or 0) + before) / run.epochs) if run.epochs and has_share else NAN,
        started=run.started, seconds=run.duration(now), left=NAN, utilization=one.utilization, energy=one.energy,
        tags=tuple(one.tags), text=text_of(run.name, run.id, run.user, run.framework, told, *one.tags), is_kept=True,
        written=run.updated if is_known(one.energy) or is_known(one.utilization) else NAN,
    )  # fmt: skip
