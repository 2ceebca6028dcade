"""Parameters and programs of runs that are compared: those in which they differ.

A run that told no parameters differs in none: they are not known. The same holds for each fact of its program.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from gpumon.model import units
from gpumon.model.run import Parameter
from gpumon.reports.about import COMMIT_LETTERS, written
from gpumon.reports.text_table import TextColumn, draw
from gpumon.storage.ledger.records import Record

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
