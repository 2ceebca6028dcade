"""The page of one run: particulars and progress, chart, table of epochs, and ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote

from gpumon.common.numbers import NAN, shown
from gpumon.model import units
from gpumon.storage.ledger.summary import EpochSummary
from gpumon_web.components.compare_rows import PICK_ARG, comparison_address
from gpumon_web.components.costs import COSTS, cost_cells, shown_costs
from gpumon_web.components.machine import Now
from gpumon_web.components.page import Args, Cells, Page, Rows, StoredSubject, StoredValues
from gpumon_web.components.run_head import (
    about,
    course,
    facts,
    finding_notes,
    gpu_choices,
    live_progress,
    notes,
    pace,
    run_progress,
    usage,
)
from gpumon_web.components.tokens import line, link, origin_tag, run_name, run_state, run_tab, text
from gpumon_web.stored.epoch_rows import Part
from gpumon_web.stored.epoch_table import (
    EPOCHS,
    NEEDED,
    RANKS,
    STEP_COLUMNS,
    epoch_cells,
    fold_cells,
    largest_values,
    logged_left_out,
    logged_names,
    measured_so_far,
    part_cells,
    peak_title,
    rank_cells,
)

if TYPE_CHECKING:
    from dash.development.base_component import Component

FIRST_INTERVAL, RUNNING_INTERVAL, FINISHED_INTERVAL = 2.0, 5.0, 600.0
"""Seconds between requests: before the first frame, while the run is running, and afterward (it may be resumed)."""
EPOCHS_PER_SECOND = 400
"""Epochs read per second at most: a longer running run is requested less often."""
AWAITED_TEXT = "No sample has arrived yet, and no recorded run has this id. It is unknown whether one is running."
SETTLE_SECONDS = 30.0
"""Seconds after the end of a run in which the ledger may still get its last measurements."""


def layout() -> Component:
    """Create the layout: head, five headlines, findings, config and notes, chart, epochs and ranks."""
    from dash import html

    from gpumon_web.components.layout import (
        aria,
        bound,
        card,
        headline,
        headlines,
        hidden_if,
        kept_figure,
        search,
        shown_if,
        table,
    )

    head = [
        bound("title", "text", html.H1), bound("state", "tag"), bound("facts", "rich", className="facts"),
    ]  # fmt: skip
    numbers = headlines(
        hidden_if("stepless", headline("Epoch", "epoch", "text", "epoch_below", extra="bar", titled="epoch_is")),
        headline("Time left", "left", "span", "left_below", titled="left_is"),
        hidden_if("stepless", headline("Epoch time", "mean", "text", "mean_range", titled="mean_is")),
        headline("Utilization", "utilization", "text", "idle"),
        headline("Energy", "energy", "joules", "power"),
    )
    chart = kept_figure(
        "course", "Timeline of this run", loading="Loading this run …",
        empty="There is no timeline of this run.", whole="Whole run",
    )  # fmt: skip
    devices = shown_if("devices", bound("devices", "choices", html.Div, className="seg", role="group",
                                        **aria(label="GPU")))  # fmt: skip
    epochs = table("epochs", "Epochs", (*EPOCHS, *COSTS), "epoch", css="epochs", folds="folds",
                   loading="Loading the epochs …", empty="No epoch of this run is kept yet.",
                   no_match="No matching epochs.")  # fmt: skip
    findings = shown_if("noted", card("Noted", bound("noted", "notes", html.Ul, className="look"), has_head=False))
    config = shown_if(
        "has_about",
        card(
            "Config and notes",
            bound("about", "rich", html.Div, className="about"),
            bound("notes", "notes", html.Ul, className="look"),
        ),
    )
    tools = [
        bound("folded", className="mut note"),
        search("epochs", "Epoch or verdict", "Filter epochs by number or verdict"),
        bound("csv", "download"),
    ]
    return html.Div(
        [
            html.Div(head, className="head"),
            bound("cost", "text", html.P, className="cost"),
            hidden_if("gone", numbers),
            html.Div([findings, config], className="aside"),
            hidden_if("without", card("Course", chart, tools=[devices])),
            hidden_if("without", card("Epochs", epochs, tools=tools, titled="epochs_title")),
            shown_if("has_ranks", card("Ranks", table("ranks", "Ranks", RANKS, "rank"))),
            shown_if("without", bound("without", "rich", html.Div, className="empty")),
        ]
    )


def live(now: Now, args: Args) -> Cells:
    """Compute the values in the ring: name and state of the run, and its progress while it is running."""
    run = now.runs.get(args.get("id", ""))
    if run is None:
        return dict.fromkeys(_LIVE_NAMES)
    # The duration comes from the ledger a moment later; until then the run must not look as if it were running.
    progress = live_progress(run, now.time) if run["state"] == "running" else {"left_is": "Took"}
    return {
        **dict.fromkeys(_LIVE_NAMES),
        "title": run_name(run),
        "state": run_state(run["state"]),
        "tab": run_tab(run),
        **progress,
    }


def kept(document: Cells) -> StoredValues:
    """Compute everything that the page shows about a stored run, or why it shows none."""
    unread = document.get("unread", "")
    missing = f"The runs that are kept cannot be read now: {unread}." if unread else document.get("missing", "")
    if document["run"] is None:
        unknown = f"No run here has the id {document['id']}."
        why = missing or "It may have been removed from the ledger, or belong to another server."
        is_awaited = bool(document.get("is_awaited")) and not missing
        gone = missing if unread else AWAITED_TEXT if is_awaited else f"{unknown} {why}"
        without = [line(text(gone)), line(link("All runs", "#/runs"))]
        title = document["id"] if unread or is_awaited else "No such run"
        values = {**dict.fromkeys(_STORED_NAMES), "title": title, "gone": gone, "without": without, "epochs": Rows(),
                  "folds": Rows(), "ranks": Rows()}  # fmt: skip
        interval = FIRST_INTERVAL if is_awaited else FINISHED_INTERVAL
        return StoredValues(values, {"course": None}, again=interval, unread=missing if unread else "")
    run = {**document["run"], **(document.get("live") or {})}
    is_running = run["state"] == "running"
    epochs, summary, ranks = document["epochs"], document.get("summary") or {}, document["ranks"]
    outside = document.get("outside") or {}
    devices, total, particulars = document["devices"], document.get("total") or {}, document.get("about")
    about_lines, note_lines = (about(particulars), notes(particulars)) if particulars else ([], [])
    parts, folds, prices = document.get("parts") or [], document.get("folds") or [], document.get("prices")
    is_whole = bool(parts) and not epochs and not run.get("epochs_planned")
    compare_links = (
        [link("Compare …", comparison_address([run["id"]], page="runs", arg=PICK_ARG), "button")]
        if "total" in document
        else []
    )
    measured = origin_tag(run.get("label", ""), [document.get("label", "")])
    measured_rows = [*epochs, *folds, *(part.summary for part in parts)]
    maxima, logging = largest_values(measured_rows), epochs or [part.summary for part in parts]
    values = {
        **dict.fromkeys(NEEDED, False),
        "title": run_name(run),
        "state": run_state(run["state"]),
        "tab": run_tab(run),
        "facts": [*facts(run), *([measured] if measured else []), *compare_links],
        **run_progress(document, run),
        **pace(summary, total if is_whole else None),
        **usage(total),
        "noted": finding_notes(document, running=is_running),
        "has_ranks": bool(ranks),
        "ranks": Rows(rank_cells(row) for row in ranks),
        "logged_names": logged_names(logging),
        "peak_column": peak_title(measured_rows),
        "most_energy": summary.get("most_energy")
        or max((shown(part.summary.value("energy")) or 0 for part in parts), default=0),
        **_titles(is_whole, any(part.is_steps for part in parts)),
        "stepless": is_whole and total["steps"] is None and not run.get("step_text"),
        "epochs": _rows(epochs, parts, run, document),
        **{f"has_{key}": True for key in maxima if key not in STEP_COLUMNS or not (epochs or folds)},
        "folds": Rows({**fold_cells(fold, run, maxima, outside), **cost_cells(None, prices)} for fold in folds),
        "folded": "; ".join(
            filter(
                None,
                (
                    "equal neighbors are one row: means, and the highest peak" if folds else "",
                    measured_so_far(epochs[-1], run, is_live=bool(document.get("live"))) if epochs else "",
                    logged_left_out(logging),
                    omitted_text(document.get("omitted", 0), is_judged=document.get("is_judged", True)),
                ),
            )
        ),
        "cost": document.get("cost", ""),
        **shown_costs(prices),
        "csv": {"text": "CSV", "href": f"api/run.csv?id={quote(run['id'], safe='')}"} if epochs or is_whole else None,
        "about": about_lines,
        "notes": note_lines,
        "has_about": bool(about_lines or note_lines),
        "devices": gpu_choices(devices, document.get("device")),
        "gone": "",
        "without": [line(text(f"No timeline and no epochs are shown. {missing}"))] if missing else [],
    }
    # Reading all epochs of a long run is slow, and a few more epochs change little.
    running_interval = max(RUNNING_INTERVAL, document.get("epochs_total", 0) / EPOCHS_PER_SECOND)
    interval = running_interval if is_running or _may_change(document) else FINISHED_INTERVAL
    row_count = document.get("epochs_total", 0) - document.get("omitted", 0) + len(parts)
    return StoredValues(
        values, {"course": course(document)}, {"epochs": row_count},
        interval, unread=missing if unread else "",
    )  # fmt: skip


def omitted_text(omitted: int, *, is_judged: bool) -> str:
    """Return text that says how many epochs of a long run are in no row; empty if there are none.

    `is_judged`: whether all epochs that need attention have a row.
    """
    if not omitted:
        return ""
    but = ", but for those that need a look" if is_judged else ""
    return f"{units.count(omitted)} earlier epochs are left out{but}: the CSV has all"


def _may_change(document: Cells) -> bool:
    """Whether the ledger may still get data of a finished run, whose end the ring has some seconds earlier."""
    stored_run: Cells = document["run"]
    since: float = document["now"] - (stored_run.get("ended") or 0.0)  # without the ledger, the end is unknown
    return stored_run["state"] == "running" or since < SETTLE_SECONDS


def rest(document: Cells) -> StoredValues:
    """Compute all rows of the table of epochs."""
    return StoredValues({"epochs": _rows(document["epochs"], document["parts"], document["run"], document)})


def _rows(epochs: Sequence[EpochSummary], parts: Sequence[Part], run: Cells, document: Cells) -> Rows:
    """Return the rows of epochs, followed by rows of steps, of time outside epochs and of the whole run."""
    last = epochs[-1].ordinal if epochs else -1
    prices, charges, outside = document.get("prices"), document.get("charges") or {}, document.get("outside") or {}
    is_live = bool(document.get("live"))
    maxima = largest_values([*epochs, *(part.summary for part in parts)])
    rows = Rows()
    for epoch in epochs:
        cells = epoch_cells(
            epoch, run, maxima, outside=outside.get(epoch.ordinal, NAN), is_live=is_live and epoch.ordinal == last
        )
        rows.append({**cells, **cost_cells(charges.get(epoch.ordinal), prices)})
    for place, part in enumerate(parts):
        rows.append({**part_cells(part, place, run, last, maxima), **cost_cells(None, prices)})
    return rows


def _titles(is_whole: bool, has_steps: bool) -> Cells:
    """Return the headings of the table, which differ for a run without epochs."""
    if not is_whole:
        return {"epochs_title": "Epochs", "epoch_column": "Epoch"}
    return {
        "epochs_title": "Steps" if has_steps else "Whole run", "epoch_column": "Steps" if has_steps else "Part",
    }  # fmt: skip


_LIVE_NAMES = ("title", "tab", "state", "epoch_is", "epoch", "epoch_below", "bar", "left_is", "left", "left_below")
"""Values of a running run that come from the ring."""
_STORED_NAMES = (
    *_LIVE_NAMES, "facts", "mean", "mean_range", "utilization", "idle", "energy", "power", "noted", "has_ranks",
    "stepless", "has_about", "about", "notes", "logged_names", "most_energy", "mean_is", "folded", "epochs_title",
    "epoch_column", "peak_column", *NEEDED, "csv", "devices", "cost", *shown_costs(None),
)  # fmt: skip
"""Values that are None if the run does not exist."""

PAGE = Page(
    "run", "Run", layout, live, kept, rest, kept_of=StoredSubject.RUN, args={"id": ""}, kept_args={"gpu": ""},
    tab="runs", is_tab=False, needs_id=True,
)  # fmt: skip
