"""Tables of a comparison of runs: measures with their differences from the first run, and differences in config."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypedDict
from urllib.parse import quote, unquote, urlencode

from gpumon.common.numbers import is_known
from gpumon.common.text import clean
from gpumon.model import units
from gpumon.reports.compare import SAME, SINGLE, Comparison, MeasureComparison, letters, verdict
from gpumon.reports.compare_measures import RUN_MEASURES, ConfigComparison, ConfigDifference, Measure
from gpumon.reports.run_json import nullable
from gpumon.reports.run_tables import COMMIT_LETTERS, written
from gpumon_web.components.page import Cells

PICK_ARG = "pick"
"""Argument of the runs page with the ids of the ticked runs."""
MAX_RUNS, MIN_RUNS = 8, 2
"""Limits of the number of runs in a comparison."""
LABEL_CELLS = 22
VALUE_CELLS = 60
NAME_CELLS = 200
_EPOCH_AND_RUN_MEASURES = ("seconds", "energy")
"""Measures with a value per epoch and another per run, so that CSV files need two names."""
Labels = Sequence[str]


class Cell(TypedDict):
    """A value of one run."""

    text: str
    note: str
    """Difference from the first run; empty if there is none."""
    level: str
    """`ok` or `warn` if the difference is certainly better or worse, `mut` if it is not."""


class Row(TypedDict):
    """A measure, parameter or fact, with a cell for each run."""

    key: str
    title: str
    cells: list[Cell]


def labels(names: Sequence[str]) -> list[str]:
    """Return a unique label for each run: its letter and name."""
    return [f"{letter} {clean(name, LABEL_CELLS)}" for letter, name in zip(letters(len(names)), names, strict=True)]


def parse_ids(text: str) -> list[str]:
    """Return the ids in an address in their order, without duplicates, at most `MAX_RUNS`."""
    return [*dict.fromkeys(unquote(run) for run in text.split(",") if run)][:MAX_RUNS]


def comparison_address(
    ids: Sequence[str], arguments: Mapping[str, str] | None = None, page: str = "compare", arg: str = "runs"
) -> str:
    """Return the address of a comparison, with further arguments.

    Each id is quoted separately because it may contain a comma.
    """
    runs = ",".join(quote(run, safe="") for run in ids)
    return f"#/{page}?{urlencode({arg: runs, **{name: value for name, value in (arguments or {}).items() if value}})}"


def measure_rows(comparison: Comparison) -> list[Row]:
    """Return a row for each measure: medians over epochs first, then measures of whole runs."""
    suffix = ", whole run" if all(comparison.epochs) else ""
    return [
        _measure_row(measure, suffix if single else "", single=single)
        for measure, single in _shown_measures(comparison)
    ]


def whole_run_notes(comparison: Comparison) -> list[str]:
    """Return a note on rows of whole runs, if the table also has medians over epochs."""
    has_both = all(comparison.epochs) and any(single for _, single in _shown_measures(comparison))
    return [f"Whole runs: {SINGLE}"] if has_both else []


def _shown_measures(comparison: Comparison) -> Iterator[tuple[MeasureComparison, bool]]:
    """Yield the measures of a comparison, and whether each is a single value of a whole run."""
    by_epochs = all(comparison.epochs)
    if by_epochs:
        yield from ((measure, False) for measure in comparison.lines)
    yield from ((measure, True) for measure in comparison.whole if not by_epochs or measure.measure in RUN_MEASURES)


def csv_rows(comparison: Comparison) -> list[Cells]:
    """Return the rows of the CSV file: one per run, in base units, None if unknown.

    Each difference from the first run comes with its interval.
    """
    rows: list[Cells] = [
        {"letter": letter, "id": record.run.id, "name": clean(record.run.name, NAME_CELLS), "epochs_compared": count}
        for letter, record, count in zip(
            letters(len(comparison.records)), comparison.records, comparison.epochs, strict=True)
    ]  # fmt: skip
    for measure, single in _shown_measures(comparison):
        column = csv_name(measure.measure, single=single)
        for index, (row, value) in enumerate(zip(rows, measure.medians, strict=True)):
            row[column] = nullable(value)
            difference = measure.differences[index - 1] if index else None
            row[f"{column}_difference"] = nullable(difference.value) if difference else None
            if not single:
                row[f"{column}_difference_low"] = nullable(difference.low) if difference else None
                row[f"{column}_difference_high"] = nullable(difference.high) if difference else None
    return rows


def csv_name(measure: Measure[Any], *, single: bool) -> str:
    """Return the name of a measure in CSV files, with its unit; `single`: of a whole run."""
    prefix = "" if measure.name not in _EPOCH_AND_RUN_MEASURES else "run_" if single else "epoch_"
    return f"{prefix}{measure.file_name}"


def _measure_row(compared: MeasureComparison, suffix: str, *, single: bool) -> Row:
    measure = compared.measure
    first, *others = compared.texts
    cells: list[Cell] = [{"text": first, "note": "", "level": ""}]
    for value, difference in zip(others, compared.differences, strict=True):
        words = verdict(difference, measure, single=single)  # equals `value` if the value is missing
        gain = measure.column.better * difference.value if difference.is_clear and not single else 0.0
        level = "mut" if words == SAME else "ok" if gain > 0 else "warn" if gain < 0 else "mut"
        cells.append({"text": value, "note": words if words != value else "", "level": level})
    return {"key": f"{'whole' if single else 'epochs'} {measure.name}", "title": measure.title + suffix, "cells": cells}


def difference_rows(config: ConfigComparison) -> list[Row]:
    """Return a row for each parameter and each fact about the program that differs between the runs."""
    return [
        {"key": f"{'config' if difference.is_config else 'program'} {difference.name}",
         "title": clean(difference.name, VALUE_CELLS), "cells": _value_cells(difference)}
        for difference in config.differences
    ]  # fmt: skip


def _value_cells(difference: ConfigDifference) -> list[Cell]:
    texts = [clean(written(value), VALUE_CELLS) if has else units.MISSING
             for value, has in zip(difference.values, difference.has, strict=True)]  # fmt: skip
    if difference.name == "commit" and not difference.is_config:
        texts = [value[:COMMIT_LETTERS] for value in texts]
    return [
        {"text": value, "note": "", "level": "mut" if index and value == texts[0] else ""}
        for index, value in enumerate(texts)
    ]


def no_difference_text(config: ConfigComparison, names: Labels) -> str:
    """Return the sentence shown without rows. It claims equality only for known parameters."""
    recorded = [name for index, name in enumerate(names) if index not in config.without]
    if not config.same and len(recorded) == len(names):
        return "No config of these runs is known: run.config(…) records it."
    return f"The config of {recorded[0]} alone is known." if len(recorded) == 1 else "No parameter is known to differ."


def config_notes(config: ConfigComparison, names: Labels) -> list[str]:
    """Return further notes on parameters and programs."""
    notes = []
    if config.same:
        notes.append(f"{units.counted(config.same, 'parameter')} {'is' if config.same == 1 else 'are'} the same.")
    if config.without:
        runs = ", ".join(names[index][0] for index in config.without)
        notes.append(f"No parameters are known of {runs}: run.config(…) records them.")
    if config.is_dirty:
        notes.append("Runs of the same commit had uncommitted changes: their code may differ.")
    return notes


def shows_intervals(comparison: Comparison) -> bool:
    """Whether any difference over epochs is shown with its interval; unclear differences have none."""
    measures = comparison.lines if all(comparison.epochs) else ()
    return any(
        verdict(difference, measure.measure).endswith(")") for measure in measures for difference in measure.differences
    )


def has_intervals(compared: MeasureComparison) -> bool:
    """Whether each run with a value has enough epochs for an interval of its difference from the first run."""
    return all(is_known(difference.low) for difference in compared.differences if is_known(difference.value))


def is_clearly_lowest(compared: MeasureComparison) -> bool:
    """Whether the run with the lowest median differs clearly from every other run, by the intervals of differences."""
    indexes = [index for index, value in enumerate(compared.medians) if is_known(value)]
    lowest = min(indexes, key=lambda index: compared.medians[index])
    others = [compared.differences[index - 1] for index in indexes if index not in (0, lowest)]
    if lowest == 0:
        return all(difference.is_clear for difference in others)
    own = compared.differences[lowest - 1]
    return (0 not in indexes or own.is_clear) and all(difference.low > own.high for difference in others)


def lowest_value(values: Sequence[float], names: Labels, texts: Sequence[str]) -> tuple[str, str, int | None]:
    """Return the lowest value as text, the other values as text, and the index of its run unless there is a tie.

    Without text if fewer than two values are known.
    """
    ascending = sorted((value, index) for index, value in enumerate(values) if is_known(value))
    if len(ascending) < MIN_RUNS:
        return units.MISSING, "", None
    (value, index), *others = ascending
    rest = ", ".join(f"{names[other][0]} {texts[other]}" for _, other in others[:3])
    more = f" and {len(others) - 3} more" if len(others) > 3 else ""
    return texts[index], rest + more, index if others[0][0] > value else None


def course_rows(chart: Cells, keys: Sequence[str]) -> list[list[float | str | None]]:
    """Return the rows of a CSV file of the lines of some panels: a row for each position, in base units."""
    lines = [(panel, line) for panel in chart["panels"] if panel["key"] in keys for line in panel["lines"]]
    heads = [_file_column(f"{panel['key']} {line['label']}", panel["unit"]) for panel, line in lines]
    values: dict[float, list[float | None]] = {}
    for index, (_, line) in enumerate(lines):
        for position, value in zip(chart["times"][line["x"]], line["mean"], strict=True):
            values.setdefault(position, [None] * len(lines))[index] = value
    axis = f"{chart['axis']}_seconds" if chart["axis"] == "since" else chart["axis"]
    rows: list[list[float | str | None]] = [[axis, *heads]]
    rows += ([position, *values[position]] for position in sorted(values))
    return rows


def _file_column(text: str, unit: str) -> str:
    name = re.sub(r"[^\w.]+", "_", text).strip("_")
    return name if unit == "plain" else f"{name}_{unit}"


def difference_csv_rows(names: Labels, rows: Sequence[Row]) -> list[list[str | None]]:
    """Return the rows of a CSV file of parameters and facts that differ; unknown values are empty."""
    body = [
        [row["title"], *(None if cell["text"] == units.MISSING else cell["text"] for cell in row["cells"])]
        for row in rows
    ]
    return [["key", *names], *body]
