"""The page of one user of a cluster: GPUs held now, hours by period, runs, nodes, and idle GPUs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from gpumon.cluster import cost, coverage, model
from gpumon.cluster.client import Answers
from gpumon.cluster.cost import unpriced_seconds
from gpumon.cluster.model import ClusterRun, ClusterUser, drop_stale, natural_key
from gpumon.cluster.period_queries import month_dates
from gpumon.cluster.queries import ROLLING, Period, user_queries
from gpumon.cluster.snapshot import NOT_YET, hours, kwh
from gpumon.common.numbers import NAN, is_known, shown
from gpumon.model import units
from gpumon.model.columns import USER_BY_KEY
from gpumon.reports.charges import explained
from gpumon_web.cluster import tables
from gpumon_web.cluster.data import ClusterNow, cluster_data, gpus, node_link, outdated_note, percent
from gpumon_web.components.costs import COSTS, cost_cells, shown_costs
from gpumon_web.components.machine import Now
from gpumon_web.components.page import Args, Cells, Column, Page, Rows, table_column

if TYPE_CHECKING:
    from dash.development.base_component import Component

_AGE = 90.0
"""Age in seconds up to which a sum counts as current."""
_HOURS = (
    Column("period", "Period", is_head=True, sorts_by="seconds"),
    table_column(USER_BY_KEY["held"], key="time", css=""),
    table_column(USER_BY_KEY["used"], "text", css=""),
    table_column(USER_BY_KEY["idle_held"], key="idle", css=""),
    table_column(USER_BY_KEY["energy"], css=""),
    *COSTS,
)
_NODES = (
    Column("node", "Node", "rich", is_head=True, sorts_by="name"),
    Column("gpus", "GPUs", "count"),
    Column("busy", "Node utilization", "percent"),
)


def layout() -> Component:
    """Create the layout: hours, runs, nodes, and GPUs held idle."""
    from dash import html

    from gpumon_web.components.layout import bound, card, table

    return html.Div(
        [
            html.Div([bound("user", "person", html.H1), bound("about", "text", html.Span, className="facts")],
                     className="head"),
            bound("user_age", "text", html.P, className="age"),
            card("GPU-hours", table("hours", "GPU-hours", _HOURS, "period", css="plain people hours",
                                    empty="No GPU-hours are known.")),
            card("Runs", table("runs", "Runs", tables.RUNS_OF_ONE, "gpus", css="plain jobs own",
                               empty_from="no_runs")),
            html.Div(
                [
                    html.Div([card("Nodes", table("nodes", "Nodes", _NODES, "gpus", css="plain short",
                                                  empty_from="no_nodes"))], className="column"),
                    html.Div([card("Allocated, idle for half an hour or longer",
                                   table("idle_holders", "Idle", tables.IDLE_OF_ONE, "lasts",
                                         css="plain short",
                                         empty="No GPU of this user is known to be idle."))],
                             className="column"),
                ],
                className="columns",
            ),
        ]
    )  # fmt: skip


def live(now: Now, args: Args) -> Cells:
    """Compute all values of the page."""
    cluster, name = cluster_data(now), args["id"]
    nodes = cluster.snapshot.nodes_now()
    answers = drop_stale(cluster.answers, nodes)
    places = answers.get(f"user_places {name}", ())
    query_names = [query.name for query in user_queries(name)]
    busy = {cluster_node.name: cluster_node.busy for cluster_node in nodes}
    rows = sorted(places, key=lambda row: (-row.value, natural_key(row.labels.get("instance", ""))))
    return {
        "tab": {"text": name, "old": name},
        "user": name,
        "about": _held_text(cluster, answers, name),
        "user_age": outdated_note(cluster, query_names) or _cost_explanation(cluster, name),
        "hours": Rows(_hours(cluster, name, period) for period in Period),
        **shown_costs(cluster.prices),
        "runs": tables.run_rows(_runs(answers, name)),
        "no_runs": _empty_text(cluster, "jobs", name, "No runs of this user are known."),
        "no_nodes": _empty_text(cluster, "places", name, "No nodes of this user are known."),
        "nodes": Rows(
            {"key": node, "node": [node_link(node)], "name": node, "gpus": round(row.value),
             "busy": shown(busy.get(node, NAN))}
            for row in rows if (node := row.labels.get("instance", ""))
        ),
        "idle_holders": tables.idle_rows([holder for holder in model.idle_holders(answers) if holder.user == name]),
    }  # fmt: skip


NAMING = ("runs", "held_now", *(f"held_{period}" for period in ROLLING))
"""Queries whose answers have user names."""


def user_names(answers: Answers) -> set[str]:
    """Return the users in Prometheus's answers; no other user is queried."""
    return {row.labels.get("user", "") for question in NAMING for row in answers.get(question, ())}


