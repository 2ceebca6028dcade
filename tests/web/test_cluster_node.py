"""The page of a node that is silent, whose clock is another, or that never answered."""

from __future__ import annotations

from gpumon.cluster.rules import BEHIND, STANDS
from tests.web.clustered import NOW, Cluster, TableEngine, cluster, row


def facts_of(served: Cluster, node: str) -> dict[str, object]:
    """Facts of the head of a node's page: words, or a moment."""
    return {one["fact"]: one["text"] or one["time"] for one in served.values("node", id=node)["facts"]}


def test_of_a_silent_node_it_is_not_said_how_busy_it_is() -> None:
    served = Cluster(TableEngine(cluster(3))).after(0.0)
    assert facts_of(served, "gn001")["Busy"] == "41 %"
    assert "Busy" not in facts_of(served, "gn003")
    assert facts_of(served, "gn003")["Newest sample"] == NOW - 600


def test_the_newest_sample_of_a_node_is_in_the_time_of_all_and_none_is_of_a_time_to_come() -> None:
    answers = cluster(3)
    answers["seen"] = [row(NOW - 303, instance="gn001", newest=BEHIND), row(NOW + 400, instance="gn002", newest=STANDS)]
    served = Cluster(TableEngine(answers)).after(0.0)
    assert facts_of(served, "gn001")["Newest sample"] == NOW
    assert "Newest sample" not in facts_of(served, "gn002")
    assert served.values("node", id="gn002")["nothing"].startswith("This node has been silent for 2 min or longer")


def test_the_page_of_a_node_that_never_answered_says_what_is_wrong_with_it() -> None:
    answers = cluster(3) | {"down": [row(0.0, instance="gn9")]}
    served = Cluster(TableEngine(answers)).after(0.0)
    values = served.values("node", id="gn9")
    assert values["node"] == "gn9"
    assert values["nothing"] == "GPUs of this node are unknown: its exporter does not answer."
    assert served.values("node", id="gn8")["node"] == "No such node"
