"""The subjects of `gpumon runs compare`: parameters of runs, and measures of epochs and of whole runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeVar

from gpumon.common.numbers import NAN, is_known
from gpumon.model import units
from gpumon.model.columns import EPOCHS, OF_RUNS, Column, OverTime, View, shown
from gpumon.model.metrics import Unit
from gpumon.model.run import Parameter
from gpumon.reports.epoch_text import number, sign
from gpumon.reports.run_tables import COMMIT_LETTERS, written
from gpumon.reports.text_table import TextColumn, draw, sentence
from gpumon.storage.ledger import aggregate
from gpumon.storage.ledger.aggregate import between_epochs, is_worth_a_row, outside_phases
from gpumon.storage.ledger.combine import sum_or_nan
from gpumon.storage.ledger.records import EpochTimes, Record
from gpumon.storage.ledger.summary import EpochSummary

_WIDE = 32
_SHOWN = 40
"""Maximum number of parameters in the text table. JSON has all parameters."""


@dataclass(frozen=True, slots=True)
class ConfigDifference:
    """A parameter, or a fact about the program, whose value differs between runs."""

    name: str
    is_config: bool
    """True for a parameter of the training, False for a fact that gpumon detected, such as the commit."""
    values: Sequence[Parameter]
    """The value in each run. It is None for a run without this parameter, but may also be None in other runs; see
    `has`."""
    has: Sequence[bool]
    """True for each run that has this parameter, in the order of the runs."""


@dataclass(frozen=True, slots=True)
class ConfigComparison:
    """Differences between the parameters of several runs."""

    differences: Sequence[ConfigDifference]
    same: int
    """Number of parameters that are the same in all runs."""
    without: Sequence[int]
    """Indices of the runs without recorded parameters."""
    is_dirty: bool
    """True if runs of the same commit had uncommitted changes, so that their code may differ."""


def config_differences(records: Sequence[Record]) -> ConfigComparison:
    """Compare the parameters of runs, and the facts about their programs that gpumon detected, such as the commit."""
    configs = [record.about.config for record in records]
    recorded = [config for config in configs if config]
    names = list(dict.fromkeys(name for config in recorded for name in config))
    differences, same = [], 0
    for name in names if len(recorded) > 1 else ():
        if all(name in config and _equal(config[name], recorded[0].get(name)) for config in recorded):
            same += 1
        else:
            differences.append(
                ConfigDifference(
                    name, True, [config.get(name) for config in configs], [name in config for config in configs]
                )
            )
    programs = [record.about.program for record in records]
    for name in dict.fromkeys(name for program in programs for name in program):
        known = [program[name] for program in programs if name in program]
        if not all(_equal(value, known[0]) for value in known):
            differences.append(
                ConfigDifference(
                    name, False, [program.get(name) for program in programs], [name in program for program in programs]
                )
            )
    distinct = {record.run.id: record.about.program for record in records}.values()
    commits = [program.get("commit") for program in distinct]
    return ConfigComparison(
        differences,
        same,
        [index for index, config in enumerate(configs) if not config] if recorded else [],
        any(program.get("dirty") and commits.count(program.get("commit")) > 1 for program in distinct),
    )


def config_lines(compared: ConfigComparison, letters: Sequence[str], width: int) -> Iterator[str]:
    """Yield a table of differences and a sentence about equal parameters. Yield nothing if no run has parameters.

    `letters`: name of each run in the table, such as A.
    """
    if compared.differences:
        columns = [TextColumn("CONFIG", 100, right=False, max_width=_WIDE)]
        columns += [
            TextColumn(letter, 99 - index, right=False, max_width=_WIDE) for index, letter in enumerate(letters)
        ]
        shown = compared.differences[:_SHOWN]
        yield from draw(columns, [(difference.name, *_cells(difference)) for difference in shown], width)
        if len(shown) < len(compared.differences):
            yield f"and {len(compared.differences) - len(shown)} more differences (--json)"
    if compared.same:
        yield f"{units.counted(compared.same, 'parameter')} {'is' if compared.same == 1 else 'are'} the same."
    if compared.without:
        runs = ", ".join(letters[index] for index in compared.without)
        yield from sentence(f"No parameters are recorded for {runs}: record them with run.config(…).", width)
    if compared.is_dirty:
        yield from sentence("Runs of the same commit had uncommitted changes: their code may differ.", width)
    if compared.differences or compared.same or compared.without or compared.is_dirty:
        yield ""


def config_document(compared: ConfigComparison) -> dict[str, Any]:
    """Return the differences as JSON."""
    return {
        "differences": [
            {"name": difference.name, "kind": "config" if difference.is_config else "program",
             "values": list(difference.values), "known": list(difference.has)}
            for difference in compared.differences
        ],
        "same": compared.same, "uncommitted_changes": compared.is_dirty,
    }  # fmt: skip


def _equal(value: Parameter, other: Parameter) -> bool:
    """Return True if two values are equal. Unlike in Python, True and 1 are different."""
    return value == other and isinstance(value, bool) == isinstance(other, bool)


def _cells(difference: ConfigDifference) -> Iterator[str]:
    is_commit = difference.name == "commit" and not difference.is_config
    for value, has in zip(difference.values, difference.has, strict=True):
        text = written(value)
        yield (text[:COMMIT_LETTERS] if is_commit else text) if has else units.MISSING


T = TypeVar("T")


class Measure(NamedTuple, Generic[T]):
    """A quantity that is compared between runs: one value per epoch, or one per run."""

    column: Column
    value_of: Callable[[T], float]
    sign_of: Callable[[T], str] = lambda _: ""
    """Function that returns the sign before a value, like `epoch_text.sign`."""

    @property
    def name(self) -> str:
        """Name of the measure in JSON."""
        return "run_allocated_peak" if self.column.key == "framework_peak" else self.column.key

    @property
    def file_name(self) -> str:
        """Name of the measure in files. It ends with the unit."""
        return self.column.file_name.replace(self.column.key, self.name)

    @property
    def title(self) -> str:
        return self.column.title

    @property
    def in_points(self) -> bool:
        """True if differences are in percentage points, because a relative change of a ratio would be misleading."""
        return self.column.unit is Unit.RATIO

    def texts(self, values: Sequence[float]) -> list[str]:
        """Return the values of several runs as texts in the same unit."""
        if self.in_points:
            return shares(values)
        largest = max((value for value in values if math.isfinite(value)), default=NAN)
        return [self.column.write(value, largest) for value in values]


def shares(values: Sequence[float]) -> list[str]:
    """Return ratios of several runs as percentages.

    The percentages have a decimal if any of them differs from the first by less than a point. Without the decimal, `0
    %` could appear next to a difference of `+0.1 points`.
    """
    first = values[0] if values else math.nan
    is_fine = any(0.0005 <= abs(value - first) < 0.01 for value in values)
    return [f"{value * 100:.1f} %" if is_fine and math.isfinite(value) else units.number(value, Unit.RATIO)
            for value in values]  # fmt: skip


class WholeRun:
    """The values of a whole run for the measures in `WHOLE`."""

    def __init__(
        self, record: Record, epochs: Sequence[EpochSummary], times: Sequence[EpochSummary] | Sequence[EpochTimes]
    ) -> None:
        self.record = record
        self.total = aggregate.run_total(record, epochs)
        between = between_epochs(record, times)
        shown = between is not None and is_worth_a_row(between, outside_phases(record, between), self.total)
        self.between: EpochSummary | None = between if shown else None

    @property
    def cpu_seconds(self) -> float:
        """CPU time of all processes of the run, in seconds. NaN until every rank has reported its CPU time."""
        return sum_or_nan([rank.facts.cpu_seconds or NAN for rank in self.record.ranks] or [NAN])

    @property
    def package_energy(self) -> float:
        """Joules that the CPU packages of the machine used during the run; NaN if not recorded."""
        return max((rank.package_energy for rank in self.record.ranks if is_known(rank.package_energy)), default=NAN)

    @property
    def between_seconds(self) -> float:
        """Seconds outside the epochs of the run; NaN if the table of epochs has no row for this time."""
        return self.between.seconds if self.between else NAN

    @property
    def between_energy(self) -> float:
        """Joules used outside the epochs of the run; NaN if the table of epochs has no row for this time."""
        return self.between.value("energy") if self.between else NAN


def _value(key: str, stretch: EpochSummary) -> float:
    """Return the value of a measure. NaN if there is only a bound of it.

    For live tensors (`framework_peak`), return the framework's own peak, or else the peak of the readings between
    steps.
    """
    return number(key, stretch) if key == "framework_peak" else stretch.number(key)


def _epoch_measure(column: Column) -> Measure[EpochSummary]:
    """Return the measure of a column. A sum over a row of several merged epochs is divided by their number."""
    is_sum = column.over_time is OverTime.SUM
    return Measure(
        column,
        lambda epoch: _value(column.key, epoch) / (epoch.merged if is_sum else 1),
        lambda epoch: sign(column.key, epoch),
    )


def _run_measure(column: Column) -> Measure[WholeRun]:
    return Measure(column, lambda run: _value(column.key, run.total), lambda run: sign(column.key, run.total))


MEASURES: tuple[Measure[EpochSummary], ...] = tuple(map(_epoch_measure, shown(EPOCHS, View.COMPARE)))
RUN_MEASURES: tuple[Measure[WholeRun], ...] = tuple(
    Measure(column, attrgetter(column.key)) for column in shown(OF_RUNS, View.COMPARE)
)
"""Measures that only whole runs have: time and energy between epochs, CPU time of the processes, and energy of the
machine's CPU packages."""
WHOLE: tuple[Measure[WholeRun], ...] = (*(_run_measure(measure.column) for measure in MEASURES), *RUN_MEASURES)


def unknown_energy(names: Sequence[str], runs: Sequence[WholeRun]) -> Iterator[str]:
    """Yield a sentence for each reason why the CPU energy of some runs is missing. `names`: name of each run."""
    by_reason: dict[str, list[str]] = {}
    for name, run in zip(names, runs, strict=True):
        reasons = dict.fromkeys(rank.package_unknown for rank in run.record.ranks if rank.package_unknown)
        if not is_known(run.package_energy) and reasons:
            by_reason.setdefault("; ".join(reasons), []).append(name)
    for reason, (*others, last) in by_reason.items():
        yield f"CPU energy of {', '.join(others)}{' and ' if others else ''}{last} is unknown: {reason}."
