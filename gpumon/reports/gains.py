"""The findings about the first run of a comparison: the gain that was predicted, and the time that other runs saved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gpumon.common.numbers import NAN, is_known
from gpumon.diagnosis.finding import Finding, Subject, finding_json
from gpumon.diagnosis.past_findings import findings
from gpumon.diagnosis.training import NEEDED, Training, training_of, unjudged
from gpumon.model import units
from gpumon.reports.why import gain_text
from gpumon.storage.ledger import aggregate
from gpumon.storage.ledger.records import Record

_EQUAL_STEPS = 0.01
"""Runs whose steps per epoch differ by more than this share are compared by the time per step."""


@dataclass(frozen=True, slots=True)
class GainComparison:
    """A finding about the first run, and what the other runs saved."""

    finding: Finding
    measured: Sequence[float]
    """For each other run, the share of the time of an epoch that it saved; negative if it took longer, NaN if it cannot
    be compared."""
    persists: Sequence[bool]
    """For each other run, whether it has the same finding."""
    problems: Sequence[str]
    """For each other run, why it cannot be compared, as a clause; empty if it can."""


def compare_gains(records: Sequence[Record]) -> list[GainComparison]:
    """Return the findings about the first run that predict a gain. `records`: read with the times of phases."""
    if not records:
        return []
    first, *others = records
    predicted = [finding for finding in _findings(first) if finding.gain]
    if not predicted:
        return []
    baseline = _training(first)
    trainings = [_training(other) for other in others]
    measured = [_saved(baseline, training) for training in trainings]
    problems = [
        "" if is_known(saved) else next((missing.why for missing in unjudged(training)), "nothing was measured")
        for training, saved in zip(trainings, measured, strict=True)
    ]
    kinds = [{finding.kind for finding in _findings(other)} for other in others]
    return [
        GainComparison(finding, measured, [finding.kind in of_run for of_run in kinds], problems)
        for finding in predicted
    ]


def _findings(record: Record) -> list[Finding]:
    epochs = aggregate.epoch_summaries(record)
    return findings(record, aggregate.run_total(record, epochs), record.run.updated, epochs)


def _training(record: Record) -> Training:
    epochs = aggregate.epoch_summaries(record)
    return training_of(record, epochs, aggregate.run_total(record, epochs), Subject("run", record.run.id, ""))


def _saved(baseline: Training, other: Training) -> float:
    """Return the share of the time of an epoch, with the time until the next one, that a run saves.

    A run that was made faster may be too short to be judged. Its epochs are compared anyway.
    """
    if not baseline.is_judged or len(other.windows) < NEEDED:
        return NAN
    before, after = baseline.seconds / len(baseline.windows), other.seconds / len(other.windows)
    steps = [training.steps / len(training.windows) for training in (baseline, other)]
    if min(steps) > 0 and abs(steps[1] / steps[0] - 1) > _EQUAL_STEPS:
        before, after = before / steps[0], after / steps[1]
    return 1 - after / before


def gain_lines(gains: Sequence[GainComparison], names: Sequence[str]) -> Iterator[str]:
    """Yield a sentence for each finding. `names`: of the runs, such as A and B."""
    for gain in gains:
        results = ", ".join(
            _result(name, saved, persists=persists, problem=problem)
            for name, saved, persists, problem in zip(
                names[1:], gain.measured, gain.persists, gain.problems, strict=True
            )
        )
        yield f"{names[0]} {gain.finding.summary}. Predicted to save {gain_text(gain.finding.gain)}; {results}."


def _result(name: str, saved: float, *, persists: bool, problem: str) -> str:
    """Return what a run saved, as a clause."""
    if persists:
        return f"{name} has the same finding"
    if not is_known(saved):
        return f"{name} cannot be compared: {problem}"
    return f"{name} saved {units.share(saved)}" if saved >= 0 else f"{name} took {units.share(-saved)} longer"


def gains_json(gains: Sequence[GainComparison]) -> list[dict[str, Any]]:
    """Return the findings with the measured gains as JSON."""
    return [
        {
            **finding_json(gain.finding),
            "measured": [value if is_known(value) else None for value in gain.measured],
            "persists": [*gain.persists],
        }
        for gain in gains
    ]
