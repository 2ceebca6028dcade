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
from gpumon.model.columns import Column as Described
from gpumon.model.metrics import Unit
from gpumon_web.charts.document import METRICS, left_out
from gpumon_web.components.page import Cells, Column, described
from gpumon_web.components.tokens import bar, energy, going_on, line, run_state, share, tag, text

TENSORS, DEVICE = (BY_KEY[key].title for key in ("framework_peak", "memory_used_peak"))
"""Headings for the peak of live tensors, and the peak of all memory of a device."""
LOGGED = 4
"""Most logged metrics with a column of their own."""
NEWEST = 50
"""Number of newest epochs whose logged metrics can get a column."""
NOTHING: Mapping[str, float] = MappingProxyType({})

MEASURED = shown(COLUMNS, View.BROWSER)
"""Columns of the table of epochs with a measured value per epoch."""
_OWN = {
    "seconds": described(BY_KEY["seconds"], "lasting", css="c-took"),
    "utilization_mean": described(
        BY_KEY["utilization_mean"], "rich", key="utilization", sorts_by="utilization_mean", css="c-use"
    ),
    "wait_share": described(BY_KEY["wait_share"], key="wait", css="c-wait"),
    "idle_share": described(BY_KEY["idle_share"], "text", key="idle", sorts_by="idle_share", css="c-extra c-less"),
    "energy": described(BY_KEY["energy"], most="most_energy", css="c-extra c-rare"),
    "framework_peak": described(
        BY_KEY["framework_peak"], "text", key="peak", sorts_by="peak_bytes", css="c-extra", titled="peak_column"
    ),
}
"""Columns that are not shown as plain numbers of their unit."""
STEP_COLUMNS = ("steps", "steps_per_second")
"""Columns only shown for a run without epochs; otherwise the table has no room for them."""
_PLAIN = tuple(column for column in MEASURED if column.key not in _OWN)


def _plain(column: Described) -> Column:
    """Create a column that is only shown if some row has a value."""
    return described(column, sorts_by=f"{column.key}_value" if _is_written(column) else "", needs=f"has_{column.key}")


def _is_written(column: Described) -> bool:
    """Whether its numbers are formatted as text by Python."""
    return described(column).kind == "text"


EPOCHS = (
    described(BY_KEY["epoch"], "opening", sorts_by="ordinal", is_head=True, titled="epoch_column", css=""),
    *(_OWN.get(column.key) or _plain(column) for column in MEASURED),
    described(BY_KEY["beside"], css="c-extra c-less"),
    Column("logged", "Logged", "logged", css="logged", each_of="logged_names"),
    described(BY_KEY["verdict"], "tag", sorts_by="verdict_text", css="c-verdict"),
)
NEEDED = tuple(column.needs for column in EPOCHS if column.needs)
"""Names of the values without which columns are hidden."""


def largest(rows: Sequence[Cells]) -> Mapping[str, float]:
    """Return the largest number of each plain column by key; columns without values are left out."""
    known = {column.key: [row[column.key] for row in rows if row.get(column.key) is not None] for column in _PLAIN}
    return {key: max(values) for key, values in known.items() if values}


NUMBERED = 80
"""Longest list of epoch numbers in a sentence, in characters."""
_RANK_KINDS: Mapping[str, Mapping[str, Any]] = {
    "rank": {"is_head": True, "css": ""},
    "state": {"kind": "tag", "sorts_by": "state_name"},
    "peak": {"kind": "text", "sorts_by": "peak_bytes", "css": "c-peak"},
}
RANKS = tuple(
    described(column, **{"css": "", **_RANK_KINDS.get(column.key, {})}) for column in shown(RANK_COLUMNS, View.BROWSER)
)


def logged_names(epochs: Sequence[Cells]) -> list[str]:
    """Return the logged metrics that get a column."""
    return _logged(epochs)[:LOGGED]


def logged_left_out(epochs: Sequence[Cells]) -> str:
    """Return a text on how many logged metrics have a column; empty if all have one."""
    names = _logged(epochs)
    return left_out([(min(LOGGED, len(names)), len(names), METRICS)]).get("cut", "")


def _logged(epochs: Sequence[Cells]) -> list[str]:
    return list(dict.fromkeys(name for one in epochs[-NEWEST:] for name in one["metrics"]))


def is_ongoing(one: Cells, run: Cells, *, is_live: bool) -> bool:
    """Whether an epoch is in progress; `is_live`: it is the current epoch in the ring."""
    return (is_live or one["seconds"] is None) and one["ended"] is None and bool(run["state"] == "running")


def measured_so_far(one: Cells, run: Cells, *, is_live: bool) -> str:
    """Return a text on how much of an epoch in progress the measurements cover; empty for other epochs."""
    if not is_ongoing(one, run, is_live=is_live):
        return ""
    seconds = one.get("measured_seconds") or 0.0
    number = units.count(one["epoch"])
    return (
        f"epoch {number}: measured for its first {units.fine_duration(seconds)}"
        if seconds >= 1.0
        else (f"epoch {number}: not measured yet")
    )


