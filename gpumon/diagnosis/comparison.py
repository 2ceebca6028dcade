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


def different_gpus(runs: Sequence[ComparedRun]) -> Iterator[Finding]:
    """The runs used different models of GPUs."""
    yield from _differ("different GPUs", runs, lambda run: _models(run.record.devices))


def different_numbers_of_gpus(runs: Sequence[ComparedRun]) -> Iterator[Finding]:
    """The runs used different numbers of GPUs."""
    yield from _differ("different numbers of GPUs", runs, lambda run: _count(len(run.record.devices)))


def different_power_limits(runs: Sequence[ComparedRun]) -> Iterator[Finding]:
    """The GPUs of the runs had different power limits."""
    yield from _differ("different power limits", runs, lambda run: _limits(run.record.devices))


def different_drivers(runs: Sequence[ComparedRun]) -> Iterator[Finding]:
    """The runs used different driver versions."""
    yield from _differ("different drivers", runs, lambda run: run.record.run.driver)


def different_plans(runs: Sequence[ComparedRun]) -> Iterator[Finding]:
    """The runs planned different numbers of epochs."""
    yield from _differ("different numbers of planned epochs", runs, lambda run: _count(run.record.run.epochs))


def different_steps(runs: Sequence[ComparedRun]) -> Iterator[Finding]:
    """The epochs of the runs have different numbers of steps."""
    yield from _differ("different numbers of steps per epoch", runs, lambda run: _steps(run.epochs))


def not_all_real(runs: Sequence[ComparedRun]) -> Iterator[Finding]:
    """Some of the runs come from a simulation or a recording."""
    yield from _differ("not all measured on real GPUs", runs, lambda run: run.record.run.label or "live")


def different_peaks(runs: Sequence[ComparedRun]) -> Iterator[Finding]:
    """The peaks of tensor memory of the runs were measured in different ways."""
    yield from _differ("peak tensor memory from different sources", runs, lambda run: _peaks(run.epochs))


def different_heat(runs: Sequence[ComparedRun]) -> Iterator[Finding]:
    """The GPUs of the runs had very different temperatures at the start."""
    starts = [_first_value(run.record, lambda values: values.value("temperature_start")) for run in runs]
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


COMPARISON_RULES: tuple[Rule[Sequence[ComparedRun]], ...] = (
    different_gpus, different_numbers_of_gpus, different_power_limits, different_drivers, different_plans,
    different_steps, not_all_real, different_peaks, different_heat,
)  # fmt: skip
"""Rules about all runs together."""
COMPARED_RUN_RULES: tuple[Rule[ComparedRun], ...] = (others_hold_memory, incompletely_sampled, no_epochs)
"""Rules that are applied to each run of the comparison separately."""

_SUBJECT = Subject("comparison", "", "These runs")


def _finding(kind: str, summary: str, evidence: Mapping[str, float]) -> Finding:
    return Finding(kind, Severity.WARNING, _SUBJECT, summary, "", evidence)


def _differ(summary: str, runs: Sequence[ComparedRun], value_of: Callable[[ComparedRun], str]) -> Iterator[Finding]:
    """Yield a finding if the values of the runs differ. Runs with an empty value are ignored.

    `value_of`: returns the value of a run as text.
    """
    values = [value_of(run) for run in runs]
    if len({value for value in values if value}) > 1:
        each = ", ".join(f"{run.name} {value or '?'}" for run, value in zip(runs, values, strict=True))
        yield _finding(summary.lower().replace(" ", "_"), f"{summary}: {each}", {})


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


def _first_value(record: Record, value_of: Callable[..., float]) -> float:
    """Return the highest value of any device for the whole run; NaN if unknown.

    If there is no row for the whole run, the first epoch is used.
    """
    rows = [row for row in record.whole_epochs if row.ordinal == WHOLE_RUN] or [
        row for row in record.whole_epochs if row.ordinal == 0
    ]
    return max((value for row in rows if is_known(value := value_of(row))), default=NAN)
