"""The page of one node of a cluster: its GPUs with their users, problems, and a link to the node's own gpumon web."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.cluster import model
from gpumon.cluster.client import Answers, single
from gpumon.cluster.model import natural_key
from gpumon.cluster.problems import find_problems
from gpumon.cluster.queries import node_queries
from gpumon.cluster.snapshot import watts
from gpumon.common.numbers import NAN, is_known, shown
from gpumon.model import units
from gpumon.model.columns import GPU_BY_KEY, RUN_BY_KEY
from gpumon_web.cluster.data import ClusterNow, cluster_data, outdated_note, percent
from gpumon_web.cluster.node_map import gpu_slots, states
from gpumon_web.cluster.problems import problems
from gpumon_web.cluster.tables import user_cell
from gpumon_web.components.machine import Now
from gpumon_web.components.page import Args, Cells, Column, Page, Rows, table_column
from gpumon_web.components.tokens import fact, line, tag, text

if TYPE_CHECKING:
    from dash.development.base_component import Component

COLUMNS = (
    table_column(GPU_BY_KEY["gpu"], css="", is_head=True, sorts_by="order"),
    table_column(GPU_BY_KEY["state"], "rich", sorts_by="state_word", css="c-state"),
    table_column(GPU_BY_KEY["user"], "rich", key="users", sorts_by="name", css="c-users"),
    table_column(RUN_BY_KEY["id"], "mono", key="run", css="c-run"),
    Column("used", "Used", "percent", help="Mean utilization of the last five minutes.", css="c-used"),
    table_column(GPU_BY_KEY["memory_used"], "text", key="memory", css="c-memory"),
    table_column(GPU_BY_KEY["power"], css="c-power"),
    table_column(GPU_BY_KEY["temperature"], css="c-temp"),
)
_STATES = {"free": ("free", "ok"), "busy": ("busy", ""), "held_idle": ("allocated, idle", "warn"),
           "lost": ("does not answer", "bad"), "unknown": ("unknown", "")}  # fmt: skip


def layout() -> Component:
    """Create the layout: a head with facts and a link to the node itself, problems, and the table of GPUs."""
    from dash import html

    from gpumon_web.components.layout import bound, card, table

    return html.Div(
        [
            html.Div(
                [bound("node", "text", html.H1), bound("facts", "rich", html.Div, className="facts"),
                 bound("own", "away")],
                className="head",
            ),
            bound("wrong", "notes", html.Ul, className="look"),
            card("GPUs", bound("gpus_age", "text", html.P, className="age"),
                 table("gpus", "GPUs", COLUMNS, "gpu", css="plain devices", empty_from="nothing")),
        ]
    )  # fmt: skip


def live(now: Now, args: Args) -> Cells:
    """Compute all values of the page."""
    cluster, name = cluster_data(now), args["id"]
    answers = cluster.answers
    node = next((candidate for candidate in cluster.snapshot.nodes_now() if candidate.name == name), None)
    nodes = [candidate for candidate in cluster.snapshot.nodes() if candidate.name == name]
    node_answers = _rows_of_node(answers, name)
    node_problems = find_problems(nodes, node_answers, knows_states=not cluster.snapshot.is_dcgm) if node else []
    is_answered = node and not node.silent and not cluster.snapshot.unanswered
    slots = gpu_slots(answers, "node_", f" {name}").get(name, {}) if is_answered else {}
    by_number = states(node, slots) if node else {}
    return {
        "tab": {"text": name, "old": name},
        "node": name if node or name in cluster.unseen() else "No such node",
        "facts": _facts(node, answers) if node else [],
        "own": _own_link(cluster, name) if node else None,
        "wrong": problems(node_problems, []) or None,
        "gpus_age": outdated_note(cluster, [query.name for query in node_queries(name)]),
        "nothing": _empty_text(cluster, node, name),
        "gpus": Rows(
            _row(number, slots[number], by_number[number], answers, name) for number in sorted(slots, key=natural_key)
        ),
    }


def _rows_of_node(answers: Answers, name: str) -> Answers:
    """Return the answers with only the rows about one node."""
    return {question: [row for row in rows if row.labels.get("instance") == name] for question, rows in answers.items()}


def _empty_text(cluster: ClusterNow, node: model.Node | None, name: str) -> str:
    if node is None and (reasons := cluster.unseen().get(name)):
        return f"GPUs of this node are unknown: {reasons[0]}."
    if node is None:
        return "Prometheus has no samples of a node with this name in the last hour." if cluster.snapshot.cached else ""
    if node.silent:
        since = f"{units.long_duration(node.silent)}{' or longer' if node.is_undated else ''}"
        return f"This node has been silent for {since}: the current state and users of its GPUs are unknown."
    if cluster.snapshot.unanswered:
        return "The state of its GPUs is unknown: Prometheus did not answer this query."
    if cluster.snapshot.is_dcgm:
        return "Prometheus has only series of NVIDIA's dcgm-exporter: users of GPUs are unknown."
    if f"node_info {name}" not in cluster.answers:
        return ""
    return (
        f"Prometheus has no details of {units.counted(node.total, 'GPU')} of this node." if node.total else "No GPUs."
    )


def _facts(node: model.Node, answers: Answers) -> list[Cells]:
    power = [] if node.silent else [row.value for row in answers.get(f"node_power {node.name}", ())]
    newest = single(answers, f"node_newest {node.name}")
    newest = newest if is_known(newest) else node.seen
    newest = NAN if node.is_undated else newest - node.clock_offset
    facts = [
        fact("Model", ", ".join(node.models)),
        fact("GPUs", "" if node.gpus is None else units.count(node.total)),
        fact("Free", "" if node.gpus is None or node.silent else units.count(node.count("free"))),
        fact("Busy", percent(node.busy) if is_known(node.busy) and not node.silent else ""),
        fact("Power", watts(sum(power)) if power else ""),
        fact("Newest sample", "", newest) if is_known(newest) else None,
    ]
    return [entry for entry in facts if entry is not None]


def _own_link(cluster: ClusterNow, name: str) -> Cells | None:
    """Return the link to the node's own gpumon web; None if its address is not configured."""
    if not cluster.node_page:
        return None
    host = name.rpartition(":")[0] or name
    return {"text": "gpumon web of this node", "href": cluster.node_page.replace("{host}", host)}


