"""Problems of a cluster's nodes.

Messages name a query by what it shows, because users do not know the names of queries.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpumon.cluster.client import Answers
from gpumon.cluster.model import Node, natural_key
from gpumon.common.numbers import NAN, is_known
from gpumon.model import units
from gpumon.model.metrics import Unit

_SECTIONS = (
    ("seen|seen_before|gpus|models|clocks|clocks_before|unreal", "nodes and their GPUs"),
    ("busy|busy_of_day", "utilization"),
    ("power|limit|energy_of_day", "power and energy"),
    ("down|without_daemon|xids|last_xid|throttled|dcgm_alone", "problems"),
    ("idle_holders", "allocated, idle"),
    ("run.*|epochs|planned", "runs"),
)
_TOPICS = (
    ("seen|seen_before|clocks|clocks_before", "silent nodes"),
    ("gpus", "GPUs by state"),
    ("models", "models"),
    ("unreal", "simulated nodes"),
    ("busy", "utilization"),
    ("busy_of_day", "utilization over the last day"),
    ("power|limit", "power"),
    ("energy_of_day", "energy over the last day"),
    ("down|without_daemon|dcgm_alone", "nodes that do not answer"),
    ("xids|last_xid", "XID errors"),
    ("throttled", "throttling"),
    ("idle_holders", "idle holders"),
    ("runs|run_nodes|run_places", "runs"),
    ("epochs|planned", "epochs"),
    ("held_now|idle_now", "GPUs now"),
    ("covered_.*|away_.*", "missing samples"),
    ("held_by_model_.*", "cost"),
    ("idle_held_by_model_.*", "idle cost"),
    ("energy_at_.*|energy_lately_.*", "power cost"),
    ("held_.*", "GPU-hours"),
    ("judged_.*|busy_.*", "used"),
    ("idle_held_.*", "allocated, idle"),
    ("energy_.*", "energy"),
)
"""Topics of queries, by patterns of query names. The first matching pattern is used."""


def query_topic(query: str) -> str:
    """Return the topic of a query, in the words of the table headings.

    >>> query_topic("busy_of_day"), query_topic("held_by_model_week"), query_topic("busy_week")
    ('utilization over the last day', 'cost', 'used')
    """
    return next((words for pattern, words in _TOPICS if re.fullmatch(pattern, query)), "others")


def page_section(query: str) -> str:
    """Return the section of the cluster page that shows the result of a query. The default is `users`.

    >>> page_section("busy"), page_section("run_places"), page_section("busy_week")
    ('utilization', 'runs', 'users')
    """
    return next((words for pattern, words in _SECTIONS if re.fullmatch(pattern, query)), "users")


_UNKNOWN = "with GPUs in an unknown state"
_TARGET_PROBLEMS = {
    "without_daemon": ("its exporter answers, but no daemon samples its GPUs", "without a daemon"),
    "down": ("its exporter does not answer", "whose exporters do not answer"),
}
"""Texts for the nodes that a query returns, by the name of the query.

