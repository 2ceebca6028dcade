"""Answers of the engine as what is wrong in a cluster: silent nodes, lost and throttled GPUs, XID errors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from gpumon.cluster.facts import Node, in_order
from gpumon.cluster.rows import Answers, node_of
from gpumon.common.numbers import NAN, is_known
from gpumon.model import units
from gpumon.model.metrics import Unit

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
