"""One run: what it is and how far, its course with the epochs behind it, every epoch as a row, and its ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from gpumon_web.page import Args, Cells, KeptValues, Now, Page, Rows
from gpumon_web.run_about import particulars
from gpumon_web.run_course import choice, course
from gpumon_web.run_head import facts, far, going, length_range, usage
from gpumon_web.run_rows import EPOCHS, RANKS, epoch, logged_names, note, rank
from gpumon_web.tokens import run_name, run_state

if TYPE_CHECKING:
    from dash.development.base_component import Component

NOTED = 20
"""Marks told of, the newest."""
GOES_ON, IS_OVER = 5.0, 600.0
"""Seconds between questions for a run; one that is over may be resumed, or its last epoch be kept late."""


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
            hidden_if("without", card("Course", drawn, tools=[devices])),
            shown_if("noted", card("Noted", bound("noted", "notes", html.Ul, className="look"))),
            hidden_if("without", card("Epochs", epochs, tools=[bound("csv", "download")])),
            shown_if("about", card("Config and notes", bound("about", "notes", html.Ul, className="look"))),
            shown_if("has_ranks", card("Ranks", table("ranks", "Ranks", RANKS, "rank"))),
            bound("without", "text", html.P, className="empty"),
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


def kept(document: Cells) -> KeptValues:
    """All of a run that the ledger keeps, and what the ring told of it meanwhile."""
    missing = document.get("missing", "")
    if document["run"] is None:
        why = document["missing"] or "It may have been removed from the ledger, or belong to another server."
        gone = f"No run here has the id {document['id']}. {why}"
        values = {**dict.fromkeys(_KEPT), "title": "No such run", "gone": gone, "without": gone, "epochs": Rows(),
                  "ranks": Rows()}  # fmt: skip
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
        "mean_range": length_range(summary),
        **usage(document.get("total") or {}),
        "noted": noted[-NOTED:][::-1],
        "about": [*particulars(document.get("about") or {})],
        "has_ranks": bool(ranks),
        "ranks": Rows(rank(one) for one in ranks),
        "logged_names": logged_names(found),
        "most_energy": summary.get("most_energy") or 0,
        "epochs": Rows(epoch(one, run) for one in found),
        "csv": {"text": "Download as CSV", "href": f"api/run.csv?id={quote(run['id'], safe='')}"} if found else None,
        "devices": [choice(one, document["device"]) for one in devices] if len(devices) > 1 else [],
        "gone": "",
        "without": f"No timeline and no epochs are shown. {missing}" if missing else "",
    }
    return KeptValues(
        values, {"course": course(document)}, {"epochs": document.get("epochs_total", 0)},
        GOES_ON if is_running else IS_OVER,
    )  # fmt: skip


def rest(document: Cells) -> KeptValues:
    """Every epoch of a run."""
    return KeptValues({"epochs": Rows(epoch(one, document["run"]) for one in document["epochs"])})


_LIVE = ("title", "state", "epoch_is", "epoch", "epoch_below", "bar", "left_is", "left", "left_below")
"""Values that the ring tells of a run that goes on."""
_KEPT = (
    *_LIVE, "facts", "mean", "mean_range", "utilization", "idle", "energy", "power", "noted", "about", "has_ranks",
    "logged_names", "most_energy", "csv", "devices",
)  # fmt: skip
"""Values that are none where there is no such run."""

PAGE = Page(
    "run", "Run", layout, live, kept, rest, of_run=True, args={"id": ""}, kept_args={"gpu": ""}, tab="runs",
    is_tab=False, needs_id=True,
)  # fmt: skip
