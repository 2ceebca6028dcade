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
from gpumon_web.cluster.known import ClusterNow, not_of_now, of
from gpumon_web.cluster.node_map import gpu_slots, states
from gpumon_web.cluster.problems import problems
from gpumon_web.cluster.tables import who
from gpumon_web.cluster.words import percent
from gpumon_web.components.page import Args, Cells, Column, Now, Page, Rows, table_column
from gpumon_web.components.tokens import fact, line, tag, text

if TYPE_CHECKING:
    from dash.development.base_component import Component

COLUMNS = (
    table_column(GPU_BY_KEY["gpu"], css="", is_head=True, sorts_by="order"),
    table_column(GPU_BY_KEY["state"], "rich", sorts_by="state_word", css="c-state"),
    table_column(GPU_BY_KEY["user"], "rich", key="users", sorts_by="name", css="c-users"),
    table_column(RUN_BY_KEY["id"], "mono", key="run", css="c-run"),
    Column("used", "Used", "percent", help="Mean of five minutes.", css="c-used"),
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
    known, name = of(now), args["id"]
    answers = known.answers
    node = next((one for one in known.snapshot.nodes_now() if one.name == name), None)
    told = [one for one in known.snapshot.nodes() if one.name == name]
    wrong = find_problems(told, _only(answers, name), knows_states=not known.snapshot.is_dcgm) if node else []
    is_told = node and not node.silent and not known.snapshot.unanswered
    slots = gpu_slots(answers, "node_", f" {name}").get(name, {}) if is_told else {}
    by_number = states(node, slots) if node else {}
    return {
        "tab": {"text": name, "old": name},
        "node": name if node or name in known.unseen() else "No such node",
        "facts": _facts(node, answers) if node else [],
        "own": _own(known, name) if node else None,
        "wrong": problems(wrong, []) or None,
        "gpus_age": not_of_now(known, [one.name for one in node_queries(name)]),
        "nothing": _nothing(known, node, name),
        "gpus": Rows(
            _row(number, slots[number], by_number[number], answers, name) for number in sorted(slots, key=natural_key)
        ),
    }


def _only(answers: Answers, name: str) -> Answers:
    """Return the rows of the answers about one node."""
    return {question: [row for row in rows if row.labels.get("instance") == name] for question, rows in answers.items()}


def _nothing(known: ClusterNow, node: model.Node | None, name: str) -> str:
    if node is None and (words := known.unseen().get(name)):
        return f"Nothing is known of the GPUs of this node: {words[0]}."
    if node is None:
        return "Prometheus has had no sample of a node of this name for an hour." if known.snapshot.cached else ""
    if node.silent:
        since = f"{units.long_duration(node.silent)}{' or longer' if node.is_undated else ''}"
        return f"This node has been silent for {since}: what its GPUs do, and who holds them, is unknown since then."
    if known.snapshot.unanswered:
        return "What its GPUs do is not known now: Prometheus did not answer that."
    if known.snapshot.is_dcgm:
        return "Only NVIDIA's exporter answers here: who is on which GPU is unknown."
    if f"node_info {name}" not in known.answers:
        return ""
    return f"Prometheus tells nothing about {units.counted(node.total, 'GPU')} of it." if node.total else "No GPU."


def _facts(node: model.Node, answers: Answers) -> list[Cells]:
    power = [] if node.silent else [row.value for row in answers.get(f"node_power {node.name}", ())]
    newest = single(answers, f"node_newest {node.name}")
    newest = newest if is_known(newest) else node.seen
    newest = NAN if node.is_undated else newest - node.clock_offset
    told = [
        fact("Model", ", ".join(node.models)),
        fact("GPUs", "" if node.gpus is None else units.count(node.total)),
        fact("Free", "" if node.gpus is None or node.silent else units.count(node.count("free"))),
        fact("Busy", percent(node.busy) if is_known(node.busy) and not node.silent else ""),
        fact("Power", watts(sum(power)) if power else ""),
        fact("Newest sample", "", newest) if is_known(newest) else None,
    ]
    return [one for one in told if one is not None]


def _own(known: ClusterNow, name: str) -> Cells | None:
    """Return the link to the node's own gpumon web; None if its address is not configured."""
    if not known.node_page:
        return None
    host = name.rpartition(":")[0] or name
    return {"text": "Its own pages", "href": known.node_page.replace("{host}", host)}


def _row(number: str, slot: Cells, state: str, answers: Answers, node: str) -> Cells:
    def value(question: str) -> float:
        rows = answers.get(f"node_{question} {node}", ())
        return next((row.value for row in rows if row.labels.get("gpu") == number), NAN)

    runs = [row.labels for row in answers.get(f"node_runs {node}", ()) if row.labels.get("gpu") == number]
    words, level = _STATES[state]
    memory, size = value("memory"), value("size")
    users = [piece for user in slot["users"] for piece in who(user)]
    tags = [tag(words, level)]
    if state == "held_idle" and is_known(idle := value("held_idle")):
        tags.append(text(f"for {units.long_duration(idle)}", "mut"))
    tags += [
        tag(f"throttled by {row.labels.get('cause', '')} {percent(row.value)}", "warn")
        for row in answers.get(f"node_throttled {node}", ()) if row.labels.get("gpu") == number
    ]  # fmt: skip
    return {
        "key": number, "gpu": f"GPU {number}", "order": float(number) if number.isdigit() else number,
        "state": [line(*tags, css="who")], "state_word": words, "users": users or [line(text("–", "mut"))],
        "name": ", ".join(slot["users"]) or None,
        "run": ", ".join(dict.fromkeys(one.get("name") or one.get("run", "") for one in runs)) or units.MISSING,
        "used": slot["used"], "memory": _memory(memory, size), "memory_used_bytes": shown(memory),
        "power": shown(value("power")),
        "temperature": shown(value("temperature")), "search": number,
    }  # fmt: skip


def _memory(used: float, size: float) -> str:
    if not (is_known(used) and used >= 0):
        return units.MISSING
    return units.of_total(used, size) if is_known(size) else GPU_BY_KEY["memory_used"].write(used)


PAGE = Page("node", "Node", layout, live, args={"id": ""}, tab="cluster", is_tab=False, needs_id=True)
