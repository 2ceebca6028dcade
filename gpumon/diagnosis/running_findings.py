"""What the ledger says about runs that are still running: the rules on slow trainings need epochs, not frames."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpumon.diagnosis.context import by_rank
from gpumon.diagnosis.finding import Finding, Subject
from gpumon.diagnosis.past_findings import findings
from gpumon.diagnosis.training import training_of
from gpumon.model.frame import RunState
from gpumon.storage.ledger import aggregate
from gpumon.storage.ledger.reader import Ledgers

NEWEST_EPOCHS = 200
"""Number of epochs that are read of a run, so that reading a run of thousands of epochs does not take seconds."""
_JUDGED_BY_EPOCHS = frozenset(("input_bound", "mostly_idle", "throttled"))
"""Kinds of findings by shares of time. Their cause is known from the epochs of a run, not from a frame."""


@dataclass(frozen=True, slots=True)
class RecordedFindings:
    """The findings about a running run by its record in the ledger."""

    findings: Sequence[Finding]
    is_judged: bool
    """Whether enough epochs have ended to judge waits and idle times."""


def read_findings(ledgers: Ledgers, runs: Iterable[str], now: float) -> dict[str, RecordedFindings]:
    """Return the findings about these runs by id. Runs that have ended, or are in no ledger, are left out.

    `now`: current time, s since 1970.
    """
    result = {}
    for run_id in runs:
        ledger = next((ledger for ledger, row in ledgers.candidates(run_id) if row.id == run_id), None)
        if ledger is None:
            continue
        count = ledger.epoch_count(run_id)
        record = ledger.record(run_id, phases=False, times=True, ordinals=range(max(0, count - NEWEST_EPOCHS), count))
        if record.run.state is RunState.RUNNING:
            epochs = aggregate.epoch_summaries(record)
            total = aggregate.run_total(record, epochs)
            training = training_of(record, epochs, total, Subject("run", run_id, record.run.name))
            result[run_id] = RecordedFindings(findings(record, total, now, epochs), training.is_judged)
    return result


def add_recorded(live: Iterable[Finding], recorded: Mapping[str, RecordedFindings]) -> list[Finding]:
    """Return the findings in `live`, which are about the newest frame, and further ones in `recorded`, ranked.

    If the epochs of a run were judged, the findings about waits and idle times in `recorded` replace those in `live`.
    """
    judged = {run for run, of_run in recorded.items() if of_run.is_judged}
    kept = [finding for finding in live if finding.subject.id not in judged or finding.kind not in _JUDGED_BY_EPOCHS]
    known = {(finding.subject.id, finding.kind) for finding in kept}
    added = [
        finding
        for of_run in recorded.values()
        for finding in of_run.findings
        if (finding.subject.id, finding.kind) not in known
    ]
    return by_rank([*kept, *added])
