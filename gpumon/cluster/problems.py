"""The parts of a cluster's picture by which people know a question: they are not told the names of questions."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from gpumon.cluster.client import Answers, node_of
from gpumon.cluster.model import Node, in_order
from gpumon.common.numbers import NAN, is_known
from gpumon.model import units
from gpumon.model.metrics import Unit

_PARTS = (
    ("seen|seen_before|gpus|models|clocks|clocks_before|unreal", "nodes and their GPUs"),
    ("busy|busy_of_day", "utilization"),
    ("power|limit|energy_of_day", "power and energy"),
    ("down|without_daemon|xids|last_xid|throttled|dcgm_alone", "what is wrong"),
    ("idle_holders", "allocated, idle"),
    ("run.*|epochs|planned", "runs"),
)
_ANSWERS = (
    ("seen|seen_before|clocks|clocks_before", "silent nodes"),
    ("gpus", "GPUs by state"),
    ("models", "models"),
    ("unreal", "simulated nodes"),
    ("busy", "utilization"),
    ("busy_of_day", "utilization of the day"),
    ("power|limit", "power"),
    ("energy_of_day", "energy of the day"),
    ("down|without_daemon|dcgm_alone", "nodes that do not answer"),
    ("xids|last_xid", "XID errors"),
    ("throttled", "throttling"),
    ("idle_holders", "idle holders"),
    ("runs|run_nodes|run_places", "runs"),
    ("epochs|planned", "epochs"),
    ("held_now|idle_now", "GPUs now"),
    ("covered_.*|away_.*", "how much of the time is known"),
    ("held_by_model_.*", "cost"),
    ("idle_held_by_model_.*", "idle cost"),
    ("energy_at_.*|energy_lately_.*", "power cost"),
    ("held_.*", "GPU-hours"),
    ("judged_.*|busy_.*", "used"),
    ("idle_held_.*", "allocated, idle"),
    ("energy_.*", "energy"),
)
"""Words for the answer to a question, by the first pattern that fits."""


def answer_to(question: str) -> str:
    """Return what a question is about, as the tables call it.

    >>> answer_to("busy_of_day"), answer_to("held_by_model_week"), answer_to("busy_week")
    ('utilization of the day', 'cost', 'used')
    """
    return next((words for pattern, words in _ANSWERS if re.fullmatch(pattern, question)), "others")


def part(question: str) -> str:
    """Return the part that a question belongs to: all others are about users.

    >>> part("busy"), part("run_places"), part("busy_week")
    ('utilization', 'runs', 'users')
    """
    return next((words for pattern, words in _PARTS if re.fullmatch(pattern, question)), "users")


_UNKNOWN = "with GPUs in an unknown state"
_OF_TARGETS = {
    "without_daemon": ("its exporter answers, and no daemon samples its GPUs", "without a daemon"),
    "down": ("its exporter does not answer", "whose exporters do not answer"),
}
"""Words on a node by the question that names it: for one, and for several behind their number."""


class Wrong(NamedTuple):
    """A thing that somebody should look at."""

    node: str
    text: str
    severe: bool
    kind: str = ""
    """Words for several nodes with the same, behind their number: `silent`."""
    at: float = NAN
    """When it was, s since 1970, where the text does not say: a page writes it in the time zone of its viewer."""

    @property
    def dated(self) -> str:
        """Its text with its time in the time zone of this machine."""
        return f"{self.text} at {units.moment(self.at)}" if is_known(self.at) else self.text


def apart(seconds: float) -> str:
    """The distance of two clocks in words, to the nearest minute where it is minutes: both are read some seconds apart.

    >>> apart(-299.2), apart(594.0), apart(42.0)
    ('5 min', '10 min', '42 s')
    """
    distance = abs(seconds)
    return units.words(60 * round(distance / 60) if distance >= 60 else distance)


def unseen_nodes(found: Iterable[Node], answers: Answers) -> dict[str, tuple[str, str]]:
    """Return nodes of which nothing but this is known: words for one, and for several behind their number."""
    known = {node.name for node in found}
    return {
        node_of(row): words for question, words in _OF_TARGETS.items() for row in answers.get(question, ())
        if node_of(row) not in known
    }  # fmt: skip


def what_is_wrong(found: Iterable[Node], answers: Answers, *, tells_states: bool = True) -> list[Wrong]:
    """Return what is wrong, the severe first; `tells_states`: whether exporters can say that a GPU is free."""
    told = []
    why = {
        node_of(row): words for question, (words, _) in _OF_TARGETS.items() for row in answers.get(question, ())
    }  # fmt: skip
    for node in found:
        if node.silent:
            least = " or longer: its newest sample has a time to come" if node.is_undated else ""
            text = f"silent for {units.words(node.silent)}{least}"
            text += f": {why[node.name]}" if node.name in why and not least else ""
            told.append(Wrong(node.name, text, severe=True, kind="silent"))
        elif node.count("lost"):
            told.append(Wrong(node.name, f"{units.counted(node.count('lost'), 'GPU')} lost", True, "with lost GPUs"))
        if node.ahead and not node.silent:
            side = "ahead of" if node.ahead > 0 else "behind"
            text = f"its clock is {apart(node.ahead)} {side} the engine's"
            told.append(Wrong(node.name, text, severe=False, kind="whose clocks are apart"))
        if node.count("unknown") and tells_states:
            told.append(
                Wrong(node.name, f"{units.counted(node.count('unknown'), 'GPU')} in an unknown state", False, _UNKNOWN)
            )
    told += [Wrong(name, text, severe=True, kind=kind) for name, (text, kind) in unseen_nodes(found, answers).items()]
    for row in answers.get("xids", ()):
        gpu, xid = row.labels.get("gpu", "?"), row.labels.get("xid", "?")
        told.append(Wrong(node_of(row), f"XID {xid} on GPU {gpu}", False, f"with XID {xid}", row.value))
    for row in answers.get("last_xid", ()):
        gpu = row.labels.get("gpu", "?")
        told.append(Wrong(node_of(row), f"XID {row.value:.0f} on GPU {gpu}, at an unknown time", False, "with an XID"))
    for row in answers.get("throttled", ()):
        by = row.labels.get("cause", "")
        told.append(
            Wrong(
                node_of(row), f"a GPU is throttled by {by} {units.number(row.value, Unit.RATIO)} of the time", False,
                f"throttled by {by}",
            )
        )  # fmt: skip
    return sorted(told, key=lambda one: (not one.severe, in_order(one.node), one.text))


def each_kind_first(found: Iterable[Wrong]) -> list[Wrong]:
    """Return what is wrong with the first of each kind before the second of any, the severe still before the others.

    Where there is room for a few, a rack that is switched off hides no lost GPU.
    """
    before: dict[str, int] = {}
    places = []
    for one in found:
        places.append((not one.severe, before.get(one.kind, 0), one))
        before[one.kind] = before.get(one.kind, 0) + 1
    return [one for *_, one in sorted(places, key=lambda place: place[:2])]
