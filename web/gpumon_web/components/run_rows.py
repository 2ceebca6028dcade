"""Columns and cells of the tables on a run's page: epochs and ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from gpumon.common.numbers import NAN
from gpumon.diagnosis.past_findings import FINE
from gpumon.model import units
from gpumon.model.columns import BY_KEY, View, shown
from gpumon.model.columns import EPOCHS as COLUMNS
from gpumon.model.columns import RANKS as RANK_COLUMNS
from gpumon.model.columns import Column as ModelColumn
from gpumon.model.metrics import Unit
from gpumon.reports.figures.document import METRICS, left_out
from gpumon_web.components.page import Cells, Column, table_column
from gpumon_web.components.tokens import bar, energy, line, run_state, running_tag, share, tag, text

TENSORS, DEVICE = (BY_KEY[key].title for key in ("framework_peak", "memory_used_peak"))
"""Headings for the peak of live tensors, and the peak of all memory of a device."""
MAX_LOGGED = 4
"""Most logged metrics with a column of their own."""
LOGGED_EPOCHS = 50
"""Number of newest epochs whose logged metrics can get a column."""
NO_MAXIMA: Mapping[str, float] = MappingProxyType({})

MEASURED = shown(COLUMNS, View.BROWSER)
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


def largest_values(rows: Sequence[Cells]) -> Mapping[str, float]:
    """Return the largest number of each plain column by key; columns without values are left out."""
    values_by_key = {
        column.key: [row[column.key] for row in rows if row.get(column.key) is not None] for column in _PLAIN_COLUMNS
    }
    return {key: max(values) for key, values in values_by_key.items() if values}


_RANK_KINDS: Mapping[str, Mapping[str, Any]] = {
    "rank": {"is_head": True, "css": ""},
    "state": {"kind": "tag", "sorts_by": "state_name"},
    "peak": {"kind": "text", "sorts_by": "peak_bytes", "css": "c-peak"},
}
RANKS = tuple(
    table_column(column, **{"css": "", **_RANK_KINDS.get(column.key, {})})
    for column in shown(RANK_COLUMNS, View.BROWSER)
)


def logged_names(epochs: Sequence[Cells]) -> list[str]:
    """Return the logged metrics that get a column."""
    return _metric_names(epochs)[:MAX_LOGGED]


def logged_left_out(epochs: Sequence[Cells]) -> str:
    """Return text that says how many logged metrics have a column; empty if all have one."""
    names = _metric_names(epochs)
    return left_out([(min(MAX_LOGGED, len(names)), len(names), METRICS)]).get("cut", "")


def _metric_names(epochs: Sequence[Cells]) -> list[str]:
    return list(dict.fromkeys(name for row in epochs[-LOGGED_EPOCHS:] for name in row["metrics"]))


def is_ongoing(row: Cells, run: Cells, *, is_live: bool) -> bool:
    """Whether an epoch is in progress; `is_live`: it is the current epoch in the ring."""
    return (is_live or row["seconds"] is None) and row["ended"] is None and bool(run["state"] == "running")


def measured_so_far(row: Cells, run: Cells, *, is_live: bool) -> str:
    """Return text that says how much of an epoch in progress the measurements cover; empty for other epochs."""
    if not is_ongoing(row, run, is_live=is_live):
        return ""
    seconds = row.get("measured_seconds") or 0.0
    number = units.count(row["epoch"])
    return (
        f"epoch {number}: measured for its first {units.fine_duration(seconds)}"
        if seconds >= 1.0
        else f"epoch {number}: not measured yet"
    )


def epoch_cells(row: Cells, run: Cells, maxima: Mapping[str, float] = NO_MAXIMA, *, is_live: bool = False) -> Cells:
    """Return the cells of an epoch; `maxima`: by column; `is_live`: it is the current epoch in the ring.

    `while` in a cell is the run's current epoch: the cell is outdated once the ring has another epoch.
    """
    is_current = is_ongoing(row, run, is_live=is_live)
    judgment = row["verdict"]
    within = {"while": run["epoch"]} if is_current and is_live and run.get("epoch") else {}
    return {
        "key": str(row["ordinal"]),
        "ordinal": row["ordinal"],
        "epoch": _epoch_number(row),
        "seconds": {"since": row["begun"], **within} if is_current and row["begun"] is not None else row["seconds"],
        **_measured_cells(row, run, maxima),
        "beside": row["beside"],
        "verdict": {**verdict, **within} if (verdict := _verdict_cell(judgment)) else None,
        "verdict_text": judgment["text"] if judgment else None,
        "search": f"{row['epoch']} {units.count(row['epoch'])} {judgment['text'] if judgment else ''}".lower(),
    }


def _epoch_number(row: Cells) -> str:
    """Return the number of an epoch, or of the first and last epoch if the row has several merged ones."""
    first, last = row["epoch"], row["epoch"] + row.get("merged", 1) - 1
    return units.count(first) if first == last else f"{units.count(first)}–{units.count(last)}"


def fold_cells(row: Cells, run: Cells, maxima: Mapping[str, float] = NO_MAXIMA) -> Cells:
    """Return the cells of folded epochs; `first` and `last` are the ordinals that the row covers."""
    judgment, numbers = row["verdict"], row["epochs"]
    key = f"fold {row['first']}"
    return {
        "key": key,
        "first": row["first"],
        "last": row["last"],
        "count": row["count"],
        "epoch": {"opens": key, "text": "–".join(map(units.count, numbers))},
        "seconds": row["seconds"],
        **_measured_cells(row, run, maxima),
        "beside": row["beside"],
        "verdict": _verdict_cell(judgment),
    }


def stretch_cells(row: Cells, run: Cells, last: int, maxima: Mapping[str, float] = NO_MAXIMA) -> Cells:
    """Return the cells of a row that covers the time outside epochs or the whole run, rather than an epoch.

    `last`: ordinal of the last epoch.
    """
    return {
        "key": f"part {row['place']}",
        "ordinal": last + 1 + row["place"],
        "epoch": row["title"],
        "seconds": row["seconds"],
        "beside": row["beside"],
        **_measured_cells(row, run, maxima),
        "verdict": None,
        "verdict_text": None,
        "search": row["title"].lower(),
    }


def _verdict_cell(verdict: Cells | None) -> Cells | None:
    """Return a verdict as a tag, or as muted text if it is fine."""
    if verdict is None:
        return None
    if verdict["kind"] == FINE:
        return text(verdict["text"], "mut")
    label = tag(verdict["text"], verdict["level"])
    return running_tag(label) if verdict["kind"] == "running" else label


def _plain_cells(row: Cells, maxima: Mapping[str, float]) -> Iterator[tuple[str, Any]]:
    """Yield the cells of columns that show plain numbers."""
    for column in _PLAIN_COLUMNS:
        value = row.get(column.key)
        if _is_text(column):
            yield f"{column.key}_value", value
            number = _number(value)
            yield column.key, column.write(number, maxima.get(column.key, number))
        else:
            yield column.key, value


def _measured_cells(row: Cells, run: Cells, maxima: Mapping[str, float]) -> Cells:
    sign, peak = live_peak(row)
    utilization, is_final = row["utilization_mean"], not row.get("is_about")
    # An empty bar would look like 0 %.
    bars = [] if utilization is None else [bar(share(utilization, user=run["user"] or ""))]
    meter = [text(_share_text(utilization, is_final)), *bars]
    return {
        **dict(_plain_cells(row, maxima)),
        "utilization": [line(*meter, css="meter")],
        "utilization_mean": utilization,
        "idle": _share_text(row["idle_share"], is_final),
        "idle_share": row["idle_share"],
        "wait": row["wait_share"],
        "peak": f"{sign}{units.number(_number(peak), Unit.BYTES)}",
        "peak_bytes": peak,
        "energy": energy(row),
        "logged": row["metrics"],
    }


def _share_text(value: float | None, is_final: bool) -> str:
    return units.about(units.number(_number(value), Unit.RATIO), is_final=is_final)


def live_peak(row: Cells) -> tuple[str, float | None]:
    """Return the memory peak of an epoch (bytes), with `≤ ` or `≥ ` if it is only an upper or lower bound.

    The peak of an open epoch is a lower bound.
    """
    so_far = "≥ " if row.get("is_open") else ""
    if row["framework_peak"] is not None:
        return so_far if row["framework_peak_reached"] else "≤ ", row["framework_peak"]
    if row["run_allocated_peak"] is not None:
        return "≥ ", row["run_allocated_peak"]
    used = row["memory_used_peak"]
    return "" if used is None else "≥ " if row.get("is_partly_sampled") else so_far, used


def peak_title(rows: Sequence[Cells]) -> str:
    """Return the heading for the peaks of these rows, tensors or device; empty if the rows differ."""
    measured = [row for row in rows if live_peak(row)[1] is not None]
    kinds = {row["framework_peak"] is not None or row["run_allocated_peak"] is not None for row in measured}
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
