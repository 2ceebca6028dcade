"""One run: what it is and how far, its course with the epochs behind it, every epoch as a row, and its ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from gpumon import units
from gpumon.frame import NAN
from gpumon.metrics import Unit
from gpumon_web.page import Args, Cells, Column, KeptValues, Now, Page, Rows
from gpumon_web.tokens import bar, fact, line, person, run_name, run_state, share, tag, text

if TYPE_CHECKING:
    from dash.development.base_component import Component

LOGGED = 4
"""Logged metrics that have a column, of those in the newest epochs."""
NEWEST = 50
"""These epochs."""
NOTED = 20
"""Marks told of, the newest."""
GOES_ON, IS_OVER = 5.0, 600.0
"""Seconds between questions for a run; one that is over may be resumed, or its last epoch be kept late."""

EPOCHS = (
    Column("epoch", "Epoch", sorts_by="ordinal", is_head=True),
    Column("seconds", "Time", "lasting"),
    Column("utilization", "Utilization", "rich", sorts_by="utilization_mean", is_number=True),
    Column("idle", "Idle", "percent", "Share of the time in which no kernel ran"),
    Column(
        "wait", "Waits for data", "percent", "Share of the time during which it was measured; – if it was not measured"
    ),
    Column("beside", "Not training", "duration", "Time in phases other than training"),
    Column(
        "peak", "Peak memory", help="Of live tensors by the framework's own counter (≤: reached before), or as read "
        "between steps (≥); else of the device", sorts_by="peak_bytes", is_number=True,
    ),
    Column("energy", "Energy", "joules", most="most_energy"),
    Column("logged", "Logged", "logged", css="logged", each_of="logged_names"),
    Column("verdict", "Verdict", "tag", sorts_by="verdict_text"),
)  # fmt: skip
RANKS = (
    Column("rank", "Rank", is_head=True),
    Column("state", "State", "tag", sorts_by="state_name"),
    Column("gpus", "GPU"),
    Column("pid", "PID", "count"),
    Column("steps", "Steps", "count"),
    Column("wait", "Wait for data", "duration"),
    Column("peak", "Peak memory", "bytes"),
    Column("ooms", "Out of memory", "count"),
)


def layout() -> Component:
    """The head, five headlines, the course, what is noted, the epochs, and the ranks."""
    from dash import html

    from gpumon_web.parts import aria, bound, card, headline, headlines, hidden_if, kept_figure, shown_if, table

    head = [
        bound("title", "text", html.H1), bound("state", "tag"), bound("facts", "rich", className="facts"),
    ]  # fmt: skip
    numbers = headlines(
        headline("Epoch", "epoch", "text", "epoch_below", extra="bar", titled="epoch_is"),
        headline("Time left", "left", "span", "left_below", titled="left_is"),
        headline("Epoch time", "mean", "duration", "mean_range"),
        headline("Utilization", "utilization", "percent", "idle"),
        headline("Energy", "energy", "joules", "power"),
    )
    drawn = kept_figure(
        "course", "Timeline of this run", loading="Loading this run …",
        empty="No daemon has recorded the timeline of this run yet.", whole="Whole run",
    )  # fmt: skip
    devices = shown_if("devices", bound("devices", "choices", html.Div, className="seg", role="group",
                                        **aria(label="GPU")))  # fmt: skip
    epochs = table("epochs", "Epochs", EPOCHS, "epoch", down=True, css="epochs", loading="Loading the epochs …",
                   empty="No epoch has started yet.")  # fmt: skip
    return html.Div(
        [
            html.Div(head, className="head"),
            hidden_if("gone", numbers),
            hidden_if("gone", card("Course", drawn, tools=[devices])),
            shown_if("noted", card("Noted", bound("noted", "notes", html.Ul, className="look"))),
            hidden_if("gone", card("Epochs", epochs, tools=[bound("csv", "download")])),
            shown_if("has_ranks", card("Ranks", table("ranks", "Ranks", RANKS, "rank"))),
            bound("gone", "text", html.P, className="empty"),
        ]
    )


def live(now: Now, args: Args) -> Cells:
    """The values that the ring tells: name and state of a run, and its progress while it goes on."""
    run = now.runs.get(args.get("id", ""))
    if run is None:
        return dict.fromkeys(_LIVE)
    # What a run took comes from the ledger, a moment later; until then nothing may say that it goes on.
    far = going(run, now.time) if run["state"] == "running" else {"left_is": "Took"}
    return {**dict.fromkeys(_LIVE), "title": run_name(run), "state": run_state(run["state"]), **far}


def going(run: Cells, time: float) -> Cells:
    """The progress of a run at `time`; its epoch and phase only where the ring tells them."""
    return {
        "epoch_is": "Epoch",
        "epoch": run.get("epoch") or None,
        "epoch_below": run.get("phase") or None,
        "bar": _bar(run),
        "left_is": "Time left",
        "left": units.MISSING if run.get("left") is None else run["left"],
        "left_below": f"{units.words(time - _number(run['started']))} so far",
    }


def kept(document: Cells) -> KeptValues:
    """All of a run that the ledger keeps, and what the ring told of it meanwhile."""
    if document["run"] is None:
        gone = (
            f"No run here has the id {document['id']}. It may have been removed from the ledger, or belong to another "
            "server."
        )
        values = {**dict.fromkeys(_KEPT), "title": "No such run", "gone": gone, "epochs": Rows(), "ranks": Rows()}
        return KeptValues(values, {"course": None}, again=IS_OVER)
    run = {**document["run"], **(document.get("live") or {})}
    is_running = run["state"] == "running"
    found, summary, ranks = document["epochs"], document.get("summary") or {}, document["ranks"]
    devices = document["devices"]
    noted = [note(mark, ranks) for mark in document["marks"] if mark["mark"] == "out_of_memory"]
    values = {
        "title": run_name(run),
        "state": run_state(run["state"]),
        "facts": facts(run),
        **far(document, run),
        "mean": summary.get("mean"),
        "mean_range": _range(summary),
        **usage(document.get("total") or {}),
        "noted": noted[-NOTED:][::-1],
        "has_ranks": bool(ranks),
        "ranks": Rows(rank(one) for one in ranks),
        "logged_names": logged_names(found),
        "most_energy": summary.get("most_energy") or 0,
        "epochs": Rows(epoch(one, run) for one in found),
        "csv": {"text": "Download as CSV", "href": f"api/run.csv?id={quote(run['id'], safe='')}"} if found else None,
        "devices": [choice(one, document["device"]) for one in devices] if len(devices) > 1 else [],
        "gone": "",
    }
    return KeptValues(
        values, {"course": course(document)}, {"epochs": document.get("epochs_total", 0)},
        GOES_ON if is_running else IS_OVER,
    )  # fmt: skip


def rest(document: Cells) -> KeptValues:
    """Every epoch of a run."""
    return KeptValues({"epochs": Rows(epoch(one, document["run"]) for one in document["epochs"])})


def far(document: Cells, run: Cells) -> Cells:
    """Epoch and time left of a run that goes on; of one that is over, its number of epochs and how long it took."""
    summary, found, planned = document.get("summary") or {}, document["epochs"], run.get("epochs_planned")
    # The number of the last epoch is another than how many there were, where they count from 0.
    done = f"{summary.get('done') or 0}{f' of {planned}' if planned else ''}"
    if run["state"] == "running":
        last = str(found[-1]["epoch"]) if found else units.MISSING
        kept = {**going(run, document["now"]), "epoch": last, "epoch_below": f"{done} done"}
        # The ring tells these as long as they are so; what it told once would outlast the run.
        return {**kept, "left": units.MISSING, "left_below": ""} if document.get("live") else kept
    ended = run.get("ended")
    return {
        "epoch_is": "Epochs done",
        "epoch": done,
        "epoch_below": f"last: epoch {found[-1]['epoch']}" if found else "",
        "bar": _bar(run),
        "left_is": "Took",
        "left": document["run"].get("seconds"),
        "left_below": {"text": "ended", "time": ended} if ended is not None else "end not recorded",
    }


def facts(run: Cells) -> list[Cells]:
    """The owner of a run, what it runs with, where, and since when."""
    found = [
        fact("id", run["id"]), fact("with", run.get("framework")), fact("on", run.get("hostname")),
        fact("since", "", run.get("started")), fact("resumes", run.get("resumes")),
    ]  # fmt: skip
    return [person(run["user"] or ""), *(one for one in found if one is not None)]


def usage(total: Cells) -> Cells:
    """The usage of a whole run."""
    idle, power = total.get("idle_share"), total.get("power_mean")
    return {
        "utilization": total.get("utilization_mean"),
        "idle": "" if idle is None else f"idle {units.number(idle, Unit.RATIO)} of the time",
        "energy": total.get("energy"),
        "power": "" if power is None else f"{units.number(power, Unit.WATTS)} on average",
    }


def course(document: Cells) -> Cells | None:
    """The figure, with phases other than training shaded as far as it reaches; None where nothing can be drawn."""
    figure: Cells | None = document.get("figure")
    if not figure or not figure["data"]:
        return None
    _, end = figure["layout"]["xaxis"].get("range") or (None, None)
    shades = [
        {
            "type": "rect", "xref": "x", "yref": "paper", "x0": begin * 1000,
            "x1": end if last is None else last * 1000, "y0": 0, "y1": 1,
            "fillcolor": "@warn/0.1", "line": {"width": 0}, "layer": "below",
        }
        for begin, last, _ in document.get("phases") or ()
        if last is not None or (end is not None and begin * 1000 < end)
    ]  # fmt: skip
    layout = figure["layout"]
    return {**figure, "layout": {**layout, "shapes": [*(layout.get("shapes") or ()), *shades]}}


def choice(device: Cells, shown: str | None) -> Cells:
    """A button for one of the devices."""
    return {
        "arg": "gpu", "value": device["uuid"], "text": f"GPU {device['index']}", "title": device["name"],
        "is_pressed": device["uuid"] == shown,
    }  # fmt: skip


def note(mark: Cells, ranks: Sequence[Cells]) -> Cells:
    """A sentence about a failed allocation."""
    who = f"rank {mark['rank']}, " if mark["rank"] is not None and len(ranks) > 1 else ""
    asked, free = (units.number(_number(mark[name]), Unit.BYTES) for name in ("asked", "free"))
    where = f"{who}epoch {mark['epoch']}, step {mark['step']}"
    return {
        "level": "bad", "about": "out of memory", "text": f"{where}: requested {asked}, {free} free",
        "time": mark["time"],
    }  # fmt: skip


def logged_names(epochs: Sequence[Cells]) -> list[str]:
    """The logged metrics that get a column."""
    return list(dict.fromkeys(name for one in epochs[-NEWEST:] for name in one["metrics"]))[:LOGGED]


def epoch(one: Cells, run: Cells) -> Cells:
    """The cells of an epoch."""
    goes_on = one["seconds"] is None and one["ended"] is None and run["state"] == "running"
    sign, peak = live_peak(one)
    utilization = one["utilization_mean"]
    meter = [text(units.number(_number(utilization), Unit.RATIO)), bar(share(utilization or 0, user=run["user"] or ""))]
    return {
        "key": str(one["ordinal"]),
        "ordinal": one["ordinal"],
        "epoch": str(one["epoch"]),
        "seconds": {"since": one["begun"]} if goes_on and one["begun"] is not None else one["seconds"],
        "utilization": [line(*meter, css="meter")],
        "utilization_mean": utilization,
        "idle": one["idle_share"],
        "wait": one["wait_share"],
        "beside": one["beside"],
        "peak": f"{sign}{units.number(_number(peak), Unit.BYTES)}",
        "peak_bytes": peak,
        "energy": one["energy"],
        "logged": one["metrics"],
        "verdict": tag(one["verdict"]["text"], one["verdict"]["level"]),
        "verdict_text": one["verdict"]["text"],
    }


def live_peak(one: Cells) -> tuple[str, float | None]:
    """The peak of an epoch's memory in bytes, and `≤ ` or `≥ ` where it is no more or no less than that."""
    if one["framework_peak"] is not None:
        return "" if one["framework_peak_reached"] else "≤ ", one["framework_peak"]
    if one["run_allocated_peak"] is not None:
        return "≥ ", one["run_allocated_peak"]
    return "", one["memory_used_peak"]


