"""Everything that pages of a cluster know at one tick, and what each part of a page says where it is not of now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gpumon.cluster.client import Answers
from gpumon.cluster.picture import NEVER, ClusterPicture, KeptAnswer
from gpumon.cluster.problems import unseen_nodes
from gpumon.common.config import Prices, UserGroups
from gpumon_web.page import Cells, Now

_STATES = "What GPUs do is unknown"
NOTHING = ClusterPicture(0.0, {}, took=0.0)


class ClusterNow(NamedTuple):
    """A picture, and what the server was started with."""

    picture: ClusterPicture = NOTHING
    engine: str = ""
    """The engine's URL, for people."""
    prices: Prices | None = None
    node_page: str = ""
    """Address of a node's own pages, with `{host}` for its name; empty where nobody said."""
    groups: UserGroups | None = None

    @property
    def answers(self) -> Answers:
        """The rows of all that was ever answered."""
        return self.picture.answers()

    def unseen(self) -> Mapping[str, tuple[str, str]]:
        """Return nodes that never told their GPUs, with the words for one and for several of the same."""
        return unseen_nodes(self.picture.nodes(), self.answers)


def of(now: Now) -> ClusterNow:
    """Return what is known of the cluster; nothing before the first answers."""
    return now.cluster or ClusterNow()


def not_of_now(known: ClusterNow, questions: Sequence[str]) -> Cells | None:
    """Return why a part of a page is not of now, with the moment that it is of; None where it is."""
    kept = known.picture.kept
    if not known.picture.is_answered:  # the head of the page says why
        if any(one.rows is not None for one in _named(known, questions)):
            return {"text": "What stands here is of", "time": known.picture.answered}
        since = [one.failing for one in _named(known, questions) if one.failing]
        return {"text": "Unknown since", "time": min(since, default=known.picture.at)}
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
    return {"text": f"A part may be missing: {warned}; as of", "time": known.picture.at} if warned else None


def states_not_of_now(known: ClusterNow, questions: Sequence[str]) -> Cells | None:
    """Return the same for a part that says which GPUs are free."""
    picture = known.picture
    if not picture.answered or not picture.unanswered:
        return not_of_now(known, questions)
    if picture.is_old:
        return {"text": "What is free is unknown. What else stands here is of", "time": picture.answered}
    name = picture.unanswered[0]
    one = picture.kept.get(name, NEVER)
    what = "Which nodes are silent is unknown, so no GPU is known to be free" if name == "seen" else _STATES
    why = f"{one.problem[:1].upper()}{one.problem[1:]}. " if one.problem else ""
    return {"text": f"{why}{what}, since", "time": one.failing or picture.at}


def _named(known: ClusterNow, questions: Sequence[str]) -> list[KeptAnswer]:
    return [known.picture.kept[name] for name in questions if name in known.picture.kept]
