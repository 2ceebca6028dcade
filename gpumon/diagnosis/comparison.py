"""Rules about compared runs. Their findings say why the runs may not be comparable."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpumon.analysis.thresholds import OTHERS_HOLD, SAMPLED, START_APART
from gpumon.common.numbers import NAN, is_known
from gpumon.diagnosis.context import Rule, diagnose
from gpumon.diagnosis.finding import Finding, Severity, Subject
from gpumon.diagnosis.training import memory_of_others
from gpumon.model import units
from gpumon.model.metrics import Unit
from gpumon.storage.ledger.records import DeviceRow, Record
from gpumon.storage.ledger.row_keys import WHOLE_RUN
from gpumon.storage.ledger.summary import EpochSummary


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """A run of a comparison."""

    name: str
    """Letter of the run in the comparison, such as `A`."""
    record: Record
    epochs: Sequence[EpochSummary]
    """The epochs that are compared."""


def comparison_findings(runs: Sequence[ComparedRun]) -> list[Finding]:
    """Return the reasons why these runs may not be comparable: first reasons about all runs, then about each run."""
    return [*diagnose(COMPARISON_RULES, [runs]), *diagnose(COMPARED_RUN_RULES, runs)]


def different_conditions(runs: Sequence[ComparedRun]) -> Iterator[Finding]:
    """The runs differ in one of `_CONDITIONS`. Runs in which a condition is unknown are ignored."""
    for summary, value_of in _CONDITIONS:
        values = [value_of(run) for run in runs]
        if len({value for value in values if value}) > 1:
            each = ", ".join(f"{run.name} {value or '?'}" for run, value in zip(runs, values, strict=True))
            yield _finding(summary.lower().replace(" ", "_"), f"{summary}: {each}", {})


def different_heat(runs: Sequence[ComparedRun]) -> Iterator[Finding]:
    """The GPUs of the runs had very different temperatures at the start."""
    starts = [_start_temperature(run.record) for run in runs]
    known = [start for start in starts if is_known(start)]
    if known and max(known) - min(known) > START_APART:
        each = ", ".join(
            f"{run.name} at {units.number(start, Unit.CELSIUS)}" for run, start in zip(runs, starts, strict=True)
        )
        apart = units.number(START_APART, Unit.CELSIUS)
        evidence = {run.name: start for run, start in zip(runs, starts, strict=True)}
        yield _finding("different_heat", f"GPU start temperatures differ by more than {apart}: {each}", evidence)


def others_hold_memory(run: ComparedRun) -> Iterator[Finding]:
    """Other processes, or processes that are not listed, held memory on one of the run's GPUs."""
    rows = run.record.whole_epochs
    held = [others for row in rows if is_known(others := memory_of_others(row))]
    others = max(held, default=0.0)
    if others > OTHERS_HOLD:
        summary = f"up to {units.number(others, Unit.BYTES)} on a GPU of {run.name} belonged to other processes"
        yield _finding("others_hold_memory", summary, {"bytes": others})


def incompletely_sampled(run: ComparedRun) -> Iterator[Finding]:
    """No samples were taken during part of an epoch of the run."""
    partial = [epoch for epoch in run.epochs if epoch.sampled_share < SAMPLED]
    if partial:
        summary = (
            f"{run.name}: {units.count(len(partial))} of {units.count(len(run.epochs))} epochs are incompletely sampled"
        )
        yield _finding("incompletely_sampled", summary, {"epochs": float(len(partial))})


def no_epochs(run: ComparedRun) -> Iterator[Finding]:
    """No epoch of the run has ended, so none can be compared."""
    if not run.epochs and (run.record.epochs or run.record.run.epochs):
        yield _finding("no_epochs", f"{run.name}: no epoch has ended", {})


COMPARISON_RULES: tuple[Rule[Sequence[ComparedRun]], ...] = (different_conditions, different_heat)
"""Rules about all runs together."""
COMPARED_RUN_RULES: tuple[Rule[ComparedRun], ...] = (others_hold_memory, incompletely_sampled, no_epochs)
"""Rules that are applied to each run of the comparison separately."""

_SUBJECT = Subject("comparison", "", "These runs")


def _finding(kind: str, summary: str, evidence: Mapping[str, float]) -> Finding:
    return Finding(kind, Severity.WARNING, _SUBJECT, summary, "", evidence)


def _models(devices: Sequence[DeviceRow]) -> str:
    return " and ".join(sorted({device.name for device in devices if device.name}))


def _limits(devices: Sequence[DeviceRow]) -> str:
    return " and ".join(
        units.number(limit, Unit.WATTS)
        for limit in sorted({device.power_limit for device in devices if is_known(device.power_limit)})
    )


def _steps(epochs: Sequence[EpochSummary]) -> str:
    """Return the most frequent number of steps per epoch as text."""
    counts = [epoch.steps for epoch in epochs if epoch.steps]
    return _count(max(set(counts), key=lambda steps: (counts.count(steps), steps), default=0))


def _count(number: int | None) -> str:
    return units.count(number) if number else ""


def _peaks(epochs: Sequence[EpochSummary]) -> str:
    """Return how the peak of tensor memory was measured, in words; empty if unknown."""
    if any(is_known(epoch.live_peak.value) for epoch in epochs):
        return "measured by the framework"
    is_sampled = any(is_known(epoch.value("run_allocated_peak")) for epoch in epochs)
    return "read between steps, after activations were freed" if is_sampled else ""


_CONDITIONS: Sequence[tuple[str, Callable[[ComparedRun], str]]] = (
    ("different GPUs", lambda run: _models(run.record.devices)),
    ("different numbers of GPUs", lambda run: _count(len(run.record.devices))),
    ("different power limits", lambda run: _limits(run.record.devices)),
    ("different drivers", lambda run: run.record.run.driver),
    ("different numbers of planned epochs", lambda run: _count(run.record.run.epochs)),
    ("different numbers of steps per epoch", lambda run: _steps(run.epochs)),
    ("not all measured on real GPUs", lambda run: run.record.run.label or "live"),
    ("peak tensor memory from different sources", lambda run: _peaks(run.epochs)),
)
"""Conditions that must be equal for a fair comparison. Each has the summary of the finding if they differ, and the
function that returns the condition of a run as text; empty if unknown."""


def _start_temperature(record: Record) -> float:
    """Return the highest temperature of any GPU at the start of the run, or of the first epoch; NaN if unknown."""
    rows = [row for row in record.whole_epochs if row.ordinal == WHOLE_RUN] or [
        row for row in record.whole_epochs if row.ordinal == 0
    ]
    return max((value for row in rows if is_known(value := row.value("temperature_start"))), default=NAN)
