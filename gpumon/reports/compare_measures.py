"""Measures of whole runs, of which a comparison has one value each: for runs without epochs, and beside epochs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeVar

from gpumon.common.numbers import NAN, is_known
from gpumon.model import units
from gpumon.model.columns import EPOCHS, OF_RUNS, Column, View, shown
from gpumon.model.metrics import Unit
from gpumon.model.run import Parameter
from gpumon.reports.epoch_text import number
from gpumon.reports.run_tables import COMMIT_LETTERS, written
from gpumon.reports.text_table import TextColumn, draw
from gpumon.storage.ledger import aggregate
from gpumon.storage.ledger.aggregate import between_epochs, is_worth_a_row, outside_phases
from gpumon.storage.ledger.combine import total_of
from gpumon.storage.ledger.records import EpochTimes, Record
from gpumon.storage.ledger.summary import EpochSummary

_WIDE = 32
_SHOWN = 40
"""Rows; JSON has all."""


class ConfigDifference(NamedTuple):
    """A parameter, or a fact of the program, that is not the same in all runs."""

    name: str
    is_config: bool
    """Whether the training was given it; else gpumon found it."""
    values: Sequence[Parameter]
    """Of each run; None also where it has none."""
    has: Sequence[bool]
    """Whether each run has it."""


class ConfigComparison(NamedTuple):
    """The parameters of several runs."""

    differences: Sequence[ConfigDifference]
    same: int
    """Parameters that are the same in all runs."""
    without: Sequence[int]
    """Places of the runs that told no parameters."""
    is_dirty: bool
    """Whether runs of one commit had uncommitted changes: the commit does not tell them apart."""


def config_differences(records: Sequence[Record]) -> ConfigComparison:
    """Compare the parameters and programs of `records`."""
    configs = [record.about.config for record in records]
    told = [config for config in configs if config]
    names = list(dict.fromkeys(name for config in told for name in config))
    found, same = [], 0
    for name in names if len(told) > 1 else ():
        if all(name in config and _alike(config[name], told[0].get(name)) for config in told):
            same += 1
        else:
            found.append(
                ConfigDifference(
                    name, True, [config.get(name) for config in configs], [name in config for config in configs]
                )
            )
    programs = [record.about.program for record in records]
    for name in dict.fromkeys(name for program in programs for name in program):
        known = [program[name] for program in programs if name in program]
        if not all(_alike(value, known[0]) for value in known):
            found.append(
                ConfigDifference(
                    name, False, [program.get(name) for program in programs], [name in program for program in programs]
                )
            )
    of_runs = {record.run.id: record.about.program for record in records}.values()
    commits = [program.get("commit") for program in of_runs]
    return ConfigComparison(
        found,
        same,
        [place for place, config in enumerate(configs) if not config] if told else [],
        any(program.get("dirty") and commits.count(program.get("commit")) > 1 for program in of_runs),
    )


def config_lines(compared: ConfigComparison, letters: Sequence[str], width: int) -> Iterator[str]:
    """Yield the differences as a table, and what is the same in a sentence; nothing where no run told anything."""
    if compared.differences:
        columns = [TextColumn("CONFIG", 100, right=False, most=_WIDE)]
        columns += [TextColumn(letter, 99 - place, right=False, most=_WIDE) for place, letter in enumerate(letters)]
        shown = compared.differences[:_SHOWN]
        yield from draw(columns, [(one.name, *_cells(one)) for one in shown], width)
        if len(shown) < len(compared.differences):
            yield f"and {len(compared.differences) - len(shown)} more differences (--json)"
    if compared.same:
        yield f"{units.counted(compared.same, 'parameter')} {'is' if compared.same == 1 else 'are'} the same."
    if compared.without:
        who = ", ".join(letters[place] for place in compared.without)
        yield f"No parameters are known of {who}: run.config(…) records them."
    if compared.is_dirty:
        yield "Runs of one commit had uncommitted changes: their code may differ."
    if compared.differences or compared.same or compared.without or compared.is_dirty:
        yield ""


def config_document(compared: ConfigComparison) -> dict[str, Any]:
    """The differences as JSON."""
    return {
        "differences": [
            {"name": one.name, "kind": "config" if one.is_config else "program", "values": list(one.values),
             "known": list(one.has)}
            for one in compared.differences
        ],
        "same": compared.same, "uncommitted_changes": compared.is_dirty,
    }  # fmt: skip


def _alike(one: Parameter, other: Parameter) -> bool:
    """Whether two values are the same: True is not 1 here, and 1.0 is."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _cells(one: ConfigDifference) -> Iterator[str]:
    for value, has in zip(one.values, one.has, strict=True):
        text = written(value)
        yield (text[:COMMIT_LETTERS] if one.name == "commit" and not one.is_config else text) if has else units.MISSING


