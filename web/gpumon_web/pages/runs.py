"""The runs page: live and past runs with user, state, progress, duration and energy."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from gpumon.model import units
from gpumon.model.columns import RUN_BY_KEY
from gpumon_web.components import levels
from gpumon_web.components.compare_rows import MAX_RUNS, MIN_RUNS, PICK_ARG
from gpumon_web.components.page import Cells, Column, Page, Rows, StoredValues, table_column
from gpumon_web.components.tokens import (
    about_share,
    energy,
    line,
    link,
    origin_tag,
    pick,
    progress,
    run_address,
    run_name,
    run_position,
    run_state,
    text,
)
from gpumon_web.stored.run_list import RunFilter, options, search_text

if TYPE_CHECKING:
    from dash.development.base_component import Component

NO_RUNS = "No runs yet. A training appears here once it uses a gpumon callback or gpumon.run()."
NO_MATCH = "No matching runs."
TIME_LABELS = {"24h": "began in the last 24 hours", "7d": "in 7 days", "31d": "in 31 days", "1y": "in a year"}
"""Labels of `run_list.TIMES`."""
COLUMNS = (
    Column("tick", "Compare", "tick", sort=False, css="c-tick"),
    table_column(RUN_BY_KEY["id"], "rich", key="run", sorts_by="name", is_head=True, csv="run", css=""),
    table_column(RUN_BY_KEY["user"], "person", css="c-user"),
    table_column(RUN_BY_KEY["state"], "tag", sorts_by="state_name", css="c-state"),
    table_column(RUN_BY_KEY["started"], "age", css="c-started"),
    table_column(RUN_BY_KEY["seconds"], "lasting", css=""),
    table_column(RUN_BY_KEY["epoch"], "rich", key="epochs", css="c-epochs", sorts_by="epochs_done", csv="epochs_done"),
    table_column(
        RUN_BY_KEY["utilization_mean"], "text", key="utilization", sorts_by="utilization_mean", css="c-utilization"
    ),
    table_column(RUN_BY_KEY["energy"], css="c-extra"),
    table_column(RUN_BY_KEY["gpus"], css="c-rare"),
    table_column(RUN_BY_KEY["framework"], css="c-less"),
)


def layout() -> Component:
    """Create the layout: search, filters and the table."""
    from dash import html

    from gpumon_web.components.layout import bound, card, download, hidden_if, search, table

    runs = table(
        "runs", "Runs", COLUMNS, "started", css="runs", loading="Loading the runs …",
        empty_from="nothing", no_match=NO_MATCH, searched="sought",
    )  # fmt: skip
    compare_link = bound("picked", "picked", className="picked", role="status")
    search_tools = html.Div(
        [search("runs", "Name, user or tag", "Filter runs by name, user or tag"), download("runs", "Runs", key="id")],
        className="sought",
    )
    problem = bound("problem", "text", html.P, className="empty")
    tools = [bound(name, "pick") for name in ("states", "people", "frameworks", "times")]
    return html.Div(
        [
            html.Div([html.H1("Runs"), compare_link, hidden_if("is_without", search_tools)], className="head"),
            hidden_if("is_without", html.Div([*tools, bound("config", "asked")], className="toolbar")),
            card("Runs", problem, runs, bound("listed", "text", html.P, className="left"), has_head=False),
        ]
    )


def kept(document: Cells) -> StoredValues:
    """Compute the rows of the runs in the ledgers and the ring. If past runs are missing, also give the reason."""
    problem, missing = document["problem"], document.get("missing", "")
    problem_text = f"Past runs cannot be listed: {problem}." if problem else ""
    unread = problem_text if document.get("is_unread") else ""
    choice: RunFilter = document["choice"]
    labels = {document.get("label", ""), *(run.get("label", "") for run in document["runs"])}
    return StoredValues(
        {
            "problem": problem_text or missing,
            "states": pick("state", "state", choice.state, options(levels.RUN_LEVELS)),
            "people": pick("user", "user", choice.user, options(document["users"])),
            "frameworks": pick("framework", "framework", choice.framework, options(document["frameworks"])),
            "times": pick("since", "time", choice.since, [*TIME_LABELS.items()]),
            "config": {
                "arg": "where",
                "title": "Filter runs by their config",
                "words": "Config, such as lr=0.1",
                "text": choice.where,
            },
            "sought": choice.query,
            "listed": _omitted_text(len(document["runs"]), document["total"]),
            "nothing": "" if problem_text else NO_MATCH if not choice.is_any else document.get("none") or NO_RUNS,
            "is_without": not (document["runs"] or unread or problem_text) and choice.is_any,  # nothing to filter
            "picked": _compare_link(document),
            "runs": Rows(row(run, labels, is_kept=run["id"] in document["kept"]) for run in document["runs"]),
        },
        unread=unread,
    )


def _omitted_text(count: int, total: int) -> str:
    """Return a sentence on how many runs are not listed; empty if all are."""
    return f"The newest {count:,} of {total:,} runs. Search and filters look through all of them." * (count < total)


def _compare_link(document: Cells) -> Cells:
    """Return the link to a comparison of the ticked runs, or why runs cannot be compared, if none is stored.

    Its text is empty if there are no runs.
    """
    cannot_compare = bool(document["runs"]) and not document["kept"] and document["not_kept"]
    hint = f"Tick {MIN_RUNS} to {MAX_RUNS} runs to compare them" if document["runs"] else ""
    words = f"These runs cannot be compared. {document['not_kept']}" if cannot_compare else hint
    return {
        "arg": PICK_ARG,
        "page": "compare",
        "as": "runs",
        "fewest": MIN_RUNS,
        "words": words,
        "is_vain": bool(cannot_compare),
    }


def row(run: Cells, labels: Collection[str] = (), *, is_kept: bool) -> Cells:
    """Return the cells of a run; `run` is a row of the document, with its data in the ring as `live`.

    If the origins (`labels`) of the runs differ, the row shows its run's origin. Only a run in a ledger (`is_kept`) can
    be ticked to compare it.
    """
    ring: Cells = run.get("live") or {}
    is_running = run["state"] == "running"
    since = run["started"] if is_running else None
    gpus, epochs_done = run.get("gpus"), run.get("epochs_done")
    return {
        "key": run["id"],
        "name": run_name(run),
        "tick": {"arg": PICK_ARG, "value": run["id"], "label": f"Compare {run_name(run)}", "most": MAX_RUNS}
        if is_kept
        else None,
        "run": [line(link(run_name(run), run_address(run["id"]), "row"), origin_tag(run.get("label", ""), labels))],
        "user": run["user"],
        "state": run_state(run["state"]),
        "state_name": run["state"],
        "started": run["started"],
        "seconds": {"since": since} if since is not None else run.get("seconds"),
        "epochs": [progress_line(run, ring, is_running=is_running)],
        "epochs_done": epochs_done if epochs_done or run.get("epochs_planned") else None,
        "utilization": about_share(run, "utilization_mean"),
        "utilization_mean": run.get("utilization_mean"),
        "energy": energy(run),
        "gpus": gpus or len(ring.get("gpus") or ()) or None,  # 0 means unknown
        "framework": run["framework"] or units.MISSING,
        "search": search_text(run),
    }


def progress_line(run: Cells, ring: Cells, *, is_running: bool) -> Cells:
    """Return the progress of a run: epoch or step, bar and time left while it runs; else its last epoch."""
    if is_running and ring.get("epoch"):
        return progress({**ring, "user": run["user"]}, ring["epoch"])
    if is_running and (position := run_position(ring)):
        return progress({**ring, "user": run["user"]}, position)
    return line(text(run.get("epoch") or ring.get("epoch") or units.MISSING))


PAGE = Page("runs", "Runs", layout, kept=kept, kept_args=dict.fromkeys(RunFilter._fields, ""))