The first text describes a single node. If several nodes share a problem, the second text follows their number.
"""


@dataclass(frozen=True, slots=True)
class Problem:
    """A condition of a node that needs attention."""

    node: str
    text: str
    is_severe: bool
    kind: str = ""
    """Text after the number of nodes if several nodes have the same problem, such as `silent`."""
    at: float = NAN
    """Time of the problem (s since 1970) if it is not in the text. A page shows it in the time zone of its viewer."""

    @property
    def dated(self) -> str:
        """Text of the problem, including its time in the time zone of this machine."""
        return f"{self.text} at {units.moment(self.at)}" if is_known(self.at) else self.text


def clock_distance(seconds: float) -> str:
    """Return the difference between two clocks as text.

    A minute or more is rounded to whole minutes, because the clocks are not read at the same moment.

    >>> clock_distance(-299.2), clock_distance(594.0), clock_distance(42.0)
    ('5 min', '10 min', '42 s')
    """
    distance = abs(seconds)
    return units.long_duration(60 * round(distance / 60) if distance >= 60 else distance)


def unseen_nodes(nodes: Iterable[Node], answers: Answers) -> dict[str, tuple[str, str]]:
    """Return the nodes that have never reported GPUs, each with two texts.

    The first text describes a single node. If several nodes share a problem, the second text follows their number.
    """
    known = {node.name for node in nodes}
    return {
        row.node: texts for query, texts in _TARGET_PROBLEMS.items() for row in answers.get(query, ())
        if row.node not in known
    }  # fmt: skip


def find_problems(nodes: Sequence[Node], answers: Answers, *, knows_states: bool = True) -> list[Problem]:
    """Return the problems of a cluster, severe ones first.

    `knows_states`: False if the exporters cannot tell that a GPU is free.
    """
    reasons = {row.node: text for query, (text, _) in _TARGET_PROBLEMS.items() for row in answers.get(query, ())}
    problems = [problem for node in nodes for problem in _node_problems(node, reasons, knows_states=knows_states)]
    for name, (text, kind) in unseen_nodes(nodes, answers).items():
        problems.append(Problem(name, text, is_severe=True, kind=kind))
    for row in answers.get("xids", ()):
        gpu, xid = row.labels.get("gpu", "?"), row.labels.get("xid", "?")
        problems.append(Problem(row.node, f"XID {xid} on GPU {gpu}", False, f"with XID {xid}", row.value))
    for row in answers.get("last_xid", ()):
        text = f"XID {row.value:.0f} on GPU {row.labels.get('gpu', '?')}, at an unknown time"
        problems.append(Problem(row.node, text, False, "with an XID error"))
    for row in answers.get("throttled", ()):
        cause = row.labels.get("cause", "")
        text = f"a GPU is throttled by {cause} {units.number(row.value, Unit.RATIO)} of the time"
        problems.append(Problem(row.node, text, False, f"throttled by {cause}"))
    return sorted(problems, key=lambda problem: (not problem.is_severe, natural_key(problem.node), problem.text))


def _node_problems(node: Node, reasons: Mapping[str, str], *, knows_states: bool) -> Iterator[Problem]:
    """Yield the problems of one node. `reasons`: text about the exporter of each node whose exporter has a problem."""
    if node.silent:
        text = f"silent for {units.long_duration(node.silent)}"
        if node.is_undated:
            text += " or longer: its newest sample has a time in the future"
        elif node.name in reasons:
            text += f": {reasons[node.name]}"
        yield Problem(node.name, text, is_severe=True, kind="silent")
    elif lost := node.count("lost"):
        yield Problem(node.name, f"{units.counted(lost, 'GPU')} lost", True, "with lost GPUs")
    if node.clock_offset and not node.silent:
        side = "ahead of" if node.clock_offset > 0 else "behind"
        text = f"its clock is {clock_distance(node.clock_offset)} {side} Prometheus's"
        yield Problem(node.name, text, is_severe=False, kind="whose clocks differ from Prometheus's")
    if (unknown := node.count("unknown")) and knows_states:
        yield Problem(node.name, f"{units.counted(unknown, 'GPU')} in an unknown state", False, _UNKNOWN)


def interleave_kinds(problems: Iterable[Problem]) -> list[Problem]:
    """Return the problems in a new order, for a list in which only the first few may be shown.

    Severe problems come first. Problems of different kinds alternate, so that many nodes that are switched off do not
    hide a lost GPU.
    """
    counts: dict[str, int] = {}
    ranked = []
    for problem in problems:
        ranked.append((not problem.is_severe, counts.get(problem.kind, 0), problem))
        counts[problem.kind] = counts.get(problem.kind, 0) + 1
    return [problem for *_, problem in sorted(ranked, key=lambda item: item[:2])]
