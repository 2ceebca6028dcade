"""Columns and cells of the tables on a run's page: epochs and ranks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isfinite
from types import MappingProxyType
from typing import Any

from gpumon.common.numbers import NAN, exact, is_known, shown
from gpumon.diagnosis.past_findings import FINE, Verdict, is_partly_sampled, verdict
from gpumon.model import columns, units
from gpumon.model.columns import BY_KEY, View
from gpumon.model.columns import EPOCHS as COLUMNS
from gpumon.model.columns import RANKS as RANK_COLUMNS
from gpumon.model.columns import Column as ModelColumn
from gpumon.model.metrics import Unit
from gpumon.model.units import ABOUT
from gpumon.reports import epoch_text
from gpumon.reports.figures.document import METRICS, left_out
from gpumon.reports.run_json import metrics_to_json
from gpumon.storage.ledger.summary import EpochSummary
from gpumon_web.components.levels import SEVERITY_LEVELS
from gpumon_web.components.page import Cells, Column, table_column
from gpumon_web.components.tokens import Values, bar, energy, line, run_state, running_tag, share, tag, text
from gpumon_web.stored.epoch_rows import Fold, Part, mean

TENSORS, DEVICE = (BY_KEY[key].title for key in ("framework_peak", "memory_used_peak"))
"""Headings for the peak of live tensors, and the peak of all memory of a device."""
MAX_LOGGED = 4
"""Most logged metrics with a column of their own."""
LOGGED_EPOCHS = 50
"""Number of newest epochs whose logged metrics can get a column."""
NO_MAXIMA: Mapping[Any, float] = MappingProxyType({})

MEASURED = columns.shown(COLUMNS, View.BROWSER)
"""Columns of the table of epochs with a measured value per epoch."""
_SPECIAL_COLUMNS = {
    "seconds": table_column(BY_KEY["seconds"], "lasting", css="c-took"),
    "utilization_mean": table_column(
        BY_KEY["utilization_mean"], "rich", key="utilization", sorts_by="utilization_mean", css="c-use"
    ),
    "wait_share": table_column(BY_KEY["wait_share"], key="wait", css="c-wait"),
    "idle_share": table_column(BY_KEY["idle_share"], "text", key="idle", sorts_by="idle_share", css="c-extra c-less"),
    "energy": table_column(BY_KEY["energy"], most="most_energy", css="c-extra c-rare"),
    "framework_peak": table_column(
        BY_KEY["framework_peak"], "text", key="peak", sorts_by="peak_bytes", css="c-extra", titled="peak_column"
    ),
}
"""Columns that are not shown as plain numbers of their unit."""
STEP_COLUMNS = ("steps", "steps_per_second")
"""Columns only shown for a run without epochs; otherwise the table has no room for them."""
_PLAIN_COLUMNS = tuple(column for column in MEASURED if column.key not in _SPECIAL_COLUMNS)


def _plain_column(column: ModelColumn) -> Column:
    """Create a column that is only shown if some row has a value."""
    return table_column(column, sorts_by=f"{column.key}_value" if _is_text(column) else "", needs=f"has_{column.key}")


def _is_text(column: ModelColumn) -> bool:
    """Whether Python formats the column's numbers as text."""
    return table_column(column).kind == "text"


EPOCHS = (
    table_column(BY_KEY["epoch"], "opening", sorts_by="ordinal", is_head=True, titled="epoch_column", css=""),
    *(_SPECIAL_COLUMNS.get(column.key) or _plain_column(column) for column in MEASURED),
    table_column(BY_KEY["beside"], css="c-extra c-less"),
    Column("logged", "Logged", "logged", css="logged", each_of="logged_names"),
    table_column(BY_KEY["verdict"], "tag", sorts_by="verdict_text", css="c-verdict"),
)
NEEDED = tuple(column.needs for column in EPOCHS if column.needs)
"""Names of the values without which columns are hidden."""


Measured = EpochSummary | Fold
"""What a row shows the measurements of."""


def largest_values(rows: Iterable[Measured]) -> Mapping[str, float]:
    """Return the largest number of each plain column by key; columns without values are left out."""
    largest: dict[str, float] = {}
    for row in rows:
        for column in _PLAIN_COLUMNS:
            value = row.number(column.key)
            if isfinite(value):
                largest[column.key] = max(value, largest.get(column.key, value))
    return largest


