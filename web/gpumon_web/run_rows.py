"""The tables of a run's page: its epochs and its ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpumon.common.numbers import NAN
from gpumon.diagnosis.past import FINE
from gpumon.model import units
from gpumon.model.columns import BY_KEY
from gpumon.model.metrics import Unit
from gpumon_web.charts import METRICS, left_out
from gpumon_web.page import Cells, Column
from gpumon_web.tokens import bar, energy, going_on, line, run_state, share, tag, text

TENSORS, DEVICE = (BY_KEY[key].title for key in ("framework_peak", "memory_used_peak"))
"""Headings of the peaks of live tensors, and of all memory of a device."""
LOGGED = 4
"""Logged metrics that have a column, of those in the newest epochs."""
NEWEST = 50
"""These epochs."""

EPOCHS = (
    Column("epoch", "Epoch", "opening", sorts_by="ordinal", is_head=True, titled="epoch_column"),
    Column("seconds", "Time", "lasting", css="c-took"),
    Column("counted", "", each_of="counted_names", is_number=True),
    Column("utilization", "Utilization", "rich", sorts_by="utilization_mean", is_number=True, css="c-use"),
    Column(
        "idle", "Idle", help="Share of the time in which no kernel ran; ≈ until the driver's last samples have come",
        sorts_by="idle_share", is_number=True, css="c-extra c-less",
    ),
    Column(
        "wait", "Waits for data", "percent", "Share of the time during which it was measured; – if it was not measured",
        css="c-wait",
    ),
    Column("beside", "Not training", "duration", "Time in phases other than training", css="c-extra c-less"),
    Column(
        "peak", "Peak memory", help="Of live tensors by the framework's own counter (≤: reached before), or as read "
        "between steps, or up to now (≥); else of the device", sorts_by="peak_bytes", is_number=True, css="c-extra",
        titled="peak_column",
    ),
    Column("energy", "Energy", "joules", most="most_energy", css="c-extra c-rare"),
    Column("logged", "Logged", "logged", css="logged", each_of="logged_names"),
    Column("verdict", "Verdict", "tag", sorts_by="verdict_text", css="c-verdict"),
)  # fmt: skip
COUNTED = ("Steps", "Steps/s")
"""Columns of a run without epochs."""
NUMBERED = 80
"""Letters of the numbers of epochs in a sentence."""
RANKS = (
    Column("rank", "Rank", is_head=True),
    Column("state", "State", "tag", sorts_by="state_name"),
    Column("gpus", "GPU"),
    Column("pid", "PID", is_number=True),
    Column("steps", "Steps", "count"),
    Column("wait", "Waits for data", "duration"),
    Column(
        "peak",
        TENSORS,
        help="By the framework's own counter; ≥ while the rank goes on",
        sorts_by="peak_bytes",
        is_number=True,
        css="c-peak",
    ),
    Column("ooms", "Out of memory", "count"),
)


def logged_names(epochs: Sequence[Cells]) -> list[str]:
    """The logged metrics that get a column."""
    return _logged(epochs)[:LOGGED]


def logged_left_out(epochs: Sequence[Cells]) -> str:
    """How many logged metrics have a column, where not all of them have; else empty."""
    names = _logged(epochs)
    return left_out([(min(LOGGED, len(names)), len(names), METRICS)]).get("cut", "")


def _logged(epochs: Sequence[Cells]) -> list[str]:
    return list(dict.fromkeys(name for one in epochs[-NEWEST:] for name in one["metrics"]))


def is_ongoing(one: Cells, run: Cells, *, is_live: bool) -> bool:
    """Whether an epoch goes on; `is_live`: the ring tells that its run is in it."""
    return (is_live or one["seconds"] is None) and one["ended"] is None and bool(run["state"] == "running")


def measured_so_far(one: Cells, run: Cells, *, is_live: bool) -> str:
    """Of how much of an epoch that goes on the measurements beside its time are; empty of others."""
    if not is_ongoing(one, run, is_live=is_live):
        return ""
    seconds = one.get("measured_seconds") or 0.0
    number = units.count(one["epoch"])
    return (
        f"epoch {number}: measured for its first {units.brief(seconds)}"
        if seconds >= 1.0
        else (f"epoch {number}: not measured yet")
    )


def epoch(one: Cells, run: Cells, *, is_live: bool = False) -> Cells:
    """The cells of an epoch; `is_live`: the ring tells that its run is in it.

    `while` in a cell is the epoch of the run then: once the ring tells another one, the cell is outdated.
    """
    goes_on = is_ongoing(one, run, is_live=is_live)
    judged = one["verdict"]
    within = {"while": run["epoch"]} if goes_on and is_live and run.get("epoch") else {}
    return {
        "key": str(one["ordinal"]),
        "ordinal": one["ordinal"],
        "epoch": units.count(one["epoch"]),
        "seconds": {"since": one["begun"], **within} if goes_on and one["begun"] is not None else one["seconds"],
        "counted": {},
        **_measured(one, run),
        "beside": one["beside"],
        "verdict": {**verdict, **within} if (verdict := _verdict(judged)) else None,
        "verdict_text": judged["text"] if judged else None,
        "search": f"{one['epoch']} {units.count(one['epoch'])} {judged['text'] if judged else ''}".lower(),
    }


def fold(one: Cells, run: Cells) -> Cells:
    """The cells of epochs that are as one row: `first` and `last` are the ordinals that it stands for."""
    judged, numbers = one["verdict"], one["epochs"]
    key = f"fold {one['first']}"
    return {
        "key": key,
        "first": one["first"],
        "last": one["last"],
        "count": one["count"],
        "epoch": {"opens": key, "text": "–".join(map(units.count, numbers))},
        "seconds": one["seconds"],
        "counted": {},
        **_measured(one, run),
        "beside": one["beside"],
        "verdict": _verdict(judged),
    }


def stretch(one: Cells, run: Cells, last: int) -> Cells:
    """The cells of a row of steps, of a part of a run outside epochs, or of the whole; `last`: ordinal of an epoch."""
    steps, rate = one["steps"], one["steps_per_second"]
    told = (units.count(steps), units.MISSING if rate is None else units.figures(rate))
    return {
        "key": f"part {one['place']}",
        "ordinal": last + 1 + one["place"],
        "epoch": one["title"],
        "seconds": one["seconds"],
        "counted": dict(zip(COUNTED, told, strict=True)),
        "beside": one["beside"],
        **_measured(one, run),
        "verdict": None,
        "verdict_text": None,
        "search": one["title"].lower(),
    }


def _verdict(judged: Cells | None) -> Cells | None:
    """A tag for news; what is as it should be recedes."""
    if judged is None:
        return None
    if judged["kind"] == FINE:
        return text(judged["text"], "mut")
    found = tag(judged["text"], judged["level"])
    return going_on(found) if judged["kind"] == "running" else found


def _measured(one: Cells, run: Cells) -> Cells:
    sign, peak = live_peak(one)
    utilization, is_final = one["utilization_mean"], not one.get("is_settling")
    # An empty bar would be 0 %.
    known = [] if utilization is None else [bar(share(utilization, user=run["user"] or ""))]
    meter = [text(_share(utilization, is_final)), *known]
    return {
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
    """The peak of an epoch's memory in bytes, and `≤ ` or `≥ ` where it is no more or no less than that.

    What has not ended may reach more.
    """
    so_far = "≥ " if one.get("is_open") else ""
    if one["framework_peak"] is not None:
        return so_far if one["framework_peak_reached"] else "≤ ", one["framework_peak"]
    if one["run_allocated_peak"] is not None:
        return "≥ ", one["run_allocated_peak"]
    used = one["memory_used_peak"]
    return "" if used is None else "≥ " if one.get("is_partly_sampled") else so_far, used


def peak_title(rows: Sequence[Cells]) -> str:
    """The heading over the peaks of these rows, which says of what they are; empty where that differs."""
    known = [one for one in rows if live_peak(one)[1] is not None]
    found = {one["framework_peak"] is not None or one["run_allocated_peak"] is not None for one in known}
    return "" if len(found) != 1 else TENSORS if found.pop() else DEVICE


def rank(one: Cells) -> Cells:
    """The cells of a rank."""
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