def _row(number: str, slot: Cells, state: str, answers: Answers, node: str) -> Cells:
    def value(question: str) -> float:
        rows = answers.get(f"node_{question} {node}", ())
        return next((row.value for row in rows if row.labels.get("gpu") == number), NAN)

    runs = [row.labels for row in answers.get(f"node_runs {node}", ()) if row.labels.get("gpu") == number]
    run_names = dict.fromkeys(labels.get("name") or labels.get("run", "") for labels in runs)
    label, level = _STATES[state]
    memory, size = value("memory"), value("size")
    users = [token for user in slot["users"] for token in user_cell(user)]
    tags = [tag(label, level)]
    if state == "held_idle" and is_known(idle := value("held_idle")):
        tags.append(text(f"for {units.long_duration(idle)}", "mut"))
    tags += [
        tag(f"throttled by {row.labels.get('cause', '')} {percent(row.value)}", "warn")
        for row in answers.get(f"node_throttled {node}", ()) if row.labels.get("gpu") == number
    ]  # fmt: skip
    return {
        "key": number, "gpu": f"GPU {number}", "order": float(number) if number.isdigit() else number,
        "state": [line(*tags, css="who")], "state_word": label, "users": users or [line(text("–", "mut"))],
        "name": ", ".join(slot["users"]) or None,
        "run": ", ".join(run_names) or units.MISSING,
        "used": slot["used"], "memory": _memory(memory, size), "memory_used_bytes": shown(memory),
        "power": shown(value("power")),
        "temperature": shown(value("temperature")), "search": number,
    }  # fmt: skip


def _memory(used: float, size: float) -> str:
    if not (is_known(used) and used >= 0):
        return units.MISSING
    return units.of_total(used, size) if is_known(size) else GPU_BY_KEY["memory_used"].write(used)


PAGE = Page("node", "Node", layout, live, args={"id": ""}, tab="cluster", is_tab=False, needs_id=True)
