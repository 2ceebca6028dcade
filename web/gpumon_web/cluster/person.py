"""The page of one user of a cluster: GPUs held now, hours by period, runs, nodes, and idle GPUs."""

from __future__ import annotations

from collections.abc import Callable
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
from gpumon_web.cluster.known import ClusterNow, not_of_now, of
from gpumon_web.cluster.words import gpus, node_link, percent
from gpumon_web.components.costs import COSTS, cost_cells, shown_costs
from gpumon_web.components.page import Args, Cells, Column, Now, Page, Rows, table_column

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
    Column("busy", "Node busy", "percent"),
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
            card("Hours", table("hours", "Hours", _HOURS, "period", css="plain people hours",
                                empty="Nothing is known.")),
            card("Runs", table("runs", "Runs", tables.RUNS_OF_ONE, "gpus", css="plain jobs own",
                               empty_from="no_runs")),
            html.Div(
                [
                    html.Div([card("Nodes", table("nodes", "Nodes", _NODES, "gpus", css="plain short",
                                                  empty_from="no_nodes"))], className="column"),
                    html.Div([card("Allocated, idle for half an hour or longer",
                                   table("idle_holders", "Idle", tables.IDLE_OF_ONE, "lasts",
                                         css="plain short",
                                         empty="Nothing of theirs is known to be idle for so long."))],
                             className="column"),
                ],
                className="columns",
            ),
        ]
    )  # fmt: skip


def live(now: Now, args: Args) -> Cells:
    """Compute all values of the page."""
    known, name = of(now), args["id"]
    nodes = known.snapshot.nodes_now()
    answers = drop_stale(known.answers, nodes)
    places = answers.get(f"user_places {name}", ())
    busy = {one.name: one.busy for one in nodes}
    rows = sorted(places, key=lambda row: (-row.value, natural_key(row.labels.get("instance", ""))))
    return {
        "tab": {"text": name, "old": name},
        "user": name,
        "about": _about(known, answers, name),
        "user_age": not_of_now(known, [one.name for one in user_queries(name)]) or _explained(known, name),
        "hours": Rows(_hours(known, name, period) for period in Period),
        **shown_costs(known.prices),
        "runs": tables.run_rows(_runs(answers, name)),
        "no_runs": _none(known, "jobs", name, "No run of theirs is known."),
        "no_nodes": _none(known, "places", name, "They are on no node that is known."),
        "nodes": Rows(
            {"key": node, "node": [node_link(node)], "name": node, "gpus": round(row.value),
             "busy": shown(busy.get(node, NAN))}
            for row in rows if (node := row.labels.get("instance", ""))
        ),
        "idle_holders": tables.idle_rows([one for one in model.idle_holders(answers) if one.user == name]),
    }  # fmt: skip


NAMING = ("runs", "held_now", *(f"held_{period}" for period in ROLLING))
"""Queries whose answers have user names."""


def named(answers: Answers) -> set[str]:
    """Return the users in Prometheus's answers; no other user is queried."""
    return {row.labels.get("user", "") for question in NAMING for row in answers.get(question, ())}


def _none(known: ClusterNow, what: str, name: str, said: str) -> str:
    """Return the text shown without rows; before an answer it must not claim that there are none."""
    asked = known.snapshot.cached.get(f"user_{what} {name}")
    if asked is None:
        return "Asking Prometheus …" if name in named(known.answers) else said
    return "Not known." if asked.rows is None else said


def _about(known: ClusterNow, answers: Answers, name: str) -> str:
    """Return the number of GPUs held now, and the user's group."""
    one = _of(answers, name, Period.WEEK)
    group = known.groups.of_user.get(name, "") if known.groups else ""
    held = gpus(one.held) if one else units.MISSING
    told = [
        f"{held} GPU{'' if held == '1' else 's'} now, {gpus(one.idle)} of them idle"
        if one and is_known(one.held)
        else "",
        f"group {group}" if group else "",
    ]
    return "  ·  ".join(filter(None, told))


def _of(answers: Answers, name: str, period: Period) -> ClusterUser | None:
    return next((one for one in model.users(answers, period) if one.name == name), None)


def _hours(known: ClusterNow, name: str, period: Period) -> Cells:
    answers, prices = known.answers, known.prices
    charge = cost.charges(answers, prices, period).get(name) if prices else None
    one = _of(answers, name, period) or ClusterUser(name)
    is_complete, part = (
        coverage.uncertainty(answers, period).is_complete(name),
        coverage.missing_note(answers, period, name),
    )

    without = sum(unpriced_seconds(answers, prices, period, name).values())
    dates = month_dates(period, known.snapshot.at) if period is Period.LAST_MONTH else ""
    told = period.heading, dates, _age(known, period), part, f"{hours(without)} without a price" if without else ""

    def sum_of(value: float, said: Callable[[float], str]) -> str:
        return coverage.format_sum(value, said, is_complete=is_complete)

    return {
        "key": period.value, "period": ", ".join(filter(None, told)),
        "seconds": coverage.period_length(answers, period),
        "time": sum_of(one.held_seconds, hours),
        "held_seconds": shown(one.held_seconds), "used": percent(one.used), "used_ratio": shown(one.used),
        "idle": sum_of(one.idle_seconds, hours), "idle_held_seconds": shown(one.idle_seconds),
        "energy": sum_of(one.energy, kwh), "energy_joules": shown(one.energy), **cost_cells(charge, prices),
    }  # fmt: skip


def _explained(known: ClusterNow, name: str) -> str | None:
    """Return an explanation of the costs."""
    prices, answers = known.prices, known.answers
    every = [cost.charges(answers, prices, period).get(name) for period in Period] if prices else []
    return explained(one for one in every if one) or None


def _age(known: ClusterNow, period: Period) -> str:
    """Return a note on an outdated sum: a month is queried rarely, so it may be less than the week's sum."""
    asked = known.snapshot.cached.get(f"held_{period}", NOT_YET)
    age = known.snapshot.at - asked.at
    if period is Period.LAST_MONTH or asked.rows is None or age <= _AGE:
        return ""
    return f"up to {units.long_duration(age)} ago"


def _runs(answers: Answers, name: str) -> list[ClusterRun]:
    """Return the runs of a user, with the names of their nodes."""
    epochs, planned = (
        {row.labels.get("run", ""): row.value for row in answers.get(f"user_{what} {name}", ())}
        for what in ("epochs", "planned")
    )
    tells = f"user_epochs {name}" in answers
    found: dict[str, ClusterRun] = {}
    for row in answers.get(f"user_jobs {name}", ()):
        labels, run = row.labels, row.labels.get("run", "")
        before = found.get(run) or ClusterRun(
            labels.get("name", ""), run, name, labels.get("slurm_job", ""), (), 0, epochs.get(run, NAN),
            planned.get(run, NAN), has_epoch_info=tells,
        )  # fmt: skip
        node = labels.get("instance", "")
        found[run] = before._replace(nodes=(*before.nodes, node), gpus=before.gpus + round(row.value))
    return [one._replace(nodes=sorted(one.nodes, key=natural_key)) for one in found.values()]


PAGE = Page("person", "User", layout, live, args={"id": ""}, tab="cluster", is_tab=False, needs_id=True)
