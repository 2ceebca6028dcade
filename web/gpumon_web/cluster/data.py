"""The data of the cluster pages at one tick, notes on outdated or unknown parts, and formatted numbers and links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import quote

from gpumon.cluster.client import Answers
from gpumon.cluster.problems import unseen_nodes
from gpumon.cluster.snapshot import NOT_YET, CachedAnswer, ClusterSnapshot
from gpumon.common.config import Prices, UserGroups
from gpumon.common.numbers import is_known
from gpumon.model import units
from gpumon.model.metrics import Unit
from gpumon_web.components.machine import Now
from gpumon_web.components.page import Cells
from gpumon_web.components.tokens import link, text

_STATES = "The state of the GPUs is unknown"
NOTHING = ClusterSnapshot(0.0, {}, took=0.0)


class ClusterNow(NamedTuple):
    """Newest snapshot of the cluster, and settings of the server."""

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
            return {"text": "Values are from", "time": cluster.snapshot.answered}
        since = [answer.failing for answer in _cached_answers(cluster, queries) if answer.failing]
        return {"text": "No answer from Prometheus since", "time": min(since, default=cluster.snapshot.at)}
    failing = [cached[name] for name in queries if name in cached and cached[name].problem]
    if failing:
        oldest = min(failing, key=lambda answer: (answer.rows is not None, answer.at))
        reason = oldest.problem[:1].upper() + oldest.problem[1:]
        if oldest.rows is None:
            answered = [answer for answer in _cached_answers(cluster, queries) if answer.rows is not None]
            unknown = "Some values are unknown" if answered else "Values are unknown"
            return {"text": f"{unknown}. {reason}, since", "time": oldest.failing}
        part = "Some values" if len(failing) < len(_cached_answers(cluster, queries)) else "Values"
        return {"text": f"{reason}. {part} are from", "time": oldest.at}
    warning = next((answer.warning for answer in _cached_answers(cluster, queries) if answer.warning), "")
    return {"text": f"Values may be incomplete: {warning}; as of", "time": cluster.snapshot.at} if warning else None


def outdated_states_note(cluster: ClusterNow, queries: Sequence[str]) -> Cells | None:
    """Return the note of `outdated_note` for a part of a page that shows free GPUs.

    It also says whether the current state of the GPUs is unknown.
    """
    snapshot = cluster.snapshot
    if not snapshot.answered or not snapshot.unanswered:
        return outdated_note(cluster, queries)
    if snapshot.is_old:
        return {"text": "Free GPUs are unknown. Other values are from", "time": snapshot.answered}
    name = snapshot.unanswered[0]
    answer = snapshot.cached.get(name, NOT_YET)
    subject = "It is unknown which nodes are silent, so no GPU counts as free" if name == "seen" else _STATES
    reason = f"{answer.problem[:1].upper()}{answer.problem[1:]}. " if answer.problem else ""
    return {"text": f"{reason}{subject}, since", "time": answer.failing or snapshot.at}


def _cached_answers(cluster: ClusterNow, queries: Sequence[str]) -> list[CachedAnswer]:
    return [cluster.snapshot.cached[name] for name in queries if name in cluster.snapshot.cached]


_NAMED = 4
"""Maximum number of nodes named in a cell."""


def gpus(value: float) -> str:
    """Format a mean number of GPUs, which may be fractional."""
    if not is_known(value):
        return units.MISSING
    return f"{value:,.0f}" if abs(value - round(value)) < 0.05 or value >= 100 else f"{value:.1f}"


def percent(value: float) -> str:
    """Format a ratio as percent; a dash if unknown."""
    return units.number(value, Unit.RATIO) if is_known(value) else units.MISSING


def node_link(name: str, css: str = "name") -> Cells:
    """Return a link to a node's page."""
    return link(name, node_address(name), css)


def node_address(name: str) -> str:
    """Return the address of a node's page."""
    return f"#/node/{quote(name, safe='')}"


def user_address(name: str) -> str:
    """Return the address of a user's page."""
    return f"#/person/{quote(name, safe='')}"


def nodes(names: Sequence[str], count: float = 0.0) -> list[Cells]:
    """Return links to a few nodes and how many more there are; only `count` if the names were not queried."""
    if not names:
        return [text(units.counted(round(count), "node"), "mut")] if is_known(count) and count else []
    more = [text(f"and {len(names) - _NAMED:,} more", "mut")] if len(names) > _NAMED else []
    return [*(node_link(name) for name in names[:_NAMED]), *more]
