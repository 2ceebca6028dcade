"""The cluster page: summary, map of the nodes, free GPUs, problems, users, idle holders and runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.cluster import cost, coverage, model
from gpumon.cluster.cost import unpriced_seconds, unpriced_sentence
from gpumon.cluster.model import drop_stale
from gpumon.cluster.period_queries import month_dates
from gpumon.cluster.problems import find_problems, unseen_nodes
from gpumon.cluster.queries import GPU_QUERIES, Period
from gpumon.cluster.snapshot import NOT_YET
from gpumon.model import units
from gpumon.reports.charges import explained
from gpumon_web.cluster import tables
from gpumon_web.cluster.data import cluster_data, outdated_note, outdated_states_note
from gpumon_web.cluster.node_map import node_map
from gpumon_web.cluster.problems import problems
from gpumon_web.cluster.summary import doubts, foot, summary
from gpumon_web.components.costs import shown_costs
from gpumon_web.components.machine import Now
from gpumon_web.components.page import Args, Cells, Page
from gpumon_web.components.user_rows import GROUP, USER, holder_choice

if TYPE_CHECKING:
    from dash.development.base_component import Component

_OF_USERS = ("held_now", "idle_now")
_OF_PERIOD = ("covered", "covered_by_node", "held", "judged", "busy", "idle_held", "energy")
_OF_DAY = ("covered_day", "covered_by_node_day")
_PANELS = {
    "summary": ("seen", "gpus", "busy", "power", "limit", "energy_of_day", "busy_of_day", *_OF_DAY),
    "map": ("seen", "gpus", "busy", *(query.name for query in GPU_QUERIES)),
    "free": ("seen", "gpus", "models"),
    "wrong": (
        "seen",
        "seen_before",
        "clocks",
        "clocks_before",
        "gpus",
        "xids",
        "throttled",
        "last_xid",
        "down",
        "without_daemon",
    ),
    "idle_holders": ("idle_holders",),
    "runs": ("runs", "epochs", "planned", "run_nodes", "run_places"),
}
"""Queries behind each part of the page."""
_OF_STATES = ("summary", "map", "free")
"""Parts that show which GPUs are free."""


def layout() -> Component:
    """Create the layout: summary, map, and tables."""
    from dash import html

    from gpumon_web.components.layout import aria, bound, card, download, headline, headlines, search, shown_if, table

    def age(panel: str) -> Component:
        return bound(f"{panel}_age", "text", html.P, className="age")

    return html.Div(
        [
            html.H1("Cluster", className="sr"),
            shown_if("doubts", bound("doubts", "notes", html.Ul, className="look doubts")),
            html.Section(
                [
                    headlines(
                        headline("Free now", "free", "text", "free_below", "free_chips", is_first=True, old="–"),
                        headline("Allocated, idle", "idle", "text", "idle_below", "idle_chips", old="–"),
                        headline("Runs", "runs_now", "text", "runs_below", old="–"),
                        headline("Busy", "use", "percent", "use_below"),
                        headline("Power", "power", "text", "power_below"),
                        css="one",
                    ),
                    age("summary"),
                ],
                className="card summary", **aria(label="Summary"),
            ),
            card("Nodes", age("map"), bound("map", "nodes", html.Div, className="nodemap"), titled="map_title"),
            html.Div([
                html.Div([card("Free GPUs, most per node first", age("free"),
                               table("free_gpus", "Free GPUs", tables.FREE, "together", css="plain together",
                                     empty="No free GPUs are known.", few=8))], className="column"),
                html.Div([card("Problems", age("wrong"),
                               bound("wrong", "notes", html.Ul, className="look"))],
                         className="column"),
            ], className="columns"),
            card("Users", bound("users_dates", "text", html.P, className="age dates"), age("users"),
                 table("users", "Users", tables.USERS, "time", css="plain people",
                       empty="No users of GPUs are known.", few=12),
                 tools=[shown_if("holders", bound("holders", "choices", html.Div, className="seg", role="group",
                                                  **aria(label="By user or group"))),
                        bound("periods", "choices", html.Div, className="seg", role="group", **aria(label="Period")),
                        download("users", "users of the cluster")]),
            card("Allocated, idle for half an hour or longer", age("idle_holders"),
                 table("idle_holders", "Idle holders", tables.IDLE, "lasts", css="plain holders",
                       empty="No idle holders are known.", few=8)),
            card("Runs", age("runs"),
                 table("runs", "Runs", tables.RUNS, "gpus", css="plain jobs",
                       empty="No runs are known.", no_match="No matching run.", few=10),
                 tools=[search("runs", "Search user, run, job, node", "Filter runs"),
                        download("runs", "runs of the cluster", "run_id")]),
            bound("foot", "text", html.P, className="notice foot-note"),
        ]
    )  # fmt: skip


def live(now: Now, args: Args) -> Cells:
    """Compute all values of the page."""
    cluster = cluster_data(now)
    snapshot = cluster.snapshot
    period = Period(args["period"]) if args["period"] in list(Period) else Period.WEEK
    nodes, now_told = snapshot.nodes(), snapshot.nodes_now()
    answers = drop_stale(cluster.answers, nodes)
    idle = model.idle_holders(answers)
    cluster_problems = find_problems(nodes, answers, knows_states=not snapshot.is_dcgm)
    silent = sum(1 for node in nodes if node.silent)
    measured = [node for node in nodes if not node.silent and node.gpus is not None]
    unseen = len(unseen_nodes(nodes, answers))
    costs = [query.name for query in cost.cost_queries(cluster.prices, periods=(period,))]
    away = [name for name in snapshot.cached if name.startswith(f"away_users_{period} ")]
    of_users = (*_OF_USERS, *(f"{name}_{period}" for name in _OF_PERIOD), *costs, *away)
    charges = cost.charges(answers, cluster.prices, period) if cluster.prices else {}
    users, uncertainty = model.users(answers, period), coverage.uncertainty(answers, period)
    unpriced = unpriced_sentence(unpriced_seconds(answers, cluster.prices, period))
    sentences = coverage.gap_sentence(answers, period), unpriced, explained(charges.values())
    gap = " ".join(filter(None, sentences))
    answered_at = snapshot.cached.get(f"held_{period}", NOT_YET).at or snapshot.at
    dates = month_dates(period, answered_at) if period.is_dated else ""
    by_group = cluster.groups if args["by"] == GROUP else None
    rows = (
        tables.group_rows(model.groups(users, by_group), by_group, charges, cluster.prices, period=period,
                          uncertainty=uncertainty, dates=dates)
        if by_group
        else tables.mark_idle(
            tables.user_rows(users, charges, cluster.prices, period=period, uncertainty=uncertainty, dates=dates)
        )
    )  # fmt: skip
    is_meaningful = not snapshot.unanswered and not model.has_no_series(answers)
    unknown_note = {"text": "Unknown."}
    all_clear = {"text": "No problems are known.", "old": "Unknown."} if is_meaningful else unknown_note
    gpus = f"{sum(node.total for node in measured):,} GPUs" if measured else "GPUs unknown"
    headlines = summary(answers, now_told, is_dcgm=snapshot.is_dcgm)
    return {
        **headlines,
        "tab": {"text": f"{headlines['free']} free", "old": ""} if headlines["free"] != units.MISSING else None,
        "doubts": doubts(cluster, nodes) or None,
        "map": node_map(now_told, {} if snapshot.unanswered else answers),
        "map_title": (
            f"{len(nodes):,} nodes, {gpus}{f', {silent:,} silent' if silent else ''}"
            f"{f'; {unseen:,} more not answering' if unseen else ''}"
        ) if nodes else "",
        "wrong": problems(cluster_problems, idle) or [all_clear],
        "periods": [
            {"text": choice.heading, "is_pressed": choice == period, "arg": "period", "value": choice,
             "title": month_dates(choice, snapshot.at) if choice.is_dated else choice.words.capitalize()}
            for choice in Period
        ],
        "foot": foot(cluster),
        **{
            f"{panel}_age": (outdated_states_note if panel in _OF_STATES else outdated_note)(cluster, names)
            for panel, names in _PANELS.items()
        },
        "users_dates": f"{period.heading}: {dates}, in the time zone of the server" if dates else "",
        "users_age": outdated_note(cluster, of_users) or ({"text": gap} if users and gap else None),
        "free_gpus": tables.free_rows(model.free_gpus(now_told)),
        "users": rows,
        **holder_choice(cluster.groups, args["by"]),
        **shown_costs(cluster.prices),
        "idle_holders": tables.idle_rows(idle),
        "runs": tables.run_rows(model.runs(answers)),
    }  # fmt: skip


PAGE = Page(
    "cluster", "Cluster", layout, live, args={"period": Period.WEEK.value, "by": USER}, subject=("period", "by")
)  # fmt: skip