def epoch(one: Cells, run: Cells, most: Mapping[str, float] = NOTHING, *, is_live: bool = False) -> Cells:
    """Return the cells of an epoch; `most`: each column's maximum; `is_live`: it is the current epoch in the ring.

    `while` in a cell is the run's epoch at that time: the cell is outdated once the ring has another one.
    """
    goes_on = is_ongoing(one, run, is_live=is_live)
    judged = one["verdict"]
    within = {"while": run["epoch"]} if goes_on and is_live and run.get("epoch") else {}
    return {
        "key": str(one["ordinal"]),
        "ordinal": one["ordinal"],
        "epoch": units.count(one["epoch"]),
        "seconds": {"since": one["begun"], **within} if goes_on and one["begun"] is not None else one["seconds"],
        **_measured(one, run, most),
        "beside": one["beside"],
        "verdict": {**verdict, **within} if (verdict := _verdict(judged)) else None,
        "verdict_text": judged["text"] if judged else None,
        "search": f"{one['epoch']} {units.count(one['epoch'])} {judged['text'] if judged else ''}".lower(),
    }


def fold(one: Cells, run: Cells, most: Mapping[str, float] = NOTHING) -> Cells:
    """Return the cells of folded epochs; `first` and `last` are the ordinals that the row covers."""
    judged, numbers = one["verdict"], one["epochs"]
    key = f"fold {one['first']}"
    return {
        "key": key,
        "first": one["first"],
        "last": one["last"],
        "count": one["count"],
        "epoch": {"opens": key, "text": "–".join(map(units.count, numbers))},
        "seconds": one["seconds"],
        **_measured(one, run, most),
        "beside": one["beside"],
        "verdict": _verdict(judged),
    }


def stretch(one: Cells, run: Cells, last: int, most: Mapping[str, float] = NOTHING) -> Cells:
    """Return the cells of a row of steps, outside epochs or of the whole run; `last`: ordinal of the last epoch."""
    return {
        "key": f"part {one['place']}",
        "ordinal": last + 1 + one["place"],
        "epoch": one["title"],
        "seconds": one["seconds"],
        "beside": one["beside"],
        **_measured(one, run, most),
        "verdict": None,
        "verdict_text": None,
        "search": one["title"].lower(),
    }


def _verdict(judged: Cells | None) -> Cells | None:
    """Return a verdict as a tag, or as muted text if it is fine."""
    if judged is None:
        return None
    if judged["kind"] == FINE:
        return text(judged["text"], "mut")
    found = tag(judged["text"], judged["level"])
    return going_on(found) if judged["kind"] == "running" else found


def _plain_cells(one: Cells, most: Mapping[str, float]) -> Iterator[tuple[str, Any]]:
    """Yield the cells of columns that show plain numbers."""
    for column in _PLAIN:
        value = one.get(column.key)
        if _is_written(column):
            yield f"{column.key}_value", value
            number = _number(value)
            yield column.key, column.write(number, most.get(column.key, number))
        else:
            yield column.key, value


def _measured(one: Cells, run: Cells, most: Mapping[str, float]) -> Cells:
    sign, peak = live_peak(one)
    utilization, is_final = one["utilization_mean"], not one.get("is_settling")
    # An empty bar would look like 0 %.
    known = [] if utilization is None else [bar(share(utilization, user=run["user"] or ""))]
    meter = [text(_share(utilization, is_final)), *known]
    return {
        **dict(_plain_cells(one, most)),
        "utilization": [line(*meter, css="meter")],
        "utilization_mean": utilization,
        "idle": _share(one["idle_share"], is_final),
        "idle_share": one["idle_share"],
        "wait": one["wait_share"],
        "peak": f"{sign}{units.number(_number(peak), Unit.BYTES)}",
        "peak_bytes": peak,
        "energy": energy(one),
        "logged": one["metrics"],
    }


def _share(value: float | None, is_final: bool) -> str:
    return units.about(units.number(_number(value), Unit.RATIO), is_final=is_final)


def live_peak(one: Cells) -> tuple[str, float | None]:
    """Return the memory peak of an epoch (bytes), with `≤ ` or `≥ ` if it is only an upper or lower bound.

    The peak of an open epoch is a lower bound.
    """
    so_far = "≥ " if one.get("is_open") else ""
    if one["framework_peak"] is not None:
        return so_far if one["framework_peak_reached"] else "≤ ", one["framework_peak"]
    if one["run_allocated_peak"] is not None:
        return "≥ ", one["run_allocated_peak"]
    used = one["memory_used_peak"]
    return "" if used is None else "≥ " if one.get("is_partly_sampled") else so_far, used


def peak_title(rows: Sequence[Cells]) -> str:
    """Return the heading for the peaks of these rows, tensors or device; empty if the rows differ."""
    known = [one for one in rows if live_peak(one)[1] is not None]
    found = {one["framework_peak"] is not None or one["run_allocated_peak"] is not None for one in known}
    return "" if len(found) != 1 else TENSORS if found.pop() else DEVICE


def rank(one: Cells) -> Cells:
    """Return the cells of a rank."""
    return {
        "key": one["key"],
        "rank": str(one["rank"]),
        "state": run_state(one["state"]),
        "state_name": one["state"],
        "gpus": ", ".join(str(gpu["index"]) for gpu in one["gpus"]) or units.MISSING,
        "peak": units.limited(_number(one["peak"]), Unit.BYTES, "≥ " if one["state"] == "running" else ""),
        "peak_bytes": one["peak"],
        **{name: one[name] for name in ("pid", "steps", "wait", "ooms")},
    }


def _number(value: Any) -> float:
    return NAN if value is None else float(value)
