"""The data of the cluster pages at one tick, and notes on parts of a page that are outdated or unknown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gpumon.cluster.client import Answers
from gpumon.cluster.problems import unseen_nodes
from gpumon.cluster.snapshot import NOT_YET, CachedAnswer, ClusterSnapshot
from gpumon.common.config import Prices, UserGroups
from gpumon_web.components.page import Cells, Now

_STATES = "What GPUs do is unknown"
NOTHING = ClusterSnapshot(0.0, {}, took=0.0)


class ClusterNow(NamedTuple):
    """A snapshot, and the settings of the server."""

    snapshot: ClusterSnapshot = NOTHING
    server_name: str = ""
    """Prometheus's URL, for display."""
    prices: Prices | None = None
    node_page: str = ""
    """URL of a node's own gpumon web, with `{host}` for its name; empty if not configured."""
    groups: UserGroups | None = None

    @property
    def answers(self) -> Answers:
        """The latest rows of every query that was ever answered."""
        return self.snapshot.answers()

    def unseen(self) -> Mapping[str, tuple[str, str]]:
        """Return nodes whose GPUs are unknown, with the text for one such node and for several."""
        return unseen_nodes(self.snapshot.nodes(), self.answers)


def cluster_data(now: Now) -> ClusterNow:
    """Return the data of the cluster; empty before the first answers."""
    return now.cluster or ClusterNow()


def outdated_note(cluster: ClusterNow, queries: Sequence[str]) -> Cells | None:
    """Return a note that says why a part of a page is outdated, and its time; None if it is current."""
    cached = cluster.snapshot.cached
    if not cluster.snapshot.is_answered:  # the top of the page shows the reason
        if any(answer.rows is not None for answer in _cached_answers(cluster, queries)):
            return {"text": "What stands here is of", "time": cluster.snapshot.answered}
        since = [answer.failing for answer in _cached_answers(cluster, queries) if answer.failing]
        return {"text": "Unknown since", "time": min(since, default=cluster.snapshot.at)}
    failing = [cached[name] for name in queries if name in cached and cached[name].problem]
    if failing:
        oldest = min(failing, key=lambda answer: (answer.rows is not None, answer.at))
        reason = oldest.problem[:1].upper() + oldest.problem[1:]
        if oldest.rows is None:
            answered = [answer for answer in _cached_answers(cluster, queries) if answer.rows is not None]
            unknown = "A part is unknown" if answered else "Unknown"
            return {"text": f"{unknown}. {reason}, since", "time": oldest.failing}
        part = "Some of what" if len(failing) < len(_cached_answers(cluster, queries)) else "What"
        return {"text": f"{reason}. {part} stands here is of", "time": oldest.at}
    warning = next((answer.warning for answer in _cached_answers(cluster, queries) if answer.warning), "")
    return {"text": f"A part may be missing: {warning}; as of", "time": cluster.snapshot.at} if warning else None


def outdated_states_note(cluster: ClusterNow, queries: Sequence[str]) -> Cells | None:
    """Return the same note for a part of a page that shows which GPUs are free."""
    snapshot = cluster.snapshot
    if not snapshot.answered or not snapshot.unanswered:
        return outdated_note(cluster, queries)
    if snapshot.is_old:
        return {"text": "What is free is unknown. What else stands here is of", "time": snapshot.answered}
    name = snapshot.unanswered[0]
    answer = snapshot.cached.get(name, NOT_YET)
    subject = "Which nodes are silent is unknown, so no GPU is known to be free" if name == "seen" else _STATES
    reason = f"{answer.problem[:1].upper()}{answer.problem[1:]}. " if answer.problem else ""
    return {"text": f"{reason}{subject}, since", "time": answer.failing or snapshot.at}


def _cached_answers(cluster: ClusterNow, queries: Sequence[str]) -> list[CachedAnswer]:
    return [cluster.snapshot.cached[name] for name in queries if name in cluster.snapshot.cached]