_RANK_KINDS: Mapping[str, Mapping[str, Any]] = {
    "rank": {"is_head": True, "css": ""},
    "state": {"kind": "tag", "sorts_by": "state_name"},
    "peak": {"kind": "text", "sorts_by": "peak_bytes", "css": "c-peak"},
}
RANKS = tuple(
    table_column(column, **{"css": "", **_RANK_KINDS.get(column.key, {})})
    for column in columns.shown(RANK_COLUMNS, View.BROWSER)
)


def logged_names(epochs: Sequence[Measured]) -> list[str]:
    """Return the logged metrics that get a column."""
    return _metric_names(epochs)[:MAX_LOGGED]


def logged_left_out(epochs: Sequence[Measured]) -> str:
    """Return text that says how many logged metrics have a column; empty if all have one."""
    names = _metric_names(epochs)
    return left_out([(min(MAX_LOGGED, len(names)), len(names), METRICS)]).get("cut", "")


def _metric_names(epochs: Sequence[Measured]) -> list[str]:
    return list(dict.fromkeys(name for epoch in epochs[-LOGGED_EPOCHS:] for name in epoch.metrics))


def is_ongoing(epoch: EpochSummary, run: Values, *, is_live: bool) -> bool:
    """Whether an epoch is in progress; `is_live`: it is the current epoch in the ring."""
    has_ended = is_known(epoch.ended) or not (is_live or not is_known(epoch.seconds))
    return not has_ended and bool(run["state"] == "running")


def measured_so_far(epoch: EpochSummary, run: Values, *, is_live: bool) -> str:
    """Return text that says how much of an epoch in progress the measurements cover; empty for other epochs."""
    if not is_ongoing(epoch, run, is_live=is_live):
        return ""
    # The ledger's measurements of an open epoch are some seconds old; its duration comes from the ring.
    seconds = epoch.value("seconds") if epoch.is_open else NAN
    number = units.count(epoch.epoch)
    return (
        f"epoch {number}: measured for its first {units.fine_duration(seconds)}"
        if seconds >= 1.0
        else f"epoch {number}: not measured yet"
    )


def epoch_cells(
    epoch: EpochSummary, run: Values, maxima: Mapping[str, float] = NO_MAXIMA, *, outside: float = NAN,
    is_live: bool = False,
) -> Cells:  # fmt: skip
    """Return the cells of an epoch.

    `maxima`: by column; `outside`: its seconds outside training; `is_live`: it is the current epoch in the ring.
    `while` in a cell is the run's current epoch: the cell is outdated once the ring has another epoch.
    """
    is_current = is_ongoing(epoch, run, is_live=is_live)
    judgment = verdict(epoch, bool(run["state"] == "running"))
    within = {"while": run["epoch"]} if is_current and is_live and run.get("epoch") else {}
    begun = exact(epoch.begun, 3)
    last = epoch.epoch + epoch.merged - 1
    return {
        "key": str(epoch.ordinal),
        "ordinal": epoch.ordinal,
        "epoch": units.count(epoch.epoch) + (f"–{units.count(last)}" if epoch.merged > 1 else ""),
        "seconds": {"since": begun, **within} if is_current and begun is not None else shown(epoch.seconds),
        **_measured_cells(epoch, run, maxima),
        "beside": shown(outside),
        "verdict": {**cell, **within} if (cell := _verdict_cell(judgment)) else None,
        "verdict_text": judgment.text if judgment else None,
        "search": f"{epoch.epoch} {units.count(epoch.epoch)} {judgment.text if judgment else ''}".lower(),
    }


def fold_cells(
    fold: Fold, run: Values, maxima: Mapping[str, float] = NO_MAXIMA, outside: Mapping[int, float] = NO_MAXIMA
) -> Cells:
    """Return the cells of folded epochs; `first` and `last` are the ordinals that the row covers."""
    first, last = fold.epochs[0], fold.epochs[-1]
    key = f"fold {first.ordinal}"
    return {
        "key": key,
        "first": first.ordinal,
        "last": last.ordinal,
        "count": len(fold.epochs),
        "epoch": {"opens": key, "text": f"{units.count(first.epoch)}–{units.count(last.epoch)}"},
        "seconds": shown(fold.number("seconds")),
        **_measured_cells(fold, run, maxima),
        "beside": shown(mean(outside.get(epoch.ordinal, NAN) for epoch in fold.epochs)),
        "verdict": _verdict_cell(fold.verdict),
    }


