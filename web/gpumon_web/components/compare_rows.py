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

PICK = "pick"
"""Argument of the runs page with the ids of the ticked runs."""
MOST, FEWEST = 8, 2
"""Number of runs in a comparison."""
LABEL_CELLS = 22
VALUE_CELLS = 60
NAME_CELLS = 200
_OTHER_FOR_EPOCHS = ("seconds", "energy")
"""Measures whose value per epoch differs from that per run, so that CSV files use two names."""
Cell = list[Cells]
Named = Sequence[str]


def labels(names: Sequence[str]) -> list[str]:
    """Return a unique label for each run: its letter and name."""
    return [f"{letter} {clean(name, LABEL_CELLS)}" for letter, name in zip(letters(len(names)), names, strict=True)]


def address(ids: Sequence[str], by: str = "", page: str = "compare", arg: str = "runs") -> str:
    """Return the address of a comparison; each id is quoted by itself, as it may contain a comma."""
    told = quote(",".join(quote(one, safe="") for one in ids), safe="")
    return f"#/{page}?{arg}={told}" + (f"&by={by}" if by else "")


def chosen(runs: Sequence[Cells], by: str) -> list[Cells]:
    """Return a line for each run: letter in its color, name, and links to reorder or remove it."""
    ids = [run["id"] for run in runs]
    found = []
    for place, (letter, run) in enumerate(zip(letters(len(runs)), runs, strict=True)):
        others = [one for one in ids if one != run["id"]]
        first = tag("baseline") if place == 0 else link("as baseline", address([run["id"], *others], by), "mut",
                                                        f"Compare with {letter}, {run['name']}")  # fmt: skip
        out = link("×", address(others, by), "out", f"Leave out {letter}, {run['name']}") if len(ids) > FEWEST else None
        found.append(
            line(text(letter, f"badge {ROLES[place]}"), link(run["name"], run_address(run["id"]), "mono name"),
                 text(run["user"], "mut"), run_state(run["state"]), text(run["counts"], "mut"), first, out, css="one")
        )  # fmt: skip
    if len(ids) < MOST:
        found.append(
            line(link("+ Run", address(ids, page="runs", arg="pick"), "button", "Choose more runs"), css="add")
        )
    return found


def numbers(compared: Comparison, names: Named) -> Rows:
    """Return a row for each measure: medians over epochs first, then measures of whole runs."""
    of = ", whole run" if all(compared.epochs) else ""
    rows = [_measure(one, names, of if single else "", single=single) for one, single in _shown(compared)]
    return Rows({**row, "place": place} for place, row in enumerate(rows))


def whole_notes(compared: Comparison) -> list[str]:
    """Return a note on rows of whole runs, if the table also has medians over epochs."""
    beside = all(compared.epochs) and any(single for _, single in _shown(compared))
    return [f"Whole runs: {SINGLE}"] if beside else []


def _shown(compared: Comparison) -> Iterator[tuple[MeasureComparison, bool]]:
    """Yield the measures of a comparison, and whether each is a single value of a whole run."""
    by_epochs = all(compared.epochs)
    if by_epochs:
        yield from ((one, False) for one in compared.lines)
    yield from ((one, True) for one in compared.whole if not by_epochs or one.measure in RUN_MEASURES)


def saved(compared: Comparison) -> list[Cells]:
    """Return the rows of the CSV file: one per run, in base units, None if unknown.

    Each difference from the first run comes with its interval.
    """
    rows: list[Cells] = [
        {"letter": letter, "id": record.run.id, "name": clean(record.run.name, NAME_CELLS), "epochs_compared": count}
        for letter, record, count in zip(
            letters(len(compared.records)), compared.records, compared.epochs, strict=True)
    ]  # fmt: skip
    for one, single in _shown(compared):
        column = saved_name(one.measure, single=single)
        for place, (row, value) in enumerate(zip(rows, one.medians, strict=True)):
            row[column] = nullable(value)
            found = one.differences[place - 1] if place else None
            row[f"{column}_difference"] = nullable(found.value) if found else None
            if not single:
                row[f"{column}_difference_low"] = nullable(found.low) if found else None
                row[f"{column}_difference_high"] = nullable(found.high) if found else None
    return rows


def saved_name(measure: Measure[Any], *, single: bool) -> str:
    """Return the name of a measure in CSV files, with its unit; `single`: of a whole run."""
    of = "" if measure.name not in _OTHER_FOR_EPOCHS else "run_" if single else "epoch_"
    return f"{of}{measure.file_name}"