def _empty_text(cluster: ClusterNow, query: str, name: str, text: str) -> str:
    """Return the text shown without rows; before an answer it must not claim that there are none."""
    answer = cluster.snapshot.cached.get(f"user_{query} {name}")
    if answer is None:
        return "Querying Prometheus …" if name in user_names(cluster.answers) else text
    return "Unknown." if answer.rows is None else text


def _held_text(cluster: ClusterNow, answers: Answers, name: str) -> str:
    """Return the number of GPUs held now, and the user's group."""
    user = _find_user(answers, name, Period.WEEK)
    group = cluster.groups.of_user.get(name, "") if cluster.groups else ""
    count = gpus(user.held) if user else units.MISSING
    parts = [
        f"{count} GPU{'' if count == '1' else 's'} now, {gpus(user.idle)} of them idle"
        if user and is_known(user.held)
        else "",
        f"group {group}" if group else "",
    ]
    return "  ·  ".join(filter(None, parts))


def _find_user(answers: Answers, name: str, period: Period) -> ClusterUser | None:
    return next((user for user in model.users(answers, period) if user.name == name), None)


def _hours(cluster: ClusterNow, name: str, period: Period) -> Cells:
    answers, prices = cluster.answers, cluster.prices
    charge = cost.charges(answers, prices, period).get(name) if prices else None
    user = _find_user(answers, name, period) or ClusterUser(name)
    is_complete, part = (
        coverage.uncertainty(answers, period).is_complete(name),
        coverage.missing_note(answers, period, name),
    )

    unpriced = sum(unpriced_seconds(answers, prices, period, name).values())
    dates = month_dates(period, cluster.snapshot.at) if period is Period.LAST_MONTH else ""
    price_note = f"{hours(unpriced)} without a price" if unpriced else ""
    labels = period.heading, dates, _age(cluster, period), part, price_note

    def sum_text(value: float, format_value: Callable[[float], str]) -> str:
        return coverage.format_sum(value, format_value, is_complete=is_complete)

    return {
        "key": period.value, "period": ", ".join(filter(None, labels)),
        "seconds": coverage.period_length(answers, period),
        "time": sum_text(user.held_seconds, hours),
        "held_seconds": shown(user.held_seconds), "used": percent(user.used), "used_ratio": shown(user.used),
        "idle": sum_text(user.idle_seconds, hours), "idle_held_seconds": shown(user.idle_seconds),
        "energy": sum_text(user.energy, kwh), "energy_joules": shown(user.energy), **cost_cells(charge, prices),
    }  # fmt: skip


def _cost_explanation(cluster: ClusterNow, name: str) -> str | None:
    """Return a sentence that explains marks on the user's costs, or None if there are none."""
    prices, answers = cluster.prices, cluster.answers
    charges = [cost.charges(answers, prices, period).get(name) for period in Period] if prices else []
    return explained(charge for charge in charges if charge) or None


def _age(cluster: ClusterNow, period: Period) -> str:
    """Return a note on the age of a sum: a month is queried rarely, so its sum may be less than the week's."""
    answer = cluster.snapshot.cached.get(f"held_{period}", NOT_YET)
    age = cluster.snapshot.at - answer.at
    if period is Period.LAST_MONTH or answer.rows is None or age <= _AGE:
        return ""
    return f"as of {units.long_duration(age)} ago"


def _runs(answers: Answers, name: str) -> list[ClusterRun]:
    """Return the runs of a user, with the names of their nodes."""
    epochs, planned = (
        {row.labels.get("run", ""): row.value for row in answers.get(f"user_{query} {name}", ())}
        for query in ("epochs", "planned")
    )
    has_epochs = f"user_epochs {name}" in answers
    runs: dict[str, ClusterRun] = {}
    for row in answers.get(f"user_jobs {name}", ()):
        labels, run = row.labels, row.labels.get("run", "")
        entry = runs.get(run) or ClusterRun(
            labels.get("name", ""), run, name, labels.get("slurm_job", ""), (), 0, epochs.get(run, NAN),
            planned.get(run, NAN), has_epoch_info=has_epochs,
        )  # fmt: skip
        node = labels.get("instance", "")
        runs[run] = replace(entry, nodes=(*entry.nodes, node), gpus=entry.gpus + round(row.value))
    return [replace(cluster_run, nodes=sorted(cluster_run.nodes, key=natural_key)) for cluster_run in runs.values()]


PAGE = Page("person", "User", layout, live, args={"id": ""}, tab="cluster", is_tab=False, needs_id=True)