T = TypeVar("T")


class Measure(NamedTuple, Generic[T]):
    """A number of each epoch, or of each run, that is compared."""

    column: Column
    of: Callable[[T], float]

    @property
    def name(self) -> str:
        """Its name in JSON."""
        return "run_allocated_peak" if self.column.key == "framework_peak" else self.column.key

    @property
    def file_name(self) -> str:
        """Its name in files, with the unit."""
        return self.column.file_name.replace(self.column.key, self.name)

    @property
    def title(self) -> str:
        return self.column.title

    @property
    def in_points(self) -> bool:
        """Whether it differs by points of percent: a share of a share would mislead."""
        return self.column.unit is Unit.RATIO

    def texts(self, values: Sequence[float]) -> list[str]:
        """Values that stand beside each other, in one unit."""
        if self.in_points:
            return shares(values)
        largest = max((value for value in values if math.isfinite(value)), default=NAN)
        return [self.column.write(value, largest) for value in values]


def shares(values: Sequence[float]) -> list[str]:
    """Ratios of several runs, as percent; with a decimal where one differs from the first by less than a point.

    Without it, `0 %` would stand beside `+0.1 points`.
    """
    first = values[0] if values else math.nan
    is_fine = any(0.0005 <= abs(value - first) < 0.01 for value in values)
    return [f"{value * 100:.1f} %" if is_fine and math.isfinite(value) else units.number(value, Unit.RATIO)
            for value in values]  # fmt: skip


class WholeRun:
    """A run as one value of each measure."""

    def __init__(
        self, record: Record, epochs: Sequence[EpochSummary], times: Sequence[EpochSummary] | Sequence[EpochTimes]
    ) -> None:
        self.record = record
        self.total = aggregate.run_total(record, epochs, record.run.updated)
        together = between_epochs(record, times)
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


def _value(key: str, stretch: EpochSummary) -> float:
    """An exact value; of live tensors the framework's own peak, else what was read between steps."""
    return number(key, stretch) if key == "framework_peak" else stretch.number(key)


def _of_epoch(column: Column) -> Measure[EpochSummary]:
    return Measure(column, lambda epoch: _value(column.key, epoch))


def _of_run(column: Column) -> Measure[WholeRun]:
    return Measure(column, lambda run: _value(column.key, run.total))


MEASURES: tuple[Measure[EpochSummary], ...] = tuple(map(_of_epoch, shown(EPOCHS, View.COMPARE)))
RUN_MEASURES: tuple[Measure[WholeRun], ...] = tuple(
    Measure(column, attrgetter(column.key)) for column in shown(OF_RUNS, View.COMPARE)
)
"""What lies between its epochs, the CPU time of its processes, and the energy of the CPU packages of its machine."""
WHOLE: tuple[Measure[WholeRun], ...] = (*(_of_run(measure.column) for measure in MEASURES), *RUN_MEASURES)


def unknown_energy(names: Sequence[str], runs: Sequence[WholeRun]) -> Iterator[str]:
    """Yield why the CPU energy of runs is unknown, of which that is known: runs with one reason together."""
    by_reason: dict[str, list[str]] = {}
    for name, run in zip(names, runs, strict=True):
        reasons = dict.fromkeys(rank.package_unknown for rank in run.record.ranks if rank.package_unknown)
        if not is_known(run.package_energy) and reasons:
            by_reason.setdefault("; ".join(reasons), []).append(name)
    for reason, (*others, last) in by_reason.items():
        yield f"CPU energy of {', '.join(others)}{' and ' if others else ''}{last} is unknown: {reason}."