def _measure(found: MeasureComparison, names: Named, of: str, *, single: bool) -> Cells:
    measure = found.measure
    first, *others = measure.texts(found.medians)
    cells: dict[str, Cell] = {names[0]: [line(text(first, "num"))]}
    for name, told, one in zip(names[1:], others, found.differences, strict=True):
        said = verdict(one, measure, single=single)  # equals `told` if the value is missing
        wanted = measure.column.better * one.value if one.is_clear and not single else 0.0
        level = "mut" if said == SAME else "ok" if wanted > 0 else "warn" if wanted < 0 else "mut"
        cells[name] = [line(text(told, "num"), *([text(said, level)] if said != told else []))]
    return {"key": f"{'whole' if single else 'epochs'} {measure.name}", "measure": measure.title + of, "of": cells}


def differs(config: ConfigComparison, names: Named) -> Rows:
    """Return a row for each parameter and each fact about the program that differs between the runs."""
    return Rows(
        {"key": f"{'config' if one.is_config else 'program'} {one.name}", "name": clean(one.name, VALUE_CELLS),
         "place": place, "of": _values(one, names)}
        for place, one in enumerate(config.differences)
    )  # fmt: skip


def _values(one: ConfigDifference, names: Named) -> dict[str, Cell]:
    said = [clean(written(value), VALUE_CELLS) if has else units.MISSING
            for value, has in zip(one.values, one.has, strict=True)]  # fmt: skip
    if one.name == "commit" and not one.is_config:
        said = [value[:COMMIT_LETTERS] for value in said]
    return {
        name: [line(text(value, "mono mut" if place and value == said[0] else "mono"))]
        for place, (name, value) in enumerate(zip(names, said, strict=True))
    }


def alike(config: ConfigComparison, names: Named) -> str:
    """Return the sentence shown without rows. It claims equality only for known parameters."""
    told = [name for place, name in enumerate(names) if place not in config.without]
    if not config.same and len(told) == len(names):
        return "No config of these runs is known: run.config(…) records it."
    return f"The config of {told[0]} alone is known." if len(told) == 1 else "No parameter is known to differ."


def config_notes(config: ConfigComparison, names: Named) -> list[Cells]:
    """Return further notes on parameters and programs."""
    found = []
    if config.same:
        found.append(f"{units.counted(config.same, 'parameter')} {'is' if config.same == 1 else 'are'} the same.")
    if config.without:
        who = ", ".join(names[place][0] for place in config.without)
        found.append(f"No parameters are known of {who}: run.config(…) records them.")
    if config.is_dirty:
        found.append("Runs of the same commit had uncommitted changes: their code may differ.")
    return [{"text": one} for one in found]


def shows_intervals(compared: Comparison) -> bool:
    """Whether any difference over epochs is shown with its interval; unclear differences have none."""
    lines = compared.lines if all(compared.epochs) else ()
    return any(verdict(found, line.measure).endswith(")") for line in lines for found in line.differences)


def has_intervals(found: MeasureComparison) -> bool:
    """Whether each run with a value has enough epochs for an interval of its difference from the first run."""
    return all(is_known(one.low) for one in found.differences if is_known(one.value))


def is_least_for_certain(found: MeasureComparison) -> bool:
    """Whether the run with the least median differs clearly from every other run, by the intervals of differences."""
    known = [place for place, value in enumerate(found.medians) if is_known(value)]
    best = min(known, key=lambda place: found.medians[place])
    others = [found.differences[place - 1] for place in known if place not in (0, best)]
    if best == 0:
        return all(one.is_clear for one in others)
    mine = found.differences[best - 1]
    return (0 not in known or mine.is_clear) and all(one.low > mine.high for one in others)


def least(found: Sequence[float], names: Named, texts: Sequence[str]) -> tuple[str, str, Cell]:
    """Return the least value as text, the other values as text, and the badge of its run unless there is a tie.

    Empty if fewer than two values are known.
    """
    known = sorted((value, place) for place, value in enumerate(found) if is_known(value))
    if len(known) < FEWEST:
        return units.MISSING, "", []
    (value, place), *others = known
    rest = ", ".join(f"{names[at][0]} {texts[at]}" for _, at in others[:3])
    more = f" and {len(others) - 3} more" if len(others) > 3 else ""
    badge: Cell = [line(text(names[place][0], f"badge {ROLES[place % len(ROLES)]}"))] if others[0][0] > value else []
    return texts[place], rest + more, badge
