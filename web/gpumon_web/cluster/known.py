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


def of(now: Now) -> ClusterNow:
    """Return the data of the cluster; empty before the first answers."""
    return now.cluster or ClusterNow()


def not_of_now(known: ClusterNow, questions: Sequence[str]) -> Cells | None:
    """Return a note on why a part of a page is outdated, and its time; None if it is current."""
    kept = known.snapshot.cached
    if not known.snapshot.is_answered:  # the top of the page shows the reason
        if any(one.rows is not None for one in _named(known, questions)):
            return {"text": "What stands here is of", "time": known.snapshot.answered}
        since = [one.failing for one in _named(known, questions) if one.failing]
        return {"text": "Unknown since", "time": min(since, default=known.snapshot.at)}
    failing = [kept[name] for name in questions if name in kept and kept[name].problem]
    if failing:
        oldest = min(failing, key=lambda one: (one.rows is not None, one.at))
        why = oldest.problem[:1].upper() + oldest.problem[1:]
        if oldest.rows is None:
            told = [one for one in _named(known, questions) if one.rows is not None]
            return {"text": f"{'A part is unknown' if told else 'Unknown'}. {why}, since", "time": oldest.failing}
        some = "Some of what" if len(failing) < len(_named(known, questions)) else "What"
        return {"text": f"{why}. {some} stands here is of", "time": oldest.at}
    warned = next((one.warning for one in _named(known, questions) if one.warning), "")
    return {"text": f"A part may be missing: {warned}; as of", "time": known.snapshot.at} if warned else None


def states_not_of_now(known: ClusterNow, questions: Sequence[str]) -> Cells | None:
    """Return the same for a part that shows which GPUs are free."""
    snapshot = known.snapshot
    if not snapshot.answered or not snapshot.unanswered:
        return not_of_now(known, questions)
    if snapshot.is_old:
        return {"text": "What is free is unknown. What else stands here is of", "time": snapshot.answered}
    name = snapshot.unanswered[0]
    one = snapshot.cached.get(name, NOT_YET)
    what = "Which nodes are silent is unknown, so no GPU is known to be free" if name == "seen" else _STATES
    why = f"{one.problem[:1].upper()}{one.problem[1:]}. " if one.problem else ""
    return {"text": f"{why}{what}, since", "time": one.failing or snapshot.at}


def _named(known: ClusterNow, questions: Sequence[str]) -> list[CachedAnswer]:
    return [known.snapshot.cached[name] for name in questions if name in known.snapshot.cached]