def part_cells(part: Part, place: int, run: Values, last: int, maxima: Mapping[str, float] = NO_MAXIMA) -> Cells:
    """Return the cells of a part of a run that is no epoch.

    `place`: its place among the parts; `last`: ordinal of the last epoch.
    """
    summary = part.summary
    has_training = part.is_steps and summary.trained > 0
    return {
        "key": f"part {place}",
        "ordinal": last + 1 + place,
        "epoch": part.title,
        "seconds": shown(summary.seconds),
        "beside": shown(max(0.0, summary.seconds - summary.trained)) if has_training else None,
        **_measured_cells(summary, run, maxima),
        "verdict": None,
        "verdict_text": None,
        "search": part.title.lower(),
    }


def _verdict_cell(judgment: Verdict | None) -> Cells | None:
    """Return a verdict as a tag, or as muted text if it is fine."""
    if judgment is None:
        return None
    if judgment.kind == FINE:
        return text(judgment.text, "mut")
    label = tag(judgment.text, SEVERITY_LEVELS[judgment.severity])
    return running_tag(label) if judgment.kind == "running" else label


def _plain_cells(row: Measured, maxima: Mapping[str, float]) -> Iterator[tuple[str, Any]]:
    """Yield the cells of columns that show plain numbers."""
    for column in _PLAIN_COLUMNS:
        number = row.number(column.key)
        if _is_text(column):
            yield f"{column.key}_value", shown(number)
            yield column.key, column.write(number, maxima.get(column.key, number))
        else:
            yield column.key, shown(number)


def _measured_cells(row: Measured, run: Values, maxima: Mapping[str, float]) -> Cells:
    sign, peak = live_peak(row)
    utilization, idle = row.number("utilization_mean"), row.number("idle_share")
    is_final = not any(epoch_text.sign("utilization_mean", epoch) == ABOUT for epoch in _epochs(row))
    # An empty bar would look like 0 %.
    bars = [bar(share(utilization, user=run["user"] or ""))] if is_known(utilization) else []
    return {
        **dict(_plain_cells(row, maxima)),
        "utilization": [line(text(_share_text(utilization, is_final)), *bars, css="meter")],
        "utilization_mean": shown(utilization),
        "idle": _share_text(idle, is_final),
        "idle_share": shown(idle),
        "wait": shown(row.number("wait_share")),
        "peak": f"{sign}{units.number(peak, Unit.BYTES)}",
        "peak_bytes": shown(peak),
        "energy": energy({key: shown(row.number(key)) for key in ("energy", "energy_least")}),
        "logged": metrics_to_json(row.metrics),
    }


def _epochs(row: Measured) -> Sequence[EpochSummary]:
    return row.epochs if isinstance(row, Fold) else (row,)


def _share_text(value: float, is_final: bool) -> str:
    return units.about(units.number(value, Unit.RATIO), is_final=is_final)


def live_peak(row: Measured) -> tuple[str, float]:
    """Return the memory peak of an epoch (bytes), with `≤ ` or `≥ ` if it is only an upper or lower bound.

    The peak of an open epoch is a lower bound. NaN if nothing is known.
    """
    so_far = "≥ " if any(epoch.is_open for epoch in _epochs(row)) else ""
    peak, allocated, used = row.live_peak, row.number("run_allocated_peak"), row.number("memory_used_peak")
    if is_known(peak.value):
        return so_far if peak.reached and peak.value > 0 else "≤ ", peak.value
    if is_known(allocated):
        return "≥ ", allocated
    if not is_known(used):
        return "", NAN
    return "≥ " if any(map(is_partly_sampled, _epochs(row))) else so_far, used


def peak_title(rows: Iterable[Measured]) -> str:
    """Return the heading for the peaks of these rows, tensors or device; empty if the rows differ."""
    kinds = {
        is_known(row.live_peak.value) or is_known(row.number("run_allocated_peak"))
        for row in rows
        if is_known(live_peak(row)[1])
    }
    return "" if len(kinds) != 1 else TENSORS if kinds.pop() else DEVICE


def rank_cells(row: Cells) -> Cells:
    """Return the cells of a rank."""
    return {
        "key": row["key"],
        "rank": str(row["rank"]),
        "state": run_state(row["state"]),
        "state_name": row["state"],
        "gpus": ", ".join(str(gpu["index"]) for gpu in row["gpus"]) or units.MISSING,
        "peak": units.limited(_number(row["peak"]), Unit.BYTES, _rank_peak_sign(row)),
        "peak_bytes": row["peak"],
        **{name: row[name] for name in ("pid", "steps", "wait", "ooms")},
    }


def _rank_peak_sign(row: Cells) -> str:
    if row.get("peak_reached") is False:
        return "≤ "
    return "≥ " if row["state"] == "running" else ""


def _number(value: Any) -> float:
    return NAN if value is None else float(value)
