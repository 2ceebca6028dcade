"""Measures of whole runs, of which a comparison has one value each: for runs without epochs, and beside epochs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpumon.common.numbers import NAN, is_known
from gpumon.model import units
from gpumon.model.metrics import Unit
from gpumon.reports.measure import OF_TIME_AND_MEMORY, STEPS_PER_SECOND, Measure, energy_per, joules, usage_measure
from gpumon.storage.ledger import aggregate
from gpumon.storage.ledger.aggregate import between, is_worth_a_row, outside_phases
from gpumon.storage.ledger.combine import total_of
from gpumon.storage.ledger.records import EpochTimes, Record
from gpumon.storage.ledger.summary import EpochSummary


class WholeRun:
    """A run as one value of each measure."""

    def __init__(
        self, record: Record, epochs: Sequence[EpochSummary], times: Sequence[EpochSummary] | Sequence[EpochTimes]
    ) -> None:
        self.record = record
        self.total = aggregate.whole(record, epochs, record.run.updated)
        together = between(record, times)
        shown = together is not None and is_worth_a_row(together, outside_phases(record), self.total)
        self.between: EpochSummary | None = together if shown else None

    @property
    def cpu_seconds(self) -> float:
        """CPU time of its processes, seconds; NaN until all of them have told theirs."""
        return total_of([rank.facts.cpu_seconds or NAN for rank in self.record.ranks] or [NAN])

    @property
    def package_energy(self) -> float:
        """Joules of the CPU packages of its machine while it ran; NaN where unknown."""
        return max((rank.package_energy for rank in self.record.ranks if is_known(rank.package_energy)), default=NAN)

    @property
    def between_seconds(self) -> float:
        """Seconds outside its epochs; NaN where they are no row."""
        return self.between.seconds if self.between else NAN

    @property
    def between_energy(self) -> float:
        """Joules outside its epochs; NaN where they are no row."""
        return self.between.value("energy") if self.between else NAN


BETWEEN: tuple[Measure[WholeRun], ...] = (
    Measure("between_seconds", "Between epochs, time", lambda run: run.between_seconds, units.span),
    Measure(
        "between_energy", "Between epochs, energy", lambda run: run.between_energy, joules, write_all=units.energies
    ),
)
CPU: tuple[Measure[WholeRun], ...] = (
    Measure("cpu_seconds", "CPU time", lambda run: run.cpu_seconds, units.span),
    Measure("package_energy", "CPU energy", lambda run: run.package_energy, joules, write_all=units.energies),
)
"""Of the processes of a run, and of the CPU packages of its machine while it ran."""


_OF_TOTAL: tuple[Measure[EpochSummary], ...] = (
    Measure("seconds", "Time", lambda total: total.seconds, units.span),
    STEPS_PER_SECOND,
    *OF_TIME_AND_MEMORY,
    usage_measure("energy", Unit.JOULES, "GPU energy"),
    energy_per("energy_per_step", "GPU energy per step", lambda total: total.energy_per_step),
)


def _of_run(measure: Measure[EpochSummary]) -> Measure[WholeRun]:
    return Measure(
        measure.name, measure.title, lambda run: measure.of(run.total), measure.write, in_points=measure.in_points,
        write_all=measure.write_all,
    )  # fmt: skip


WHOLE: tuple[Measure[WholeRun], ...] = (*(_of_run(measure) for measure in _OF_TOTAL), *BETWEEN, *CPU)


def unknown_energy(names: Sequence[str], runs: Sequence[WholeRun]) -> Iterator[str]:
    """Yield why the CPU energy of runs is unknown, of which that is known: runs with one reason together."""
    by_reason: dict[str, list[str]] = {}
    for name, run in zip(names, runs, strict=True):
        reasons = dict.fromkeys(rank.package_unknown for rank in run.record.ranks if rank.package_unknown)
        if not is_known(run.package_energy) and reasons:
            by_reason.setdefault("; ".join(reasons), []).append(name)
    for reason, (*others, last) in by_reason.items():
        yield f"CPU energy of {', '.join(others)}{' and ' if others else ''}{last} is unknown: {reason}."