def rank(one: Cells) -> Cells:
    """The cells of a rank."""
    return {
        "key": one["key"],
        "rank": str(one["rank"]),
        "state": run_state(one["state"]),
        "state_name": one["state"],
        "gpus": ", ".join(str(gpu["index"]) for gpu in one["gpus"]) or units.MISSING,
        **{name: one[name] for name in ("pid", "steps", "wait", "peak", "ooms")},
    }


def _bar(run: Cells) -> list[Cells]:
    done = run.get("progress")
    return [] if done is None else [bar(share(done, user=run["user"] or ""))]


def _range(summary: Cells) -> str:
    least, most = summary.get("least"), summary.get("most")
    return "" if least is None or most is None else f"from {units.duration(least)} to {units.duration(most)}"


def _number(value: Any) -> float:
    return NAN if value is None else float(value)


_LIVE = ("title", "state", "epoch_is", "epoch", "epoch_below", "bar", "left_is", "left", "left_below")
"""Values that the ring tells of a run that goes on."""
_KEPT = (
    *_LIVE, "facts", "mean", "mean_range", "utilization", "idle", "energy", "power", "noted", "has_ranks",
    "logged_names", "most_energy", "csv", "devices",
)  # fmt: skip
"""Values that are none where there is no such run."""

PAGE = Page(
    "run", "Run", layout, live, kept, rest, of_run=True, args={"id": ""}, kept_args={"gpu": ""}, tab="runs",
    is_tab=False, needs_id=True,
)  # fmt: skip
