"""Tables of a comparison of runs: measures with their differences from the first run, and differences in config."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote

from gpumon.common.numbers import is_known
from gpumon.common.text import clean
from gpumon.model import units
from gpumon.reports.compare import SAME, SINGLE, Comparison, MeasureComparison, letters, verdict
from gpumon.reports.compare_measures import RUN_MEASURES, ConfigComparison, ConfigDifference, Measure
from gpumon.reports.run_json import nullable
from gpumon.reports.run_tables import COMMIT_LETTERS, written
from gpumon_web.charts.run_chart import ROLES
from gpumon_web.components.page import Cells, Rows
from gpumon_web.components.tokens import line, link, run_address, run_state, tag, text

PICK_ARG = "pick"
"""Argument of the runs page with the ids of the ticked runs."""
MAX_RUNS, MIN_RUNS = 8, 2
"""Limits of the number of runs in a comparison."""
LABEL_CELLS = 22
VALUE_CELLS = 60
NAME_CELLS = 200
_EPOCH_AND_RUN_MEASURES = ("seconds", "energy")
"""Measures with a value per epoch and another per run, so that CSV files need two names."""
Cell = list[Cells]
Labels = Sequence[str]


def labels(names: Sequence[str]) -> list[str]:
    """Return a unique label for each run: its letter and name."""
    return [f"{letter} {clean(name, LABEL_CELLS)}" for letter, name in zip(letters(len(names)), names, strict=True)]


def comparison_address(ids: Sequence[str], by: str = "", page: str = "compare", arg: str = "runs") -> str:
    """Return the address of a comparison. Each id is quoted separately because it may contain a comma."""
    quoted = quote(",".join(quote(run, safe="") for run in ids), safe="")
    return f"#/{page}?{arg}={quoted}" + (f"&by={by}" if by else "")


def run_lines(runs: Sequence[Cells], by: str) -> list[Cells]:
    """Return a line for each run: letter in its color, name, and links to reorder or remove it."""
    ids = [run["id"] for run in runs]
    lines = []
    for index, (letter, run) in enumerate(zip(letters(len(runs)), runs, strict=True)):
        others = [other for other in ids if other != run["id"]]
        label = f"{letter}, {run['name']}"
        baseline = (
            tag("baseline")
            if index == 0
            else link("as baseline", comparison_address([run["id"], *others], by), "mut", f"Compare with {label}")
        )
        removal = None
        if len(ids) > MIN_RUNS:
            removal = link("×", comparison_address(others, by), "out", f"Leave out {label}")
        lines.append(
            line(text(letter, f"badge {ROLES[index]}"), link(run["name"], run_address(run["id"]), "mono name"),
                 text(run["user"], "mut"), run_state(run["state"]), text(run["counts"], "mut"), baseline, removal,
                 css="one")
        )  # fmt: skip
    if len(ids) < MAX_RUNS:
        href = comparison_address(ids, page="runs", arg=PICK_ARG)
        lines.append(line(link("+ Run", href, "button", "Choose more runs"), css="add"))
    return lines


def measure_rows(comparison: Comparison, names: Labels) -> Rows:
    """Return a row for each measure: medians over epochs first, then measures of whole runs."""
    suffix = ", whole run" if all(comparison.epochs) else ""
    rows = [
        _measure_row(measure, names, suffix if single else "", single=single)
        for measure, single in _shown_measures(comparison)
    ]
    return Rows({**row, "place": index} for index, row in enumerate(rows))


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


def _measure_row(compared: MeasureComparison, names: Labels, suffix: str, *, single: bool) -> Cells:
    measure = compared.measure
    first, *others = measure.texts(compared.medians)
    cells: dict[str, Cell] = {names[0]: [line(text(first, "num"))]}
    for name, value, difference in zip(names[1:], others, compared.differences, strict=True):
        words = verdict(difference, measure, single=single)  # equals `value` if the value is missing
        gain = measure.column.better * difference.value if difference.is_clear and not single else 0.0
        level = "mut" if words == SAME else "ok" if gain > 0 else "warn" if gain < 0 else "mut"
        cells[name] = [line(text(value, "num"), *([text(words, level)] if words != value else []))]
    return {"key": f"{'whole' if single else 'epochs'} {measure.name}", "measure": measure.title + suffix, "of": cells}


def difference_rows(config: ConfigComparison, names: Labels) -> Rows:
    """Return a row for each parameter and each fact about the program that differs between the runs."""
    return Rows(
        {"key": f"{'config' if difference.is_config else 'program'} {difference.name}",
         "name": clean(difference.name, VALUE_CELLS), "place": index, "of": _value_cells(difference, names)}
        for index, difference in enumerate(config.differences)
    )  # fmt: skip


def _value_cells(difference: ConfigDifference, names: Labels) -> dict[str, Cell]:
    texts = [clean(written(value), VALUE_CELLS) if has else units.MISSING
             for value, has in zip(difference.values, difference.has, strict=True)]  # fmt: skip
    if difference.name == "commit" and not difference.is_config:
        texts = [value[:COMMIT_LETTERS] for value in texts]
    return {
        name: [line(text(value, "mono mut" if index and value == texts[0] else "mono"))]
        for index, (name, value) in enumerate(zip(names, texts, strict=True))
    }


def no_difference_text(config: ConfigComparison, names: Labels) -> str:
    """Return the sentence shown without rows. It claims equality only for known parameters."""
    recorded = [name for index, name in enumerate(names) if index not in config.without]
    if not config.same and len(recorded) == len(names):
        return "No config of these runs is known: run.config(…) records it."
    return f"The config of {recorded[0]} alone is known." if len(recorded) == 1 else "No parameter is known to differ."


def config_notes(config: ConfigComparison, names: Labels) -> list[Cells]:
    """Return further notes on parameters and programs."""
    notes = []
    if config.same:
        notes.append(f"{units.counted(config.same, 'parameter')} {'is' if config.same == 1 else 'are'} the same.")
    if config.without:
        runs = ", ".join(names[index][0] for index in config.without)
        notes.append(f"No parameters are known of {runs}: run.config(…) records them.")
    if config.is_dirty:
        notes.append("Runs of the same commit had uncommitted changes: their code may differ.")
    return [{"text": note} for note in notes]


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


def lowest_value(values: Sequence[float], names: Labels, texts: Sequence[str]) -> tuple[str, str, Cell]:
    """Return the lowest value as text, the other values as text, and the badge of its run unless there is a tie.

    Empty if fewer than two values are known.
    """
    ascending = sorted((value, index) for index, value in enumerate(values) if is_known(value))
    if len(ascending) < MIN_RUNS:
        return units.MISSING, "", []
    (value, index), *others = ascending
    rest = ", ".join(f"{names[other][0]} {texts[other]}" for _, other in others[:3])
    more = f" and {len(others) - 3} more" if len(others) > 3 else ""
    badge: Cell = [line(text(names[index][0], f"badge {ROLES[index % len(ROLES)]}"))] if others[0][0] > value else []
    return texts[index], rest + more, badge
