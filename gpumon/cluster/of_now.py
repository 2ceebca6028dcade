"""Answers that are of now: an engine tells the last value of a series for minutes after its node fell silent."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.cluster.facts import Node
from gpumon.cluster.recorded import RULE_INTERVAL, SILENT
from gpumon.cluster.rows import Answers
from gpumon.model import units

_LOOKBACK = 300.0
"""Seconds for which an engine tells a value that has no successor."""
_LINGERS = SILENT + _LOOKBACK + RULE_INTERVAL
"""Seconds since its newest sample after which nothing of a node is left in a sum, which may be recorded late."""
_CURRENT = (
    "busy", "power", "limit", "held_now", "idle_now", "idle_holders", "runs", "run_nodes", "epochs", "planned",
    "run_places", "throttled",
)  # fmt: skip
_OF_SUBJECT = ("user_places ", "user_jobs ")


def of_now(answers: Answers, nodes: Sequence[Node]) -> Answers:
    """Return answers without what is told of silent nodes alone; where every node is silent, with nothing of now."""
    silent = {node.name for node in nodes if node.silent}
    if not silent:
        return answers
    current = {name for name in answers if name in _CURRENT or name.startswith(_OF_SUBJECT)}
    if len(silent) == len(nodes):
        return {name: rows for name, rows in answers.items() if name not in current}
    gone = _gone(answers, silent)
    return {
        name: [row for row in rows if row.labels.get("instance") not in silent and row.labels.get("run") not in gone]
        if name in current else rows
        for name, rows in answers.items()
    }  # fmt: skip


def _is_told(node: Node) -> bool:
    return any(count for state, count in (node.gpus or {}).items() if state != "unknown")


def _gone(answers: Answers, silent: set[str]) -> set[str]:
    """Runs that are on silent nodes alone, as far as it is known where they are."""
    on: dict[str, set[str]] = {}
    for row in answers.get("run_places", ()):
        on.setdefault(row.labels.get("run", ""), set()).add(row.labels.get("instance", ""))
    return {run for run, places in on.items() if places <= silent}


def may_include(nodes: Sequence[Node]) -> str:
    """Words on a sum that may hold last values of nodes that fell silent just now; empty where it has none.

    Most engines forget a node that does not answer; of one that nobody asks any more they tell GPUs and power alike.
    """
    lately = sum(1 for node in nodes if 0 < node.silent <= _LINGERS and _is_told(node))
    return f"may include {units.counted(lately, 'silent node')}" if lately else ""
